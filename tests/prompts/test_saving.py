"""Prompts as plain values: what comes back is what was written, or is refused."""

import json

import numpy as np
import pytest

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.prompts import PromptBatch
from tests.engine.cases import ragged
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)


def through_json(batch):
    return PromptBatch.from_dict(json.loads(json.dumps(batch.to_dict())))


@pytest.fixture(scope="module")
def batch():
    return icl.build_prompts(TASK, tiny_tokenizer("bpe"), shots=2, n=6, labels="permuted")


@pytest.mark.parametrize("kind", ["built", "text", "positions"])
def test_what_comes_back_is_what_was_written(batch, kind):
    if kind == "text":
        texts = ["good bad Sports\nbad World\ngood", "film World\nbad"]
        batch = icl.prompts_from_text(
            texts, [" Sports", " World"], tiny_tokenizer("bpe"), answers=[1, 0]
        )
    elif kind == "positions":
        batch = ragged()
    found = through_json(batch)
    assert found.prompts == batch.prompts
    assert found.digest == batch.digest
    assert found.source == json.loads(json.dumps(batch.source))
    assert repr(found) == repr(batch)


@pytest.mark.usefixtures("unchecked")
def test_numbers_of_other_libraries_change_no_digest(batch):
    first = batch[0]
    other = icl.Prompt(**{**vars(first), "tokens": tuple(np.array(first.tokens))})
    assert PromptBatch((other,)).digest == PromptBatch((first,)).digest
    assert through_json(PromptBatch((other,))).prompts == (first,)


def test_text_that_is_not_the_usual_one_of_its_token_stays(batch):
    first = batch[0]
    changed = icl.Prompt(**{**vars(first), "pieces": ("‮<b>", *first.pieces[1:])})
    named = icl.Prompt(**{**vars(first), "labels": ("x", "y", "z")[: len(first.labels)]})
    bare = icl.Prompt(**{**vars(first), "pieces": ()})
    both = PromptBatch((first, changed, named, bare))
    assert through_json(both).prompts == both.prompts


def test_many_prompts_stay_small(batch):
    many = PromptBatch(batch.prompts * 50, batch.source)
    size = len(json.dumps(many.to_dict(), separators=(",", ":")))
    assert size < 15 * int(many.lengths.sum())


@pytest.mark.parametrize(
    "damage",
    [
        lambda v: v.pop("prompts"),
        lambda v: v.pop("digest"),
        lambda v: v.update(prompts=[]),
        lambda v: v.update(source=3),
        lambda v: v["prompts"][0].pop("answer"),
        lambda v: v["prompts"][0].update(answer=99),
        lambda v: v["prompts"][0].update(answer=(v["prompts"][0]["answer"] + 1) % 2),
        lambda v: v["prompts"][0]["tokens"].reverse(),
        lambda v: v["prompts"][0]["tokens"].pop(),
        lambda v: v["prompts"][0]["spans"].pop(0),
        lambda v: v["roles"].clear(),
        lambda v: v["pieces"].clear(),
        lambda v: v.update(label_words=7),
    ],
)
def test_damaged_values_are_refused(batch, damage):
    values = json.loads(json.dumps(batch.to_dict()))
    damage(values)
    with pytest.raises(PromptError):
        PromptBatch.from_dict(values)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("values", [None, [], "prompts"])
def test_what_are_no_values(values):
    with WORDS.raises(PromptError, "what_no_values"):
        PromptBatch.from_dict(values)
