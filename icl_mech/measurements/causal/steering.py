"""What a vector in the residual stream does: added at, or put in place of, the output of each block.

For every block `l` the prompts are run once with the vector at the last token of its output. A function
vector is *added* to prompts without demonstrations; a task vector *replaces* the output. See
`icl_mech.measurements.causal.vector_effect`.

Source: Todd et al. 2024, *Function vectors in large language models*, §3; Hendel et al. 2023,
*In-context learning creates task vectors*, §3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from typing_extensions import Unpack

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import RunError
from icl_mech.interventions import AddVector, Intervention, Patch
from icl_mech.measurements.base import Measurement, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers
from icl_mech.measurements.causal.function_vectors import FunctionVector
from icl_mech.measurements.causal.task_vectors import TaskVector
from icl_mech.measurements.causal.vector_effect import VectorEffect
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.passes import How
from icl_mech.measurements.running import measured
from icl_mech.models import LanguageModel, ModelInfo, adapt
from icl_mech.prompts import PromptBatch

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
