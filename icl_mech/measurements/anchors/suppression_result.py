"""`SuppressionEffects`: the result of `icl_mech.measurements.anchors.suppression`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.measurements.anchors.definitions import SUPPRESSION
from icl_mech.metrics import vertical_scores
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.shapes import LabelMatrix, LayerCurves, TokenStrips

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View

Intervals = tuple[tuple[int, int], ...]

FLOOR = 1e-9
"""Added to divergences before their logarithm, as in the reference code."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SuppressionEffects(Result):
    """What hiding each span changes in the spans behind it.

    Attributes:
        divergence: Mean `KL(plain || suppressed)` in nats, per text: reading span, then the hidden
            one; not-a-number where the reading span stands before the hidden one.
        change: Change of the log-probability of the reading span's own tokens, in nats per token.
        by_token: Divergence at every token, per text: hidden span, token.
        spans: Token intervals of the spans, per text.
        names: Beginnings of the spans, per text.
        tokens: Text of the tokens, per text.
    """

    title: ClassVar[str] = "Suppression of spans"
    shows: ClassVar[tuple[str, ...]] = ("", "distance", "text")
    definitions: ClassVar[tuple[Definition, ...]] = SUPPRESSION

    divergence: tuple[Float[Tensor, "_ _"], ...]
    change: tuple[Float[Tensor, "_ _"], ...]
    by_token: tuple[Float[Tensor, "_ _"], ...]
    spans: tuple[Intervals, ...]
    names: tuple[tuple[str, ...], ...]
    tokens: tuple[tuple[str, ...], ...]

    def quantities(self) -> dict[str, Quantity]:
        """Mean divergence by distance in spans, and over all pairs; mean change likewise.

        Distances are those that every text has.
        """
        distances = self._by_distance(self.divergence), self._by_distance(self.change)
        unit = "KL divergence (nats)", "change of log-probability (nats per token)"
        return {
            "divergence": Quantity(("distance",), distances[0], unit=unit[0]),
            "change": Quantity(("distance",), distances[1], unit=unit[1]),
            "mean_divergence": Quantity((), self._over_pairs(self.divergence), unit=unit[0]),
            "mean_change": Quantity((), self._over_pairs(self.change), unit=unit[1]),
        }

    def coordinates(self) -> dict[str, tuple[int, ...]]:
        """Distances count from 1: the next span."""
        return {"distance": tuple(range(1, self._reach + 1))}

    @property
    def _reach(self) -> int:
        return min(len(own) for own in self.spans) - 1

    @property
    def proximity(self) -> int:
        """Distance from which figures count later spans: 2, or 1 if a text has fewer than 4 spans.

        The next span changes most whatever is hidden, and of the last spans it is the only one.
        """
        return 2 if self._reach > 2 else 1

    def _by_distance(self, values: tuple[Tensor, ...]) -> Float[Tensor, "batch distance"]:
        reach = range(1, self._reach + 1)
        return torch.stack(
            [torch.stack([own.diagonal(-d).mean() for d in reach]) for own in values]
        )

    def _over_pairs(self, values: tuple[Tensor, ...]) -> Float[Tensor, " batch"]:
        return torch.stack([own[torch.ones_like(own).tril(-1).bool()].mean() for own in values])

    @checked(ResultError)
    def scores(self, prompt: Natural = 0, proximity: Count = 1) -> Float[Tensor, " span"]:
        """Effect of each span of a text: mean divergence of the spans at this distance or farther.

        Raises:
            ResultError: no such text.
        """
        self._check_prompt(prompt)
        return vertical_scores(self.divergence[prompt], proximity)

    @checked(ResultError)
    def log_divergence(
        self, prompt: Natural = 0, *, centred: bool = False
    ) -> Float[Tensor, "reader hidden"]:
        """Mean of `log(KL + 1e-9)` over the positions of the reading spans of a text.

        Args:
            prompt: Which text.
            centred: Each row minus its mean over earlier spans, since later spans change less;
                then only effects on later spans are numbers.

        Raises:
            ResultError: no such text.
        """
        self._check_prompt(prompt)
        logs = (self.by_token[prompt] + FLOOR).log()
        found = torch.stack([logs[:, a:b].mean(1) for a, b in self.spans[prompt]])
        found = found.masked_fill(self.divergence[prompt].isnan(), torch.nan)
        if not centred:
            return found
        found = found.masked_fill(torch.ones_like(found).triu().bool(), torch.nan)
        return found - found.nanmean(1, keepdim=True)

    def drawing(self, show: str = "", prompt: int = 0) -> LabelMatrix | LayerCurves | TokenStrips:
        """Effects between the spans of one text, by distance over texts, or on a text.

        Args:
            show: "", `distance` or `text`.
            prompt: Which text.

        Raises:
            ResultError: unknown `show`, or no such text.
        """
        self.check_show(show)
        self._check_prompt(prompt)
        if show == "distance":
            return self._distances()
        if show == "text":
            return self._text(prompt)
        names = tuple(f"{i} {name}" for i, name in enumerate(self.names[prompt]))
        return LabelMatrix(
            title="What hiding a span changes later",
            values=self.divergence[prompt],
            rows=names,
            columns=names,
            row_title="changed",
            column_title="hidden",
            quantity="KL divergence (nats)",
            note=f"text {prompt}, {len(names)} spans",
        )

    def _distances(self) -> LayerCurves:
        own = self.quantities()["divergence"]
        low, high = own.ends()
        return LayerCurves(
            title="Effect of hiding a span by distance",
            names=("divergence",),
            values=own.value()[None],
            low=low[None],
            high=high[None],
            y_title=own.unit,
            note=basis(self),
            x=tuple(map(float, self.coordinates()["distance"])),
            x_title="distance in spans",
        )

    def _text(self, prompt: int) -> TokenStrips:
        return TokenStrips(
            title="Text by what hiding its spans changes later",
            names=("divergence of later spans",),
            values=self._spread(prompt, 0.0)[None],
            tokens=self.tokens[prompt],
            marks=("",) * len(self.tokens[prompt]),
            quantity="mean KL divergence of later spans (nats)",
            note=f"text {prompt}; spans at a distance of {self.proximity} or more; undefined (0) at the end",
        )

    def _spread(self, prompt: int, fill: float) -> Float[Tensor, " token"]:
        values = torch.full((len(self.tokens[prompt]),), fill, dtype=torch.float64)
        scores = self.scores(prompt, self.proximity).tolist()
        for (start, stop), value in zip(self.spans[prompt], scores, strict=True):
            values[start:stop] = value if value == value else fill
        return values

    def view(self, prompt: int = 0) -> "View":
        """A text coloured by the effect of hiding its spans; hatched where it is undefined.

        Raises:
            ResultError: no such text.
        """
        from icl_mech.plots.prompt_view import Text, prompt_view

        self._check_prompt(prompt)
        values = self._spread(prompt, float("nan"))
        text = Text(self.tokens[prompt], ("span",) * len(values))
        name = "mean KL divergence of later spans (nats)"
        return prompt_view(text, values.tolist(), name=name, low=0.0)

    def arcs(self, prompt: int = 0, *, top: int = 20) -> "View":
        """The strongest effects between spans of a text as arcs; each span is one word of it.

        Raises:
            ResultError: no such text.
        """
        from icl_mech.plots.arcs import arcs_view
        from icl_mech.plots.prompt_view import Text

        self._check_prompt(prompt)
        text = Text(self.names[prompt], ("span",) * len(self.names[prompt]))
        values = self.divergence[prompt].nan_to_num().tril(-1)
        return arcs_view(text, values, name="KL divergence (nats)", top=top)

    def _check_prompt(self, prompt: int) -> None:
        if not 0 <= prompt < len(self.divergence):
            raise ResultError(
                f"prompt={prompt}; there are effects in {len(self.divergence)} texts."
            )

    def figures(self) -> list[Figure]:
        """One text, and effects by distance."""
        from icl_mech.measurements.anchors.texts import suppression_figures

        return suppression_figures(self)

    def summary(self) -> str:
        """Mean effect of a span on the next one and on all later ones."""
        following = self.interval("divergence", distance=1)
        return (
            f"hiding a span moves the next one by {following} nats, all later ones by "
            f"{self.interval('mean_divergence')}, {len(self.spans)} texts"
        )
