"""Figures of the page are those of the public functions, whatever of them was computed before."""

import base64
import math
import random

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.explorer.actions import act
from icl_mech.explorer.asking import Asker, packed, rounded
from icl_mech.measurements.calibration.content_free import replaced
from icl_mech.metrics.calibration import calibrate_labels
from icl_mech.models import Site, adapt
from tests.explorer.cases import EVERY, SAME, TASK, asked, done, model_of, random_action
from tests.tiny import FAMILIES


def public(model, experiment, asker):
    """Label logits of the answer, of every layer and of every head, by the public functions."""
    prompts = asker.prompts(experiment)
    how = {"interventions": asker.changes(experiment, prompts), "progress": False}
    answer = icl.predict(model, prompts, **how).label_logits[0]
    lens = icl.logit_lens(model, prompts, **how).label_logits[0]
    heads = icl.logit_lens(model, prompts, per="head", **how).label_logits[0]
    return answer, lens, heads


def close(found, expected):
    return torch.testing.assert_close(
        found, expected, rtol=0, atol=1e-5 * max(1.0, float(expected.abs().max()))
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("what", EVERY)
def test_answer_lens_and_heads(family, what):
    asker, start = asked(family)
    own = done(start, asker.stage, *EVERY[what])
    answer, lens, heads = public(model_of(family), own, asker)
    logits, components = asker.read(own)
    labels = logits[:, asker.labels(own)]
    close(labels[-1], answer)
    close(labels, lens)
    close(components.heads[0], heads)


@pytest.mark.slow
def test_every_change_changes_something():
    asker, start = asked()
    for what, actions in EVERY.items():
        found = asker.read(done(start, asker.stage, *actions))[0][-1]
        same = torch.equal(found, asker.read(start)[0][-1])
        assert same == (what in SAME), what


@pytest.mark.slow
def test_a_random_walk_with_reuse_is_a_walk_without():
    asker, start = asked()
    rng, now, fresh = random.Random(1), start, None
    for step in range(150):
        try:
            after = act(now, random_action(rng, now), asker.stage)[0]
            found = asker.read(after)[0]
        except IclMechError:
            continue
        now = after
        if step % 10 == 0:
            fresh = Asker(asker.model, asker.stage)
            close(found, fresh.read(now)[0])
            close(found[:, asker.labels(now)][-1], public(model_of(), now, asker)[0])
    assert fresh is not None


def test_only_what_is_new_is_computed():
    """Rows and layers of each pass, counted at its first and last block."""
    model = model_of()
    own, start = Asker(adapt(model), asked()[0].stage), asked()[1]
    passes = []

    def counting(forward):
        def counted(tokens, *args, **more):
            start = more.get("start")
            passes.append((tokens.shape[1], start.layer if start else 0))
            return forward(tokens, *args, **more)

        return counted

    own.model.forward = counting(own.model.forward)
    own.runs.model = own.model
    prompt = own.prompts(start)[0]
    own.read(start)
    assert passes == [(len(prompt), 0)]
    passes.clear()
    own.read(start)
    assert passes == []
    own.read(done(start, own.stage, {"do": "head", "layer": 2, "head": 1}))
    assert passes == [(1, 2)]
    passes.clear()
    flipped = done(start, own.stage, {"do": "flip", "demo": 2})
    own.read(flipped)
    assert passes == [(len(prompt) - prompt.label_positions[2], 0)]
    passes.clear()
    own.read(done(start, own.stage, {"do": "query", "number": 1}))
    behind = next(span.start for span in prompt.spans if span.role == "query_text")
    assert (
        passes[0][0]
        <= len(own.prompts(done(start, own.stage, {"do": "query", "number": 1}))[0]) - behind
    )
    passes.clear()
    own.read(done(start, own.stage, EVERY["isolated late"][0]))
    assert passes == [(len(prompt) - prompt.label_positions[0], 1)]


def test_a_changed_weight_is_noticed():
    model = icl.untrained(model_of(), seed=3)
    adapted = adapt(model)
    own, start = Asker(adapted, asked()[0].stage), asked()[1]
    before = own.ask("now", start)
    own.check_current()
    assert own.has("now", start)
    with torch.no_grad():
        next(adapted.module.parameters()).mul_(1.5)
    own.check_current()
    assert not own.has("now", start)
    assert own.ask("now", start)["probs"] != before["probs"]


def test_flow_maps_and_attention():
    import base64

    asker, start = asked()
    own = done(start, asker.stage, *EVERY["isolated label words"])
    prompts = asker.prompts(own)
    how = {"interventions": asker.changes(own, prompts), "progress": False}
    found, flow = asker.ask("flow", own), icl.flow_scores(model_of(), prompts, **how)
    torch.testing.assert_close(
        torch.tensor(found["values"]).double(), flow.values, atol=1e-3, rtol=1e-3
    )
    random = flow.sel("null_share", score="pq").values
    torch.testing.assert_close(torch.tensor(found["random"]).double(), random, atol=1e-3, rtol=1e-3)
    maps = icl.saliency_maps(model_of(), prompts, **how).values[0].tril(-1)
    assert found["top"] == pytest.approx(float(maps.max()), rel=1e-5)
    count = len(prompts[0])
    steps = torch.frombuffer(bytearray(base64.b64decode(found["maps"])), dtype=torch.uint8)
    steps = steps.reshape(3, count * (count + 1) // 2)
    rows, columns = torch.tril_indices(count, count)
    edges = maps[:, rows, columns]
    shown = 10 ** ((steps.double() / 255 - 1) * 4) * found["top"]
    seen = edges > found["top"] * 1e-3
    torch.testing.assert_close(shown[seen], edges[seen].double(), rtol=0.03, atol=0)
    assert bool((steps[0][rows == columns] == 0).all())
    rows_of = asker.ask("attention 1 2", own)
    assert (rows_of["layer"], rows_of["head"], rows_of["t"]) == (1, 2, count)
    shares = torch.frombuffer(bytearray(base64.b64decode(rows_of["maps"])), dtype=torch.uint8)
    sums = torch.zeros(count).index_add_(0, rows, shares.float() / 255)
    torch.testing.assert_close(sums, torch.ones(count), atol=0.1, rtol=0)


@pytest.mark.parametrize(
    "what",
    [
        "nothing",
        "a flipped label",
        "isolated label words",
        "cut between demonstrations",
        "a head",
        "re-weighted",
        "cut to the target",
        "a hidden demonstration",
    ],
)
def test_calibrated_as_the_public_function_does(what):
    asker, start = asked()
    own = done(start, asker.stage, *EVERY[what])
    prompts = asker.prompts(own)
    how = {"interventions": asker.changes(own, prompts), "progress": False}
    found = icl.calibration(model_of(), prompts, **how)
    expected = found.scores[0, found.methods.index("contextual")].float()
    shown = torch.tensor(asker.ask("cal", own)["probs"])
    torch.testing.assert_close(shown, expected, atol=2e-4, rtol=1e-3)
    if what == "nothing":
        (only,) = icl.calibration(model_of(), prompts, inputs=["N/A"], **how).scores[:, 1].float()
        assert not torch.allclose(shown, only, atol=2e-4, rtol=1e-3)


def test_calibrated_by_hand_with_patched_label_words():
    asker, start = asked()
    own = done(start, asker.stage, *EVERY["patched"])
    other = asker.prompts(own.opposite(len(TASK.labels)))
    probs = []
    for text in ("N/A", "", "[MASK]", None):
        plain, opposite = asker.prompts(own), other
        if text is not None:
            tokenizer = asker.model.tokenizer
            plain, opposite = (replaced(it, [text], tokenizer).prompts for it in (plain, opposite))
        patch = icl.Patch("resid_post", layers=[1], at="label_word", source=opposite)
        found = icl.predict(model_of(), plain, interventions=[patch], progress=False)
        probs.append(found.label_probs[0])
    expected = calibrate_labels(probs[-1][None], torch.stack(probs[:-1]))[0].float()
    shown = torch.tensor(asker.ask("cal", own)["probs"])
    torch.testing.assert_close(shown, expected, atol=2e-4, rtol=1e-3)


def test_the_pair_is_the_lens_behind_true_and_false_labels():
    asker, start = asked()
    found = asker.ask("pair", done(start, asker.stage, {"do": "flip", "demo": 0}))
    flipped = done(start, asker.stage, {"do": "flip_all"})
    assert found["true"] == asker.ask("now", start)["lens"]
    assert found["false"] == asker.ask("now", flipped)["lens"]


def test_nothing_stays_in_the_model():
    asker, start = asked()
    for actions in EVERY.values():
        asker.ask("now", done(start, asker.stage, *actions))
    assert not asker.model.has_own_hooks
    assert Site("z", 0)  # the sites' names are those of the engine
    assert sum(len(module._forward_hooks) for module in asker.model.module.modules()) == 0


def test_old_answers_are_let_go_but_not_those_of_the_start(monkeypatch):
    monkeypatch.setattr("icl_mech.explorer.asking.KEPT", 5)
    own, start = Asker(asked()[0].model, asked()[0].stage), asked()[1]
    own.pinned.add(start)
    own.ask("now", start)
    for number in range(12):
        own.ask(
            "now",
            done(
                start,
                own.stage,
                {"do": "query", "number": number % 6},
                {"do": "flip", "demo": number % 3},
            ),
        )
    assert own.has("now", start)
    assert len(own.known) <= 6


def test_what_json_cannot_say_is_null():
    values = torch.tensor([[0.12345678, math.nan], [math.inf, -1.0]])
    assert rounded(values) == [[0.1235, None], [None, -1.0]]
    codes = base64.b64decode(packed(torch.tensor([[2.96, 0.0], [0.5, 1.0]])))
    assert [*codes] == [255, 128, 255]  # re-weighted attention saturates
