"""Settings that must hold before any test imports a model library."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # a test that reaches for the network fails at once
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Tiny models gain nothing from more; what is computed must not depend on it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.metadata
from pathlib import Path

import jaxtyping
import pytest
import torch

from tests import check, patience, tiers, typechecked
from tests.browser import chromium

patience.scale()  # measured once; workers of this session have the same
typechecked.install()

from icl_mech.interventions import base as interventions  # noqa: E402 - checked from here on
from icl_mech.model_sources import SECOND_MODEL, resolve  # noqa: E402
from icl_mech.models import checks  # noqa: E402
from icl_mech.results import record  # noqa: E402
from icl_mech.studies import kept_nulls  # noqa: E402

NO_SECOND_MODEL = "the package of Gemma 3 270M is not installed"
LOUD = (("PAGES", chromium.MISSING, "browser"), ("THE SECOND MODEL", NO_SECOND_MODEL, "second"))
"""What is skipped loudly: tests of what, for which reason, and the target that mends it."""

checks.checks_folder = lambda: None  # every model is checked, whatever passed before
kept_nulls.nulls_folder = lambda: None  # and every network measured
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the files of tests/tiers.py only")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--quick") and tiers.is_left_out(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before they are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tiers.mark_second_families(items)
    tiers.mark_combinations(items)
    lens = importlib.metadata.version("transformer-lens")
    reasons = {}
    if not lens.startswith("3."):
        reasons["hooked"] = f"HookedTransformer is gone from TransformerLens {lens}: make test-tl3"
    if resolve(SECOND_MODEL).kind != "gguf":
        reasons["second_model"] = NO_SECOND_MODEL
    if not torch.cuda.is_available():
        reasons["gpu"] = "needs a CUDA device"
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def unchecked():
    """Shape checks off, as for a user: the package's own refusals are seen."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module", autouse=True)
def own_kinds_end_with_their_module():
    """Kinds of results and interventions that a test wrote as a reader would are known no longer.

    Two pages may name theirs alike; which of them ran first on this worker must not matter.
    """
    registries = (record._KINDS, interventions._KINDS)
    before = [set(known) for known in registries]
    yield
    for known, names in zip(registries, before, strict=True):
        for name in set(known) - names:
            if known[name].__module__.partition(".")[0] not in ("icl_mech", "tests"):
                del known[name]


def pytest_terminal_summary(terminalreporter) -> None:
    if path := os.environ.pop(check.REPORT, None):
        check.report(terminalreporter.stats, path)

    for what, missing, make in LOUD:
        skipped = [
            own for own in terminalreporter.stats.get("skipped", []) if missing in str(own.longrepr)
        ]
        if skipped:
            terminalreporter.write_line(
                f"!!! {len(skipped)} TESTS OF {what} DID NOT RUN: {missing} (make {make})",
                red=True,
                bold=True,
            )
