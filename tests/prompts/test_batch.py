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

WORDS = ((40,), (50, 51), (60,))


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
        "label_words": WORDS,
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
        WORDS,
        answer=2,
    )


def empty():
    """No demonstration."""
    spans = (Span("query_text", None, 0, 1), Span("target", None, 1, 2))
    return Prompt((1, 2), spans, (), WORDS, answer=0)


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
    assert "Unknown role 'label_words'. Did you mean 'label_word'" in str(caught.value)


def test_missing_answers():
    prompts = PromptBatch((short(), short(answer=None), short(answer=None)))
    assert not prompts.has_answers
    assert batch().has_answers
    with pytest.raises(PromptError) as caught:
        _ = prompts.answers
    assert "2 of 3 prompts have no answer" in str(caught.value)
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
        with pytest.raises(PromptError, match="at least one prompt"):
            build()


def test_other_label_words():
    other = short(label_words=((40,), (50,), (60,)), labels=("x", "y", "z"))
    with pytest.raises(PromptError) as caught:
        PromptBatch((short(), short(), other))
    for fragment in ("Prompt 2 has other label words", "'x'", "prompt 0", "separate batches"):
        assert fragment in str(caught.value)


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
        ([True, False], "mask of 2 booleans for 3 prompts"),
        ([1.0, 2.0], "cannot be chosen by"),
        ("two", "cannot be chosen by"),
        (True, "cannot be chosen by"),
        ([[0, 1], [1, 2]], "cannot be chosen by"),
        ([[0], [1, 2]], "cannot be chosen by"),
        (None, "cannot be chosen by"),
        (3, "no prompt 3: the batch has 3"),
        ([0, -4], "no prompt -4"),
        ([], "needs at least one prompt"),
        ([False] * 3, "needs at least one prompt"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("unchecked")
def test_indices_that_choose_nothing_are_refused(index, told):
    with pytest.raises(PromptError, match=told):
        batch()[index]
    with pytest.raises(IndexError):
        batch()[3]


def test_copies_of_one_prompt_are_told():
    says = "1 of 3 prompts repeat another one token for token, such as prompt 2 prompt 0; intervals"
    examples = [Example("a b", 1), Example("c d", 0), Example("a b", 1)]
    with pytest.warns(UserWarning, match=says):
        build_prompts(TASK, BPE, queries=examples)
    with pytest.warns(UserWarning, match="1 of 2 prompts repeat"):
        icl.texts(["One two. Three four."] * 2, BPE)


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_list_of_prompts_is_refused():
    with pytest.raises(PromptError, match="Prompt 0 of the batch is a NoneType"):
        PromptBatch(None)


def test_fewest_and_most_demonstrations_are_told():
    assert "x prompts, 0-2 demonstrations, 2-8 tokens" in repr(batch())
    assert "x prompts, 1 demonstrations" in repr(PromptBatch((short(),)))
