"""`head_sum` by hand, and saliency maps cut to their prompts."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ResultError
from icl_mech.measurements.saliency.reduction import head_sum
from icl_mech.measurements.saliency.saliency_maps import SaliencyMapsResult
from icl_mech.prompts import PromptBatch
from tests.engine.cases import prompt, ragged
from tests.said import Words
from tests.tiny import N_LAYERS, tiny_model

WORDS = Words(__file__)

# Two heads, three tokens.
PATTERN = torch.tensor(
    [
        [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]],
        [[1.0, 0.0, 0.0], [0.1, 0.9, 0.0], [0.6, 0.2, 0.2]],
    ]
)[None]
GRADIENT = torch.tensor(
    [
        [[1.0, 7.0, 7.0], [2.0, -4.0, 7.0], [10.0, -10.0, 2.0]],
        [[3.0, 7.0, 7.0], [-10.0, 10.0, 7.0], [-5.0, 5.0, 5.0]],
    ]
)[None]


def test_sum_then_abs():
    expected = [[4.0, 0.0, 0.0], [0.0, 7.0, 0.0], [1.0, 2.0, 2.0]]
    found = head_sum(PATTERN, GRADIENT, "sum_then_abs")
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_abs_then_sum():
    expected = [[4.0, 0.0, 0.0], [2.0, 11.0, 0.0], [5.0, 4.0, 2.0]]
    found = head_sum(PATTERN, GRADIENT, "abs_then_sum")
    torch.testing.assert_close(found, torch.tensor([expected]))


@pytest.mark.parametrize("reduction", ["sum_then_abs", "abs_then_sum"])
def test_long_patterns_are_reduced_in_pieces(reduction):
    """More rows than one piece, not a multiple of it."""
    generator = torch.Generator().manual_seed(0)
    pattern, gradient = torch.randn(2, 1, 3, 600, 7, generator=generator)
    product = pattern * gradient
    expected = product.sum(1).abs() if reduction == "sum_then_abs" else product.abs().sum(1)
    torch.testing.assert_close(head_sum(pattern, gradient, reduction), expected)


def test_half_precision_is_summed_in_single():
    """bfloat16 cannot hold 256 + 1."""
    pattern = torch.tensor([256.0, 1.0], dtype=torch.bfloat16).reshape(1, 2, 1, 1)
    found = head_sum(pattern, torch.ones_like(pattern), "sum_then_abs")
    torch.testing.assert_close(found, torch.tensor([[[257.0]]]))


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def maps(model):
    return icl.saliency_maps(model, ragged())


def test_maps_are_cut_to_their_prompts(maps):
    assert [values.shape for values in maps.values] == [
        (N_LAYERS, length, length) for length in (9, 5, 14, 7, 9)
    ]


def test_nothing_above_the_diagonal_and_only_the_target_row_in_the_last_layer(maps):
    for values in maps.values:
        assert float(values.triu(1).abs().max()) == 0.0
        assert float(values[-1, :-1].abs().max()) == 0.0
        assert float(values[-1, -1].min()) > 0.0
        assert float(values.diagonal(dim1=1, dim2=2)[0].max()) > 0.0


def test_tokens_and_roles(model):
    (text,) = icl.prompts_from_text(["good Positive bad"], ["Positive", "Negative"], model)
    found = icl.saliency_maps(model, PromptBatch((text,)))
    WORDS.exactly("".join(found.tokens[0]), "tokens_roles")
    assert len(found.tokens[0]) == len(found.roles[0]) == len(text)
    assert found.roles[0][text.label_positions[0]] == "label_word"
    assert found.tokens[0][text.label_positions[0]] == " Positive"
    assert found.roles[0][0] == "demo_text"
    assert found.roles[0][-1] == "target"


def test_bare_positions_show_ids(model, maps):
    assert maps.tokens[1] == tuple(str(token) for token in ragged()[1].tokens)
    assert maps.roles[1] == ("unknown", "unknown", "label_word", "unknown", "target")


def test_drawing(maps):
    drawn = maps.drawing(prompt=2, layer=1)
    torch.testing.assert_close(drawn.values, maps.values[2])
    assert drawn.tokens == maps.tokens[2]
    assert drawn.layer == 1
    with WORDS.raises(ResultError, "drawing", "5"):
        maps.drawing(prompt=5)
    with pytest.raises(ResultError, match="prompt=-1"):
        maps.drawing(prompt=-1)
    with WORDS.raises(ResultError, "drawing_2", "3"):
        maps.drawing(layer=3)


def test_summary(model, maps):
    WORDS.exactly(maps.summary(), "summary", "5", "14")
    alone = icl.saliency_maps(model, PromptBatch((prompt(6, (2,), (0,), answer=0),)))
    WORDS.exactly(alone.summary(), "summary_2", "1", "6")


def test_maps_have_no_table(maps):
    with WORDS.raises(ResultError, "maps_no_table"):
        maps.to_pandas()


# --- what is worth looking at, by hand ---


def known(*rows):
    """Two layers of four tokens: a text of two, its label word and the target; the last is as given."""
    first = torch.zeros(4, 4)
    first[2, :2] = torch.tensor([1.0, 3.0])
    last = torch.zeros(4, 4)
    for place, values in enumerate(rows):
        last[place, : len(values)] = torch.tensor(values)
    return SaliencyMapsResult(
        values=(torch.stack([first, last]),), tokens=(("a", "b", " Yes", ":"),),
        roles=(("demo_text", "demo_text", "label_word", "target"),),
    )  # fmt: skip


def test_label_words_read_their_texts_early_and_the_target_reads_label_words_late():
    found = known([], [], [2.0, 2.0], [1.0, 0.0, 3.0])
    assert found.telling_layers() == (0, 1)
    assert found.usual_layer() == 0
    assert found.own_text_shares(0) == (1.0,)
    assert found.target_row(1) == (0.5, 0.75, "texts", 0.25)
    assert found.target_row(0) is None
    assert found.strongest(1) == ("target :", "Yes", 3.0)
    assert known().strongest(1) is None


def test_facts_of_layers_that_are_not_there():
    for fact in (known().own_text_shares, known().target_row, known().strongest):
        with pytest.raises(ResultError, match="layer=2"):
            fact(2)
        with pytest.raises(ResultError, match="prompt=1"):
            fact(0, prompt=1)
