"""Head scores against TransformerLens' own attention, the head lens and the planted model."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads, build_prompts
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.heads.head_scores import HeadScores, HeadScoresResult, head_scores
from icl_mech.measurements.lens.logit_lens import logit_lens
from icl_mech.measurements.running import measured
from icl_mech.metrics import bootstrap_interval, mean_ends
from icl_mech.prompts import Prompt, PromptBatch
from tests.measurements.overthinking_cases import (
    CLOSE,
    FAMILIES,
    LABELS,
    TASK,
    N,
    planted_case,
    planted_pairs,
    tiny_case,
    tiny_pairs,
)
from tests.planted import ATTENDING_DECOYS, INDUCTION_HEADS, PROMOTING_DECOYS
from tests.said import Words
from tests.saved import without_date
from tests.tiny import tiny_model

WORDS = Words(__file__)

NAMES = ("matching", "attending", "same", "shuffled_matching")


@pytest.fixture(scope="module", params=FAMILIES)
def case(request):
    return tiny_case(request.param)


@pytest.fixture(scope="module")
def found(case):
    return head_scores(case[0], case[2])


@pytest.fixture(scope="module")
def gpt2():
    return tiny_case("gpt2")


@pytest.fixture(scope="module")
def planted():
    model, _, _ = planted_case()
    return head_scores(model, planted_pairs(model, shots=2)[1])


def own_attention(model, prompt):
    """Attention from the target in every layer and head, by TransformerLens' own cache."""
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([prompt.tokens]))
    layers = range(model.cfg.n_layers)
    patterns = [cache[f"blocks.{layer}.attn.hook_pattern"][0] for layer in layers]
    return torch.stack(patterns)[:, :, prompt.target]


def by_hand(model, prompt, row_class, before=False):
    """`all`, `same` and PM by loops over the tokens of earlier label words."""
    attention = own_attention(model, prompt)
    total, same = torch.zeros(attention.shape[:2]), torch.zeros(attention.shape[:2])
    for span, shown in zip(prompt.label_spans, prompt.label_classes, strict=True):
        if span.start > prompt.target:
            continue
        positions = [span.start - 1] if before else range(span.start, span.stop)
        for position in positions:
            total += attention[..., position]
            if shown == row_class:
                same += attention[..., position]
    return total, same, same - (total - same) / (len(prompt.label_words) - 1)


@pytest.mark.parametrize("over", ["labels", "before_labels"])
def test_attention_scores_by_hand(case, over):
    model, _, false = case
    scores = head_scores(model, false, over=over)
    for row in (0, 5, 11):
        prompt = false[row]
        total, same, matching = by_hand(model, prompt, prompt.false_answer, over != "labels")
        assert_close(scores.attending[row], total, **CLOSE)
        assert_close(scores.same[row], same, **CLOSE)
        assert_close(scores.matching[row], matching, **CLOSE)


def test_true_prompts_match_the_true_class(case):
    model, true, _ = case
    scores = head_scores(model, true[:3])
    for row, prompt in enumerate(true[:3]):
        assert_close(scores.matching[row], by_hand(model, prompt, prompt.answer)[2], **CLOSE)
    assert scores.promoting is None
    with WORDS.raises(ResultError, "true_prompts_match_true"):
        _ = scores.label_promoting
    assert "label_promoting" not in scores.to_pandas()
    with WORDS.raises(ResultError, "true_prompts_match_true"):
        scores.drawing("both")


@pytest.mark.parametrize("norm", ["frozen", "own"])
def test_label_promoting_is_the_head_lens(case, norm):
    model, _, false = case
    lens = logit_lens(model, false, per="head", norm=norm)
    taught = torch.tensor([prompt.false_answer for prompt in false])
    scores = head_scores(model, false, norm=norm)
    assert_close(scores.promoting, lens.contrast(taught, false.answers), **CLOSE)
    assert scores.provenance["variants"]["norm"] == norm


def test_shares_count_the_tokens_of_label_words(case, found):
    """Multi-token label words weigh more, but not where the tokens before them are read."""
    model, _, false = case
    sizes = [len(word) for word in false[0].label_words]
    assert max(sizes) > 1
    before = head_scores(model, false, over="before_labels")
    for row, prompt in enumerate(false):
        tokens = [shown for shown in prompt.label_classes for _ in range(sizes[shown])]
        share = tokens.count(prompt.false_answer) / len(tokens)
        assert float(found.same_share[row]) == pytest.approx(share)
        assert float(before.same_share[row]) == pytest.approx(1 / 3)
    assert float(before.blind_matching.abs().max()) < 1e-7


def test_batched_equals_single(case, found):
    model, _, false = case
    singles = [head_scores(model, false[[row]]) for row in range(4)]
    for name in ("matching", "attending", "same", "promoting", "same_share"):
        rows = torch.cat([getattr(single, name) for single in singles])
        assert_close(rows, getattr(found, name)[:4], atol=5e-5, rtol=1e-4)
    small = head_scores(model, false, batch_size=5)
    assert_close(small.matching, found.matching, **CLOSE)
    # The permutations are drawn for all prompts together.
    assert_close(small.shuffled_matching, found.shuffled_matching, **CLOSE)


def test_matching_is_never_outside_its_range(found):
    assert float(found.matching.min()) >= -1 / 2 - 1e-6
    assert float(found.matching.max()) <= 1 + 1e-6
    assert bool((found.same <= found.attending + 1e-6).all())


def from_positions(prompt, shown, target, **facts):
    """The same tokens with the first `shown` demonstrations named, read at `target`."""
    spans = prompt.label_spans[:shown]
    return Prompt.from_positions(
        prompt.tokens,
        label_positions=[span.start for span in spans],
        label_lengths=[span.stop - span.start for span in spans],
        label_classes=prompt.label_classes[:shown],
        label_tokens=prompt.label_tokens,
        answer=prompt.answer,
        false_answer=prompt.false_answer,
        target=target,
        **facts,
    )


def test_demonstrations_after_the_target_do_not_count(gpt2):
    """Read before its fourth label, a prompt has three demonstrations."""
    model, _, false = gpt2
    ends = [prompt.label_spans[3].start - 1 for prompt in false]
    late, cut = (
        PromptBatch(
            tuple(
                from_positions(prompt, shown, end) for prompt, end in zip(false, ends, strict=True)
            )
        )
        for shown in (6, 3)
    )
    whole, part = (head_scores(model, prompts, permutations=500) for prompts in (late, cut))
    for name in ("matching", "attending", "same", "promoting", "same_share"):
        assert_close(getattr(whole, name), getattr(part, name), **CLOSE)
    both = (whole.shuffled_matching, part.shuffled_matching)
    assert_close(*both, atol=0.1 * float(part.attending.max()), rtol=0)
    for row in range(3):
        matching = by_hand(model, late[row], late[row].false_answer)[2]
        assert_close(whole.matching[row], matching, **CLOSE)


def test_prompts_with_fewer_demonstrations(gpt2):
    """A prompt scores the same beside one with more; its control shuffles its own alone."""
    model, _, false = gpt2
    few = [from_positions(prompt, 2, prompt.target) for prompt in false[:4]]
    many = [from_positions(prompt, 6, prompt.target) for prompt in false[4:8]]
    mixed = head_scores(model, PromptBatch((*few, *many)), permutations=400)
    alone = head_scores(model, PromptBatch(tuple(few)), permutations=400)
    for name in ("matching", "attending", "same", "promoting", "same_share"):
        assert_close(getattr(mixed, name)[:4], getattr(alone, name), **CLOSE)
    assert_close(mixed.shuffled_matching[:4], alone.shuffled_matching, atol=0.05, rtol=0)


# --- the planted model ---


def test_the_induction_heads_match_best(planted):
    assert set(planted.top(2)) == set(INDUCTION_HEADS)
    for head in INDUCTION_HEADS:
        assert float(planted.prefix_matching[head]) > 0.99
        assert float(planted.class_sensitivity[head]) > 0.99
        assert float(planted.label_promoting[head]) > 2
    others = planted.prefix_matching.clone()
    for head in INDUCTION_HEADS:
        others[head] = 0
    assert float(others.max()) < 0.3


def test_attending_decoys_attend_and_are_blind(planted):
    for head in ATTENDING_DECOYS:
        assert float(planted.label_attending[head]) > 0.9
        for blind in (planted.prefix_matching, planted.shuffled, planted.blind_matching):
            assert abs(float(blind[head])) < 0.02
        assert float(planted.class_sensitivity[head]) == pytest.approx(1 / 3, abs=0.02)
        assert abs(float(planted.label_promoting[head])) < 0.05


def test_promoting_decoys_promote_and_do_not_match(planted):
    assert set(planted.top(4, "label_promoting")) == {*INDUCTION_HEADS, *PROMOTING_DECOYS}
    for head in PROMOTING_DECOYS:
        assert float(planted.label_promoting[head]) > 0.3
        assert abs(float(planted.prefix_matching[head])) < 0.01


def test_shuffled_labels_take_the_matching_away(planted):
    """Balanced demonstrations: a share of one in three, so 0 on average."""
    low, high = planted.quantities()["shuffled"].ends()
    for head in INDUCTION_HEADS:
        assert float(low[head]) < 0.1
        assert float(high[head]) < 0.2


def test_half_permuted_demonstrations_match_the_shifted_class():
    model, _, false = planted_case("half_permuted")
    scores = head_scores(model, false)
    for row in range(3):
        matching = by_hand(model, false[row], false[row].false_answer)[2]
        assert_close(scores.matching[row], matching, **CLOSE)
    assert scores.promoting is not None
    assert float(scores.prefix_matching[INDUCTION_HEADS[0]]) < 0.9


# --- the measurement, and labelled samples ---


def test_the_measurement_is_the_function(gpt2):
    model, true, false = gpt2
    options = {"norm": "own", "over": "before_labels", "permutations": 3, "seed": 1}
    door = head_scores(model, false, **options)
    found = measured(HeadScores(**options), model, (true, false))
    for name in (*NAMES, "promoting", "same_share"):
        assert torch.equal(getattr(found, name), getattr(door, name))
    assert without_date(found) == without_date(door)
    assert found.provenance["variants"] == options
    assert found.provenance["prompts"]["digest"] == false.digest


def test_cells_with_intervals(planted):
    layer, head = INDUCTION_HEADS[0]
    matching = planted.matching[:, layer, head].double()
    found = planted.interval(layer=layer, head=head)
    low, high = mean_ends(matching)
    assert found == pytest.approx((float(matching.mean()), float(low), float(high)))
    row = planted.sel("label_promoting", layer=layer)
    assert row.dims == ("head",)
    assert_close(row.values, planted.label_promoting[layer])


def test_controls_are_quantities(planted):
    layer, head = INDUCTION_HEADS[0]
    above = (planted.matching - planted.shuffled_matching)[:, layer, head].double()
    low, high = mean_ends(above)
    found = planted.interval("above_shuffled", layer=layer, head=head)
    assert found == pytest.approx((float(above.mean()), float(low), float(high)))
    both = torch.stack([planted.same, planted.attending], dim=1)[..., layer, head]
    low, high = bootstrap_interval(both, lambda means: means[:, 0] / means[:, 1])
    found = planted.interval("class_sensitivity", layer=layer, head=head)
    value = float(planted.class_sensitivity[layer, head])
    assert found == pytest.approx((value, float(low), float(high)))


def test_differences_are_paired(gpt2):
    model, _, false = gpt2
    plain = head_scores(model, false)
    edited = head_scores(model, false, interventions=[ZeroHeads([(0, 1)])])
    change = plain.matching.double() - edited.matching.double()
    found = plain - edited
    assert_close(found.values, change.mean(0))
    low, high = mean_ends(change)
    assert_close(found.low, low)
    assert_close(found.high, high)
    assert float(found.values[1:].abs().max()) > 1e-4
    with WORDS.raises(ResultError, "differences_paired"):
        _ = plain - head_scores(model, false[:6])


def test_what_a_page_shows(planted, gpt2):
    shown = planted.figures()
    assert [figure.show for figure in shown] == ["maps", "both"]
    assert all(figure.question.endswith("?") and figure.answer for figure in shown)
    for figure in shown:
        assert planted.plot(show=figure.show).data
    (alone,) = head_scores(gpt2[0], gpt2[1]).figures()
    assert alone.show == "maps"


# --- options, errors, files ---


def test_interventions_are_made(gpt2):
    model, _, false = gpt2
    plain = head_scores(model, false)
    edited = head_scores(model, false, interventions=[ZeroHeads([(0, 1)])])
    assert_close(edited.matching[:, 0], plain.matching[:, 0], **CLOSE)
    assert float((edited.matching[:, 1:] - plain.matching[:, 1:]).abs().max()) > 1e-4
    assert float(edited.promoting[:, 0, 1].abs().max()) == 0


def test_permutations_and_their_seed(gpt2):
    model, _, false = gpt2
    few, same, other = (
        head_scores(model, false, permutations=2, seed=seed).shuffled_matching for seed in (0, 0, 1)
    )
    assert torch.equal(few, same)
    assert not torch.equal(few, other)


@pytest.mark.parametrize("labels", ["random", "random_incorrect"])
def test_labels_without_a_rule_are_refused(gpt2, labels):
    model, _, _ = gpt2
    _, false = tiny_pairs(model, false_labels=labels)
    with WORDS.raises(PromptError, "labels_without_a_rule", labels):
        head_scores(model, false)


def test_prompts_without_demonstrations_are_refused(gpt2):
    model, _, _ = gpt2
    with pytest.raises(PromptError, match="shots >= 1"):
        head_scores(model, build_prompts(TASK, model, shots=0, n=3))


def test_processed_weights_are_refused():
    model = tiny_model("gpt2")
    _, false = tiny_pairs(model)
    model.enable_compatibility_mode()
    with pytest.raises(RunError, match="processed"):
        head_scores(model, false)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "cold"}, "normcold"),
        ({"over": "texts"}, "overtexts"),
        ({"permutations": 0}, "permutations0 1"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_unknown_options(gpt2, options, message):
    with WORDS.raises(RunError, message):
        head_scores(gpt2[0], gpt2[2], **options)


def test_unknown_scores(planted):
    with WORDS.raises(ResultError, "unknown_scores", "'prefix_matching'"):
        planted.top(3, "prefix_macthing")
    with WORDS.raises(ResultError, "unknown_scores", "'prefix_matching'"):
        planted.sel("prefix_macthing")
    with WORDS.raises(ResultError, "unknown_scores_2", "'bith'", "'both'"):
        planted.plot(show="bith")


def test_top_heads_are_best_first(planted):
    order = planted.top(16)
    values = [float(planted.prefix_matching[head]) for head in order]
    assert values == sorted(values, reverse=True)
    assert len(set(order)) == 16
    assert planted.top(3, "label_attending")[0] in {*ATTENDING_DECOYS, *INDUCTION_HEADS}


def test_files_figures_and_tables(planted, gpt2, tmp_path):
    model, true, _ = gpt2
    for name, scores in (("false", planted), ("true", head_scores(model, true))):
        scores.save(tmp_path / name)
        loaded = HeadScoresResult.load(tmp_path / name)
        for part in (*NAMES, "same_share"):
            assert torch.equal(getattr(loaded, part), getattr(scores, part))
        assert (loaded.promoting is None) == (scores.promoting is None)
        assert loaded.summary() == scores.summary()
        assert loaded.n_labels == len(LABELS)
        for score in scores.per_prompt:
            drawn = scores.drawing(score)
            assert_close(drawn.values.T, scores.per_prompt[score].double().mean(0))
            assert len(drawn.marked) == 5
            assert scores.plot(show=score).data
    assert planted.drawing("both", top=2).groups.count("other heads") == 14
    table = planted.to_pandas()
    assert len(table) == 16
    assert {(r.layer, r.head) for r in table.head(2).itertuples()} == set(INDUCTION_HEADS)
    assert table.prefix_matching.is_monotonic_decreasing
    assert bool((table.prefix_matching_low <= table.prefix_matching + 1e-9).all())
    WORDS.starts(planted.summary(), "files_figures_tables")


def test_answers_may_be_unknown(gpt2):
    """Then nothing can be said about promoting, but attention is there."""
    model, _, false = gpt2
    bare = PromptBatch(tuple(replace(prompt, answer=None) for prompt in false[:3]))
    scores = head_scores(model, bare)
    assert scores.promoting is None
    assert_close(scores.matching, head_scores(model, false[:3]).matching, **CLOSE)
    assert len(scores.matching) == 3 < N
