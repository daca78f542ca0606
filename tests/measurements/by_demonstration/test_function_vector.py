"""Function vector by demonstration: plain Hugging Face, planted truth, identities, and who is refused."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements import FunctionVectorByDemonstration
from icl_mech.measurements.by_demonstration.function_vector_by_demonstration import (
    CONDITIONS,
    FunctionVectorByDemonstrationResult,
)
from icl_mech.measurements.by_demonstration.parts import Outputs
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.models import Site, adapt
from icl_mech.planted.heads import FUNCTION_VECTOR_HEADS, LEARNING_HEAD
from icl_mech.prompts.rewriting import zero_shot
from tests.engine.cases import ragged
from tests.engine.test_paths import TASK
from tests.fuzz.reference import Edit, Heads, Plain, Text
from tests.measurements.by_demonstration.cases import READING_HEAD, routed_model
from tests.measurements.test_open_answers import made as open_task
from tests.said import Words
from tests.tiny import N_HEADS, N_LAYERS, tiny_hf, tiny_model

WORDS = Words(__file__)
HEADS = ((0, 1), (1, 2), (2, 3))
FEW = {"heads": HEADS, "draws": 2}


# --- against plain Hugging Face ---


@dataclass
class CutUnits(Edit):
    """No demonstration sees another."""

    units: list[range]

    def scores(self, layer, scores, text):
        scores = scores.clone()
        for number, unit in enumerate(self.units):
            for before in self.units[:number]:
                scores[:, :, unit.start : unit.stop, before.start : before.stop] = -torch.inf
        return scores


@dataclass
class Row(Edit):
    """The target's row of one head."""

    layer: int
    head: int
    row: torch.Tensor

    def pattern(self, layer, pattern, text):
        if layer != self.layer:
            return pattern
        pattern = pattern.clone()
        pattern[0, self.head, text.target] = self.row
        return pattern


def text_of(prompt):
    words = [[token] for token in prompt.label_tokens]
    places = list(prompt.label_positions)
    return Text(
        list(prompt.tokens), prompt.target, places, list(prompt.label_classes), words, prompt.answer
    )


def units_of(prompt):
    """Tokens of each demonstration, without the first of the prompt."""
    units = []
    for demo in range(len(prompt.label_positions)):
        spans = [span for span in prompt.spans if span.demo == demo]
        units.append(range(max(1, spans[0].start), spans[-1].stop))
    return units


def above(logits, answer):
    others = [value for c, value in enumerate(logits) if c != answer]
    return float(logits[answer] - sum(others) / len(others))


class Loop:
    """The same quantities of one prompt, by one pass for each number."""

    def __init__(self, plain, prompt, bare):
        self.plain, self.prompt, self.bare = plain, prompt, bare
        self.text, self.units = text_of(prompt), units_of(prompt)
        self.cut = CutUnits(self.units)
        self.patterns = {
            name: self.plain.run(self.text, edits).patterns
            for name, edits in (("full", []), ("cut", [self.cut]))
        }

    def output(self, head, run, row):
        """A head's output at the target in a run with this row of attention."""
        read = {}
        keep = self.plain.attention_out(head[0]).register_forward_pre_hook(
            lambda module, args: self.plain._keep(read, head[0], module, args)
        )
        edits = [self.cut] if run == "cut" else []
        try:
            self.plain.run(self.text, [*edits, Row(*head, row)])
        finally:
            keep.remove()
        return read[head[0]][self.text.target, head[1]]

    def row(self, head, run):
        return self.patterns[run][head[0]][0, head[1], self.text.target]

    def part(self, head, columns):
        row = torch.zeros(len(self.text.tokens), dtype=torch.float64)
        row[list(columns)] = self.row(head, "full")[list(columns)]
        return self.output(head, "full", row)

    def parts(self, head):
        inside = [column for unit in self.units for column in unit]
        rest = [column for column in range(len(self.text.tokens)) if column not in inside]
        return torch.stack([self.part(head, columns) for columns in (*self.units, rest)])

    def difference(self, heads=(), outputs=()):
        edits = [Heads(list(heads), "mean", "target", torch.stack(list(outputs)))] if heads else []
        return above(self.plain.label_logits(self.text, edits), self.prompt.answer)

    def lost(self, heads):
        mixed = {
            "routing": [self.output(head, "full", self.row(head, "cut")) for head in heads],
            "values": [self.output(head, "cut", self.row(head, "full")) for head in heads],
            "both": [self.output(head, "cut", self.row(head, "cut")) for head in heads],
            "demonstrations": [self.parts(head)[-1] for head in heads],
        }
        return [self.difference() - self.difference(heads, mixed[name]) for name in CONDITIONS]

    def removed(self, heads):
        parts = torch.stack([self.parts(head) for head in heads])
        return [
            self.difference() - self.difference(heads, parts.sum(1) - parts[:, demo])
            for demo in range(len(self.units))
        ]

    def written(self, heads):
        """Parts in the residual stream: the output projection of the parts alone, without its bias."""
        total = 0.0
        for layer, head in heads:
            module = self.plain.attention_out(layer)
            parts = self.parts((layer, head))
            laid = parts.new_zeros(len(parts), N_HEADS, parts.shape[-1])
            laid[:, head] = parts
            total = total + module(laid.flatten(1)) - module(torch.zeros_like(laid).flatten(1))
        return total.detach()

    def direct(self, written):
        """Through the final norm, as a difference of the norm at two points with its scale of the run."""
        norm = self.plain.modules[
            next(
                n
                for n in self.plain.modules
                if n.endswith(("ln_f", "final_layer_norm", "model.norm"))
            )
        ]
        entered = []
        handle = norm.register_forward_pre_hook(lambda module, args: entered.append(args[0]))
        self.plain.run(self.text)
        handle.remove()
        residual = entered[0][0, self.text.target].detach()
        has_bias = getattr(norm, "bias", None) is not None
        eps = norm.eps if has_bias else norm.variance_epsilon
        centred = written - written.mean(-1, keepdim=True) if has_bias else written
        spread = residual - residual.mean() if has_bias else residual
        normed = centred / (spread.square().mean() + eps).sqrt() * norm.weight
        logits = normed @ self.plain.model.get_output_embeddings().weight.T
        labels = logits[:, [word[0] for word in self.text.words]]
        return [above(row, self.prompt.answer) for row in labels.detach()]

    def with_added(self, layer, vector=None):
        """The query without demonstrations, with a vector added behind a block."""
        text = text_of(self.bare)

        def add(module, args, output):
            hidden = (output[0] if isinstance(output, tuple) else output).clone()
            hidden[0, text.target] += 0.0 if vector is None else vector
            return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

        handle = self.plain.blocks[layer].register_forward_hook(add)
        try:
            return above(self.plain.label_logits(text), self.prompt.answer)
        finally:
            handle.remove()


@pytest.fixture(scope="module", params=["gpt2", "llama", "neox"])
def against(request):
    model, plain = tiny_model(request.param), Plain(tiny_hf(request.param))
    prompts = icl.build_prompts(TASK, model, shots=2, n=4, demonstrations="per_prompt")
    result = icl.function_vector_by_demonstration(model, prompts, **FEW)
    bare = zero_shot(prompts, model.tokenizer).prompts
    with torch.no_grad():
        loops = [Loop(plain, prompt, alone) for prompt, alone in zip(prompts, bare, strict=True)]
        yield result, loops


def close(values, expected):
    expected = torch.tensor(expected).double()
    bound = 1e-5 * max(1.0, float(expected.abs().max()))
    assert_close(values.double(), expected, atol=bound, rtol=0)


def test_effects_are_those_of_plain_hugging_face(against):
    result, loops = against
    close(result.plain, [loop.difference() for loop in loops])
    close(result.lost, [loop.lost(HEADS) for loop in loops])
    close(result.removed, [loop.removed(HEADS) for loop in loops])
    for draw, heads in enumerate(random_heads(HEADS, (N_LAYERS, N_HEADS), 2)):
        close(result.random[..., draw], [loop.lost(heads) for loop in loops])
    attention = [
        [
            [
                sum(float(loop.row(head, run)[list(unit)].sum()) for head in HEADS) / len(HEADS)
                for unit in loop.units
            ]
            for run in ("full", "cut")
        ]
        for loop in loops
    ]
    close(result.attention, attention)


def test_vectors_are_those_of_plain_hugging_face(against):
    result, loops = against
    written = torch.stack([loop.written(HEADS) for loop in loops])
    close(result.vectors, written.mean(0).tolist())
    close(result.direct, [loop.direct(part) for loop, part in zip(loops, written, strict=True)])
    whole, summed = written.sum(1), written[:, :-1].sum(1)
    norms = whole.norm(dim=1)
    close(result.share, ((written * whole[:, None]).sum(-1) / norms[:, None] ** 2).tolist())
    close(result.cosine, ((summed * whole).sum(1) / norms / summed.norm(dim=1)).tolist())
    added, alone, bare = [], [], []
    for number, loop in enumerate(loops):
        others = written[[n for n in range(len(loops)) if n != number]].mean(0)
        bare.append(plain := loop.with_added(1))
        vectors = [others.sum(0), others[:-1].sum(0), others[-1]]
        added.append([loop.with_added(1, vector) - plain for vector in vectors])
        alone.append([loop.with_added(1, vector) - plain for vector in others[:-1]])
    close(result.bare, bare)
    close(result.added, added)
    close(result.alone, alone)


def test_parts_add_up_to_the_outputs_of_the_heads(against):
    """The whole vector is what the heads write: the mean over prompts of their outputs through `W_O`."""
    result, loops = against
    for loop in loops:
        for head in HEADS:
            whole = loop.output(head, "full", loop.row(head, "full"))
            assert_close(loop.parts(head).sum(0), whole)
    assert_close(result.share.sum(1), torch.ones(len(loops)).double(), atol=1e-6, rtol=0)


def test_result_survives_saving(against, tmp_path):
    result, _ = against
    again = icl.load(result.save(tmp_path / "r"))
    assert isinstance(again, FunctionVectorByDemonstrationResult)
    assert_close(again.lost, result.lost)
    assert again.heads == result.heads


# --- planted truth ---


def test_every_demonstration_that_fits_has_an_equal_part():
    """The heads attend to all label words alike, and write the same vector for each that fits."""
    model = icl.planted_model(circuit="heads")
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=48, demonstrations="per_prompt"
    )
    result = icl.function_vector_by_demonstration(model, prompts, heads=FUNCTION_VECTOR_HEADS)
    fourth = torch.full((48, 4), 0.25).double()
    assert_close(result.share[:, :-1], fourth, atol=1e-3, rtol=0)
    for run in range(2):
        assert_close(result.attention[:, run], fourth, atol=1e-4, rtol=0)
    assert float(result.cosine.min()) > 0.999
    whole = result.removed.mean()
    assert float((result.removed - whole).abs().max()) < 0.05 * whole
    assert result.interval("added", vector="whole").low > 10
    assert result.interval("summed").value == pytest.approx(
        result.interval("added", vector="demonstrations").value, rel=0.05
    )
    assert result.status == "not shown"
    # MLP 3 carries the task out: nothing is written into the answer itself.
    assert float(result.direct.abs().max()) < 1e-3


def test_a_false_demonstration_has_no_part():
    model = icl.planted_model(circuit="heads")
    task = icl.planted_task()
    shown = [next(x for x in task.train if x.label == c) for c in range(4)]
    false = [*shown[:2], icl.Example(shown[2].text, 0), shown[3]]
    prompts = icl.build_prompts(task, model, demonstrations=false, n=12)
    result = icl.function_vector_by_demonstration(model, prompts, heads=FUNCTION_VECTOR_HEADS)
    expected = torch.tensor([1 / 3, 1 / 3, 0.0, 1 / 3, 0.0]).double().expand(12, 5)
    assert_close(result.share, expected, atol=1e-3, rtol=0)
    assert float(result.removed[:, 2].abs().max()) < 0.01
    assert float(result.removed[:, [0, 1, 3]].min()) > 1
    # Attention does not tell them apart: what is read does.
    assert_close(result.attention[:, 0, 2], torch.full((12,), 0.25).double(), atol=1e-3, rtol=0)


def test_the_last_demonstration_holds_the_lesson_of_all():
    model = icl.planted_model(circuit="lessons")
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=24, demonstrations="per_prompt"
    )
    result = icl.function_vector_by_demonstration(model, prompts, heads=[LEARNING_HEAD])
    expected = torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]).double().expand(24, 5)
    assert_close(result.share, expected, atol=0.01, rtol=0)
    assert result.largest.back == 1
    assert result.status == "opposite"
    assert result.carries("values") == "supported"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_attention_that_depends_on_other_demonstrations_is_routing(seed):
    model = routed_model(seed)
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=48, seed=seed, demonstrations="per_prompt"
    )
    result = icl.function_vector_by_demonstration(model, prompts, seed=seed)
    assert READING_HEAD in result.heads
    assert result.status == "supported"
    values, both = (result.interval("lost", condition=name) for name in ("values", "both"))
    assert abs(values.value) < 0.05
    assert both.value == pytest.approx(result.interval("lost", condition="routing").value, abs=0.05)
    assert result.same_class().low > 5
    assert len(set(result.tested.tolist())) == 24


# --- by hand ---


def made(lost, random, **more):
    """A result with these losses; classes alternate."""
    count = len(lost)
    zeros = torch.zeros(count)
    fields = {
        "removed": torch.tensor([[1.0, 3.0]] * count), "direct": torch.zeros(count, 3),
        "share": torch.zeros(count, 3), "cosine": zeros, "attention": torch.zeros(count, 2, 2),
        "plain": zeros, "bare": zeros, "added": torch.zeros(count, 3), "alone": torch.ones(count, 2),
        "vectors": torch.zeros(3, 4), "classes": torch.tensor([[0, 1]] * count),
        "answers": torch.arange(count) % 2, "tested": torch.arange(count), "heads": ((0, 0),), "layer": 1,
        "labels": ("a", "b"),
    }  # fmt: skip
    return FunctionVectorByDemonstrationResult(
        lost=torch.tensor(lost), random=torch.tensor(random), **{**fields, **more}
    )


def test_losses_weight_classes_equally():
    """Three prompts of one class lose 1, one of the other loses 5: 3, not 2."""
    result = made(
        [[1.0] * 4] * 3 + [[5.0] * 4], [[[0.0] * 2] * 4] * 4, answers=torch.tensor([0, 0, 0, 1])
    )
    assert result.interval("lost", condition="routing").value == pytest.approx(3.0)
    assert result.quantities()["removed"].value().tolist() == [1.0, 3.0]


def test_statuses_by_hand():
    """Routing needs a loss of its own, beyond random heads, and above that of values."""
    jitter = (torch.arange(12) % 3).double()[:, None] * 0.01

    def status(routing, values, random, draws=2):
        lost = (torch.tensor([[routing, values, 0.0, 0.0]]).double() + jitter).tolist()
        drawn = torch.tensor(random).double()[None, None].expand(12, 4, draws)
        return made(lost, drawn.tolist()).status

    assert status(2.0, 0.5, [0.0, 0.1]) == "supported"
    assert status(0.5, 2.0, [0.0, 0.1]) == "opposite"
    assert status(2.0, 2.0, [0.0, 0.1]) == "not shown"
    assert status(2.0, 0.5, [0.0, 2.5]) == "not shown"
    assert status(-2.0, -3.0, [0.0, 0.1]) == "not shown"
    assert status(2.0, 0.5, [0.0], draws=1) == "cannot be judged"


def test_facts_by_hand():
    result = made([[1.0] * 4] * 8, [[[0.0] * 2] * 4] * 8)
    # By class: 1 - 3 for class 0, 3 - 1 for class 1.
    assert result.same_class().value == pytest.approx(0.0)
    assert result.recency().value == pytest.approx(2.0)
    assert (result.largest.back, result.largest.effect.value) == (1, 3.0)
    assert result.interval("summed").value == pytest.approx(2.0)


# --- words, other doors, refusals ---


def test_sentences_and_figures(routed):
    for show in routed.shows:
        assert routed.plot(show=show).data
    questions = [figure.question for figure in routed.figures()]
    WORDS(questions, "questions")
    WORDS.starts(routed.figures()[0].answer, "answer", "Through attention:")
    several = [
        name for name, value in vars(routed).items() if getattr(value, "shape", ())[:1] == (24,)
    ]
    few = replace(routed, **{name: getattr(routed, name)[:2] for name in several})
    WORDS.starts(few.figures()[0].answer, "few", "Cannot be judged")


@pytest.fixture(scope="module")
def routed():
    model = routed_model()
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=48, demonstrations="per_prompt"
    )
    return icl.measure(model, prompts, FunctionVectorByDemonstration())[
        "function_vector_by_demonstration"
    ]


def test_a_sweep_holds_it(tmp_path):
    measurement = FunctionVectorByDemonstration(k=3, draws=2)
    model = icl.planted_model(circuit="heads")
    cells = icl.sweep(
        model,
        [icl.planted_task()],
        [measurement],
        seeds=2,
        n=16,
        out=tmp_path / "s",
        progress=False,
    )
    results = [analysis["function_vector_by_demonstration"] for _, analysis in cells]
    assert [result.prompts for result in results] == [8]


@pytest.mark.parametrize("family", ["gemma3"])
def test_models_that_normalise_the_sum_of_heads_are_refused(family):
    model = tiny_model(family)
    prompts = icl.build_prompts(TASK, model, shots=1, n=4)
    with WORDS.raises(RunError, "normalised"):
        icl.function_vector_by_demonstration(model, prompts, **FEW)


def test_prompts_of_bare_positions_are_refused():
    with WORDS.raises(PromptError, "bare_positions"):
        icl.function_vector_by_demonstration(tiny_model("gpt2"), ragged()[[0]], **FEW)


@pytest.mark.parametrize("options", [FEW, {"k": 3, "draws": 2}])
def test_queries_of_one_class_are_refused(options):
    """Any bias towards the one label would look like an effect."""
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=1, n=6, demonstrations="per_prompt")
    same = [number for number, prompt in enumerate(prompts) if prompt.answer == prompts[0].answer]
    measurement = FunctionVectorByDemonstration(**options)
    with WORDS.raises(PromptError, "one_class"):
        measurement(model, prompts[same])


def test_queries_that_are_all_alike_are_refused():
    """Vectors are means over prompts with other queries; it says so before anything is run."""
    model = adapt(tiny_model("gpt2"))
    prompts = icl.build_prompts(TASK, model, shots=1, n=2, demonstrations="per_prompt")
    alike = tuple(replace(prompts[0], answer=n) for n in (0, 1))
    measurement = FunctionVectorByDemonstration(**FEW)
    with WORDS.raises(PromptError, "same_query"):
        measurement.filled(model, prompts).check(model, icl.PromptBatch(alike, prompts.source))


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_parts_are_exact_relative_to_what_heads_write(size):
    """Two per cent too much is refused however small outputs are, and rounding is not."""
    model = adapt(tiny_model("gpt2"))
    generator = torch.Generator().manual_seed(0)
    parts = size * torch.randn(3, 1, 4, 5, generator=generator)
    read = {Site("z", 0): parts.sum(2)[:, None]}
    mixed = torch.zeros(3, 4, 1, 5)
    Outputs(((0, 0),), parts * (1 + 1e-6), mixed).check(read, model)
    with WORDS.raises(RunError, "inexact"):
        Outputs(((0, 0),), parts * 1.02, mixed).check(read, model)


def test_answers_with_choices():
    model = tiny_model("gpt2")
    relation = icl.build_prompts(open_task(), model, shots=3, n=4, demonstrations="per_prompt")
    result = icl.function_vector_by_demonstration(model, relation, **FEW)
    assert result.labels == ()
    assert_close(result.share.sum(1), torch.ones(len(result.share)).double(), atol=1e-5, rtol=0)
