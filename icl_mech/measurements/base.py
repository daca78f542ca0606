"""`Measurement`: a value that defines what to read from a model and how to interpret it.

A measurement is a frozen dataclass whose fields are the variants of its definition. It defines
what it rejects (`check`), what must be run (`passes`) and what it returns (`result`); everything
else - checking the fields, adapting the model, sharing passes with other measurements,
interventions, memory, provenance - is done once, here and in `measurements.running`.
"""

import hashlib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from typing_extensions import Unpack

from icl_mech._typing import Tensor
from icl_mech.checking import check_fields
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements.passes import How, Options, Pair, Pass, Prompts, Steps, Variants
from icl_mech.measurements.running import check_data, measured
from icl_mech.models import LanguageModel
from icl_mech.names import EVERY_KIND
from icl_mech.prompts import AnswerKind, PromptBatch
from icl_mech.results import Result

__all__ = [
    "AnyMeasurement",
    "Measurement",
    "Options",
    "Pair",
    "PairMeasurement",
    "Pass",
    "Steps",
    "Variants",
]

Data = TypeVar("Data", bound=PromptBatch | Pair)
R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class AnyMeasurement(ABC, Generic[Data, R]):
    """Base of `Measurement` and `PairMeasurement`."""

    name: ClassVar[str] = ""
    """Key in an `Analysis`; by default the class name in lower case."""

    takes: ClassVar[tuple[AnswerKind, ...]] = ("classes",)
    """Kinds of answers it takes: `classes` of the batch, `choices` of each prompt, `vocabulary` (texts)."""

    why_not: ClassVar[str] = ""
    """Why it does not take the others, for its error message."""

    reads_texts: ClassVar[bool] = False
    """True if it reads the spans of texts itself; else texts are converted to prompts with one
    demonstration for each span before the target (see `measurements.any_answer`)."""

    reads_spans: ClassVar[bool] = False
    """True if it reads only spans: demonstrations are then converted to spans of a text."""

    def __init_subclass__(cls) -> None:
        """Set the default name."""
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and its allowed values.
        """
        check_fields(self)

    def reads_first_tokens(self) -> bool:
        """True if it distinguishes classes only by the first tokens of their label words.

        Override it if answers are read by `PredictionReading` only, which scores whole words if the
        prompts ask for it.
        """
        return True

    @abstractmethod
    def chosen(self, data: Prompts) -> Data:
        """Select its input from the given prompts.

        Raises:
            PromptError: one set where a pair is needed, or the reverse.
        """

    def filled(self, model: LanguageModel, data: Data) -> "AnyMeasurement[Data, R]":
        """A copy with defaults that depend on model or data filled in, as recorded in the result."""
        return self

    def check(self, model: LanguageModel, data: Data) -> None:
        """Reject input that would give wrong numbers, before anything runs.

        Raises:
            IclMechError: says what was given, what was expected and what to do.
        """
        return

    def check_options(self, model: LanguageModel, data: Data, options: Options) -> None:
        """Reject options that would give wrong numbers, before anything runs.

        Raises:
            IclMechError: says what was given, what was expected and what to do.
        """
        return

    @abstractmethod
    def passes(self, model: LanguageModel, data: Data) -> Sequence[Pass]:
        """The passes to run."""

    @abstractmethod
    def result(self, model: LanguageModel, data: Data, read: list[Any]) -> R:
        """The result, computed from the values of each pass's readings."""

    def steps(self, model: LanguageModel, data: Data, options: Options) -> Steps[R]:
        """Passes and result; methods whose later passes depend on earlier values override this."""
        read = yield self.passes(model, data)
        return self.result(model, data, read)

    @property
    def asks_at_once(self) -> bool:
        """True if all its passes are known before anything runs."""
        return type(self).steps is AnyMeasurement.steps

    def variants(self) -> dict[str, Any]:
        """The fields as plain values, recorded in every result."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True)
class Measurement(AnyMeasurement[PromptBatch, R]):
    """A measurement on one set of prompts."""

    side: ClassVar[Literal["true", "false"] | None] = None
    """The side it takes of a pair (true, false); None: it must be given one set."""

    def __call__(self, model: Any, prompts: Prompts, **how: Unpack[How]) -> R:
        """Return the result for this model and these prompts, or its side of a pair; options as in `icl_mech.measure`.

        Raises:
            IclMechError: input that it or the engine rejects.
        """
        return measured(self, model, prompts, **how)

    def chosen(self, data: Prompts) -> PromptBatch:
        """The prompts, or its side of a pair.

        Raises:
            PromptError: a pair, if it does not take a side.
        """
        prompts = check_data(data)
        if not isinstance(prompts, tuple):
            return prompts
        if self.side is None:
            name = type(self).__name__
            raise PromptError(
                f"{name} takes a single set of prompts, but got a pair; give one side of the pair."
            )
        return prompts[("true", "false").index(self.side)]


@dataclass(frozen=True)
class PairMeasurement(AnyMeasurement[Pair, R]):
    """A measurement on the same queries with true and with false demonstrations."""

    def __call__(self, model: Any, true: PromptBatch, false: PromptBatch, **how: Unpack[How]) -> R:
        """Return the result for this model and this pair; options as in `icl_mech.measure`.

        Raises:
            IclMechError: input that it or the engine rejects.
        """
        return measured(self, model, (true, false), **how)

    def chosen(self, data: Prompts) -> Pair:
        """The pair.

        Raises:
            PromptError: one set of prompts.
        """
        prompts = check_data(data)
        if isinstance(prompts, tuple):
            return prompts
        raise PromptError(
            f"{type(self).__name__} compares true with false demonstrations; give the pair that "
            "build_prompt_pairs returns."
        )


def _plain(value: object) -> Any:
    """A field as plain JSON values: prompts as their digest, interventions as their values."""
    if isinstance(value, PromptBatch):
        return {"digest": value.digest, "count": len(value)}
    if isinstance(value, Tensor | np.ndarray):
        array = np.ascontiguousarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:32]
        return {"shape": list(array.shape), "dtype": str(array.dtype), "digest": digest}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, AnyMeasurement):
        return {"measurement": value.name, **value.variants()}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list | range):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise RunError(
        f"A field holds a {type(value).__name__}, which cannot be recorded to identify results. "
        "Use numbers, strings, tensors or prompts, or override variants()."
    )


def by_name() -> dict[str, type[AnyMeasurement[Any, Any]]]:
    """All measurements of this package, by the name that their results have."""
    import_module(EVERY_KIND)
    classes: list[type[Any]] = [AnyMeasurement]
    measurements = {}
    while classes:
        kind = classes.pop()
        classes += kind.__subclasses__()
        if kind.__module__.startswith("icl_mech.") and not inspect.isabstract(kind):
            measurements[kind.name] = kind
    return dict(sorted(measurements.items()))
