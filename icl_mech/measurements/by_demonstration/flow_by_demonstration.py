"""Information flow demonstration by demonstration: which of many are read?

With the saliency `I_l`, label positions `p_d` of demonstrations `d` and the target `q`:

* `S_wp^d` = mean of `I_l[p_d, j]` over `j < p_d`, and `S_pq^d` = `I_l[q, p_d]`. Means over
  demonstrations weighted by their numbers of edges (`p_d`, and 1) are `S_wp` and `S_pq`;
* what the target reads of a whole demonstration: the sum of `I_l[q, j]` over all its tokens `j`, but
  for the first one of the prompt, which models attend to whatever it is.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1, whose sums are over all demonstrations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import PromptError, ResultError, RunError, near_matches
from icl_mech.measurements.base import Pass
from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOutResult, before_query
from icl_mech.measurements.demonstrations import check_same_count
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.reduction import (
    SALIENCY,
    SECTION,
    OfSaliency,
    RoleFlowReading,
    third_of,
)
from icl_mech.metrics import (
    Interval,
    bootstrap_interval,
    mean_interval,
    normalised_flow,
    rank_agreement,
)
from icl_mech.metrics.intervals import holding, known_mean
from icl_mech.models import LanguageModel, ServerModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, basis, function_of_means
from icl_mech.results.judging import judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, layers_named, said, told
from icl_mech.shapes import Grid, LayerCurves, Meaning, Panel

DEFINITIONS = (
    SALIENCY,
    Definition(
        "flow of one demonstration",
        r"S_{wp}^d = \frac{1}{p_d} \sum_{j<p_d} I_l[p_d, j], \qquad S_{pq}^d = I_l[q, p_d]",
        "Mean saliency of the edges into the label word p of demonstration d, and saliency of the edge "
        "from it to the target q. Means over demonstrations, weighted by their numbers of edges, are "
        "S_wp and S_pq.",
        SECTION,
    ),
    Definition(
        "what is read of a demonstration",
        r"\sum_{j \in d} I_l[q, j] \Big/ \sum_{j<q} I_l[q, j]",
        "Of all saliency that the target q receives, what comes from the tokens of demonstration d: its "
        "text, label word and template, but not the first token of the prompt, which models attend to "
        "whatever it is. From means over prompts.",
    ),
    Definition(
        "recency",
        r"\sum_{d > D/2} s_d - \sum_{d < D/2} s_d, \qquad s_d = S_{pq}^d \Big/ \sum_{d'} S_{pq}^{d'}",
        "Share of the later half of the D demonstrations in the saliency from label words to the target, "
        "minus that of the earlier half; mean over a third of the layers.",
    ),
)

AMONG = "share of the label words' saliency"


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowByDemonstrationResult(Result):
    """Saliency at single demonstrations, in prompt order.

    Attributes:
        wp: `S_wp` of each: mean saliency of the edges into its label word.
        pq: `S_pq` of each: saliency of the edge from its label word to the target; not-a-number where a
            window of attention leaves it out.
        read: Sum over the edges from all its tokens but the prompt's first to the target; None without
            text roles.
        received: Sum over all edges into the target.
        edges: Number of edges into each label word.
        distance: Tokens from each label word to the target.
        classes: Class each displays.
        labels: Names of the classes.
    """

    wp: Float[Tensor, "batch demo layer"]
    pq: Float[Tensor, "batch demo layer"]
    read: Float[Tensor, "batch demo layer"] | None = None
    received: Float[Tensor, "batch layer"]
    edges: Int[Tensor, "batch demo"]
    distance: Int[Tensor, "batch demo"]
    classes: Int[Tensor, "batch demo"]
    labels: tuple[str, ...] = ()

    title: ClassVar[str] = "Flow by demonstration"
    shows: ClassVar[tuple[str, ...]] = ("", "layers")
    axis_labels: ClassVar[Mapping[str, str]] = {"label": "labels"}
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    # --- numbers ---

    def quantities(self) -> dict[str, Quantity]:
        """`pq_share` of the saliency from label words to the target, by demonstration and layer.

        Beside it `wp_share` of that into label words (per edge), `read_share` of all the target
        receives, the same over classes, and the saliency behind them.
        """
        dims, edge = ("demo", "layer"), "mean saliency per edge"
        found = {
            "pq_share": Quantity(dims, self.pq, function_of_means(self.pq, normalised_flow), AMONG),
            "wp_share": Quantity(dims, self.wp, function_of_means(self.wp, normalised_flow), AMONG),
        }
        if (both := self._read_of_all()) is not None:
            share = function_of_means(both, _of_last)
            found["read_share"] = Quantity(dims, both, share, "share of what the target receives")
        found |= {
            "pq": Quantity(dims, self.pq, unit=edge, kind="amount"),
            "wp": Quantity(dims, self.wp, unit=edge, kind="amount"),
        }
        by_class = self.by_class("pq")
        if not bool(by_class.isnan().any()):
            found["class_pq"] = Quantity(("label", "layer"), by_class, unit=edge, kind="amount")
        return found

    def _read_of_all(self) -> Tensor | None:
        """What is read of each demonstration and, last, all that the target receives."""
        return None if self.read is None else torch.cat([self.read, self.received[:, None]], dim=1)

    @property
    def count(self) -> int:
        """Number of demonstrations."""
        return self.pq.shape[1]

    def scores(self) -> Float[Tensor, "batch 2 layer"]:
        """`S_wp` and `S_pq` of whole prompts: means over demonstrations, weighted by their edges."""
        weights = self.edges.double() / self.edges.sum(1, keepdim=True)
        wp = torch.einsum("bdl,bd->bl", self.wp, weights)
        return torch.stack([wp, known_mean(self.pq, 1)], dim=1)

    @checked(ResultError)
    def by_class(self, score: str) -> Float[Tensor, "batch label layer"]:
        """`wp` or `pq` of each class's demonstrations, weighted by their edges; NaN where it has none.

        Raises:
            ResultError: another score.
        """
        if score not in ("wp", "pq"):
            raise ResultError(f"score={score!r}. {near_matches(score, ('wp', 'pq'))}")
        member = torch.nn.functional.one_hot(self.classes, len(self.labels)).double()
        if score == "wp":
            member = member * self.edges[..., None]
        values = getattr(self, score)
        missing = values.isnan()
        sums = torch.einsum("bdl,bdc->bcl", values.masked_fill(missing, 0.0), member)
        return sums / torch.einsum("bdl,bdc->bcl", (~missing).double(), member)

    @checked(ResultError)
    def recency(self, third: str = "last") -> Interval:
        """How much more of the label words' saliency the later half of the demonstrations has.

        Its share minus that of the earlier half (a middle one counts in neither), mean over a third
        of the layers. With equal reading 0; 1 if only later ones are read.

        Raises:
            ResultError: unknown third, or a single demonstration.
        """
        if self.count < 2:
            raise ResultError("Recency compares demonstrations; these prompts have one.")
        layers, half = third_of(self.pq.shape[2], third), self.count // 2
        sign = torch.zeros(self.count, dtype=torch.float64)
        sign[:half], sign[-half:] = -1.0, 1.0

        def statistic(means: Tensor) -> Tensor:
            shares = normalised_flow(means)[..., layers]
            # Where a window leaves out some label words, the others have more by construction.
            some = shares.isnan().any(-2, keepdim=True)
            return (known_mean(shares.masked_fill(some, torch.nan), -1) * sign).sum(-1)

        low, high = bootstrap_interval(self.pq, statistic)
        return holding(float(statistic(known_mean(self.pq, 0))), float(low), float(high))

    @checked(ResultError)
    def agreement(self, left_out: LeaveOneOutResult, third: str = "last") -> Interval:
        """Rank correlation of what is read with what leaving it out changes, mean over prompts.

        Per prompt, Spearman's correlation over demonstrations of the saliency that the target reads
        of each (mean over a third of the layers) with how far leaving it out moves the
        log-probability of the true label, up or down.

        Raises:
            ResultError: another prompt set, fewer than three demonstrations, or no text roles.
        """
        if self.count < 3 or self.read is None:
            raise ResultError(
                f"{self.count} demonstrations, text roles: {self.read is not None}; a rank correlation "
                "needs three or more whose tokens are known."
            )
        digests = [own.provenance.get("prompts", {}).get("digest") for own in (self, left_out)]
        if digests[0] != digests[1] or left_out.change.shape != self.pq.shape[:2]:
            raise ResultError("The two results are of different prompts; measure both on one set.")
        layers = third_of(self.pq.shape[2], third)
        read = self.read[..., layers].mean(-1)
        return mean_interval(rank_agreement(read, left_out.change.abs()), "correlation")

    # --- showing ---

    def drawing(self, show: str = "") -> LayerCurves | Grid:
        """What is read of each demonstration, counted back from the query.

        Args:
            show: Nothing: shares in the last third of the layers; `layers`: of every layer.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        if show == "layers":
            places = list(reversed(range(self.count)))
            return self.sel("pq_share", demo=places).heatmap(
                "Saliency from each label word to the target",
                row_title="demonstrations back",
                rows=tuple(range(1, self.count + 1)),
            )
        layers, rows = third_of(self.pq.shape[2], "last"), []
        kinds: list[tuple[str, Tensor, Callable[[Tensor], Tensor]]]
        kinds = [("label words", self.pq, normalised_flow)]
        if (both := self._read_of_all()) is not None:
            kinds.append(("whole demonstrations", both, _of_last))
        for _, samples, function in kinds:
            statistic = _counted_back(function, layers)
            low, high = bootstrap_interval(samples, statistic)
            rows.append(torch.stack([statistic(known_mean(samples, 0)), low, high]))
        panels = (
            Panel("label words", (0,), AMONG, ((1 / self.count, "all alike"),)),
            Panel("whole demonstrations", (1,), "share of all that the target receives"),
        )
        values, low, high = torch.stack(rows, dim=1)
        meanings: tuple[Meaning, ...] = ("label", "text")
        return LayerCurves(
            "Which demonstrations the target reads, last third of the layers",
            tuple(name for name, _, _ in kinds),
            *(values, low, high),
            y_title=AMONG,
            note=basis(self),
            x=tuple(map(float, range(1, self.count + 1))),
            x_title="demonstrations back from the query",
            meanings=meanings[: len(kinds)],
            panels=panels[: len(kinds)],
        )

    def figures(self) -> list[Figure]:
        """Which demonstrations are read, and where."""
        if self.count < 2:
            return []
        effect, count = self.recency(), counted(len(self.pq), "prompt")
        last = third_of(self.pq.shape[2], "last")
        shares, most = self.quantities()["pq_share"].value(), []
        for third in ("first", "last"):
            own = known_mean(shares[:, third_of(self.pq.shape[2], third)], -1)
            if bool(own.isnan().all()):
                most.append(f"the {third} third of the layers the target reaches no label word")
                continue
            own = own.nan_to_num(0.0)
            place, share = before_query(self.count - int(own.argmax())), told(float(own.max()))
            most.append(f"the {third} third of the layers {place} has most ({share})")
        words = {"supported": "The later ones.", "opposite": "The earlier ones."}
        opens = opening(judged(effect, prompts=len(self.pq)), count, **words)
        return [
            Figure(
                question="Which demonstrations does the target read?",
                answer=f"{opens} Of the saliency from label words to the target in the last third of "
                f"the layers, the later half of the demonstrations has {said(effect, sign=True)} more "
                "than the earlier half.",
                caption="**What the target reads of each demonstration, counted back from the "
                "query**: share of the saliency from label words, and of all saliency that the target "
                f"receives, mean of {layers_named(last.start, last.stop - 1)}. Bands (each point for "
                f"itself): 95 % bootstrap intervals over {count}{given(self)}. Dashes: all "
                "demonstrations alike.",
                establishes="Which of many demonstrations matter for the loss, to first order.",
                limits="that the others could go: what leaving one out changes is measured by "
                "leaving it out.",
                short="Flow by demonstration",
            ),
            Figure(
                "layers",
                question="Does that change with depth?",
                answer=f"In {', in '.join(most)}.",
                caption="**Share of each demonstration's label word in the saliency from label words "
                f"to the target**, by layer; demonstrations counted back from the query. {count}.",
                limits="how much saliency there is in a layer: each row adds up to 1.",
                short="Flow by demonstration and layer",
            ),
        ]

    def summary(self) -> str:
        """How much more later demonstrations are read."""
        if self.count < 2:
            return f"one demonstration, {len(self.pq)} prompts"
        return (
            f"{self.count} demonstrations; later half minus earlier half, last third of the layers: "
            f"{self.recency()}"
        )


def _counted_back(
    function: Callable[[Tensor], Tensor], layers: slice
) -> Callable[[Tensor], Tensor]:
    """Mean over layers, the demonstration before the query first."""
    return lambda means: known_mean(function(means)[..., layers], -1).flip(-1)


def _of_last(means: Float[Tensor, "*r more layer"]) -> Float[Tensor, "*r demo layer"]:
    """All rows but the last divided by the last (0 where that is 0)."""
    parts, total = means[..., :-1, :], means[..., -1:, :]
    return torch.where(total > 0, parts / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


@dataclass(frozen=True)
class FlowByDemonstration(OfSaliency[FlowByDemonstrationResult]):
    """`S_wp` and `S_pq` of every demonstration, and what the target reads of each as a whole.

    Raises:
        RunError: unknown variant, or a model on a server.
        PromptError: prompts without demonstrations or with different numbers of them, or without
            answers the loss needs.

    Source: Wang et al. 2023, §2.1, one demonstration at a time.
    """

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts whose demonstrations do not stand in the same places of a row.

        Raises:
            PromptError: prompts without demonstrations, with different numbers of them, or with
                nothing before a label word.
            RunError: a model on a server, which adds up too little.
        """
        super().check(model, data)
        check_same_count(data, "flow by demonstration")
        for number, prompt in enumerate(data):
            if prompt.label_positions[0] == 0 or prompt.label_positions[-1] >= prompt.target:
                raise PromptError(
                    f"Prompt {number} has a label word at its first token or after its target; "
                    "flow by demonstration needs text before each label word, and the target last."
                )
        if isinstance(model, ServerModel):
            raise RunError(
                "A model on a server adds up saliency by three kinds of edges only; measure flow by "
                "demonstration with a local model."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One backward pass, that of the flow scores."""
        assert self.loss is not None
        reading = RoleFlowReading.of(data, self.loss, self.reduction)
        return [Pass(data, [reading], title="flow by demonstration")]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> FlowByDemonstrationResult:
        """What stands at the label words, and at all tokens of their demonstrations."""
        reading = RoleFlowReading.of(data, "label", self.reduction)
        _, _, into, out_of = reading.parted(read[0][0])
        places = data.label_positions[:, None].expand(-1, into.shape[1], -1)
        longest = [own - 1 if own else into.shape[2] for own in model.windows]
        reach = torch.tensor(longest)[:, None]
        wp = into.double().gather(2, places) / places.minimum(reach)
        pq = out_of.double().gather(2, places)
        pq = pq.masked_fill(data.targets[:, None, None] - places > reach, torch.nan)
        parts = None
        if all(prompt.has_text_roles for prompt in data):
            tokens = _of_demonstrations(data, out_of.shape[2])
            parts = torch.einsum("bls,bds->bdl", out_of.double(), tokens)
        return FlowByDemonstrationResult(
            wp=wp.transpose(1, 2).contiguous(),
            pq=pq.transpose(1, 2).contiguous(),
            read=parts,
            received=out_of.double().sum(2),
            edges=data.label_positions,
            distance=data.targets[:, None] - data.label_positions,
            classes=data.label_classes,
            labels=data.labels,
        )


def _of_demonstrations(prompts: PromptBatch, width: int) -> Float[Tensor, "batch demo pos"]:
    """1 at the tokens of each demonstration: its text, label word and template.

    The first token of a prompt counts in none: models attend to it whatever it is.
    """
    found = torch.zeros(len(prompts), prompts.n_demos, width, dtype=torch.float64)
    for row, prompt in enumerate(prompts):
        for span in prompt.spans:
            if span.demo is not None:
                found[row, span.demo, span.start : span.stop] = 1
    found[..., 0] = 0
    return found


flow_by_demonstration = door(
    FlowByDemonstration,
    "flow_by_demonstration",
    prompts="Prompts with the same number of demonstrations each.",
    interventions="Made before reading; saliency is that of the edited pattern.",
)
