"""`FlowScores`: the result of `icl_mech.measurements.saliency.flow`, its numbers and figures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.saliency.definitions import FLOW
from icl_mech.measurements.saliency.kinds import (
    MEANINGS,
    NAMES,
    SCORES,
    score_index,
    third_of,
    thirds,
)
from icl_mech.measurements.saliency.null import share_of_null
from icl_mech.measurements.saliency.roles import grouped, share_of_all, share_of_row
from icl_mech.metrics import Interval, bootstrap_interval, normalised_flow
from icl_mech.results import Definition, Figure, Quantity, Result, basis, function_of_means
from icl_mech.results.quantities import Statistic
from icl_mech.shapes import LayerCurves, Panel

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowScores(Result):
    """Flow scores by layer, and what they hide.

    Attributes:
        per_prompt: S of every prompt, kind (`wp`, `pq`, `ww`) and layer.
        values: Normalised curve: share of each kind in the layer's sum.
        low: Lower end of the 95 % bootstrap interval over prompts.
        high: Upper end.
        roles: Roles of the prompts' tokens, or none (earlier versions, servers).
        role_saliency: Sum of saliency by role of destination and source, the diagonal left out.
        null: S with random tokens near the label words in their place, of every draw; None where a
            prompt has too few tokens.
    """

    per_prompt: Float[Tensor, "batch score layer"]
    values: Float[Tensor, "score layer"]
    low: Float[Tensor, "score layer"]
    high: Float[Tensor, "score layer"]
    roles: tuple[str, ...] = ()
    role_saliency: Float[Tensor, "batch dest_role src_role layer"] | None = None
    null: Float[Tensor, "batch draw score layer"] | None = None

    title: ClassVar[str] = "Information flow"
    definitions: ClassVar[tuple[Definition, ...]] = FLOW
    shows: ClassVar[tuple[str, ...]] = ("", "null", "roles")

    # --- numbers ---

    def quantities(self) -> dict[str, Quantity]:
        """`share` of the three kinds in a layer's sum, and the `saliency` per edge behind it.

        Where they were measured: `null_share`, the share with random tokens in the label words'
        place; `role_share` of all saliency by role of destination and source; `target_share` of
        what the target receives by role of its source.
        """
        dims = ("score", "layer")
        shares = function_of_means(self.per_prompt, normalised_flow)
        per_edge = "share of the layer's saliency per edge"
        found = {
            "share": Quantity(dims, self.per_prompt, shares, per_edge),
            "saliency": Quantity(dims, self.per_prompt, unit="mean saliency per edge"),
        }
        if self.null is not None:
            mean, statistic = self.null.double().mean(1), share_of_null(self.null)
            found["null_share"] = Quantity(dims, mean, statistic, f"{per_edge}, random tokens")
        if self.role_saliency is not None:
            statistic = function_of_means(self.role_saliency, share_of_all)
            found["role_share"] = Quantity(
                ("dest_role", "src_role", "layer"), self.role_saliency, statistic,
                "share of all saliency of the layer",
            )  # fmt: skip
            row = self._target_row
            found["target_share"] = Quantity(
                ("src_role", "layer"), row, function_of_means(row, share_of_row),
                "share of the saliency that the target receives",
            )  # fmt: skip
        return found

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the scores and roles."""
        return {"score": SCORES, "dest_role": self.roles, "src_role": self.roles}

    @property
    def scores(self) -> tuple[str, ...]:
        """Names along the score axis."""
        return SCORES

    @property
    def _target_row(self) -> Float[Tensor, "batch src_role layer"]:
        assert self.role_saliency is not None
        return self.role_saliency[:, self.roles.index("target")]

    @checked(ResultError)
    def share(self, score: str, third: str) -> Interval:
        """Mean share of one kind over the `first` or `last` third of the layers.

        Raises:
            ResultError: unknown score or third.
        """
        layers = third_of(self.values.shape[1], third)
        index = score_index(score)

        def statistic(means: Tensor) -> Tensor:
            return normalised_flow(means)[..., index, layers].mean(-1)

        low, high = bootstrap_interval(self.per_prompt, statistic)
        return Interval(float(self.values[index, layers].mean()), float(low), float(high))

    @checked(ResultError)
    def difference(self, third: str) -> Interval:
        """`S_wp - S_pq` share over the `first` or `last` third, paired over prompts.

        Raises:
            ResultError: unknown third.
        """
        layers = third_of(self.values.shape[1], third)

        def statistic(means: Tensor) -> Tensor:
            shares = normalised_flow(means)[..., layers].mean(-1)
            return shares[..., 0] - shares[..., 1]

        low, high = bootstrap_interval(self.per_prompt, statistic)
        value = statistic(self.per_prompt.double().mean(0))
        return Interval(float(value), float(low), float(high))

    @checked(ResultError)
    def above_null(self, score: str, third: str) -> tuple[Interval, Interval] | None:
        """The share of one kind with random tokens, and how far label words lie above it.

        Over the `first` or `last` third of the layers, paired over prompts; the interval of the
        difference takes in that other tokens might have been drawn. None where no random tokens
        were drawn.

        Raises:
            ResultError: unknown score or third.
        """
        layers, index = third_of(self.values.shape[1], third), score_index(score)
        if self.null is None:
            return None

        def over(statistic: Statistic) -> Statistic:
            return lambda weights: statistic(weights)[..., index, layers].mean(-1)

        own = over(function_of_means(self.per_prompt, normalised_flow))
        null = Quantity((), self.per_prompt, over(share_of_null(self.null)))
        low, high = null.ends()
        found = Quantity((), self.per_prompt, own).minus(null)
        return (
            Interval(float(null.value()), float(low), float(high)),
            Interval(*(float(end) for end in found)),
        )

    def by_role(self, of: str = "target") -> tuple[tuple[str, ...], Quantity]:
        """Shares by groups of roles: texts, label words, template, query, target.

        Args:
            of: `target`: of what the target receives, by role of the source; `receiving`: of all
                saliency of a layer, by role of the destination.

        Raises:
            ResultError: not measured.
        """
        if self.role_saliency is None:
            raise ResultError(
                "These flow scores hold no saliency by role (an earlier version measured them, or a "
                "server); measure them again with Flow() on a model loaded here."
            )
        names, _, member = grouped(self.roles)
        totals = self._target_row if of == "target" else self.role_saliency.sum(2)
        groups = torch.einsum("gr,brl->bgl", member, totals.double())
        unit = self.quantities()["target_share" if of == "target" else "role_share"].unit
        return names, Quantity(
            ("role", "layer"), groups, function_of_means(groups, share_of_row), unit
        )

    # --- showing ---

    def drawing(self, show: str = "") -> LayerCurves:
        """Share of the three kinds of edges by layer; beside random tokens; or shares by role.

        Args:
            show: "", `null` or `roles`.

        Raises:
            ResultError: unknown `show`, or one that was not measured.
        """
        self.check_show(show)
        if show == "null" and self.null is None:
            raise ResultError(
                "These flow scores hold none of random tokens: an earlier version or a server measured "
                "them, or a prompt has too few tokens besides its label words."
            )
        if show == "null":
            return self._beside_null()
        if show == "roles":
            return self._roles()
        count = self.values.shape[1]
        return LayerCurves(
            title="Information flow by layer",
            names=tuple(NAMES[score] for score in SCORES),
            values=self.values,
            low=self.low,
            high=self.high,
            y_title="share of the layer's saliency per edge",
            note=basis(self),
            meanings=MEANINGS,
            stretches=thirds(count),
            y_range=(-0.04, 1.04),
        )

    def _beside_null(self) -> LayerCurves:
        null = self.quantities()["null_share"]
        ends = (null.value(), *null.ends())
        rows = [
            torch.stack([own[0], other[0], own[1], other[1]])
            for own, other in zip((self.values, self.low, self.high), ends, strict=True)
        ]
        return LayerCurves(
            title="Label words and random tokens near them",
            names=("label words", "random tokens") * 2,
            values=rows[0],
            low=rows[1],
            high=rows[2],
            y_title="share of the layer's saliency per edge",
            note=basis(self),
            meanings=("label", "other") * 2,
            panels=(Panel("What precedes → these tokens", (0, 1)), Panel("These tokens → target", (2, 3))),
            y_range=(-0.04, 1.04),
        )  # fmt: skip

    def _roles(self) -> LayerCurves:
        found = [self.by_role(of) for of in ("receiving", "target")]
        names, _ = found[0]
        _, meanings, _ = grouped(self.roles)
        # The target receives nothing from itself: its edges to itself are left out.
        sources = [i for i, meaning in enumerate(meanings) if meaning != "target"]
        values, low, high = (
            torch.cat([received, given[sources]])
            for received, given in zip(
                *((own.value(), *own.ends()) for _, own in found), strict=True
            )
        )
        count = len(names)
        return LayerCurves(
            title="Shares of all saliency by role",
            names=(*names, *(names[i] for i in sources)),
            values=values,
            low=low,
            high=high,
            y_title="share of saliency",
            note=basis(self),
            meanings=(*meanings, *(meanings[i] for i in sources)),
            panels=(
                Panel("Of the layer: which tokens receive", tuple(range(count))),
                Panel("Of the target's row: from which tokens", tuple(range(count, len(values)))),
            ),
            y_range=(-0.04, 1.04),
        )

    def figures(self) -> list[Figure]:
        """The flow, the same beside random tokens, and shares of all saliency by role."""
        from icl_mech.measurements.saliency.texts import flow_figures

        return flow_figures(self)

    def summary(self) -> str:
        """What lies above random tokens early and late, and the shares themselves."""
        into, out_of = self.above_null("wp", "first"), self.above_null("pq", "last")
        shares = (
            f"S_wp {self.share('wp', 'first')} in the first third, S_pq "
            f"{self.share('pq', 'last')} in the last"
        )
        if into is None or out_of is None:
            return f"shares: {shares}"
        return (
            f"label words above random tokens: into them {into[1]} in the first third, from them "
            f"{out_of[1]} in the last (shares {shares}, near 1 in any network)"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per score and layer."""
        import pandas as pd

        return pd.DataFrame(
            {
                "score": score,
                "layer": layer,
                "share": float(self.values[i, layer]),
                "low": float(self.low[i, layer]),
                "high": float(self.high[i, layer]),
                "mean_saliency": float(self.per_prompt[:, i, layer].mean()),
            }
            for i, score in enumerate(SCORES)
            for layer in range(self.values.shape[1])
        )
