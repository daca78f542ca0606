"""Steering: the effect of a vector added to, or put in place of, the output of each block.

For every block `l` the prompts are run once with the vector at the last token of its output. A function
vector is *added* to prompts without demonstrations; a task vector *replaces* the output. The results, by block
and prompt, are the probability of the correct label word, its logit above the others, and whether it is the
top label word; each compared with the run without the vector.

Source: Todd et al. 2024, *Function vectors in large language models*, §3; Hendel et al. 2023,
*In-context learning creates task vectors*, §3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from typing_extensions import Unpack

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import RunError
from icl_mech.interventions import AddVector, Intervention, Patch
from icl_mech.measurements.base import Measurement, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers
from icl_mech.measurements.causal.function_vector import FunctionVector
from icl_mech.measurements.causal.head_maps import any_clear
from icl_mech.measurements.causal.head_mediation import TODD
from icl_mech.measurements.causal.task_vector import HENDEL, TaskVectorResult
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.passes import How
from icl_mech.measurements.running import measured
from icl_mech.measurements.same_model import check_same_weights
from icl_mech.metrics import Interval, above_together, mean_interval
from icl_mech.metrics.intervals import ONE_SIDED
from icl_mech.models import LanguageModel, ModelInfo, adapt
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.judging import Status
from icl_mech.results.prompts import answer_kind
from icl_mech.results.quantities import kept

RIGHT = "fraction of right answers"

ADDED = Definition(
    "effect of a vector",
    r"h_{l+1}[q] \leftarrow h_{l+1}[q] + s\,v \quad\text{or}\quad h_{l+1}[q] \leftarrow v_l",
    "The vector is added to the output of block l at the last token q of a prompt without "
    "demonstrations (function vector), or replaces it (task vector).",
    f"{TODD}; {HENDEL}",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class SteerResult(Result):
    """Answers with a vector after each block, and without it.

    Attributes:
        probability: Probability of the correct label word, by block.
        difference: Its logit minus the mean of the other label words'.
        correct: Whether it is the top label word.
        plain_probability: The probability without the vector.
        plain_difference: The difference without the vector.
        plain_correct: Whether it is the top label word without the vector.
        layers: The blocks.
        kind: The vector was added to the output (`add`), or put in its place (`replace`).
        n_labels: Number of classes.
        answers: Class of each query; None where prompts have no classes in common.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (ADDED,)

    axis_labels: ClassVar[Mapping[str, str]] = {"layer": "layers"}

    probability: Float[Tensor, "batch layer"] = quantity(
        "probability of the right answer", kind="outcome"
    )
    difference: Float[Tensor, "batch layer"] = quantity("logit of the right answer above others")
    correct: Bool[Tensor, "batch layer"] = quantity(RIGHT, name="accuracy")
    plain_probability: Float[Tensor, " batch"] = quantity("probability", kind="outcome")
    plain_difference: Float[Tensor, " batch"]
    plain_correct: Bool[Tensor, " batch"] = quantity(RIGHT, name="plain_accuracy")
    layers: tuple[int, ...]
    kind: str
    n_labels: int
    answers: Int[Tensor, " batch"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Accuracy, probability and logit difference by block, their changes, and the plain run."""
        dims, quantities = ("layer",), super().quantities()
        gained = self.correct.double() - self.plain_correct.double()[:, None]
        more = self.probability - self.plain_probability[:, None]
        return {
            "accuracy": quantities.pop("accuracy"),
            **quantities,
            "accuracy_change": Quantity(dims, gained, unit="change of accuracy", kind="change"),
            "probability_change": Quantity(dims, more, unit="change of probability"),
            "difference_change": Quantity(
                dims, self.changes, unit="change of the logit difference"
            ),
        }

    @property
    def changes(self) -> Float[Tensor, "batch layer"]:
        """Changes of the logit difference."""
        return self.difference - self.plain_difference[:, None]

    @property
    def best(self) -> int:
        """The block after which the logit difference rises most."""
        return self.layers[int(self.changes.mean(0).argmax())]

    @property
    def third(self) -> int:
        """The block nearest to a third of the depth, where the paper adds function vectors."""
        return min(self.layers, key=lambda layer: abs(layer - (max(self.layers) + 1) // 3))

    @property
    def gain(self) -> Interval | None:
        """Change of the logit difference a third of the way through the model, averaged with equal class weights.

        A query-independent push towards one class, which helps where it is frequent, then contributes nothing. None
        for queries of one class, and for runs saved before their classes were kept.
        """
        changes = self.changes[:, self.layers.index(self.third)].double()
        if self.answers is None:
            return None if answer_kind(self) == "classes" else mean_interval(changes)
        classes, place, counts = self.answers.unique(return_inverse=True, return_counts=True)
        weights = (len(changes) / len(classes) / counts)[place]
        return mean_interval(changes * weights) if len(classes) > 1 else None

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.correct)

    @property
    @kept
    def raised(self) -> tuple[int, ...]:
        """Blocks after which the vector raises the logit difference, corrected for multiple testing over all blocks."""
        clear = above_together(self.changes, level=ONE_SIDED).tolist()
        return tuple(layer for layer, above in zip(self.layers, clear, strict=True) if above)

    @property
    def status(self) -> Status:
        """Status of the claim that there is such a block."""
        return any_clear(bool(self.raised), self.count)


Steering = Literal["add", "replace"]
AnyVector = FunctionVector | TaskVectorResult | Tensor
"""A vector for all layers, or one for each."""


@dataclass(frozen=True)
class Steer(Measurement[SteerResult]):
    """Correct answers with a vector at the output of each block, at the target.

    Attributes:
        vectors: One for each layer.
        kind: `add` it to the output, or `replace` the output by it.
        scale: Factor the vector is multiplied by (`add`).
        layers: Blocks after which it is applied, one at a time; None: all.
    """

    vectors: Float[Tensor, "layer d_model"]
    kind: Steering = "add"
    scale: float = 1.0
    layers: Sequence[Natural] | None = None

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject vectors or layers the model does not have, and prompts without answers.

        Raises:
            PromptError: prompts without answers.
            RunError: names what does not fit.
        """
        check_answers(data, "steer")
        info = model.info
        if tuple(self.vectors.shape) != (info.n_layers, info.d_model):
            raise RunError(
                f"The vectors have the shape {list(self.vectors.shape)}, but {info.name!r} has "
                f"{info.n_layers} layers and a residual stream of width {info.d_model}."
            )
        if self.kind == "replace" and self.scale != 1.0:
            raise RunError(
                f"scale={self.scale} applies only to kind='add'; kind='replace' has no scale."
            )
        if self.layers is not None and not self.layers:
            raise RunError(
                "layers=[] selects no block after which to apply the vector. Name at least one "
                "block, or use None for all."
            )
        for (change,) in self._changes(info):
            change.check(info)

    def _layers(self, info: ModelInfo) -> list[int]:
        return list(range(info.n_layers) if self.layers is None else self.layers)

    def _changes(self, info: ModelInfo) -> list[list[Intervention]]:
        return [[self._change(layer)] for layer in self._layers(info)]

    def _change(self, layer: int) -> Intervention:
        vector = self.vectors[layer if layer < len(self.vectors) else 0]
        if self.kind == "add":
            return AddVector(vector, layer, self.scale)
        return Patch("resid_post", layers=[layer], values=vector[None])

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Variants]:
        """Run without the vector, then with it after each block."""
        variants: list[Sequence[Intervention]] = [[], *self._changes(model.info)]
        return [Variants(data, [AnswerReading()], title="layers", variants=variants)]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> SteerResult:
        """Probability, logit difference and correctness of every prompt, by layer."""
        answers, runs = data.answers, [run for (run,) in read[0]]
        probability = torch.stack([run.probability(answers) for run in runs], dim=1)
        difference = torch.stack([run.difference(answers) for run in runs], dim=1)
        predicted = torch.stack([run.label_logits.argmax(-1) for run in runs], dim=1)
        correct = predicted == answers[:, None]
        return SteerResult(
            probability=probability[:, 1:],
            difference=difference[:, 1:],
            correct=correct[:, 1:],
            plain_probability=probability[:, 0],
            plain_difference=difference[:, 0],
            plain_correct=correct[:, 0],
            layers=tuple(self._layers(model.info)),
            kind=self.kind,
            n_labels=data.n_labels,
            answers=answers if data.has_classes else None,
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
) -> SteerResult:
    """Correct answers with a vector at the output of each block, at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Usually without demonstrations: `build_prompts(task, model, shots=0)`.
        vector: Result of `function_vector` or `task_vector`, or a tensor: one vector for all layers, or
            one for each.
        kind: `add` it to the output of the block, or `replace` the output; default: task vectors
            replace, all others are added.
        scale: Factor the vector is multiplied by (`add`).
        layers: Blocks after which it is applied, one at a time; None: all.

    Raises:
        PromptError: prompts without answers.
        RunError: vectors or layers the model does not have, or a vector made with other weights.

    Source: Todd et al. 2024, §3; Hendel et al. 2023, §3.
    """
    usual: Steering = "replace" if isinstance(vector, TaskVectorResult) else "add"
    steering = Steer(_by_layer(model, vector), kind or usual, scale, layers)
    return measured(steering, model, prompts, **how)


def _by_layer(model: Any, vector: Any) -> Tensor:
    """The vectors as a tensor with one for each layer."""
    if isinstance(vector, Result):
        check_same_weights(adapt(model), vector, "The vector was made", "make one with this model")
    if isinstance(vector, TaskVectorResult):
        return vector.vectors
    given: Any = vector.vector if isinstance(vector, FunctionVector) else vector
    fits = isinstance(given, Tensor) and given.ndim in (1, 2)
    if not fits or not given.is_floating_point():
        raise RunError(
            "vector must be a FunctionVector, a TaskVectorResult, or a floating-point tensor of "
            f"shape (d_model) or (layer, d_model); got {type(vector).__name__}."
        )
    vectors: Tensor = (
        given if given.ndim == 2 else given.expand(adapt(model).info.n_layers, -1).contiguous()
    )
    return vectors
