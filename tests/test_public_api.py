"""The public names: few, importable, explained."""

import importlib
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch

import icl_mech
from icl_mech.measurements.predictions import Predictions
from tests.said import Words

WORDS = Words(__file__)

PUBLIC = (*icl_mech.__all__, *icl_mech.ELSEWHERE, *icl_mech.ALIASES)

NAMES = [
    "Analysis", "Example", "IclMechError", "Prompt", "PromptBatch", "Span", "Task", "Template", "ablation",
    "analyze", "anchor_tokens", "build_prompt_pairs", "build_prompts", "compress_demonstrations",
    "diagnose_confusion", "extraction", "find_false_induction_heads", "fit_reweighting", "flow_scores",
    "head_scores", "isolation", "layer_accuracy", "load_analysis", "load_model", "load_task", "logit_lens",
    "measure", "predict", "prompts_from_text", "saliency_maps", "sweep", "untrained",
]  # fmt: skip


def test_no_name_is_lost():
    assert set(NAMES) <= set(PUBLIC)


def test_few_names_stand_at_the_top():
    assert len(icl_mech.__all__) <= 45
    assert not set(icl_mech.__all__) & set(icl_mech.ELSEWHERE)
    assert set(PUBLIC) <= set(dir(icl_mech))


def test_names_are_in_order_and_once():
    assert list(icl_mech.__all__) == sorted(set(icl_mech.__all__))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_imports_and_is_explained(name):
    scope = {}
    exec(f"from icl_mech import {name}", scope)  # noqa: S102 - as a user would
    explained = scope[name].__doc__ or ""
    assert re.match(r"[A-Z`(][^\n]{15,}", explained), f"{name} has no docstring of its own"
    assert not explained.startswith(f"{name}("), f"{name} has a dataclass' generated docstring"


@pytest.mark.parametrize("name", PUBLIC)
def test_no_name_hides_a_module(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"icl_mech.{name}")


def test_a_star_import_gives_these_names():
    scope = {}
    exec("from icl_mech import *", scope)  # noqa: S102 - as a user would
    assert set(scope) - {"__builtins__"} == set(icl_mech.__all__)


def test_version():
    assert icl_mech.__version__ == version("icl-mech")
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", icl_mech.__version__)


def test_an_unknown_name():
    with WORDS.raises(AttributeError, "unknown_name", "'icl_mech'", "'saliency_map'"):
        _ = icl_mech.saliency_map


def test_importing_is_light():
    """Models, plots and tables are loaded when they are used."""
    code = "import icl_mech, sys; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = [
        "torch",
        "numpy",
        "transformer_lens",
        "transformers",
        "plotly",
        "pandas",
        "datasets",
        "sklearn",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *heavy], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_versions_are_told_without_the_libraries():
    code = (
        "import sys; from icl_mech.__main__ import main\n"
        "sys.argv[1:] = ['--version']; main(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    told, heavy = done.stdout.splitlines()
    assert told.startswith(f"icl-mech {version('icl-mech')} (torch {version('torch')}, ")
    assert heavy == "False"


def test_modules_are_there_when_they_are_asked_for():
    code = (
        "import icl_mech; icl_mech.metrics.auc; icl_mech.measurements.Flow\n"
        "from icl_mech.results.record import known_kinds; print('Predictions' in known_kinds())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "True"


def test_a_saved_result_is_read_by_a_process_that_imported_nothing_else(tmp_path):
    """Its kind becomes known by reading it."""
    code = (
        "import sys; from icl_mech.results import Result\n"
        "print('icl_mech.measurements' in sys.modules, type(Result.load(sys.argv[1])).__name__)"
    )
    zeros = torch.zeros(2, 2)
    ids = zeros.long()
    kept = Predictions(label_logits=zeros, log_probs=zeros, predicted=ids[0], top_tokens=ids)
    kept.save(tmp_path / "kept")
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "kept"], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "Predictions"]
