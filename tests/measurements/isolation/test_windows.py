"""Isolation: loyalties against separate runs, identities, intervals and figures."""

from dataclasses import dataclass, replace
from inspect import unwrap

import pytest
import torch

from icl_mech.engine import Kept, Reading, run
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Isolate
from icl_mech.measurements.isolation import agreement as _isolation
from icl_mech.measurements.isolation.map import IsolationMap, isolation_map
from icl_mech.measurements.isolation.windows import IsolationResult, isolation
from icl_mech.measurements.predictions import predict
from icl_mech.metrics import wilson_interval
from icl_mech.models import ModelInfo, Site, adapt
from icl_mech.plots import figure
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import load_result
from tests.engine.cases import LABEL_TOKENS, prompt, ragged
from tests.margins import clear_prompts
from tests.tiny import FAMILIES, N_LAYERS, tiny_model

ALL = {"depths": [1, 2, 3], "draws": 2}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


def many(n=24, *, shared=False):
    """Prompts with three label words; their demonstrations are shared or their own."""
    head = prompt(12, (3, 7, 10), (0, 1, 2), seed=100).tokens
    rows = []
    for seed in range(n):
        start = head if shared else prompt(12, (3, 7, 10), (0, 1, 2), seed=200 + seed).tokens
        tail = prompt(3 + seed % 4, (), (), seed=300 + seed).tokens
        rows.append(
            Prompt.from_positions(
                (*start, *tail),
                label_positions=(3, 7, 10),
                label_classes=(0, 1, 2),
                label_tokens=LABEL_TOKENS,
                answer=seed % 3,
            )
        )
    return PromptBatch(tuple(rows), {"demonstrations": "shared" if shared else "per_prompt"})


def layers_of(side, depth):
    return range(depth) if side == "first" else range(N_LAYERS - depth, N_LAYERS)


def cuts_of(sides=("first", "last"), depths=(1, 2, 3), tokens=("label", "random"), **options):
    """No cut at all, and those of all windows, as lists of interventions."""
    seeds = {"label": (0,), "random": (0, 1)}
    first = options.pop("seed", 0)
    return [()] + [
        [Isolate(layers_of(side, depth), kind, seed=first + seed, **options)]
        for side in sides
        for depth in depths
        for kind in tokens
        for seed in seeds[kind]
    ]


def by_separate_runs(model, prompts, side, depth, tokens, seeds, **options):
    """Mean over draws of what is kept, by sets of top tokens and one run per draw."""
    plain = predict(model, prompts)
    kept, overlap = [], []
    for seed in seeds:
        cut = Isolate(layers_of(side, depth), tokens, seed=seed, **options)
        read = predict(model, prompts, interventions=[cut])
        kept.append((read.predicted == plain.predicted).double())
        pairs = zip(read.top_tokens.tolist(), plain.top_tokens.tolist(), strict=True)
        sets = [(set(one), set(other)) for one, other in pairs]
        shares = [len(a & b) / len(a | b) for a, b in sets]
        overlap.append(torch.tensor(shares, dtype=torch.float64))
    return torch.stack(kept), torch.stack(overlap)


@pytest.mark.parametrize("shared", [False, True], ids=["per prompt", "shared"])
def test_every_window_is_a_run_of_its_own(model, shared):
    prompts = clear_prompts(model, many(8, shared=shared), cuts_of(seed=5))
    found = isolation(model, prompts, depths=[1, 2, 3], draws=2, seed=5)
    assert len(found.windows) == 12
    for i, (side, depth, tokens) in enumerate(found.windows):
        seeds = (5, 6) if tokens == "random" else (5,)
        kept, overlap = by_separate_runs(model, prompts, side, depth, tokens, seeds)
        torch.testing.assert_close(found.label_kept[i], kept.mean(0), rtol=0, atol=1e-12)
        torch.testing.assert_close(found.word_overlap[i], overlap.mean(0), rtol=0, atol=1e-12)
        torch.testing.assert_close(found.draw_loyalty[i], kept.mean(1).expand(2))


@pytest.mark.parametrize("options", [{"mode": "zero"}, {"redraw": "prompt"}, {"redraw": "layer"}])
def test_variants_reach_the_runs(gpt2, options):
    cuts = cuts_of(["first"], [2], ["random"], **options)
    prompts = clear_prompts(gpt2, many(12), cuts)
    found = isolation(gpt2, prompts, depths=[2], tokens="random", draws=2, **options)
    kept, overlap = by_separate_runs(gpt2, prompts, "first", 2, "random", (0, 1), **options)
    torch.testing.assert_close(found.label_kept[0], kept.mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.word_overlap[0], overlap.mean(0), rtol=0, atol=1e-12)
    usual = isolation(gpt2, prompts, depths=[2], tokens="random", draws=2)
    assert not torch.equal(usual.word_overlap, found.word_overlap)
    assert options.items() <= found.provenance["variants"].items()


def test_one_call_runs_everything_and_the_plain_model_once(gpt2, monkeypatch):
    calls = []

    def counted(model, prompts, readings, variants, **options):
        calls.append(variants)
        return run_variants(model, prompts, readings, variants, **options)

    run_variants = _isolation.run_variants
    monkeypatch.setattr(_isolation, "run_variants", counted)
    isolation(gpt2, many(3), **ALL)
    (variants,) = calls
    assert [len(variant) for variant in variants] == [0] + 18 * [1]
    assert {variant[0].seed for variant in variants[1:]} == {0, 1}


def test_isolation_in_the_last_layer_changes_nothing_at_all(model):
    prompts = many(6)
    plain = predict(model, prompts)
    cut = predict(model, prompts, interventions=[Isolate([N_LAYERS - 1])])
    torch.testing.assert_close(cut.label_logits, plain.label_logits, rtol=0, atol=0)
    found = isolation(model, prompts, depths=[1], draws=2)
    for tokens in ("label", "random"):
        row = found.row("last", 1, tokens)
        assert (row.label_loyalty.value, row.word_loyalty.value) == (1.0, 1.0)


@pytest.mark.parametrize("prompts", [ragged(), many(6)], ids=["ragged", "three labels"])
def test_a_padded_batch_gives_what_its_prompts_give_alone(model, prompts):
    prompts = clear_prompts(model, prompts, cuts_of(depths=[2, 3], tokens=["label"]))
    together = isolation(model, prompts, depths=[2, 3], tokens="label")
    for i, single in enumerate(prompts):
        alone = isolation(model, PromptBatch((single,)), depths=[2, 3], tokens="label")
        torch.testing.assert_close(together.label_kept[:, i], alone.label_kept[:, 0])
        torch.testing.assert_close(together.word_overlap[:, i], alone.word_overlap[:, 0])


@dataclass
class LabelResidual(Reading[torch.Tensor]):
    """The residual after the last block at the first label word."""

    def sites(self, info: ModelInfo) -> list[Site]:
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site, activation, segment):
        positions = segment.prompts.label_positions[:, :1].to(segment.dest.device)
        return activation[segment.rows, (segment.dest == positions).int().argmax(1)]

    def collect(self, kept: Kept) -> torch.Tensor:
        return kept.stacked()[:, 0]


def test_isolated_label_words_know_nothing_of_the_texts(model):
    """Equal label words at equal positions behind other texts: the same residual, in `mask` mode."""
    texts = PromptBatch(tuple(prompt(9, (5,), (1,), seed=seed) for seed in range(4)))
    cut, zeroed, partly = (
        run(model, texts, [LabelResidual()], [Isolate(layers, mode=mode)])[0]
        for layers, mode in ((range(3), "mask"), (range(3), "zero"), (range(2), "mask"))
    )
    torch.testing.assert_close(cut, cut[:1].expand(4, -1), rtol=0, atol=1e-5)
    for other in (zeroed, partly):
        assert float((other - other[:1]).abs().max()) > 1e-3


def test_two_classes_and_prompts_of_bare_positions(gpt2):
    rows = tuple(
        prompt(10, (2, 4, 6), (0, 1, 0), seed=seed, label_tokens=(301, 302)) for seed in range(5)
    )
    found = isolation(gpt2, PromptBatch(rows), **ALL)
    assert found.label_kept.shape == (12, 5)


def test_default_depths_are_at_most_half_of_the_layers(gpt2):
    assert isolation(gpt2, many(2), tokens="label").depths == (1,)
    info = adapt(gpt2).info
    for n_layers, expected in ((30, (1, 3, 5, 7)), (12, (1, 3, 5)), (6, (1, 3)), (1, (1,))):
        assert _isolation.usual_depths(replace(info, n_layers=n_layers)) == expected


# --- the result itself ---


def known(draw_loyalty=None):
    """Ten prompts; label words in the first layers cost four of them, random tokens one half."""
    label_kept = torch.ones(4, 10).double()
    label_kept[0, :4] = 0.0
    label_kept[2, 0] = 0.5
    word_overlap = label_kept / 2
    return IsolationResult(
        windows=(("first", 5, "label"), ("last", 5, "label"),
                 ("first", 5, "random"), ("last", 5, "random")),
        label_kept=label_kept,
        word_overlap=word_overlap,
        draw_loyalty=label_kept.mean(1, keepdim=True).expand(-1, 2)
        if draw_loyalty is None
        else draw_loyalty,
        predicted=torch.tensor([0] * 7 + [1] * 3),
        n_layers=12,
        top_k=5,
    )  # fmt: skip


def test_intervals():
    """Wilson for label words; bootstrap for averages over draws and for word loyalty."""
    result = known()
    expected = wilson_interval(torch.tensor([False] * 4 + [True] * 6))
    assert tuple(result.row("first", 5).label_loyalty) == pytest.approx(tuple(expected))
    assert tuple(result.row("last", 5).label_loyalty) == pytest.approx((1.0, 0.7224672, 1.0))
    random = result.row("first", 5, "random").label_loyalty
    assert tuple(random) == pytest.approx((0.95, 0.85, 1.0))
    word = result.row("first", 5).word_loyalty
    assert tuple(word) == pytest.approx((0.3, 0.15, 0.45))


def test_one_draw_is_a_share_of_zeros_and_ones():
    result = known(draw_loyalty=torch.ones(4, 1).double())
    assert tuple(result.row("last", 5, "random").label_loyalty) == pytest.approx(
        (1.0, 0.7224672, 1.0)
    )


def test_differences_are_paired():
    """Four of ten prompts differ by 1: the bootstrap of a share of 0.4."""
    found = known().difference(("first", 5, "label"), ("last", 5, "label"))
    assert tuple(found) == pytest.approx((-0.4, -0.7, -0.1))
    # The first prompt counts one half less: pairing leaves 0.5 + 3 in the mean.
    found = known().difference(("first", 5, "label"), ("first", 5, "random"))
    assert tuple(found) == pytest.approx((-0.35, -0.65, -0.1))
    result = known()
    equal = replace(result, label_kept=result.label_kept[[0, 0, 2, 3]])
    assert equal.difference(("first", 5, "label"), ("last", 5, "label")) == (0.0, 0.0, 0.0)
    words = known().difference(("first", 5, "label"), ("last", 5, "label"), quantity="word")
    assert tuple(words) == pytest.approx((-0.2, -0.35, -0.05))


def test_table():
    table = known().to_pandas()
    assert list(table.columns) == [
        "side", "depth", "tokens", "label_loyalty", "label_low", "label_high",
        "word_loyalty", "word_low", "word_high", "low", "high", "draw_min", "draw_max",
    ]  # fmt: skip
    row = table[(table.side == "first") & (table.tokens == "label")].iloc[0]
    assert (row.depth, row.label_loyalty, row.word_loyalty) == (
        5,
        pytest.approx(0.6),
        pytest.approx(0.3),
    )
    assert (row.low, row.high) == (row.label_low, row.label_high)


def test_summary_says_what_is_clear():
    result = known()
    assert result.summary() == (
        "label words isolated in the first 5 of 12 layers (10 prompts): label loyalty "
        "0.6 [0.313, 0.832], word loyalty 0.3 [0.15, 0.45]; "
        "minus last layers: -0.4 [-0.7, -0.1], -0.2 [-0.35, -0.05]; "
        "minus random tokens: -0.35 [-0.65, -0.1], -0.175 [-0.325, -0.05]; "
        "clear: label loyalty below last layers, word loyalty below last layers, "
        "label loyalty below random tokens, word loyalty below random tokens"
    )
    same = replace(result, label_kept=torch.ones(4, 10).double())
    assert "label loyalty below" not in same.summary()
    assert same.summary().endswith("word loyalty below random tokens")
    equal = replace(same, word_overlap=torch.ones(4, 10).double())
    assert equal.summary().endswith("clear: no difference")


def test_spread_between_draws():
    draws = torch.tensor([[0.6, 0.6], [1.0, 1.0], [0.9, 1.0], [1.0, 1.0]], dtype=torch.float64)
    result = known(draw_loyalty=draws)
    assert result.row("first", 5, "random").draws == (0.9, 1.0)
    assert (
        "random tokens: -0.35 [-0.65, -0.1], -0.175 [-0.325, -0.05] (label loyalty of single draws 0.9 to 1)"
        in result.summary()
    )
    assert result.summary().count("single draws") == 1
    assert result.to_pandas().draw_min.tolist() == [0.6, 1.0, 0.9, 1.0]


def test_summary_without_a_comparison():
    result = known()
    alone = replace(result, windows=(("last", 5, "random"),), label_kept=result.label_kept[:1],
                    word_overlap=result.word_overlap[:1], draw_loyalty=result.draw_loyalty[:1])  # fmt: skip
    assert alone.summary().startswith(
        "random tokens isolated in the last 5 of 12 layers (10 prompts)"
    )
    assert "minus" not in alone.summary()


def test_figure():
    shape = known().drawing()
    assert shape.names == (
        "first k layers, label words", "last k layers, label words",
        "first k layers, random tokens", "last k layers, random tokens",
    )  # fmt: skip
    assert shape.x == (5.0,)
    assert shape.x_title == "isolated layers (k)"
    torch.testing.assert_close(
        shape.values[:, 0], torch.tensor([0.6, 1.0, 0.95, 1.0], dtype=torch.float64)
    )
    assert shape.levels == ((0.7, "share of the commonest prediction"),)
    assert "mean of 2 draws" in shape.note
    words = known().drawing(quantity="word")
    assert words.values[0, 0] == pytest.approx(0.3)
    assert words.levels == ()
    drawn = figure(shape)
    assert drawn.layout.xaxis.tickvals == (5.0,)
    assert {trace.mode for trace in drawn.data if trace.fill} == {"lines"}
    assert "first k layers, label words" in drawn.to_html()


def test_what_is_not_there():
    with pytest.raises(ResultError, match=r"No window \('first', 3, 'label'\).*depths 5 and"):
        known().row("first", 3)
    with pytest.raises(ResultError, match=r"quantity='words'. Did you mean 'word'"):
        unwrap(IsolationResult.drawing)(known(), quantity="words")


@pytest.mark.parametrize("study", [isolation, isolation_map])
def test_round_trip(gpt2, tmp_path, study):
    result = study(gpt2, many(5, shared=True), draws=2)
    loaded = load_result(result.save(tmp_path / "result"))
    assert type(loaded) is type(result)
    assert loaded.summary() == result.summary()
    assert loaded.to_pandas().equals(result.to_pandas())
    assert "given their shared demonstrations" in loaded.drawing().note
    assert loaded.plot().to_html() != ""


# --- the map ---


def test_map_holds_every_window(gpt2):
    middle = [Isolate([1])]
    prompts = clear_prompts(gpt2, many(20), [*cuts_of(tokens=["label"]), middle])
    found = isolation_map(gpt2, prompts, widths=[1, 2, 3])
    assert (found.widths, found.starts) == ((1, 2, 3), (0, 1, 2))
    expected_nan = torch.tensor([[False, False, False], [False, False, True], [False, True, True]])
    torch.testing.assert_close(found.values.isnan(), expected_nan)
    ends = isolation(gpt2, prompts, depths=[1, 2, 3], tokens="label")
    for row, width in enumerate(found.widths):
        for side, column in (("first", 0), ("last", N_LAYERS - width)):
            loyalty = ends.row(side, width).label_loyalty
            cell = [float(table[row, column]) for table in (found.values, found.low, found.high)]
            assert cell == pytest.approx(tuple(loyalty))
            place = ends.windows.index((side, width, "label"))
            torch.testing.assert_close(found.word_overlap[row, column], ends.word_overlap[place])
    moved = predict(gpt2, prompts, interventions=middle).predicted
    kept = (moved == predict(gpt2, prompts).predicted).double()
    torch.testing.assert_close(found.label_kept[0, 1], kept)
    assert 0 < float(found.values.nan_to_num(0.5).min()) < 1


def test_map_of_random_tokens_and_wider_steps(gpt2):
    cuts = [[Isolate([layer], "random", seed=seed)] for layer in (0, 2) for seed in range(3)]
    prompts = clear_prompts(gpt2, many(6), [(), *cuts])
    found = isolation_map(gpt2, prompts, widths=[1], step=2, tokens="random", draws=3)
    assert found.starts == (0, 2)
    ends = isolation(gpt2, prompts, depths=[1], tokens="random", draws=3)
    torch.testing.assert_close(found.label_kept[0], ends.label_kept)
    low = ends.row("first", 1, "random").label_loyalty.low
    assert float(found.low[0, 0]) == pytest.approx(low)


def known_map():
    kept = torch.ones(2, 3, 4).double()
    kept[1, 1, :3] = 0.0
    kept[1, 2] = torch.nan
    values = kept.mean(-1)
    return IsolationMap(
        widths=(1, 2), starts=(0, 1, 2), values=values, low=values / 2, high=values,
        label_kept=kept, word_overlap=kept, predicted=torch.tensor([0, 1, 1, 0]), tokens="label",
    )  # fmt: skip


def test_map_summary_table_and_figure():
    result = known_map()
    assert result.summary().startswith(
        "label loyalty is lowest, 0.25 [0.125, 0.25], with label words isolated in layers 1 to 2 "
        "(of 5 windows;"
    )
    table = result.to_pandas()
    assert len(table) == 5
    assert table[(table.width == 2) & (table.start == 1)].label_loyalty.item() == 0.25
    shape = result.drawing()
    assert (shape.rows, shape.columns, shape.marked) == ((1, 2), (0, 1, 2), ((1, 1),))
    drawn = figure(shape)
    assert drawn.data[0].reversescale
    assert drawn.layout.yaxis.tickvals == (1, 2)
    assert drawn.layout.plot_bgcolor != "white"  # blank cells differ from light ones
    assert "isolated layers" in drawn.to_html()
    assert "first isolated layer" in figure(result.drawing(quantity="word")).to_html()


# --- refusals, before anything runs ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depths": [1, 4]}, r"depths=\(1, 4\).*has 3 layers.*between 1 and 3"),
        ({"depths": [0]}, r"depths=\(0,\)"),
        ({"depths": []}, r"depths=\(\)"),
        ({"sides": ["frist"]}, "sides='frist'. Did you mean 'first'"),
        ({"sides": []}, "No sides chosen. Known: first, last"),
        ({"tokens": ["labels"]}, "tokens='labels'. Did you mean 'label'"),
        ({"mode": "masked"}, "mode='masked'. Did you mean 'mask'"),
        ({"redraw": "layers"}, "redraw='layers'. Did you mean 'layer'"),
        ({"draws": 0}, "draws=0"),
        ({"top_k": 0}, "top_k=0; the vocabulary has"),
        ({"top_k": 10**6}, "top_k=1000000; the vocabulary has"),
    ],
)
def test_refused_choices(gpt2, monkeypatch, options, message):
    monkeypatch.setattr(_isolation, "run_variants", None)
    with pytest.raises(RunError, match=message):
        unwrap(isolation)(gpt2, ragged(), **options)


def test_refused_maps(gpt2, monkeypatch):
    monkeypatch.setattr(_isolation, "run_variants", None)
    with pytest.raises(RunError, match=r"widths=\(5,\).*between 1 and 3"):
        isolation_map(gpt2, ragged(), widths=[5])
    with pytest.raises(RunError, match="step=0"):
        isolation_map(gpt2, ragged(), step=0)


def test_refused_prompts(gpt2, monkeypatch):
    monkeypatch.setattr(_isolation, "run_variants", None)
    bare = PromptBatch((ragged()[0], prompt(6, (), ())))
    with pytest.raises(PromptError, match=r"Prompt 1 has no demonstration.*shots >= 1"):
        isolation(gpt2, bare)
    crowded = PromptBatch((prompt(4, (1, 2), (0, 1)),))
    with pytest.raises(PromptError, match="2 random tokens asked for, only 0"):
        isolation(gpt2, crowded)
