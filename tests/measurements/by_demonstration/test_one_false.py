"""One false demonstration, by place: by hand, against plain Hugging Face, on planted networks, and what is refused."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import PromptBatch
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements import FlowByDemonstration, OneFalseDemonstration
from icl_mech.measurements.by_demonstration.one_false_demonstration import (
    OneFalseDemonstrationResult,
)
from icl_mech.measurements.demonstrations import query
from icl_mech.models import adapt
from icl_mech.planted import null_model
from icl_mech.planted.circuit import GAIN, Circuit
from icl_mech.planted.nulls import (
    ALARM_HEAD,
    COPYING_HEADS,
    N_LAYERS,
    SPACES,
    STRONG,
    _base,
    _known,
    _misfits,
)
from icl_mech.planted.words import planted_tokenizer
from tests.engine.cases import ragged
from tests.fuzz.reference import Plain, Text
from tests.measurements.saliency.cases import with_roles
from tests.measurements.test_whole_words import model as random_model
from tests.planted import INDUCTION_HEADS, planted_model, planted_task
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)
QUIET = {"progress": False}

COLOURS = icl.Task(
    "mood",
    icl.Template("Review: {text}\nSentiment: {label}"),
    ("Negative", "Positive", "World"),
    tuple(icl.Example(text, i % 3) for i, text in enumerate(
        ("bad plot", "a wonderful story", "rising prices", "boring", "hope", "the country"))),
    tuple(icl.Example(text, i % 3) for i, text in enumerate(
        ("two hours", "courage", "the first novel", "a waste", "good film", "many rivers"))),
)  # fmt: skip


def built(model, n=6, **options):
    how = {"shots": 1, "n": n, "seed": 0, "demonstrations": "per_prompt", **options}
    return icl.build_prompts(COLOURS, model, **how)


def made(right, *, answers=None, shown=None, layers=1, **more):
    """A result of two classes: P(right) by prompt, side and place at the last layer, 0.5 before."""
    probs = torch.tensor(right, dtype=torch.float64)
    count, sides, places = probs.shape
    answers = torch.zeros(count, dtype=torch.long) if answers is None else torch.tensor(answers)
    logits = torch.zeros(count, sides, places, layers + 1, 2, dtype=torch.float64)
    index = answers[:, None, None, None].expand(count, sides, places, 1)
    logits[..., -1, :].scatter_(-1, index, probs.logit()[..., None])
    heads = torch.zeros(count, sides, places, layers, 2)
    values = {
        "attention": heads,
        "matching": heads,
        "classes": torch.zeros(count, places, dtype=torch.long),
        "places": tuple(range(places)),
        "sides": ("true", "false", "exchanged")[:sides],
        "labels": ("a", "b"),
        "count_of_demonstrations": places,
        "shared": False,
        "provenance": {"prompts": {"count": count}},
    }
    return OneFalseDemonstrationResult(
        logits=logits.float(),
        displayed=torch.ones(count, places, dtype=torch.long)
        if shown is None
        else torch.tensor(shown),
        answers=answers,
        **{**values, **more},
    )


def test_by_hand(tmp_path):
    """Two prompts, two places: P(right) .9 with true demonstrations; false .5 and .1, .9 and .3; exchanged .8."""
    result = made([[[0.9, 0.9], [0.5, 0.1], [0.8, 0.8]], [[0.9, 0.9], [0.9, 0.3], [0.8, 0.8]]])
    assert_close(result.harms(), torch.tensor([[0.4, 0.8], [0.0, 0.6]]).double(), atol=1e-6, rtol=0)
    assert result.harm().value == pytest.approx(0.45, abs=1e-6)
    assert result.harm("exchanged").value == pytest.approx(0.35, abs=1e-6)
    assert result.sel("harm").values.tolist() == pytest.approx([0.2, 0.7], abs=1e-6)
    assert result.sel("accuracy").values[1].tolist() == [1.0, 0.0]  # .5 is a tie: the first class
    # From the first place (0) to the last (1): .4 and .6.
    assert result.recency.value == pytest.approx(0.5, abs=1e-6)
    # The margin is the log-odds, since there are two classes.
    margin = result.sel("margin").values[:, -1]
    odds = torch.tensor([[0.9] * 4, [0.5, 0.1, 0.9, 0.3], [0.8] * 4]).double().logit()
    assert_close(margin, odds.mean(1), atol=1e-5, rtol=0)
    again = OneFalseDemonstrationResult.load(result.save(tmp_path / "r"))
    assert again.harm() == result.harm()
    assert again.sides == result.sides
    with WORDS.raises(ResultError, "no_such_side"):
        made([[[0.9], [0.5]]], notes=("none",)).harms("exchanged")
    with WORDS.raises(ResultError, "unknown_side"):
        result.harm("nope")


def test_status_by_hand():
    """Harm of .4, of .005, and none, in 24 prompts."""
    for harm, status in ((0.4, "supported"), (0.005, "present, not used"), (0.0, "not shown"), (-0.3, "opposite")):  # fmt: skip
        generator = torch.Generator().manual_seed(0)
        noise = 0.001 * torch.randn(24, 3, generator=generator)
        probs = (torch.tensor([0.6, 0.6 - harm, 0.6]) + noise)[..., None].tolist()
        result = made(probs)
        assert result.status == result.beyond_status == status
        assert result.recency_status == "cannot be judged"  # one place
        if status == "not shown":
            assert abs(result.harm().value) < 0.001
    assert made([[[0.9], [0.1]]] * 24).beyond_status == "cannot be judged"
    assert made([[[0.9] * 2, [0.1] * 2]] * 24, shared=True).recency_status == "cannot be judged"


def test_exit_by_hand():
    """Right after block 1, and at the end only with true demonstrations, where 20 of 24 were right."""
    result = made([[[0.9], [0.1], [0.9]]] * 24, answers=[0, 1] * 12, layers=2)
    logits = result.logits.clone()
    for row, answer in enumerate(result.answers.tolist()):
        logits[row, :, :, 1, answer] = 2.0
    result = replace(result, logits=logits)
    assert result.exit.layer == 1
    assert (result.exit.gain.value, result.exit.accuracy.value, result.exit.prompts) == (1, 1, 12)
    assert result.exit.beyond.value == 1
    assert result.overthinking_status == "supported"
    # The embedding knows no context: what looks like an exit there is a constant answer.
    first = logits.clone()
    first[:, :, :, 0] = logits[:, :, :, 1]
    assert replace(result, logits=first).exit.layer == 0
    assert replace(result, logits=first).overthinking_status == "not shown"


def test_chance_of_unbalanced_queries():
    """Two thirds of the prompts are of the first class, and the early layer always answers it: no overthinking."""
    answers = [0, 0, 1] * 48
    result = made([[[0.9], [0.1], [0.9]]] * 144, answers=answers, layers=2)
    logits = result.logits.clone()
    logits[:, :, :, 0, 1] = logits[:, :, :, 1, 0] = 2.0
    result = replace(result, logits=logits)
    assert result.exit.layer == 1
    assert result.exit.accuracy.low > 0.5
    assert result.exit.chance == pytest.approx(2 / 3, abs=0.05)
    assert result.overthinking_status == "not shown"
    assert made([[[0.9], [0.1]]] * 24, answers=[0, 1] * 12).exit.chance == 0.5


def attending(count, size):
    """Attention of one head to false labels, `size` above both controls on average, with a spread of one."""
    spread = torch.linspace(-1, 1, count)
    spread = (spread - spread.mean()) / spread.std()
    attention = torch.zeros(count, 3, 1, 1, 2)
    attention[:, 1, 0, 0, 0] = size + spread
    return made([[[0.9], [0.1], [0.9]]] * count, attention=attention)


def test_misfit_heads_are_named_as_in_other_maps_of_heads():
    """A head is named at 2.5 % one-sided, and from six prompts on."""
    assert attending(24, 1.0).misfit_heads() == ((0, 0),)
    # Between the two limits: 1.71 standard errors at 5 %, 2.07 at 2.5 %.
    assert attending(24, 1.9 / 24**0.5).misfit_heads() == ()
    few = attending(5, 9.0)
    assert few.too_few
    assert few.misfit_heads() == ()
    (heads,) = (figure for figure in few.figures() if figure.show == "heads")
    WORDS(heads.answer, "few_heads")


def test_false_labels_are_balanced_and_nothing_else_changes():
    model, task = icl.planted_model(), icl.planted_task()
    how = {"shots": 1, "n": 72, "seed": 0, "demonstrations": "per_prompt"}
    prompts = icl.build_prompts(task, model, **how)
    measurement = OneFalseDemonstration()
    passes = measurement.passes(adapt(model), prompts)
    assert len(passes) == 1 + 2 * 4
    design = measurement._design(prompts)
    for place in range(4):
        pairs: Counter[tuple[int, ...]] = Counter()
        for row, prompt in enumerate(prompts):
            false, exchanged = (passes[1 + side + place].prompts[row] for side in (0, 4))
            shown, true = int(design.shown[row, place]), prompt.label_classes[place]
            assert shown != true
            pairs[prompt.answer, true, shown] += 1
            labels = [*prompt.label_classes]
            labels[place] = shown
            assert false.label_classes == exchanged.label_classes == tuple(labels)
            assert false.answer == prompt.answer
            lines = prompt.text.split("\n")
            old, new = (f": {task.labels[label]}." for label in (true, shown))
            lines[place] = lines[place].replace(old, new)
            assert false.text == "\n".join(lines)
            # The same but for one text, another query that fits the label.
            text = exchanged.text.split("\n")[place].split(":")[0]
            lines[place] = text + new
            assert exchanged.text == "\n".join(lines)
            assert text not in prompt.text
            assert icl.Example(text, shown) in task.test
        for answer in range(4):
            for true in range(4):
                counts = [pairs[answer, true, label] for label in range(4) if label != true]
                assert max(counts) - min(counts) <= 1


@lru_cache
def measured(family):
    model = tiny_model(family)
    prompts = built(model)
    return model, prompts, icl.one_false_demonstration(model, prompts, seed=3, **QUIET)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3"])
def test_equal_to_a_loop_in_plain_hugging_face(family):
    """Texts are put together from words here, tokenised whole, and run one by one."""
    model, prompts, result = measured(family)
    plain, tokenizer = Plain(tiny_hf(family)), model.tokenizer
    design = OneFalseDemonstration(seed=3)._design(prompts)
    words = [tokenizer(f"Sentiment: {label}", add_special_tokens=False).input_ids[-1:] for label in COLOURS.labels]  # fmt: skip
    examples = {example.text: example.label for example in COLOURS.train + COLOURS.test}
    for row, prompt in enumerate(prompts):
        shown = [prompt.text[s.start : s.stop] for s in prompt.parts if s.role == "demo_text"]
        (asked,) = [prompt.text[s.start : s.stop] for s in prompt.parts if s.role == "query_text"]
        for place in range(3):
            true = [(text, examples[text]) for text in shown]
            false, exchanged = list(true), list(true)
            label = int(design.shown[row, place])
            donor = prompts[int(design.donors[row, place])]
            (text,) = [donor.text[s.start : s.stop] for s in donor.parts if s.role == "query_text"]
            false[place], exchanged[place] = (shown[place], label), (text, examples[text])
            assert examples[text] == label
            for side, demos in enumerate((true, false, exchanged)):
                run = _run(plain, tokenizer, demos, asked, words, result.answers[row])
                lens, attention, matching = run(place, label)
                scale = max(1.0, float(lens.abs().max()))
                assert_close(
                    result.logits[row, side, place].double(), lens, atol=1e-5 * scale, rtol=0
                )
                for values, expected in ((result.attention, attention), (result.matching, matching)):  # fmt: skip
                    assert_close(values[row, side, place].double(), expected, atol=1e-5, rtol=0)
    assert float((result.logits[:, 0] - result.logits[:, 1]).abs().amax()) > 0.1


def _run(plain, tokenizer, demos, asked, words, answer):
    lines = [f"Review: {text}\nSentiment: {COLOURS.labels[label]}\n" for text, label in demos]
    tokens = tokenizer("".join(lines) + f"Review: {asked}\nSentiment:").input_ids
    ids = [word[0] for word in words]
    positions = [n for n, token in enumerate(tokens) if token in ids]
    assert len(positions) == len(demos)
    text = Text(
        tokens, len(tokens) - 1, positions, [label for _, label in demos], words, int(answer)
    )

    def values(place, label):
        logits = plain.lens(text)[:, ids]
        patterns = torch.stack([p[0, :, text.target] for p in plain.run(text).patterns])
        each = patterns[:, :, positions]
        same = torch.tensor([shown == label for _, shown in demos])
        to_same, to_others = each[..., same].sum(-1), each[..., ~same].sum(-1)
        return logits, each[..., place], to_same - to_others / (len(words) - 1)

    return values


def test_label_words_of_several_tokens():
    model = random_model("bpe")
    task = replace(COLOURS, labels=("Negative", "Positive movie", "World"), name="longer")
    prompts = icl.build_prompts(task, model, shots=1, n=6, seed=0, demonstrations="per_prompt")
    result = icl.one_false_demonstration(model, prompts, **QUIET)
    passes = OneFalseDemonstration().passes(adapt(model), prompts)
    lengths = {tuple(len(p) for p in own.prompts) for own in passes}
    assert len(lengths) > 1
    for place in range(3):
        expected = icl.predict(model, passes[1 + place].prompts, **QUIET).label_logits
        assert_close(result.logits[:, 1, place, -1], expected, atol=1e-5, rtol=0)


# --- planted truth ---


def on(model, seed=0, shots=2, n=24, task=None, **options):
    how = {"shots": shots, "n": n, "seed": seed, "demonstrations": "per_prompt"}
    prompts = icl.build_prompts(task or icl.planted_task(), model, **how)
    return icl.one_false_demonstration(model, prompts, **QUIET, **options)


def test_only_the_demonstrations_that_match_harm():
    """The copier: two of eight match; one false makes the answer a tie, and another demonstration nothing."""
    result = on(null_model("copier"))
    assert result.status == result.beyond_status == "supported"
    same = result.classes == result.answers[:, None]
    harms = result.harms()
    assert float(harms[same].mean()) == pytest.approx(0.5, abs=0.05)
    assert float(harms[~same].abs().max()) < 0.02
    assert result.same_class().low > 0.4
    # Nothing depends on place, and no layer was right before.
    assert result.recency_status == "not shown"
    assert result.overthinking_status == "not shown"


def test_where_a_single_demonstration_matches_its_loss_is_the_harm():
    """One a class: the exchanged prompt has no demonstration of the query's class either."""
    result = on(null_model("copier"), shots=1)
    assert result.status == "supported"
    assert abs(result.harm("exchanged").value) < 0.01
    assert result.beyond_status != "supported"


def recent(seed, rise):
    """It knows the class of the query; a late head turns to the label that does not fit and copies it.

    The head rests on line breaks otherwise; `rise`: by how much the score of a label word rises over the whole prompt.
    """
    reads = SPACES.reads
    query, key = torch.zeros(2, SPACES.features, SPACES.d_head)
    query[SPACES["is_colon"], :3] = torch.tensor([1.0, 1.0, 1.0])
    key[SPACES["misfit"], 0] = 16.0
    key[SPACES["is_break"], 1] = 12.0
    key[SPACES["place"], 2] = rise
    copying = query, key, reads(shown=1.0), reads(answer=2 * STRONG / GAIN)
    circuit = Circuit(
        SPACES, N_LAYERS, {**_base(), COPYING_HEADS[1]: copying}, [_misfits(), _known(STRONG / 4)]
    )
    return icl.load_model(circuit.model(seed), tokenizer=planted_tokenizer())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_recency_and_overthinking_are_seen_where_they_are_planted(seed):
    model = recent(seed, rise=0.0)
    result = on(model, seed)
    assert result.status == result.overthinking_status == "supported"
    # The answer is known after block 2 and copied over by block 4.
    assert 3 <= result.exit.layer <= 4
    assert COPYING_HEADS[1] in result.misfit_heads()
    assert result.recency_status == "not shown"
    # A head that turns to late misfits alone.
    late = on(recent(seed, rise=14.0), seed)
    assert late.recency_status == "supported"
    harms = late.sel("harm").values
    assert float(harms[0]) < 0.1 < 0.4 < float(harms[4:].min())


def test_drawings_and_words():
    result = on(recent(0, rise=14.0), n=12)
    places, layers, heads = (result.drawing(show=show) for show in result.on_page())
    assert_close(places.values[0], result.harms().mean(0))
    assert_close(places.values[1], result.harms("exchanged").mean(0))
    assert_close(places.values[2:], result.correct[..., -1].mean(0))
    assert_close(layers.values[:3], result.correct.mean((0, 2)))
    change = (result.attention[:, 1] - result.attention[:, 2]).mean((0, 1))
    assert_close(heads.values, change.T.double(), check_dtype=False)
    assert heads.values.shape == (4, N_LAYERS)
    layer, head = COPYING_HEADS[1]
    assert (head, layer) in heads.marked
    said = {
        "places": ("places_answer", "places_establishes"),
        "layers": ("layers_answer", "layers_establishes"),
        "heads": ("heads_answer", "heads_establishes"),
    }
    for figure in result.figures():
        answer, establishes = said[figure.show]
        WORDS(figure.answer, answer)
        WORDS(figure.establishes, establishes)
        assert figure.caption
        assert figure.limits
    WORDS(result.summary(), "summary")


def test_overthinking_by_induction_heads():
    """The network of known answers and two heads that copy the label of the matching demonstration."""
    result = on(planted_model(), shots=1, n=30, task=planted_task())
    assert result.status == "supported"
    assert result.overthinking_status == "supported"
    assert 1 < result.exit.layer <= INDUCTION_HEADS[0][0]


@pytest.mark.parametrize("kind", ["reads_query", "prior", "resting", "decorative"])
def test_no_harm_where_labels_carry_nothing(kind):
    result = on(null_model(kind), places=(0, 7))
    for status in (result.status, result.beyond_status, result.recency_status, result.overthinking_status):  # fmt: skip
        assert status in ("not shown", "present, not used", "cannot be judged")


def test_the_alarm_is_the_head_that_turns_to_the_misfit():
    result = on(null_model("alarm"), places=(0, 7))
    assert result.status == result.beyond_status == "supported"
    assert result.misfit_heads()[0] == ALARM_HEAD


# --- beside others, and refusals ---


def test_beside_the_flow():
    model = icl.planted_model()
    how = {"shots": 1, "n": 12, "seed": 0, "demonstrations": "per_prompt"}
    prompts = icl.build_prompts(icl.planted_task(), model, **how)
    both = icl.measure(model, prompts, OneFalseDemonstration(), FlowByDemonstration(), **QUIET)
    result, flow = both["one_false_demonstration"], both["flow_by_demonstration"]
    assert result.agreement(flow).low > 0
    other = icl.flow_by_demonstration(model, prompts[:6], **QUIET)
    with WORDS.raises(ResultError, "another_set"):
        result.agreement(other)
    few = icl.one_false_demonstration(model, prompts, places=[0, 1], **QUIET)
    with WORDS.raises(ResultError, "few_places"):
        few.agreement(flow)


def test_shared_demonstrations_and_classes_without_queries():
    model = tiny_model("gpt2")
    shared = icl.one_false_demonstration(model, built(model, demonstrations="shared"), **QUIET)
    assert shared.shared
    prompts = built(model)
    first = [[prompt.answer for prompt in prompts].index(label) for label in (0, 1)]
    alone = icl.one_false_demonstration(model, prompts[first], **QUIET)
    assert alone.sides == ("true", "false")
    WORDS(" ".join(alone.notes), "no_control")
    assert alone.misfit_heads() == ()
    assert not alone.is_drawn("heads")


def test_refusals():
    model = tiny_model("gpt2")
    prompts = built(model)
    with WORDS.raises(RunError, "places"):
        icl.one_false_demonstration(model, prompts, places=[3])
    with WORDS.raises(RunError, "places_2"):
        icl.one_false_demonstration(model, prompts, places=[0, 0])
    false = built(model, labels="permuted")
    with WORDS.raises(PromptError, "already_false"):
        icl.one_false_demonstration(model, false)
    with WORDS.raises(PromptError, "different_numbers"):
        icl.one_false_demonstration(model, with_roles())
    with WORDS.raises(PromptError, "no_texts"):
        icl.one_false_demonstration(model, ragged()[[0]])
    once = PromptBatch(tuple(p for p in prompts if p.answer == 0), prompts.source)
    same = icl.build_prompts(
        COLOURS, model, demonstrations=[COLOURS.train[0], COLOURS.train[3]], queries=COLOURS.test
    )
    with WORDS.raises(PromptError, "one_label"):
        icl.one_false_demonstration(model, same)
    with WORDS.raises(PromptError, "one_class"):
        icl.one_false_demonstration(model, once)
    other = next(p for p in built(model, seed=1) if query(p) == query(prompts[0]))
    assert other.tokens != prompts[0].tokens
    with WORDS.raises(PromptError, "repeated_query"):
        icl.one_false_demonstration(model, PromptBatch((*prompts, other), prompts.source))
    two = PromptBatch(tuple(p for p in prompts if p.answer != 1), prompts.source)
    lacking = icl.one_false_demonstration(model, two, **QUIET)
    WORDS(" ".join(lacking.notes), "no_donors")


def test_a_cell_of_a_sweep(tmp_path):
    from tests.sweeps.loaders import TASK, tiny

    run = icl.sweep(
        tiny, TASK, [OneFalseDemonstration(places=[0])], shots=1, n=4, seeds=[0, 1],
        out=tmp_path / "sweep", **QUIET,
    )  # fmt: skip
    mean = run.average("one_false_demonstration.harm", over="seed")
    assert len(mean.cells) == 1
    assert mean.cells[0].value.shape == (1,)
    assert mean.cells[0].prompts == 4
    assert icl.load(tmp_path / "sweep").summary() == run.summary()


def test_the_measurement_is_the_function():
    model = tiny_model("gpt2")
    prompts = built(model)
    run = icl.measure(model, prompts, OneFalseDemonstration(), **QUIET)["one_false_demonstration"]
    assert_close(run.logits, icl.one_false_demonstration(model, prompts, **QUIET).logits)
