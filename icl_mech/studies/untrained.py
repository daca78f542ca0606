"""Untrained networks as a control for information flow: the threshold that a claim about it must exceed.

Per edge, nearly all saliency of late layers flows to the target in any causal network: S_wp is 0 in
the last layer by definition, and few edges carry the rest. So label words are compared with a
random-token baseline, and the difference is compared with the same difference in randomly initialised networks
of the same architecture. The 95 % prediction interval for one more of them, from k, is mean ± t s sqrt(1 + 1/k);
the whole interval of a claim must lie beyond it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float
from icl_mech.errors import RunError
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.metrics import Interval, one_more
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Controlled, Required, Status, required
from icl_mech.shapes import LayerCurves, Meaning, Panel

if TYPE_CHECKING:
    import pandas as pd

CURVES = ("S_pq", "S_wp above random tokens", "S_pq above random tokens")

BEYOND = Definition(
    "beyond untrained networks",
    r"\Delta_{\text{low}} > \bar{\Delta}_0 + t_{k-1,\,0.975}\; s_0 \sqrt{1 + 1/k}",
    "Δ is the fraction of saliency per edge of label words minus that of random tokens near them; the left "
    "side is the lower end of its interval. Δ₀ is the same in k untrained (randomly initialised) networks of the "
    "same architecture, with their mean and standard deviation s₀. The right side is the upper end of the 95 % "
    "prediction interval for one more such network.",
    "ours",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class UntrainedFlow(Result):
    """Flow of randomly initialised networks, next to the flow of the model.

    Attributes:
        early: S_wp above random tokens in the first third of the layers, of each network.
        late: S_pq above random tokens in the last third, of each network.
        early_share: S_wp in the first third, of each network.
        late_share: S_pq in the last third, of each network.
        effects: S_wp in the first and S_pq in the last third of the model, above random tokens.
        own: The model's curves: S_pq, then S_wp and S_pq above random tokens, with interval ends.
        curves: The same curves of each network, without ends.
        networks: Names of the networks.
        count: Number of prompts each network was measured on.
        prompts: Number of prompts of the model.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (BEYOND,)

    early: Float[torch.Tensor, " network"]
    late: Float[torch.Tensor, " network"]
    early_share: Float[torch.Tensor, " network"]
    late_share: Float[torch.Tensor, " network"]
    effects: Float[torch.Tensor, "third end"]
    own: Float[torch.Tensor, "curve end layer"]
    curves: Float[torch.Tensor, "network curve layer"]
    networks: tuple[str, ...]
    count: int
    prompts: int | None = None

    def quantities(self) -> dict[str, Quantity]:
        """No quantities over prompts: each network is one number."""
        return {}

    def plain_table(self) -> "pd.DataFrame":
        """One row per curve and layer: the model with its interval, and each network."""
        import pandas as pd

        rows = []
        for place, curve in enumerate(CURVES):
            for layer, (value, low, high) in enumerate(self.own[place].T.tolist()):
                row = {"curve": curve, "layer": layer, "value": value, "low": low, "high": high}
                networks = self.curves[:, place, layer].tolist()
                rows.append(row | dict(zip(self.networks, networks, strict=True)))
        return pd.DataFrame(rows)

    def range(self, third: str) -> tuple[float, float]:
        """The 95 % prediction interval for one more untrained network."""
        values = (self.early if third == "first" else self.late).double()
        reach = one_more(values)
        return float(values.mean()) - reach, float(values.mean()) + reach

    def extremes(self, third: str) -> tuple[float, float]:
        """The minimum and maximum over these networks."""
        least, most = (self.early if third == "first" else self.late).aminmax()
        return float(least), float(most)

    def bound(self, third: str) -> float:
        """The upper end of the prediction interval, which a claim must exceed."""
        return self.range(third)[1]

    def beside(self, effect: Interval, third: str) -> Controlled:
        """An effect of the model with the same effect of these networks as controls."""
        values = self.early if third == "first" else self.late
        return Controlled.of(effect, networks=values.tolist())

    def status(self, effect: Interval, third: str, prompts: int) -> Status:
        """Status of the claim that an effect lies above random tokens and beyond these networks."""
        return required("saliency", self.beside(effect, third), prompts=prompts).status

    def drawing(self, show: str = "") -> LayerCurves:
        """The model's curves, and the range of the untrained networks behind them."""
        self.check_show(show)
        low, high = self.curves.amin(0), self.curves.amax(0)
        middle = self.curves.mean(0)
        rows: list[torch.Tensor] = []
        for place in range(len(CURVES)):
            rows += [torch.stack([middle[place], low[place], high[place]]), self.own[place]]
        values = torch.stack(rows)
        names = (f"untrained ({len(self.networks)})", "the model") * len(CURVES)
        meanings: tuple[Meaning, ...] = ("label",)
        return LayerCurves(
            title="Compared with untrained networks",
            names=names,
            values=values[:, 0],
            low=values[:, 1],
            high=values[:, 2],
            y_title="fraction of the layer's saliency per edge",
            note="untrained: mean and range; the model: 95 % interval",
            meanings=meanings * len(names),
            nulls=tuple(range(0, len(names), 2)),
            panels=tuple(Panel(name, (2 * i, 2 * i + 1)) for i, name in enumerate(CURVES)),
            columns=3,
        )

    # --- values for sentences ---

    def effect(self, third: str) -> Interval:
        """The model's flow above random tokens."""
        return Interval(*self.effects[0 if third == "first" else 1].tolist())

    def status_of(self, third: str) -> Status:
        """Status of the claim that it also lies beyond these networks."""
        return self.status(self.effect(third), third, self.prompts or 0)

    @property
    def late_share_here(self) -> float:
        """S_pq of the model in the last third of the layers."""
        share = self.own[0, 0]
        return float(share[-max(1, self.own.shape[-1] // 3) :].mean())

    @property
    def late_share_there(self) -> float:
        """Mean S_pq of these networks in the last third of the layers."""
        return float(self.late_share.mean())


def check_nulls(count: int | None) -> None:
    """Reject a single network.

    Raises:
        RunError: one network, which has no range.
    """
    if count == 1:
        raise RunError(
            "nulls=1 asks for one untrained network, but a range needs at least two; give 2 or more, or 0 for none."
        )


def beside_flow(
    own: FlowScores, found: Sequence[FlowScores], networks: Sequence[str], count: int
) -> UntrainedFlow:
    """Flow of untrained networks next to the flow of the model.

    Args:
        own: Flow of the model.
        found: Flow of each network.
        networks: Names of the networks.
        count: Number of prompts each was measured on.

    Raises:
        RunError: one network, or prompts without random tokens to compare with.
    """
    check_nulls(len(found))
    if own.null is None:
        raise RunError(
            "These prompts have no random tokens to compare label words with; use prompts with more text."
        )
    above = [(_above(flow, "wp", "first"), _above(flow, "pq", "last")) for flow in found]
    return UntrainedFlow(
        early=torch.tensor([early for early, _ in above]),
        late=torch.tensor([late for _, late in above]),
        early_share=torch.tensor([flow.share("wp", "first").value for flow in found]),
        late_share=torch.tensor([flow.share("pq", "last").value for flow in found]),
        effects=torch.tensor([_interval(own, "wp", "first"), _interval(own, "pq", "last")]),
        own=_curves(own).float(),
        curves=torch.stack([_curves(flow)[:, 0] for flow in found]).float(),
        networks=tuple(networks),
        count=count,
        prompts=len(own.per_prompt),
        provenance={**own.provenance, "networks": list(networks)},
    )


def _above(scores: FlowScores, score: str, third: str) -> float:
    return _interval(scores, score, third).value


def _interval(scores: FlowScores, score: str, third: str) -> Interval:
    above = scores.above_null(score, third)
    assert above is not None
    return above[1]


def _curves(scores: FlowScores) -> Float[torch.Tensor, "curve end layer"]:
    """S_pq, S_wp and S_pq above random tokens, with interval ends."""
    kinds = scores.quantities()
    share, null = kinds["share"], kinds["null_share"]
    low, high = share.ends()
    value = share.value()
    excess, excess_low, excess_high = share.minus(null)
    rows = [torch.stack([value[1], low[1], high[1]])]
    rows += [torch.stack([excess[i], excess_low[i], excess_high[i]]) for i in (0, 1)]
    return torch.stack(rows)


def beyond_untrained(
    flow: FlowScores, nulls: UntrainedFlow | None, score: str, third: str
) -> Controlled | None:
    """Flow of label words above random tokens, with the same of untrained networks as controls.

    None if there is no random-token baseline, or there are no such networks.
    """
    above = flow.above_null(score, third)
    return None if above is None or nulls is None else nulls.beside(above[1], third)


def flow_required(
    flow: FlowScores | None, nulls: UntrainedFlow | None, score: str, third: str
) -> Required:
    """Test of the claim that label words carry more than random tokens, and more than in untrained networks."""
    if flow is None:
        return required("saliency")
    effect = beyond_untrained(flow, nulls, score, third)
    return required("saliency", effect, prompts=len(flow.per_prompt))
