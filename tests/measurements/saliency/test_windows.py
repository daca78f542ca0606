"""Layers with a window of attention: means are over the edges that exist, and undefined where none does."""

import pytest
import torch
from torch.testing import assert_close
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

import icl_mech as icl
from icl_mech.measurements import Extraction, Flow
from icl_mech.measurements.saliency.windows import edge_means
from icl_mech.metrics import flow_counts
from icl_mech.metrics.intervals import means_over
from icl_mech.metrics.outliers import uniform_mass
from icl_mech.models import Site, adapt
from tests.families.configs import FAMILIES
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

SLIDING, FULL = "sliding_attention", "full_attention"
WINDOW = 16
LAYERS = (SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL)


def gemma(window=WINDOW, layers=LAYERS):
    """A tiny Gemma 3 of these layers; the same weights whatever the window."""
    tokenizer = tiny_tokenizer("sentencepiece")
    config = Gemma3TextConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=len(layers),
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        hidden_size=32,
        intermediate_size=48,
        max_position_embeddings=4096,
        sliding_window=window,
        layer_types=list(layers),
        query_pre_attn_scalar=8,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    model = Gemma3ForCausalLM(config).eval()
    model.config.architectures = ["Gemma3ForCausalLM"]
    return icl.load_model(model, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def model():
    return gemma()


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts("reviews", model, n=6, demonstrations="per_prompt")


@pytest.fixture(scope="module")
def flow(model, prompts):
    return icl.flow_scores(model, prompts)


def patterns(model, tokens):
    """The attention of every layer, `[head, dest, src]`."""
    seen, ids = {}, torch.tensor([tokens])

    def look(layer):
        return lambda pattern: seen.update({layer: pattern[0]})

    hooks = [(Site("pattern", layer), look(layer)) for layer in range(model.info.n_layers)]
    with torch.no_grad():
        model.forward(ids, ids >= 0, torch.arange(len(tokens))[None], hooks=hooks)
    return [seen[layer].double() for layer in sorted(seen)]


def reached(model, count=40):
    """How far back any row puts attention, by layer; None: to the first token."""
    tokens = torch.randint(5, 200, (count,), generator=torch.Generator().manual_seed(0))
    places = torch.arange(count)
    distance = places[:, None] - places
    for pattern in patterns(model, tokens.tolist()):
        seen = (pattern != 0).any(0)
        most = int(distance[seen].max()) + 1
        assert bool(seen[(distance >= 0) & (distance < most)].all())
        yield most if most < count else None


SOME = ("GPT-2", "GPT-Neo", "GPT-OSS", "Mistral", "Qwen 2, sliding", "Gemma 3", "Cohere 2")


@pytest.mark.parametrize("name", SOME)
def test_the_window_is_what_the_pattern_shows(name):
    family = next(own for own in FAMILIES if own.name == name)
    model = adapt(icl.load_model(family.make(), tokenizer=tiny_tokenizer(family.tokenizer)))
    assert model.windows == tuple(reached(model))
    assert any(model.windows) == (name != "GPT-2")


def edges(prompt, window):
    """Which edges of a prompt are into label words, from them to the target, and the rest."""
    count = prompt.target + 1
    places = torch.arange(count)
    distance = places[:, None] - places
    exist = (distance > 0) & (distance < (window or count))
    label = torch.zeros(count, dtype=torch.bool)
    label[list(prompt.label_positions)] = True
    into, out_of = exist & label[:, None], exist & label & (places == prompt.target)[:, None]
    return torch.stack([into, out_of, exist & ~into & ~out_of])


@pytest.mark.slow
def test_scores_are_means_over_the_edges_that_exist(model, prompts, flow):
    maps = icl.saliency_maps(model, prompts)
    for found, values, prompt in zip(flow.per_prompt, maps.values, prompts, strict=True):
        for layer, window in enumerate(adapt(model).windows):
            some = edges(prompt, window)
            expected = (some * values[layer].double()).sum((1, 2)) / some.sum((1, 2))
            assert_close(found[:, layer], expected, rtol=1e-4, atol=1e-9, equal_nan=True)
    assert bool(flow.per_prompt[:, 1, :2].isnan().all())
    assert bool(flow.per_prompt[:, 1, [2, 5]].isfinite().all())


@pytest.mark.parametrize("window", [1, 2, 3, 7, 11, 12, 13, 40, None])
def test_numbers_of_edges(window):
    positions, targets = torch.tensor([[3, 7, 10], [2, 5, -1]]), torch.tensor([12, 6])
    for found, own, target in zip(
        flow_counts(positions, targets, window), positions, targets.tolist(), strict=True
    ):
        prompt = Places(target, own[own >= 0].tolist())
        assert found.tolist() == edges(prompt, window).sum((1, 2)).tolist()


class Places:
    def __init__(self, target, label_positions):
        self.target, self.label_positions = target, label_positions


@pytest.mark.slow
def test_no_window_and_one_longer_than_the_prompt_are_the_same_numbers(prompts):
    plain = adapt(gemma(4000, (SLIDING, FULL, FULL)))
    assert plain.windows == (4000, None, None)
    found = icl.flow_scores(plain, prompts)
    plain.__dict__["windows"] = (None, None, None)
    again = icl.flow_scores(plain, prompts)
    for name in ("per_prompt", "values", "low", "high", "null"):
        assert torch.equal(getattr(found, name), getattr(again, name))
    assert found.notes == again.notes == ()


def test_curves_have_gaps_and_the_shares_of_the_others_add_up_to_1(flow):
    assert flow.values[1].isnan().tolist() == [True, True, False, True, True, False]
    assert_close(flow.values.nansum(0), torch.ones(6, dtype=torch.float64))
    curves = flow.sel("share")
    assert bool((curves.low.isnan() == flow.values.isnan()).all())
    drawn = {own.name: own.y for own in flow.plot().data if own.name}
    gaps = [value is None for value in drawn["S_pq: label words → target"]]
    assert gaps == flow.values[1].isnan().tolist()


@pytest.mark.slow
def test_a_third_is_judged_by_the_layers_that_have_edges(model, prompts, flow):
    late = flow.share("pq", "last")
    assert late.value == float(flow.values[1, 5])
    assert flow.share("pq", "first").value != flow.share("pq", "first").value
    assert flow.target_layer == 5
    own, above = flow.above_null("pq", "last")
    assert own.value < 1.01
    assert abs(above.value) < 1
    whole = icl.flow_scores(gemma(layers=(SLIDING,) * 3), prompts)
    WORDS(whole.figures()[0].answer, "no_such_edges", "S_pq", 0, 2, WINDOW)
    WORDS(whole.figures()[1].answer, "no_such_edges_of_random_tokens")
    assert whole.difference("last").value != whole.difference("last").value


def test_the_reason_is_said_and_saved(flow, tmp_path):
    (note,) = flow.notes
    WORDS(note, "no_edges", "S_pq", "0–1", "3–4", WINDOW)
    assert note in flow.summary()
    flow.save(tmp_path / "flow")
    loaded = icl.load(tmp_path / "flow")
    assert loaded.notes == flow.notes
    for name in ("per_prompt", "values", "low", "high", "null"):
        assert torch.equal(
            getattr(loaded, name).nan_to_num(-7.0), getattr(flow, name).nan_to_num(-7.0)
        )


@pytest.mark.slow
def test_a_page_says_it(model, prompts, tmp_path):
    run = icl.measure(model, prompts, Flow(), Extraction(), progress=False)
    run.save(tmp_path / "run")
    page = icl.load(tmp_path / "run").to_html(tmp_path / "page.html").read_text()
    assert f"window of {WINDOW} tokens" in page
    assert "undefined [" not in run.flow.figures()[0].answer


def test_means_are_over_the_prompts_that_have_edges():
    """Of two prompts one has no label word in a window of 4."""
    sums = torch.tensor([[[4.0, 6, 1]], [[4.0, 0, 1]]])
    means = edge_means(sums, torch.tensor([[2], [1]]), torch.tensor([4, 6]), [4])
    assert means[0, 0].tolist() == [2.0, 6.0, pytest.approx(1 / 6)]
    assert means[1, 0, 1] != means[1, 0, 1]
    weights = torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=torch.float64)
    over = means_over(weights, means)
    assert over[0, 0, 1] == 6.0
    assert over[1, 0, 1] != over[1, 0, 1]
    assert over[:, 0, 0].tolist() == [3.0, 4.0]


def test_extraction_has_no_area_where_no_label_word_is_reached(model, prompts):
    gold = icl.extraction(model, prompts, truth="gold")
    assert gold.auc.isnan().tolist() == [True, True, False, True, True, False]
    assert float(gold.cumulative[-1]) == pytest.approx(1.0)
    assert gold.defined
    assert gold.last_third.value == float(gold.auc[5])
    WORDS(gold.notes[-1], "no_attention", "0–1", "3–4", WINDOW)
    assert gold.figures()
    gold.plot()


def test_maps_leave_the_same_edges_out(model, prompts):
    maps = icl.saliency_maps(model, prompts[:1])
    assert maps.windows == adapt(model).windows
    by_segment = maps.by_segment()
    target = next(i for i, own in enumerate(by_segment.segments) if own.role == "target")
    label = next(i for i, own in enumerate(by_segment.segments) if own.role == "label_word")
    gaps = by_segment.values[:, target, label].isnan().tolist()
    assert gaps == [True, True, False, True, True, False]
    assert maps.telling_layers().late == 5
    maps.plot()


def test_demonstrations_out_of_reach_have_no_share(model, prompts):
    found = icl.flow_by_demonstration(model, prompts)
    assert bool(found.pq[:, :, :2].isnan().all())
    assert bool(found.pq[:, :, 5].isfinite().all())
    values = icl.flow_scores(model, prompts).per_prompt
    assert_close(found.scores()[:, 1], values[:, 1], equal_nan=True)
    maps = icl.saliency_maps(model, prompts).values
    for layer, window in enumerate(adapt(model).windows):
        for number, prompt in enumerate(prompts):
            rows = [
                maps[number][layer, place, max(0, place + 1 - (window or place + 1)) : place].mean()
                for place in prompt.label_positions
            ]
            assert_close(
                found.wp[number, :, layer], torch.stack(rows).double(), rtol=1e-4, atol=1e-9
            )
    assert found.recency("last").value == found.recency("last").value
    assert found.figures()
    found.plot()


@pytest.mark.parametrize(("more", "reached"), [(0, False), (1, True)])
def test_the_last_label_word_at_the_edge_of_a_window(prompts, more, reached):
    """A window as long as the distance is one token too short."""
    one = prompts[:1]
    distance = one[0].target - one[0].label_positions[-1]
    found = icl.flow_by_demonstration(gemma(distance + more, (SLIDING, FULL)), one)
    assert bool(found.pq[0, -1, 0].isfinite()) == reached
    assert bool(found.pq[0, 0, 0].isnan())


def test_spans_too_far_apart_have_no_edges(model):
    texts = icl.texts(
        ["The cat sat on the mat. The dog ran far away. A bird sang a song. The sun went down."]
        * 2,
        model,
    )
    found = icl.span_flow(model, texts, proximity=1)
    first, last = 0, len(texts[0].text_spans) - 1
    gaps = found.matrices[0][:, 0, last, first].isnan().tolist()
    assert gaps == [True, True, False, True, True, False]
    assert bool(found.matrices[0][:, 0, 1, 0].isfinite().all())
    seen, places = patterns(adapt(model), texts[0].tokens), torch.arange(len(texts[0]))
    distance = places[:, None] - places
    columns = icl.anchor_tokens(model, texts, of="attention", ratio=3.0)
    for layer, window in enumerate(adapt(model).windows):
        exist = (distance > 0) & (distance < (window or len(places)))
        rows, read = (slice(*texts[0].text_spans[number]) for number in (1, 0))
        values = seen[layer][:, rows, read] * exist[rows, read]
        expected = values.sum((1, 2)) / exist[rows, read].sum()
        assert_close(found.matrices[0][layer, :, 1, 0].double(), expected, rtol=1e-5, atol=1e-7)
        until = exist[: texts[0].target + 1, : texts[0].target]
        sums = (seen[layer].mean(0)[: texts[0].target + 1, : texts[0].target] * until).sum(0)
        assert_close(columns.mass[0][layer].double(), sums / until.sum(0), rtol=1e-5, atol=1e-7)
    found.plot()
    assert columns.figures()


@pytest.mark.parametrize("first_row", [0, 5])
@pytest.mark.parametrize("reach", [2, 3, 6, 40])
def test_uniform_attention_in_a_window(reach, first_row):
    count = 9
    pattern = torch.zeros(count + 1, count + 1, dtype=torch.float64)
    for row in range(first_row, count + 1):
        start = max(0, row - reach + 1)
        pattern[row, start : row + 1] = 1 / (row + 1 - start)
    exist = torch.ones_like(pattern).tril(-1).triu(1 - reach)
    expected = (pattern * exist).sum(0)[:-1] / exist.sum(0)[:-1]
    assert_close(uniform_mass(count, first_row, reach), expected)
