"""Requests of a measurement: passes over prompts, and options of a run."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, TypedDict, TypeVar, runtime_checkable

from icl_mech.checking import Called, Count, check_fields
from icl_mech.engine import AnyReading, Layout, Path, parse_memory
from icl_mech.interventions import Intervention, Interventions
from icl_mech.models import LanguageModel
from icl_mech.prompts import AnswerKind, PromptBatch
from icl_mech.results import Result

Pair = tuple[PromptBatch, PromptBatch]
"""The same queries with true and with false demonstrations."""

Prompts = PromptBatch | Pair

R = TypeVar("R", bound=Result)
R_co = TypeVar("R_co", bound=Result, covariant=True)


@dataclass(frozen=True, eq=False)
class Pass:
    """One run over prompts.

    Attributes:
        prompts: The prompts to run.
        readings: The readings; their values are returned in this order.
        interventions: Interventions of this pass, applied after those of the user.
        title: Label of the progress bar.
    """

    prompts: PromptBatch
    readings: Sequence[AnyReading]
    interventions: Sequence[Intervention] = ()
    title: str = "prompts"

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and its allowed values.
        """
        check_fields(self)


@dataclass(frozen=True, eq=False)
class Variants(Pass):
    """The same readings under several sets of interventions, which share computation where possible.

    Their values are returned as one list for each variant. All variants take the same path, so that
    their numbers are comparable to the last bit; they are therefore never merged with other passes.

    Attributes:
        variants: Sets of interventions; an empty one is the unmodified model.
        layout: How to lay the prompts out; None: the engine's choice.
    """

    variants: Sequence[Sequence[Intervention]] = ((),)
    layout: Layout | None = None


@dataclass(frozen=True)
class Options:
    """How to run, the same for all measurements; only `interventions` changes what is measured.

    Attributes:
        interventions: Applied in every pass, before those of the measurement itself.
        batch_size: Maximum number of rows (prompts) of a pass, for each variant that is run.
        memory: Budget such as `"8GB"`, or `"auto"`: half of the free memory; prompts that do not fit are
            rejected.
        path: `auto`, or `whole`: every position of every prompt is computed.
        progress: Show a progress bar; None: only in a notebook or a terminal.
    """

    interventions: Interventions = ()
    batch_size: Count | None = None
    memory: Annotated[str | int | None, Called("a size such as '8GB', or 'auto'")] = None
    path: Path = "auto"
    progress: bool | None = None

    def __post_init__(self) -> None:
        """Check the fields against their types, and that the budget is a size.

        Raises:
            RunError: names the field and its allowed values.
        """
        check_fields(self)
        parse_memory(self.memory)


class How(TypedDict, total=False):
    """The fields of `Options`, as the keywords of a call."""

    interventions: Sequence[Intervention]
    batch_size: int | None
    memory: str | int | None
    path: Path
    progress: bool | None


Steps = Generator[Sequence[Pass], list[Any], R]
"""A generator that yields passes, receives their values, and returns the result."""


@runtime_checkable
class Runnable(Protocol[R_co]):
    """Interface of a measurement for the code that runs it, see `base.AnyMeasurement`."""

    name: ClassVar[str]
    takes: ClassVar[tuple[AnswerKind, ...]]
    why_not: ClassVar[str]
    reads_texts: ClassVar[bool]
    reads_spans: ClassVar[bool]

    @property
    def asks_at_once(self) -> bool:
        """True if `passes` are all its passes."""

    def chosen(self, data: Prompts) -> Any:
        """Select its input from the prompts."""

    def reads_first_tokens(self) -> bool:
        """True if classes are distinguished only by the first tokens of their label words."""

    def filled(self, model: LanguageModel, data: Any) -> "Runnable[R_co]":
        """A copy with defaults that depend on model or data."""

    def check(self, model: LanguageModel, data: Any) -> None:
        """Reject unsuitable models or data."""

    def check_options(self, model: LanguageModel, data: Any, options: Options) -> None:
        """Reject unsuitable options."""

    def passes(self, model: LanguageModel, data: Any) -> Sequence[Pass]:
        """The passes to run."""

    def steps(self, model: LanguageModel, data: Any, options: Options) -> Steps[R_co]:
        """Passes, one request after the other, and the result."""

    def variants(self) -> dict[str, Any]:
        """The recorded variants."""
