"""Result of `transplant`: what becomes of answers when residuals of another run are put in, and how it is shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ResultError
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import Kind, beyond_draws, mean_ends
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import jointly, judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.quantities import function_of_means
from icl_mech.results.wording import counted, listed, said
from icl_mech.shapes import LabelMatrices, LabelMatrix, LayerCurves, Meaning, Panel

DIRECTIONS = ("false to true", "true to false")
"""From which run into which."""

INTO = ("From the false run into the true one", "From the true run into the false one")

NEAR = 8
"""A layer is near a depth if it is within an eighth of all layers of it."""

MOST = 0.5
"""Share of answers that a place must move, beyond its control, to carry the answer."""

PLACES: dict[str, tuple[str, Meaning]] = {
    "anchors": ("label words", "label"),
    "target": ("target", "target"),
    "query": ("query text", "query"),
    "template": ("template", "other"),
}
WORDS = {own: words for own, (words, _) in PLACES.items()}
MEANINGS = {own: meaning for own, (_, meaning) in PLACES.items()}

PAPER = "arXiv 2605.04061"

FLIPS = Definition(
    "transplant",
    r"\mathrm{flips}_l(A) = \frac{1}{|D|} \sum_{n \in D} \mathbb{1}\left[\hat y\!\left(Y_n \mid h_l[A] "
    r"\leftarrow h^{X}_l[A]\right) = \hat y(X_n)\right], \quad D = \{n : \hat y(X_n) \ne \hat y(Y_n)\}",
    "The residuals h entering block l at all tokens A of a place are those of run X, all else is run Y. Counted "
    "are prompts whose likeliest label word becomes that of run X, among those where the runs differ.",
    PAPER,
)

SHIFT = Definition(
    "shift of the log-probability",
    r"\Delta_l(A) = \log P\!\left(\hat y(X_n) \mid Y_n, h_l[A] \leftarrow h^{X}_l[A]\right) - \log "
    r"P\!\left(\hat y(X_n) \mid Y_n\right)",
    "Change, over the vocabulary, of the log-probability of the first token of the other run's answer, where "
    "the runs differ.",
)

FOLLOWED = Definition(
    "answers that follow the transplant",
    r"\mathbb{1}\left[\hat y(Y_n \mid h_l[A] \leftarrow h^{X}_l[A]) = y^{X}_n\right] - \mathbb{1}\left[\hat "
    r"y(Y_n) = y^{X}_n\right]",
    "y^X is the label that the demonstrations of X teach for the query: the right one, or the taught false "
    "one (where none is defined: any wrong one). It is defined for every prompt, and 0 in the mean where "
    "answers have nothing to do with demonstrations, however they differ.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class TransplantResult(Result):
    """Label words' log-probabilities after every transplant.

    Attributes:
        log_probs: Of label words over the vocabulary, with the residuals of the other run at a place.
        random: The same with as many random tokens instead, or as there are; not-a-number where there is none.
        single: With one label word alone, if asked for; not-a-number where a prompt has fewer.
        plain: Of both runs as they are: true, then false demonstrations.
        answers, taught: True class of each query, and what false demonstrations teach, or -1.
        at, layers, n_layers: The places, blocks whose entrances were changed, and how many blocks there are.
        unlike: Label words with another number of tokens in the other run; aligned from both ends.
    """

    title: ClassVar[str] = "Transplants between runs"
    shows: ClassVar[tuple[str, ...]] = ("map", "flips", "log_prob", "followed")
    definitions: ClassVar[tuple[Definition, ...]] = (FLIPS, SHIFT, FOLLOWED)
    axis_labels: ClassVar[Mapping[str, str | Sequence[str]]] = {
        "direction": DIRECTIONS,
        "at": "at",
        "layer": "layers",
    }

    log_probs: Float[Tensor, "batch direction at layer label"]
    random: Float[Tensor, "batch direction at layer draw label"]
    single: Float[Tensor, "batch direction demonstration layer label"] | None = None
    plain: Float[Tensor, "batch side label"]
    answers: Int[Tensor, " batch"]
    taught: Int[Tensor, " batch"]
    at: tuple[str, ...]
    layers: tuple[int, ...]
    n_layers: int
    unlike: int

    @property
    def predicted(self) -> Int[Tensor, "batch side"]:
        """Answer of both runs as they are."""
        return self.plain.argmax(-1)

    @property
    def differ(self) -> Bool[Tensor, " batch"]:
        """Prompts that the two runs answer differently."""
        return self.predicted[:, 0] != self.predicted[:, 1]

    @property
    def flips(self) -> Float[Tensor, "batch layer"]:
        """False into true, at the first place: 1 where the answer becomes the false run's, NaN where both agree."""
        return self._flips(self.log_probs)[:, 0, 0]

    def _of_source(self, values: Tensor) -> Tensor:
        """Answer of the other run, with as many axes as values without labels."""
        own = self.predicted.flip(1)
        return own.reshape(*own.shape, *[1] * (values.ndim - 3)).expand(values.shape[:-1])

    def _where_different(self, found: Tensor) -> Tensor:
        known = self.differ.reshape(-1, *[1] * (found.ndim - 1))
        return found.double().where(known, torch.nan)

    def _flips(self, values: Tensor) -> Tensor:
        found = (values.argmax(-1) == self._of_source(values)).double()
        return self._where_different(found.where(~values.isnan().any(-1), torch.nan))

    def _shift(self, values: Tensor) -> Tensor:
        wanted = self._of_source(values)[..., None]
        plain = self.plain.reshape(*self.plain.shape[:2], *[1] * (values.ndim - 3), -1)
        return self._where_different((values - plain).gather(-1, wanted)[..., 0])

    def _followed(self, values: Tensor) -> Tensor:
        """1 where the answer becomes that which the other demonstrations teach, -1 where it was before."""

        def follows(predicted: Tensor) -> Tensor:
            right = self.answers.reshape(-1, *[1] * (predicted.ndim - 2))
            taught = self.taught.reshape(right.shape)
            false = predicted[:, 0] == taught
            false = torch.where(taught < 0, predicted[:, 0] != right, false)
            return torch.stack([false, predicted[:, 1] == right], dim=1).double()

        plain = self.predicted.reshape(*self.predicted.shape, *[1] * (values.ndim - 3))
        found = follows(values.argmax(-1)) - follows(plain)
        return found.where(~values.isnan().any(-1), torch.nan)

    def quantities(self) -> dict[str, Quantity]:
        """Flips and shifts where the runs differ, answers that follow, and the same of random tokens."""
        dims = ("direction", "at", "layer")
        found: dict[str, Quantity] = {}
        for prefix, values in (("", self.log_probs), ("random_", self.random)):
            flips, shift, followed = (
                own.mean(-1) if prefix else own
                for own in (self._flips(values), self._shift(values), self._followed(values))
            )
            found |= {
                f"{prefix}flips": self._differing(
                    dims, flips, "share of answers that become the other run's", "outcome"
                ),
                f"{prefix}log_prob": self._differing(
                    dims, shift, "log-probability of the other run's answer (change, nats)"
                ),
                f"{prefix}followed": Quantity(
                    dims,
                    followed,
                    unit="answers that follow the transplant (change)",
                    kind="change",
                ),
            }
        if self.single is not None:
            alone = self._flips(self.single).nanmean(2)
            unit = "share of answers that become the other run's, one label word alone"
            found["single_flips"] = self._differing(("direction", "layer"), alone, unit, "outcome")
        return found

    def _differing(
        self, dims: tuple[str, ...], values: Tensor, unit: str, kind: Kind = "value"
    ) -> Quantity:
        """The mean over the prompts that both runs answer differently."""
        known = self.differ
        ends = (torch.full(values.shape[1:], torch.nan, dtype=torch.float64),) * 2
        if bool(known.any()):
            ends = mean_ends(values[known], kind)
        inside = known.double().reshape(-1, *[1] * (values.ndim - 1)).expand(values.shape)
        parts = torch.stack([values.where(inside > 0, 0.0), inside], dim=1)
        ratio = function_of_means(parts, lambda means: means[:, 0] / means[:, 1])
        return Quantity(dims, values, ratio, unit, ends)

    # --- early and late ---

    @property
    def early(self) -> int | None:
        """The entrance nearest to a third of the depth; None if none of those changed is near it."""
        return self._nearest(1 / 3)

    @property
    def late(self) -> int | None:
        """The entrance nearest to five sixths of the depth, likewise."""
        return self._nearest(5 / 6)

    def _nearest(self, depth: float) -> int | None:
        wanted = depth * self.n_layers
        layer = min(self.layers, key=lambda layer: abs(layer - wanted))
        # At the first entrance the words themselves are swapped, which moves answers in any network.
        near = layer > 0 and abs(layer - wanted) <= max(self.n_layers / NEAR, 0.5)
        return layer if near else None

    def beside_random(self, at: str, layer: int | None) -> Interval | None:
        """Flips by a transplant at a place minus those at random tokens, over both directions.

        Over the prompts that the runs answer differently, paired; the interval is at least that of one more
        draw beside these. None without such prompts, place or layer, random token, or second draw.

        Raises:
            ResultError: a layer that was not changed.
        """
        own, drawn = self._both(self.log_probs, at, layer), self._both(self.random, at, layer)
        return None if own is None or drawn is None else beyond_draws(own, drawn, "change")

    def beside(self, at: str, other: str, layer: int | None) -> Interval | None:
        """Flips by a transplant at one place minus those at another, over both directions.

        Over the prompts that the runs answer differently, paired; None without such prompts or places.

        Raises:
            ResultError: a layer that was not changed.
        """
        own, beside = (self._both(self.log_probs, name, layer) for name in (at, other))
        return None if own is None or beside is None else mean_interval(own - beside, "change")

    def _both(self, values: Tensor, at: str, layer: int | None) -> Tensor | None:
        """Flips at a place and layer, the mean of both directions, where the runs differ."""
        if layer is None:
            return None
        column = self._column(layer)
        if at not in self.at or not bool(self.differ.any()):
            return None
        return self._flips(values)[self.differ, :, self.at.index(at), column].mean(1)

    def _column(self, layer: int) -> int:
        if layer not in self.layers:
            raise ResultError(
                f"Layer {layer} was not changed; known are {listed(map(str, self.layers))}."
            )
        return self.layers.index(layer)

    # --- showing ---

    def drawing(self, show: str = "map") -> LabelMatrices | LayerCurves:
        """Flips by place and layer as a map, or one measure as curves beside random tokens.

        Args:
            show: `map`, `flips`, `log_prob` or `followed`.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        if show == "map":
            return self._map()
        own, random, count = self.sel(show), self.sel(f"random_{show}"), len(self.at)
        value, low, high = (
            # By direction, place, and its own tokens before the random ones.
            torch.stack(ends, dim=2).flatten(0, 2)
            for ends in zip(
                *((one.values, one.low, one.high) for one in (own, random)), strict=True
            )
        )
        return LayerCurves(
            f"{own.unit[0].upper()}{own.unit[1:]}",
            self._names * len(DIRECTIONS),
            *(value, low, high),
            y_title=own.unit,
            note=self._note(),
            x=tuple(map(float, self.layers)),
            x_title="entrance of block",
            meanings=tuple(own for at in self.at for own in (MEANINGS[at], "reference"))
            * len(DIRECTIONS),
            panels=tuple(
                Panel(title, tuple(range(2 * count * i, 2 * count * (i + 1))))
                for i, title in enumerate(INTO)
            ),
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for at in self.at for name in (WORDS[at], f"random: {WORDS[at]}"))

    def _map(self) -> LabelMatrices:
        own, random = self.sel("flips"), self.sel("random_flips")
        matrices = []
        for i, title in enumerate(INTO):
            value, low, high = (
                torch.stack(ends, dim=1).flatten(0, 1)
                for ends in zip(
                    *((one.values[i], one.low[i], one.high[i]) for one in (own, random)),
                    strict=True,
                )
            )
            matrices.append(
                LabelMatrix(
                    title,
                    value,
                    self._names,
                    tuple(map(str, self.layers)),
                    "",
                    "entrance of block",
                    "share of answers that become the other run's",
                    low=low,
                    high=high,
                    ends=(0.0, 1.0),
                )
            )
        return LabelMatrices("Where the answer is carried", tuple(matrices), self._note())

    def _note(self) -> str:
        return basis(
            self,
            f"{int(self.differ.sum())} of {counted(len(self.answers), 'pair')} answered differently",
        )

    def figures(self) -> list[Figure]:
        """Where the answer is carried, by layer."""
        count, differing = len(self.answers), int(self.differ.sum())
        pairs = f"{counted(differing, 'pair')} of {count} that the two runs answer differently{given(self)}"
        random = f"random tokens of the same demonstrations, or of the query, as many or as there are (mean of {self.random.shape[4]} draws)"
        words = ""
        if self.unlike:
            words = (
                f" {counted(self.unlike, 'label word')} of another length in the other run: aligned by the first "
                "token and, from the last one on, backwards."
            )
        return [
            Figure(
                "map",
                question="Which positions carry the answer, and at which depth?",
                answer=self._answer(),
                caption="**Share of answers that become the other run's when the residuals entering one block are "
                f"taken from it, at all tokens of a place**; beside it {random}. Means over "
                f"{pairs}; intervals when pointing.{words}",
                limits="which heads carry it, or whether the answer stood there alone: two places may hold it at once. "
                "At layer 0 the words themselves are swapped, and at the last entrance the target acts in any model.",
                short="Place by layer",
            ),
            Figure(
                "log_prob",
                question="How far does the answer move?",
                answer=f"{self._told('log_prob', 'nats')}.",
                caption="**Change of the log-probability of the other run's answer**, by the entrance that is changed; "
                f"grey: {random}. Bands: 95 % intervals over {pairs}, each layer alone.",
                limits="that other words do not gain as much.",
                short="Log-probability",
                drawn=differing > 0,
            ),
        ]

    def _told(self, quantity: str, unit: str = "") -> str:
        """Both places of a hand-over, early and late, false into true."""
        parts: list[str] = []
        known = [own for own in (self.early, self.late) if own is not None] or [self.layers[0]]
        for layer in dict.fromkeys(known):
            when = "block" if parts else "entering block"
            values = [
                f"{WORDS[at]} {said(self.interval(quantity, direction=DIRECTIONS[0], at=at, layer=layer))}"
                for at in self.at
            ]
            parts.append(f"{when} {layer}: {', '.join(values)}{f' {unit}' if unit else ''}")
        return "; ".join(parts)

    def _answer(self) -> str:
        """How many answers become the other run's, early and late."""
        differing = int(self.differ.sum())
        if not differing:
            return f"Cannot be judged: both runs answer all {len(self.answers)} queries alike."
        effects = [
            own
            for at, layer in (("anchors", self.early), ("target", self.late))
            if (own := self.beside_random(at, layer)) is not None
        ]
        statuses = [judged(own, null=MOST, prompts=differing) for own in effects]
        status = jointly(*statuses) if statuses else "cannot be judged"
        begin = opening(
            status,
            f"{differing} pairs that differ",
            supported="With label words early, with the target late: false into true,",
            not_shown="Not shown that most answers are moved beyond random tokens; false into true,",
            opposite="Most answers are not moved: false into true,",
        )
        return f"{begin} {self._told('flips')}."

    def summary(self) -> str:
        """Flips early and late, false into true."""
        return f"answers that become the false run's, {self._told('flips')} ({int(self.differ.sum())} differ)"
