"""Models and tasks of a sweep: names, objects, or functions that load them, each with one name."""

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from icl_mech.checking import conformed, shown
from icl_mech.errors import SweepError, near_matches
from icl_mech.model_sources import resolve
from icl_mech.models import Quantization, adapt, content_of, load_model
from icl_mech.models.loading import LOADING
from icl_mech.models.wrapping import dtype_of
from icl_mech.prompts import TextSet
from icl_mech.tasks import Task, Template, as_task, known_tasks, load_task


@dataclass(frozen=True, eq=False)
class ModelSource:
    """The source of a model.

    Attributes:
        name: Name in tables and folders.
        given: A name or folder, a function without arguments that loads it, or the model.
        identity: Identifies what the name does not: a model that was given as an object, or the files
            of a folder.
        revision: Revision to load: a branch, tag or commit; passed to a function as `revision=`.
        options: How it is loaded: other arguments of `load_model`.
    """

    name: str
    given: Any
    identity: str = ""
    revision: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_object(self) -> bool:
        """True if the model itself was given."""
        return not isinstance(self.given, str) and not is_loader(self.given)

    def load(self, device: str | None, dtype: str | None) -> Any:
        """The model."""
        revision: dict[str, Any] = {} if self.revision is None else {"revision": self.revision}
        if isinstance(self.given, str):
            usual = {"device": None if "device_map" in self.options else device, "dtype": dtype}
            return load_model(self.given, **{**usual, **revision, **self.options})
        return self.given(**revision) if is_loader(self.given) else self.given

    def same(self, other: "ModelSource") -> bool:
        """True if the other source gives the same model, as far as can be known without loading it."""
        places = [
            (source.name, source.identity, source.revision, source.options)
            for source in (self, other)
        ]
        return places[0] == places[1] and (
            self.given == other.given or _same_loader(self.given, other.given)
        )


def _same_loader(first: Any, second: Any) -> bool:
    """True for the same code: functions may share a name, and a sent function is a new object each time."""
    if isinstance(first, partial) and isinstance(second, partial):
        same = first.args == second.args and first.keywords == second.keywords
        return same and _same_loader(first.func, second.func)
    if first is second:
        return True
    code, others = getattr(first, "__code__", None), getattr(second, "__code__", None)
    return (
        code is not None
        and code == others
        and first.__globals__ is second.__globals__
        and first.__closure__ is None is second.__closure__
        and first.__defaults__ == second.__defaults__
    )


def is_loader(given: object) -> bool:
    """True for functions; models can be called too, but are not loaders."""
    return inspect.isroutine(given) or isinstance(given, partial | type)


def model_sources(models: object, revisions: Sequence[str | None] = (None,)) -> list[ModelSource]:
    """One source for each model and revision.

    Raises:
        SweepError: none, two with one name, or a revision of a model not loaded by name or function.
        ModelError: an object that is not a model.
    """
    sources = [_model(name, given) for name, given in _named(models, "models", _model_name).items()]
    sources = [
        replace(source, revision=revision or source.revision)
        for source in sources
        for revision in revisions
    ]
    for source in sources:
        if source.revision is None:
            continue
        if source.is_object:
            raise SweepError(
                f"The model {source.name!r} was given as an object, so it has only one revision; give its hub id, "
                "or a function with the argument revision that loads it."
            )
        if isinstance(source.given, str):
            kind = resolve(source.given).kind
            if kind != "hub":
                raise SweepError(
                    f"The model {source.name!r} is not loaded from the hub, so it has no revisions; give "
                    "its checkpoints as models, models={'step 1000': 'folder/1000', ...}, or give a function "
                    "with the argument revision."
                )
        elif not _takes_revision(source.given):
            raise SweepError(
                f"The function {source.name} has no argument revision, so it loads only one model; add the "
                "argument, or leave out revisions=."
            )
    return sources


def _takes_revision(loader: Callable[..., Any]) -> bool:
    parameters = inspect.signature(loader).parameters.values()
    return any(p.name == "revision" or p.kind is p.VAR_KEYWORD for p in parameters)


def _model_name(given: Any) -> str:
    if isinstance(given, Mapping):
        return _model_name(given.get("path"))
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    if isinstance(given, partial):
        return _model_name(given.func)
    return str(given.__name__) if is_loader(given) else adapt(given).info.name


def _model(name: str, given: Any) -> ModelSource:
    if isinstance(given, Mapping):
        return _loaded_so(name, dict(given))
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        files = [f"{file} {checksum}" for file, checksum in content_of(path).items()]
        return ModelSource(name, path, "\n".join([*([] if name == path else [path]), *files]))
    if is_loader(given):
        function: Callable[[], Any] = given.func if isinstance(given, partial) else given
        arguments = f"{given.args}{given.keywords}" if isinstance(given, partial) else ""
        return ModelSource(name, given, f"{function.__module__}.{function.__qualname__}{arguments}")
    return ModelSource(name, given, adapt(given).fingerprint())


def _loaded_so(name: str, given: dict[str, Any]) -> ModelSource:
    """A model by its path, and how it is loaded.

    Raises:
        SweepError: an unknown argument, or an invalid way to load it.
    """
    for key in given:
        if key not in ("path", *LOADING):
            raise SweepError(
                f"The model {name!r} has the unknown argument {key!r}. {near_matches(key, ('path', *LOADING))} "
                f"Allowed: path, {', '.join(LOADING)}."
            )
    if not isinstance(given.get("path"), str):
        raise SweepError(
            f"The model {name!r} has no path; give its name, hub id, folder or file as path."
        )
    source, revision = _model(name, given.pop("path")), given.pop("revision", None)
    dtype_of(given.get("dtype"))
    conformed("quantization", given.get("quantization"), Quantization | None, SweepError)
    numbers = [f"{key}={given[key]}" for key in ("dtype", "quantization") if given.get(key)]
    identity = "\n".join([*([source.identity] if source.identity else []), *numbers])
    return replace(source, identity=identity, revision=revision, options=given)


@dataclass(frozen=True, eq=False)
class TaskSource:
    """The source of a task.

    Attributes:
        name: Name in tables and folders.
        given: The name of a built-in task, the task, or a set of texts.
        format: Number of a prompt format of a built-in task, a template, or None: the task's own.
        identity: Identifies a task that was given as an object or file.
    """

    name: str
    given: str | Task | TextSet
    format: int | Template | None = None
    identity: str = ""

    @property
    def is_texts(self) -> bool:
        """True for a set of texts."""
        return isinstance(self.given, TextSet)

    def texts(self) -> TextSet:
        """The texts; for a task, the texts of its test examples.

        Raises:
            PromptError: a task whose texts cannot be cut.
        """
        if isinstance(self.given, TextSet):
            return self.given
        return TextSet.of_task(as_task(self.given), name=self.name)

    def load(self) -> Task:
        """The task in this format.

        Raises:
            TaskError: it has no such format.
        """
        assert not isinstance(self.given, TextSet)
        if isinstance(self.format, int):
            return load_task(self.given, prompt_format=self.format)
        task = as_task(self.given)
        return task if self.format is None else replace(task, template=self.format)


def task_sources(tasks: object) -> list[TaskSource]:
    """One source for each task; files are read, and names are checked.

    Raises:
        SweepError: none, or two with one name.
        TaskError: a task that cannot be loaded.
    """
    sources = []
    built_in = {task.name for task in known_tasks()}
    for name, given in _named(tasks, "tasks", _task_name).items():
        if isinstance(given, TextSet):
            sources.append(TaskSource(name, given, identity=given.digest))
        elif isinstance(given, str) and Path(given).suffix == ".txt":
            texts = TextSet.load(given, name=name)
            sources.append(TaskSource(name, texts, identity=texts.digest))
        elif isinstance(given, str) and given in built_in:
            as_task(given)  # raises if it is unknown
            sources.append(TaskSource(name, given, identity="" if name == given else given))
        else:
            task = given if isinstance(given, Task) else load_task(given)
            sources.append(TaskSource(name, task, identity=task_digest(task)))
    return sources


def _task_name(given: object) -> str:
    return given.name if isinstance(given, Task | TextSet) else os.path.basename(str(given))  # noqa: PTH119


def task_digest(task: Task) -> str:
    """Digest of a task's texts, labels and template."""
    content = (task.describe(), task.train, task.test)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def formats_of(formats: object) -> dict[str, int | Template | None]:
    """Prompt formats by name: numbers of built-in ones, patterns or templates.

    Raises:
        SweepError: none of these.
        TaskError: a pattern that is not a template.
    """
    named = _named(formats, "formats", _format_name)
    forms: dict[str, int | Template | None] = {}
    for name, given in named.items():
        if isinstance(given, str):
            forms[name] = Template(given)
        elif given is None or isinstance(given, int | Template):
            forms[name] = given
        else:
            raise SweepError(
                f"formats holds {shown(given)}, which is not a format; give numbers of a task's formats, templates "
                "such as 'Review: {text}\\nSentiment: {label}', or None for the task's own format."
            )
    return forms


def _format_name(given: object) -> str:
    return "" if given is None else given.pattern if isinstance(given, Template) else str(given)


def _named(given: object, what: str, name_of: Callable[[Any], str]) -> dict[str, Any]:
    """The given values, one or several, by name."""
    if isinstance(given, Mapping):
        named = {str(name): value for name, value in given.items()}
    else:
        several = (
            list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
        )
        several = [given] if several is None else several
        named = {}
        for value in several:
            name = name_of(value)
            if name in named:
                raise SweepError(
                    f"{what} holds two entries named {name!r}; give a mapping with a name for each: "
                    f"{what}={{'a': ..., 'b': ...}}."
                )
            named[name] = value
    if not named:
        raise SweepError(f"{what} is empty; give at least one.")
    return named
