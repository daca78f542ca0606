"""Cut edges: what is cut, what comes out of planted circuits and of untrained networks, and texts."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Cut
from icl_mech.measurements import EdgeCuts
from icl_mech.measurements.causal.answers import above_others
from icl_mech.measurements.isolation.edge_cuts import CONTROLLED, CUTS, EdgeCutsResult
from icl_mech.metrics import mean_interval
from icl_mech.planted import null_model
from icl_mech.prompts.rewriting import relabelled_before
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.saved import reseal, with_tensors
from tests.tiny import tiny_model

WORDS = Words(__file__)

EDGES = {
    "contextualise": ("units", "units", "others"),
    "aggregate": ("units", ["query", "target"], "any"),
    "anchors": ("anchors", ["query", "target"], "any"),
    "collect": ("before", "anchors", "any"),
}
EVERY = tuple(EDGES)


@pytest.fixture(scope="module")
def setting():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=2, n=4)
    return model, prompts, icl.edge_cuts(model, prompts, edges=EVERY, draws=2, seed=3)


def planted(n=36, **options):
    model = icl.planted_model(**options)
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=n, demonstrations="per_prompt"
    )
    return model, prompts


SPANS = {
    "thirds": [[0], [1], [2], [0, 1, 2]],
    "cumulative": [[0], [0, 1], [0, 1, 2]],
    "after": [[0, 1, 2], [1, 2], [2]],
    "sliding": [[0], [1], [2]],
}


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["query", "target"])
@pytest.mark.parametrize("windows", SPANS)
def test_every_number_is_that_of_a_run_with_the_cut(setting, windows, rows):
    model, prompts, found = setting
    if (windows, rows) != ("thirds", "query"):
        how = {"edges": EVERY, "windows": windows, "rows": rows}
        found = icl.edge_cuts(model, prompts, draws=2, seed=3, **how)
    assert found.rows == rows
    assert found.layers == tuple((own[0], own[-1]) for own in SPANS[windows])
    plain = icl.predict(model, prompts)
    answers = prompts.answers
    for place, (name, (src, dst, relation)) in enumerate(EDGES.items()):
        if rows == "target" and "target" in dst:
            dst = "target"
        for window, layers in enumerate(SPANS[windows]):
            cut = Cut(src, dst, relation, layers=layers)
            cuts = [cut]
            if name == "anchors":
                cuts += [replace(cut, control=True, seed=3 + draw) for draw in range(2)]
            if name == "collect":
                cuts += [icl.Isolate(layers, "random", seed=3 + draw) for draw in range(2)]
            for draw, own in enumerate(cuts):
                own = icl.predict(model, prompts, interventions=[own])
                one = (slice(None), place, window)
                parts = (found.difference[one], found.log_prob[one], found.kept[one])
                if draw:
                    one = (*one, draw - 1)
                    random = (found.random_difference, found.random_log_prob, found.random_kept)
                    parts = tuple(part[one] for part in random)
                wanted = above_others(own.label_logits.double(), answers)
                assert_close(parts[0], wanted, atol=1e-5, rtol=0)
                scores = own.label_logits.double().log_softmax(-1)
                wanted = scores[torch.arange(len(answers)), answers]
                assert_close(parts[1], wanted, atol=1e-5, rtol=0)
                assert torch.equal(parts[2].double(), (own.predicted == plain.predicted).double())
                if not draw:
                    assert torch.equal(found.right[one], own.predicted == answers)
            if len(cuts) == 1:
                assert bool(found.random_difference[:, place, window].isnan().all())
                assert bool(found.random_log_prob[:, place, window].isnan().all())


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "gptj", "neox"])
def test_exchanged_labels_are_what_demonstrations_read_elsewhere(architecture):
    """In windows from the first layer on: each later demonstration has the states of the other prompt."""
    model = tiny_model(architecture)
    prompts = icl.build_prompts(TASK, model, shots=2, n=4, demonstrations="per_prompt")
    found = icl.edge_cuts(model, prompts, edges="exchange", windows="cumulative")
    plain = icl.predict(model, prompts)
    last = len(prompts[0].label_classes)
    sources = [relabelled_before(prompts, model.tokenizer, demo).prompts for demo in range(1, last)]
    for window, (_, layer) in enumerate(found.layers):
        patches = [
            icl.Patch(
                "resid_post", layers=range(layer + 1), at="all", demo=1 + number, source=source
            )
            for number, source in enumerate(sources)
        ]
        own = icl.predict(model, prompts, interventions=patches)
        wanted = above_others(own.label_logits.double(), prompts.answers)
        assert_close(found.difference[:, 0, window], wanted, atol=1e-5, rtol=0)
        assert torch.equal(found.kept[:, 0, window], own.predicted == plain.predicted)
    assert float(found.changes[:, 0, 0].abs().max()) > 1e-4
    assert not found.has_control("exchange")
    assert found.beside("exchange", "early") is None


@pytest.mark.slow
def test_exchanged_labels_of_planted_circuits():
    """Read together they teach something else; where each is read alone, or only rested on, nothing changes."""
    model, prompts = planted(circuit="lessons", seed=1)
    found = icl.edge_cuts(model, prompts, edges=("contextualise", "exchange"))
    others = torch.tensor([own.label_classes[-1] != own.answer for own in prompts])
    assert bool(found.right[~others, 1].all())
    assert not bool(found.right[others, 1, 0].any())
    assert found.right_answers("exchange", "early").high < -0.3
    assert found.right_answers("exchange", "middle").value == 0
    WORDS(found.figures()[0].caption, "exchanged")
    resting = icl.edge_cuts(null_model("resting"), prompts, edges=("contextualise", "exchange"))
    assert resting.change("contextualise", "early").high < -1
    assert abs(resting.change("exchange", "early").value) < 0.02
    assert resting.right_answers("exchange", "all").value == 0


@pytest.mark.slow
def test_labels_that_cannot_be_exchanged_are_refused():
    model = icl.planted_model(circuit="lessons")
    prompts = icl.build_prompts(icl.planted_task(), model, shots=1, n=4)
    some = icl.build_prompts(icl.planted_task(), model, shots=2, n=4)
    zeroed = {"interventions": [icl.ZeroHeads([(1, 0)])], "progress": False}
    with WORDS.raises(RunError, "exchange_changed"):
        icl.edge_cuts(model, prompts, edges="exchange", **zeroed)
    run = icl.analyze(model, prompts, study="contextualise", **zeroed)
    assert run["edge_cuts"].edges == ("contextualise", "aggregate", "anchors")
    mixed = icl.PromptBatch((*prompts, *some))
    one = icl.build_prompts(icl.planted_task(), model, total=1, n=4)
    for given, said in ((mixed, "exchange_counts"), (one, "exchange_one")):
        with WORDS.raises(PromptError, said):
            icl.edge_cuts(model, given, edges="exchange")
    run = icl.analyze(model, mixed, study="contextualise", progress=False)
    assert run["edge_cuts"].edges == ("contextualise", "aggregate", "anchors")
    WORDS(" ".join(run.notes), "exchange_counts")


def test_lost_by_hand(setting):
    _, _, found = setting
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(4, 3, dtype=torch.float64, generator=draw)
    plain, cut = logits.log_softmax(1)[:, 0], torch.zeros(4, 4, 4).double() - 1.5
    random = found.random_log_prob.clone()
    random[:, 2:] = torch.tensor([-0.5, -0.7]).double()
    own = replace(found, log_prob=cut, plain_log_prob=plain, random_log_prob=random)
    assert own.lost("aggregate", "early").value == pytest.approx(float(plain.mean()) + 1.5)
    assert own.lost("aggregate", "early") == mean_interval(plain + 1.5)
    assert own.lost_beside("aggregate", "early") is None
    # Random edges cost 0.9 less on average of two draws, which lie 0.2 apart.
    value, low, high = own.lost_beside("anchors", "late")
    assert value == pytest.approx(0.9)
    assert (high - value) == pytest.approx(12.706 * 0.1, rel=1e-4)
    assert (value - low) == pytest.approx(12.706 * 0.1, rel=1e-4)
    assert own.lost("anchors", "late", before="early").value == 0
    changes = own.interval("log_prob_change", edges="aggregate", window="all")
    assert changes.value == pytest.approx(-own.lost("aggregate", "all").value)
    for random_one in ("random_log_prob_change", "random_change", "beside_random"):
        assert math.isnan(own.interval(random_one, edges="aggregate", window="all").value)
        assert math.isfinite(own.interval(random_one, edges="collect", window="all").value)


def test_a_window_slides_over_every_layer():
    spans = EdgeCuts(windows="sliding")._windows(24)
    assert len(spans) == 21
    assert next(iter(spans.items())) == ("0–3", range(4))
    assert [*spans.items()][-1] == ("20–23", range(20, 24))
    assert [*EdgeCuts(windows="sliding")._windows(2)] == ["0", "1"]


@pytest.mark.slow
def test_windows_to_the_last_layer_leave_out_quarters():
    """Of eight layers the last six, four and two; in the planted null `early` the target has read by then."""
    model = null_model("early")
    given = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=12, labels="permuted", demonstrations="per_prompt"
    )
    found = icl.edge_cuts(model, given, edges="aggregate", windows="after", rows="target", draws=0)
    assert found.windows == ("last ¾", "last ½", "last ¼")
    assert found.layers == ((2, 7), (4, 7), (6, 7))
    for place, first in enumerate((2, 4, 6)):
        cut = Cut("units", "target", layers=[*range(first, 8)])
        own = icl.predict(model, given, interventions=[cut], progress=False)
        wanted = above_others(own.label_logits.double(), given.answers)
        assert_close(found.difference[:, 0, place], wanted, atol=1e-4, rtol=0)
    assert bool(found.kept.all())
    whole = icl.predict(model, given, interventions=[Cut("units", "target")], progress=False)
    plain = icl.predict(model, given, progress=False)
    assert (whole.predicted != plain.predicted).double().mean() > 0.5


@pytest.mark.slow
def test_edges_into_targets_alone_take_one_row_of_each_prompt(setting):
    """Rows times blocks: all tokens once, then one of each prompt for every cut."""
    model, prompts, _ = setting
    tokens, layers = int(prompts.lengths.max()) * len(prompts), model.cfg.n_layers
    rows = {}
    for alone in ("query", "target"):
        own = EdgeCuts(edges=("aggregate", "anchors"), draws=2, rows=alone)
        rows[alone] = icl.measure(model, prompts, own, plan=True).items[0].rows["forward"]
    cuts = 4 * (1 + 1 + 2)  # windows, each with both cuts and two draws of one of them
    assert rows["target"] <= layers * (tokens + cuts * len(prompts))
    assert rows["query"] > 4 * rows["target"]
    both = EdgeCuts(edges=("contextualise", "aggregate", "anchors"), draws=2, rows="target")
    rows["both"] = icl.measure(model, prompts, both, plan=True).items[0].rows["forward"]
    assert rows["both"] - rows["target"] <= layers * tokens * 5


def test_edges_between_demonstrations_of_the_last_layer_reach_nothing(setting):
    _, _, found = setting
    assert found.windows == ("early", "middle", "late", "all")
    assert float(found.changes[:, 0, 2].abs().max()) < 1e-5
    assert float(found.changes[:, 3, 2].abs().max()) < 1e-5  # into label words likewise
    assert float(found.changes[:, 1, 2].abs().max()) > 1e-3


def test_the_planted_circuit():
    """Label words collect within their own demonstration; the target reads them in block 4 of 6."""
    found = icl.edge_cuts(*planted(), edges=EVERY)
    for window in found.windows:
        assert abs(found.change("contextualise", window).value) < 0.02
        assert found.interval("loyalty", edges="contextualise", window=window).value > 0.95
    for edges in ("aggregate", "anchors"):
        assert found.change(edges, "late").high < -2
        assert found.lost(edges, "late").low > 0.1
        assert abs(found.change(edges, "early").value) < 0.02
    assert found.beside("anchors", "late").high < -1
    assert found.lost_beside("anchors", "late").low > 0.1
    assert found.right_answers("aggregate", "late").high < 0
    assert found.beside("aggregate", "late") is None
    # Label words are written before they are read.
    assert found.lost_beside("collect", "late").value == pytest.approx(0, abs=0.01)
    assert found.lost_beside("collect", "all").low > 0.1
    WORDS(found.figures()[0].answer, "planted_circuit")


@pytest.mark.slow
def test_without_the_circuit_nothing_changes():
    found = icl.edge_cuts(*planted(anchors=False))
    assert float(found.changes.mean(0).abs().max()) < 0.05


def test_only_some_kinds_have_a_control(setting):
    """By kind, as their rows mostly leave too few other edges."""
    model, prompts, found = setting
    assert {*EdgeCuts.controls} == {*EVERY, "exchange"}
    for edges in EVERY:
        control = EdgeCuts.controls[edges]
        alone = CUTS[edges].has_control(prompts)
        assert (edges in CONTROLLED) is (control is not None) is found.has_control(edges)
        assert alone is (edges == "anchors")
    assert CONTROLLED == ("anchors", "collect")
    found = icl.edge_cuts(model, prompts, edges=EVERY, draws=0)
    assert found.random_difference.shape == (4, 4, 4, 0)
    for edges in EVERY:
        assert found.beside(edges, "late") is None
        assert found.lost_beside(edges, "late") is None
    assert found.drawing().names == ("these edges",) * 4
    assert "andom" not in found.figures()[0].caption


def test_texts():
    """Spans are units, and the answer is the next token."""
    model = tiny_model("gpt2")
    text = (
        "The film was good. It was a story! Was it bad? The plot was good. We left. It is a movie."
    )
    prompts = icl.texts([text, text.replace("film", "movie")], model)
    found = icl.edge_cuts(model, prompts, draws=1)
    assert found.changes.isfinite().all()
    own = icl.predict(model, prompts)
    followed = own.log_probs[:, 0] if own.log_probs.shape[1] == 2 else own.log_probs.max(1).values
    assert_close(found.plain_log_prob, followed.double(), atol=1e-5, rtol=0)
    assert float(found.changes[:, 1].abs().max()) > 1e-4


def test_the_result_is_complete(setting, tmp_path):
    _, _, found = setting
    loaded = EdgeCutsResult.load(found.save(tmp_path / "cuts"))
    assert loaded.windows == ("early", "middle", "late", "all")
    assert loaded.beside("anchors", "late") == found.beside("anchors", "late")
    own = found.interval("beside_random", edges="anchors", window="middle")
    assert own == pytest.approx(found.beside("anchors", "middle"))
    assert found.plot().data
    text = found.summary()
    WORDS(text, "result_complete")
    assert f"contextualise: early {found.lost('contextualise', 'early')}" in text
    WORDS(text, "result_complete_2", found.lost_beside("anchors", "early"))
    names = found.drawing().names
    assert names.count("these edges") == 4
    assert names.count("random edges") == 2  # of those that have a control
    panels = [own.curves for own in found.drawing().panels]
    assert panels == [(0,), (1,), (2, 3), (4, 5)]
    since = (
        found.right_answers("aggregate", "late"),
        found.right_answers("aggregate", "late", "early"),
    )
    early = found.right_answers("aggregate", "early").value
    assert since[0].value - early == pytest.approx(since[1].value)
    own = found.interval("accuracy_change", edges="aggregate", window="late")
    assert own == pytest.approx(since[0])


@pytest.mark.parametrize(
    ("rows", "said"), [("query", "caption_query"), ("target", "caption_target")]
)
def test_the_caption_says_rows_and_windows(setting, rows, said):
    model, prompts, _ = setting
    found = icl.edge_cuts(model, prompts, draws=1, windows="sliding", rows=rows)
    WORDS(found.figures()[0].caption, said)
    drawn = found.drawing()
    assert drawn.x == (0, 1, 2)
    assert drawn.panels[1].title.endswith("alone") is (rows == "target")


def test_a_result_saved_before_log_probabilities_were_kept(setting, tmp_path):
    """It loads, and speaks of logits."""
    model, prompts, _ = setting
    found = icl.edge_cuts(model, prompts, draws=2)
    place = found.save(tmp_path / "cuts")
    lacking = ("log_prob", "random_log_prob", "plain_log_prob")

    def earlier(own):
        for name in lacking:
            own.pop(name)
        # Random edges stood beside all kinds.
        own["random_difference"].nan_to_num_(1.0)

    with_tensors(place, earlier)
    document = json.loads((place / "result.json").read_text())
    document["values"].pop("rows")
    reseal(place / "result.json", values=document["values"])
    old = icl.load(place)
    assert (old.log_prob, old.rows) == (None, "query")
    assert math.isnan(old.lost("anchors", "late").value)
    assert old.lost_beside("anchors", "late") is None
    assert old.beside("aggregate", "late") is None  # of the kind it was then
    assert old.beside("anchors", "late") == found.beside("anchors", "late")
    gone = {*found.quantities()} - {*old.quantities()}
    assert gone == {"log_prob_change", "random_log_prob_change"}
    assert old.plot().data
    WORDS(old.figures()[0].caption, "earlier")
    assert (
        f"contextualise: early {-old.change('contextualise', 'early').value:.3g}" in old.summary()
    )


def test_what_is_refused(setting):
    model, _, found = setting
    with pytest.raises(ResultError, match="edges='anchor'"):
        found.change("anchor", "early")
    zero = icl.build_prompts(TASK, model, shots=0, n=2)
    with WORDS.raises(PromptError, "what_refused"):
        icl.measure(model, zero, EdgeCuts())
    one = icl.Prompt.from_positions(
        [5, 6, 7, 8, 9, 10],
        label_positions=(2,),
        label_classes=(0,),
        label_tokens=(7, 11),
        answer=0,
    )
    with WORDS.raises(PromptError, "what_refused_2", "'others'"):
        icl.edge_cuts(model, icl.PromptBatch((one,)))
    # One label word after another, and the target right behind: nothing else is there to cut.
    short = icl.Prompt.from_positions(
        [5, 7, 11, 8], label_positions=(1, 2), label_classes=(0, 1), label_tokens=(7, 11), answer=0
    )
    batch = icl.PromptBatch((short,))
    with WORDS.raises(PromptError, "what_refused_3", "'anchors'", "Prompt 0", "Row 3", 2, 0):
        icl.edge_cuts(model, batch, edges="anchors")
    with WORDS.raises(PromptError, "what_refused_4", "'collect'", 2, 0):
        icl.edge_cuts(model, batch, edges="collect")
    found = icl.edge_cuts(model, batch, edges=("anchors", "collect"), draws=0)
    assert found.changes.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("variant", [{"windows": "cumulative"}, {"edges": "contextualise"}])
def test_claims_on_edges_that_were_not_cut_are_left_open(variant, tmp_path):
    model, prompts = planted(n=8)
    run = icl.measure(model, prompts, EdgeCuts(draws=2, **variant), progress=False)
    assert all(own.status in ("not shown", "cannot be judged") for own in run.verdicts())
    run.to_html(tmp_path / "page.html")
