"""Function vector by demonstration: plain Hugging Face, planted truth, identities, and who is refused."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.measurements.by_demonstration.function_vector_by_demonstration import (
    CONDITIONS,
    FunctionVectorByDemonstrationResult,
)
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.prompts.rewriting import zero_shot
from tests.engine.test_paths import TASK
from tests.fuzz.reference import Edit, Heads, Plain, Text
from tests.tiny import N_HEADS, N_LAYERS, tiny_hf, tiny_model

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
