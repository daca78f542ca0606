"""The planted model does what its description says, seen without any score of heads."""

from itertools import chain, product

import pytest
import torch

import icl_mech as icl
from icl_mech.models import adapt
from tests.planted import (
    AGAINST_TEXT,
    ATTENDING_DECOYS,
    COPIED,
    INDUCTION_HEADS,
    N_HEADS,
    N_LAYERS,
    PREVIOUS_TOKEN_HEADS,
    PROMOTING_DECOYS,
    SIZE,
    planted_hf,
    planted_model,
    planted_task,
)

N = 30
SHOTS = (1, 3)
OTHERS = [
    [(layer, head) for head in range(N_HEADS) if (layer, head) not in INDUCTION_HEADS]
    for layer, _ in INDUCTION_HEADS
]


@pytest.fixture(scope="module")
def model():
    return planted_model()


@pytest.fixture(scope="module", params=SHOTS, ids="{}shot".format)
def pair(request, model):
    return pairs(model, request.param)


@pytest.fixture(scope="module")
def output(pair):
    """What transformers itself says of the false prompts, which all have the same length."""
    tokens = torch.tensor([prompt.tokens for prompt in pair[1]])
    with torch.no_grad():
        return planted_hf()(tokens, output_attentions=True, output_hidden_states=True)


def pairs(model, shots):
    return icl.build_prompt_pairs(
        planted_task(), model, shots=shots, n=N, demonstrations="per_prompt"
    )


def predictions(model, prompts, heads=()):
    return icl.predict(model, prompts, interventions=[icl.ZeroHeads(tuple(heads))] if heads else [])


def accuracy(model, prompts, heads=()):
    return predictions(model, prompts, heads).accuracy.value


def pull(model, prompts, heads=()):
    """By how much the false label's logit exceeds the true one's, for each prompt."""
    logits = predictions(model, prompts, heads).label_logits
    rows = torch.arange(len(prompts))
    false = torch.tensor([prompt.false_answer for prompt in prompts])
    return logits[rows, false] - logits[rows, prompts.answers]


def to_labels(output, prompts, layer, head):
    """Attention from the target to each demonstration's label word, `[prompt, demo]`."""
    row = output.attentions[layer][:, head, -1]
    return row.gather(1, prompts.label_positions)


def test_every_head_has_at_most_one_part():
    parts = (*INDUCTION_HEADS, *ATTENDING_DECOYS, *PROMOTING_DECOYS, *PREVIOUS_TOKEN_HEADS)
    assert len(set(parts)) == len(parts) < N_LAYERS * N_HEADS
    assert len({layer for layer, _ in INDUCTION_HEADS}) == len(INDUCTION_HEADS)


def test_it_is_the_same_every_time():
    first, second = planted_hf().state_dict(), planted_hf().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_it_passes_the_load_time_checks():
    assert adapt(planted_model()).info.notes == ()


def test_a_demonstration_is_five_exact_tokens(model, pair):
    for prompts in pair:
        assert set(prompts.lengths.tolist()) == {5 * prompts.n_demos + 2}
        assert prompts.source["tokens_of"] == "whole text"
        assert not prompts.source["bos"]
    text = "".join(pair[0][0].pieces)
    assert text == model.tokenizer.decode(pair[0][0].tokens)
    assert text.count(":") == pair[0].n_demos + 1


def test_layer_norms_change_nothing_much(output):
    # The last of the hidden states went through the final norm.
    for residual in output.hidden_states[:-1]:
        assert residual.mean(-1).abs().max() < 1e-4
        size = residual.norm(dim=-1) / SIZE
        assert 1 <= size.min() <= size.max() < 1.02


@pytest.mark.parametrize(("layer", "head"), PREVIOUS_TOKEN_HEADS)
def test_the_first_heads_attend_to_the_token_before(output, layer, head):
    assert output.attentions[layer][:, head].diagonal(-1, 1, 2).min() > 0.999


@pytest.mark.parametrize(("layer", "head"), INDUCTION_HEADS)
def test_induction_heads_attend_to_labels_of_the_querys_class(pair, output, layer, head):
    prompts = pair[1]
    attention = to_labels(output, prompts, layer, head)
    false = torch.tensor([prompt.false_answer for prompt in prompts])
    same = (attention * (prompts.label_classes == false[:, None])).sum(1)
    assert same.min() > 0.99
    assert (attention.sum(1) - same).max() < 1e-3


@pytest.mark.parametrize(("layer", "head"), ATTENDING_DECOYS)
def test_attending_decoys_attend_to_all_labels_alike(pair, output, layer, head):
    attention = to_labels(output, pair[1], layer, head)
    assert (attention * pair[1].n_demos - 1).abs().max() < 0.05


@pytest.mark.parametrize(("layer", "head"), PROMOTING_DECOYS)
def test_promoting_decoys_attend_to_the_querys_text(output, layer, head):
    assert output.attentions[layer][:, head, -1, -2].min() > 0.999


@pytest.mark.parametrize(
    ("heads", "written"),
    [(INDUCTION_HEADS, COPIED), (ATTENDING_DECOYS, 0.0), (PROMOTING_DECOYS, AGAINST_TEXT)],
    ids=["induction", "attending", "promoting"],
)
def test_what_heads_write_for_the_false_label(model, pair, heads, written):
    plain = pull(model, pair[1])
    for head in heads:
        assert (plain - pull(model, pair[1], [head]) - written).abs().max() < 0.2


def test_true_demonstrations_help_and_false_ones_harm(model, pair):
    assert accuracy(model, pair[0]) == 1
    assert accuracy(model, pair[1]) == 0
    followed = predictions(model, pair[1]).predicted.tolist()
    assert followed == [prompt.false_answer for prompt in pair[1]]


def test_label_words_are_the_likeliest_tokens(model, pair):
    top = predictions(model, pair[1]).top_tokens[:, : pair[1].n_labels]
    assert torch.equal(top.sort().values, pair[1].label_tokens.sort().values.expand_as(top))


def test_without_demonstrations_the_model_is_right(model):
    assert accuracy(model, pairs(model, 0)[0]) == 1


def test_zeroing_the_induction_heads_closes_the_gap(model, pair):
    assert [accuracy(model, prompts, INDUCTION_HEADS) for prompts in pair] == [1, 1]


def test_zeroing_other_heads_of_the_same_layers_does_not(model, pair):
    for heads in product(*OTHERS):  # the decoys of one kind among them
        assert accuracy(model, pair[1], heads) == 0
    assert [accuracy(model, prompts, chain(*OTHERS)) for prompts in pair] == [1, 0]
