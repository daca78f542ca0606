"""The numbers of compression methods side by side, with intervals and paired differences.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.compression.quality import StandInQuality, check_known, qualities
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Quantity
from icl_mech.results.judging import Required, Status, required

if TYPE_CHECKING:
    import pandas as pd

Loyalty = Literal["label_loyalty", "word_loyalty", "accuracy"]

ANCHORS = "hidden_anchor"

CONTROLS = ("text_anchor", "hidden_random")
"""What anchors are judged against; the best of many random draws was picked on the same prompts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparedMethods(StandInQuality):
    """How well each method's stand-in replaces the demonstrations, as numbers.

    Attributes:
        methods: Names of the methods, in the order of the leading axes.
        kept: Positions kept, by method and prompt.
        label_logits: Logits of the label words' first tokens behind each stand-in.
        label_kept: The predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        correct: The predicted class is the true one; None without answers.
        labels: Names of the classes.
    """

    methods: tuple[str, ...]
    kept: tuple[tuple[tuple[int, ...], ...], ...]
    label_logits: Float[Tensor, "method batch label"]
    label_kept: Bool[Tensor, "method batch"]
    word_overlap: Float[Tensor, "method batch"]
    correct: Bool[Tensor, "method batch"] | None = None
    labels: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Label loyalty, word loyalty and accuracy by method."""
        correct = None if self.correct is None else self.correct.T
        own = qualities(("method",), self.label_kept.T, self.word_overlap.T, correct)
        return {**own, **super().quantities()}

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the methods."""
        return {"method": self.methods}

    def label_loyalty(self, method: str) -> Interval:
        """Share of prompts whose predicted class is kept, with Wilson interval."""
        return self.interval("label_loyalty", method=method)

    def word_loyalty(self, method: str) -> Interval:
        """Mean overlap of the likeliest next tokens, with its interval."""
        return self.interval("word_loyalty", method=method)

    def accuracy(self, method: str) -> Interval:
        """Share of prompts answered correctly, with Wilson interval.

        Raises:
            ResultError: a method that was not compared, or true classes are not known.
        """
        check_known(self.correct)
        return self.interval("accuracy", method=method)

    @checked(ResultError)
    def difference(self, first: str, second: str, quantity: Loyalty = "label_loyalty") -> Interval:
        """`first` minus `second`, paired over prompts, with score interval.

        Raises:
            ResultError: an unknown quantity or a method that was not compared.
        """
        if quantity == "accuracy":
            check_known(self.correct)
        both = self.sel(quantity, method=[first, second]).quantities()[quantity].per_prompt.double()
        return mean_interval(both[:, 0] - both[:, 1], "change")

    def found(self, method: str) -> dict[str, Interval]:
        """All numbers of one method by name."""
        names = [name for name, one in self.quantities().items() if one.dims]
        return {name.replace("_", " "): self.interval(name, method=method) for name in names}

    @property
    def controls(self) -> tuple[str, ...]:
        """Methods the anchors are judged against, as far as they were compared."""
        return tuple(method for method in CONTROLS if method in self.methods)

    def status_of(self, quantity: Loyalty) -> Status:
        """Of the claim that anchors keep more than the controls, by one quantity."""
        if ANCHORS not in self.methods:
            return "cannot be judged"
        return self._required(quantity).status

    @property
    def status(self) -> Status:
        """Of the claim that the states of label words can stand for the demonstrations.

        They must keep more answers and more of the likely next words than the controls.
        """
        return self.required.status

    @property
    def required(self) -> Required:
        """The same as a measure that a claim requires, with its p-value."""
        return self._required("label_loyalty", "word_loyalty")

    def _required(self, *quantities: Loyalty) -> Required:
        if ANCHORS not in self.methods:
            return Required("loyalty", "cannot be judged", None)
        differences = [
            self.difference(ANCHORS, other, quantity)
            for quantity in quantities
            for other in self.controls
        ]
        return required("loyalty", *differences, prompts=len(self.full_predicted))

    def to_pandas(self) -> "pd.DataFrame":
        """One row per method, and one for the full prompts; columns end in `_low`, `_high`."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for method in self.methods:
            row: dict[str, Any] = {"method": method}
            for name, interval in self.found(method).items():
                key = name.replace(" ", "_")
                row |= {
                    key: interval.value,
                    f"{key}_low": interval.low,
                    f"{key}_high": interval.high,
                }
            row["demonstration_share"] = float(self.demonstration_share.mean())
            row["prompt_share"] = float(self.prompt_share.mean())
            row["speed_up"], row["speed_up_cached"] = self.speed_up, self.speed_up_cached
            rows.append(row)
        if self.correct is not None:
            value, low, high = self.full_accuracy
            rows.append(
                {
                    "method": "full prompt", "label_loyalty": 1.0, "word_loyalty": 1.0,
                    "accuracy": value, "accuracy_low": low, "accuracy_high": high,
                    "demonstration_share": 1.0, "prompt_share": 1.0,
                }
            )  # fmt: skip
        return pd.DataFrame(rows)
