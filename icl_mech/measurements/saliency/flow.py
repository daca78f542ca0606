"""Information flow: how saliency is shared between three kinds of edges, by layer.

Over the saliency `I_l` of `icl_mech.measurements.saliency.maps`, diagonal excluded:

* `wp`: `S_wp` = mean of `I_l[p, j]` over label positions `p` and all `j < p` (text to label words);
* `pq`: `S_pq` = mean of `I_l[q, p]` over label positions `p` (label words to target `q`);
* `ww`: `S_ww` = mean of everything else below the diagonal.

The normalised curve takes the mean over prompts first, then divides each layer by the sum
over the three kinds. In the last layer `S_wp` is exactly 0: only row `q` has a gradient.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import GradientReading, Kept, Loss, run
from icl_mech.errors import PromptError, ResultError
from icl_mech.interventions import Intervention
from icl_mech.measurements.provenance import provenance
from icl_mech.measurements.saliency.reduction import (
    Reduction,
    check_variants,
    default_loss,
    head_sum,
    warn_if_processed,
)
from icl_mech.metrics import Interval, bootstrap_interval, flow_counts, flow_sums, normalised_flow
from icl_mech.models import ModelInfo, Site, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.segments import Segment
from icl_mech.shapes import LayerCurves

if TYPE_CHECKING:
    import pandas as pd

SCORES = ("wp", "pq", "ww")
NAMES = {
    "wp": "S_wp: text → label words",
    "pq": "S_pq: label words → target",
    "ww": "S_ww: everything else",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowScores(Result):
    """Flow scores by layer.

    Attributes:
        per_prompt: S of every prompt, kind (`wp`, `pq`, `ww`) and layer.
        values: Normalised curve: share of each kind in the layer's sum.
        low: Lower end of the 95 % bootstrap interval over prompts.
        high: Upper end.
    """

    per_prompt: Float[Tensor, "batch score layer"]
    values: Float[Tensor, "score layer"]
    low: Float[Tensor, "score layer"]
    high: Float[Tensor, "score layer"]

    def drawing(self) -> LayerCurves:
        """Share of the three kinds of edges by layer, with interval bands."""
        conditional = self.provenance.get("conditional_on_demonstrations")
        return LayerCurves(
            title="Information flow by layer",
            names=tuple(NAMES[score] for score in SCORES),
            values=self.values,
            low=self.low,
            high=self.high,
            y_title="share of the layer's saliency per edge",
            note=f"{len(self.per_prompt)} prompts, bands: 95 % bootstrap intervals over prompts"
            + (", given their shared demonstrations" if conditional else ""),
        )

    @property
    def scores(self) -> tuple[str, ...]:
        """Names along the score axis."""
        return SCORES

    def share(self, score: str, third: str) -> Interval:
        """Mean share of one kind over the `first` or `last` third of the layers.

        Raises:
            ResultError: unknown score or third.
        """
        layers = _third(self.values.shape[1], third)
        index = _score_index(score)

        def statistic(means: Tensor) -> Tensor:
            return normalised_flow(means)[..., index, layers].mean(-1)

        low, high = bootstrap_interval(self.per_prompt, statistic)
        return Interval(float(self.values[index, layers].mean()), float(low), float(high))

    def difference(self, third: str) -> Interval:
        """`S_wp - S_pq` share over the `first` or `last` third, paired over prompts.

        Raises:
            ResultError: unknown third.
        """
        layers = _third(self.values.shape[1], third)

        def statistic(means: Tensor) -> Tensor:
            shares = normalised_flow(means)[..., layers].mean(-1)
            return shares[..., 0] - shares[..., 1]

        low, high = bootstrap_interval(self.per_prompt, statistic)
        value = statistic(self.per_prompt.double().mean(0))
        return Interval(float(value), float(low), float(high))

    def summary(self) -> str:
        """Both shares in the first and last third of the layers."""
        return "; ".join(
            f"{third} third: S_wp {self.share('wp', third)}, S_pq {self.share('pq', third)}"
            for third in ("first", "last")
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


def _third(n_layers: int, third: str) -> slice:
    size = max(1, n_layers // 3)
    if third not in ("first", "last"):
        raise ResultError(f"third={third!r}; expected 'first' or 'last'.")
    return slice(0, size) if third == "first" else slice(n_layers - size, n_layers)


def _score_index(score: str) -> int:
    if score not in SCORES:
        raise ResultError(f"Unknown score {score!r}; expected one of {', '.join(SCORES)}.")
    return SCORES.index(score)


@dataclass
class FlowReading(GradientReading[Tensor]):
    """Sums of saliency by kind, `[prompt, layer, kind]`; no map is kept."""

    additive = True

    loss: Loss = "label"
    reduction: Reduction = "sum_then_abs"

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """Three sums per prompt."""
        return (len(segment.prompts), 3)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The three sums of one layer."""
        saliency = head_sum(activation, gradient, self.reduction)
        return flow_sums(
            saliency, segment.dest_classes >= 0, segment.src_classes >= 0, segment.is_target
        )

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, layer, kind]`."""
        return kept.stacked()


def flow_scores(
    model: Any,
    prompts: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> FlowScores:
    """Flow scores of every prompt and layer, and the normalised curve with intervals.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        interventions: Made before reading; saliency is that of the edited pattern.
        reduction: Absolute value after (`sum_then_abs`) or before the sum over heads.
        loss: `label`, `prediction` or `vocab`; None: `label` if the prompts have answers,
            else `prediction`.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        RunError: unknown variant.
        PromptError: prompts without demonstrations, or without answers the loss needs.

    Source: Wang et al. 2023, §2.1.
    """
    chosen: Loss = loss or default_loss(prompts)
    check_variants(chosen, reduction, prompts)
    check_flow_prompts(prompts)
    adapted = adapt(model)
    warn_if_processed(adapted)
    (sums,) = run(
        adapted, prompts, [FlowReading(chosen, reduction)], interventions,
        batch_size=batch_size, progress=progress, title="information flow",
    )  # fmt: skip
    origin = provenance(adapted, prompts, interventions, loss=chosen, reduction=reduction)
    return flow_result(sums, prompts, origin)


def check_flow_prompts(prompts: PromptBatch) -> None:
    """Refuse prompts whose scores would divide by zero.

    Raises:
        PromptError: a prompt without demonstrations, or with nothing before its label words.
    """
    counts = flow_counts(prompts.label_positions, prompts.targets)
    if bool((counts[:, :2] <= 0).any()):
        raise PromptError(
            "Flow scores need at least one demonstration with text before its label word in every "
            "prompt; build the prompts with shots >= 1."
        )


def flow_result(
    sums: Float[Tensor, "batch layer score"], prompts: PromptBatch, origin: dict[str, Any]
) -> FlowScores:
    """Scores from sums: divided by the numbers of edges, averaged, normalised."""
    counts = flow_counts(prompts.label_positions, prompts.targets)
    # A prompt can lack other edges altogether (two tokens); its S_ww is then 0, not 0/0.
    per_prompt = torch.where(
        counts[:, None] > 0, sums.double() / counts[:, None].clamp(min=1), 0.0
    ).transpose(1, 2)
    low, high = bootstrap_interval(per_prompt, normalised_flow)
    return FlowScores(
        per_prompt=per_prompt.contiguous(),
        values=normalised_flow(per_prompt.mean(0)),
        low=low,
        high=high,
        provenance=origin,
    )
