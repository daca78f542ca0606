"""What a vector at the output of each block does to the answers at the target.

By block, on every prompt: probability of the right label word, its logit above the others, and whether it
is the likeliest label word; each beside the run without the vector.

Source: Todd et al. 2024, *Function vectors in large language models*, §3.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.measurements.causal.definitions import ADDED
from icl_mech.metrics import ONE_SIDED, Interval, above_together
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import LayerCurves, Panel

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class VectorEffect(Result):
    """Answers with a vector behind each block, and without it.

    Attributes:
        probability: Of the right label word, by block.
        difference: Its logit minus the mean of the other label words'.
        correct: It is the likeliest label word.
        plain_probability: Without the vector.
        plain_difference: Without the vector.
        plain_correct: Without the vector.
        layers: The blocks.
        kind: The vector was added to the output (`add`), or put in its place (`replace`).
        n_labels: Number of classes.
    """

    title: ClassVar[str] = "Effect of a vector"
    definitions: ClassVar[tuple[Definition, ...]] = (ADDED,)

    probability: Float[Tensor, "batch layer"]
    difference: Float[Tensor, "batch layer"]
    correct: Bool[Tensor, "batch layer"]
    plain_probability: Float[Tensor, " batch"]
    plain_difference: Float[Tensor, " batch"]
    plain_correct: Bool[Tensor, " batch"]
    layers: tuple[int, ...]
    kind: str
    n_labels: int

    def quantities(self) -> dict[str, Quantity]:
        """Accuracy, probability and logit difference by block, their changes, and the plain run."""
        dims = ("layer",)
        gained = self.correct.double() - self.plain_correct.double()[:, None]
        return {
            "accuracy": Quantity(dims, self.correct, unit="share of right answers"),
            "probability": Quantity(dims, self.probability, unit="probability of the right answer"),
            "difference": Quantity(
                dims, self.difference, unit="logit of the right answer above others"
            ),
            "accuracy_change": Quantity(dims, gained, unit="change of accuracy", kind="change"),
            "probability_change": Quantity(
                dims,
                self.probability - self.plain_probability[:, None],
                unit="change of probability",
            ),
            "difference_change": Quantity(
                dims, self.changes, unit="change of the logit difference"
            ),
            "plain_accuracy": Quantity((), self.plain_correct, unit="share of right answers"),
            "plain_probability": Quantity((), self.plain_probability, unit="probability"),
        }

    @property
    def changes(self) -> Float[Tensor, "batch layer"]:
        """Of the logit difference."""
        return self.difference - self.plain_difference[:, None]

    def coordinates(self) -> dict[str, tuple[int, ...]]:
        """Blocks."""
        return {"layer": self.layers}

    @property
    def best(self) -> int:
        """The block behind which the logit difference rises most."""
        return self.layers[int(self.changes.mean(0).argmax())]

    @property
    def third(self) -> int:
        """The block nearest to a third of the depth, where the paper adds function vectors."""
        return min(self.layers, key=lambda layer: abs(layer - (max(self.layers) + 1) // 3))

    def drawing(self) -> LayerCurves:
        """Accuracy and logit difference by block, on axes of their own."""
        found = self.quantities()
        values, low, high = [], [], []
        for name in ("accuracy", "difference_change"):
            own = found[name]
            ends = own.ends()
            values.append(own.value())
            low.append(ends[0])
            high.append(ends[1])
        plain = float(found["plain_accuracy"].value())
        chance = 1 / self.n_labels
        return LayerCurves(
            title="Right answers with the vector behind a block",
            names=("accuracy", "logit difference"),
            values=torch.stack(values),
            low=torch.stack(low),
            high=torch.stack(high),
            y_title="share of right answers",
            x=tuple(map(float, self.layers)),
            x_title=f"output of block, where the vector is {self.verb}",
            note=basis(self),
            meanings=("target", "label"),
            panels=(
                Panel(
                    "Accuracy", (0,), "share of right answers",
                    ((plain, f"without the vector {told(plain)}"), (chance, f"chance {told(chance)}")),
                ),
                Panel("Change of the logit difference", (1,), "logits", ((0.0, "no change"),)),
            ),
        )  # fmt: skip

    @property
    def verb(self) -> str:
        """What is done with the vector."""
        return "added" if self.kind == "add" else "put in its place"

    def figures(self) -> list[Figure]:
        """Whether the vector brings the right answers, and where."""
        count, best = len(self.correct), self.best
        raised = self.interval("difference_change", layer=best)
        clear = above_together(self.changes, level=ONE_SIDED)
        plain, right = self.interval("plain_accuracy"), self.interval("accuracy", layer=best)
        where = f"behind block {best} the logit difference changes by {said(raised, sign=True)}"
        rate = f"{said(right)} of the answers are right there, {said(plain)} without it"
        if count < FEWEST_PROMPTS:
            answer = f"Cannot be judged from {counted(count, 'prompt')}: {where}; {rate}."
        elif bool(clear.any()):
            answer = (
                f"Yes, behind {int(clear.sum())} of {counted(len(clear), 'block')}, corrected for looking at "
                f"all: most of all {where}; {rate}."
            )
        else:
            answer = f"Not shown, behind no block: {where} at most; {rate}."
        return [
            Figure(
                "",
                "Does the vector bring the right answers?",
                answer,
                f"**Right answers with the vector {self.verb} at the output of one block, at the last "
                "token.** Left: share of right answers among the label words; dashes: without the vector, and "
                "chance. Right: change of the right answer's logit above the others. Bands: 95 % intervals "
                f"over {counted(count, 'prompt')}{given(self)}, for each block alone.",
                limits="that the model itself works with this vector: any strong push towards a label word "
                "moves the answer. The block is chosen on the prompts shown; test it on others.",
                short="Effect of the vector",
            )
        ]

    def summary(self) -> str:
        """The best block, beside the plain run."""
        right: Interval = self.interval("accuracy", layer=self.best)
        plain = self.interval("plain_accuracy")
        return f"behind block {self.best}: accuracy {right}, without the vector {plain}"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per block: accuracy and the changes, with intervals."""
        import pandas as pd

        found = self.quantities()
        columns: dict[str, list[float]] = {"layer": list(self.layers)}
        for name in ("accuracy", "probability_change", "difference_change"):
            low, high = found[name].ends()
            for column, end in (
                (name, found[name].value()),
                (f"{name}_low", low),
                (f"{name}_high", high),
            ):
                columns[column] = end.tolist()
        return pd.DataFrame(columns)
