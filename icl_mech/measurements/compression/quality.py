"""`StandInQuality`: full in-context learning compared with stand-ins, and the cost of these."""

import math
from dataclasses import dataclass

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ResultError
from icl_mech.metrics import Interval
from icl_mech.results import Quantity, Result
from icl_mech.results.prompts import answer_kind

OVERLAP = "overlap of the top next tokens"
"""Unit of word loyalty."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StandInQuality(Result):
    """Full in-context learning compared with stand-ins for the demonstrations, and the cost of these.

    Attributes:
        full_correct: Whether the class predicted from the full prompt is the true one; None without
            answers.
        full_predicted: Class predicted from the full prompt.
        demonstration_share: Kept tokens / tokens of the demonstrations, the same for all methods.
        prompt_share: Kept tokens, query included / tokens of the prompt.
        speed_up: Time of full prompts without a cache / of queries on the compressed
            cache, whose building is not counted; None if not measured.
        speed_up_cached: Time of queries on the full cache of the demonstrations / on
            the compressed one.
        labels: Names of the classes.
    """

    full_correct: Bool[Tensor, " batch"] | None = None
    full_predicted: Int[Tensor, " batch"]
    demonstration_share: Float[Tensor, " batch"]
    prompt_share: Float[Tensor, " batch"]
    speed_up: float | None = None
    speed_up_cached: float | None = None
    labels: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Label loyalty, word loyalty and accuracy, and the accuracy of full in-context learning if it is known."""
        quantities = super().quantities()
        if self.full_correct is not None:
            quantities["full_accuracy"] = Quantity(
                (), self.full_correct, unit="fraction of prompts"
            )
        return quantities

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.full_predicted)

    @property
    def kept_share(self) -> float:
        """Fraction of the demonstrations' tokens that is kept, averaged over prompts."""
        return float(self.demonstration_share.mean())

    @property
    def constant(self) -> str | None:
        """The most frequent answer to full prompts, the first on ties; None where a file does not hold its name."""
        place = int(torch.bincount(self.full_predicted).argmax())
        return self.labels[place] if place < len(self.labels) else None

    @property
    def constant_loyalty(self) -> float:
        """Label loyalty of a constant answer, the most frequent answer to full prompts.

        Where it is high, label loyalty shows little: the answers hardly depend on the queries. Not a number
        where no answer is the same in all prompts: free-form answers and texts.
        """
        if answer_kind(self) != "classes":
            return math.nan
        counts = torch.bincount(self.full_predicted)
        return int(counts.max()) / len(self.full_predicted)

    @property
    def full_accuracy(self) -> Interval:
        """Accuracy of full in-context learning, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        check_known(self.full_correct)
        return self.interval("full_accuracy")


def check_known(correct: Tensor | None) -> None:
    """Reject accuracy of prompts whose true classes are not known.

    Raises:
        ResultError: without answers.
    """
    if correct is None:
        raise ResultError(
            "These prompts have no answers, which accuracy needs; build them with answers."
        )
