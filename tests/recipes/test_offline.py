"""Every recipe at a small scale, on offline tasks: a network that learned nothing, and the offline model for one."""

import html
import math
import re

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import icl_mech as icl
from icl_mech.models.loading import load_tokenizer
from icl_mech.recipes import recipes, reproduce
from icl_mech.recipes.comparing import OTHERS
from tests.said import Words

WORDS = Words(__file__)

pytestmark = pytest.mark.slow

HOW = {"tasks": "offline", "scale": 0.01, "progress": False}


@pytest.fixture(scope="module")
def small():
    """Five layers, a context of 2048 and the offline model's tokenizer."""
    tokenizer = load_tokenizer("smollm2-135m")
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 5}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 2048}
    with torch.random.fork_rng(devices=[]):
        hf_model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, **heads))
    return icl.load_model(hf_model, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp("recipes")


ONE_PROMPT = [name for name, own in recipes().items() if own.sweep["n"] == 1]


@pytest.mark.parametrize("name", [own for own in recipes() if own != "ot-late-components"])
def test_a_recipe_runs(name, small, folders):
    found = reproduce(name, {"small": small}, out=folders / name, **HOW)
    assert found.sweep.failures() == []
    assert found.rows
    for row in found.rows:
        assert "other tasks" in row.why
        if not row.number.has_meaning("small"):  # a head of the paper's model
            assert row.here == "–"
            continue
        assert row.basis, row.why  # of an average that there is
        # This network always answers alike, which leaves some numbers undefined.
        if not (row.number.undefined and math.isnan(row.own.value)):
            # A number of the run, of one prompt or of one set of demonstrations has no interval.
            alone = math.isnan(row.own.low)
            assert alone or not (row.number.name.startswith("speed-up") or name in ONE_PROMPT)
            ends = (row.own.value,) * 2 if alone else row.own[1:]
            assert ends[0] - 1e-9 <= row.own.value <= ends[1] + 1e-9, row.name  # rounding
            WORDS.only_if(alone, row.why, "no_interval")
    text = found.to_html(folders / f"{name}.html").read_text()
    assert OTHERS in html.unescape(text)
    assert "None of the" not in text  # a message meant for those who call average()
    latex = found.to_latex()
    lines = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert len({line.count(" & ") for line in lines}) == 1
    assert len(re.findall("[:;] other tasks", latex)) == 1  # for all rows together
    dashes = [line for line in lines if " --" in line]
    told = ("o value in", "gives none", "in another model")
    assert not dashes or any(why in latex for why in told)


def test_two_tables_of_the_same_runs_measure_once(small, folders, monkeypatch):
    def measured(*_, **__):
        pytest.fail("an item was measured again")

    out = folders / "ot-heads"
    reproduce("ot-heads", {"small": small}, out=out, resume=out.exists(), **HOW)
    monkeypatch.setattr("icl_mech.sweeps.work.analyze", measured)
    found = reproduce("ot-late-components", {"small": small}, out=out, resume=True, **HOW)
    assert len(found.rows) == 16
    assert all(row.own.low <= row.own.value <= row.own.high for row in found.rows)


def test_the_offline_model_is_chosen_with_offline_tasks(folders):
    found = reproduce("ot-prefix-matching", out=folders / "offline", **HOW)
    *theirs, row = found.rows  # five heads of GPT-J, which stand for nothing here
    assert [own.here for own in theirs] == ["–"] * 5
    assert (row.model, row.task) == ("smollm2-135m", "unnatural")
    assert -1 < row.own.low < row.own.value < row.own.high < 1
    assert row.own.value > 0.2
