"""`Quantity`: a number per cell that is estimated from prompts, with its interval.

The prompt axis is reduced here, last. A statistic is a function of resampling weights, so a
difference of two quantities over the same prompts is paired by construction: both use the
same weights.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property, wraps
from typing import Any, TypeVar, cast, get_args, get_type_hints

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.at_home import at_home
from icl_mech.errors import ResultError
from icl_mech.metrics import mean_ends
from icl_mech.metrics.intervals import means_over, quantile_ends, resample_weights
from icl_mech.metrics.means import Kind
from icl_mech.results.judging import FEWEST_PROMPTS

Statistic = Callable[[Float[Tensor, "r batch"]], Float[Tensor, " r *cell"]]
"""Function from resampling weights of prompts (rows add up to 1) to the values of each resample."""

BATCH = "batch"
"""Name of the prompt axis in the types of fields."""

PROMPT = "prompt"
"""Name of the prompt axis in labelled arrays."""

DECLARED = "quantity"
"""Metadata key of fields declared with `quantity`."""

F = TypeVar("F", bound=Callable[..., Any])


@at_home
@dataclass(frozen=True, eq=False)
class Quantity:
    """One number per cell, estimated over prompts.

    Attributes:
        dims: Names of the axes of a cell.
        per_prompt: Values of each prompt, prompt axis first.
        statistic: The estimated function; None: the mean over prompts.
        unit: Quantity and unit, for figures.
        known: Ends of the intervals, if they are computed in another way.
        kind: Kind of averaged values, which decides their interval: see `mean_ends`.
    """

    dims: tuple[str, ...]
    per_prompt: Tensor
    statistic: Statistic | None = None
    unit: str = ""
    known: tuple[Tensor, Tensor] | None = None
    kind: Kind = "value"

    def __post_init__(self) -> None:
        """Check that every axis has a name.

        Raises:
            ResultError: an axis without a name, or a name without an axis.
        """
        if self.per_prompt.ndim != 1 + len(self.dims) and self.statistic is None:
            raise ResultError(
                f"Per-prompt values have {self.per_prompt.ndim} axes, including the prompt axis, but the "
                f"axes of a cell are named {', '.join(self.dims) or '(none)'}; name every axis except the prompt axis."
            )

    @property
    def count(self) -> int:
        """Number of prompts."""
        return self.per_prompt.shape[0]

    @property
    def outcomes(self) -> bool:
        """True for means of binary values, or of scores that stand for them."""
        scored = self.per_prompt.dtype == torch.bool or self.kind == "outcome"
        return scored and self.statistic is None

    def of(self, weights: Float[Tensor, "r batch"]) -> Float[Tensor, " r *cell"]:
        """Values of each resample."""
        if self.statistic is not None:
            return self.statistic(weights)
        flat = self.per_prompt.double().reshape(self.count, -1)
        return (weights @ flat).reshape(len(weights), *self.per_prompt.shape[1:])

    def value(self) -> Float[Tensor, " *cell"]:
        """The estimate over all prompts."""
        if self.statistic is None:
            return self.per_prompt.double().mean(0)
        everything = torch.full((1, self.count), 1 / self.count, dtype=torch.float64)
        return self.statistic(everything)[0]

    def ends(self) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
        """Ends of the 95 % interval: `mean_ends` for means, bootstrap percentiles for other functions."""
        if self.known is not None:
            return self.known
        low, high = self._ends
        return low.clone(), high.clone()

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        if self.statistic is None:
            return mean_ends(self.per_prompt, self.kind)
        return quantile_ends(self.statistic(resample_weights(self.count)), self.count)

    def minus(self, other: "Quantity") -> tuple[Tensor, Tensor, Tensor]:
        """Value, low and high of the paired difference over the same prompts."""
        if self.statistic is None and other.statistic is None:
            # Subtract before averaging: unchanged prompts then contribute exactly 0.
            changes = self.per_prompt.double() - other.per_prompt.double()
            low, high = mean_ends(changes, self.kind_minus(other))
        else:
            weights = resample_weights(self.count)
            low, high = quantile_ends(self.of(weights) - other.of(weights), self.count)
        return self.value() - other.value(), low, high

    def kind_minus(self, other: "Quantity") -> Kind:
        """Kind of the values of a paired difference."""
        if self.outcomes and other.outcomes:
            return "change"
        return "contrast" if self.kind == other.kind == "change" else "value"


FEW = range(2, FEWEST_PROMPTS)
"""Numbers of prompts with too narrow intervals; a single prompt has none."""


def too_narrow(quantities: Iterable[Quantity]) -> str:
    """Addition to a note, starting with a semicolon, on bootstrap percentiles of few prompts.

    Their coverage is .50 with two prompts, .76 with three, .87 with four, .91 with six.
    """
    few = [q.count for q in quantities if q.statistic and not q.known and q.count in FEW]
    at_least = f"(at least {FEWEST_PROMPTS})"
    return f"; intervals of {min(few)} prompts are too narrow {at_least}" if few else ""


KEPT = "_kept"
"""Attribute under which a result caches the values of its methods."""


def _state(value: object) -> Hashable:
    """Cache key of a value, which changes when a tensor is modified in place."""
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return tuple(map(_state, value))
    if isinstance(value, Tensor) and not value.is_inference():
        return id(value), value._version
    return id(value)


def kept(method: F) -> F:
    """Cache a method of a result as long as no field changes, since every displayed number calls it."""

    @wraps(method)
    def asked(self: object, *given: Hashable, **named: Hashable) -> Any:
        answers = vars(self).setdefault(KEPT, {})
        state = [_state(value) for name, value in vars(self).items() if name != KEPT]
        key = (asked, given, *named.items(), *state)
        if key not in answers:
            answers[key] = method(self, *given, **named)
        return dict(answers[key]) if isinstance(answers[key], dict) else answers[key]

    return cast(F, asked)


def function_of_means(
    per_prompt: Float[Tensor, " batch *rest"], function: Callable[[Tensor], Tensor]
) -> Statistic:
    """The statistic `function(mean over prompts that are not NaN)`: ratios are recomputed in each resample."""

    def statistic(weights: Float[Tensor, "r batch"]) -> Tensor:
        return function(means_over(weights, per_prompt))

    return statistic


def quantity(
    unit: str = "", *, kind: Kind = "value", name: str = "", default: Any = MISSING
) -> Any:
    """A field of a result whose mean over prompts is a quantity.

    `similarity: Float[Tensor, "batch layer"] = quantity("cosine")`. If a result has such fields,
    its other fields are not quantities, and a field that holds None (`default=None`) is left out.

    Args:
        unit: Quantity and unit, for figures.
        kind: Kind of its values, which decides the interval: see `mean_ends`.
        name: Name of the quantity; by default that of the field.
        default: Default of the field.
    """
    return field(default=default, metadata={DECLARED: (name, unit, kind)})


def typed_quantities(result: Any) -> dict[str, Quantity]:
    """Means of fields whose types name a prompt axis, with axes read from the types.

    `Float[Tensor, "batch score layer"]` gives a quantity with the axes `score` and `layer`. Only
    fields declared with `quantity` if there are any, else all; integers are ids or classes, whose
    means are meaningless.
    """
    quantities = {}
    some = any(DECLARED in item.metadata for item in fields(result))
    for item, tensor, axes in _prompt_fields(result):
        if some and DECLARED not in item.metadata:
            continue
        if tensor.is_floating_point() or tensor.dtype == torch.bool:
            name, unit, kind = item.metadata.get(DECLARED, ("", "", "value"))
            dims = tuple(axis for axis in axes if axis != BATCH)
            per_prompt = tensor.movedim(axes.index(BATCH), 0)
            quantities[name or item.name] = Quantity(dims, per_prompt, unit=unit, kind=kind)
    return quantities


def _prompt_fields(result: Any) -> Iterator[tuple[Field[Any], Tensor, tuple[str, ...]]]:
    # Types may be strings (`from __future__ import annotations`).
    hints = get_type_hints(type(result))
    for item in fields(result):
        value = getattr(result, item.name)
        if not isinstance(value, Tensor):
            continue
        axes = axes_of(hints[item.name], value.ndim)
        if axes is not None and BATCH in axes:
            yield item, value, axes


def axes_of(kind: Any, ndim: int) -> tuple[str, ...] | None:
    """Names of the axes of a tensor type such as `Float[Tensor, "batch layer"]`, or None."""
    for part in (kind, *get_args(kind)):
        shape = getattr(part, "dim_str", None)
        if shape is None:
            continue
        axes = tuple(axis.split("=")[0] for axis in shape.split())
        if len(axes) == ndim and not any(axis.startswith("*") for axis in axes):
            return axes
        if any(axis.startswith("*") for axis in axes) and ndim >= len(axes) - 1:
            return _spread(axes, ndim)
    return None


def _spread(axes: tuple[str, ...], ndim: int) -> tuple[str, ...]:
    """Expand a variadic axis: `batch *demo layer` is `batch demo layer` for three axes, `batch layer` for two."""
    place = next(i for i, axis in enumerate(axes) if axis.startswith("*"))
    count = ndim - len(axes) + 1
    name = axes[place][1:]
    middle = (name,) if count == 1 else tuple(f"{name}_{i}" for i in range(count))
    return (*axes[:place], *(middle if count else ()), *axes[place + 1 :])


def labels_of(
    quantities: Mapping[str, Quantity], given: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """The labels along every axis: the given ones, else 0, 1, ...

    Raises:
        ResultError: one axis name with two lengths, or labels of another length.
    """
    labels_by_axis: dict[str, list[Any]] = {}
    for name, quantity in quantities.items():
        shape = quantity.value().shape
        for dim, size in zip(quantity.dims, shape, strict=True):
            labels = list(given.get(dim, range(size)))
            if len(labels) != size:
                raise ResultError(
                    f"{name} has {size} cells along {dim!r}, but there are {len(labels)} labels; give one per cell."
                )
            if len(labels_by_axis.get(dim, labels)) != len(labels):
                raise ResultError(
                    f"The axis {dim!r} has {len(labels_by_axis[dim])} cells in one quantity and {size} in "
                    f"{name}; give axes of different lengths different names."
                )
            labels_by_axis[dim] = labels
    return labels_by_axis
