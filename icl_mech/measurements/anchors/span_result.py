"""`SpanMatrices`: the result of `icl_mech.measurements.anchors.spans`, its numbers and figures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Heads, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.measurements.anchors.definitions import SPANS
from icl_mech.prompts import Prompt
from icl_mech.results import Definition, Figure, Quantity, Result
from icl_mech.results.quantities import Statistic
from icl_mech.shapes import Grid, TokenMatrix, TokenSegment, TokenStrips

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View

LONGEST = 18
"""Characters of the name of a span."""

RECEIVERS = 5
"""Receiver heads unless told otherwise."""

Intervals = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class SpanMatrices(Result):
    """Attention or saliency between the spans of every text.

    Attributes:
        matrices: One matrix per text: reading span, then the span that is read. Of saliency the axis
            of heads has one entry, which stands for all.
        vertical: Vertical score of every span, per text; not-a-number for the last ones.
        kurtosis: Of the vertical scores of each text; not-a-number of texts with too few spans.
        spans: Token intervals of the spans, per text.
        names: Beginnings of the spans, per text.
        tokens: Text of the tokens, per text.
        of: What was read, `attention` or `saliency`.
        proximity: Number of following spans that vertical scores leave out.
    """

    title: ClassVar[str] = "Attention between spans"
    shows: ClassVar[tuple[str, ...]] = ("", "heads", "text")
    definitions: ClassVar[tuple[Definition, ...]] = SPANS

    matrices: tuple[Float[Tensor, "layer head _ _"], ...]
    vertical: tuple[Float[Tensor, "layer head _"], ...]
    kurtosis: Float[Tensor, "batch layer head"]
    spans: tuple[Intervals, ...]
    names: tuple[tuple[str, ...], ...]
    tokens: tuple[tuple[str, ...], ...]
    of: str = "attention"
    proximity: int = 4

    # --- numbers ---

    def quantities(self) -> dict[str, Quantity]:
        """Mean kurtosis of every head, over the texts in which it is defined."""
        known = self.kurtosis.isfinite()
        statistic = None if bool(known.all()) else _mean_of_known(self.kurtosis, known)
        unit = "kurtosis of vertical scores"
        return {"kurtosis": Quantity(("layer", "head"), self.kurtosis, statistic, unit)}

    @checked(ResultError)
    def receiver_heads(
        self, top: Count = RECEIVERS, *, first_layer: Natural = 0, without: Natural | None = None
    ) -> tuple[tuple[int, int], ...]:
        """(layer, head) of the largest mean kurtosis over texts, largest first.

        Args:
            top: How many.
            first_layer: Heads of lower layers are left out (the reference code's figures: 1).
            without: Number of a text that is left out, to choose for it from the others.

        Raises:
            ResultError: more heads than there are with a kurtosis, or saliency, which has no heads.
        """
        if self.of != "attention":
            raise ResultError("Saliency is summed over heads; receiver heads need of='attention'.")
        values = self.kurtosis
        if without is not None:
            values = values[[i for i in range(len(values)) if i != without]]
        means = values.nanmean(0)
        means[:first_layer] = torch.nan
        known = int(means.isfinite().sum())
        if top > known:
            raise ResultError(
                f"top={top}; {known} heads have a kurtosis, which takes texts of at least "
                f"{self.proximity + 2} spans. Use longer texts or a smaller proximity."
            )
        order = means.flatten().nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)
        n_heads = means.shape[1]
        return tuple((i // n_heads, i % n_heads) for i in order[:top].tolist())

    @checked(ResultError)
    def scores(self, prompt: Natural = 0, heads: Heads | None = None) -> Float[Tensor, " span"]:
        """Mean vertical score of each span of a text over some heads (default: all).

        Raises:
            ResultError: no such text or head.
        """
        self._check_prompt(prompt)
        values = self.vertical[prompt]
        if heads is None:
            return values.mean((0, 1))
        wrong = [h for h in heads if not (0 <= h[0] < len(values) and 0 <= h[1] < values.shape[1])]
        if wrong or not heads:
            raise ResultError(
                f"heads={list(heads)}; the result has {len(values)} layers of {values.shape[1]} heads."
            )
        return torch.stack([values[layer, head] for layer, head in heads]).mean(0)

    # --- showing ---

    @property
    def page_title(self) -> str:
        """Says what was read."""
        return f"{self.of.capitalize()} between spans"

    def drawing(
        self, show: str = "", prompt: int = 0, layer: int | None = None
    ) -> TokenMatrix | Grid | TokenStrips:
        """The spans of one text with a slider over layers; heads by kurtosis; or a text.

        Args:
            show: "", `heads` (not of saliency) or `text`.
            prompt: Which text.
            layer: Layer shown first; None: that with the largest mean kurtosis.

        Raises:
            ResultError: unknown `show`, no such text or layer, or saliency by head.
        """
        self.check_show(show)
        self._check_prompt(prompt)
        if show == "heads":
            return self._heads()
        return self._text(prompt) if show else self._matrix(prompt, layer)

    def _matrix(self, prompt: int, layer: int | None) -> TokenMatrix:
        values = self.matrices[prompt].double().mean(1)
        if layer is None:
            layer = int(self.kurtosis.nanmean((0, 2)).nan_to_num(nan=-torch.inf).argmax())
        if not 0 <= layer < len(values):
            raise ResultError(f"layer={layer}; the model has {len(values)} layers.")
        below = torch.ones(values.shape[1:], dtype=torch.bool).tril()
        names = tuple(f"{i} {name}" for i, name in enumerate(self.names[prompt]))
        roles = ("span",) * len(names)
        return TokenMatrix(
            title=f"{self.of.capitalize()} between spans",
            values=values.tril(),
            tokens=names,
            roles=roles,
            quantity=self.of,
            layer=layer,
            segments=tuple(
                TokenSegment(name, "span", place, place + 1) for place, name in enumerate(names)
            ),
            means=values.masked_fill(~below, torch.nan),
            note=f"text {prompt}, {len(names)} spans"
            + (", mean over heads" if self.of == "attention" else ""),
        )

    def _heads(self) -> Grid:
        if self.of != "attention":
            raise ResultError("Saliency is summed over heads; a map of heads needs of='attention'.")
        found = self._estimate("kurtosis")
        value, low, high = (torch.tensor(end) for end in found.values)
        known = int(value.isfinite().sum())
        heads = self.receiver_heads(min(RECEIVERS, known)) if known else ()
        return Grid(
            "Receiver heads", value.T, "head", "layer", "kurtosis",
            note=f"mean over {len(self.kurtosis)} texts; framed: the {len(heads)} largest",
            signed=bool((value < 0).any()), low=low.T, high=high.T,
            marked=tuple((head, layer) for layer, head in heads),
            names=tuple(f"{layer}.{head}" for layer, head in heads),
        )  # fmt: skip

    def _rows(self, prompt: int) -> tuple[tuple[str, ...], Float[Tensor, "row span"]]:
        rows: dict[str, Heads | None] = {
            "mean over all heads" if self.of == "attention" else "mean over layers": None
        }
        own = self.kurtosis.nanmean(0).isfinite().sum()
        if self.of == "attention" and own:
            heads = self.receiver_heads(min(RECEIVERS, int(own)))
            rows = {f"{len(heads)} receiver heads": heads, **rows}
        return tuple(rows), torch.stack([self.scores(prompt, heads) for heads in rows.values()])

    def _text(self, prompt: int) -> TokenStrips:
        names, rows = self._rows(prompt)
        return TokenStrips(
            title="Text by the vertical score of its spans",
            names=names,
            values=torch.stack([self._spread(prompt, row, 0.0) for row in rows]),
            tokens=self.tokens[prompt],
            marks=("",) * len(self.tokens[prompt]),
            quantity=f"mean {self.of} from later spans",
            note=f"text {prompt}; undefined (0) for the last {self.proximity} spans",
        )

    def _spread(self, prompt: int, row: Tensor, fill: float) -> Tensor:
        values = torch.full((len(self.tokens[prompt]),), fill, dtype=torch.float64)
        for (start, stop), value in zip(self.spans[prompt], row.tolist(), strict=True):
            values[start:stop] = value if value == value else fill
        return values

    def view(self, prompt: int = 0, heads: Heads | None = None) -> "View":
        """A text coloured by the vertical score of its spans; hatched where it is undefined.

        Args:
            prompt: Which text.
            heads: Mean over these; None: over all.

        Raises:
            ResultError: no such text or head.
        """
        from icl_mech.plots.prompt_view import Text, prompt_view

        values = self._spread(prompt, self.scores(prompt, heads), float("nan"))
        text = Text(self.tokens[prompt], _roles(len(values), self.spans[prompt]))
        return prompt_view(text, values.tolist(), name=f"mean {self.of} from later spans", low=0.0)

    def arcs(self, prompt: int = 0, layer: int | None = None, *, top: int = 20) -> "View":
        """The strongest edges between spans of a text as arcs; each span is one word of it.

        Args:
            prompt: Which text.
            layer: Which layer; None: the mean over layers.
            top: Number of edges drawn at most.

        Raises:
            ResultError: no such text or layer.
        """
        from icl_mech.plots.arcs import arcs_view
        from icl_mech.plots.prompt_view import Text

        self._check_prompt(prompt)
        values = self.matrices[prompt].double().mean(1)
        if layer is not None and not 0 <= layer < len(values):
            raise ResultError(f"layer={layer}; the model has {len(values)} layers.")
        chosen = values.mean(0) if layer is None else values[layer]
        where = "mean over layers" if layer is None else f"layer {layer}"
        text = Text(self.names[prompt], ("span",) * len(self.names[prompt]))
        return arcs_view(text, chosen.tril(-1), name=f"{self.of}, {where}", top=top)

    def _check_prompt(self, prompt: int) -> None:
        if not 0 <= prompt < len(self.matrices):
            raise ResultError(f"prompt={prompt}; there are matrices of {len(self.matrices)} texts.")

    def figures(self) -> list[Figure]:
        """One text by span, heads by kurtosis, and one text coloured."""
        from icl_mech.measurements.anchors.texts import span_figures

        return span_figures(self)

    def summary(self) -> str:
        """Texts, spans and receiver heads."""
        counts = [len(own) for own in self.spans]
        about = f"{self.of} between {min(counts)}-{max(counts)} spans of {len(counts)} texts"
        known = int(self.kurtosis.nanmean(0).isfinite().sum())
        if self.of != "attention" or not known:
            return about
        heads = ", ".join(f"{a}.{b}" for a, b in self.receiver_heads(min(RECEIVERS, known)))
        return f"{about}; receiver heads (layer.head): {heads}"


def names_of(prompt: Prompt) -> tuple[str, ...]:
    """The beginning of every span."""
    pieces, found = pieces_of(prompt), []
    for start, stop in prompt.text_spans:
        text = "".join(pieces[start:stop]).replace("\n", "↵").strip(" ") or "␣"
        found.append(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")
    return tuple(found)


def pieces_of(prompt: Prompt) -> tuple[str, ...]:
    """The text of every token."""
    return prompt.pieces or tuple(f"⟨{token}⟩" for token in prompt.tokens)


def _roles(count: int, spans: Intervals) -> tuple[str, ...]:
    inside = {place for start, stop in spans for place in range(start, stop)}
    return tuple("span" if place in inside else "unknown" for place in range(count))


def _mean_of_known(values: Tensor, known: Tensor) -> Statistic:
    flat = values.double().nan_to_num().flatten(1)
    counted = known.double().flatten(1)

    def statistic(weights: Float[Tensor, "r batch"]) -> Tensor:
        mean = (weights @ flat) / (weights @ counted)  # 0 / 0 where no text is drawn that has one
        return mean.reshape(len(weights), *values.shape[1:])

    return statistic
