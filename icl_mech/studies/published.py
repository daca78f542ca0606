"""The papers' numbers beside one's own: orientation, not a target (other models, other tasks)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from icl_mech.measurements.accuracy.early_exit import EarlyExit
from icl_mech.measurements.accuracy.layers import LayerAccuracy
from icl_mech.measurements.compression.table import CompressionTable
from icl_mech.measurements.compression.texts import name_of
from icl_mech.measurements.heads.ablation import Ablation
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.reweighting.result import ReweightingResult
from icl_mech.results import Figure, Result
from icl_mech.results.wording import counted, said, told
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

    def figures(self) -> list[Figure]:
        """The table, and what it is good for."""
        if not self.rows:
            return [
                Figure(
                    question="How do the published numbers compare?",
                    answer="Cannot be judged: this run holds none of the quantities that the paper "
                    "publishes.",
                    short="Published numbers",
                    drawn=False,
                )
            ]
        return [
            Figure(
                question="How do the published numbers compare?",
                answer=f"{counted(len(self.rows), 'number')} of the paper beside the same quantities "
                "here: they tell the size of the effects there, not what should come out here.",
                caption=f"**Published numbers beside those of this run.** Published: {self.source}. Here: in "
                "brackets 95 % intervals over prompts. Where the paper has only a picture, nothing "
                "is listed.",
                limits="a replication or its failure: model, data sets, prompts and numbers of "
                "demonstrations differ.",
                short="Published numbers",
            )
        ]

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
                told(means["1 per class"] / 100),
                said(learned.accuracy("plain")),
            ),
            (
                "accuracy, anchor re-weighting",
                told(means["anchor re-weighting"] / 100),
                said(learned.accuracy("reweighted")),
            ),
        ]
    table = results.get("compression")
    if isinstance(table, CompressionTable):
        known = published.COMPRESSION["gpt2-xl"]
        for method in table.methods:
            rows += [
                (
                    f"label loyalty, {name_of(method)}",
                    told(known[method].label_loyalty / 100),
                    said(table.label_loyalty(method)),
                ),
                (
                    f"word loyalty, {name_of(method)}",
                    told(known[method].word_loyalty / 100),
                    said(table.word_loyalty(method)),
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
            here = said(final.interval(side=side))
            mean = published.MEAN_ACCURACY[side] / 100
            rows.append((f"calibrated accuracy, {side} demonstrations", told(mean), here))
    leaving = results.get("early_exit")
    if isinstance(leaving, EarlyExit):
        for side in ("false", "true"):
            here = said(leaving.overthinking(side=side), sign=True)
            change = told(published.EARLY_EXIT_CHANGE[side] / 100, sign=True)
            rows.append((f"change by leaving early, {side} demonstrations", change, here))
    for name in ("late_ablation", "ablation"):
        ablated = results.get(name)
        if not isinstance(ablated, Ablation):
            continue
        for condition, value in published.LATE_COMPONENTS.items():
            if condition in ablated.conditions:
                here = said(ablated.interval("accuracy", condition=condition, side="false"))
                rows.append((f"false demonstrations, {condition} zeroed", told(value / 100), here))
        if "chosen heads" in ablated.conditions:
            closed = ablated.reduction("chosen heads")
            rows.append(
                (
                    "share of the gap that five heads close",
                    f"{published.GAP_REDUCTION['ratio_of_means'] / 100:.3f} "
                    f"(as published {published.GAP_REDUCTION['mean_of_ratios'] / 100:.3f})",
                    "no clear gap" if closed is None else said(closed),
                )
            )
    heads = results.get("head_scores")
    if isinstance(heads, HeadScores):
        best = max(published.PREFIX_MATCHING.values())
        layer, head = heads.top(1)[0]
        own = heads.interval("prefix_matching", layer=layer, head=head)
        rows.append(
            ("highest prefix matching of any head", told(best), f"{said(own)} ({layer}.{head})")
        )
    return PublishedNumbers(
        rows=tuple(rows),
        source="Halawi et al. 2023: GPT-J, mean of 14 tasks, permuted labels",
    )
