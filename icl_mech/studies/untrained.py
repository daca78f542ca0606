"""Untrained networks as a control of information flow: what a claim about it must beat.

Per edge, nearly all saliency of late layers runs to the target in any causal network: S_wp is 0 in
the last layer by definition, and few edges carry what is left. So label words are compared with random
tokens in their place, and the difference with that of networks of the same architecture that learned
nothing. One more of them would lie, 95 % of the time, within mean ± t s sqrt(1 + 1/k) of k; a claim
must lie beyond that with its whole interval.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float
from icl_mech.errors import RunError
from icl_mech.measurements.base import Options
from icl_mech.measurements.running import measured
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.measurements.saliency.scores import FlowScores
from icl_mech.metrics import Interval, one_more
from icl_mech.models import LanguageModel
from icl_mech.models.untrained import untrained
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result
from icl_mech.results.judging import Required, Status, judged, largest, p_value
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves, Panel

if TYPE_CHECKING:
    import pandas as pd

PROMPTS = 8
"""An untrained network is measured on so many prompts: their curves hardly differ."""

LARGEST = 4 << 30
"""Bytes of weights up to which untrained networks are made unless they are asked for."""

MOST_KNOWN = 256
_KNOWN: dict[tuple[Any, ...], FlowScores] = {}
"""Networks of one architecture on the same prompts are measured once in a process."""

CURVES = ("S_pq", "S_wp above random tokens", "S_pq above random tokens")

BEYOND = Definition(
    "beyond untrained networks",
    r"\Delta_{\text{low}} > \bar{\Delta}_0 + t_{k-1,\,0.975}\; s_0 \sqrt{1 + 1/k}",
    "Δ is the share of saliency per edge of label words minus that of random tokens near them, with the "
    "lower end of its interval; Δ₀ the same of k networks of the same architecture that learned nothing, "
    "with their mean and standard deviation s₀. The right side is the upper end of the 95 % prediction "
    "interval for one more such network.",
    "ours",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class UntrainedFlow(Result):
    """Flow of networks that learned nothing, beside that of the model.

    Attributes:
        early: S_wp above random tokens in the first third of the layers, of each network.
        late: S_pq above random tokens in the last third, of each network.
        early_share: S_wp itself there.
        late_share: S_pq itself there.
        own: The model's curves: S_pq, and what lies above random tokens, with interval ends.
        curves: The same estimates of each network.
        networks: What they are.
        count: Prompts each was measured on.
    """

    title: ClassVar[str] = "Untrained networks"
    definitions: ClassVar[tuple[Definition, ...]] = (BEYOND,)

    early: Float[torch.Tensor, " network"]
    late: Float[torch.Tensor, " network"]
    early_share: Float[torch.Tensor, " network"]
    late_share: Float[torch.Tensor, " network"]
    own: Float[torch.Tensor, "curve end layer"]
    curves: Float[torch.Tensor, "network curve layer"]
    networks: tuple[str, ...]
    count: int

    def quantities(self) -> dict[str, Quantity]:
        """None over prompts: each network is one number."""
        return {}

    def to_pandas(self) -> "pd.DataFrame":
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

    def bound(self, third: str) -> float:
        """Its upper end, which a claim must lie beyond."""
        return self.range(third)[1]

    def status(self, effect: Interval, third: str, prompts: int) -> Status:
        """Of the claim that an effect lies above random tokens and beyond these networks."""
        own = judged(effect, prompts=prompts)
        low, high = self.range(third)
        if (own == "supported" and effect.low <= high) or (
            own == "opposite" and effect.high >= low
        ):
            return "not shown"
        return own

    def p(self, effect: Interval, third: str, prompts: int) -> float | None:
        """One-sided, of an effect other than 0 and other than these networks', the larger of both."""
        from scipy.stats import t as student

        values = (self.early if third == "first" else self.late).double()
        count, mean = len(values), float(values.mean())
        spread = max(float(values.std()) * sqrt(1 + 1 / count), 1e-12)
        rising = effect.value > mean
        end = max(effect.low - mean, 0.0) if rising else max(mean - effect.high, 0.0)
        return largest(
            (p_value(effect, prompts=prompts), float(student.sf(end / spread, count - 1)))
        )

    def drawing(self, show: str = "") -> LayerCurves:
        """The model's curves, and the range of the untrained networks behind them."""
        self.check_show(show)
        low, high = self.curves.amin(0), self.curves.amax(0)
        middle = self.curves.mean(0)
        rows: list[torch.Tensor] = []
        for place in range(len(CURVES)):
            rows += [
                torch.stack([middle[place], low[place], high[place]]),
                self.own[place],
            ]
        values = torch.stack(rows)
        names = (f"untrained ({len(self.networks)})", "the model") * len(CURVES)
        return LayerCurves(
            title="Beside networks that learned nothing",
            names=names,
            values=values[:, 0],
            low=values[:, 1],
            high=values[:, 2],
            y_title="share of the layer's saliency per edge",
            note="untrained: mean and range; the model: 95 % interval",
            meanings=("other", "label") * len(CURVES),
            panels=tuple(Panel(name, (2 * i, 2 * i + 1)) for i, name in enumerate(CURVES)),
            columns=3,
        )

    def figures(self) -> list[Figure]:
        """What an untrained network already shows."""
        share = [told(float(own.mean())) for own in (self.early_share, self.late_share)]
        own = self.own[0, 0]
        answer = (
            "The raw share, yes: what runs from label words to the target in the last third is "
            f"{told(float(own[-max(1, len(own) // 3) :].mean()))} in this model and {share[1]} in "
            f"{counted(len(self.networks), 'network')} of its architecture that learned nothing (into label words "
            f"in the first third there: {share[0]}). What lies above random tokens in the label words' place "
            "separates them: one more untrained network would lie below "
            f"{told(self.bound('first'))} early and {told(self.bound('last'))} late."
        )
        return [
            Figure(
                "",
                "Would an untrained network show the same?",
                answer,
                "**The model beside networks of its architecture with weights as they are initialised**: share of "
                "saliency per edge from label words to the target, and what of it (and of that into label words) "
                f"lies above random tokens in their place. Grey: mean and range of {counted(len(self.networks), 'network')}, "
                f"{counted(self.count, 'prompt')} each.",
                "What of the flow is owed to training rather than to the architecture and the definition.",
                "What training on other data would give: these networks learned nothing at all.",
                "Untrained networks",
            )
        ]

    def summary(self) -> str:
        """The bounds that a claim must beat."""
        return (
            f"{counted(len(self.networks), 'untrained network')}, {counted(self.count, 'prompt')} each: late share "
            f"{told(float(self.late_share.mean()))}; above random tokens at most {told(self.bound('first'))} early, "
            f"{told(self.bound('last'))} late (95 % prediction)"
        )


def usual_nulls(model: LanguageModel) -> int:
    """How many untrained networks are measured unless something else is said."""
    size = sum(own.numel() * own.element_size() for own in model.module.parameters())
    return 3 if size <= LARGEST else 0


def untrained_flow(
    model: LanguageModel,
    prompts: PromptBatch,
    own: FlowScores,
    flow: Flow,
    count: int,
    options: Options,
) -> UntrainedFlow:
    """The flow of so many untrained networks over the first prompts.

    Costs one gradient pass for each network and each of at most `PROMPTS` prompts, and the memory
    of one more model.

    Args:
        model: Whose architecture they have.
        prompts: Those of the model.
        own: What the model gave.
        flow: The measurement it was.
        count: Number of networks, two at least.
        options: Of the run.

    Raises:
        RunError: one network, or prompts without random tokens to compare with.
        ModelError: a model that none can be made of.
    """
    if count < 2:
        raise RunError(f"nulls={count}; a range needs two untrained networks at least, 0 is none.")
    if own.null is None:
        raise RunError("These prompts have no random tokens to put in the label words' place.")
    first = prompts[: min(PROMPTS, len(prompts))]
    how = replace(options, progress=False)
    edits = repr([edit.to_dict() for edit in options.interventions])
    made_of = (model.info.architecture, model.info.dtype, model.settings, first.digest, flow, edits)
    found: list[FlowScores] = []
    for seed in range(count):
        key = (*made_of, seed)
        if (known := _KNOWN.get(key)) is None:
            known = measured(flow, untrained(model.wrapped, seed), first, **vars(how))
            if len(_KNOWN) >= MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = known
        found.append(known)
    names = [f"untrained, seed {seed}" for seed in range(count)]
    above = [(_above(one, "wp", "first"), _above(one, "pq", "last")) for one in found]
    return UntrainedFlow(
        early=torch.tensor([early for early, _ in above]),
        late=torch.tensor([late for _, late in above]),
        early_share=torch.tensor([one.share("wp", "first").value for one in found]),
        late_share=torch.tensor([one.share("pq", "last").value for one in found]),
        own=_curves(own).float(),
        curves=torch.stack([_curves(one)[:, 0] for one in found]).float(),
        networks=tuple(names),
        count=len(first),
        provenance={**own.provenance, "networks": names},
    )


def _above(scores: FlowScores, score: str, third: str) -> float:
    found = scores.above_null(score, third)
    assert found is not None
    return found[1].value


def _curves(scores: FlowScores) -> Float[torch.Tensor, "curve end layer"]:
    """S_pq, S_wp and S_pq above random tokens, with interval ends."""
    kinds = scores.quantities()
    share, null = kinds["share"], kinds["null_share"]
    low, high = share.ends()
    value = share.value()
    more, more_low, more_high = share.minus(null)
    rows = [torch.stack([value[1], low[1], high[1]])]
    rows += [torch.stack([more[i], more_low[i], more_high[i]]) for i in (0, 1)]
    return torch.stack(rows)


def flow_required(
    flow: FlowScores | None, nulls: UntrainedFlow | None, score: str, third: str
) -> Required:
    """Of the claim that label words carry more than random tokens, and than in untrained networks."""
    above = None if flow is None else flow.above_null(score, third)
    if flow is None or above is None:
        return Required("saliency", "cannot be judged", None)
    prompts = len(flow.per_prompt)
    if nulls is None:
        own = judged(above[1], prompts=prompts)
        status: Status = "cannot be judged" if own == "supported" else own
        return Required("saliency", status, p_value(above[1], prompts=prompts))
    return Required(
        "saliency",
        nulls.status(above[1], third, prompts),
        nulls.p(above[1], third, prompts),
    )


def beside(nulls: UntrainedFlow | None, third: str) -> str:
    """What untrained networks show there, in words."""
    if nulls is None:
        return "no untrained network was measured, which is required (nulls=3)"
    values = nulls.early if third == "first" else nulls.late
    return (
        f"{counted(len(values), 'untrained network')}: {told(float(values.min()))} to "
        f"{told(float(values.max()))}, one more below {told(nulls.bound(third))}"
    )
