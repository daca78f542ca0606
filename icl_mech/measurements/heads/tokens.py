"""Where chosen heads look from the target, token by token, with the label words marked.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5 (the figure of one head over one
prompt).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Heads
from icl_mech.engine import Kept, Reading
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions.base import check_layers
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.definitions import ATTENDING
from icl_mech.measurements.heads.label_attention import matched_classes
from icl_mech.measurements.heads.texts import looking
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result
from icl_mech.results.wording import percent
from icl_mech.segments import Segment
from icl_mech.shapes import TokenStrips

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View

MARKS = {
    "matching": "label word taught for the last text",
    "other": "other label word",
    "label": "label word",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadAttention(Result):
    """Attention from the target to every token up to it, of some heads.

    Attributes:
        heads: (layer, head) of each row.
        values: Attention, per prompt (prompts differ in length); a row sums to 1.
        tokens: Text of the tokens, per prompt.
        marks: Per token: `matching` or `other` label word of a demonstration, by whether it
            shows the class the row would match (`label` where there is no such class), or "".
    """

    title: ClassVar[str] = "Where the heads look"
    definitions: ClassVar[tuple[Definition, ...]] = (ATTENDING,)

    heads: tuple[tuple[int, int], ...]
    values: tuple[Float[Tensor, "chosen _"], ...]
    tokens: tuple[tuple[str, ...], ...]
    marks: tuple[tuple[str, ...], ...]

    def quantities(self) -> dict[str, Quantity]:
        """Attention to all marked tokens of a prompt together."""
        marked = [torch.tensor([bool(mark) for mark in marks]) for marks in self.marks]
        summed = [row[:, own].sum(-1) for row, own in zip(self.values, marked, strict=True)]
        unit = "share of attention on label words"
        return {"to_label_words": Quantity(("head",), torch.stack(summed), unit=unit)}

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Heads as `layer.head`."""
        return {"head": tuple(f"{layer}.{head}" for layer, head in self.heads)}

    def drawing(self, prompt: int = 0, head: int = 0) -> TokenStrips:
        """The prompt as text, coloured by attention, with a slider over heads.

        Args:
            prompt: Which prompt.
            head: Index in `heads` of the head shown first.

        Raises:
            ResultError: no such prompt or head.
        """
        for name, value, count in (
            ("prompt", prompt, len(self.values)),
            ("head", head, len(self.heads)),
        ):
            if not 0 <= value < count:
                raise ResultError(f"{name}={value}; there are {count}, counted from 0.")
        return TokenStrips(
            title="Attention from the last token",
            names=tuple(f"layer {layer}, head {index}" for layer, index in self.heads),
            values=self.values[prompt],
            tokens=self.tokens[prompt],
            marks=tuple(MARKS.get(mark, "") for mark in self.marks[prompt]),
            quantity="attention",
            note="label words of the demonstrations are framed",
            first=head,
        )

    def view(self, prompt: int = 0, head: int = 0) -> "View":
        """The prompt as text up to the target, coloured by a head's attention from the target.

        Args:
            prompt: Which prompt.
            head: Index in `heads` of the head.

        Raises:
            ResultError: no such prompt or head.
        """
        from icl_mech.plots.prompt_view import Text, prompt_view

        strips = self.drawing(prompt, head)
        roles = ["label_word" if mark else "unknown" for mark in strips.marks]
        text = Text(tuple(strips.tokens), (*roles[:-1], "target"), about=tuple(strips.marks))
        name = f"attention of {strips.names[head]} from the target"
        return prompt_view(text, strips.values[head].tolist(), name=name)

    def figures(self) -> list[Figure]:
        """Where the heads look, over prompts."""
        names = self.coordinates()["head"]
        shares = self.quantities()["to_label_words"].value().tolist()
        kinds = {mark for marks in self.marks for mark in marks}
        matched = []
        if {"matching", "other"} & kinds:
            for values, marks in zip(self.values, self.marks, strict=True):
                own = torch.tensor([mark == "matching" for mark in marks])
                matched.append(values[:, own].sum(-1).double())
        means = torch.stack(matched).mean(0).tolist() if matched else []
        found = dict(zip(names, means, strict=True)) if matched else {}
        return [looking(dict(zip(names, shares, strict=True)), found, len(self.values))]

    def summary(self) -> str:
        """Share of attention on label words, over prompts."""
        means = self.quantities()["to_label_words"].value()
        parts = [
            f"{name}: {percent(float(mean))}"
            for name, mean in zip(self.coordinates()["head"], means, strict=True)
        ]
        return "attention to label words (layer.head): " + ", ".join(parts)


@dataclass
class TargetAttentionReading(Reading[Tensor]):
    """The target's row of the pattern of some heads, `[prompt, chosen, position]`."""

    heads: Heads
    width: int
    target_only = True
    _layers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Layers that hold one of the heads."""
        self._layers = sorted({layer for layer, _ in self.heads})

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of these layers."""
        return [Site("pattern", layer) for layer in self._layers]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, head, position]`; positions are the prompt's own."""
        own = [head for layer, head in self.heads if layer == site.layer]
        row = segment.at_target(activation.transpose(1, 2))[:, own].float()
        # A last column, cut off again, takes what stands at padding or after every target.
        inside = segment.mask & (segment.src < self.width)
        columns = segment.src.where(inside, self.width)
        laid = row.new_zeros(*row.shape[:2], self.width + 1)
        return laid.scatter(2, columns[:, None].expand_as(row), row)[..., :-1]

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, chosen, position]`, heads as given."""
        by_site = kept.by_site()
        counted = dict.fromkeys(self._layers, 0)
        chosen = []
        for layer, _ in self.heads:
            chosen.append(by_site[Site("pattern", layer)][:, counted[layer]])
            counted[layer] += 1
        return torch.stack(chosen, dim=1)


@dataclass(frozen=True)
class AttentionOfHeads(Measurement[HeadAttention]):
    """Attention of chosen heads from the target to every token.

    Attributes:
        heads: (layer, head) pairs.
        first: Number of prompts shown; None: all.

    Raises:
        RunError: no heads, a head twice, or one the model does not have.
        PromptError: prompts this model cannot run.

    Source: Halawi et al. 2023, §5.
    """

    name: ClassVar[str] = "head_attention"
    side: ClassVar[Literal["true", "false"] | None] = "false"

    heads: Heads
    first: Count | None = None

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse heads the model does not have.

        Raises:
            RunError: no heads, a head twice, or one that is not there.
        """
        _check_heads(self.heads, model.info)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass over the prompts that are shown."""
        prompts = data[: self.first]
        reading = TargetAttentionReading(self.heads, int(prompts.targets.max()) + 1)
        return [Pass(prompts, [reading], title="attention")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> HeadAttention:
        """Rows cut to their prompts, with the text and mark of every token."""
        (attention,), prompts = read[0], data[: self.first]
        ends = (prompts.targets + 1).tolist()
        return HeadAttention(
            heads=tuple(self.heads),
            values=tuple(row[:, :end] for row, end in zip(attention, ends, strict=True)),
            tokens=tuple(
                (prompt.pieces or tuple(map(str, prompt.tokens)))[:end]
                for prompt, end in zip(prompts, ends, strict=True)
            ),
            marks=_marks(prompts),
        )


def _check_heads(heads: Heads, info: ModelInfo) -> None:
    if not heads or len(set(heads)) < len(heads):
        raise RunError(
            f"head_attention needs (layer, head) pairs, each once; got {list(heads)}. Take some "
            "with head_scores(...).top()."
        )
    check_layers([layer for layer, _ in heads], info, "head_attention")
    wrong = [head for _, head in heads if not 0 <= head < info.n_heads]
    if wrong:
        raise RunError(f"head_attention names head {wrong[0]}; heads are 0 to {info.n_heads - 1}.")


def _marks(prompts: PromptBatch) -> tuple[tuple[str, ...], ...]:
    """What each token up to the target is marked as."""
    classes = matched_classes(prompts)
    found = []
    for number, prompt in enumerate(prompts):
        marks = [""] * (prompt.target + 1)
        for span, label in zip(prompt.label_spans, prompt.label_classes, strict=True):
            mark = (
                "label" if classes is None else ("other", "matching")[label == int(classes[number])]
            )
            for position in range(span.start, min(span.stop, len(marks))):
                marks[position] = mark
        found.append(tuple(marks))
    return tuple(found)


head_attention = door(
    AttentionOfHeads,
    "head_attention",
    then=("heads",),
    prompts="The prompts; a figure shows one of them.",
)
