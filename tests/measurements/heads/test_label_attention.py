"""Attention to single label words against TransformerLens' own patterns; which class is matched."""

import pytest
import torch
from torch.testing import assert_close

from icl_mech.engine import run
from icl_mech.measurements.heads.label_attention import (
    LabelAttentionReading,
    attention_scores,
    matched_classes,
)
from icl_mech.prompts import Prompt, PromptBatch
from tests.measurements.overthinking_cases import (
    CLOSE,
    DemonstrationAttentionReading,
    tiny_case,
    tiny_pairs,
)
from tests.measurements.saliency.cases import with_roles

BOTH = ["labels", "before_labels"]


@pytest.fixture(scope="module")
def case():
    return tiny_case("gpt2")


def by_hand(model, prompt, row, before):
    """`[layer, head, demo]`, with 0 where a label stands at the row or behind it."""
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([prompt.tokens]))
    layers = range(model.cfg.n_layers)
    attention = torch.stack([cache[f"blocks.{i}.attn.hook_pattern"][0] for i in layers])[:, :, row]
    columns = []
    for span in prompt.label_spans:
        place = slice(span.start - 1, span.start) if before else slice(span.start, span.stop)
        earlier = span.start < row
        columns.append(attention[..., place].sum(-1) * earlier)
    return torch.stack(columns, -1)


@pytest.mark.parametrize("over", BOTH)
def test_attention_from_the_target_to_each_label_word(case, over):
    """Prompts with one, two and three demonstrations; what a prompt lacks has attention 0."""
    model, prompts = case[0], with_roles()
    (found,) = run(model, prompts, [LabelAttentionReading(over)])
    assert found.shape == (3, 3, 1, 4, 3)
    for own, prompt in zip(found[:, :, 0], prompts, strict=True):
        count = len(prompt.label_classes)
        expected = by_hand(model, prompt, prompt.target, over != "labels")
        assert_close(own[..., :count], expected, **CLOSE)
        assert float(own[..., count:].abs().sum()) == 0
    assert float(found[1].min()) > 0


@pytest.mark.parametrize("over", BOTH)
def test_attention_from_before_each_label(case, over):
    """Rows of unequal prompts in batches of three: earlier demonstrations only."""
    model, _, false = case
    (found,) = run(model, false, [DemonstrationAttentionReading(over)], batch_size=3)
    for number in (0, 4, 11):
        prompt = false[number]
        for row, position in enumerate(prompt.label_positions):
            expected = by_hand(model, prompt, position - 1, over != "labels")
            assert_close(found[number, :, row], expected, **CLOSE)
            assert float(found[number, :, row, :, row:].abs().sum()) == 0
    assert float(found[:, :, 5, :, :5].min()) > 0


def test_one_reading_serves_several_sets(case):
    """The second set has its label words elsewhere."""
    model, _, false = case
    reading = LabelAttentionReading()
    shifted = PromptBatch(tuple(moved(prompt) for prompt in false[:3]))
    run(model, false[:3], [reading])
    (found,) = run(model, shifted, [reading])
    (fresh,) = run(model, shifted, [LabelAttentionReading()])
    assert_close(found, fresh, **CLOSE)
    assert_close(found[0, :, 0], by_hand(model, shifted[0], shifted[0].target, False), **CLOSE)


def moved(prompt):
    """The same tokens, said to have their label words one token earlier."""
    return Prompt.from_positions(
        prompt.tokens,
        label_positions=[position - 1 for position in prompt.label_positions],
        label_classes=prompt.label_classes,
        label_tokens=prompt.label_tokens,
    )


def test_scores_of_attention_by_hand():
    """Class 1 in 1 of 2 tokens of label words (the word of class 0 has one token, too)."""
    prompt = Prompt.from_positions(
        range(10, 22), label_positions=(2, 5, 8), label_classes=(1, 0, 2), target=7,
        label_lengths=(2, 1, 3), label_tokens=(15, 12, 18), false_answer=1, answer=0,
    )  # fmt: skip
    attention = torch.tensor([0.5, 0.2, 0.0]).reshape(1, 1, 1, 3)
    options = {"permutations": 300, "seed": 0}
    scores = attention_scores(
        attention, PromptBatch((prompt,)), torch.tensor([1]), over="labels", **options
    )
    assert float(scores.attending) == pytest.approx(0.7)
    assert float(scores.same) == pytest.approx(0.5)
    assert float(scores.matching) == pytest.approx(0.5 - 0.2 / 2)
    assert float(scores.same_share) == pytest.approx(2 / 3)
    # Either of two labels is class 1: 0.4 and -0.05 in half of the permutations each.
    assert float(scores.shuffled_matching) == pytest.approx(0.175, abs=0.04)
    before = attention_scores(
        attention, PromptBatch((prompt,)), torch.tensor([1]), over="before_labels", **options
    )
    assert float(before.same_share) == pytest.approx(1 / 2)


def test_which_class_is_matched(case):
    """That the false labels teach; the true one of true prompts; none where nothing is taught."""
    model, true, false = case
    assert matched_classes(false).tolist() == [prompt.false_answer for prompt in false]
    assert matched_classes(true).tolist() == true.answers.tolist()
    assert not torch.equal(matched_classes(false), false.answers)
    half = tiny_pairs(model, false_labels="half_permuted")[1]
    assert matched_classes(half).tolist() == [prompt.false_answer for prompt in half]
    assert matched_classes(tiny_pairs(model, false_labels="random")[1]) is None
