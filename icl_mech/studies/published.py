"""Published numbers of the two papers next to those of a run: a guide, not a target (models and tasks differ).

Sources:

* Wang et al. 2023, *Label Words are Anchors* (EMNLP 2023, arXiv 2305.14160), tables 1 and 2 and
  the speed-ups of compression: GPT2-XL and GPT-J, 1000 test samples, mean of 5 seeds.
* Halawi et al. 2023, *Overthinking the Truth* (ICLR 2024, arXiv 2307.09476) and the result files
  of github.com/dannyallover/overthinking_the_truth: GPT-J, last demonstration. Known errors in these
  files: ablated and unablated runs use different prompts (they are not paired), TREC's label order
  is very likely wrong, and the random heads are drawn from swapped ranges.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from icl_mech.measurements.accuracy.early_exit import EarlyExitResult
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.compression.compare_compression import CompareCompressionResult
from icl_mech.measurements.compression.kept import name_of
from icl_mech.measurements.heads.ablation import AblationResult
from icl_mech.measurements.heads.head_scores import HeadScoresResult
from icl_mech.measurements.reweighting.evaluate_reweighting import ReweightingResult
from icl_mech.results import Figure, Result
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import Table

if TYPE_CHECKING:
    import pandas as pd

LABEL_WORDS_TASKS = ("sst2", "trec", "agnews", "emoc")

REWEIGHTING = {
    "1 per class": (61.28, 57.56, 73.32, 15.44),
    "5 per class": (64.75, 60.40, 52.52, 9.80),
    "anchor re-weighting": (90.07, 60.92, 81.94, 41.64),
}
"""Accuracy of GPT2-XL on `LABEL_WORDS_TASKS` (table 1); AGNews has 3 per class, not 5."""


class Compressed(NamedTuple):
    """Agreement with the full prompts and accuracy under one compression method (table 2)."""

    label_loyalty: float
    word_loyalty: float
    accuracy: float


COMPRESSION = {
    "gpt2-xl": {
        "text_anchor": Compressed(51.05, 36.65, 38.77),
        "hidden_random": Compressed(48.96, 5.59, 39.96),
        "hidden_random_top": Compressed(57.52, 4.49, 41.72),
        "hidden_anchor": Compressed(79.47, 62.17, 45.04),
    },
    "gpt-j": {
        "text_anchor": Compressed(53.45, 43.85, 40.83),
        "hidden_random": Compressed(49.03, 2.16, 31.51),
        "hidden_random_top": Compressed(71.10, 11.36, 52.34),
        "hidden_anchor": Compressed(89.06, 75.04, 55.59),
    },
}
"""Mean over the four tasks, by model and compression method."""

FULL_ACCURACY = {"gpt2-xl": 51.90, "gpt-j": 56.82}
"""Mean accuracy with the full demonstrations (table 2)."""

SPEED_UP = {"gpt2-xl": (1.1, 1.5, 2.5, 1.4), "gpt-j": (1.5, 2.2, 2.9, 1.9)}
"""Speed-up of Hidden_anchor, on `LABEL_WORDS_TASKS`."""


class AblatedTask(NamedTuple):
    """Calibrated accuracy of GPT-J on one task with permuted labels."""

    true: float
    false: float
    ablated_false: float


HEAD_ABLATION = {
    "sst2": AblatedTask(86.74, 33.62, 62.60),
    "agnews": AblatedTask(78.40, 54.90, 62.50),
    "trec": AblatedTask(48.70, 14.60, 21.30),
    "dbpedia": AblatedTask(91.50, 56.00, 67.30),
    "rte": AblatedTask(58.70, 52.50, 58.40),
    "mrpc": AblatedTask(57.90, 49.70, 57.00),
    "tweet_eval_hate": AblatedTask(64.80, 39.40, 42.10),
    "sick": AblatedTask(62.77, 26.13, 31.73),
    "poem_sentiment": AblatedTask(61.87, 33.37, 42.13),
    "ethos": AblatedTask(71.10, 30.90, 42.40),
    "financial_phrasebank": AblatedTask(75.43, 35.23, 48.37),
    "medical_questions_pairs": AblatedTask(55.10, 43.90, 48.00),
    "tweet_eval_stance_feminist": AblatedTask(52.00, 31.53, 38.60),
    "tweet_eval_stance_atheism": AblatedTask(52.53, 22.07, 32.43),
}
"""Accuracy with the five false induction heads of GPT-J ablated: the 14 tasks other than Unnatural."""

GAP_REDUCTION = {"mean_of_ratios": 38.98, "ratio_of_means": 33.28}
"""Fraction of the gap that this closes, in %: as published, and as computed by `gap_reduction` by default."""

RANDOM_HEADS_GAP_REDUCTION = 3.97
"""The same for random heads, mean of the ratios of the tasks."""

MEAN_ACCURACY = {"true": 65.54, "false": 37.42}
"""Calibrated accuracy of GPT-J, mean of the 14 tasks, permuted labels."""

GAP = {"permuted": 28.12, "half_permuted": 12.35, "random": 15.99}
"""Accuracy with true minus with false demonstrations, by setting of the false labels."""

EARLY_EXIT_LAYER = 16
EARLY_EXIT_CHANGE = {"false": 10.30, "true": -1.54}
"""Calibrated accuracy at that layer minus at the last one, permuted labels."""

LATE_COMPONENTS = {"late layers": 47.72, "late attention": 47.58, "late MLPs": 37.97}
"""Calibrated accuracy with false demonstrations, components zeroed from layer 16 on."""

PREFIX_MATCHING = {(14, 6): 0.639, (16, 7): 0.578, (20, 0): 0.518, (11, 0): 0.443, (12, 10): 0.436}
"""GPT-J's false induction heads (layer, head), chosen on Unnatural, and their scores there."""


def reweighting_means() -> dict[str, float]:
    """Mean accuracy over the four tasks of table 1."""
    return {name: sum(row) / len(row) for name, row in REWEIGHTING.items()}


# --- compared with a run ---


@dataclass(frozen=True, eq=False, kw_only=True)
class PublishedNumbers(Result):
    """Published numbers next to those of a run, one row per quantity.

    Attributes:
        rows: Quantity, published value, value of this run.
        source: Paper, model and tasks of the published numbers.
    """

    title: ClassVar[str] = "Published numbers"

    rows: tuple[tuple[str, str, str], ...]
    source: str

    def drawing(self) -> Table:
        """The rows as a table."""
        return Table(
            title="Published numbers next to these",
            columns=("quantity", "published", "here"),
            rows=self.rows,
            note=self.source,
        )

    def figures(self) -> list[Figure]:
        """The table, and how to read it."""
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
                answer=f"{counted(len(self.rows), 'number')} from the paper next to the same quantities "
                "here: they show the size of the effects there, not what to expect here.",
                caption=f"**Published numbers next to those of this run.** Published: {self.source}. Here: 95 % "
                "intervals over prompts in brackets. Results that the paper shows only as a picture are "
                "not listed.",
                limits="whether the paper replicates: model, data sets, prompts and numbers of "
                "demonstrations differ.",
                short="Published numbers",
            )
        ]

    def summary(self) -> str:
        """Source of the published numbers."""
        return f"{len(self.rows)} quantities next to those of {self.source}"

    def plain_table(self) -> "pd.DataFrame":
        """One row per quantity."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=["quantity", "published", "here"])


def label_words_numbers(results: Mapping[str, Result]) -> PublishedNumbers:
    """Tables 1 and 2 of *Label Words are Anchors* next to these results."""
    rows: list[tuple[str, str, str]] = []
    learned = results.get("reweighting")
    if isinstance(learned, ReweightingResult):
        means = reweighting_means()
        rows += [
            ("accuracy, plain", told(means["1 per class"] / 100), said(learned.accuracy("plain"))),
            (
                "accuracy, anchor re-weighting",
                told(means["anchor re-weighting"] / 100),
                said(learned.accuracy("reweighted")),
            ),
        ]
    table = results.get("compare_compression")
    if isinstance(table, CompareCompressionResult):
        known = COMPRESSION["gpt2-xl"]
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
            low, high = min(SPEED_UP["gpt2-xl"]), max(SPEED_UP["gpt2-xl"])
            rows.append(("speed-up", f"{low} to {high}", f"{table.speed_up:.2f}"))
    return PublishedNumbers(
        rows=tuple(rows),
        source="Wang et al. 2023, tables 1 and 2: GPT2-XL, mean of SST-2, TREC, AGNews and EmoC",
    )


def overthinking_numbers(results: Mapping[str, Result]) -> PublishedNumbers:
    """The averages of *Overthinking the Truth* next to these results."""
    rows: list[tuple[str, str, str]] = []
    layers = results.get("layer_accuracy")
    if isinstance(layers, LayerAccuracyResult):
        final = layers.sel(layer=layers.scores.shape[-1] - 1)
        for side in ("true", "false"):
            here = said(final.interval(side=side))
            mean = MEAN_ACCURACY[side] / 100
            rows.append((f"calibrated accuracy, {side} demonstrations", told(mean), here))
    leaving = results.get("early_exit")
    if isinstance(leaving, EarlyExitResult):
        for side in ("false", "true"):
            here = said(leaving.overthinking(side=side), sign=True)
            change = told(EARLY_EXIT_CHANGE[side] / 100, sign=True)
            rows.append((f"change by leaving early, {side} demonstrations", change, here))
    for name in ("late_ablation", "ablation"):
        ablated = results.get(name)
        if not isinstance(ablated, AblationResult):
            continue
        for condition, value in LATE_COMPONENTS.items():
            if condition in ablated.conditions:
                here = said(ablated.interval("accuracy", condition=condition, side="false"))
                rows.append((f"false demonstrations, {condition} zeroed", told(value / 100), here))
        if "chosen heads" in ablated.conditions:
            closed = ablated.reduction("chosen heads")
            rows.append(
                (
                    "fraction of the gap that five heads close",
                    f"{GAP_REDUCTION['ratio_of_means'] / 100:.3f} "
                    f"(as published {GAP_REDUCTION['mean_of_ratios'] / 100:.3f})",
                    "no clear gap" if closed is None else said(closed),
                )
            )
    heads = results.get("head_scores")
    if isinstance(heads, HeadScoresResult):
        best = max(PREFIX_MATCHING.values())
        layer, head = heads.top(1)[0]
        matching = heads.interval("prefix_matching", layer=layer, head=head)
        rows.append(
            (
                "highest prefix matching of any head",
                told(best),
                f"{said(matching)} ({layer}.{head})",
            )
        )
    return PublishedNumbers(
        rows=tuple(rows), source="Halawi et al. 2023: GPT-J, mean of 14 tasks, permuted labels"
    )
