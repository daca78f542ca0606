"""Models and tasks of a sweep: names, objects, or functions that load them, each under one name."""

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from icl_mech.checking import shown
from icl_mech.errors import SweepError
from icl_mech.models import adapt, content_of, load_model
from icl_mech.tasks import Task, Template, as_task, known_tasks, load_task


@dataclass(frozen=True, eq=False)
class ModelSource:
    """Where a model comes from.

    Attributes:
        name: In tables and folders.
        given: A name or folder, a function without arguments that loads it, or the model.
        identity: Recognises what the name does not: the model that was given as an object, the files
            of a folder.
    """

    name: str
    given: Any
    identity: str = ""

    @property
    def is_object(self) -> bool:
        """True if the model itself was given."""
        return not isinstance(self.given, str) and not is_loader(self.given)

    def load(self, device: str | None, dtype: str | None) -> Any:
        """The model."""
        if isinstance(self.given, str):
            return load_model(self.given, device=device, dtype=dtype)
        return self.given() if is_loader(self.given) else self.given

    def same(self, other: "ModelSource") -> bool:
        """True if the other one gives the same model, as far as can be known without loading it."""
        return (self.name, self.identity) == (other.name, other.identity) and (
            self.given == other.given or _same_loader(self.given, other.given)
        )


def _same_loader(one: Any, other: Any) -> bool:
    """Two functions of one name may load different models; sent ones are other objects each time."""
    if isinstance(one, partial) and isinstance(other, partial):
        same = one.args == other.args and one.keywords == other.keywords
        return same and _same_loader(one.func, other.func)
    if one is other:
        return True
    code, others = getattr(one, "__code__", None), getattr(other, "__code__", None)
    return (
        code is not None
        and code == others
        and one.__globals__ is other.__globals__
        and one.__closure__ is None is other.__closure__
        and one.__defaults__ == other.__defaults__
    )


def is_loader(given: Any) -> bool:
    """True for functions; models can be called too, but are none."""
    return inspect.isroutine(given) or isinstance(given, partial | type)


def model_sources(models: Any) -> list[ModelSource]:
    """One for each model.

    Raises:
        SweepError: none, or two of one name.
        ModelError: an object that is no model.
    """
    return [_model(name, given) for name, given in _named(models, "models", _model_name).items()]


def _model_name(given: Any) -> str:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    if isinstance(given, partial):
        return _model_name(given.func)
    return str(given.__name__) if is_loader(given) else adapt(given).info.name


def _model(name: str, given: Any) -> ModelSource:
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        files = [f"{file} {checksum}" for file, checksum in content_of(path).items()]
        return ModelSource(name, path, "\n".join([*([] if name == path else [path]), *files]))
    if is_loader(given):
        function: Callable[[], Any] = given.func if isinstance(given, partial) else given
        arguments = f"{given.args}{given.keywords}" if isinstance(given, partial) else ""
        return ModelSource(name, given, f"{function.__module__}.{function.__qualname__}{arguments}")
    return ModelSource(name, given, adapt(given).fingerprint())


@dataclass(frozen=True, eq=False)
class TaskSource:
    """Where a task comes from.

    Attributes:
        name: In tables and folders.
        given: The name of a built-in task, or the task.
        format: Number of a prompt format of a built-in task, a template, or None: its own.
        identity: Recognises a task that was given as an object or file.
    """

    name: str
    given: str | Task
    format: int | Template | None = None
    identity: str = ""

    def load(self) -> Task:
        """The task in this format.

        Raises:
            TaskError: it has no such format.
        """
        if isinstance(self.format, int):
            return load_task(self.given, prompt_format=self.format)
        task = as_task(self.given)
        return task if self.format is None else replace(task, template=self.format)


def task_sources(tasks: Any) -> list[TaskSource]:
    """One for each task; files are read, and names are tried.

    Raises:
        SweepError: none, or two of one name.
        TaskError: a task that cannot be loaded.
    """
    found = []
    built_in = {task.name for task in known_tasks()}
    for name, given in _named(tasks, "tasks", _task_name).items():
        if isinstance(given, str) and given in built_in:
            as_task(given)  # it is there
            found.append(TaskSource(name, given, identity="" if name == given else given))
        else:
            task = given if isinstance(given, Task) else load_task(given)
            found.append(TaskSource(name, task, identity=task_digest(task)))
    return found


def _task_name(given: Any) -> str:
    return given.name if isinstance(given, Task) else os.path.basename(str(given))  # noqa: PTH119


def task_digest(task: Task) -> str:
    """Recognises a task by its texts, labels and template."""
    content = (task.describe(), task.train, task.test)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def formats_of(formats: Any) -> dict[str, int | Template | None]:
    """Prompt formats by name: numbers of built-in ones, patterns or templates.

    Raises:
        SweepError: none of these.
        TaskError: a pattern that is no template.
    """
    named = _named(formats, "formats", _format_name)
    found: dict[str, int | Template | None] = {}
    for name, given in named.items():
        if isinstance(given, str):
            found[name] = Template(given)
        elif given is None or isinstance(given, int | Template):
            found[name] = given
        else:
            raise SweepError(
                f"formats holds {shown(given)}; give numbers of a task's formats, templates such as "
                "'Review: {text}\\nSentiment:{label}', or None for the task's own."
            )
    return found


def _format_name(given: Any) -> str:
    return "" if given is None else given.pattern if isinstance(given, Template) else str(given)


def _named(given: Any, what: str, name_of: Callable[[Any], str]) -> dict[str, Any]:
    """What was given, one or several, by name."""
    if isinstance(given, Mapping):
        named = {str(name): own for name, own in given.items()}
    else:
        several = (
            list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
        )
        several = [given] if several is None else several
        named = {}
        for own in several:
            name = name_of(own)
            if name in named:
                raise SweepError(
                    f"{what} holds two named {name!r}; give a mapping with a name for each: "
                    f"{what}={{'a': ..., 'b': ...}}."
                )
            named[name] = own
    if not named:
        raise SweepError(f"{what} is empty; give one at least.")
    return named
