"""Texts compressed to the ends of their spans: numbers by plain Hugging Face, controls, and the claim."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.measurements import CompareCompression
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.studies.anchors import ANCHORS, CARRY
from icl_mech.studies.judge import verdict
from tests.measurements.compression.cases import WITHOUT_WINDOW, rows_behind, task
from tests.tiny import tiny_model

TEXTS = [
    "The film was good. It was a story! Was it bad? The plot was good. We left it.",
    "Stocks fell on Monday. The home team won. A movie is good. Who is it?",
    "A movie is bad. The team won on Monday. It was a boring story. The film was good and bad.",
]
THREE = ("hidden_anchor", "text_anchor", "hidden_random")


def measured(model, prompts, methods=THREE):
    own = CompareCompression(methods)
    return icl.measure(model, prompts, own, progress=False)


@pytest.mark.parametrize("family", WITHOUT_WINDOW)
@pytest.mark.parametrize("continuation", [None, " The end"])
def test_what_follows_is_that_of_plain_hugging_face(family, continuation):
    model = tiny_model(family)
    prompts = icl.texts(TEXTS, model, continuation=continuation)
    found = measured(model, prompts)["compare_compression"]
    for number, prompt in enumerate(prompts):
        query = prompt.text_spans[-2][1]
        with torch.no_grad():
            whole = model.original_model(torch.tensor([prompt.tokens])).logits[0]
        full = whole[query : prompt.target + 1].double().log_softmax(-1)
        tokens = list(prompt.tokens[query + 1 : prompt.target + 2])
        if continuation is None:
            tokens.append(int(full[-1].argmax()))
        for place in (0, 2):
            kept = found.kept[place][number]
            own = rows_behind(model, prompt, kept, query, query).double().log_softmax(-1)
            kl = (full.exp() * (full - own)).sum(-1).mean()
            change = (own - full).gather(1, torch.tensor(tokens)[:, None]).mean()
            same = (own.argmax(-1) == full.argmax(-1)).double().mean()
            assert_close(found.kl[place, number], kl, atol=1e-5, rtol=0)
            assert_close(found.log_prob[place, number], change, atol=1e-5, rtol=0)
            assert_close(found.next_tokens[place, number], same, atol=1e-9, rtol=0)


def test_random_tokens_leave_the_end_before_the_query():
    model = tiny_model("gpt2")
    prompts = icl.texts(TEXTS, model)
    ends, _, random = measured(model, prompts)["compare_compression"].kept
    for prompt, one, other in zip(prompts, ends, random, strict=True):
        spans = prompt.text_spans[:-1]
        assert {stop - 1 for _, stop in spans} <= set(one)
        assert len(one) == len(other)
        assert spans[-1][1] - 1 in other
        for start, stop in spans[:-1]:
            (drawn,) = set(other) & set(range(start, stop))
            assert drawn != stop - 1


def test_one_end_has_no_control():
    model = tiny_model("gpt2")
    short = icl.texts(["The film was good. We left it."], model)
    found = measured(model, short, ("hidden_anchor", "hidden_random"))["compare_compression"]
    assert found.difference("hidden_anchor", "hidden_random", "kl").value == 0
    long = icl.texts(["The film was good. It was a story. We left it."] * 6, model)
    assert verdict(CARRY, measured(model, long)) is not None
    both = icl.PromptBatch((*long, short[0]), long.source)
    for prompts in (short, both):
        assert verdict(CARRY, measured(model, prompts)) is None


def test_classes_have_no_tokens_that_follow():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(task(), model, shots=1, n=4)
    found = measured(model, prompts)["compare_compression"]
    assert (found.kl, found.log_prob, found.next_tokens) == (None, None, None)
    with pytest.raises(IclMechError, match="kl"):
        found.difference("hidden_anchor", "hidden_random", "kl")
    assert verdict(CARRY, measured(model, prompts)) is None


def test_the_table_and_files_hold_them(tmp_path):
    model = tiny_model("gpt2")
    found = measured(model, icl.texts(TEXTS, model))["compare_compression"]
    table = found.drawing("table")
    assert {len(row) for row in table.rows} == {len(table.columns)}
    found.save(tmp_path / "own")
    again = icl.load(tmp_path / "own")
    assert torch.equal(again.kl, found.kl)
    assert again.interval("next_tokens", method="hidden_anchor") == found.interval(
        "next_tokens", method="hidden_anchor"
    )


# --- the claim ---


def planted_texts(model, n=48):
    """Planted demonstrations as spans of texts, which end with their label words."""
    built = icl.build_prompts(icl.planted_task(), model, shots=1, n=n, demonstrations="per_prompt")
    return PromptBatch(tuple(map(as_text, built)))


def as_text(prompt):
    units = zip(prompt.units, prompt.label_spans, strict=True)
    spans = [(start, word.stop) for (start, _), word in units]
    return Prompt.from_spans(prompt.tokens, spans, target=prompt.target, pieces=prompt.pieces)


def test_ends_carry_what_is_planted_in_them():
    model = icl.planted_model()
    run = measured(model, planted_texts(model))
    own = verdict(CARRY, run)
    assert own.status == "supported", own.finding
    assert CARRY in ANCHORS.claims
    assert [one.status for one in own.measures] == ["supported"] * 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_ends_carry_nothing_where_nothing_is_planted(seed):
    planted = icl.planted_model()
    for model in (icl.planted_model(anchors=False, seed=seed), icl.untrained(planted, seed)):
        own = verdict(CARRY, measured(model, planted_texts(planted)))
        assert own.status != "supported", own.finding


def test_the_claim_needs_the_control_and_six_texts():
    model = tiny_model("gpt2")
    prompts = icl.texts(TEXTS, model)
    own = verdict(CARRY, measured(model, prompts))
    assert own.status == "cannot be judged"
    assert verdict(CARRY, measured(model, prompts, THREE[:2])) is None
    assert verdict(CARRY, icl.measure(model, prompts, icl.measurements.Predict())) is None


def test_the_study_judges_it_where_it_was_measured():
    model = tiny_model("gpt2")
    more = [text.replace("good", own) for text in TEXTS for own in ("good", "bad", "boring")]
    prompts = icl.texts(more, model)
    plain = icl.analyze(model, prompts, study="anchors", progress=False)
    assert CARRY.text not in {own.claim for own in plain.verdicts()}
    own = CompareCompression(THREE)
    study = icl.analyze(model, prompts, study="anchors", measurements=[own], progress=False)
    found = {one.claim: one.status for one in study.verdicts()}
    assert found[CARRY.text] in ("not shown", "mixed", "opposite")
    assert CARRY.text.split(":")[0] in "".join(one.claim for one in study.page().origin.findings)
