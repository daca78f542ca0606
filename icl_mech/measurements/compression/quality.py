"""`StandInQuality`: what the results of compression share."""

from dataclasses import dataclass

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ResultError
from icl_mech.metrics import Interval
from icl_mech.results import Quantity, Result
from icl_mech.results.wording import percent

TITLE = "Demonstrations replaced by a stand-in"
UNIT = "share of prompts; overlap"


@dataclass(frozen=True, eq=False, kw_only=True)
class StandInQuality(Result):
    """Full in-context learning beside stand-ins for the demonstrations, and what those cost.

    Attributes:
        full_correct: The class predicted from the full prompt is the true one; None without
            answers.
        full_predicted: Class predicted from the full prompt.
        demonstration_share: Kept tokens / tokens of the demonstrations, the same for all methods.
        prompt_share: Tokens left, query included / tokens of the prompt.
        speed_up: Time of full prompts without a cache / of queries behind the compressed
            cache, whose building is not counted; None if not measured.
        speed_up_cached: Time of queries behind the full cache of the demonstrations / behind
            the compressed one.
    """

    full_correct: Bool[Tensor, " batch"] | None = None
    full_predicted: Int[Tensor, " batch"]
    demonstration_share: Float[Tensor, " batch"]
    prompt_share: Float[Tensor, " batch"]
    speed_up: float | None = None
    speed_up_cached: float | None = None

    @property
    def constant_loyalty(self) -> float:
        """Label loyalty of always answering what most full prompts are answered with.

        Where it is high, label loyalty tells little: the model hardly looks at the queries.
        """
        counts = torch.bincount(self.full_predicted)
        return int(counts.max()) / len(self.full_predicted)

    def quantities(self) -> dict[str, Quantity]:
        """Accuracy of full in-context learning, where it is known."""
        if self.full_correct is None:
            return {}
        return {"full_accuracy": Quantity((), self.full_correct, unit="share of prompts")}

    @property
    def full_accuracy(self) -> Interval:
        """Accuracy of full in-context learning, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        check_known(self.full_correct)
        return self.interval("full_accuracy")

    @property
    def kept_share(self) -> str:
        """How much of the demonstrations is left, in words."""
        return (
            f"{percent(float(self.demonstration_share.mean()))} of the demonstrations' tokens kept"
        )


def check_known(correct: Tensor | None) -> None:
    """Refuse accuracy of prompts whose true classes are not known.

    Raises:
        ResultError: without answers.
    """
    if correct is None:
        raise ResultError("These prompts have no answers; accuracy needs them.")


def qualities(
    dims: tuple[str, ...], kept: Tensor, overlap: Tensor, correct: Tensor | None
) -> dict[str, Quantity]:
    """Label loyalty, word loyalty and, where it is known, accuracy; prompt axis first."""
    found = {
        "label_loyalty": Quantity(dims, kept, unit="share of prompts"),
        "word_loyalty": Quantity(
            dims, overlap, unit="overlap of the likeliest next tokens", kind="outcome"
        ),
    }
    if correct is not None:
        found["accuracy"] = Quantity(dims, correct, unit="share of prompts")
    return found
