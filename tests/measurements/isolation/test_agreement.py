"""What isolation keeps of every draw: classes, overlaps and words, and how draws widen intervals."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from icl_mech.interventions import Isolate
from icl_mech.looks.constant_answers import constants
from icl_mech.measurements.isolation.agreement import EXAMPLES, next_words, with_draws
from icl_mech.measurements.isolation.isolation import isolation
from icl_mech.measurements.predictions import predict
from icl_mech.metrics import Interval
from icl_mech.models import adapt
from icl_mech.prompts.encoding import TextTokenizer
from tests.margins import clear_prompts
from tests.measurements.isolation.cases import by_separate_runs, cuts_of, layers_of, many
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

# --- draws in an interval ---


def test_draws_widen_an_interval_at_a_right_angle():
    """Draws 0.1, 0.2, 0.3: standard error 0.1 / sqrt 3, t with two degrees of freedom 4.3027."""
    found = with_draws(Interval(0.2, 0.1, 0.5), torch.tensor([0.1, 0.2, 0.3]))
    half = 4.302653 * 0.1 / math.sqrt(3)
    expected = (0.2, 0.2 - math.sqrt(0.1**2 + half**2), 0.2 + math.sqrt(0.3**2 + half**2))
    assert tuple(found) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("drawn", [[0.4], [0.4, 0.4, 0.4]])
def test_one_draw_or_equal_ones_widen_nothing(drawn):
    found = Interval(0.4, 0.3, 0.6)
    assert with_draws(found, torch.tensor(drawn)) == found


def test_more_draws_widen_less():
    narrow, wide = (
        with_draws(Interval(0.0, -0.1, 0.1), torch.tensor([-0.1, 0.1] * n)) for n in (10, 2)
    )
    assert -0.25 < wide.low < narrow.low < -0.1
    assert wide.low == pytest.approx(-wide.high)


# --- of every draw ---


@pytest.fixture(scope="module")
def case():
    model = tiny_model("gpt2")
    return model, clear_prompts(model, many(9), cuts_of(depths=(1, 2), seed=3))


@pytest.fixture(scope="module")
def found(case):
    return isolation(*case, depths=[1, 2], draws=2, seed=3)


def test_overlap_of_every_draw(case, found):
    assert found.draw_overlap.shape == (8, 2)
    for i, (side, depth, tokens) in enumerate(found.windows):
        seeds = (3, 4) if tokens == "random" else (3,)
        kept, overlap = by_separate_runs(*case, (side, depth, tokens), seeds)
        assert_close(found.draw_overlap[i], overlap.mean(1).expand(2), rtol=0, atol=1e-12)
        assert_close(found.draw_loyalty[i], kept.mean(1).expand(2), rtol=0, atol=1e-12)
    drawn = [key[2] == "random" for key in found.windows]
    assert bool((found.draw_overlap[drawn][:, 0] != found.draw_overlap[drawn][:, 1]).any())


def test_classes_of_every_draw(case, found):
    model, prompts = case
    assert found.isolated.shape == (8, 2, len(prompts))
    assert found.predicted.tolist() == predict(model, prompts).predicted.tolist()
    for own, (side, depth, tokens) in zip(found.isolated, found.windows, strict=True):
        for draw, seed in enumerate((3, 4) if tokens == "random" else (3, 3)):
            cut = Isolate(layers_of(side, depth), tokens, seed=seed)
            expected = predict(model, prompts, interventions=[cut]).predicted
            assert own[draw].tolist() == expected.tolist()
    kept = (found.isolated == found.predicted).double()
    assert_close(kept.mean(1), found.label_kept)
    assert_close(kept.mean(2), found.draw_loyalty)


def test_words_without_isolation_and_of_the_first_draw(case, found):
    model, prompts = case
    assert len(found.words) == 1 + len(found.windows)
    runs = [(), *(
        (Isolate(layers_of(side, depth), tokens, seed=3),) for side, depth, tokens in found.windows
    )]  # fmt: skip
    for words, cut in zip(found.words, runs, strict=True):
        assert len(words) == EXAMPLES
        top = predict(model, prompts, interventions=cut).top_tokens
        texts = TextTokenizer(model.tokenizer)
        assert words == tuple(texts.words(tuple(row)) for row in top[:EXAMPLES].tolist())
    assert len(set(found.words)) > 1


def test_without_a_tokenizer_no_words(case):
    model = copy.copy(adapt(case[0]))
    top = torch.tensor([[5, 6]] * 5)
    assert len(next_words(model, top)) == EXAMPLES
    model.tokenizer = None
    assert next_words(model, top) == ()


# --- constant answers ---


def test_constants_that_matter():
    """Without isolation 5 a, 4 b, 1 c; isolated layers answer c nine times of ten, or vary."""
    plain = torch.tensor([0] * 5 + [1] * 4 + [2])
    windows = torch.tensor([[2] * 9 + [0], [0, 1] * 5])
    assert constants(plain, windows, "abcd") == [
        (0.1, "always “c” 0.10"), (0.25, "chance 0.25"), (0.5, "always “a” 0.50"),
    ]  # fmt: skip


def test_close_constants_share_words_not_a_line():
    """Of 17 prompts 5 say a: .29 is drawn where it is, not at chance, .25."""
    plain = torch.tensor([0] * 5 + [1] * 4 + [2] * 4 + [3] * 4)
    lines = constants(plain, torch.zeros(1, 17, dtype=torch.long), "abcd")
    assert [height for height, _ in lines] == [0.25, pytest.approx(5 / 17)]
    assert lines[0][1] == ""
    WORDS.exactly(lines[1][1], "close_constants", "0.25", "“a”", "0.29")


def test_equal_constants_share_a_line_and_unknown_windows_show_all():
    plain = torch.tensor([0] * 5 + [1] * 4 + [2])
    lines = constants(plain, None, "abc")
    assert [height for height, _ in lines] == pytest.approx([0.1, 1 / 3, 0.4, 0.5])
    lines = constants(torch.tensor([0, 0, 1, 1]), None, "ab")
    assert [height for height, _ in lines] == [0.5]
    WORDS.exactly(lines[0][1], "equal_constants", "“a”", "“b”", "0.50")
    many_classes = constants(torch.arange(5), None, "abcde")
    WORDS.exactly([words for _, words in many_classes], "many_classes", "“a”", "0.20")
