"""What a vector in the residual stream does: added at, or put in place of, the output of each block.

For every block `l` the prompts are run once with the vector at the last token of its output. A function
vector is *added* to prompts without demonstrations; a task vector *replaces* the output. See
`icl_mech.measurements.causal.steering`.

What a vector at the output of each block does to the answers at the target.

By block, on every prompt: probability of the right label word, its logit above the others, and whether it
is the likeliest label word; each beside the run without the vector.

Source: Todd et al. 2024, *Function vectors in large language models*, §3; Hendel et al. 2023,
*In-context learning creates task vectors*, §3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from typing_extensions import Unpack

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import RunError
from icl_mech.interventions import AddVector, Intervention, Patch
from icl_mech.measurements.base import Measurement, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers
from icl_mech.measurements.causal.definitions import ADDED
from icl_mech.measurements.causal.function_vectors import FunctionVector
from icl_mech.measurements.causal.task_vectors import TaskVector
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.passes import How
from icl_mech.measurements.running import measured
from icl_mech.metrics import ONE_SIDED, Interval, above_together
from icl_mech.models import LanguageModel, ModelInfo, adapt
from icl_mech.prompts import PromptBatch
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


Steering = Literal["add", "replace"]
AnyVector = FunctionVector | TaskVector | Tensor
"""A vector for all layers, or one for each."""


@dataclass(frozen=True)
class Steer(Measurement[VectorEffect]):
    """Right answers with a vector at the output of each block, at the target.

    Attributes:
        vectors: One for each layer.
        kind: `add` it to the output, or `replace` the output by it.
        scale: Times this (`add`).
        layers: Blocks it is put behind, one at a time; None: all.
    """

    name: ClassVar[str] = "vector_effect"

    vectors: Float[Tensor, "layer d_model"]
    kind: Steering = "add"
    scale: float = 1.0
    layers: Sequence[Natural] | None = None

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse vectors or layers the model does not have, and prompts without answers.

        Raises:
            PromptError: prompts without answers.
            RunError: names what does not fit.
        """
        check_answers(data, "steer")
        info = model.info
        if tuple(self.vectors.shape) != (info.n_layers, info.d_model):
            raise RunError(
                f"The vectors have the axes {list(self.vectors.shape)}; {info.name!r} has {info.n_layers} "
                f"layers and {info.d_model} numbers in its residual stream."
            )
        if self.kind == "replace" and self.scale != 1.0:
            raise RunError(f"scale={self.scale} goes with kind='add'; kind='replace' has none.")
        if self.layers is not None and not self.layers:
            raise RunError("layers=[] names no block to put the vector behind.")
        for (change,) in self._changes(info):
            change.check(info)

    def _layers(self, info: ModelInfo) -> list[int]:
        return list(range(info.n_layers) if self.layers is None else self.layers)

    def _changes(self, info: ModelInfo) -> list[list[Intervention]]:
        return [[self._change(layer)] for layer in self._layers(info)]

    def _change(self, layer: int) -> Intervention:
        own = self.vectors[layer if layer < len(self.vectors) else 0]
        if self.kind == "add":
            return AddVector(own, layer, self.scale)
        return Patch("resid_post", layers=[layer], values=own[None])

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Variants]:
        """Without the vector, then with it behind each block."""
        variants: list[Sequence[Intervention]] = [[], *self._changes(model.info)]
        return [Variants(data, [AnswerReading()], title="layers", variants=variants)]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> VectorEffect:
        """Probability, logit difference and answers of every prompt, by layer."""
        answers, found = data.answers, [own for (own,) in read[0]]
        probability = torch.stack([own.probability(answers) for own in found], dim=1)
        difference = torch.stack([own.difference(answers) for own in found], dim=1)
        predicted = torch.stack([own.label_logits.argmax(-1) for own in found], dim=1)
        correct = predicted == answers[:, None]
        return VectorEffect(
            probability=probability[:, 1:],
            difference=difference[:, 1:],
            correct=correct[:, 1:],
            plain_probability=probability[:, 0],
            plain_difference=difference[:, 0],
            plain_correct=correct[:, 0],
            layers=tuple(self._layers(model.info)),
            kind=self.kind,
            n_labels=data.n_labels,
        )


@with_options
def steer(
    model: Any,
    prompts: PromptBatch,
    vector: AnyVector,
    *,
    kind: Steering | None = None,
    scale: float = 1.0,
    layers: Sequence[int] | None = None,
    **how: Unpack[How],
) -> VectorEffect:
    """Right answers with a vector at the output of each block, at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Usually without demonstrations: `build_prompts(task, model, shots=0)`.
        vector: What `function_vector` or `task_vector` gave, or a tensor: one vector for all layers, or
            one for each.
        kind: `add` it to the output of the block, or `replace` the output; default: task vectors
            replace, all others are added.
        scale: Times this (`add`).
        layers: Blocks it is put behind, one at a time; None: all.

    Raises:
        PromptError: prompts without answers.
        RunError: vectors or layers the model does not have.

    Source: Todd et al. 2024, §3; Hendel et al. 2023, §3.
    """
    usual: Steering = "replace" if isinstance(vector, TaskVector) else "add"
    own = Steer(_by_layer(model, vector), kind or usual, scale, layers)
    return measured(own, model, prompts, **how)


def _by_layer(model: Any, vector: Any) -> Tensor:
    """One vector for each layer."""
    if isinstance(vector, TaskVector):
        return vector.vectors
    own: Any = vector.vector if isinstance(vector, FunctionVector) else vector
    fits = isinstance(own, Tensor) and own.ndim in (1, 2)
    if not fits or not own.is_floating_point():
        raise RunError(
            "vector must be a FunctionVector, a TaskVector, or a tensor of float numbers with the axes "
            f"(d_model) or (layer, d_model); got {type(vector).__name__}."
        )
    found: Tensor = (
        own if own.ndim == 2 else own.expand(adapt(model).info.n_layers, -1).contiguous()
    )
    return found
