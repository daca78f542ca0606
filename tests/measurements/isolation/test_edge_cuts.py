"""Cut edges: what is cut, what comes out of planted circuits and of untrained networks, and texts."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, ResultError
from icl_mech.interventions import Cut
from icl_mech.measurements import EdgeCuts
from icl_mech.measurements.causal.answers import above_others
from icl_mech.measurements.isolation.edge_cuts import CONTROLLED, EdgeCutsResult
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

EDGES = {
    "contextualise": ("units", "units", "others"),
    "aggregate": ("units", ["query", "target"], "any"),
    "anchors": ("anchors", ["query", "target"], "any"),
}


@pytest.fixture(scope="module")
def setting():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=2, n=4)
    return model, prompts, icl.edge_cuts(model, prompts, draws=2, seed=3)


def planted(n=36, **options):
    model = icl.planted_model(**options)
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=n, demonstrations="per_prompt"
    )
    return model, prompts


@pytest.mark.parametrize("windows", ["thirds", "cumulative"])
def test_every_number_is_that_of_a_run_with_the_cut(setting, windows):
    model, prompts, found = setting
    if windows == "cumulative":
        found = icl.edge_cuts(model, prompts, draws=2, seed=3, windows=windows)
    spans = [[0], [1], [2]] if windows == "thirds" else [[0], [0, 1], [0, 1, 2]]
    assert found.layers == tuple((own[0], own[-1]) for own in spans)
    plain = icl.predict(model, prompts)
    for place, (src, dst, relation) in enumerate(EDGES.values()):
        for window, layers in enumerate(spans):
            for draw in (None, 0, 1):
                given = {} if draw is None else {"control": True, "seed": 3 + draw}
                cut = Cut(src, dst, relation, layers=layers, **given)
                own = icl.predict(model, prompts, interventions=[cut])
                wanted = above_others(own.label_logits.double(), prompts.answers)
                kept = own.predicted == plain.predicted
                if draw is None:
                    assert_close(found.difference[:, place, window], wanted, atol=1e-5, rtol=0)
                    assert torch.equal(found.kept[:, place, window], kept)
                    right = own.predicted == prompts.answers
                    assert torch.equal(found.right[:, place, window], right)
                else:
                    values = found.random_difference[:, place, window, draw]
                    assert_close(values, wanted, atol=1e-5, rtol=0)
                    assert torch.equal(found.random_kept[:, place, window, draw], kept.double())


def test_edges_between_demonstrations_of_the_last_layer_reach_nothing(setting):
    _, _, found = setting
    assert float(found.changes[:, 0, 2].abs().max()) < 1e-5
    assert float(found.changes[:, 1, 2].abs().max()) > 1e-3


def test_the_planted_circuit():
    """Label words collect within their own demonstration; the target reads them in block 4 of 6."""
    found = icl.edge_cuts(*planted())
    for window in found.windows:
        assert abs(found.change("contextualise", window).value) < 0.02
        assert found.interval("loyalty", edges="contextualise", window=window).value > 0.95
    for edges in ("aggregate", "anchors"):
        assert found.change(edges, "late").high < -2
        assert found.beside(edges, "late").high < -1
        assert abs(found.change(edges, "early").value) < 0.02
    WORDS(found.figures()[0].answer, "planted_circuit")


def test_without_the_circuit_nothing_changes():
    found = icl.edge_cuts(*planted(anchors=False))
    assert float(found.changes.mean(0).abs().max()) < 0.05


@pytest.mark.parametrize(("edges", "ends"), [("contextualise", (0.5, 1)), ("aggregate", (0, 0.25))])
def test_random_edges_beside_those_between_demonstrations_are_most_of_them_the_same(edges, ends):
    """Few others have their distances; so no claim asks for them."""
    _, prompts = planted(4)
    src, dst, relation = EDGES[edges]
    shares = []
    for index, prompt in enumerate(prompts):
        found = []
        for control in (False, True):
            blocks = Cut(src, dst, relation, control=control).blocks(prompt, index, 0)
            own = {(row, column) for rows, columns in blocks for row in rows for column in columns}
            found.append({(row, column) for row, column in own if column < row <= prompt.target})
        assert len(found[0]) == len(found[1])
        shares.append(len(found[0] & found[1]) / len(found[0]))
    assert ends[0] < sum(shares) / len(shares) < ends[1]
    assert (edges in CONTROLLED) is (edges == "aggregate")


def test_texts():
    """Spans are units, and the answer is the next token."""
    model = tiny_model("gpt2")
    text = (
        "The film was good. It was a story! Was it bad? The plot was good. We left. It is a movie."
    )
    prompts = icl.texts([text, text.replace("film", "movie")], model)
    found = icl.edge_cuts(model, prompts, draws=1)
    assert found.changes.isfinite().all()
    assert float(found.changes[:, 1].abs().max()) > 1e-4


def test_the_result_is_complete(setting, tmp_path):
    _, _, found = setting
    loaded = EdgeCutsResult.load(found.save(tmp_path / "cuts"))
    assert loaded.windows == ("early", "middle", "late")
    assert loaded.beside("aggregate", "late") == found.beside("aggregate", "late")
    own = found.interval("beside_random", edges="anchors", window="middle")
    assert own == pytest.approx(found.beside("anchors", "middle"))
    assert found.plot().data
    text = found.summary()
    WORDS(text, "result_complete")
    assert f"contextualise: early {found.change('contextualise', 'early')}" in text
    names = found.drawing().names
    assert names.count("these edges") == 3
    assert names.count("random edges") == 2  # none beside edges between demonstrations
    panels = [own.curves for own in found.drawing().panels]
    assert panels == [(0,), (1, 2), (3, 4)]
    since = (
        found.right_answers("aggregate", "late"),
        found.right_answers("aggregate", "late", "early"),
    )
    early = found.right_answers("aggregate", "early").value
    assert since[0].value - early == pytest.approx(since[1].value)
    own = found.interval("accuracy_change", edges="aggregate", window="late")
    assert own == pytest.approx(since[0])


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


@pytest.mark.parametrize("variant", [{"windows": "cumulative"}, {"edges": "contextualise"}])
def test_claims_on_edges_that_were_not_cut_are_left_open(variant, tmp_path):
    model, prompts = planted(n=8)
    run = icl.measure(model, prompts, EdgeCuts(draws=2, **variant), progress=False)
    assert all(own.status in ("not shown", "cannot be judged") for own in run.verdicts())
    run.to_html(tmp_path / "page.html")
