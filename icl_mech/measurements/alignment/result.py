"""`AlignmentResult`: shares of answers by what they follow."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import Interval
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import OPENINGS, judged
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import Bars

SIDES = ("true", "false")
FOLLOWED = ("truth", "prompt", "prior")
"""The true label, the label the demonstrations teach, the zero-shot answer."""

NAMES = {"truth": "the true label", "prompt": "the label taught", "prior": "the zero-shot answer"}

SOURCE = (
    "after Krishna Kumar 2025, Semantic Anchors in In-Context Learning, which names truth, prior and "
    "prompt alignment and the semantic override rate"
)

DEFINITIONS = (
    Definition(
        "alignment",
        r"A_x = \frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat y_n = x_n\right], \quad "
        r"x \in \{y,\ \tilde y,\ \hat y^{(0)}\}",
        "Share of answers ŷ that are the true label y (truth), the label that the demonstrations teach for "
        "the query (prompt: y behind true ones, ỹ behind false ones), or the answer without "
        "demonstrations (prior). One answer may follow several.",
        SOURCE,
    ),
    Definition(
        "semantic override",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat y_n = \tilde y_n \ne \hat y^{(0)}_n\right]",
        "Share of prompts that are answered as the false demonstrations teach although the model answers "
        "otherwise without them.",
        SOURCE,
    ),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class AlignmentResult(Result):
    """What the answers behind true and behind false demonstrations follow.

    Attributes:
        predicted: Class answered, by side (`true`, `false` demonstrations).
        zero_shot: Class answered without demonstrations.
        answers: True class of each query.
        taught: Class that the false demonstrations teach for it.
        labels: Names of the classes.
    """

    title: ClassVar[str] = "Truth, demonstrations or prior"
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    predicted: Int[Tensor, "batch side"]
    zero_shot: Int[Tensor, " batch"]
    answers: Int[Tensor, " batch"]
    taught: Int[Tensor, " batch"]
    labels: tuple[str, ...]

    @property
    def targets(self) -> Int[Tensor, "batch side followed"]:
        """The class each answer would be if it followed truth, prompt or prior."""
        shown = torch.stack([self.answers, self.taught], dim=1)
        own, prior = (part[:, None].expand(-1, 2) for part in (self.answers, self.zero_shot))
        return torch.stack([own, shown, prior], dim=-1)

    def quantities(self) -> dict[str, Quantity]:
        """Alignment by side and by what is followed, the override, and the zero-shot accuracy."""
        follows = self.predicted[..., None] == self.targets
        override = follows[:, 1, 1] & ~follows[:, 1, 2]
        return {
            "alignment": Quantity(("side", "followed"), follows, unit="share of answers"),
            "override": Quantity((), override, unit="share of prompts"),
            "zero_shot_accuracy": Quantity((), self.zero_shot == self.answers, unit="accuracy"),
        }

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the sides and of what is followed."""
        return {"side": SIDES, "followed": FOLLOWED}

    def drawing(self) -> Bars:
        """Shares by side."""
        found = self.sel("alignment")
        chance = 1 / len(self.labels)
        return Bars(
            title="What the answers follow",
            groups=tuple(f"{side} demonstrations" for side in SIDES),
            names=tuple(NAMES[name] for name in FOLLOWED),
            values=found.values,
            low=found.low,
            high=found.high,
            y_title=found.unit,
            note=basis(self, f"{counted(len(self.answers), 'pair')} of prompts"),
            meanings=("true", "false", "reference"),
            levels=((chance, f"chance {told(chance)}"),),
        )

    @property
    def lead(self) -> Float[Tensor, " batch"]:
        """Behind false demonstrations: 1 where the label taught is answered, -1 where the true one."""
        follows = (self.predicted[..., None] == self.targets)[:, 1].double()
        return follows[:, 1] - follows[:, 0]

    @property
    def taught_above_truth(self) -> Interval:
        """Behind false demonstrations: answers that are the label taught, minus those that are true."""
        found = Quantity((), self.lead, kind="change")
        return Interval(float(found.value()), *(float(end) for end in found.ends()))

    def figures(self) -> list[Figure]:
        """Whether false demonstrations win over the truth."""
        ends = self.taught_above_truth
        status = judged(ends, prompts=len(self.lead))
        shares = {name: self.interval(side="false", followed=name) for name in FOLLOWED}
        parts = ", ".join(f"{NAMES[name]} in {said(own)}" for name, own in shares.items())
        return [
            Figure(
                "",
                "Do answers follow false demonstrations rather than the truth?",
                f"{OPENINGS[status]}: behind false demonstrations answers are {parts} of the prompts; taught "
                f"minus true {said(ends, sign=True)}. Against their zero-shot answer they follow the "
                f"demonstrations in {said(self.interval('override'))} (semantic override).",
                "**Share of answers that are the true label, the label the demonstrations teach, and the "
                "answer without demonstrations**; one answer may be several of them, and behind true "
                "demonstrations the first two are the same. Bars: 95 % Wilson intervals over "
                f"{counted(len(self.answers), 'pair')} of prompts{given(self)}.",
                "that labels are taken from the demonstrations, not from their meaning."
                if status == "supported"
                else "",
                "why an answer follows one of them: with two classes the label taught is simply the wrong "
                "one, so an answer that lost its way counts for it too.",
                "Alignment",
            )
        ]

    def summary(self) -> str:
        """Shares behind false demonstrations, and the override."""
        parts = [f"{name} {self.interval(side='false', followed=name)}" for name in FOLLOWED]
        return (
            f"behind false demonstrations {', '.join(parts)}; override {self.interval('override')}"
        )
