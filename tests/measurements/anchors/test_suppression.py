"""Hiding spans: sound goldens, plainly masked runs, identities, and no leak of the future."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import Kept, Reading, run
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements.anchors.suppression import SuppressionResult
from icl_mech.models import Site
from tests.golden_data import FOLDER, golden_model, thought_anchors, thought_anchors_prompts
from tests.prompts.cases import TOPICS, toy_task
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

TEXTS = [
    "The film was a wonderful story. It was good! Was it bad? The plot was good. We left.",
    "Stocks fell sharply on Monday. The home team won. A movie is good.",
]


class Logits(Reading):
    """Logits at every token of one text."""

    def sites(self, info):
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site, activation, segment):
        return segment.model.logits(activation)

    def collect(self, kept: Kept):
        return kept.stacked()[:, 0]


@pytest.fixture(scope="module")
def golden():
    return thought_anchors()


@pytest.fixture(scope="module")
def double():
    return icl.load_model(str(FOLDER / "overthinking" / "tiny_gpt2"), dtype="float64")


@pytest.mark.parametrize(("temperature", "suffix"), [(1.0, "T1"), (0.6, "T06")])
@pytest.mark.parametrize("rows", ["all", "after"])
def test_effects_are_the_sound_ones(golden, rows, temperature, suffix):
    """In text 0 the first span leaves its rows no key, where the reference sees the future."""
    model = golden_model("overthinking", "tiny_gpt2")
    result = icl.suppression(model, thought_anchors_prompts(), rows=rows, temperature=temperature)
    for i in range(3):
        wanted = torch.tensor(golden[f"t{i}_suppression_kl_full_{suffix}"])
        found, first = result.divergence[i], int(i == 0)
        known = found.isfinite()
        later = torch.ones_like(known).tril(0 if rows == "all" else -1)
        assert torch.equal(known, later)
        gap = (found - wanted).masked_fill(~known, 0.0)[:, first:]
        assert float(gap.abs().max()) < 1e-4
        if rows == "all":
            tokens = torch.tensor(golden[f"t{i}_token_kl_full_{suffix}"])
            assert_close(result.by_token[i][first:], tokens[first:], atol=1e-4, rtol=0)


def test_rows_without_keys_see_nothing(golden):
    model = golden_model("overthinking", "tiny_gpt2")
    result = icl.suppression(model, thought_anchors_prompts()[:1], rows="all", temperature=0.6)
    wanted = torch.tensor(golden["t0_token_kl_full_T06_causal_rows"])
    assert_close(result.by_token[0], wanted, atol=1e-4, rtol=0)


def test_logarithms_of_effects(golden):
    model = golden_model("overthinking", "tiny_gpt2")
    result = icl.suppression(model, thought_anchors_prompts()[:2], rows="all", temperature=0.6)
    wanted = torch.tensor(golden["t1_suppression_log_kl_full_T06"])
    below = torch.ones_like(wanted).tril(-1).bool()
    assert_close(result.log_divergence(1)[below], wanted[below], rtol=1e-3, atol=0)
    centred = torch.tensor(golden["t1_suppression_log_kl_full_T06_row_centred"])
    assert_close(result.log_divergence(1, centred=True), centred, atol=1e-3, rtol=0, equal_nan=True)


def test_logits_with_a_hidden_span(golden):
    model = golden_model("overthinking", "tiny_gpt2")
    for i, prompt in enumerate(thought_anchors_prompts()):
        batch = icl.PromptBatch((prompt,))
        for edits, name in (([], "base"), ([icl.Suppress([4])], "sentence4_suppressed")):
            (logits,) = run(model, batch, [Logits()], edits)
            wanted = torch.tensor(golden[f"t{i}_logits_{name}_lastrow"])
            assert_close(logits[0, -1], wanted, atol=5e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["after", "all"])
def test_kept_beginnings_give_what_masked_runs_give(double, rows):
    prompts = thought_anchors_prompts()[1:]
    result = icl.suppression(double, prompts, rows=rows)
    whole = icl.suppression(double, prompts, rows=rows, path="whole")
    for i, prompt in enumerate(prompts):
        batch = icl.PromptBatch((prompt,))
        (plain,) = run(double, batch, [Logits()])
        for number in (0, 3, 7):
            (masked,) = run(double, batch, [Logits()], [icl.Suppress([number], rows)])
            p, q = (logits[0].log_softmax(-1) for logits in (plain, masked))
            wanted = (p.exp() * (p - q)).sum(-1)
            assert float(wanted.max()) > 0.1
            for found in (result, whole):
                assert_close(found.by_token[i][number], wanted, atol=1e-6, rtol=0)
            a, b = prompt.text_spans[number + 1]
            ids = torch.tensor(prompt.tokens[a:b])[:, None]
            moved = (q - p)[a - 1 : b - 1].gather(1, ids).mean()
            assert_close(result.change[i][number + 1, number], moved, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["opt", "gemma3", "gptj"])
def test_other_families(family):
    """Positions that a model counts itself, windows of attention, attention routed anew."""
    model = tiny_model(family)
    prompts = icl.texts(TEXTS[:1], model)
    result = icl.suppression(model, prompts)
    whole = icl.suppression(model, prompts, path="whole")
    assert float(result.by_token[0].max()) > 1e-3
    assert_close(result.by_token[0], whole.by_token[0], atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("family", ["gpt2", "gemma3", "opt"])
def test_no_row_sees_the_future(family):
    model = tiny_model(family)
    ids = icl.texts(TEXTS[:1], model, bos=False)[0].tokens
    other = (*ids[:-1], ids[0])
    spans = [(0, 14), (14, len(ids))]
    logits = [
        run(
            model, icl.PromptBatch((icl.Prompt.from_spans(tokens, spans),)), [Logits()],
            [icl.Suppress([0], "all")],
        )[0]
        for tokens in (ids, other)
    ]  # fmt: skip
    assert logits[0].isfinite().all()
    assert_close(logits[0][0, :-1], logits[1][0, :-1], atol=1e-6, rtol=0)
    assert not torch.equal(logits[0][0, -1], logits[1][0, -1])


def test_a_hidden_span_does_not_matter():
    """Whatever its tokens are, later rows give the same."""
    model = tiny_model("gpt2")
    ids = list(icl.texts(TEXTS[:1], model)[0].tokens)
    other = [*ids[:5], *reversed(ids[5:12]), *ids[12:]]
    spans = [(0, 5), (5, 12), (12, len(ids))]
    found = [
        run(
            model, icl.PromptBatch((icl.Prompt.from_spans(tokens, spans),)), [Logits()],
            [icl.Suppress([1])],
        )[0]
        for tokens in (ids, other)
    ]  # fmt: skip
    assert_close(found[0][0, 12:], found[1][0, 12:], atol=1e-5, rtol=0)
    assert float((found[0][0, 5:12] - found[1][0, 5:12]).abs().max()) > 0.1


def test_interventions_hold_in_the_plain_run_too():
    model = tiny_model("gpt2")
    prompts = icl.texts(TEXTS, model)
    edits = [icl.Suppress([0]), icl.ZeroHeads([(0, 1)], at="all")]
    changed = icl.suppression(model, prompts, interventions=edits)
    whole = icl.suppression(model, prompts, interventions=edits, path="whole")
    # What is hidden already changes nothing when it is hidden again.
    assert float(changed.by_token[0][0].max()) < 1e-9
    assert float(changed.by_token[0][1].max()) > 1e-3
    for i in range(2):
        assert_close(changed.by_token[i], whole.by_token[i], atol=1e-5, rtol=1e-3)


def test_layers_and_the_last_one():
    """In the last layer a hidden span only matters for the rows that read it there."""
    model = tiny_model("gpt2")
    prompts = icl.texts(TEXTS, model)
    everywhere = icl.suppression(model, prompts)
    late = icl.suppression(model, prompts, layers=[2])
    assert float(late.by_token[0].max()) > 0
    assert not torch.allclose(late.by_token[0], everywhere.by_token[0])


def test_the_result_is_complete(tmp_path):
    model = tiny_model("gpt2")
    result = icl.suppression(model, icl.texts(TEXTS, model))
    loaded = SuppressionResult.load(result.save(tmp_path / "effects"))
    assert_close(loaded.divergence[0], result.divergence[0], equal_nan=True)
    by_hand = torch.stack([own.diagonal(-1).mean() for own in result.divergence]).mean()
    assert result.interval("divergence", distance=1).value == pytest.approx(float(by_hand))
    for show in result.shows:
        assert result.plot(show).data
    assert "arcs" in repr(result.arcs())
    assert "coloured" in repr(result.view(1))
    assert "2 texts" in result.summary()
    scores = result.scores(0)
    assert scores[:-1].isfinite().all()
    assert scores[-1].isnan()


def test_what_is_refused():
    model = tiny_model("gpt2")
    prompts = icl.texts(TEXTS, model)
    with pytest.raises(RunError, match=r"temperature=0\.0"):
        icl.suppression(model, prompts, temperature=0.0)
    with pytest.raises(RunError, match="layer 3"):
        icl.suppression(model, prompts, layers=[3])
    with WORDS.raises(PromptError, "what_refused", "3", "1"):
        icl.span_flow(model, prompts, interventions=[icl.Suppress([3])])
    with WORDS.raises(RunError, "what_refused_2"):
        icl.Suppress()


@pytest.mark.slow
def test_shared_demonstrations_are_one_observation():
    """Spans of demonstrations that all prompts share give the same number in all: no sample, no interval."""
    model = tiny_model("gpt2")
    shared, apart = (
        icl.suppression(model, icl.build_prompts(toy_task(TOPICS), model, n=8, demonstrations=own))
        for own in ("shared", "per_prompt")
    )
    values = shared.quantities()["mean_divergence"].per_prompt
    assert float(values.max() - values.min()) < 1e-6
    for name in shared.quantities():
        assert bool(shared.sel(name).low.isnan().all())
        assert bool(shared.sel(name).values.isfinite().all())
        assert bool(apart.sel(name).low.isfinite().all())
    WORDS(shared.summary(), "shared_demonstrations_observation")
    assert "one observation" in shared.figures()[1].caption
    assert "8 texts" in apart.summary()
    assert bool(
        icl.span_flow(model, icl.build_prompts(toy_task(TOPICS), model, n=8))
        .sel()
        .low.isnan()
        .all()
    )
