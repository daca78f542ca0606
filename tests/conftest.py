"""Settings that must hold before any test imports a model library."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # a test that reaches for the network fails at once
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Tiny models gain nothing from more; what is computed must not depend on it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.metadata

import jaxtyping
import pytest
import torch

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lens = importlib.metadata.version("transformer-lens")
    reasons = {}
    if not lens.startswith("3."):
        reasons["hooked"] = f"HookedTransformer is gone from TransformerLens {lens}: make test-tl3"
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


def pytest_terminal_summary(terminalreporter) -> None:
    from tests.browser.chromium import MISSING

    skipped = [
        own for own in terminalreporter.stats.get("skipped", []) if MISSING in str(own.longrepr)
    ]
    if skipped:
        terminalreporter.write_line(
            f"!!! {len(skipped)} TESTS OF PAGES DID NOT RUN: {MISSING} (make browser)",
            red=True,
            bold=True,
        )
