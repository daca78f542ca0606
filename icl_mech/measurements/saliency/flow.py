"""Information flow: the distribution of saliency over three types of edges, by layer.

Over the saliency `I_l` of `icl_mech.measurements.saliency.saliency_maps`, diagonal excluded:

* `wp`: `S_wp` = mean of `I_l[p, j]` over label positions `p` and all `j < p` (text to label words);
* `pq`: `S_pq` = mean of `I_l[q, p]` over label positions `p` (label words to target `q`);
* `ww`: `S_ww` = mean of everything else below the diagonal.

The normalised curve takes the mean over prompts first, then divides each layer by the sum
over the three types. In the last layer `S_wp` is exactly 0: only row `q` has a gradient.
A layer with windowed attention has no edges longer than its window: means are over existing edges,
and not-a-number where the window leaves none.

Since means per edge hide sums, these are measured too: the distribution of all saliency of a layer
over the roles of destination and source, and the same scores with random tokens in place of the
label words.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import PromptError, ResultError
from icl_mech.measurements.base import Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency import null as chance
from icl_mech.measurements.saliency import roles as by_roles
from icl_mech.measurements.saliency.reduction import (
    KINDS,
    SALIENCY,
    SCORES,
    FlowReading,
    OfSaliency,
    RoleFlowReading,
    ends_of_third,
    score_index,
    third_of,
)
from icl_mech.measurements.saliency.windows import edge_means, without_edges
from icl_mech.metrics import Interval, bootstrap_interval, flow_counts, normalised_flow
from icl_mech.metrics.intervals import holding, known_mean
from icl_mech.models import LanguageModel, ServerModel
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.spans import ROLES
from icl_mech.results import Definition, Quantity, Result, function_of_means
from icl_mech.results.judging import Status, judged, together
from icl_mech.results.quantities import Statistic, kept

EDGE = "saliency per edge"
DEFINITIONS = (SALIENCY, *KINDS, by_roles.BY_ROLE, chance.RANDOM)


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowScores(Result):
    """Flow scores by layer, with saliency sums by role and a random-token baseline.

    Attributes:
        per_prompt: S of every prompt, type (`wp`, `pq`, `ww`) and layer; not-a-number where the window of
            a layer leaves no such edge.
        values: Normalised curve: fraction of each type in the layer's sum.
        low: Lower end of the 95 % bootstrap interval over prompts.
        high: Upper end.
        roles: Roles of the prompts' tokens, or none (earlier versions, servers).
        role_saliency: Sum of saliency by role of destination and source, the diagonal left out.
        null: S with random tokens near the label words in their place, for every draw; None where a
            prompt has too few tokens.
        notes: Which scores have no edges in which layers, and why.
    """

    per_prompt: Float[Tensor, "batch score layer"]
    values: Float[Tensor, "score layer"]
    low: Float[Tensor, "score layer"]
    high: Float[Tensor, "score layer"]
    roles: tuple[str, ...] = ()
    role_saliency: Float[Tensor, "batch dest_role src_role layer"] | None = None
    null: Float[Tensor, "batch draw score layer"] | None = None
    notes: tuple[str, ...] = ()

    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    shows: ClassVar[tuple[str, ...]] = ("", "null", "roles")
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {
        "score": SCORES,
        "dest_role": "roles",
        "src_role": "roles",
    }

    near: ClassVar[int] = chance.NEAR
    """Maximum distance of random tokens from their label word, if there are any within it."""

    def quantities(self) -> dict[str, Quantity]:
        """`share`: fraction of each of the three types in a layer's sum; and the `saliency` per edge behind it.

        Where measured: `null_share`, the fraction with random tokens in place of label words; `role_share`,
        fractions of all saliency by role of destination and source; `target_share`, fractions of the
        saliency into the target.
        """
        dims, per_edge = ("score", "layer"), f"fraction of the layer's {EDGE}"
        values, shares = self.per_prompt, function_of_means(self.per_prompt, normalised_flow)
        per_kind = function_of_means(values, torch.clone) if bool(values.isnan().any()) else None
        quantities = {
            "share": Quantity(dims, values, shares, per_edge, (self.low, self.high)),
            "saliency": Quantity(dims, values, per_kind, f"mean {EDGE}", kind="amount"),
        }
        if self.null is not None:
            mean, statistic = known_mean(self.null.double(), 1), chance.share_of_null(self.null)
            quantities["null_share"] = Quantity(dims, mean, statistic, f"{per_edge}, random tokens")
        if self.role_saliency is not None:
            quantities |= by_roles.shares(self.role_saliency, self._target_row)
        return quantities

    @property
    def scores(self) -> tuple[str, ...]:
        """Names along the score axis."""
        return SCORES

    @property
    def _target_row(self) -> Float[Tensor, "batch src_role layer"]:
        assert self.role_saliency is not None
        return self.role_saliency[:, self.roles.index("target")]

    @checked(ResultError)
    @kept
    def share(self, score: str, third: str) -> Interval:
        """Mean fraction of one type over the `first` or `last` third of the layers.

        Raises:
            ResultError: unknown score or third.
        """
        layers, index = third_of(self.values.shape[1], third), score_index(score)
        low, high = bootstrap_interval(
            self.per_prompt,
            lambda means: known_mean(normalised_flow(means)[..., index, layers], -1),
        )
        value = float(known_mean(self.values[index, layers], -1))
        return holding(value, float(low), float(high))

    @checked(ResultError)
    def difference(self, third: str) -> Interval:
        """Difference of the fractions of `S_wp` and `S_pq` over a third of the layers, paired over prompts.

        Raises:
            ResultError: unknown third.
        """
        layers = third_of(self.values.shape[1], third)

        def gap(means: Tensor) -> Tensor:
            shares = normalised_flow(means)[..., layers]
            both = shares[..., :2, :].isnan().any(-2, keepdim=True)
            shares = known_mean(shares.masked_fill(both, torch.nan), -1)
            return shares[..., 0] - shares[..., 1]

        ends = (
            gap(known_mean(self.per_prompt.double(), 0)),
            *bootstrap_interval(self.per_prompt, gap),
        )
        return holding(*map(float, ends))

    @checked(ResultError)
    @kept
    def above_null(self, score: str, third: str) -> chance.Beside | None:
        """The fraction of one type with random tokens, and the excess of label words over it.

        The mean is over the `first` or `last` third of the layers, paired over prompts; the interval of the
        difference includes the spread of the draws of random tokens. None where no random tokens
        were drawn.

        Raises:
            ResultError: unknown score or third.
        """
        layers, index = third_of(self.values.shape[1], third), score_index(score)
        if self.null is None:
            return None
        # Layers in which both have edges.
        both = (self.per_prompt.isnan().all(0) | self.null.isnan().all(1).all(0))[index, layers]

        def over(statistic: Statistic) -> Statistic:
            def shares(weights: Tensor) -> Tensor:
                curve = statistic(weights)[..., index, layers]
                return known_mean(curve.masked_fill(both, torch.nan), -1)

            return shares

        share = Quantity(
            (), self.per_prompt, over(function_of_means(self.per_prompt, normalised_flow))
        )
        null = Quantity((), self.per_prompt, over(chance.share_of_null(self.null)))
        return chance.Beside(
            Interval(*map(float, (null.value(), *null.ends()))),
            Interval(*map(float, share.minus(null))),
        )

    @kept
    def by_role(self, of: str = "target") -> tuple[tuple[str, ...], Quantity]:
        """Fractions by groups of roles: texts, label words, template, query, target.

        Args:
            of: `target`: of the saliency into the target, by role of the source; `receiving`: of all
                saliency of a layer, by role of the destination.

        Raises:
            ResultError: saliency by role was not measured.
        """
        if self.role_saliency is None:
            raise ResultError(
                "These flow scores hold no saliency by role, because they were measured by an "
                "earlier version or on a server. Measure them again with Flow() on a model loaded "
                "locally."
            )
        if of == "target":
            return by_roles.by_group(self._target_row, self.roles, by_roles.ROW)
        return by_roles.by_group(self.role_saliency.sum(2), self.roles, by_roles.ALL)

    @property
    def target_layer(self) -> int:
        """The layer of the second half in which most saliency per edge runs from label words to the target."""
        saliency = known_mean(self.per_prompt.double(), 0)[1].nan_to_num(-1.0)
        half = len(saliency) // 2
        return half + int(saliency[half:].argmax())

    # --- facts for the summary ---

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.per_prompt)

    @property
    def n_layers(self) -> int:
        """Number of layers of the model."""
        return self.values.shape[1]

    @property
    def draws(self) -> int:
        """Number of draws of random tokens; 0 where none were drawn."""
        return 0 if self.null is None else self.null.shape[1]

    def layers_of(self, third: str) -> tuple[int, int]:
        """First and last layer of the `first` or `last` third.

        Raises:
            ResultError: unknown third.
        """
        return ends_of_third(self.n_layers, third)

    @property
    def early(self) -> chance.Beside | None:
        """Saliency into label words in the first third, compared with random tokens; None where none were drawn."""
        return self.above_null("wp", "first")

    @property
    def late(self) -> chance.Beside | None:
        """Saliency from label words to the target in the last third, compared with random tokens likewise."""
        return self.above_null("pq", "last")

    @property
    def undefined(self) -> bool:
        """True if windowed attention leaves a third of the layers no edges to compare with random tokens."""
        return any(not isfinite(third.above.value) for third in (self.early, self.late) if third)

    @property
    def status(self) -> Status:
        """Status of the claim that label words exceed random tokens, into them early and from them late.

        This also holds for some randomly initialised models (`icl_mech.studies.untrained`).
        """
        above = (third and third.above for third in (self.early, self.late))
        return together(*(judged(effect, prompts=self.count) for effect in above))

    @property
    def role_groups(self) -> tuple[str, ...]:
        """Names of the groups of roles."""
        return by_roles.grouped(self.roles)[0]

    @property
    def receivers(self) -> tuple[tuple[str, float], ...]:
        """Groups of roles that receive the saliency of `target_layer`, by fraction, largest first."""
        return by_roles.receivers(*self.by_role("receiving"), self.target_layer)

    @property
    def sources(self) -> by_roles.Sources | None:
        """Roles from which the target receives the saliency of `target_layer`; None if it receives nothing."""
        return by_roles.sources(*self.by_role("target"), self.target_layer)

    def on_page(self) -> tuple[str, ...]:
        """The flow, and the comparison with random tokens and the distribution by role, where measured."""
        known = {"null": self.null is not None, "roles": self.role_saliency is not None}
        return ("", *(show for show, there in known.items() if there))


@dataclass(frozen=True)
class Flow(OfSaliency[FlowScores]):
    """Information flow by layer: `S_wp`, `S_pq`, `S_ww` of every prompt.

    The same pass gives total saliency by role, and the scores of random tokens in place of the label
    words. A model on a server gives the three scores only.

    Attributes:
        draws: Number of draws of random tokens.
        seed: Seed of the first draw.

    Raises:
        RunError: unknown variant.
        PromptError: prompts without demonstrations, or without answers the loss needs.

    Source: Wang et al. 2023, §2.1.
    """

    draws: Count = 20
    seed: Natural = 0

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts whose scores would divide by zero.

        Raises:
            PromptError: a prompt without demonstrations, or with nothing before its label words.
        """
        super().check(model, data)
        counts = flow_counts(data.label_positions, data.targets)
        if bool((counts[:, :2] <= 0).any()):
            raise PromptError(
                "Flow scores need at least one demonstration with text before its label word in "
                "every prompt. Build the prompts with shots >= 1."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One backward pass."""
        assert self.loss is not None
        if isinstance(model, ServerModel):
            reading: FlowReading = FlowReading(self.loss, self.reduction)
        else:
            reading = RoleFlowReading.of(data, self.loss, self.reduction)
        return [Pass(data, [reading], title="information flow")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> FlowScores:
        """Scores from sums: divided by the numbers of edges, averaged, normalised."""
        (sums,) = read[0]
        means = edge_means(sums[:, :, :3], data.label_positions, data.targets, model.windows)
        per_prompt = means.transpose(1, 2)
        low, high = bootstrap_interval(per_prompt, normalised_flow)
        values = normalised_flow(known_mean(per_prompt, 0))
        missing = zip(SCORES, per_prompt.isnan().unbind(1), strict=True)
        scores = FlowScores(
            per_prompt=per_prompt.contiguous(),
            values=values,
            low=low,
            high=high,
            notes=tuple(
                note
                for score, without in missing
                for note in without_edges(f"S_{score}", without, model.windows)
            ),
        )
        if isinstance(model, ServerModel):
            return scores
        reading = RoleFlowReading.of(data, "label", self.reduction)
        kinds, by_role, into, out_of = reading.parted(sums)
        drawn, null = chance.matched_positions(data, self.draws, self.seed), None
        if drawn is not None:
            null = chance.null_scores(drawn, kinds, into, out_of, data.targets, model.windows)
            null = null.float().contiguous()
        roles = tuple(ROLES[place] for place in reading.roles)
        role_saliency = by_role.movedim(1, -1).contiguous()
        return replace(scores, roles=roles, role_saliency=role_saliency, null=null)


flow_scores = door(
    Flow,
    "flow_scores",
    prompts="Prompts with at least one demonstration each.",
    interventions="Applied before reading; saliency is that of the modified attention pattern.",
)
