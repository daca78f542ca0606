"""Attention of heads from the target or another token, token by token, with the label words marked.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5 (the figure of one head over one
prompt).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Head, Heads, Natural
from icl_mech.engine import Kept, Reading
from icl_mech.errors import RunError
from icl_mech.interventions.base import check_layers
from icl_mech.interventions.places import Named, Place
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.heads.label_attention import ATTENDING, matched_classes
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.segments import Segment
from icl_mech.shapes import TokenStrips
from icl_mech.shapes.tokens import MANY

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View

MOST_TOLD = 5
"""Number of heads that are reported where there are too many for buttons: those that attend most to label words."""


class Looking(NamedTuple):
    """Attention of a head to label words.

    Attributes:
        name: The head as `layer.head`.
        share: Fraction of its attention, averaged over prompts.
        matching: Fraction of this that goes to label words of the class the row would match; None if there is no such
            class, or nothing to divide.
    """

    name: str
    share: float
    matching: float | None


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadAttentionResult(Result):
    """Attention from the target, or from another token, to every token up to it.

    Attributes:
        heads: (layer, head) of each row.
        values: Attention, per prompt (prompts differ in length); a row sums to 1.
        tokens: Text of the tokens, per prompt.
        marks: Per token: `matching` or `other` label word of a demonstration, by whether it
            shows the class the row would match (`label` where there is no such class), or "" (also for the label
            word that a row is part of).
        row: Name of the token they attend from.
        shape: Layers and heads, where all heads of the model were read; else None.
    """

    shows: ClassVar[tuple[str, ...]] = ("text", "grid")
    axis_labels: ClassVar[Mapping[str, str]] = {"head": "names"}
    definitions: ClassVar[tuple[Definition, ...]] = (ATTENDING,)

    heads: tuple[tuple[int, int], ...]
    values: tuple[Float[Tensor, "chosen _"], ...]
    tokens: tuple[tuple[str, ...], ...]
    marks: tuple[tuple[str, ...], ...]
    row: str = "the last token"
    shape: tuple[int, int] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Attention to all marked tokens of a prompt together, and the spread of the attention."""
        marked = [torch.tensor([bool(mark) for mark in marks]) for marks in self.marks]
        summed = [row[:, columns].sum(-1) for row, columns in zip(self.values, marked, strict=True)]
        spread = [torch.special.entr(row.double()).sum(-1) for row in self.values]
        dims = ("layer", "head") if self.shape else ("head",)
        sizes = (len(summed), *(self.shape or [len(self.heads)]))
        labels, entropy = (torch.stack(means).reshape(sizes) for means in (summed, spread))
        return {
            "to_label_words": Quantity(
                dims, labels, unit="fraction of attention on label words", kind="amount"
            ),
            "entropy": Quantity(dims, entropy, unit="entropy of attention (nats)", kind="amount"),
        }

    def coordinates(self) -> Mapping[str, Sequence[Any]]:
        """Heads by name; if all heads were read, layers and heads count from 0."""
        return {} if self.shape else super().coordinates()

    @property
    def names(self) -> tuple[str, ...]:
        """Heads as `layer.head`."""
        return tuple(map(head_name, self.heads))

    @property
    def mapped(self) -> str:
        """Quantity that a map of heads shows: attention to label words, unless there are none."""
        return "to_label_words" if any(map(any, self.marks)) else "entropy"

    @property
    def looking(self) -> tuple[Looking, ...]:
        """Mean attention to label words by head; of more than twelve heads only the five largest, largest first."""
        shares = self.quantities()["to_label_words"].value().flatten().tolist()
        matching = self._to_matching()
        order = list(range(len(shares)))
        if len(order) > MANY:
            order = sorted(order, key=lambda head: -shares[head])[:MOST_TOLD]
        return tuple(
            Looking(
                self.names[head],
                shares[head],
                matching[head] / shares[head] if matching and shares[head] > 0 else None,
            )
            for head in order
        )

    def _to_matching(self) -> list[float]:
        """Mean attention to label words of the class the row would match; empty if there is no such class."""
        if not any({"matching", "other"} & set(marks) for marks in self.marks):
            return []
        summed = [
            values[:, torch.tensor([mark == "matching" for mark in marks])].sum(-1).double()
            for values, marks in zip(self.values, self.marks, strict=True)
        ]
        means: list[float] = torch.stack(summed).mean(0).tolist()
        return means

    def view(self, prompt: int = 0, head: int | Head | None = None) -> "View":
        """The prompt as text up to the row, coloured by a head's attention from there.

        Args:
            prompt: Number of the prompt.
            head: See `drawing`.

        Raises:
            ResultError: no such prompt or head.
        """
        from icl_mech.plots.prompt_view import Text, prompt_view

        strips = self.drawing(prompt=prompt, head=head)
        assert isinstance(strips, TokenStrips)
        roles = ["label_word" if mark else "unknown" for mark in strips.marks]
        if self.row == "the last token":
            roles[-1] = "target"
        text = Text(tuple(strips.tokens), tuple(roles), about=tuple(strips.marks))
        name = f"attention of {strips.names[strips.first]} from {self.row}"
        return prompt_view(text, strips.values[strips.first].tolist(), name=name)

    def on_page(self) -> tuple[str, ...]:
        """The default text view; for all heads their map first."""
        return ("grid", "") if self.shape else ("",)


@dataclass
class RowReading(Reading[Tensor]):
    """One row of the pattern of some heads, `[prompt, chosen, position]`; nothing else of the pattern is kept."""

    heads: Heads
    rows: Int[Tensor, " batch"]

    def __post_init__(self) -> None:
        """Set the layers that hold one of the heads, and the longest row."""
        self._layers = sorted({layer for layer, _ in self.heads})
        self.width = int(self.rows.max()) + 1

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of these layers."""
        return [Site("pattern", layer) for layer in self._layers]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Attention `[batch, head, position]`; positions are those of the prompt."""
        heads = [head for layer, head in self.heads if layer == site.layer]
        at = segment.columns(self.rows[list(segment.indices)][:, None])[:, 0]
        row = activation.transpose(1, 2)[segment.rows, at][:, heads].float()
        # An extra last column, dropped afterwards, takes the values at padding and after every row.
        inside = segment.mask & (segment.src < self.width)
        columns = segment.src.where(inside, self.width)
        laid = row.new_zeros(*row.shape[:2], self.width + 1)
        return laid.scatter(2, columns[:, None].expand_as(row), row)[..., :-1]

    def collect(self, kept: Kept) -> Tensor:
        """Attention `[prompt, chosen, position]`, heads in the given order."""
        by_site = kept.by_site()
        counted = dict.fromkeys(self._layers, 0)
        chosen = []
        for layer, _ in self.heads:
            chosen.append(by_site[Site("pattern", layer)][:, counted[layer]])
            counted[layer] += 1
        return torch.stack(chosen, dim=1)


@dataclass
class TargetRowReading(RowReading):
    """The same reading for the rows of the targets."""

    target_only = True


@dataclass(frozen=True)
class HeadAttention(Measurement[HeadAttentionResult]):
    """Attention of heads from the target, or from another token, to every token.

    Attributes:
        heads: (layer, head) pairs; None: all heads.
        first: Number of prompts shown; None: all.
        row: The token they attend from: a position (the same in every prompt), the target, or the last
            token of a role.
        demo: The row belongs to this demonstration (of texts: span), counted from 0.

    Raises:
        RunError: no heads, a head twice, or one the model does not have.
        PromptError: prompts this model cannot run, or without such a token.

    Source: Halawi et al. 2023, §5.
    """

    side: ClassVar[Literal["true", "false"] | None] = "false"

    heads: Heads | None = None
    first: Count | None = None
    row: Named | Natural = "target"
    demo: Natural | None = None

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: it reads no answers."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject heads and tokens that do not exist.

        Raises:
            RunError: no heads, a head twice, or one that does not exist; a demonstration in texts that have none.
            PromptError: a prompt without such a token.
        """
        _check_heads(self._heads(model.info), model.info)
        self._rows(data)

    def _heads(self, info: ModelInfo) -> tuple[tuple[int, int], ...]:
        if self.heads is not None:
            return tuple(self.heads)
        return tuple(product(range(info.n_layers), range(info.n_heads)))

    @property
    def _place(self) -> Place:
        return Place((self.row,) if isinstance(self.row, int) else self.row, self.demo)

    def _rows(self, data: PromptBatch) -> Int[Tensor, " batch"]:
        """The row of each prompt; the last of several matching tokens."""
        return self._place.rows(data[: self.first]).max(1).values

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass over the prompts that are shown."""
        read = TargetRowReading if self._place.only_target else RowReading
        reading = read(self._heads(model.info), self._rows(data))
        return [Pass(data[: self.first], [reading], title="attention")]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> HeadAttentionResult:
        """Rows cut to their prompts, with the text and mark of every token."""
        (attention,), prompts = read[0], data[: self.first]
        ends = (self._rows(data) + 1).tolist()
        row = "the last token"
        if not self._place.only_target:
            row = f"token {self.row}" if isinstance(self.row, int) else f"{row} {self._place}"
        return HeadAttentionResult(
            heads=self._heads(model.info),
            values=tuple(row[:, :end] for row, end in zip(attention, ends, strict=True)),
            tokens=tuple(
                (prompt.pieces or tuple(map(str, prompt.tokens)))[:end]
                for prompt, end in zip(prompts, ends, strict=True)
            ),
            marks=_marks(prompts, ends),
            row=row,
            shape=(model.info.n_layers, model.info.n_heads) if self.heads is None else None,
        )


def _check_heads(heads: Heads, info: ModelInfo) -> None:
    if not heads or len(set(heads)) < len(heads):
        raise RunError(
            f"head_attention needs (layer, head) pairs without duplicates; got {list(heads)}. "
            "head_scores(...).top() returns such pairs."
        )
    check_layers([layer for layer, _ in heads], info, "head_attention")
    wrong = [head for _, head in heads if not 0 <= head < info.n_heads]
    if wrong:
        raise RunError(f"head_attention names head {wrong[0]}; heads are 0 to {info.n_heads - 1}.")


def _marks(prompts: PromptBatch, ends: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Marks of the tokens before the row; none for a label word that attends to itself."""
    classes = matched_classes(prompts)
    marked = []
    for number, prompt in enumerate(prompts):
        marks = [""] * ends[number]
        for span, label in zip(prompt.label_spans, prompt.label_classes, strict=True):
            mark = (
                "label" if classes is None else ("other", "matching")[label == int(classes[number])]
            )
            if span.stop < len(marks):
                marks[span.start : span.stop] = [mark] * (span.stop - span.start)
        marked.append(tuple(marks))
    return tuple(marked)


head_attention = door(
    HeadAttention,
    "head_attention",
    then=("heads",),
    prompts="The prompts; figures show one of them.",
)
