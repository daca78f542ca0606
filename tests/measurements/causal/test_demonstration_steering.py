"""Steering by demonstrations: plain addition in Hugging Face, planted circuits, held-out halves, side effects."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, ResultError
from icl_mech.measurements import DemonstrationSteering
from icl_mech.measurements.causal.held_out_contexts import in_contexts
from icl_mech.measurements.causal.recovered_gain import DemonstrationSteeringResult
from icl_mech.models import adapt
from icl_mech.planted import null_model
from icl_mech.prompts.passages import NEUTRAL, passages
from icl_mech.prompts.rewriting import shuffled, zero_shot
from tests.engine.test_paths import TASK
from tests.explorer.cases import OPEN
from tests.measurements.causal.test_transplant import blocks
from tests.said import Words
from tests.tiny import N_LAYERS, tiny_hf, tiny_model

WORDS = Words(__file__)

STRENGTHS = (0.5, 2.0)
DRAWS = 2
TEXTS = ["the movie was good and the film was bad", "a story of hope and courage"]


# --- against plain Hugging Face ---


def plain_run(hf, tokens, layer=None, added=None, row=None):
    """Logits at every position and the output of every block, with a vector added to one of them."""
    kept = {}

    def hook(number, module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        if number == layer:
            hidden = hidden.clone()
            hidden[0, slice(None) if row is None else row] += added
        kept[number] = hidden[0]
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    handles = [
        block.register_forward_hook(partial(hook, number))
        for number, block in enumerate(blocks(hf))
    ]
    try:
        with torch.no_grad():
            return hf(torch.tensor([tokens])).logits[0], kept
    finally:
        for handle in handles:
            handle.remove()


class Reference:
    """The measurement as a loop over prompts."""

    def __init__(self, hf, prompts, model, quarters, test):
        tokenizer = adapt(model).tokenizer
        self.hf, self.full = hf, prompts
        self.bare = zero_shot(prompts, tokenizer).prompts
        self.mixed = shuffled(prompts, tokenizer, 0).prompts
        self.quarters, self.test = quarters, test

    def outputs(self, batch, rows):
        """Mean output of every block at the target, and mean label logits."""
        states, logits = [], []
        for n in rows:
            read, kept = plain_run(self.hf, batch[n].tokens)
            states.append(torch.stack([kept[layer][batch[n].target] for layer in range(N_LAYERS)]))
            logits.append(read[batch[n].target][list(batch[n].label_tokens)])
        return torch.stack(states).double().mean(0), torch.stack(logits).double().mean(0)

    def effect(self, rows):
        """The vector, that of shuffled labels, and the offset of label logits."""
        (full, logits), (bare, alone), (mixed, _) = (
            self.outputs(batch, rows) for batch in (self.full, self.bare, self.mixed)
        )
        return full - bare, mixed - bare, logits - alone

    def score(self, batch, n, offset=0.0, **change):
        """Log-probability of the right answer among the label words."""
        prompt = batch[n]
        if change:
            change["row"] = prompt.target
        logits, _ = plain_run(self.hf, prompt.tokens, **change)
        labels = logits[prompt.target][list(prompt.label_tokens)].double() + offset
        return labels.log_softmax(-1)[prompt.answer]

    def changes(self, rows, vectors):
        """Change of the bare queries' scores with these vectors, by block and strength."""
        return torch.tensor(
            [
                [
                    [
                        self.score(self.bare, n, layer=layer, added=(s * vectors[layer]).float())
                        - self.score(self.bare, n)
                        for s in STRENGTHS
                    ]
                    for layer in range(N_LAYERS)
                ]
                for n in rows
            ]
        )


def directions(vector, mixed):
    noise = torch.randn(DRAWS, 1, vector.shape[1], generator=torch.Generator().manual_seed(0))
    size = vector.norm(dim=-1, keepdim=True)
    return [vector, *(size * normalize(v, dim=-1) for v in (mixed, *noise.double()))]


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3"])
@pytest.mark.parametrize("demonstrations", ["shared", "per_prompt"])
def test_a_loop_in_hugging_face_gives_the_same_numbers(family, demonstrations):
    model, hf = tiny_model(family), tiny_hf(family)
    prompts = icl.build_prompts(TASK, model, shots=1, n=6, demonstrations=demonstrations)
    measurement = DemonstrationSteering(strengths=STRENGTHS, draws=DRAWS, texts=TEXTS)
    result = measurement(model, prompts)
    split = in_contexts(adapt(model), prompts, 0)
    loop = Reference(hf, prompts, model, split.quarters, split.test)
    first, second = split.quarters
    of_quarters = [loop.effect(rows) for rows in split.quarters]
    vector, mixed, offset = loop.effect(first + second)
    close = partial(assert_close, atol=1e-5 * max(1.0, float(offset.abs().max())), rtol=1e-4)
    close(result.vectors.double(), vector)

    tried = []
    for place in range(2 + DRAWS):
        parts = [
            loop.changes(rows, directions(*effect[:2])[place])
            for rows, effect in zip(split.quarters, of_quarters[::-1], strict=True)
        ]
        tried.append(torch.cat(parts))
    close(result.searched[first + second], tried[0])
    chosen = [divmod(int(gains.mean(0).argmax()), len(STRENGTHS)) for gains in tried]
    assert (result.layer, result.strength) == (chosen[0][0], STRENGTHS[chosen[0][1]])

    expected = []
    for n in split.test:
        steered = [
            loop.score(
                loop.bare,
                n,
                layer=layer,
                added=(STRENGTHS[s] * (place == 0 or gains.mean(0).max() > 0) * v[layer]).float(),
            )
            for place, (v, (layer, s), gains) in enumerate(
                zip(directions(vector, mixed), chosen, tried, strict=True)
            )
        ]
        plain = [loop.score(loop.full, n), loop.score(loop.bare, n), *steered[:2]]
        plain += [loop.score(loop.bare, n, offset), torch.stack(steered[2:]).mean()]
        expected.append(torch.stack(plain))
    assert result.contexts == (
        *("demonstrations", "bare", "vector", "shuffled"),
        *("offset", "random"),
    )
    close(result.log_prob[split.test], torch.stack(expected))

    pushes = [directions(vector, mixed)[place] for place in (0, 2, 3)]
    for number, text in enumerate(passages(adapt(model).tokenizer, TEXTS)):
        ids = torch.tensor(text.tokens[1:])
        losses = [cross_entropy(plain_run(hf, text.tokens)[0][:-1], ids)]
        for push in pushes:
            added = (result.strength * push[result.layer]).float()
            logits, _ = plain_run(hf, text.tokens, layer=result.layer, added=added)
            losses.append(cross_entropy(logits[:-1], ids))
        close(
            result.text_loss[number],
            torch.stack([losses[0], losses[1], torch.stack(losses[2:]).mean()]).double(),
        )


# --- what follows from the definitions ---


@pytest.fixture(scope="module")
def heads():
    model = icl.planted_model(circuit="heads")
    task = icl.planted_task()
    prompts = icl.build_prompts(task, model, shots=1, n=24, demonstrations="per_prompt")
    elsewhere = icl.build_prompts(task, model, shots=1, n=8, seed=3)
    measurement = DemonstrationSteering(
        strengths=(0.05, 0.1), tasks=[elsewhere], texts=["fi bado ge : red .", "ha ge fi badu :"]
    )
    return model, prompts, measurement, measurement(model, prompts)


def test_halves_share_no_prompt(heads):
    *_, result = heads
    tested, searched = (
        values.flatten(1).isfinite().all(1) for values in (result.log_prob, result.searched)
    )
    assert bool((tested ^ searched).all())
    assert result.held_out == tested.nonzero()[:, 0].tolist()
    assert result.count == 12


def test_held_out_prompts_change_neither_vector_nor_choice(heads):
    model, prompts, measurement, result = heads
    held_out = result.held_out
    answers = [prompts[n].answer for n in held_out]
    replaced = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=96, seed=7, demonstrations="per_prompt"
    )
    queries = {tuple(prompt.tokens[-6:]) for prompt in prompts}
    fresh = [p for p in replaced if tuple(p.tokens[-6:]) not in queries]
    rows = list(prompts)
    for n, answer in zip(held_out, answers, strict=True):
        place = next(i for i, p in enumerate(fresh) if p.answer == answer)
        rows[n] = fresh.pop(place)
    again = measurement(model, icl.PromptBatch(tuple(rows), prompts.source))
    assert_close(again.vectors, result.vectors, atol=1e-6, rtol=1e-5)
    assert (again.layer, again.strength) == (result.layer, result.strength)


def test_fractions_at_both_ends(heads):
    *_, result = heads
    assert tuple(result.share("demonstrations")) == (1.0, 1.0, 1.0)
    assert tuple(result.share("bare")) == (0.0, 0.0, 0.0)


def test_the_vector_steers_as_any_vector_does(heads):
    model, prompts, _, result = heads
    bare = zero_shot(prompts, adapt(model).tokenizer).prompts[result.held_out]
    steered = icl.steer(model, bare, result.vectors, scale=result.strength, layers=[result.layer])
    right = result.right[result.held_out, result.contexts.index("vector")]
    assert torch.equal(steered.correct[:, 0].double(), right)


@pytest.mark.parametrize("how", [{"score": "sum"}, {"open": True}])
def test_contexts_as_text_are_those_of_the_gain(how):
    model = tiny_model("gpt2")
    if how.pop("open", False):
        prompts = icl.build_prompts(OPEN, model, total=3, n=4)
    else:
        prompts = icl.build_prompts(TASK, model, shots=1, n=6, **how)
    result = icl.demonstration_steering(model, prompts, strengths=(1.0,), draws=2, texts=[])
    gain = icl.gain(model, prompts)
    held_out = result.held_out
    assert_close(result.log_prob[held_out, :2], gain.log_prob[held_out, :2], atol=1e-6, rtol=1e-5)
    assert ("offset" in result.contexts) == prompts.has_classes
    assert result.text_loss is None


def test_numbers_by_hand():
    nan = float("nan")
    log_prob = torch.tensor([[nan] * 4, [-1, -3, -2, -3.0], [-1, -5, -4, -5.0]] * 6).double()
    result = DemonstrationSteeringResult(
        log_prob=log_prob,
        right=log_prob.exp(),
        random=log_prob[:, [3, 3]],
        searched=torch.zeros(18, 1, 1).where(log_prob[:, :1, None].isnan(), nan),
        contexts=("demonstrations", "bare", "vector", "random"),
        vectors=torch.zeros(1, 2),
        layers=(0,),
        strengths=(1.0,),
        layer=0,
        strength=1.0,
        answers=torch.zeros(18, dtype=torch.long),
        task_right=torch.tensor([[[1.0, 0, 1]], [[1, 1, 1]], [[nan] * 3]]).double(),
        tasks=("another",),
        text_loss=torch.tensor([[2.0, 2.5, 3], [4, 4.5, 6]]).double(),
    )
    assert result.count == 12
    assert result.gain.value == pytest.approx(3.0)
    assert result.recovered.value == pytest.approx(1.0)
    assert result.share().value == pytest.approx(1 / 3)
    assert result.beyond("random").value == pytest.approx(1.0)
    assert result.beyond("offset") is None
    assert result.status == "supported"
    assert result.status_of("labels") == "cannot be judged"
    # A constant offset of the label logits that does as much leaves nothing for the vector to claim.
    same = torch.cat([log_prob, log_prob[:, 2:3]], 1)
    by_offset = replace(
        result, log_prob=same, right=same.exp(), contexts=(*result.contexts, "offset")
    )
    assert by_offset.beyond("offset").value == 0.0
    assert by_offset.status == "not shown"
    assert result.task_accuracy("another", "plain").value == 1.0
    assert result.task_accuracy("another").value == -0.5
    assert result.added_loss().value == pytest.approx(0.5)
    assert result.added_loss("random").value == pytest.approx(1.5)


# --- planted ---


def test_a_planted_task_vector_is_recovered(heads):
    *_, result = heads
    assert result.layer in (1, 2)
    assert result.status == "supported"
    assert result.status_of("labels") == "supported"
    assert result.share().low > 0.8


@pytest.mark.parametrize("circuit", ["anchors", "copier", "early"])
def test_answers_that_depend_on_the_query_are_not_recovered(circuit):
    model = icl.planted_model() if circuit == "anchors" else null_model(circuit)
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=32, demonstrations="per_prompt"
    )
    result = icl.demonstration_steering(model, prompts)
    assert result.status != "supported"
    assert abs(result.recovered.value) < 0.1 * result.gain.value


def test_a_switch_is_recovered_whatever_the_labels():
    model = null_model("resting")
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=24, demonstrations="per_prompt"
    )
    result = icl.demonstration_steering(model, prompts)
    assert result.status == "supported"
    assert result.status_of("labels") == "not shown"


# --- side effects ---


def test_texts_of_an_unknown_language_are_left_out():
    planted = adapt(icl.planted_model()).tokenizer
    assert passages(planted, None) is None
    assert passages(planted, []) is None
    assert len(passages(adapt(tiny_model("gpt2")).tokenizer)) == len(NEUTRAL)


def test_a_text_of_one_token():
    with WORDS.raises(PromptError, "short"):
        passages(adapt(tiny_model("gpt2")).tokenizer, ["good"])


# --- errors ---


def test_too_few_and_repeated_queries(heads):
    model, prompts, *_ = heads
    with WORDS.raises(PromptError, "few"):
        icl.demonstration_steering(model, prompts[:3])
    twice = icl.PromptBatch((*prompts[:8], prompts[0]), prompts.source)
    with WORDS.raises(PromptError, "repeated"):
        icl.demonstration_steering(model, twice)


def test_queries_of_one_class(heads):
    model, prompts, *_ = heads
    same = [number for number, prompt in enumerate(prompts) if prompt.answer == prompts[0].answer]
    with WORDS.raises(PromptError, "one_class"):
        icl.demonstration_steering(model, prompts[same])


def test_unknown_contexts(heads):
    *_, result = heads
    for ask in (result.beyond, result.share, result.change):
        with WORDS.raises(ResultError, "unknown_context"):
            ask("nope")
    lacking = replace(
        result, contexts=tuple(name + "_" * (name == "offset") for name in result.contexts)
    )
    assert lacking.beyond("offset") is None


def by_hand(log_prob, searched, **more):
    """A result with these log-probabilities: of the first half of the prompts searched, of the second half tested."""
    count, nan = len(log_prob), float("nan")
    values = torch.tensor(log_prob).double()
    half = torch.full_like(values, nan)
    fields = {
        "contexts": ("demonstrations", "bare", "vector", "random"), "vectors": torch.zeros(1, 2), "layers": (0,),
        "strengths": (1.0,), "layer": 0, "strength": 1.0, "answers": torch.arange(2 * count) % 2,
    }  # fmt: skip
    both = torch.cat([half, values])
    tried = torch.full((2 * count, 1, 1), nan).double()
    tried[:count, 0, 0] = torch.tensor(searched).double()
    return DemonstrationSteeringResult(
        log_prob=both,
        right=both.exp(),
        random=both[:, [3, 3]],
        searched=tried,
        **{**fields, **more},
    )


def test_no_fraction_of_a_loss():
    """Where demonstrations clearly harm, a vector that harms as well recovers nothing of a gain."""
    result = by_hand([[-5, -1 - 0.01 * n, -3.0, -1] for n in range(12)], [-0.1] * 12)
    assert result.gain.high < 0
    assert torch.tensor(result.share()).isnan().all()
    assert torch.tensor(result.share("demonstrations")).isnan().all()


def test_sentence_where_the_vector_helps_nowhere():
    lost = by_hand([[-1, -3 - 0.01 * n, -3.0, -3] for n in range(12)], [-0.1, -0.3] * 6)
    WORDS(lost.sentences.say("search_answer", result=lost), "helps_nowhere")
    tiny = by_hand([[-1, -3 - 0.01 * n, -3.0, -3] for n in range(12)], [-1e-7, -3e-7] * 6)
    WORDS(tiny.sentences.say("search_answer", result=tiny), "helps_nowhere_rounded")


# --- words, files, sweeps ---


def test_sentences_and_figures(heads):
    *_, result = heads
    assert result.shows == ("recovered", "search", "side_effects")
    for show in result.shows:
        WORDS(result.sentences.say(f"{show}_answer", result=result), show)
        result.plot(show)


def test_saved_and_loaded(heads, tmp_path):
    model, prompts, measurement, result = heads
    icl.measure(model, prompts, measurement).save(tmp_path / "run")
    again = icl.load(tmp_path / "run")["demonstration_steering"]
    assert torch.equal(again.log_prob.nan_to_num(), result.log_prob.nan_to_num())
    assert (again.layer, again.strength, again.tasks) == (
        *(result.layer, result.strength),
        result.tasks,
    )
    assert again.status == result.status


def test_a_cell_of_a_sweep(tmp_path):
    model = icl.planted_model(circuit="heads")
    sweep = icl.sweep(
        [model],
        [icl.planted_task()],
        measurements=[DemonstrationSteering(strengths=(0.1,), layers=[1, 2], draws=2)],
        shots=[1],
        seeds=[0, 1],
        n=16,
        out=tmp_path / "sweep",
        progress=False,
    )
    recovered = sweep.average(lambda run: run["demonstration_steering"].share().value)
    (cell,) = recovered.cells
    assert 0.8 < float(cell.value) < 1
    (cell,) = sweep.average("demonstration_steering.accuracy", context="vector").cells
    assert float(cell.value) == 1
