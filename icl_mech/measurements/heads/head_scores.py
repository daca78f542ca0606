"""Scores of attention heads: prefix matching, label attending, label promoting, with controls.

In row `t` (the target, or the token before a demonstration's label), over the label tokens of
earlier demonstrations:

* `all`: attention to all of them (*label attending*);
* `same`: attention to those whose displayed label is the row's: the class the false labels
  teach in a false set, the true class in a true one;
* *prefix matching* `PM = same - (all - same) / (C - 1)`, in `[-1/(C-1), 1]`;
* *class sensitivity* `same / all`; a head blind to the class has the share `f` of earlier
  label tokens that carry the row's label, and `PM = all (f - (1 - f) / (C - 1))`;
* *shuffled* prefix matching: the demonstrations' labels permuted in the score only, what
  recency alone gives;
* *label promoting*: the logit the head's output adds to the false label, minus that of the
  true one (`norm="frozen"` or `"own"`, see `icl_mech.measurements.lens.logit_lens`).

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import head_name
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
    against_promoting,
    promoted,
    promoting_readings,
    promoting_scores,
)
from icl_mech.measurements.lens.components import Norm
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics import Interval, above_together
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import (
    Definition,
    Figure,
    Quantity,
    Result,
    basis,
    function_of_means,
    quantity,
)
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, said, spelled, told
from icl_mech.shapes import Grid, Grids, Scatter

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
        same: Attention to those of the row's class.
        shuffled_matching: Prefix matching with the labels permuted in the score only.
        promoting: Label-promoting score, or None where the prompts teach no one false class.
        same_share: Share of earlier label tokens that carry the row's label (`f`).
        n_labels: Number of classes.
    """

    title: ClassVar[str] = "Heads that match prefixes"
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
        return {name: own.per_prompt for name, own in super().quantities().items()}

    def quantities(self) -> dict[str, Quantity]:
        """All scores, and what the two controls say of prefix matching.

        `above_shuffled` is prefix matching minus that with shuffled labels, paired over prompts;
        `class_sensitivity` is `same / all` of the means.
        """
        dims, above = ("layer", "head"), self.matching - self.shuffled_matching
        both = torch.stack([self.same, self.attending], dim=1)
        ratio = function_of_means(both, _ratio)
        return {
            **super().quantities(),
            "above_shuffled": Quantity(dims, above, unit="prefix matching above its control"),
            "class_sensitivity": Quantity(dims, both, ratio, "share of attention to label words"),
        }

    def more_columns(self) -> Mapping[str, list[float]]:
        """Prefix matching of a head with the same attention that does not see the class."""
        return {"blind_matching": self.blind_matching.flatten().tolist()}

    @property
    def prefix_matching(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self._score("prefix_matching").value()

    @property
    def label_attending(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self._score("label_attending").value()

    @property
    def label_promoting(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts.

        Raises:
            ResultError: the prompts teach no one false class.
        """
        return self._score("label_promoting").value()

    @property
    def shuffled(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self._score("shuffled").value()

    @property
    def class_sensitivity(self) -> Float[Tensor, "layer head"]:
        """`same / all`, of the means over prompts; compare with the mean of `same_share`."""
        return _ratio(torch.stack([self._score("same").value(), self.label_attending]))

    @property
    def blind_matching(self) -> Float[Tensor, "layer head"]:
        """Prefix matching of a head with the same `all` that does not see the class."""
        f = self.same_share[:, None, None].to(self.attending.dtype)
        return (self.attending * (f - (1 - f) / (self.n_labels - 1))).mean(0)

    def _score(self, score: str) -> Quantity:
        if score not in SCORES:
            raise ResultError(f"Unknown score {score!r}. {near_matches(score, SCORES)}")
        if score not in self.per_prompt:
            raise ResultError(
                "Label promoting compares the class the false labels teach with the true one; these "
                "prompts teach none. Build them with labels='permuted' or 'half_permuted'."
            )
        return self.quantities()[score]

    @checked(ResultError)
    def top(self, k: Count = 5, score: str = "prefix_matching") -> tuple[tuple[int, int], ...]:
        """The k heads with the largest score, as (layer, head), best first.

        Raises:
            ResultError: unknown score, or one that is not defined for these prompts.
        """
        mean = self._score(score).value()
        order = mean.flatten().argsort(descending=True, stable=True)[:k].tolist()
        return tuple(divmod(int(i), mean.shape[1]) for i in order)

    def clear(self) -> tuple[tuple[int, int], ...]:
        """Heads whose prefix matching lies above its shuffled control, best first.

        One statement about all heads: where none does, one is named in 5 % of the cases.
        """
        above = above_together(self.matching - self.shuffled_matching)
        return tuple(head for head in self.top(above.numel()) if bool(above[head]))

    def drawing(self, show: str = "maps", top: Count = 5) -> Grids | Grid | Scatter:
        """Maps of scores, layers across and heads down, or matching against promoting.

        Args:
            show: `maps` (prefix matching and label promoting), one score, or `both`.
            top: How many of the heads that match prefixes most are framed and named.

        Raises:
            ResultError: unknown `show`, or a score that is not defined for these prompts.
        """
        self.check_show(show)
        if show == "both":
            return against_promoting(
                self.prefix_matching, self.label_promoting, self.top(top), len(self.matching)
            )
        if show != "maps":
            return self._map(show, top, f"{basis(self)}; ")
        kinds = ["prefix_matching", *(["label_promoting"] if self.promoting is not None else [])]
        maps = tuple(self._map(kind, top) for kind in kinds)
        return Grids("Scores of heads", maps, basis(self))

    def _map(self, score: str, top: int, note: str = "") -> Grid:
        found = self._score(score)
        low, high = found.ends()
        chosen = self.top(top)
        return Grid(
            title=SCORES[score][0].upper() + SCORES[score][1:],
            values=found.value().T,
            row_title="head",
            column_title="layer",
            quantity="logits" if score == "label_promoting" else "score",
            note=note and f"{note}framed: the {top} heads that match prefixes most",
            signed=score == "label_promoting",
            marked=tuple((head, layer) for layer, head in chosen),
            names=tuple(map(head_name, chosen)),
            low=low.T,
            high=high.T,
        )

    def figures(self) -> list[Figure]:
        """Maps of the scores and, where a false class is taught, matching against promoting."""
        chosen = self.top()
        shown = [self._matching(self._of(chosen, "prefix_matching"))]
        if self.promoting is None:
            return shown
        pushed = self._of(chosen, "label_promoting")
        own = torch.stack([self.promoting[:, layer, head] for layer, head in chosen], 1)
        towards, away = (
            [name for name, far in zip(pushed, above_together(sign * own), strict=True) if far]
            for sign in (1, -1)
        )
        heads = self.prefix_matching.numel()
        return [*shown, promoted(pushed, towards, away, len(own), heads, given(self))]

    def _matching(self, top: Mapping[str, Interval]) -> Figure:
        """Which heads look back at demonstrations of the query's class; their scores, best first."""
        heads, prompts = self.prefix_matching.numel(), len(self.matching)
        few, many = prompts < FEWEST_PROMPTS, counted(prompts, "prompt")
        clear = [head_name(head) for head in self.clear()]
        best, score = next(iter(top.items()))
        answer = (
            f"Not shown: no head of {heads} stands clearly above its shuffled control; the highest "
            f"prefix matching is {best} with {said(score)}."
        )
        if few:
            answer = f"Cannot be judged from {many}: the highest prefix matching is {best} with {said(score)}."
        elif clear:
            shown = [name for name in top if name in clear]
            others = [counted(len(clear) - len(shown), "other")] * (len(shown) < len(clear))
            named = listed([*shown, *others] if shown else clear[:5])
            answer = (
                f"Yes: {named} ({len(clear)} of {heads} heads) "
                f"{'stands' if len(clear) == 1 else 'stand'} above the shuffled control, corrected for "
                f"looking at all heads; the highest is {best} with {said(score)}."
            )
        lowest, false = float(self.prefix_matching.min()), self.promoting is not None
        below = f" Its colours start at 0; values below (lowest {told(lowest)}) are drawn as 0."
        taught = "the false label taught for the query" if false else "the query's class"
        pushing = (
            " Label promoting: what the head adds to the false label's logit above the true one's; brown "
            "promotes the false label, blue the true one."
        )
        return Figure(
            "maps",
            "Which heads look back at demonstrations of the query's class?",
            answer,
            f"**{'Scores' if false else 'Prefix matching'} of every head, means over {many}.** Prefix "
            f"matching: attention from the last token to label words that show {taught}, less that to "
            "the other label words. Framed and named in "
            f"{'both maps' if false else 'the map'}: the {spelled(len(top))} heads that match prefixes "
            f"most (layer.head).{below * (lowest < 0)}{pushing * false} Intervals (when pointing): 95 % "
            f"bootstrap over prompts{given(self)}, for each head alone.",
            "which heads attend to matching labels beyond what the order of the demonstrations gives."
            * bool(clear and not few),
            f"that the framed heads do anything special: they are the highest of {heads}, chosen on the "
            "prompts shown. Attention and direct effect are not cause: see the ablation.",
            "Heads",
        )

    def _of(self, heads: Sequence[tuple[int, int]], score: str) -> dict[str, Interval]:
        """One score of these heads, with intervals."""
        found = self._score(score)
        value, (low, high) = found.value(), found.ends()
        return {
            head_name(head): Interval(*(float(end[head]) for end in (value, low, high)))
            for head in heads
        }

    def summary(self) -> str:
        """The top heads, with what recency alone would give them."""
        matching, shuffled = self._score("prefix_matching"), self.shuffled
        value, (low, high) = matching.value(), matching.ends()
        parts = [
            f"{head[0]}.{head[1]}: {float(value[head]):.3g} "
            f"[{float(low[head]):.3g}, {float(high[head]):.3g}] "
            f"(shuffled {float(shuffled[head]):.2g})"
            for head in self.top(3)
        ]
        return "highest prefix matching (layer.head): " + ", ".join(parts)


def _ratio(means: Float[Tensor, "*r 2 layer head"]) -> Float[Tensor, "*r layer head"]:
    """`same / all`."""
    return means[..., 0, :, :] / means[..., 1, :, :].clamp(min=1e-12)


@dataclass(frozen=True)
class HeadScores(Measurement[HeadScoresResult]):
    """Prefix matching, label attending and label promoting of every head, at the target.

    Attributes:
        norm: Of label promoting: `frozen` or `own`.
        over: Attention to the `labels`, or to the tokens `before_labels`.
        permutations: Of the labels in the shuffled control.
        seed: Of the permutations.

    Raises:
        PromptError: prompts without demonstrations, or whose labels follow no one rule.
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
        """Refuse prompts without a class to match, and weights that are not the checkpoint's.

        Raises:
            PromptError: prompts without demonstrations, or whose labels follow no one rule.
            RunError: processed weights, or no permutations.
        """
        classes_to_match(data)
        check_own_weights(model, "A lens of heads")

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Attention to label words and, where a false class is taught, the heads' lens."""
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
        for found in components:
            promoting = promoting_scores(found, model, classes, data.answers)
        return HeadScoresResult(**scores._asdict(), promoting=promoting, n_labels=data.n_labels)


head_scores = door(
    HeadScores,
    "head_scores",
    prompts='False prompts (`labels="permuted"` or `"half_permuted"`), or true ones.',
)
