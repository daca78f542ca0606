"""`Quantity`: a number per cell that is estimated from prompts, with its interval.

The prompt axis is reduced here, last. A statistic is a function of resampling weights, so
that a difference of two quantities over the same prompts is paired by construction: both
are computed from the same weights.
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
"""Values of resamples, from how often each prompt is drawn (rows add up to 1)."""

BATCH = "batch"
"""Name of the prompt axis in the types of fields."""

PROMPT = "prompt"
"""Its name in labelled arrays."""

DECLARED = "quantity"
"""Key of the metadata of fields that are declared."""

F = TypeVar("F", bound=Callable[..., Any])


@at_home
@dataclass(frozen=True, eq=False)
class Quantity:
    """One number per cell, estimated over prompts.

    Attributes:
        dims: Names of the axes of a cell.
        per_prompt: Values of each prompt, prompt axis first.
        statistic: What is estimated; None: the mean over prompts.
        unit: Quantity and unit, for figures.
        known: Ends of the intervals, where they are of another kind than these.
        kind: Of the values of means, which decides about their interval: see `mean_ends`.
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
            ResultError: it does not.
        """
        if self.per_prompt.ndim != 1 + len(self.dims) and self.statistic is None:
            raise ResultError(
                f"Per-prompt values have {self.per_prompt.ndim} axes, the prompt axis included; the "
                f"axes of a cell are named {', '.join(self.dims) or '(none)'}."
            )

    @property
    def count(self) -> int:
        """Number of prompts."""
        return self.per_prompt.shape[0]

    @property
    def outcomes(self) -> bool:
        """True for means of yes or no, or of scores that stand for it."""
        scored = self.per_prompt.dtype == torch.bool or self.kind == "outcome"
        return scored and self.statistic is None

    def of(self, weights: Float[Tensor, "r batch"]) -> Float[Tensor, " r *cell"]:
        """Values of resamples."""
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
        """Ends of the 95 % interval: of means `mean_ends`, of other functions percentiles."""
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
            # Differences first: prompts that do not change then leave exactly 0.
            changes = self.per_prompt.double() - other.per_prompt.double()
            low, high = mean_ends(changes, self.kind_minus(other))
        else:
            weights = resample_weights(self.count)
            low, high = quantile_ends(self.of(weights) - other.of(weights), self.count)
        return self.value() - other.value(), low, high

    def kind_minus(self, other: "Quantity") -> Kind:
        """Of the values of a paired difference."""
        if self.outcomes and other.outcomes:
            return "change"
        return "contrast" if self.kind == other.kind == "change" else "value"


FEW = range(2, FEWEST_PROMPTS)
"""One prompt has no interval."""


def too_narrow(quantities: Iterable[Quantity]) -> str:
    """What is said of statistics of few prompts, from its semicolon on: percentiles of resamples hold too little.

    Of two prompts .50 of their intervals hold the true value, of three .76, of four .87, of six .91.
    """
    few = [q.count for q in quantities if q.statistic and not q.known and q.count in FEW]
    at_least = f"({FEWEST_PROMPTS} at least)"
    return f"; intervals of {min(few)} prompts are too narrow {at_least}" if few else ""


KEPT = "_kept"
"""Under this name a result keeps what was asked of it."""


def _state(value: object) -> Hashable:
    """Another one for another value, and for a tensor that was changed in place."""
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor):
        return tuple(map(_state, value))
    if isinstance(value, Tensor) and not value.is_inference():
        return id(value), value._version
    return id(value)


def kept(method: F) -> F:
    """A result's method, asked once as long as no field changes: every number shown asks again."""

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
    """The statistic `function(mean over prompts that have a number)`: ratios are recomputed in each resample."""

    def statistic(weights: Float[Tensor, "r batch"]) -> Tensor:
        return function(means_over(weights, per_prompt))

    return statistic


def quantity(
    unit: str = "", *, kind: Kind = "value", name: str = "", default: Any = MISSING
) -> Any:
    """A field of a result whose mean over prompts is a quantity.

    `similarity: Float[Tensor, "batch layer"] = quantity("cosine")`. Where a result has such fields,
    its others are none, and a field that holds None (`default=None`) is left out.

    Args:
        unit: Quantity and unit, for figures.
        kind: Of its values, which decides about the interval: see `mean_ends`.
        name: Of the quantity; by default that of the field.
        default: Of the field.
    """
    return field(default=default, metadata={DECLARED: (name, unit, kind)})


def typed_quantities(result: Any) -> dict[str, Quantity]:
    """The means of fields whose types name a prompt axis: axes are read from the types.

    `Float[Tensor, "batch score layer"]` gives a quantity with the axes `score` and `layer`. Those that
    are declared (`quantity`) if there are any, else all; integers are ids or classes, whose means
    say nothing.
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
    # Types may stand there as text (`from __future__ import annotations`).
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
    """`batch *demo layer` for three axes is `batch demo layer`, for two `batch layer`."""
    place = next(i for i, axis in enumerate(axes) if axis.startswith("*"))
    count = ndim - len(axes) + 1
    name = axes[place][1:]
    middle = (name,) if count == 1 else tuple(f"{name}_{i}" for i in range(count))
    return (*axes[:place], *(middle if count else ()), *axes[place + 1 :])


def labels_of(
    quantities: Mapping[str, Quantity], given: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """The labels along every axis: those given, else 0, 1, ...

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
                    f"{name} has {size} cells along {dim!r}, but there are {len(labels)} labels."
                )
            if len(labels_by_axis.get(dim, labels)) != len(labels):
                raise ResultError(
                    f"The axis {dim!r} has {len(labels_by_axis[dim])} cells in one quantity and {size} in "
                    f"{name}; give axes of different lengths different names."
                )
            labels_by_axis[dim] = labels
    return labels_by_axis
