"""What came out of compressing one set of prompts by several methods."""

from dataclasses import dataclass, replace
from typing import Any

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.measurements.compression.kept import Method, Positions
from icl_mech.prompts import PromptBatch


@dataclass(frozen=True, eq=False)
class Compressed:
    """What came out of one method.

    Attributes:
        method: Its name.
        kept: Positions kept of each prompt.
        label_logits: At the target, behind the stand-in.
        label_kept: The predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        draws: Label loyalty of every draw, where there were several.
        draw: The draw that was taken.
    """

    method: Method
    kept: tuple[Positions, ...]
    label_logits: Float[Tensor, "batch label"]
    label_kept: Bool[Tensor, " batch"]
    word_overlap: Float[Tensor, " batch"]
    draws: tuple[float, ...] = ()
    draw: int = 0

    @property
    def choice(self) -> dict[str, Any]:
        """What provenance records of the draws."""
        return {"draw": self.draw, "label_loyalty_of_draws": list(self.draws)}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came out of several methods on the same prompts.

    Attributes:
        full_predicted: Class predicted from each full prompt.
        methods: By method, in the order asked for.
        shares: Kept tokens / tokens of the demonstrations, and (kept + query) / whole prompt;
            equal for all methods, which keep equally many tokens.
        cut: The cache was cut; False where columns could only be hidden.
    """

    full_predicted: Int[Tensor, " batch"]
    methods: tuple[Compressed, ...]
    shares: Float[Tensor, "share=2 batch"]
    cut: bool

    @property
    def facts(self) -> dict[str, Any]:
        """What provenance records of it."""
        draws = {one.method: one.choice for one in self.methods if one.draws}
        return {"cache": "cut" if self.cut else "hidden", **({"draws": draws} if draws else {})}

    def common(self, prompts: PromptBatch) -> dict[str, Any]:
        """Fields of `StandInQuality`."""
        right = self.full_predicted == prompts.answers if prompts.has_answers else None
        return {
            "full_correct": right,
            "full_predicted": self.full_predicted,
            "demonstration_share": self.shares[0].clone(),
            "prompt_share": self.shares[1].clone(),
            "provenance": self.facts,
        }


def best(candidates: list[Compressed]) -> Compressed:
    """The candidate with the highest label loyalty, the first of them on ties."""
    if len(candidates) == 1:
        return candidates[0]
    loyalties = [float(found.label_kept.double().mean()) for found in candidates]
    draw = loyalties.index(max(loyalties))
    return replace(candidates[draw], draws=tuple(loyalties), draw=draw)
