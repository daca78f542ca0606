"""Alignment of answers with true and with false demonstrations.

An answer may be the true label of the query (truth), the label that the demonstrations teach for it
(prompt), or the model's answer without demonstrations (prior). The *semantic override* is
the fraction of prompts answered with the label that false demonstrations teach although the zero-shot answer differs.

Source: after Krishna Kumar 2025, *Semantic Anchors in In-Context Learning: Why Small LLMs Cannot
Flip Their Labels*, which names these quantities; the formulas are those above.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.demonstrations import (
    check_pairs,
    same_queries,
    taught_classes,
    without_demonstrations,
)
from icl_mech.measurements.doors import door
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reading import PredictionReading
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, jointly, judged
from icl_mech.results.prompts import answer_kind
from icl_mech.results.quantities import kept

SIDES = ("true", "false")
FOLLOWED = ("truth", "prompt", "prior")
"""The true label, the label the demonstrations teach, the zero-shot answer."""

SOURCE = (
    "after Krishna Kumar 2025, Semantic Anchors in In-Context Learning, which names truth, prior and "
    "prompt alignment and the semantic override rate"
)

DEFINITIONS = (
    Definition(
        "alignment",
        r"A_x = \frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat y_n = x_n\right], \quad "
        r"x \in \{y,\ \tilde y,\ \hat y^{(0)}\}",
        "Fraction of answers ŷ that equal the true label y (truth), the label that the "
        "demonstrations teach for the query (prompt: y with true demonstrations, ỹ with false "
        "ones), or the answer without demonstrations (prior). An answer may equal several of "
        "these.",
        SOURCE,
    ),
    Definition(
        "semantic override",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat y_n = \tilde y_n \ne \hat y^{(0)}_n\right]",
        "Fraction of prompts answered with the label that the false demonstrations teach, "
        "although the model answers differently without demonstrations.",
        SOURCE,
    ),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class AlignmentResult(Result):
    """Alignment of the answers with true and with false demonstrations.

    Attributes:
        predicted: Predicted class, by side (`true`, `false` demonstrations).
        zero_shot: Predicted class without demonstrations.
        answers: True class of each query.
        taught: Class that the false demonstrations teach for it.
        labels: Names of the classes.
    """

    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"side": SIDES, "followed": FOLLOWED}

    predicted: Int[Tensor, "batch side"]
    zero_shot: Int[Tensor, " batch"]
    answers: Int[Tensor, " batch"]
    taught: Int[Tensor, " batch"]
    labels: tuple[str, ...]

    @property
    def targets(self) -> Int[Tensor, "batch side followed"]:
        """The class of each answer if it followed truth, prompt or prior."""
        shown = torch.stack([self.answers, self.taught], dim=1)
        true, prior = (part[:, None].expand(-1, 2) for part in (self.answers, self.zero_shot))
        return torch.stack([true, shown, prior], dim=-1)

    def quantities(self) -> dict[str, Quantity]:
        """Alignment by side and by what is followed, the override, and the zero-shot accuracy."""
        follows = self.predicted[..., None] == self.targets
        override = follows[:, 1, 1] & ~follows[:, 1, 2]
        return {
            "alignment": Quantity(("side", "followed"), follows, unit="fraction of answers"),
            "override": Quantity((), override, unit="fraction of prompts"),
            "zero_shot_accuracy": Quantity((), self.zero_shot == self.answers, unit="accuracy"),
        }

    @property
    def lead(self) -> Float[Tensor, " batch"]:
        """1 if the answer under false demonstrations is the demonstrated label, -1 if it is the true one, else 0."""
        return self._lead(self.predicted[:, 1])

    def _lead(self, predicted: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        return (predicted == self.taught).double() - (predicted == self.answers).double()

    @property
    @kept
    def taught_above_truth(self) -> Interval:
        """Under false demonstrations, fraction of answers with the demonstrated label minus that with the true one."""
        return mean_interval(self.lead, "change")

    @property
    def by_class(self) -> bool:
        """True if answers are classes, so that there are constant answers."""
        return answer_kind(self) == "classes"

    @property
    @kept
    def above_undemonstrated(self) -> Interval:
        """The same difference minus that of a baseline without demonstrations, paired over prompts.

        The baseline is the zero-shot answer or, for classes, a constant one: whichever has the larger difference. Where
        classes are not equally frequent, either may equal the demonstrated label more often than the true one.
        """
        others = [self.zero_shot]
        if self.by_class:
            others += torch.arange(len(self.labels))[:, None].expand(-1, len(self.answers))
        control = max(map(self._lead, others), key=torch.sum)
        return mean_interval(self.lead - control, "contrast")

    @property
    def taught_above_others(self) -> Interval | None:
        """Under false demonstrations, fraction of answers with the demonstrated label minus the mean of the other false ones.

        An effect that only lowers the correct label affects all incorrect ones alike. None if there is only one.
        """
        wrong = len(self.labels) - 1
        if wrong < 2:
            return None
        taught, right = (self.predicted[:, 1] == label for label in (self.taught, self.answers))
        others = (~taught & ~right).double() / (wrong - 1)
        return mean_interval(taught.double() - others, "contrast")

    @property
    def status(self) -> Status:
        """Status of the claim that answers follow false demonstrations rather than the truth."""
        effects = (self.taught_above_truth, self.above_undemonstrated)
        return jointly(*(judged(effect, prompts=self.count) for effect in effects))

    @property
    def count(self) -> int:
        """Number of pairs of prompts."""
        return len(self.answers)


@dataclass(frozen=True)
class Alignment(PairMeasurement[AlignmentResult]):
    """Fractions of answers that follow the truth, the demonstrations or the zero-shot prior.

    Attributes:
        zero_shot: The same queries without demonstrations; None: cut out of the true prompts.

    Raises:
        PromptError: sets that are not pairs, false labels that do not teach a single label, or `zero_shot`
            with other queries.

    Source: after Krishna Kumar 2025, arXiv 2511.21038.
    """

    zero_shot: PromptBatch | None = None

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject sets that are not pairs, false labels that do not teach a single label, and other queries.

        Raises:
            PromptError: says which.
        """
        true, false = data
        check_pairs(true, false)
        if taught_classes(false) is None:
            raise PromptError(
                "The false demonstrations do not teach a single label for each query, so it is "
                "undefined whether an answer follows them. Build them with "
                "false_labels='permuted' or 'half_permuted'."
            )
        self._bare(true)

    def _bare(self, true: PromptBatch) -> PromptBatch:
        if self.zero_shot is None:
            bare = without_demonstrations(true)
            if bare is None:
                raise PromptError(
                    "The queries cannot be extracted from these prompts (they were built from "
                    "bare positions, are read at the last demonstration, or have none). Give "
                    "the queries as zero_shot=."
                )
            return bare
        bare = self.zero_shot
        words = [[prompt.label_words for prompt in batch] for batch in (bare, true)]
        if words[0] != words[1] or not same_queries(bare, true):
            raise PromptError(
                "zero_shot must hold the queries of the pair in the same order. Build it with the "
                "same task, n and seed, and with shots=0."
            )
        shown = sum(bool(prompt.label_positions) for prompt in bare)
        if shown:
            raise PromptError(
                f"{shown} of {len(bare)} zero_shot prompts contain demonstrations; build them with "
                "shots=0."
            )
        return bare

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Both sides and the bare queries."""
        sides = zip((*data, self._bare(data[0])), ("true", "false", "no"), strict=True)
        return [
            Pass(batch, [PredictionReading()], title=f"{side} demonstrations")
            for batch, side in sides
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> AlignmentResult:
        """Predicted classes in all three runs."""
        true, false = data
        answered = [logits.argmax(-1) for ((logits, *_),) in read]
        taught = taught_classes(false)
        assert taught is not None
        return AlignmentResult(
            predicted=torch.stack(answered[:2], dim=1),
            zero_shot=answered[2],
            answers=true.answers,
            taught=taught,
            labels=true.labels,
            provenance={"zero_shot": prompt_source(self._bare(true))},
        )


alignment = door(
    Alignment,
    "alignment",
    then=("zero_shot",),
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
