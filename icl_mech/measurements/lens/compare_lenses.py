"""Two lenses side by side: the same residuals through the logit lens and through a fitted one.

One pass. Both readings are of the same prompts, so their difference is paired; at the last entry both
are the model's own answer.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.jacobian import JACOBIAN
from icl_mech.measurements.lens.residuals import LENS, LayerLensReading, LensRows
from icl_mech.measurements.lens.tuned import TUNED
from icl_mech.measurements.lens.words import AFTER, LIMITS, NAMES
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import LayerCurves, Panel


@dataclass(frozen=True, eq=False, kw_only=True)
class CompareLensesResult(Result):
    """What each entry would answer, read by a fitted lens and by the logit lens.

    Attributes:
        label_logits: Logits of the label words' first tokens; entry 0 is the embedding.
        answers: True class of each query.
        labels: Names of the classes.
        kind: Of the fitted lens: `tuned`, `jacobian`.
    """

    title: ClassVar[str] = "Two lenses side by side"
    definitions: ClassVar[tuple[Definition, ...]] = (LENS, TUNED, JACOBIAN)

    label_logits: Float[Tensor, "batch lens layer label"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...]
    kind: str

    def quantities(self) -> dict[str, Quantity]:
        """Right answers and the true label's probability by lens and layer; the paired gain."""
        right = self.label_logits.argmax(-1) == self.answers[:, None, None]
        probs = self.label_logits.double().softmax(-1)
        index = self.answers[:, None, None, None].expand(*probs.shape[:-1], 1)
        dims = ("lens", "layer")
        own = probs.gather(-1, index)[..., 0]
        gain = right[:, 0].double() - right[:, 1].double()
        return {
            "accuracy": Quantity(dims, right, unit="accuracy over label words"),
            "true_label": Quantity(
                dims, own, unit="probability among the label words", kind="outcome"
            ),
            "gain": Quantity(("layer",), gain, unit="accuracy above the logit lens", kind="change"),
        }

    def coordinates(self) -> dict[str, tuple[str, str]]:
        """Names of the lenses; layers are entries, 0 the embedding."""
        return {"lens": (self.kind, "logit")}

    def drawing(self) -> LayerCurves:
        """Accuracy by layer under both lenses, and the paired difference."""
        own, gain, chance = self.sel("accuracy"), self.sel("gain"), 1 / len(self.labels)
        values, low, high = (
            torch.cat([one, other[None]])
            for one, other in (
                (own.values, gain.values),
                (own.low, gain.low),
                (own.high, gain.high),
            )
        )
        levels, fitted = ((chance, f"chance {told(chance)}"),), NAMES[self.kind]
        return LayerCurves(
            title="What each layer would answer, by lens",
            names=(fitted, NAMES["logit"], "difference"),
            values=values,
            low=low,
            high=high,
            y_title=own.unit,
            x_title=AFTER,
            note=basis(self),
            meanings=("label", "reference", "other"),
            panels=(
                Panel("Accuracy", (0, 1), own.unit, levels, y_range=(-0.03, 1.05)),
                Panel(f"{fitted} minus logit lens", (2,), gain.unit, ((0.0, "no difference"),)),
            ),
        )

    def figures(self) -> list[Figure]:
        """Where the fitted lens finds right answers that the logit lens does not."""
        gain, fitted = self.sel("gain"), NAMES[self.kind]
        best, prompts = int(gain.values[:-1].argmax()), counted(len(self.answers), "prompt")
        above, below = int((gain.low[:-1] > 0).sum()), int((gain.high[:-1] < 0).sum())
        most = said(self.interval("gain", layer=best), sign=True)
        return [
            Figure(
                question="Do earlier layers encode the answer in directions other than the last layer's?",
                answer=f"The {fitted} is clearly more accurate in {above} of {len(gain.values) - 1} layers, "
                f"clearly less in {below}; the largest difference is {most} at layer {best}, chosen among all.",
                caption="**Share of prompts whose true label word has the largest logit, by layer and lens**, and "
                f"the paired difference. Bands (each point for itself): 95 % intervals over {prompts}"
                f"{given(self)}. At the last layer both are the model's own answer.",
                limits=LIMITS[fitted],
                short="Two lenses",
            )
        ]

    def summary(self) -> str:
        """Mean accuracy over the entries before the last."""
        means = self.quantities()["accuracy"].value()[:, :-1].mean(1)
        return (
            f"accuracy before the last layer {told(float(means[0]))} under the {NAMES[self.kind]}, "
            f"{told(float(means[1]))} under the logit lens (means over layers, "
            f"{counted(len(self.answers), 'prompt')})"
        )


@dataclass(frozen=True)
class CompareLenses(Measurement[CompareLensesResult]):
    """Accuracy at every layer under a fitted lens and under the logit lens.

    Attributes:
        lens: The fitted lens.

    Raises:
        PromptError: prompts without answers.
        RunError: a lens of another model.
    """

    lens: FittedLens

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts without answers and a lens of another model.

        Raises:
            PromptError: prompts without answers.
            RunError: a lens of another model.
        """
        _ = data.answers
        check_lens(self.lens, model)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass with both readings."""
        readings = [LayerLensReading(vocabulary=False, lens=lens) for lens in (self.lens, None)]
        return [Pass(data, readings, title="lenses")]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> CompareLensesResult:
        """Both readings on an axis of their own."""
        found: list[LensRows] = read[0]
        return CompareLensesResult(
            label_logits=torch.stack([rows.label_logits[:, 0] for rows in found], dim=1),
            answers=data.answers,
            labels=data.labels,
            kind=self.lens.kind,
        )


compare_lenses = door(
    CompareLenses,
    "compare_lenses",
    then=("lens",),
    prompts="The prompts, with answers; not those the lens was fitted on.",
)
