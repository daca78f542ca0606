"""`PromptBatch`: positions of prompts of different lengths, as tensors."""

import inspect

import numpy as np
import pytest
import torch

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, PromptBatch, Span, build_prompts
from icl_mech.tasks import Example
from tests.prompts.test_build import BPE, TASK
from tests.said import Words

WORDS = Words(__file__)

LABEL_WORDS = ((40,), (50, 51), (60,))


def short(**changes):
    """BOS, label, query, target."""
    given = {
        "tokens": (0, 60, 1, 2),
        "spans": (
            Span("bos", None, 0, 1),
            Span("label_word", 0, 1, 2),
            Span("query_text", None, 2, 3),
            Span("target", None, 3, 4),
        ),
        "label_classes": (2,),
        "label_words": LABEL_WORDS,
        "answer": 1,
    }
    return Prompt(**{**given, **changes})


def long():
    """Text, two-token label, break, label, query, target."""
    return Prompt(
        (1, 2, 50, 51, 3, 40, 4, 5),
        (
            Span("demo_text", 0, 0, 2),
            Span("label_word", 0, 2, 4),
            Span("format", 0, 4, 5),
            Span("label_word", 1, 5, 6),
            Span("query_text", None, 6, 7),
            Span("target", None, 7, 8),
        ),
        (1, 0),
        LABEL_WORDS,
        answer=2,
    )


def empty():
    """No demonstration."""
    spans = (Span("query_text", None, 0, 1), Span("target", None, 1, 2))
    return Prompt((1, 2), spans, (), LABEL_WORDS, answer=0)


def batch():
    return PromptBatch((short(), long(), empty()), {"seed": 1})


def test_tensors_by_hand():
    prompts = batch()
    assert prompts.lengths.tolist() == [4, 8, 2]
    assert prompts.targets.tolist() == [3, 7, 1]
    assert prompts.label_tokens.tolist() == [40, 50, 60]
    assert prompts.label_positions.tolist() == [[1, -1], [2, 5], [-1, -1]]
    assert prompts.label_classes.tolist() == [[2, -1], [1, 0], [-1, -1]]
    assert prompts.position_classes.tolist() == [
        [-1, 2, -1, -1, -1, -1, -1, -1],
        [-1, -1, 1, -1, -1, 0, -1, -1],
        [-1, -1, -1, -1, -1, -1, -1, -1],
    ]
    assert prompts.answers.tolist() == [1, 2, 0]
    assert (len(prompts), prompts.n_labels, prompts.n_demos) == (3, 3, 2)


def test_positions_index_the_tokens_they_name():
    prompts = batch()
    rows = torch.zeros(3, 8, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        rows[row, : len(prompt)] = torch.tensor(prompt.tokens)
    there = prompts.label_positions >= 0
    ids = rows.gather(1, prompts.label_positions.clamp(min=0))[there]
    assert ids.tolist() == prompts.label_tokens[prompts.label_classes[there]].tolist()


@pytest.mark.parametrize(
    ("role", "positions"),
    [
        ("label_word", [(0, 1), (1, 2), (1, 3), (1, 5)]),
        ("target", [(0, 3), (1, 7), (2, 1)]),
        ("bos", [(0, 0)]),
        ("demo_text", [(1, 0), (1, 1)]),
        ("query_text", [(0, 2), (1, 6), (2, 0)]),
        ("format", [(1, 4)]),
        ("narrative", []),
    ],
)
def test_where_by_hand(role, positions):
    mask = batch().where(role)
    assert list(map(tuple, mask.nonzero().tolist())) == positions


def test_roles_share_every_token_out_once():
    prompts = batch()
    roles = ("bos", "narrative", "format", "demo_text", "label_word", "query_text", "target")
    counts = sum(prompts.where(role).int() for role in roles)
    real = torch.arange(8) < prompts.lengths[:, None]
    assert torch.equal(counts, real.int())


def test_unknown_role():
    plain = inspect.unwrap(PromptBatch.where)
    with pytest.raises(PromptError) as caught:
        plain(batch(), "label_words")
    WORDS(str(caught.value), "unknown_role", "'label_words'", "'label_word'")


def test_missing_answers():
    prompts = PromptBatch((short(), short(answer=None), short(answer=None)))
    assert not prompts.has_answers
    assert batch().has_answers
    with pytest.raises(PromptError) as caught:
        _ = prompts.answers
    WORDS(str(caught.value), "missing_answers", "2", "3")
    assert "answers=" in str(caught.value)


def test_slices_keep_prompts_and_source():
    prompts = batch()
    assert prompts[1] == long()
    assert prompts[-1] == empty()
    for part, expected in (
        (prompts[1:], (long(), empty())),
        (prompts[::-1], (empty(), long(), short())),
        (prompts[[2, 0, 2]], (empty(), short(), empty())),
    ):
        assert isinstance(part, PromptBatch)
        assert part.prompts == expected
        assert part.source == {"seed": 1}
    assert list(prompts) == [short(), long(), empty()]


def test_a_smaller_batch_is_padded_to_its_own_size():
    part = batch()[[0, 2]]
    assert part.label_positions.tolist() == [[1], [-1]]
    assert part.where("target").tolist() == [
        [False, False, False, True],
        [False, True, False, False],
    ]


def test_nothing_to_study():
    for build in (lambda: PromptBatch(()), lambda: batch()[3:]):
        with WORDS.raises(PromptError, "nothing_study"):
            build()


def test_other_label_words():
    other = short(label_words=((40,), (50,), (60,)), labels=("x", "y", "z"))
    with WORDS.raises(PromptError, "other_label_words", "Prompt 2", "'x'", "prompt 0"):
        PromptBatch((short(), short(), other))


@pytest.mark.parametrize(
    "index",
    [
        [False, True, True],
        np.array([False, True, True]),
        torch.tensor([False, True, True]),
        [1, 2],
        (1, -1),
        range(1, 3),
        np.array([1, 2], dtype=np.uint8),
        torch.tensor([1, 2]),
    ],
    ids=str,
)
@pytest.mark.usefixtures("unchecked")
def test_masks_and_numbers_choose_prompts(index):
    prompts = batch()
    assert prompts[index].prompts == prompts.prompts[1:]


@pytest.mark.usefixtures("unchecked")
def test_one_prompt_by_any_whole_number():
    prompts = batch()
    for number in (1, np.int64(1), torch.tensor(1), -2):
        assert prompts[number] is prompts.prompts[1]


@pytest.mark.parametrize(
    ("index", "told"),
    [
        ([True, False], "mask of 2 for 3"),
        ([1.0, 2.0], "cannot chosen"),
        ("two", "cannot chosen"),
        (True, "cannot chosen"),
        ([[0, 1], [1, 2]], "cannot chosen"),
        ([[0], [1, 2]], "cannot chosen"),
        (None, "cannot chosen"),
        (3, "no prompt 3"),
        ([0, -4], "no prompt -4"),
        ([], "needs least prompt"),
        ([False] * 3, "needs least prompt"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("unchecked")
def test_indices_that_choose_nothing_are_refused(index, told):
    with WORDS.raises(PromptError, told):
        batch()[index]
    with pytest.raises(IndexError):
        batch()[3]


def test_copies_of_one_prompt_are_told():
    examples = [Example("a b", 1), Example("c d", 0), Example("a b", 1)]
    with WORDS.warns(UserWarning, "copies_told", "1 of 3", "prompt 2", "prompt 0"):
        build_prompts(TASK, BPE, queries=examples)
    with WORDS.warns(UserWarning, "copies_prompt_told", "1", "2"):
        icl.texts(["One two. Three four."] * 2, BPE)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_list_of_prompts_is_refused():
    with WORDS.raises(PromptError, "what_no_list_prompts", "0"):
        PromptBatch(None)


def test_fewest_and_most_demonstrations_are_told():
    WORDS(repr(batch()), "fewest_most_demonstrations_told", "0-2", "2-8")
    WORDS(repr(PromptBatch((short(),))), "fewest_most_demonstrations_told_2", "1")
