"""Information flow: how saliency is shared between three kinds of edges, by layer.

Over the saliency `I_l` of `icl_mech.measurements.saliency.saliency_maps`, diagonal excluded:

* `wp`: `S_wp` = mean of `I_l[p, j]` over label positions `p` and all `j < p` (text to label words);
* `pq`: `S_pq` = mean of `I_l[q, p]` over label positions `p` (label words to target `q`);
* `ww`: `S_ww` = mean of everything else below the diagonal.

The normalised curve takes the mean over prompts first, then divides each layer by the sum
over the three kinds. In the last layer `S_wp` is exactly 0: only row `q` has a gradient.
A layer with a window of attention has no edges that are longer: means are over those that exist,
and not-a-number where the window leaves none.

Beside the means per edge stand sums, which these hide: how all saliency of a layer is shared
between the roles of destination and source, and the same scores with random tokens in the label
words' place.

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
    MEANINGS,
    NAMES,
    SALIENCY,
    SCORES,
    FlowReading,
    OfSaliency,
    RoleFlowReading,
    score_index,
    third_of,
    thirds,
)
from icl_mech.measurements.saliency.windows import edge_means, without_edges
from icl_mech.metrics import Interval, bootstrap_interval, flow_counts, normalised_flow
from icl_mech.metrics.intervals import holding, known_mean
from icl_mech.models import LanguageModel, ServerModel
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.spans import ROLES
from icl_mech.results import Definition, Figure, Quantity, Result, basis, function_of_means
from icl_mech.results.judging import judged, opening, together
from icl_mech.results.prompts import given
from icl_mech.results.quantities import Statistic, kept
from icl_mech.results.wording import counted, layers_named, said
from icl_mech.shapes import LayerCurves

EDGE = "saliency per edge"
DEFINITIONS = (SALIENCY, *KINDS, by_roles.BY_ROLE, chance.RANDOM)


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowScores(Result):
    """Flow scores by layer, and what they hide.

    Attributes:
        per_prompt: S of every prompt, kind (`wp`, `pq`, `ww`) and layer; not-a-number where the window of
            a layer leaves no such edge.
        values: Normalised curve: share of each kind in the layer's sum.
        low: Lower end of the 95 % bootstrap interval over prompts.
        high: Upper end.
        roles: Roles of the prompts' tokens, or none (earlier versions, servers).
        role_saliency: Sum of saliency by role of destination and source, the diagonal left out.
        null: S with random tokens near the label words in their place, of every draw; None where a
            prompt has too few tokens.
        notes: What has no edges in which layers, and why.
    """

    per_prompt: Float[Tensor, "batch score layer"]
    values: Float[Tensor, "score layer"]
    low: Float[Tensor, "score layer"]
    high: Float[Tensor, "score layer"]
    roles: tuple[str, ...] = ()
    role_saliency: Float[Tensor, "batch dest_role src_role layer"] | None = None
    null: Float[Tensor, "batch draw score layer"] | None = None
    notes: tuple[str, ...] = ()

    title: ClassVar[str] = "Information flow"
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    shows: ClassVar[tuple[str, ...]] = ("", "null", "roles")
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {
        "score": SCORES,
        "dest_role": "roles",
        "src_role": "roles",
    }

    def quantities(self) -> dict[str, Quantity]:
        """`share` of the three kinds in a layer's sum, and the `saliency` per edge behind it.

        Where measured: `null_share`, the share with random tokens in place of label words; `role_share` of
        all saliency by role of destination and source; `target_share` of what the target receives.
        """
        dims, per_edge = ("score", "layer"), f"share of the layer's {EDGE}"
        values, shares = self.per_prompt, function_of_means(self.per_prompt, normalised_flow)
        per_kind = function_of_means(values, torch.clone) if bool(values.isnan().any()) else None
        found = {
            "share": Quantity(dims, values, shares, per_edge, (self.low, self.high)),
            "saliency": Quantity(dims, values, per_kind, f"mean {EDGE}", kind="amount"),
        }
        if self.null is not None:
            mean, statistic = known_mean(self.null.double(), 1), chance.share_of_null(self.null)
            found["null_share"] = Quantity(dims, mean, statistic, f"{per_edge}, random tokens")
        if self.role_saliency is not None:
            found |= by_roles.shares(self.role_saliency, self._target_row)
        return found

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
        layers, index = third_of(self.values.shape[1], third), score_index(score)
        low, high = bootstrap_interval(
            self.per_prompt,
            lambda means: known_mean(normalised_flow(means)[..., index, layers], -1),
        )
        value = float(known_mean(self.values[index, layers], -1))
        return holding(value, float(low), float(high))

    @checked(ResultError)
    def difference(self, third: str) -> Interval:
        """`S_wp - S_pq` share over the `first` or `last` third, paired over prompts.

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
        # Layers in which both have edges.
        both = (self.per_prompt.isnan().all(0) | self.null.isnan().all(1).all(0))[index, layers]

        def over(statistic: Statistic) -> Statistic:
            def shares(weights: Tensor) -> Tensor:
                found = statistic(weights)[..., index, layers]
                return known_mean(found.masked_fill(both, torch.nan), -1)

            return shares

        own = over(function_of_means(self.per_prompt, normalised_flow))
        null = Quantity((), self.per_prompt, over(chance.share_of_null(self.null)))
        above = Quantity((), self.per_prompt, own).minus(null)
        return Interval(*map(float, (null.value(), *null.ends()))), Interval(*map(float, above))

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
        if of == "target":
            return by_roles.by_group(self._target_row, self.roles, by_roles.ROW)
        return by_roles.by_group(self.role_saliency.sum(2), self.roles, by_roles.ALL)

    @property
    def target_layer(self) -> int:
        """The layer of the second half in which most saliency per edge runs from label words to the target."""
        saliency = known_mean(self.per_prompt.double(), 0)[1].nan_to_num(-1.0)
        half = len(saliency) // 2
        return half + int(saliency[half:].argmax())

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
            own, null = (self.values, self.low, self.high), self.quantities()["null_share"]
            return chance.null_curves(own, null, basis(self))
        if show == "roles":
            (_, received), (_, row) = (self.by_role(of) for of in ("receiving", "target"))
            return by_roles.role_curves(received, row, self.roles, basis(self))
        return self.sel("share").curves(
            "Information flow by layer",
            [NAMES[score] for score in SCORES],
            meanings=MEANINGS,
            stretches=thirds(self.values.shape[1]),
            y_range=(-0.04, 1.04),
        )

    def figures(self) -> list[Figure]:
        """The flow, beside random tokens, and by role; the last two where they were measured."""
        found = [_flow(self)]
        if self.null is not None:
            thirds_of = (("wp", "first"), ("pq", "last"))
            beside = [
                chance.Beside(self.share(*own), *above, _span(self, own[1]))
                for own in thirds_of
                if (above := self.above_null(*own))
            ]
            found.append(
                chance.null_figure(
                    *beside,
                    draws=self.null.shape[1],
                    of=_prompts(self),
                    prompts=len(self.per_prompt),
                )
            )
        if self.role_saliency is not None:
            received, sent = (self.by_role(of) for of in ("receiving", "target"))
            layer, roles = self.target_layer, self.roles
            found.append(by_roles.role_figure(received, sent, layer, roles, _prompts(self)))
        return found

    def summary(self) -> str:
        """What lies above random tokens early and late, and the shares themselves."""
        into, out_of = self.above_null("wp", "first"), self.above_null("pq", "last")
        shares = (
            f"S_wp {self.share('wp', 'first')} in the first third, S_pq "
            f"{self.share('pq', 'last')} in the last"
        )
        if into is None or out_of is None:
            return "; ".join([f"shares: {shares}", *self.notes])
        found = (
            f"label words above random tokens: into them {into[1]} in the first third, from them "
            f"{out_of[1]} in the last (shares {shares}, near 1 in any network)"
        )
        return "; ".join([found, *self.notes])


PICTURE = "The paper prints its own curves (GPT2-XL) as pictures only, so none is drawn here."


def _prompts(flow: FlowScores) -> str:
    return f"95 % bootstrap intervals over {counted(len(flow.per_prompt), 'prompt')}{given(flow)}"


def _span(flow: FlowScores, third: str) -> str:
    layers = third_of(flow.values.shape[1], third)
    return layers_named(layers.start, layers.stop - 1)


def _flow(flow: FlowScores) -> Figure:
    deep = flow.values.shape[1] > 1
    return Figure(
        "",
        "Do texts feed label words in early layers, and label words the target in late ones?",
        _flow_answer(flow)
        if deep
        else "Cannot be judged: the model has one layer, and nothing flows on from there (in the last "
        "layer only the target's row has any).",
        "**Share of each kind of edge in a layer's saliency, per edge**, by layer. Bands (each point for itself): "
        f"{_prompts(flow)}. The three shares of a layer add up to 1.",
        "In which layers the edges of each kind matter more than an average edge of the others."
        if deep
        else "",
        "Saliency is a first-order estimate of which attention edges matter for the loss; whether "
        "the model needs them only an intervention shows. Means per edge say nothing of totals: few "
        f"edges run from label words to the target, thousands are everything else. {PICTURE}",
        "Information flow",
    )


def _flow_answer(flow: FlowScores) -> str:
    prompts = len(flow.per_prompt)
    early, late = flow.above_null("wp", "first"), flow.above_null("pq", "last")
    if early is None or late is None:
        first = "Cannot be judged: no random tokens could be put in the label words' place"
    elif not all(isfinite(more.value) for _, more in (early, late)):
        first = "Cannot be judged: no such edges exist in a third of the layers"
    else:
        status = together(*(judged(more, prompts=prompts) for _, more in (early, late)))
        # Some untrained networks are clear of random tokens, too: a yes is said beside these only.
        yes = opening(status, counted(prompts, "prompt"), supported="", mixed="")
        first = (
            f"{yes} {'beyond' if yes else 'Beyond'} random tokens in their place, label words receive "
            f"{said(early[1], sign=True)} of the saliency per edge of {_span(flow, 'first')} and send "
            f"the target {said(late[1], sign=True)} of that of {_span(flow, 'last')}"
        ).strip()
    answer = (
        f"{first}. The shares themselves, {said(flow.share('wp', 'first'))} into label words early and "
        f"{said(flow.share('pq', 'last'))} from them late, say little: late ones are near 1 in untrained "
        "networks, too."
    )
    answer += "".join(f" {note}." for note in flow.notes)
    if flow.role_saliency is not None:
        answer += f" {by_roles.sources(*flow.by_role(), flow.target_layer)}"
    return answer


@dataclass(frozen=True)
class Flow(OfSaliency[FlowScores]):
    """Information flow by layer: `S_wp`, `S_pq`, `S_ww` of every prompt.

    With them, in the same pass, total saliency by role, and the scores of random tokens in the label
    words' place. A model on a server gives the three scores only.

    Attributes:
        draws: Number of draws of random tokens.
        seed: Of the first draw.

    Raises:
        RunError: unknown variant.
        PromptError: prompts without demonstrations, or without answers the loss needs.

    Source: Wang et al. 2023, §2.1.
    """

    draws: Count = 20
    seed: Natural = 0

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
        found = FlowScores(
            per_prompt=per_prompt.contiguous(),
            values=values,
            low=low,
            high=high,
            notes=tuple(
                note
                for kind, own in missing
                for note in without_edges(f"S_{kind}", own, model.windows)
            ),
        )
        if isinstance(model, ServerModel):
            return found
        reading = RoleFlowReading.of(data, "label", self.reduction)
        kinds, by_role, into, out_of = reading.parted(sums)
        drawn, null = chance.matched_positions(data, self.draws, self.seed), None
        if drawn is not None:
            null = chance.null_scores(drawn, kinds, into, out_of, data.targets, model.windows)
            null = null.float().contiguous()
        roles = tuple(ROLES[place] for place in reading.roles)
        role_saliency = by_role.movedim(1, -1).contiguous()
        return replace(found, roles=roles, role_saliency=role_saliency, null=null)


flow_scores = door(
    Flow,
    "flow_scores",
    prompts="Prompts with at least one demonstration each.",
    interventions="Made before reading; saliency is that of the edited pattern.",
)
