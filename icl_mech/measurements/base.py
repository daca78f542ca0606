"""`Measurement`: what to read from a model and what it means, as a value.

A measurement is a frozen dataclass whose fields are the variants of its definition. It says
what it refuses (`check`), what must be run (`passes`) and what comes out (`result`); everything
else - checking the fields, adapting the model, sharing passes with other measurements,
interventions, memory, provenance - is done once, here and in `measurements.running`.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from icl_mech._typing import Tensor
from icl_mech.checking import Called, Count, check_fields
from icl_mech.engine import AnyReading, Layout, Path, parse_memory
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention, Interventions
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result

Pair = tuple[PromptBatch, PromptBatch]
"""The same queries behind true and behind false demonstrations."""

Data = TypeVar("Data", bound=PromptBatch | Pair)
R = TypeVar("R", bound=Result)


@dataclass(frozen=True, eq=False)
class Pass:
    """One run over prompts.

    Attributes:
        prompts: What is run.
        readings: What is read; their values come back in this order.
        interventions: What this pass changes, after what the user changes.
        title: What a progress bar counts.
    """

    prompts: PromptBatch
    readings: Sequence[AnyReading]
    interventions: Sequence[Intervention] = ()
    title: str = "prompts"

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)


@dataclass(frozen=True, eq=False)
class Variants(Pass):
    """The same readings under several sets of interventions, which share what they can.

    Their values come back as one list for each variant. All variants take the same path, so
    their numbers may be compared to the last bit; so they are never merged with other passes.

    Attributes:
        variants: Sets of interventions; an empty one is the plain model.
        layout: How to lay the prompts out; None: the engine's choice.
    """

    variants: Sequence[Sequence[Intervention]] = ((),)
    layout: Layout | None = None


@dataclass(frozen=True)
class Options:
    """How to run, for all measurements alike; nothing here changes what is measured but
    `interventions`.

    Attributes:
        interventions: Made in every pass, before those of a measurement itself.
        batch_size: Prompts per batch at most.
        memory: Budget such as `"8GB"`.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: if someone may be watching.
    """

    interventions: Interventions = ()
    batch_size: Count | None = None
    memory: Annotated[str | int | None, Called("a size such as '8GB'")] = None
    path: Path = "auto"
    progress: bool | None = None

    def __post_init__(self) -> None:
        """Check the fields against their types, and that the budget is a size.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)
        parse_memory(self.memory)


Steps = Generator[Sequence[Pass], list[Any], R]
"""Asks for passes, gets their values, and returns the result."""


@dataclass(frozen=True)
class AnyMeasurement(ABC, Generic[Data, R]):
    """What `Measurement` and `PairMeasurement` share."""

    name: ClassVar[str] = ""
    """Key in an `Analysis`; by default the class name in lower case."""

    needs_classes: ClassVar[bool] = True
    """True if it rests on label words; texts without classes (see `texts`) are then refused."""

    def __init_subclass__(cls) -> None:
        """Name the kind."""
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    def filled(self, model: LanguageModel, data: Data) -> "AnyMeasurement[Data, R]":
        """Itself, with defaults that depend on model or data put in; this is what is recorded."""
        return self

    def check(self, model: LanguageModel, data: Data) -> None:
        """Refuse what would give wrong numbers, before anything runs.

        Raises:
            IclMechError: says what was found, what was expected and what to do.
        """
        return

    def check_options(self, model: LanguageModel, data: Data, options: Options) -> None:
        """Refuse ways to run that would give wrong numbers, before anything runs.

        Raises:
            IclMechError: says what was found, what was expected and what to do.
        """
        return

    @abstractmethod
    def passes(self, model: LanguageModel, data: Data) -> Sequence[Pass]:
        """What must be run."""

    @abstractmethod
    def result(self, model: LanguageModel, data: Data, read: list[Any]) -> R:
        """What comes out, from the values of each pass's readings."""

    def steps(self, model: LanguageModel, data: Data, options: Options) -> Steps[R]:
        """Passes and result; methods whose later passes depend on earlier values replace this."""
        read = yield self.passes(model, data)
        return self.result(model, data, read)

    def variants(self) -> dict[str, Any]:
        """The fields as plain values, recorded in every result."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}


@dataclass(frozen=True)
class Measurement(AnyMeasurement[PromptBatch, R]):
    """Something measured on one set of prompts."""

    side: ClassVar[Literal["true", "false"] | None] = None
    """Which set it takes of a pair (true, false); None: it must be given one set."""


@dataclass(frozen=True)
class PairMeasurement(AnyMeasurement[Pair, R]):
    """Something measured on the same queries behind true and behind false demonstrations."""


def _plain(value: Any) -> Any:
    """A field as JSON knows it: prompts by their digest, interventions by their values."""
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
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | range):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise RunError(
        f"A field holds a {type(value).__name__}, by which results could not be recognised; use "
        "numbers, words, tensors or prompts, or override variants()."
    )
