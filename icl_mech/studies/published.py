"""The papers' numbers beside one's own: orientation, not a target (other models, other tasks)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from icl_mech.measurements.accuracy.early_exit import EarlyExit
from icl_mech.measurements.accuracy.layers import LayerAccuracy
from icl_mech.measurements.compression.table import CompressionTable
from icl_mech.measurements.heads.ablation import Ablation
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.reweighting.evaluation import ReweightingResult
from icl_mech.results import Result
from icl_mech.shapes import Table
from icl_mech.studies import paper_numbers as published

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class PublishedNumbers(Result):
    """One row per quantity.

    Attributes:
        rows: Quantity, what the paper reports, what was found here.
        source: Paper, model and tasks of the published numbers.
    """

    title: ClassVar[str] = "Published numbers"

    rows: tuple[tuple[str, str, str], ...]
    source: str

    def drawing(self) -> Table:
        """The rows as a table."""
        return Table(
            title="Published numbers beside these",
            columns=("quantity", "published", "here"),
            rows=self.rows,
            note=self.source,
        )

    def summary(self) -> str:
        """Where the published numbers come from."""
        return f"{len(self.rows)} quantities beside those of {self.source}"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per quantity."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=["quantity", "published", "here"])


def label_words_numbers(results: Mapping[str, Result]) -> PublishedNumbers:
    """Tables 1 and 2 of *Label Words are Anchors* beside these results."""
    rows: list[tuple[str, str, str]] = []
    learned = results.get("reweighting")
    if isinstance(learned, ReweightingResult):
        means = published.reweighting_means()
        rows += [
            (
                "accuracy, plain",
                f"{means['1 per class'] / 100:.3f}",
                str(learned.accuracy("plain")),
            ),
            (
                "accuracy, anchor re-weighting",
                f"{means['anchor re-weighting'] / 100:.3f}",
                str(learned.accuracy("reweighted")),
            ),
        ]
    table = results.get("compression")
    if isinstance(table, CompressionTable):
        known = published.COMPRESSION["gpt2-xl"]
        for method in table.methods:
            rows += [
                (
                    f"label loyalty, {method}",
                    f"{known[method].label_loyalty / 100:.3f}",
                    str(table.label_loyalty(method)),
                ),
                (
                    f"word loyalty, {method}",
                    f"{known[method].word_loyalty / 100:.3f}",
                    str(table.word_loyalty(method)),
                ),
            ]
        if table.speed_up is not None:
            low, high = min(published.SPEED_UP["gpt2-xl"]), max(published.SPEED_UP["gpt2-xl"])
            rows.append(("speed-up", f"{low} to {high}", f"{table.speed_up:.2f}"))
    return PublishedNumbers(
        rows=tuple(rows),
        source="Wang et al. 2023, tables 1 and 2: GPT2-XL, mean of SST-2, TREC, AGNews and EmoC",
    )


def overthinking_numbers(results: Mapping[str, Result]) -> PublishedNumbers:
    """The averages of *Overthinking the Truth* beside these results."""
    rows: list[tuple[str, str, str]] = []
    layers = results.get("layer_accuracy")
    if isinstance(layers, LayerAccuracy):
        final = layers.sel(layer=layers.scores.shape[-1] - 1)
        for side in ("true", "false"):
            here = "{:.3f} [{:.3f}, {:.3f}]".format(*final.interval(side=side))
            mean = published.MEAN_ACCURACY[side] / 100
            rows.append((f"calibrated accuracy, {side} demonstrations", f"{mean:.3f}", here))
    leaving = results.get("early_exit")
    if isinstance(leaving, EarlyExit):
        for side in ("false", "true"):
            here = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*leaving.overthinking(side=side))
            change = published.EARLY_EXIT_CHANGE[side] / 100
            rows.append((f"change by leaving early, {side} demonstrations", f"{change:+.3f}", here))
    ablated = results.get("ablation")
    if isinstance(ablated, Ablation):
        for condition, value in published.LATE_COMPONENTS.items():
            if condition in ablated.conditions:
                here = str(ablated.interval("accuracy", condition=condition, side="false"))
                rows.append(
                    (f"false demonstrations, {condition} zeroed", f"{value / 100:.3f}", here)
                )
        if "chosen heads" in ablated.conditions:
            closed = ablated.reduction("chosen heads")
            rows.append(
                (
                    "share of the gap that five heads close",
                    f"{published.GAP_REDUCTION['ratio_of_means'] / 100:.3f} "
                    f"(as published {published.GAP_REDUCTION['mean_of_ratios'] / 100:.3f})",
                    "no gap" if closed is None else str(closed),
                )
            )
    heads = results.get("head_scores")
    if isinstance(heads, HeadScores):
        best = max(published.PREFIX_MATCHING.values())
        rows.append(
            ("highest prefix matching", f"{best:.3f}", f"{float(heads.prefix_matching.max()):.3f}")
        )
    return PublishedNumbers(
        rows=tuple(rows),
        source="Halawi et al. 2023: GPT-J, mean of 14 tasks, permuted labels",
    )
