"""Registry entries of tasks: location of the data, and prompt formats."""

from dataclasses import dataclass
from typing import Literal

from icl_mech.errors import TaskError
from icl_mech.tasks.types import Template, is_index

CONVERTED = "refs/convert/parquet"
"""Branch converted by the hub, for data sets whose main branch is a loading script."""

Paper = Literal["label words", "overthinking", "function vectors", "chain of thought"]


@dataclass(frozen=True)
class HubSource:
    """Location of a public data set on the Hugging Face hub, and its column names.

    Attributes:
        path: Repository of the data set.
        text: Column of the text.
        label: Column of the class index.
        train: Split from which demonstrations are drawn.
        test: Split from which queries are drawn; None: there is only one split, which is divided.
        revision: Branch, if not the main one.
        config: Name of the configuration, if there are several.
        text2: Column of the second text of pairs.
        left_out: Class indices without a label word; their rows are not used.
    """

    path: str
    text: str
    label: str
    train: str = "train"
    test: str | None = "test"
    revision: str | None = None
    config: str | None = None
    text2: str | None = None
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True)
class PromptFormat:
    """One prompt format of a task; `fault` describes its error, if it has one."""

    template: Template
    labels: tuple[str, ...]
    fault: str = ""


@dataclass(frozen=True)
class KnownTask:
    """A task that can be loaded by name; offline ones carry their data in the package.

    Attributes:
        name: Name for `load_task`.
        formats: Prompt formats, numbered from 0; the first is the default.
        note: One-line description.
        hub: Location of the data; None: in the package.
        paper: Paper that the formats come from.
    """

    name: str
    formats: tuple[PromptFormat, ...]
    note: str
    hub: HubSource | None = None
    paper: Paper = "label words"

    @property
    def template(self) -> Template:
        """Template of the default format."""
        return self.formats[0].template

    @property
    def labels(self) -> tuple[str, ...]:
        """Label words of the default format, in class order."""
        return self.formats[0].labels

    @property
    def offline(self) -> bool:
        """True if the data comes with the package."""
        return self.hub is None

    @property
    def is_open(self) -> bool:
        """True if answers are free-form: there are no classes."""
        return not self.labels

    @property
    def undivided(self) -> bool:
        """True if the data has no test split, so that it is divided when loaded."""
        return self.hub is not None and self.hub.test is None

    @property
    def sound_formats(self) -> tuple[int, ...]:
        """Numbers of the formats without a fault."""
        return tuple(number for number, form in enumerate(self.formats) if not form.fault)

    def prompt_format(self, number: int | None = None) -> PromptFormat:
        """A format by its number (None: the default one).

        Raises:
            TaskError: no such number.
        """
        number = 0 if number is None else number
        if not (is_index(number) and 0 <= number < len(self.formats)):
            last = len(self.formats) - 1
            there_are = f"its formats are 0 to {last}" if last else "its only format is 0"
            raise TaskError(f"Task {self.name!r} has no prompt_format={number}; {there_are}.")
        return self.formats[number]
