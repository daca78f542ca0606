"""`Measurement`: what to read from a model and what it means, as a value.

A measurement is a frozen dataclass whose fields are the variants of its definition. It says
what it refuses (`check`), what must be run (`passes`) and what comes out (`result`); everything
else - checking the fields, adapting the model, sharing passes with other measurements,
interventions, memory, provenance - is done once, here and in `measurements.running`.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from typing_extensions import Unpack

from icl_mech._typing import Tensor
from icl_mech.checking import check_fields
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements.passes import How, Options, Pair, Pass, Prompts, Steps, Variants
from icl_mech.measurements.running import check_data, measured
from icl_mech.models import LanguageModel
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
    """What `Measurement` and `PairMeasurement` share."""

    name: ClassVar[str] = ""
    """Key in an `Analysis`; by default the class name in lower case."""

    takes: ClassVar[tuple[AnswerKind, ...]] = ("classes",)
    """Kinds of answers it takes: `classes` of the batch, `choices` of each prompt, `vocabulary` (texts)."""

    why_not: ClassVar[str] = ""
    """Why it does not take the others, as its refusal says it."""

    reads_texts: ClassVar[bool] = False
    """True if it reads the spans of texts itself; else they come as prompts with demonstrations, of
    which each is a span before the target (see `measurements.any_answer`)."""

    reads_spans: ClassVar[bool] = False
    """True if it reads nothing but spans: demonstrations then come to it as spans of a text."""

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

    def reads_first_tokens(self) -> bool:
        """True if it tells classes apart by the first tokens of their label words alone.

        Override it where answers are read by `PredictionReading` only, which scores whole words if the
        prompts say so.
        """
        return True

    @abstractmethod
    def chosen(self, data: Prompts) -> Data:
        """What it takes of the prompts that are there.

        Raises:
            PromptError: one set where a pair is needed, or the reverse.
        """

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

    @property
    def asks_at_once(self) -> bool:
        """True if all its passes are known before anything runs."""
        return type(self).steps is AnyMeasurement.steps

    def variants(self) -> dict[str, Any]:
        """The fields as plain values, recorded in every result."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True)
class Measurement(AnyMeasurement[PromptBatch, R]):
    """Something measured on one set of prompts."""

    side: ClassVar[Literal["true", "false"] | None] = None
    """Which set it takes of a pair (true, false); None: it must be given one set."""

    def __call__(self, model: Any, prompts: PromptBatch, **how: Unpack[How]) -> R:
        """What comes out of this model and these prompts; options as in `icl_mech.measure`.

        Raises:
            IclMechError: what it or the engine refuses.
        """
        return measured(self, model, prompts, **how)

    def chosen(self, data: Prompts) -> PromptBatch:
        """The prompts, or its side of a pair.

        Raises:
            PromptError: a pair of which it takes no side.
        """
        prompts = check_data(data)
        if not isinstance(prompts, tuple):
            return prompts
        if self.side is None:
            name = type(self).__name__
            raise PromptError(f"{name} takes one set of prompts; give one of the pair.")
        return prompts[("true", "false").index(self.side)]


@dataclass(frozen=True)
class PairMeasurement(AnyMeasurement[Pair, R]):
    """Something measured on the same queries with true and with false demonstrations."""

    def __call__(self, model: Any, true: PromptBatch, false: PromptBatch, **how: Unpack[How]) -> R:
        """What comes out of this model and this pair; options as in `icl_mech.measure`.

        Raises:
            IclMechError: what it or the engine refuses.
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
            f"{type(self).__name__} compares true and false demonstrations; give the pair that "
            "build_prompt_pairs returns."
        )


def _plain(value: object) -> Any:
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
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list | range):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise RunError(
        f"A field holds a {type(value).__name__}, by which results could not be recognised; use "
        "numbers, words, tensors or prompts, or override variants()."
    )
