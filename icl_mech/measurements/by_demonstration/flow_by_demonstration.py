"""Information flow by demonstration: which of many demonstrations are read?

With the saliency `I_l`, label positions `p_d` of demonstrations `d` and the target `q`:

* `S_wp^d` = mean of `I_l[p_d, j]` over `j < p_d`, and `S_pq^d` = `I_l[q, p_d]`. Means over
  demonstrations weighted by their numbers of edges (`p_d`, and 1) are `S_wp` and `S_pq`;
* the target's saliency from a whole demonstration: the sum of `I_l[q, j]` over all its tokens `j`, except
  the first one of the prompt, which models attend to whatever it is.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1, whose sums are over all demonstrations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import PromptError, ResultError, RunError, near_matches
from icl_mech.measurements.base import Pass
from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOutResult
from icl_mech.measurements.by_demonstration.parts import of_demonstrations
from icl_mech.measurements.demonstrations import check_same_count
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.reduction import (
    SALIENCY,
    SECTION,
    OfSaliency,
    RoleFlowReading,
    ends_of_third,
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
from icl_mech.results import Definition, Quantity, Result, function_of_means
from icl_mech.results.judging import Status, judged
from icl_mech.results.quantities import kept

DEFINITIONS = (
    SALIENCY,
    Definition(
        "flow of one demonstration",
        r"S_{wp}^d = \frac{1}{p_d} \sum_{j<p_d} I_l[p_d, j], \qquad S_{pq}^d = I_l[q, p_d]",
        "Mean saliency of the edges into the label word p of demonstration d, and saliency of the "
        "edge from it to the target q. Their means over demonstrations, weighted by the number of "
        "edges, are S_wp and S_pq.",
        SECTION,
    ),
    Definition(
        "what the target reads from a demonstration",
        r"\sum_{j \in d} I_l[q, j] \Big/ \sum_{j<q} I_l[q, j]",
        "Fraction of all saliency received by the target q that comes from the tokens of "
        "demonstration d: its text, label word and template, but not the first token of the "
        "prompt, which models attend to whatever it is. Computed from means over prompts.",
    ),
    Definition(
        "recency",
        r"\sum_{d > D/2} s_d - \sum_{d < D/2} s_d, \qquad s_d = S_{pq}^d \Big/ \sum_{d'} S_{pq}^{d'}",
        "Fraction of the saliency from label words to the target that belongs to the later half "
        "of the D demonstrations, minus that of the earlier half; mean over a third of the "
        "layers.",
    ),
)

AMONG = "fraction of the label words' saliency"


class Most(NamedTuple):
    """The demonstration with the largest fraction of the saliency from label words to the target.

    Attributes:
        back: Its position, counted back from the query, from 1.
        share: This fraction.
    """

    back: int
    share: float


@dataclass(frozen=True, eq=False, kw_only=True)
class FlowByDemonstrationResult(Result):
    """Saliency at single demonstrations, in prompt order.

    Attributes:
        wp: `S_wp` of each: mean saliency of the edges into its label word.
        pq: `S_pq` of each: saliency of the edge from its label word to the target; not-a-number where
            windowed attention leaves it out.
        read: Sum over the edges from all its tokens but the prompt's first to the target; None without
            text roles.
        received: Sum over all edges into the target.
        edges: Number of edges into each label word.
        distance: Number of tokens from each label word to the target.
        classes: Class that each displays.
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

    shows: ClassVar[tuple[str, ...]] = ("", "layers")
    axis_labels: ClassVar[Mapping[str, str]] = {"label": "labels"}
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    def quantities(self) -> dict[str, Quantity]:
        """Fraction `pq_share` of the saliency from label words to the target, by demonstration and layer.

        The other quantities are `wp_share` of the saliency into label words (per edge), `read_share` of all
        saliency into the target, the same by class, and the saliency itself.
        """
        dims, edge = ("demo", "layer"), "mean saliency per edge"
        quantities = {
            "pq_share": Quantity(dims, self.pq, function_of_means(self.pq, normalised_flow), AMONG),
            "wp_share": Quantity(dims, self.wp, function_of_means(self.wp, normalised_flow), AMONG),
        }
        if (both := self._read_of_all()) is not None:
            share = function_of_means(both, _of_last)
            quantities["read_share"] = Quantity(
                dims, both, share, "fraction of what the target receives"
            )
        quantities |= {
            "pq": Quantity(dims, self.pq, unit=edge, kind="amount"),
            "wp": Quantity(dims, self.wp, unit=edge, kind="amount"),
        }
        by_class = self.by_class("pq")
        if not bool(by_class.isnan().any()):
            quantities["class_pq"] = Quantity(
                ("label", "layer"), by_class, unit=edge, kind="amount"
            )
        return quantities

    def _read_of_all(self) -> Tensor | None:
        """Saliency into the target from each demonstration and, last, in total."""
        return None if self.read is None else torch.cat([self.read, self.received[:, None]], dim=1)

    @property
    def prompts(self) -> int:
        """Number of prompts."""
        return len(self.pq)

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
        """Scores `wp` or `pq` of each class's demonstrations, weighted by their edges; NaN where it has none.

        Raises:
            ResultError: an unknown score.
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
    @kept
    def recency(self, third: str = "last") -> Interval:
        """Excess of the later half of the demonstrations in the label words' saliency.

        The fraction of the later half minus that of the earlier half (a middle one counts in neither), mean
        over a third of the layers. 0 if all are read equally; 1 if only later ones are read.

        Raises:
            ResultError: unknown third, or a single demonstration.
        """
        if self.count < 2:
            raise ResultError("Recency compares demonstrations, but these prompts have only one.")
        layers, half = third_of(self.pq.shape[2], third), self.count // 2
        sign = torch.zeros(self.count, dtype=torch.float64)
        sign[:half], sign[-half:] = -1.0, 1.0

        def statistic(means: Tensor) -> Tensor:
            shares = normalised_flow(means)[..., layers]
            # Where a window excludes some label words, the others have larger fractions by construction.
            some = shares.isnan().any(-2, keepdim=True)
            return (known_mean(shares.masked_fill(some, torch.nan), -1) * sign).sum(-1)

        low, high = bootstrap_interval(self.pq, statistic)
        return holding(float(statistic(known_mean(self.pq, 0))), float(low), float(high))

    @checked(ResultError)
    def agreement(self, left_out: LeaveOneOutResult, third: str = "last") -> Interval:
        """Rank correlation between reading a demonstration and the effect of leaving it out, mean over prompts.

        Per prompt, Spearman's correlation over demonstrations between the target's saliency from
        each (mean over a third of the layers) and the absolute change of the
        log-probability of the true label when it is left out.

        Raises:
            ResultError: another prompt set, fewer than three demonstrations, or no text roles.
        """
        if self.count < 3 or self.read is None:
            raise ResultError(
                "A rank correlation needs at least three demonstrations and text roles for their "
                f"tokens; this result has {self.count} demonstrations (text roles: "
                f"{self.read is not None})."
            )
        digests = [
            result.provenance.get("prompts", {}).get("digest") for result in (self, left_out)
        ]
        if digests[0] != digests[1] or left_out.change.shape != self.pq.shape[:2]:
            raise ResultError(
                "The two results are from different prompts; measure both on the same prompts."
            )
        layers = third_of(self.pq.shape[2], third)
        read = self.read[..., layers].mean(-1)
        return mean_interval(rank_agreement(read, left_out.change.abs()), "correlation")

    @property
    def status(self) -> Status:
        """Status of the claim that the target reads later demonstrations more, in the last third of the layers."""
        return judged(self.recency(), prompts=self.prompts)

    def layers_of(self, third: str) -> tuple[int, int]:
        """First and last layer of the `first` or `last` third.

        Raises:
            ResultError: unknown third.
        """
        return ends_of_third(self.pq.shape[2], third)

    def most_read(self, third: str) -> Most | None:
        """The demonstration whose label word is read most in a third of the layers; None if none is within reach.

        Raises:
            ResultError: unknown third.
        """
        layers = third_of(self.pq.shape[2], third)
        shares = known_mean(self.quantities()["pq_share"].value()[:, layers], -1)
        if bool(shares.isnan().all()):
            return None
        shares = shares.nan_to_num(0.0)
        return Most(self.count - int(shares.argmax()), float(shares.max()))

    def shares_of(self, third: str) -> dict[str, Float[Tensor, "end demo"]]:
        """Fractions `pq_share` and, where known, `read_share`, over a third of the layers, with intervals.

        Raises:
            ResultError: unknown third.
        """
        layers = third_of(self.pq.shape[2], third)
        samples: dict[str, tuple[Tensor, Callable[[Tensor], Tensor]]]
        samples = {"pq_share": (self.pq, normalised_flow)}
        if (both := self._read_of_all()) is not None:
            samples["read_share"] = both, _of_last
        shares = {}
        for name, (per_prompt, share_of) in samples.items():
            statistic = _mean_over(layers, share_of)
            ends = bootstrap_interval(per_prompt, statistic)
            shares[name] = torch.stack([statistic(known_mean(per_prompt, 0)), *ends])
        return shares

    def on_page(self) -> tuple[str, ...]:
        """Empty for a single demonstration, which cannot be compared with others."""
        return self.shows if self.count > 1 else ()


def _mean_over(layers: slice, share_of: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Fractions by demonstration, averaged over layers."""
    return lambda means: known_mean(share_of(means)[..., layers], -1)


def _of_last(means: Float[Tensor, "*r more layer"]) -> Float[Tensor, "*r demo layer"]:
    """All rows but the last divided by the last (0 where that is 0)."""
    parts, total = means[..., :-1, :], means[..., -1:, :]
    return torch.where(total > 0, parts / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


@dataclass(frozen=True)
class FlowByDemonstration(OfSaliency[FlowByDemonstrationResult]):
    """Scores `S_wp` and `S_pq` of every demonstration, and the target's saliency from each as a whole.

    Raises:
        RunError: unknown variant, or a model on a server.
        PromptError: prompts without demonstrations or with different numbers of them, or without
            answers the loss needs.

    Source: Wang et al. 2023, §2.1, one demonstration at a time.
    """

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts whose demonstrations do not align across prompts.

        Raises:
            PromptError: prompts without demonstrations, with different numbers of them, or with
                nothing before a label word.
            RunError: a model on a server, which does not compute the sums needed.
        """
        super().check(model, data)
        check_same_count(data, "flow by demonstration")
        for number, prompt in enumerate(data):
            if prompt.label_positions[0] == 0 or prompt.label_positions[-1] >= prompt.target:
                raise PromptError(
                    f"Prompt {number} has a label word at its first token or after its target. "
                    "Flow by demonstration needs text before each label word, and the target "
                    "after all of them."
                )
        if isinstance(model, ServerModel):
            raise RunError(
                "A model on a server sums saliency over only three kinds of edges; measure flow "
                "by demonstration with a model loaded locally."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One backward pass, as for the flow scores."""
        assert self.loss is not None
        reading = RoleFlowReading.of(data, self.loss, self.reduction)
        return [Pass(data, [reading], title="flow by demonstration")]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> FlowByDemonstrationResult:
        """Saliency at the label words, and at all tokens of their demonstrations."""
        reading = RoleFlowReading.of(data, "label", self.reduction)
        _, _, into, out_of = reading.parted(read[0][0])
        places = data.label_positions[:, None].expand(-1, into.shape[1], -1)
        longest = [window - 1 if window else into.shape[2] for window in model.windows]
        reach = torch.tensor(longest)[:, None]
        wp = into.double().gather(2, places) / places.minimum(reach)
        pq = out_of.double().gather(2, places)
        pq = pq.masked_fill(data.targets[:, None, None] - places > reach, torch.nan)
        parts = None
        if all(prompt.has_text_roles for prompt in data):
            tokens = of_demonstrations(data, out_of.shape[2])
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


flow_by_demonstration = door(
    FlowByDemonstration,
    "flow_by_demonstration",
    prompts="Prompts with the same number of demonstrations each.",
    interventions="Applied before reading; saliency is that of the modified attention pattern.",
)
