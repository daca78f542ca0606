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
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.engine import GradientReading, Kept, Loss, Path
from icl_mech.errors import PromptError, ResultError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Pass
from icl_mech.measurements.running import measured
from icl_mech.measurements.saliency.reduction import OfSaliency, Reduction, head_sum
from icl_mech.metrics import Interval, bootstrap_interval, flow_counts, flow_sums, normalised_flow
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Quantity, Result, basis, function_of_means
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

    title: ClassVar[str] = "Information flow"

    def quantities(self) -> dict[str, Quantity]:
        """`share` of the three kinds in a layer's sum, and the `saliency` per edge behind it."""
        dims = ("score", "layer")
        shares = function_of_means(self.per_prompt, normalised_flow)
        return {
            "share": Quantity(
                dims, self.per_prompt, shares, "share of the layer's saliency per edge"
            ),
            "saliency": Quantity(dims, self.per_prompt, unit="mean saliency per edge"),
        }

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the scores."""
        return {"score": SCORES}

    def drawing(self) -> LayerCurves:
        """Share of the three kinds of edges by layer, with interval bands."""
        return LayerCurves(
            title="Information flow by layer",
            names=tuple(NAMES[score] for score in SCORES),
            values=self.values,
            low=self.low,
            high=self.high,
            y_title="share of the layer's saliency per edge",
            note=basis(self),
        )

    @property
    def scores(self) -> tuple[str, ...]:
        """Names along the score axis."""
        return SCORES

    @checked(ResultError)
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

    @checked(ResultError)
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

    def edges(self, segment: Segment) -> tuple[str, Float[Tensor, "batch kind dest src"]]:
        """What `flow_sums` sums over."""
        dest, src = segment.dest.shape[1], segment.src.shape[1]
        before = (
            torch.ones(dest, src, dtype=torch.bool).tril(src - dest - 1).to(segment.dest.device)
        )
        to_labels = before & (segment.dest_classes >= 0)[:, :, None]
        to_target = before & (segment.src_classes >= 0)[:, None] & segment.is_target[:, :, None]
        # A target that is itself a label word has edges of both kinds.
        kinds = torch.stack([to_labels, to_target], dim=1).float()
        rest = before.float() - kinds.sum(1)
        return self.reduction, torch.cat([kinds, rest[:, None]], dim=1)

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, layer, kind]`."""
        return kept.stacked()


@dataclass(frozen=True)
class Flow(OfSaliency[FlowScores]):
    """Information flow by layer: `S_wp`, `S_pq`, `S_ww` of every prompt."""

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts whose scores would divide by zero.

        Raises:
            PromptError: a prompt without demonstrations, or with nothing before its label words.
        """
        super().check(model, data)
        counts = flow_counts(data.label_positions, data.targets)
        if bool((counts[:, :2] <= 0).any()):
            raise PromptError(
                "Flow scores need at least one demonstration with text before its label word in "
                "every prompt; build the prompts with shots >= 1."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One backward pass."""
        assert self.loss is not None
        reading = FlowReading(self.loss, self.reduction)
        return [Pass(data, [reading], title="information flow")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> FlowScores:
        """Scores from sums: divided by the numbers of edges, averaged, normalised."""
        (sums,) = read[0]
        counts = flow_counts(data.label_positions, data.targets)
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
        )


def flow_scores(
    model: Any,
    prompts: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
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
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `engine.run`.
        progress: Show a progress bar.

    Raises:
        RunError: unknown variant.
        PromptError: prompts without demonstrations, or without answers the loss needs.

    Source: Wang et al. 2023, §2.1.
    """
    return measured(
        Flow(loss, reduction), model, prompts, interventions=interventions,
        batch_size=batch_size, memory=memory, path=path, progress=progress,
    )  # fmt: skip
