"""`CalibrationResult`: accuracy of each method on the same prompts, and what it says."""

from dataclasses import dataclass
from typing import ClassVar

from icl_mech._typing import Float, Int, Tensor
from icl_mech.metrics import ONE_SIDED, above_together
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, Status
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, said, told
from icl_mech.shapes import Bars

NAMES = {
    "plain": "plain",
    "contextual": "contextual calibration",
    "domain": "domain calibration",
    "batch": "batch calibration",
    "reweighted": "re-weighted attention",
    "more_shots": "more demonstrations",
}
PRIORS = ("contextual", "domain", "batch")

CALIBRATED_LABELS = Definition(
    "calibration by a prior",
    r"\hat p(c) = \frac{p(c) / \bar p(c)}{\sum_{c'} p(c') / \bar p(c')}",
    "Probability p of class c among the label words, divided by a prior: its mean over queries without "
    "content (contextual), over random words of calibration texts (domain), or over the prompts (batch), "
    "all behind the same demonstrations.",
    "Zhao et al. 2021, Calibrate Before Use; Fei et al. 2023; Zhou et al. 2024",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationResult(Result):
    """What each method answers on the same prompts.

    Attributes:
        scores: Score of each label; the largest is the answer. Probabilities but under
            `form="difference"`.
        priors: Mean probabilities that were taken out: contextual, domain, batch.
        answers: True class of each query.
        methods: `plain`, `contextual`, `domain`, `batch` and, if given, `reweighted`, `more_shots`.
        labels: Names of the classes.
        form: Of the calibration, see `calibrate_labels`.
    """

    title: ClassVar[str] = "Calibration"
    definitions: ClassVar[tuple[Definition, ...]] = (CALIBRATED_LABELS,)
    shows: ClassVar[tuple[str, ...]] = ("accuracy", "priors")

    scores: Float[Tensor, "batch method label"]
    priors: Float[Tensor, "batch source label"]
    answers: Int[Tensor, " batch"]
    methods: tuple[str, ...]
    labels: tuple[str, ...]
    form: str = "paper"

    def quantities(self) -> dict[str, Quantity]:
        """Right answers by method, what each gains over plain (paired), and the priors."""
        right = self.scores.argmax(-1) == self.answers[:, None]
        gain = right.double() - right[:, :1].double()
        return {
            "accuracy": Quantity(("method",), right, unit="accuracy over label words"),
            "gain": Quantity(("method",), gain, unit="accuracy above plain", kind="change"),
            "prior": Quantity(("source", "label"), self.priors, unit="mean label probability"),
        }

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of methods, sources of priors and classes."""
        return {"method": self.methods, "source": PRIORS, "label": self.labels}

    def drawing(self, show: str = "accuracy") -> Bars:
        """Accuracy of each method, or the priors of each label.

        Args:
            show: `accuracy` or `priors`.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        chance = 1 / len(self.labels)
        if show == "priors":
            prior = self.sel("prior")
            return Bars(
                title="What the model says without content",
                groups=self.labels,
                names=PRIORS,
                values=prior.values.T,
                low=prior.low.T,
                high=prior.high.T,
                y_title=prior.unit,
                note=basis(self),
                levels=((chance, f"no preference {told(chance)}"),),
            )
        found = self.sel("accuracy")
        return Bars(
            title="Calibration beside plain in-context learning",
            groups=tuple(NAMES[name] for name in self.methods),
            names=("accuracy",),
            values=found.values[:, None],
            low=found.low[:, None],
            high=found.high[:, None],
            y_title=found.unit,
            note=basis(self),
            meanings=("label",),
            levels=((chance, f"chance {told(chance)}"),),
        )

    def figures(self) -> list[Figure]:
        """The accuracies, and the priors that were taken out."""
        n, tried = len(self.answers), self.methods[1:4]
        gains = self.quantities()["gain"].per_prompt[:, 1:4]
        clear = above_together(gains, level=ONE_SIDED)
        better = [name for name, above in zip(tried, clear, strict=True) if bool(above)]
        status: Status = "supported" if better else "not shown"
        if n < FEWEST_PROMPTS:
            status = "cannot be judged"
        few = f" from {counted(n, 'prompt')}" if status == "cannot be judged" else ""
        parts = [
            f"{NAMES[name]} {said(self.interval('gain', method=name), sign=True)}"
            for name in self.methods[1:]
        ]
        prior = self.sel("prior").values
        place = int(prior[0].argmax())
        return [
            Figure(
                "accuracy",
                "Does taking out what the model says without content help?",
                f"{OPENINGS[status]}{few}: plain accuracy is "
                f"{said(self.interval('accuracy', method='plain'))}; changes against it: {'; '.join(parts)}."
                + (f" Above 0, looking at all three: {listed(better)}." if better else ""),
                "**Share of right answers of each method on the same prompts.** Bars: 95 % Wilson "
                f"intervals over {counted(n, 'prompt')}{given(self)}; changes are paired. Batch "
                "calibration sees all of these prompts, without their labels.",
                "that part of the plain model's errors is a preference for some label words."
                if status == "supported"
                else "",
                "that calibrated probabilities are right as probabilities: only the largest is judged.",
                "Calibration",
            ),
            Figure(
                "priors",
                "Which label does the model prefer without content?",
                f"“{self.labels[place]}”: {told(float(prior[0, place]))} of the probability behind inputs "
                f"without content, {told(float(prior[1, place]))} behind random words, "
                f"{told(float(prior[2, place]))} on the prompts; no preference would be "
                f"{told(1 / len(self.labels))}.",
                "**Mean probability of each label behind the same demonstrations**: of inputs without "
                "content, of random words of calibration texts, and of the prompts themselves.",
                "",
                "where the preference comes from: the label word, the demonstrations or the text.",
                "Priors",
            ),
        ]

    def summary(self) -> str:
        """Accuracy of each method."""
        values = self.quantities()["accuracy"].value().tolist()
        parts = [f"{name} {told(own)}" for name, own in zip(self.methods, values, strict=True)]
        return f"accuracy on {counted(len(self.answers), 'prompt')}: {', '.join(parts)}"
