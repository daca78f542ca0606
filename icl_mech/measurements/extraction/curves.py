"""AUC curves with intervals and R, for one prompt set and for averages over several.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.extraction.statistics import clearly_positive
from icl_mech.metrics import Interval
from icl_mech.results import Definition, Figure, Result
from icl_mech.results.judging import OPENINGS, Required, Status, jointly, judged, largest, required
from icl_mech.results.wording import counted, listed, said
from icl_mech.shapes import LayerCurves, Meaning, Panel

if TYPE_CHECKING:
    import pandas as pd

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


_ABOUT: tuple[Meaning, ...] = ("label", "label")


@dataclass(frozen=True, eq=False, kw_only=True)
class AucCurves(Result):
    """AUC and R by layer; ends are those of 95 % intervals over prompts.

    Attributes:
        auc: AUC of each layer; not-a-number if fewer than two classes are left.
        auc_low: Lower ends.
        auc_high: Upper ends.
        cumulative: R after each layer; a number even where R is undefined.
        cumulative_low: Lower ends; not-a-number where R is undefined.
        cumulative_high: Upper ends.
        sums: Rows: denominator of R, mean AUC of the first and of the last third of the
            layers, last minus first. Columns: value and ends.
        notes: What was left out or is undefined, and why.
    """

    title: ClassVar[str] = "What the prediction is read from"
    shows: ClassVar[tuple[str, ...]] = ("auc",)
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    auc: Float[Tensor, " layer"]
    auc_low: Float[Tensor, " layer"]
    auc_high: Float[Tensor, " layer"]
    cumulative: Float[Tensor, " layer"]
    cumulative_low: Float[Tensor, " layer"]
    cumulative_high: Float[Tensor, " layer"]
    sums: Float[Tensor, "4 3"]
    notes: tuple[str, ...] = ()

    @property
    def defined(self) -> bool:
        """False if fewer than two classes were left."""
        return bool(self.auc.isfinite().all())

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
        """AUC and, where it is defined, R in a panel of its own.

        Args:
            show: `auc`.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
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
        stretches = (
            (0.0, float(third - 1), "first third"),
            (last - third + 1.0, float(last), "last third"),
        )
        return LayerCurves(
            title="Extraction from label words by layer",
            names=("AUC", "R")[: len(values)],
            values=rows[0],
            low=rows[1],
            high=rows[2],
            y_title="AUC",
            note="; ".join([self.note(), *self.notes]),
            meanings=_ABOUT[: len(values)],
            panels=tuple(panels),
            stretches=stretches if len(self.auc) >= 6 and len(values) == 1 else (),
        )

    def figures(self) -> list[Figure]:
        """AUC and R by layer."""
        return [curve_figure(self, self.basis_words())]

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

    def to_pandas(self) -> "pd.DataFrame":
        """One row per layer."""
        import pandas as pd

        return pd.DataFrame(
            {
                "layer": range(len(self.auc)),
                "auc": self.auc.tolist(),
                "auc_low": self.auc_low.tolist(),
                "auc_high": self.auc_high.tolist(),
                "cumulative": self.cumulative.tolist(),
                "cumulative_low": self.cumulative_low.tolist(),
                "cumulative_high": self.cumulative_high.tolist(),
                "cumulative_defined": self.cumulative_defined,
            }
        )

    def note(self) -> str:
        """What the intervals rest on."""
        return f"95 % intervals over {self.basis_words()}"

    def basis_words(self) -> str:
        """How many prompts there are, and what is taken as given."""
        return "prompts"

    @property
    def prompts(self) -> int | None:
        """Number of prompts, where it is one."""
        return None

    @property
    def rare(self) -> tuple[str, ...]:
        """Classes of too few prompts to be resampled."""
        return ()

    @property
    def judged_on(self) -> tuple[Interval, Interval, int | None]:
        """AUC in the last third, its rise since the first, and the number of prompts."""
        return self.last_third, self.rise, self.prompts

    @property
    def left_out(self) -> tuple[str, ...]:
        """Classes without which it is judged."""
        return ()

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
        rise = required("attention", change, prompts=prompts)
        status = jointly(late.status, rise.status)
        if self.rare and not self.left_out and status in ("supported", "opposite", "mixed"):
            status = "cannot be judged"
        return Required("attention", status, largest((late.p, rise.p)))


def curve_figure(
    result: AucCurves, basis: str, truth: str = "the class the model predicts"
) -> Figure:
    """What a page says about AUC and R."""
    question = "Is the answer read from the label words late?"
    short = "Reading the label words"
    if not result.defined:
        why = "; ".join(result.notes) or "fewer than two classes are left"
        return Figure("auc", question, f"Cannot be judged: {why}.", short=short, drawn=False)
    own = result.status
    rare = (
        f": only few prompts of {listed(result.rare)}"
        if own == "cannot be judged" and result.rare
        else ""
    )
    than = {"supported": "above chance, 0.5,", "opposite": "below chance, 0.5,"}.get(
        judged(result.last_third, null=0.5), "not clearly different from chance, 0.5,"
    )
    rise = judged(result.rise)
    change = {"supported": "is clear", "opposite": "is clear, and downwards"}.get(
        rise, "includes or touches 0"
    )
    answer = (
        f"{OPENINGS[own]}{rare}. In the last third of the layers the AUC of attention to label words is "
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
    limits = (
        "that attention is what the answer is made from: a head may look without passing it on."
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
        f"more attention to that class; 0.5: chance).{both} Bands (each point for itself): 95 % intervals over {basis}.",
        establishes="late attention to label words goes with the answer."
        if own == "supported"
        else "",
        limits=limits + (f" Also: {notes}." if notes else ""),
        short=short,
    )
