"""Comparison of two lenses: the same residuals through the logit lens and through a fitted one.

One pass. Both readouts use the same prompts, so their difference is paired; at the last entry both
are the model's answer.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.jacobian import JACOBIAN
from icl_mech.measurements.lens.residuals import LENS, LayerLensReading, LensRows
from icl_mech.measurements.lens.tuned import TUNED
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result, Samples


class Gain(NamedTuple):
    """Accuracy gain of the fitted lens at one entry.

    Attributes:
        layer: The entry.
        accuracy: Its accuracy above that of the logit lens.
    """

    layer: int
    accuracy: Interval


@dataclass(frozen=True, eq=False, kw_only=True)
class CompareLensesResult(Result):
    """Predictions of each entry under a fitted lens and under the logit lens.

    Attributes:
        label_logits: Logits of the label words' first tokens; entry 0 is the embedding.
        answers: True class of each query.
        labels: Names of the classes.
        kind: Type of the fitted lens: `tuned`, `jacobian`.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (LENS, TUNED, JACOBIAN)

    label_logits: Float[Tensor, "batch lens layer label"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...]
    kind: str

    def quantities(self) -> dict[str, Quantity]:
        """Correct answers and the true label's probability by lens and layer; the paired gain."""
        right = self.label_logits.argmax(-1) == self.answers[:, None, None]
        probs = self.label_logits.double().softmax(-1)
        index = self.answers[:, None, None, None].expand(*probs.shape[:-1], 1)
        dims = ("lens", "layer")
        true_probs = probs.gather(-1, index)[..., 0]
        gain = right[:, 0].double() - right[:, 1].double()
        return {
            "accuracy": Quantity(dims, right, unit="accuracy over label words"),
            "true_label": Quantity(
                dims, true_probs, unit="probability among the label words", kind="outcome"
            ),
            "gain": Quantity(("layer",), gain, unit="accuracy above the logit lens", kind="change"),
        }

    def coordinates(self) -> dict[str, tuple[str, str]]:
        """Names of the lenses; layers are entries, 0 the embedding."""
        return {"lens": (self.kind, "logit")}

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.answers)

    @property
    def n_layers(self) -> int:
        """Number of entries before the last, at which the lenses may differ."""
        return self.label_logits.shape[2] - 1

    @cached_property
    def _gain(self) -> Samples:
        return self.sel("gain")

    @property
    def clearly_better(self) -> int:
        """Number of entries before the last at which the fitted lens is clearly more accurate."""
        return int((self._gain.low[:-1] > 0).sum())

    @property
    def clearly_worse(self) -> int:
        """Number of entries before the last at which the fitted lens is clearly less accurate."""
        return int((self._gain.high[:-1] < 0).sum())

    @property
    def largest_gain(self) -> Gain:
        """The largest gain and its entry; the interval ignores that the entry was chosen among all."""
        layer = int(self._gain.values[:-1].argmax())
        return Gain(layer, self.interval("gain", layer=layer))

    @property
    def mean_accuracy(self) -> tuple[float, float]:
        """Accuracy under the fitted and under the logit lens, averaged over the entries before the last."""
        fitted, logit = self.quantities()["accuracy"].value()[:, :-1].mean(1)
        return float(fitted), float(logit)


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
        """Reject prompts without answers and a lens of another model.

        Raises:
            PromptError: prompts without answers.
            RunError: a lens of another model.
        """
        _ = data.answers
        check_lens(self.lens, model)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass with both readouts."""
        readings = [LayerLensReading(vocabulary=False, lens=lens) for lens in (self.lens, None)]
        return [Pass(data, readings, title="lenses")]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> CompareLensesResult:
        """Stack both readouts along the lens axis."""
        by_lens: list[LensRows] = read[0]
        return CompareLensesResult(
            label_logits=torch.stack([rows.label_logits[:, 0] for rows in by_lens], dim=1),
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
