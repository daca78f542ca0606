"""What is read from label words: attention by class, its AUC and R by layer, and what a page says of them.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import Interval, above_together, cumulative_share, mean_ends
from icl_mech.metrics.auc import (
    TwoClasses,
    auc_statistic,
    clearly_positive,
    curve_fields,
    resampled,
)
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import (
    FEWEST_PROMPTS,
    Required,
    Status,
    combined,
    judged,
    opening,
    required,
)
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, said
from icl_mech.shapes import LayerCurves, Meaning, Panel

SOURCE = "Wang et al. 2023, Label Words are Anchors, §2.3"


DEFINITIONS = (
    Definition(
        "attention to a class",
        r"A_l(q, c) = \sum_h \sum_{p \in c} A_{l,h}[q, p]",
        "Attention of the target q to the first tokens p of the label words that display class c, "
        "summed over the heads h of layer l.",
        SOURCE,
    ),
    Definition(
        "AUC of a layer",
        r"\text{AUC}_l = \frac{2}{C (C-1)} \sum_{a < b} \text{ROC-AUC}_{a,b}\left("
        r"\frac{A_l(q, \cdot)}{\sum_c A_l(q, c)}, \hat{y}\right)",
        "How well attention tells the predicted class ŷ: rows normalised to sum 1, ROC-AUC one "
        "class against one other, averaged over pairs of classes. 0.5 is chance, 1 means that the "
        "predicted class always gets more attention. Classes never predicted are left out.",
        SOURCE,
    ),
    Definition(
        "cumulative share R",
        r"R_l = \frac{\sum_{i \le l} (\text{AUC}_i - 0.5)}{\sum_i (\text{AUC}_i - 0.5)}",
        "Share of the whole that the layers up to l (included) give. R ends at 1 and may leave "
        "[0, 1]; where the denominator is not clearly above 0 it is undefined.",
        SOURCE,
    ),
)

AUC, SHARE = "AUCROC of attention to label words", "R: share of its sum up to this layer"

FEW = 5
"""Classes of fewer prompts are named: resampling them cannot show how uncertain they are."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExtractionResult(Result):
    """Attention to label words by class, its AUC and R by layer; ends are of 95 % intervals over prompts.

    Attributes:
        auc: AUC of each layer; not-a-number if fewer than two classes are left, and in layers whose window
            of attention reaches no label word.
        auc_low, auc_high: Ends of its intervals.
        cumulative: R after each layer; a number even where R is undefined.
        cumulative_low, cumulative_high: Its ends; not-a-number where R is undefined.
        sums: Rows: denominator of R, mean AUC of the first and of the last third of the
            layers, last minus first. Columns: value and ends.
        notes: What was left out or is undefined, and why.
        attention: `A_l(q, c)` of every prompt, in class order.
        truth_classes: Class each prompt counts as: predicted, or true with `truth="gold"`.
        classes: Classes that occur among them; the others are left out of the AUC.
        labels: Names of all classes.
        two_classes: How two classes are scored.
        redrawn: Bootstrap resamples drawn again because they lost a class.
    """

    title: ClassVar[str] = "What the prediction is read from"
    shows: ClassVar[tuple[str, ...]] = ("auc", "attention")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"label": "labels"}

    auc: Float[Tensor, " layer"]
    auc_low: Float[Tensor, " layer"]
    auc_high: Float[Tensor, " layer"]
    cumulative: Float[Tensor, " layer"]
    cumulative_low: Float[Tensor, " layer"]
    cumulative_high: Float[Tensor, " layer"]
    sums: Float[Tensor, "4 3"]
    notes: tuple[str, ...] = ()
    attention: Float[Tensor, "batch layer label"]
    truth_classes: Int[Tensor, " batch"]
    classes: tuple[int, ...]
    labels: tuple[str, ...]
    two_classes: TwoClasses = "normalised"
    redrawn: int = 0

    @property
    def defined(self) -> bool:
        """False if fewer than two classes were left."""
        return bool(self.auc.isfinite().any())

    @property
    def cumulative_defined(self) -> bool:
        """True if the denominator of R is positive and its interval excludes 0."""
        return clearly_positive(self.sums[0])

    @property
    def denominator(self) -> Interval:
        """`sum_l (AUC_l - 0.5)`."""
        return Interval(*self.sums[0].tolist())

    @property
    def first_third(self) -> Interval:
        """Mean AUC of the first third of the layers."""
        return Interval(*self.sums[1].tolist())

    @property
    def last_third(self) -> Interval:
        """Mean AUC of the last third of the layers."""
        return Interval(*self.sums[2].tolist())

    @property
    def rise(self) -> Interval:
        """Mean AUC of the last third minus that of the first, paired over prompts."""
        return Interval(*self.sums[3].tolist())

    def drawing(self, show: str = "auc") -> LayerCurves:
        """`auc`: AUC and, where it is defined, R in a panel of its own; or the `attention` behind them."""
        self.check_show(show)
        return self._attention() if show == "attention" else self._curves()

    def _curves(self) -> LayerCurves:
        about: tuple[Meaning, ...] = ("label", "label")
        values = [(self.auc, self.auc_low, self.auc_high)]
        panels = [
            Panel("AUC by layer", (0,), "AUC", levels=((0.5, "chance"),), y_range=(-0.04, 1.06))
        ]
        if self.cumulative_defined:
            values.append((self.cumulative, self.cumulative_low, self.cumulative_high))
            title = "Share of its sum up to each layer, R"
            panels.append(Panel(title, (1,), "R", levels=((0.5, "one half"),)))
        rows = [torch.stack(column) for column in zip(*values, strict=True)]
        third = max(1, len(self.auc) // 3)
        last = len(self.auc) - 1
        first = (0.0, third - 1.0, "first third")
        stretches = (first, (last - third + 1.0, float(last), "last third"))
        return LayerCurves(
            title="Extraction from label words by layer",
            names=("AUC", "R")[: len(values)],
            values=rows[0],
            low=rows[1],
            high=rows[2],
            y_title="AUC",
            note="; ".join([self.note(), *self.notes]),
            meanings=about[: len(values)],
            panels=tuple(panels),
            stretches=stretches if len(self.auc) >= 6 and len(values) == 1 else (),
        )

    def _attention(self) -> LayerCurves:
        own, others = self._own_and_others
        value = torch.stack([own.mean(0), others.mean(0)])
        low, high = mean_ends(torch.stack([own, others], dim=1))
        return LayerCurves(
            title="Attention from the target to label words",
            names=(
                f"its {self.truth} class",
                "the other class" if self.attention.shape[-1] == 2 else "other classes, mean",
            ),
            values=value,
            low=low,
            high=high,
            y_title="attention, summed over heads",
            note=basis(self),
            meanings=("label", "other"),
        )

    def summary(self) -> str:
        """Mean AUC early and late, where R passes one half, and what is undefined."""
        if not self.defined:
            return "AUC of attention to label words: " + "; ".join(self.notes)
        rise = self.rise
        verdict = "no clear change"
        if self.rare and not self.left_out:
            verdict = f"no verdict, only few prompts of {listed(self.rare)}"
        elif rise.low > 0 or rise.high < 0:
            verdict = "rising with depth" if rise.low > 0 else "falling with depth"
        text = (
            f"AUC of attention to label words: {said(self.first_third)} in the first third of the "
            f"layers, {said(self.last_third)} in the last, difference {said(rise, sign=True)}: {verdict}"
        )
        if self.cumulative_defined:
            text += f"; R passes one half in layer {self.half_layer} of 0 to {len(self.auc) - 1}"
        return "; ".join([text, *self.notes])

    @property
    def half_layer(self) -> int:
        """The first layer after which R is one half or more."""
        return int((self.cumulative >= 0.5).int().argmax())

    def more_columns(self) -> Mapping[str, Any]:
        """Whether R is defined."""
        return {"cumulative_defined": self.cumulative_defined}

    @property
    def status(self) -> Status:
        """Of the claim that the prediction is read from label words in late layers.

        AUC in the last third of the layers must lie above chance, and above that in the first. It is
        judged without classes of too few prompts to be resampled; where fewer than two others are
        left, a positive finding does not count.
        """
        return self.required.status

    @property
    def required(self) -> Required:
        """The same as a measure that a claim requires, with its p-value."""
        last, change, prompts = self.judged_on
        late = required("attention", last, null=0.5, prompts=prompts)
        own = combined("attention", [late, required("attention", change, prompts=prompts)])
        few = self.rare and not self.left_out and own.status in ("supported", "opposite")
        return own._replace(status="cannot be judged") if few else own

    def quantities(self) -> dict[str, Quantity]:
        """AUC and R by layer, and the attention they are computed from."""
        auc = auc_statistic(self.attention, self.truth_classes, self.two_classes)
        ends = (self.auc_low, self.auc_high), (self.cumulative_low, self.cumulative_high)

        def share(weights: Float[Tensor, "r batch"]) -> Float[Tensor, "r layer"]:
            return cumulative_share(auc(weights))

        unit = "attention, summed over heads"
        return {
            "auc": Quantity(("layer",), self.attention, auc, AUC, ends[0]),
            "cumulative": Quantity(("layer",), self.attention, share, SHARE, ends[1]),
            "attention": Quantity(("layer", "label"), self.attention, unit=unit, kind="amount"),
        }

    @property
    def _own_and_others(self) -> tuple[Float[Tensor, "batch layer"], Float[Tensor, "batch layer"]]:
        """Attention to the label words of the class each prompt counts as, and of the others."""
        attention = self.attention.double()
        place = self.truth_classes[:, None, None].expand(-1, attention.shape[1], 1)
        own = attention.gather(-1, place)[..., 0]
        return own, (attention.sum(-1) - own) / max(1, attention.shape[-1] - 1)

    def figures(self) -> list[Figure]:
        """AUC and R by layer, and the attention behind them."""
        truth = "the class the model predicts" if self.truth == "predicted" else "the true class"
        return [curve_figure(self, truth), self._attention_figure()]

    def _attention_figure(self) -> Figure:
        own, others = self._own_and_others
        gap = own - others
        low, high = mean_ends(gap)
        n, clear, classes = len(gap), above_together(gap), self.attention.shape[-1]
        others_named = (
            f"the mean of the other {classes - 1} classes"
            if classes > 2
            else "those of the other class"
        )
        best = int(gap.mean(0).nan_to_num(-torch.inf).argmax())
        found = Interval(float(gap[:, best].mean()), float(low[best]), float(high[best]))
        name = f"{self.truth} class"
        status: Status = "supported" if bool(clear.any()) else "not shown"
        first = opening(
            "cannot be judged" if n < FEWEST_PROMPTS else status,
            counted(n, "prompt"),
            supported=f"In {int(clear.sum())} of {counted(len(clear), 'layer')}:",
            not_shown="Not shown in any layer:",
        )
        return Figure(
            "attention",
            f"Does the target look more at the label words of its {name}?",
            f"{first} the difference to the other classes is largest in layer {best}, "
            f"{said(found, sign=True)} (summed over heads; that layer was picked as the largest).",
            f"**Attention from the target to the label words**, summed over heads: those of the {name}, "
            f"and {others_named}. "
            f"Bands: 95 % intervals over {self.basis_words()}, for each layer alone; the count of "
            "layers above is of all of them together (max-T).",
            limits="how much of a layer's attention goes elsewhere, nor what the heads pass on.",
            short="Attention to label words",
        )

    @property
    def truth(self) -> str:
        """`predicted` or `true`: which class each prompt counts as."""
        gold = self.provenance.get("variants", {}).get("truth") == "gold"
        return "true" if gold else "predicted"

    def note(self) -> str:
        """How many prompts there are, what is taken as given, and what counts as truth."""
        own = "true classes" if self.truth == "true" else "own predictions"
        return f"{basis(self)}; truth: {own}"

    def basis_words(self) -> str:
        """How many prompts there are, and what is taken as given."""
        return f"{counted(len(self.truth_classes), 'prompt')}{given(self)}"

    @property
    def prompts(self) -> int:
        """Number of prompts."""
        return len(self.truth_classes)

    @property
    def rare(self) -> tuple[str, ...]:
        """Classes of fewer than `FEW` prompts."""
        sizes = self.truth_classes.bincount(minlength=len(self.labels))
        return tuple(self.labels[c] for c in self.classes if int(sizes[c]) < FEW)

    @cached_property
    def judged_on(self) -> tuple[Interval, Interval, int]:
        """Last third, rise and number of prompts over classes of `FEW` prompts or more.

        All classes where none is rare; where fewer than two are left, those of all classes.
        """
        usual = (self.last_third, self.rise, self.prompts)
        if not self.rare or len(self.rare) > len(self.classes) - 2:
            return usual
        keep = self.truth_classes.bincount(minlength=len(self.labels))[self.truth_classes] >= FEW
        truth = self.truth_classes[keep]
        auc, drawn, _ = resampled(self.attention[keep], truth, self.two_classes)
        sums = curve_fields(auc, drawn, len(truth))["sums"]
        return Interval(*sums[2].tolist()), Interval(*sums[3].tolist()), len(truth)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rare classes without which it is judged; none where too few others are left."""
        return self.rare if self.judged_on[2] < self.prompts else ()


LIMITS = "that attention is what the answer is made from: a head may look without passing it on."


def curve_figure(result: ExtractionResult, truth: str) -> Figure:
    """What a page says about AUC and R."""
    question = "Is the answer read from the label words late?"
    short = "Reading the label words"
    if not result.defined:
        why = "; ".join(result.notes) or "fewer than two classes are left"
        return Figure("auc", question, f"Cannot be judged: {why}.", short=short, drawn=False)
    own = result.status
    few = f"only few prompts of {listed(result.rare)}" if result.rare else ""
    than = {"supported": "above chance, 0.5,", "opposite": "below chance, 0.5,"}.get(
        judged(result.last_third, null=0.5), "not clearly different from chance, 0.5,"
    )
    rise = judged(result.rise)
    clear = {"supported": "is clear", "opposite": "is clear, and downwards"}
    change = clear.get(rise, "includes or touches 0")
    answer = (
        f"{opening(own, few)} in the last third of the layers the AUC of attention to label words is "
        f"{said(result.last_third)}, {than} and the change since the first third, "
        f"{said(result.rise, sign=True)}, {change}."
    )
    if result.left_out:
        last, more, prompts = result.judged_on
        answer += (
            f" Judged without {listed(result.left_out)}, of too few prompts to be resampled: {said(last)}, "
            f"change {said(more, sign=True)} ({counted(prompts or 0, 'prompt')})."
        )
    both = ""
    if result.cumulative_defined:
        both = (
            " Right: R, the share of the sum of AUC − 0.5 that the layers up to each give; it passes "
            f"one half in layer {result.half_layer} of 0 to {len(result.auc) - 1}."
        )
    # How intervals and R came about stands with the origin of the numbers.
    notes = "; ".join(
        note for note in result.notes if "resample" not in note and not note.startswith("R ")
    )
    return Figure(
        "auc",
        question,
        answer,
        f"**How well the target's attention to the label words of a class tells {truth}** (1: always "
        f"more attention to that class; 0.5: chance).{both} Bands (each point for itself): 95 % intervals over {result.basis_words()}.",
        establishes="late attention to label words goes with the answer."
        if own == "supported"
        else "",
        limits=LIMITS + (f" Also: {notes}." if notes else ""),
        short=short,
    )
