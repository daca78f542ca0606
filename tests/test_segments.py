"""Laying prompts out in padded rows, and batches of similar length."""

from itertools import pairwise

import pytest
import torch

from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment, by_length
from tests.engine.cases import LABEL_TOKENS, prompt, ragged
from tests.tiny import tiny_model


@pytest.fixture(scope="module")
def model():
    return adapt(tiny_model("gpt2"))


@pytest.fixture(scope="module")
def prompts():
    """Five tokens with a label word at 1, three with one at 1."""
    return PromptBatch(
        (prompt(5, (1, 3), (2, 0), answer=0), prompt(3, (1,), (1,), answer=1, seed=1))
    )


def test_padding_stands_on_the_left(model, prompts):
    whole = Segment.whole(model, prompts)
    long, short = prompts
    assert whole.tokens.tolist() == [list(long.tokens), [0, 0, *short.tokens]]
    assert whole.dest.tolist() == [[0, 1, 2, 3, 4], [-1, -1, 0, 1, 2]]
    assert whole.src.tolist() == whole.dest.tolist()
    assert whole.positions.tolist() == [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]
    assert whole.mask.tolist() == [[True] * 5, [False, False, True, True, True]]


def test_positions_of_the_prompts_are_found_in_the_rows(model, prompts):
    whole = Segment.whole(model, prompts)
    assert whole.target_row.tolist() == [4, 4]
    assert whole.dest_classes.tolist() == [[-1, 2, -1, 0, -1], [-1, -1, -1, 1, -1]]
    assert whole.src_classes.tolist() == whole.dest_classes.tolist()
    assert whole.label_tokens.tolist() == [list(LABEL_TOKENS)] * 2


def test_rows_at_the_target(model):
    whole = Segment.whole(model, ragged())
    tokens = whole.at_target(whole.tokens[:, :, None].float())[:, 0]
    assert tokens.tolist() == [prompt.tokens[-1] for prompt in ragged()]


def test_a_part_behind_cached_positions(model, prompts):
    """Rows 2 and 3 of one prompt and 2 of the other; two columns are cached, one is a hole."""
    part = Segment.build(
        model,
        prompts,
        [7, 3],
        spans=[(2, 5), (2, 3)],
        left=False,
        cached=torch.tensor([[0, 1], [0, 1]]),
    )
    long, short = prompts
    assert part.tokens.tolist() == [list(long.tokens[2:]), [short.tokens[2], 0, 0]]
    assert part.dest.tolist() == [[2, 3, 4], [2, -1, -1]]
    assert part.src.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]]
    assert part.target_row.tolist() == [2, 0]
    assert part.dest_classes.tolist() == [[-1, 0, -1], [-1, -1, -1]]
    assert part.src_classes.tolist() == [[-1, 2, -1, 0, -1], [-1, 1, -1, -1, -1]]


def test_a_target_outside_the_part_has_no_row(model, prompts):
    part = Segment.build(model, prompts, [0, 1], spans=[(0, 3), (0, 3)])
    rows, columns = part.targets_inside
    assert (rows.tolist(), columns.tolist()) == ([1], [2])
    assert part.column(0, 3) is None
    assert part.column(0, 2) == 2


def test_batches_hold_prompts_of_similar_length():
    assert by_length([5, 9, 3, 9, 4], tokens=18, size=None) == [[1, 3], [0, 4, 2]]


def test_batches_stay_within_their_tokens():
    lengths = [int(n) for n in torch.randint(1, 90, (60,), generator=torch.Generator())]
    batches = by_length(lengths, tokens=200, size=None)
    assert sorted(index for batch in batches for index in batch) == list(range(60))
    assert all(len(batch) * max(lengths[i] for i in batch) <= 200 for batch in batches)
    ends = [(lengths[batch[0]], lengths[batch[-1]]) for batch in batches]
    assert all(low >= high for (_, low), (high, _) in pairwise(ends))


def test_a_prompt_larger_than_a_batch_runs_alone():
    assert by_length([7, 50, 2], tokens=10, size=None) == [[1], [0], [2]]


def test_batches_of_a_given_size():
    assert by_length([1, 2, 3, 4, 5], tokens=1000, size=2) == [[4, 3], [2, 1], [0]]
    assert by_length([4, 4, 4], tokens=1000, size=1) == [[0], [1], [2]]
