"""What a page says of a run before its sections, and which prompt it shows."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import icl_mech as icl
from icl_mech.measurements.heads.head_attention import HeadAttentionResult
from icl_mech.measurements.predictions import Predictions
from icl_mech.prompts import build_prompts
from icl_mech.reports.prompts import ShownPrompt
from icl_mech.results import Result
from icl_mech.results.half_precision import HALF, measured
from icl_mech.studies.analysis import Analysis
from icl_mech.studies.facts import facts
from icl_mech.studies.pages import page_of, prompt_of
from tests.engine.cases import ragged
from tests.said import Words
from tests.texts.kinds import joining
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)
TABLE = Path(__file__).parents[2] / "docs" / "benchmarks" / "formats.md"

MODEL = {
    "name": "owner/Small-1B", "n_layers": 12, "n_heads": 8, "dtype": "float32", "device": "cpu",
    "weights_format": "Q4_1", "processed_weights": False,
}  # fmt: skip
TASK = {"name": "films", "labels": ["bad", "good"], "source": "films.csv; 40 rows"}
ORIGIN = {
    "model": MODEL,
    "prompts": {"task": TASK, "count": 24, "seed": 3, "split": "test", "shots": 2,
                "labels": "correct", "demonstrations": "shared"},
    "conditional_on_demonstrations": True,
    "versions": {"icl-mech": "0.1.0", "torch": "2.13.0"},
}  # fmt: skip


class Bare(Result):
    """A result without numbers, drawing or origin."""


def found(origin, prompts=(), made=None, **results):
    given = {"bare": replace(Bare(), provenance=origin), **results}
    return {fact.name: (fact.value, fact.detail) for fact in facts(given, prompts, made or {})}


def test_facts_of_a_run():
    made = {"date": "2026-11-22T11:00:00+01:00", "device": "cuda:0 (H100)"}
    facts = found(ORIGIN, made=made)
    demonstrations = facts.pop("Demonstrations")
    assert len(demonstrations) == 2
    WORDS.exactly(demonstrations, "demonstrations_of_a_run", "2 per class")
    assert facts == {
        "Model": ("owner/Small-1B", "12 layers × 8 heads, Q4_1 weights"),
        "Task": ("films, 2 classes", "films.csv"),
        "Prompts": ("24 prompts", "seed 3, test split"),
        "Made": ("22 November 2026", "cuda:0 (H100), float32"),
        "Versions": ("icl-mech 0.1.0", "torch 2.13.0"),
    }


def test_pairs_and_what_is_not_known():
    pair = {**ORIGIN, "false_prompts": {**ORIGIN["prompts"], "labels": "permuted"}}
    WORDS.exactly(found(pair)["Prompts"][0], "pairs_what_known", "24")
    WORDS.exactly(found(pair)["Demonstrations"][0], "pairs_what_known_2", "2")
    assert found(ORIGIN)["Made"] == ("CPU, float32", "")
    assert found({}) == {}


def test_prompts_by_class():
    batch = ragged()
    origin = {"model": MODEL, "prompts": {"count": 5}}
    WORDS.exactly(found(origin, (batch,))["Prompts"][0], "prompts_class", "5", "2", "0", "1")
    many = {**ORIGIN["prompts"], "task": {"name": "t", "labels": [str(i) for i in range(40)]}}
    answers = torch.arange(40).repeat(2)
    predictions = Predictions(
        label_logits=torch.zeros(80, 40), log_probs=torch.zeros(80, 40),
        predicted=answers, top_tokens=answers[:, None], answers=answers, labels=tuple(map(str, range(40))),
        provenance={"model": MODEL, "prompts": many},
    )  # fmt: skip
    WORDS.exactly(found({}, p=predictions)["Prompts"][0], "prompts_class_2", "24")


def test_a_result_without_figure_or_numbers_has_a_section_all_the_same():
    report = icl.Analysis({"bare": Bare()}, "the title", ("left out",))
    page = report.page()
    (section,) = page.sections
    assert (section.name, section.figure, section.numbers) == ("Bare", None, None)
    assert (page.title, page.origin.facts, page.prompt) == ("the title", (), None)
    assert page.origin.limits[-1] == "left out"
    assert report.study == ""


@pytest.mark.parametrize("kept", [True, False])
def test_the_prompt_with_the_attention_of_heads(kept):
    prompt = ragged()[0]
    tokens = tuple(map(str, prompt.tokens))
    attention = HeadAttentionResult(
        heads=((3, 1), (0, 2)),
        values=(torch.rand(2, len(tokens)),),
        tokens=(tokens,),
        marks=(tuple("label" if i in prompt.label_positions else "" for i in range(len(tokens))),),
    )
    text = prompt_of({"head_attention": attention}, (ragged(),) if kept else ())
    assert text.coloured.names == ("3.1", "0.2")
    assert text.coloured.heads == ((3, 1), (0, 2))
    assert text.ids == (prompt.tokens if kept else ())
    assert [i for i, role in enumerate(text.roles) if role == "label_word"] == list(
        prompt.label_positions
    )
    WORDS.starts(text.lead, "first_prompt" if kept else "one_prompt")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_half_precision_is_said_with_what_it_moved(dtype):
    half = dtype != "float32"
    result = replace(Bare(), provenance={**ORIGIN, "model": {**MODEL, "dtype": dtype}})
    run = Analysis({"bare": result, "again": result}, "a run")
    limits = [limit for limit in page_of(run).origin.limits if "float32" in limit]
    assert len(limits) == half
    assert (dtype in repr(result)) == half
    if half:
        facts = measured()[dtype]
        WORDS(limits[0], "half_precision", dtype, facts["same"], measured()["prompts"])


def test_what_pages_quote_of_half_precision_is_what_the_table_says():
    quoted = measured()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TABLE.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    ][2:]
    assert {row[0] for row in rows} == set(HALF)
    for kind in HALF:
        own = [list(map(float, row[2:])) for row in rows if row[0] == kind]
        assert [row[1] for row in rows if row[0] == kind] == quoted["tasks"]
        same, *moved = zip(*own, strict=True)
        assert sum(same) == quoted[kind]["same"]
        for name, values in zip(("logit", "flow", "auc", "loyalty"), moved, strict=True):
            assert max(values) == pytest.approx(quoted[kind][name], abs=6e-4)


def test_tokens_of_two_roles_are_named():
    batch = build_prompts("reviews", joining(), shots=1, n=2)
    text = prompt_of({}, (batch,))
    assert text.shared == batch[0].shared_tokens != ()
    assert {text.tokens[place] for place in text.shared} == {".\n"}
    tokens = ShownPrompt.of(text, "prompt", None).tokens
    assert tuple(place for place, token in enumerate(tokens) if token.shared) == text.shared
    apart = build_prompts("reviews", tiny_tokenizer("bpe"), shots=1, n=2)
    assert prompt_of({}, (apart,)).shared == ()
