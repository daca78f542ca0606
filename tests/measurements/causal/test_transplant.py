"""Transplants: plain copying in Hugging Face, the planted hand-over, identity, and what stands for what."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements import Transplant
from icl_mech.measurements.causal.grafts import drawn, matched, of_word, words
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch, Span
from icl_mech.studies import CAUSAL
from icl_mech.studies.hand_over import HAND_OVER
from icl_mech.studies.judge import verdict
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import FAMILIES, N_LAYERS, tiny_hf, tiny_model

WORDS = Words(__file__)

ALL = ("anchors", "target", "query", "template")
PLACES = {"at": ALL, "draws": 2}


def pairs(task, model, demonstrations="shared", **options):
    return icl.build_prompt_pairs(task, model, demonstrations=demonstrations, **options)


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module", params=["shared", "per_prompt"])
def pair(request, model):
    return pairs(TASK, model, request.param, shots=2, n=5)


@pytest.fixture(scope="module")
def handed():
    model = icl.planted_model(hand_over=4)
    data = pairs(icl.planted_task(), model, shots=1, n=16)
    return icl.transplant(model, *data, at=ALL, single=True, draws=2)


# --- against plain copying ---


def blocks(hf):
    return next(m for m in hf.modules() if isinstance(m, nn.ModuleList) and len(m) == N_LAYERS)


def entering(hf, tokens, layer, changed=None):
    """Log-probabilities at every position, and the residual entering a block, which may be changed."""
    kept = []

    def hook(_, args, kwargs):
        hidden = args[0] if args else kwargs["hidden_states"]
        kept.append(hidden.detach().clone())
        if changed is not None:
            rows, values = changed
            hidden = hidden.clone()
            hidden[0, rows] = values
        return ((hidden, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": hidden})

    handle = blocks(hf)[layer].register_forward_pre_hook(hook, with_kwargs=True)
    try:
        with torch.no_grad():
            logits = hf(torch.tensor([tokens])).logits[0]
    finally:
        handle.remove()
    return logits.log_softmax(-1), kept[0][0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
def test_what_plain_copying_in_hugging_face_gives(family, demonstrations):
    model, hf = tiny_model(family), tiny_hf(family)
    data = pairs(TASK, model, demonstrations, shots=1, n=3)
    measurement = Transplant(at=ALL, draws=2)
    found = measurement(model, *data)
    for direction, (run, source) in enumerate((data, data[::-1])):
        sets = measurement._sets(run, source)
        for n, (own, other) in enumerate(zip(run, source, strict=True)):
            for layer in range(N_LAYERS):
                _, given = entering(hf, other.tokens, layer)
                for place, matches in enumerate(sets):
                    rows, places = (list(part) for part in zip(*matches[n], strict=True))
                    read, _ = entering(hf, own.tokens, layer, (rows, given[places]))
                    expected = read[own.target][list(own.label_tokens)].double()
                    taken = found.log_probs[n, direction]
                    if place < len(ALL):
                        taken = taken[place, layer]
                    else:
                        at, draw = divmod(place - len(ALL), 2)
                        taken = found.random[n, direction, at, layer, draw]
                    assert_close(taken, expected, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("error")
def test_only_scores_with_thresholds_need_balanced_classes(model, pair):
    of_one_class = [n for n, prompt in enumerate(pair[0]) if prompt.answer == 0]
    sides = [side[of_one_class] for side in pair]
    icl.transplant(model, *sides, draws=1, layers=[1])
    with pytest.raises(UserWarning):
        icl.layer_accuracy(model, *sides)


def test_layer_0_swaps_the_words(model, pair):
    found = icl.transplant(model, *pair, layers=[0])
    # The texts are the same on both sides, and so are the lengths of label words.
    assert_close(found.log_probs[:, 0, 0, 0], found.plain[:, 1], atol=1e-5, rtol=0)
    assert_close(found.log_probs[:, 1, 0, 0], found.plain[:, 0], atol=1e-5, rtol=0)
    # The targets' own words are the same.
    assert_close(found.log_probs[:, :, 1, 0], found.plain, atol=1e-5, rtol=0)


# --- nothing where nothing differs, and the same on every path ---


@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        *(
            pytest.param(own, marks=pytest.mark.slow)
            for own in ({"path": "whole"}, {"batch_size": 2})
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_into_itself_changes_nothing(family, demonstrations, how):
    model = tiny_model(family)
    same = pairs(TASK, model, demonstrations, shots=2, n=3, false_share=0.0)
    assert [own.tokens for own in same[0]] == [own.tokens for own in same[1]]
    found = icl.transplant(model, *same, **PLACES, single=True, **how)
    for values in (found.log_probs, found.random.movedim(4, 2), found.single):
        plain = found.plain.reshape(*found.plain.shape[:2], *[1] * (values.ndim - 3), -1)
        assert torch.equal(values, plain.expand(values.shape))
    assert not bool(found.differ.any())
    assert bool(found.flips.isnan().all())
    WORDS.starts(found.figures()[0].answer, "run_into_itself_changes", "Cannot be judged")


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [{"path": "whole"}, {"batch_size": 2}, {"memory": "100MB"}], ids=str
)
def test_every_path_gives_the_same(model, pair, how):
    found, other = (icl.transplant(model, *pair, **PLACES, **own) for own in ({}, how))
    for name in ("plain", "log_probs", "random"):
        assert_close(getattr(found, name), getattr(other, name), atol=2e-5, rtol=1e-5)


@pytest.mark.slow
def test_what_prompts_share_is_run_once(model, monkeypatch):
    rows = []
    own = type(adapt(model)).forward

    def forward(self, tokens, *args, **kwargs):
        rows.append(tokens.numel())
        return own(self, tokens, *args, **kwargs)

    monkeypatch.setattr(type(adapt(model)), "forward", forward)
    data = pairs(TASK, model, "shared", shots=2, n=6)
    counts = []
    for path in ("auto", "whole"):
        icl.transplant(model, *data, path=path)
        counts.append(sum(rows))
        rows.clear()
    assert counts[0] < counts[1] / 2


@pytest.mark.slow
def test_interventions_of_the_user_are_made_in_sources_too(model, pair):
    heads = icl.ZeroHeads([(0, 1), (1, 2)], at="all")
    same = (pair[0], PromptBatch(pair[0].prompts, pair[0].source | {"false_share": 0.0}))
    found = icl.transplant(model, *same, interventions=[heads])
    assert torch.equal(found.log_probs, found.plain[:, :, None, None].expand_as(found.log_probs))
    plain = icl.predict(model, pair[0], interventions=[heads]).log_probs.double()
    assert_close(found.plain[:, 0], plain, atol=1e-5, rtol=0)


# --- the planted hand-over ---


@pytest.mark.slow
@pytest.mark.parametrize("block", [3, 4, 5])
def test_answers_flip_in_the_planted_layers_only(block):
    model = icl.planted_model(hand_over=block)
    found = icl.transplant(model, *pairs(icl.planted_task(), model, shots=1, n=12), at=ALL, draws=1)
    assert int(found.differ.sum()) >= 10
    early = [float(layer <= block) for layer in range(6)]
    late = [1.0 - own for own in early]
    for direction in range(2):
        flips = found.sel("flips").values[direction]
        assert flips.tolist() == [early, late, [0.0] * 6, [0.0] * 6]
    assert float(found.sel("random_flips").values.max()) == 0.0
    assert bool((found.flips[found.differ] == torch.tensor(early)).all())


def test_at_the_last_entrance_only_the_target_acts(handed):
    last = handed.sel("flips", layer=5).values
    assert last[:, 1].tolist() == [1.0, 1.0]
    assert float(last[:, [0, 2, 3]].abs().max()) == 0.0


def test_one_label_word_alone_moves_little(handed):
    alone = handed.sel("single_flips").values
    assert float(alone[:, :5].max()) < 0.5
    assert float(alone[:, 5].max()) == 0.0


def test_measures_by_hand(handed):
    differ, own = handed.differ, handed.predicted
    after = handed.log_probs[:, 0, 0, 2]
    assert_close(
        handed.interval("flips", direction="false to true", at="anchors", layer=2).value,
        float((after.argmax(-1) == own[:, 1])[differ].double().mean()),
    )
    gain = (after - handed.plain[:, 0]).gather(1, own[:, 1:])[:, 0]
    found = handed.interval("log_prob", direction="false to true", at="anchors", layer=2)
    assert found.value == pytest.approx(float(gain[differ].mean()))
    followed = (after.argmax(-1) == handed.taught).double() - (own[:, 0] == handed.taught).double()
    found = handed.interval("followed", direction="false to true", at="anchors", layer=2)
    assert found.value == pytest.approx(float(followed.mean()))


def test_the_other_place_and_random_tokens_are_beaten(handed):
    assert handed.beside_random("anchors", handed.early).low > 0
    assert handed.beside("target", "anchors", handed.late).low > 0
    assert handed.beside("anchors", "target", handed.late).high < 0
    assert handed.beside_random("anchors", 5).value == 0
    alone = replace(handed, at=("query", "template", "target", "anchors"))
    assert alone.beside_random("target", alone.late).low <= 0


@pytest.mark.slow
@pytest.mark.parametrize(("block", "status"), [(4, "supported"), (5, "mixed")])
def test_the_claim_asks_for_the_target_at_last(block, status):
    model = icl.planted_model(hand_over=block)
    data = pairs(icl.planted_task(), model, shots=1, n=24)
    found = icl.measure(model, data, Transplant(draws=2, layers=[2, 5]))
    own = verdict(HAND_OVER, found)
    assert (own.status, own.result) == (status, "transplant")
    beyond = [effect.interval(found).low > effect.null for effect in HAND_OVER.effects]
    assert beyond == [True, True, block == 4, block == 4]
    assert HAND_OVER in CAUSAL.claims


def test_no_claim_on_one_place_nor_on_answers_that_do_not_differ(model):
    data = pairs(TASK, model, shots=1, n=6)
    alone = icl.measure(model, data, Transplant(at="anchors", draws=1, layers=[1]))
    assert verdict(HAND_OVER, alone) is None
    same = pairs(TASK, model, shots=1, n=6, false_share=0.0)
    own = verdict(HAND_OVER, icl.measure(model, same, Transplant(draws=1)))
    assert own.status == "cannot be judged"


# --- what stands for what ---


@pytest.mark.parametrize(
    ("count", "given", "expected"),
    [
        (1, 1, [0]),
        (3, 3, [0, 1, 2]),
        (1, 3, [2]),
        (2, 3, [0, 2]),
        (3, 2, [0, 0, 1]),
        (3, 5, [0, 3, 4]),
        (4, 1, [0, 0, 0, 0]),
    ],
)
def test_label_words_of_other_lengths(count, given, expected):
    own, other = Span("label_word", 0, 10, 10 + count), Span("label_word", 0, 20, 20 + given)
    assert of_word(own, other) == tuple((10 + i, 20 + to) for i, to in enumerate(expected))


@pytest.fixture(scope="module")
def uneven(model):
    task = replace(TASK, labels=("good", "bad movie and of the"))
    return pairs(task, model, "shared", shots=2, n=4)


@pytest.mark.slow
def test_label_words_of_unequal_length_are_taken(model, uneven):
    counts = {own.stop - own.start for own in words(uneven[0][0])}
    assert len(counts) == 2
    found = icl.transplant(model, *uneven, **PLACES)
    assert found.unlike == sum(len(words(own)) for own in uneven[0])
    assert "different length" in found.figures()[0].caption
    whole = icl.transplant(model, *uneven, **PLACES, path="whole")
    assert_close(found.log_probs, whole.log_probs, atol=2e-5, rtol=1e-5)


def test_random_tokens_are_of_the_same_units_and_as_many(pair):
    true, false = pair[0][0], pair[1][0]
    spans = words(true)
    for at in ALL:
        inside = {position for position, _ in matched(true, false, at)[0]}
        draws = drawn(true, false, at, 6, 0)
        assert len(set(draws)) > 1 or at not in ("anchors", "target")
        for draw in draws:
            own = [position for position, _ in draw]
            assert len(set(own)) == len(own) <= len(inside)
            assert not inside & set(own)
            assert all(not s.start <= p < s.stop for p in own for s in spans)
            assert true.target not in own
    for draw in drawn(true, false, "anchors", 6, 0):
        units = [next(i for i, (a, b) in enumerate(true.units) if a <= p < b) for p, _ in draw]
        assert units == list(range(len(spans)))


def test_open_answers(model):
    data = icl.build_prompt_pairs("antonyms", model, shots=2, n=3)
    found = icl.transplant(model, *data, layers=[0, 2], draws=1)
    assert found.log_probs.shape[:4] == (3, 2, 2, 2)
    assert bool((found.taught == -1).all())


# --- shown, saved, refused ---


@pytest.mark.slow
def test_shown_and_saved(model, pair, handed, tmp_path):
    for show in handed.shows:
        assert handed.plot(show).data
    WORDS.starts(handed.figures()[0].answer, "shown_saved")
    found = icl.transplant(model, *pair, layers=[1], draws=1, single=True)
    found.save(tmp_path / "own")
    again = type(found).load(tmp_path / "own")
    assert again.summary() == found.summary()
    assert set(found.to_pandas()["at"]) == {"anchors", "target"}
    difference = again - found
    assert float(difference.values.nan_to_num().abs().max()) == 0.0


def test_one_place_by_name(model, pair):
    found = icl.transplant(model, *pair, at="target", layers=[2, 0], draws=1)
    assert found.at == ("target",)
    assert found.flips.shape == (5, 2)
    assert found.layers == (2, 0)
    assert found.beside_random("anchors", 0) is None


def test_refusals(model, pair):
    true, false = pair
    for options, says in (
        ({"at": ()}, "none chosen"),
        ({"at": ("target", "target")}, "each place once"),
        ({"layers": [3]}, "layer 3"),
        ({"layers": []}, "at least one"),
        ({"layers": [1, 1]}, "without duplicates"),
    ):
        with pytest.raises(RunError, match=says):
            icl.transplant(model, true, false, **options)
    with WORDS.raises(PromptError, "refusals"):
        icl.transplant(model, true, true)
    with pytest.raises(PromptError, match="pairs"):
        icl.transplant(model, true, false[:4])
    with WORDS.raises(PromptError, "refusals_2"):
        icl.transplant(model, *pairs(TASK, model, shots=0, n=3))
    with WORDS.raises(PromptError, "refusals"):
        icl.transplant(model, *[icl.texts(["One two three. Four five six. Seven."], model)] * 2)
    bare = [PromptBatch(tuple(_bare(own) for own in side), {}) for side in pair]
    assert icl.transplant(model, *bare, layers=[1], draws=1).at == ("anchors", "target")
    with WORDS.raises(PromptError, "refusals_3", "'query_text'"):
        icl.transplant(model, *bare, at="query")


def test_templates_of_other_lengths_are_refused(model, pair):
    true, false = pair
    longer = [_with_one_more(own) for own in false]
    other = PromptBatch(tuple(longer), false.source)
    with WORDS.raises(PromptError, "templates_other_lengths_refused", "'format'"):
        icl.transplant(model, true, other, at="template")
    assert icl.transplant(model, true, other, layers=[1], draws=1).log_probs.isfinite().all()
    fewer = PromptBatch(tuple(_without_first_word(own) for own in false), false.source)
    with WORDS.raises(PromptError, "templates_other_lengths_refused_2"):
        icl.transplant(model, true, fewer)


def _bare(prompt):
    return type(prompt).from_positions(
        prompt.tokens,
        label_positions=prompt.label_positions,
        label_classes=prompt.label_classes,
        label_tokens=prompt.label_tokens,
        answer=prompt.answer,
        false_answer=prompt.false_answer,
    )


def _with_one_more(prompt):
    """One more token of the format before everything."""
    spans = [Span("format", None, 0, 1)]
    spans += [Span(own.role, own.demo, own.start + 1, own.stop + 1) for own in prompt.spans]
    return replace(prompt, tokens=(5, *prompt.tokens), spans=tuple(spans), pieces=())


def _without_first_word(prompt):
    """Its first label word is text."""
    place = next(i for i, own in enumerate(prompt.spans) if own.role == "label_word")
    spans = list(prompt.spans)
    spans[place] = replace(spans[place], role="demo_text")
    return replace(prompt, spans=tuple(spans), label_classes=prompt.label_classes[1:])


def test_a_verdict_asks_for_layers_near_and_a_second_draw(handed):
    def of(layers):
        places = [handed.layers.index(layer) for layer in layers]
        cut = {name: getattr(handed, name)[:, :, :, places] for name in ("log_probs", "random")}
        return replace(handed, layers=tuple(layers), single=None, **cut)

    assert (handed.early, handed.late) == (2, 5)
    ends = of([0, 1])
    assert (ends.early, ends.late) == (None, None)
    assert ends.beside_random("anchors", ends.early) is None
    assert "input of block 0" in ends.summary()
    WORDS.starts(ends.figures()[0].answer, "verdict_asks_layers_near", "Cannot be judged")
    once = replace(handed, random=handed.random[..., :1, :])
    assert once.random.shape[4] == 1
    assert once.beside_random("anchors", once.early) is None
    for layer in handed.layers:
        found = handed.beside_random("query", layer)
        assert -1 <= found.low <= found.high <= 1
