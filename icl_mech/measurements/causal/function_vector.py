"""Function vectors: the summed output that the heads which carry a task write into the residual stream.

`v = sum over the k heads with the largest mean effect of W_O z̄`, at their mean outputs over true
prompts. Added to the residual stream of a prompt without demonstrations, it can replace them, see
`icl_mech.measurements.causal.steer`.

Source: Todd et al. 2024, *Function vectors in large language models*, §2.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import RunError
from icl_mech.measurements.causal.head_mediation import TODD, HeadMediationResult, Measure
from icl_mech.measurements.same_model import check_own_weights, check_same_weights
from icl_mech.models import LanguageModel, adapt, exclusive
from icl_mech.results import Definition, Result

FUNCTION = Definition(
    "function vector",
    r"v = \sum_{(l,h) \in H} \bar z_{lh} W_{O,lh}",
    "Sum of what the k heads H with the largest mean effect write into the residual stream, at "
    "their mean outputs. Output biases are excluded; the reference code adds the layer's bias "
    "once per head.",
    TODD,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionVector(Result):
    """A direction of the residual stream, and the heads whose outputs are summed in it.

    Attributes:
        vector: The sum.
        parts: Output of each head, in the order of `heads`.
        heads: (layer, head), largest effect first.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (FUNCTION,)

    vector: Float[Tensor, " d_model"]
    parts: Float[Tensor, "chosen d_model"]
    heads: tuple[tuple[int, int], ...]


@checked(RunError)
@exclusive
def function_vector(
    model: Any,
    mediation: HeadMediationResult,
    k: Count = 10,
    *,
    by: Measure = "probability",
    biases: bool = False,
) -> FunctionVector:
    """Sum of `W_O z̄` of the k heads with the largest mean effect.

    Args:
        model: The model that the mediation was measured on.
        mediation: Result of `head_mediation`.
        k: Number of heads.
        by: Effects are compared in `probability` (as published) or in the logit `difference`.
        biases: Add the layer's output bias once for each head, as the reference code does; it is unrelated to
            the heads.

    Raises:
        RunError: another model, more heads than there are, processed weights, or a model that normalises
            the attention output (a head's contribution then depends on the other heads).
        ResultError: a result of another kind.

    Source: Todd et al. 2024, §2.
    """
    adapted = adapt(model)
    _check(adapted, mediation, k)
    heads, parts = mediation.top(k, by), []
    for layer, head in heads:
        weight, bias = adapted.head_weights(layer)
        part = mediation.means[layer, head].to(weight).double() @ weight[head].detach().double()
        if biases and bias is not None:
            part = part + bias.detach().double()
        parts.append(part)
    stacked = torch.stack(parts).cpu()
    return FunctionVector(
        vector=stacked.sum(0).float(),
        parts=stacked.float(),
        heads=heads,
        provenance={**mediation.provenance, "function_vector": {"by": by, "biases": biases}},
    )


def _check(model: LanguageModel, mediation: HeadMediationResult, k: int) -> None:
    info, shape = model.info, tuple(mediation.means.shape)
    check_own_weights(model, "A function vector")
    if shape != (info.n_layers, info.n_heads, info.d_head):
        raise RunError(
            f"The effects are from a model with layers, heads and head width {list(shape)}, but "
            f"{info.name!r} has {[info.n_layers, info.n_heads, info.d_head]}."
        )
    if k > info.n_layers * info.n_heads:
        raise RunError(f"k={k}, but {info.name!r} has only {info.n_layers * info.n_heads} heads.")
    check_same_weights(model, mediation, "The effects were measured", "measure them again")
    if model.attention_norm(0) is not None:
        raise RunError(
            f"{info.name!r} normalises the sum of its heads before adding it to the residual "
            "stream, so a single head's contribution is undefined. Patch head outputs (Patch of "
            "'z') or use a task_vector."
        )
