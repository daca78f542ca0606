"""Scores of attention heads: prefix matching, label attending, label promoting, with controls.

In row `t` (the target, or the token before a demonstration's label), over the label tokens of
earlier demonstrations:

* `all`: attention to all of them (*label attending*);
* `same`: attention to those whose displayed label is the row's: the class the false labels
  teach in a false set, the true class in a true one;
* *prefix matching* `PM = same - (all - same) / (C - 1)`, in `[-1/(C-1), 1]`;
* *class sensitivity* `same / all`; for a head blind to the class it is the fraction `f` of earlier
  label tokens that carry the row's label, and `PM = all (f - (1 - f) / (C - 1))`;
* *shuffled* prefix matching: the demonstrations' labels permuted in the score only, the effect of
  recency alone;
* *label promoting*: the logit the head's output adds to the false label, minus that of the
  true one (`norm="frozen"` or `"own"`, see `icl_mech.measurements.lens.logit_lens`).

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Heads, Natural, checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import head_name, of_heads
from icl_mech.measurements.heads.label_attention import (
    ATTENDING,
    FAMILY,
    MATCHING,
    SHUFFLED,
    Attended,
    LabelAttentionReading,
    attention_scores,
    classes_to_match,
)
from icl_mech.measurements.heads.promoting import (
    PROMOTING,
    Pushing,
    promoting_readings,
    promoting_scores,
)
from icl_mech.measurements.lens.components import Norm
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics import Interval, above_together
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Quantity, Result, function_of_means, quantity
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.quantities import kept

LOGIT = "logit of false label above true label"

SCORES = {
    "prefix_matching": "prefix-matching score",
    "shuffled": "prefix matching, labels shuffled in the score",
    "label_attending": "attention to label words",
    "same": "attention to label words of the row's class",
    "label_promoting": LOGIT,
}


Scored = Float[Tensor, "batch layer head"]


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadScoresResult(Result):
    """Scores of every head on every prompt.

    Attributes:
        matching: Prefix-matching score.
        attending: Attention to all earlier label words (`all`).
        same: Attention to the label words of the row's class.
        shuffled_matching: Prefix matching with the labels permuted in the score only.
        promoting: Label-promoting score, or None where the prompts do not teach a single false class.
        same_share: Fraction of earlier label tokens that carry the row's label (`f`).
        n_labels: Number of classes.
    """

    shows: ClassVar[tuple[str, ...]] = ("maps", *SCORES, "both")
    ranked: ClassVar[bool] = True
    definitions: ClassVar[tuple[Definition, ...]] = (
        *(MATCHING, SHUFFLED, FAMILY),
        *(ATTENDING, PROMOTING),
    )

    matching: Scored = quantity(SCORES["prefix_matching"], name="prefix_matching")
    shuffled_matching: Scored = quantity(SCORES["shuffled"], name="shuffled")
    attending: Scored = quantity(SCORES["label_attending"], name="label_attending")
    same: Scored = quantity(SCORES["same"])
    promoting: Scored | None = quantity(LOGIT, name="label_promoting", default=None)
    same_share: Float[Tensor, " batch"]
    n_labels: int

    @property
    def per_prompt(self) -> dict[str, Scored]:
        """Scores by name, prompt axis first."""
        return {name: scores.per_prompt for name, scores in super().quantities().items()}

    def quantities(self) -> dict[str, Quantity]:
        """All scores, and the comparison of prefix matching with its two controls.

        `above_shuffled` is prefix matching minus that with shuffled labels, paired over prompts;
        `class_sensitivity` is `same / all` of the means.
        """
        dims, above = ("layer", "head"), self.matching - self.shuffled_matching
        both = torch.stack([self.same, self.attending], dim=1)
        ratio = function_of_means(both, _ratio)
        return {
            **super().quantities(),
            "above_shuffled": Quantity(dims, above, unit="prefix matching above its control"),
            "class_sensitivity": Quantity(
                dims, both, ratio, "fraction of attention to label words"
            ),
        }

    def more_columns(self) -> Mapping[str, list[float]]:
        """Prefix matching of a head with the same attention that ignores the class."""
        return {"blind_matching": self.blind_matching.flatten().tolist()}

    @property
    def prefix_matching(self) -> Float[Tensor, "layer head"]:
        """Prefix matching, averaged over prompts."""
        return self.score("prefix_matching").value()

    @property
    def label_attending(self) -> Float[Tensor, "layer head"]:
        """Label attending, averaged over prompts."""
        return self.score("label_attending").value()

    @property
    def label_promoting(self) -> Float[Tensor, "layer head"]:
        """Label promoting, averaged over prompts.

        Raises:
            ResultError: the prompts do not teach a single false class.
        """
        return self.score("label_promoting").value()

    @property
    def shuffled(self) -> Float[Tensor, "layer head"]:
        """Prefix matching with shuffled labels, averaged over prompts."""
        return self.score("shuffled").value()

    @property
    def class_sensitivity(self) -> Float[Tensor, "layer head"]:
        """Ratio `same / all` of the means over prompts; compare with the mean of `same_share`."""
        return _ratio(torch.stack([self.score("same").value(), self.label_attending]))

    @property
    def blind_matching(self) -> Float[Tensor, "layer head"]:
        """Prefix matching of a head with the same `all` that ignores the class."""
        f = self.same_share[:, None, None].to(self.attending.dtype)
        return (self.attending * (f - (1 - f) / (self.n_labels - 1))).mean(0)

    def score(self, score: str) -> Quantity:
        """One of the scores.

        Args:
            score: Name of the score, see `SCORES`.

        Raises:
            ResultError: unknown score, or one that is not defined for these prompts.
        """
        if score not in SCORES:
            raise ResultError(f"Unknown score {score!r}. {near_matches(score, SCORES)}")
        if score not in self.per_prompt:
            raise ResultError(
                "Label promoting compares the class that the false labels teach with the true "
                "one, but these prompts teach no false class. Build them with labels='permuted' "
                "or 'half_permuted'."
            )
        return self.quantities()[score]

    @checked(ResultError)
    def top(self, k: Count = 5, score: str = "prefix_matching") -> tuple[tuple[int, int], ...]:
        """The k heads with the largest score, as (layer, head), largest first.

        Raises:
            ResultError: unknown score, or one that is not defined for these prompts.
        """
        mean = self.score(score).value()
        order = mean.flatten().argsort(descending=True, stable=True)[:k].tolist()
        return tuple(divmod(int(i), mean.shape[1]) for i in order)

    def clear(self) -> tuple[tuple[int, int], ...]:
        """Heads whose prefix matching lies above its shuffled control, largest first.

        A joint statement about all heads: if no head's does, at least one is named in 5 % of the cases.
        """
        above = above_together(self.matching - self.shuffled_matching)
        return tuple(head for head in self.top(above.numel()) if bool(above[head]))

    # --- facts ---

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.matching)

    @property
    def too_few(self) -> bool:
        """True if there are too few prompts for a conclusion."""
        return self.count < FEWEST_PROMPTS

    @property
    def n_heads(self) -> int:
        """Number of heads of the model, all layers together."""
        return self.prefix_matching.numel()

    @property
    def lowest(self) -> float:
        """The smallest prefix matching of all heads."""
        return float(self.prefix_matching.min())

    def of(self, heads: Heads, score: str = "prefix_matching") -> dict[str, Interval]:
        """A score of some heads, by name.

        Args:
            heads: (layer, head) pairs.
            score: Name of the score.

        Raises:
            ResultError: unknown score, or one that is not defined for these prompts.
        """
        quantity = self.score(score)
        value, (low, high) = quantity.value(), quantity.ends()
        return {
            head_name(head): Interval(*(float(end[head]) for end in (value, low, high)))
            for head in heads
        }

    @property
    @kept
    def matching_most(self) -> dict[str, Interval]:
        """Prefix matching of the five heads with the largest, largest first."""
        return self.of(self.top())

    @property
    @kept
    def above_control(self) -> tuple[str, ...]:
        """Names of the heads of `clear`."""
        return tuple(map(head_name, self.clear()))

    @property
    def standing_out(self) -> tuple[str, ...]:
        """Names of the heads of `clear` that are among `matching_most`."""
        return tuple(name for name in self.matching_most if name in self.above_control)

    @property
    @kept
    def pushing(self) -> Pushing | None:
        """Label promoting of the five heads with the largest prefix matching; None without a false class."""
        if self.promoting is None:
            return None
        heads = self.top()
        promoting = of_heads(self.promoting, heads)
        towards, away = (
            tuple(map(head_name, compress(heads, above_together(sign * promoting).tolist())))
            for sign in (1, -1)
        )
        return Pushing(self.of(heads, "label_promoting"), towards, away)

    def on_page(self) -> tuple[str, ...]:
        """Maps of the scores and, if the prompts teach a false class, matching against promoting."""
        return ("maps",) if self.promoting is None else ("maps", "both")


def _ratio(means: Float[Tensor, "*r 2 layer head"]) -> Float[Tensor, "*r layer head"]:
    """Ratio `same / all`."""
    return means[..., 0, :, :] / means[..., 1, :, :].clamp(min=1e-12)


@dataclass(frozen=True)
class HeadScores(Measurement[HeadScoresResult]):
    """Prefix matching, label attending and label promoting of every head, at the target.

    Attributes:
        norm: Norm of label promoting: `frozen` or `own`.
        over: Attention to the `labels`, or to the tokens `before_labels`.
        permutations: Number of permutations of the labels in the shuffled control.
        seed: Seed of the permutations.

    Raises:
        PromptError: prompts without demonstrations, or whose labels follow no single rule.
        RunError: unknown options, processed weights, or components that do not add up.

    Source: Halawi et al. 2023, §5.
    """

    side: ClassVar[Literal["true", "false"] | None] = "false"

    norm: Norm = "frozen"
    over: Attended = "labels"
    permutations: Count = 20
    seed: Natural = 0

    why_not = "prefix matching compares demonstrations of the query's class with the others"

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without a class to match, and weights that differ from the checkpoint's.

        Raises:
            PromptError: prompts without demonstrations, or whose labels follow no single rule.
            RunError: processed weights, or no permutations.
        """
        classes_to_match(data)
        check_own_weights(model, "A lens of heads")

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Attention to label words and, if the prompts teach a false class, the heads' lens."""
        readings = [LabelAttentionReading(self.over), *promoting_readings(data, self.norm)]
        return [Pass(data, readings, title="head scores")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> HeadScoresResult:
        """Scores of heads.

        Raises:
            RunError: components that do not add up.
        """
        attention, *components = read[0]
        classes = classes_to_match(data)
        scores = attention_scores(
            attention[:, :, 0],
            data,
            classes,
            over=self.over,
            permutations=self.permutations,
            seed=self.seed,
        )
        promoting = None
        for lens in components:
            promoting = promoting_scores(lens, model, classes, data.answers)
        return HeadScoresResult(**scores._asdict(), promoting=promoting, n_labels=data.n_labels)


head_scores = door(
    HeadScores,
    "head_scores",
    prompts='False prompts (`labels="permuted"` or `"half_permuted"`), or true ones.',
)
