"""The built-in tasks, and `load_task`, which also takes local files and folders."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl_mech import demo
from icl_mech.errors import TaskError, near_matches
from icl_mech.tasks.files import read_rows, split_examples, to_examples
from icl_mech.tasks.hub import hub_examples
from icl_mech.tasks.known import KnownTask
from icl_mech.tasks.label_words import LABEL_WORDS
from icl_mech.tasks.overthinking import OVERTHINKING
from icl_mech.tasks.types import Example, Task, Template

_KNOWN = {
    task.name: task
    for task in sorted((*LABEL_WORDS, *OVERTHINKING), key=lambda task: not task.offline)
}


def known_tasks() -> tuple[KnownTask, ...]:
    """All tasks `load_task` knows by name, offline ones first."""
    return tuple(_KNOWN.values())


def known_task(name: str) -> KnownTask:
    """What is known of one task: its formats, its label words, where its data is.

    Raises:
        TaskError: unknown name; near matches are listed.
    """
    if name not in _KNOWN:
        raise TaskError(f"Unknown task {name!r}. {near_matches(name, _KNOWN)}")
    return _KNOWN[name]


def load_task(
    name_or_path: str | Path,
    *,
    template: Template | str | None = None,
    prompt_format: int | None = None,
    labels: Sequence[str] | None = None,
    separator: str | None = None,
    narrative: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
    text2_column: str | None = None,
    test_path: str | Path | None = None,
    test_fraction: float = 0.5,
    seed: int = 0,
) -> Task:
    r"""A task by name, or from local files.

    Args:
        name_or_path: A built-in name (see `known_tasks`); a CSV, TSV or JSONL file; or a
            folder that holds `train.*` and `test.*`.
        template: For files: a `Template`, a pattern such as
            `"Review: {text}\nSentiment:{label}"`, or the name of a built-in task whose
            template and labels are used. For a built-in task: what to use instead of its own.
        prompt_format: Number of the format, for built-in tasks that have several (`ot-sst2`).
        labels: Label words in class order; for files needed unless `template` names a task.
        separator: Between demonstrations, if `template` is a pattern (default newline).
        narrative: Opens the prompt, if `template` is a pattern.
        text_column: Column of the text. This and the next four are for files.
        label_column: Column of the label: class index or label word.
        text2_column: Column of the second text (templates with `{text2}`; default `text2`).
        test_path: A second file that holds the test examples.
        test_fraction: Share of each class kept for testing where the data has one part only:
            a single file, or a public data set without a test split.
        seed: Of that split.

    Raises:
        TaskError: unknown name (near matches are listed), missing column, unknown label,
            empty text, an option that would have no effect, an empty split, hub unreachable.
    """
    path = Path(name_or_path)
    known = _KNOWN.get(str(name_or_path))
    if known is None and not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise TaskError(f"No file or folder {str(name_or_path)!r}; check the path.")
        known_task(str(name_or_path))
    chosen, words = _format(known, template, prompt_format, labels, separator, narrative)
    if known is not None:
        given = {
            "text_column": text_column != "text",
            "label_column": label_column != "label",
            "text2_column": text2_column is not None,
            "test_path": test_path is not None,
            "test_fraction": test_fraction != 0.5 and not known.undivided,
        }
        remedy = f"Leave it out, or load a file: load_task('my.csv', template={known.name!r}, ...)."
        _refuse_unused(f"Task {known.name!r} is built in", given, remedy)
        train, test, source = _built_in(known, test_fraction, seed)
        return Task(known.name, chosen, words, train, test, source)
    columns = {
        "text_column": text_column,
        "label_column": label_column,
        "text2_column": text2_column or ("text2" if chosen.is_pair else None),
    }
    train, test = _from_files(path, words, columns, test_path, test_fraction, seed)
    return Task(path.stem, chosen, words, train, test, source=f"file {path.name}")


def as_task(task: Any) -> Task:
    """The task itself, or what `load_task` gives for its name or path.

    Raises:
        TaskError: neither a task nor a name.
    """
    if isinstance(task, Task):
        return task
    if isinstance(task, str | Path):
        return load_task(task)
    raise TaskError(
        f"Expected a task or its name, got a {type(task).__name__}. Make one with load_task('reviews'), "
        "load_task('my.csv', ...) or Task(...)."
    )


def _from_files(
    path: Path,
    words: Sequence[str],
    columns: Mapping[str, str | None],
    test_path: str | Path | None,
    test_fraction: float,
    seed: int,
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Training and test examples from a folder, two files, or one file that is divided."""

    def examples(file: Path) -> tuple[Example, ...]:
        rows = read_rows(file)
        return to_examples(rows, words, origin=str(file), **columns)  # type: ignore[arg-type]

    given = {"test_path": test_path is not None, "test_fraction": test_fraction != 0.5}
    if path.is_dir():
        remedy = "Leave it out, or give one of its files instead of the folder."
        _refuse_unused(f"The folder {str(path)!r} holds both splits", given, remedy)
        return examples(_split_file(path, "train")), examples(_split_file(path, "test"))
    if test_path is not None:
        given["test_path"] = False
        _refuse_unused("test_path= holds the test examples", given, "Leave one out.")
        return examples(path), examples(Path(test_path))
    return split_examples(
        examples(path), len(words), origin=repr(path.name), test_fraction=test_fraction, seed=seed
    )


def _refuse_unused(why: str, options: dict[str, bool], remedy: str) -> None:
    given = [f"{name}=" for name, is_given in options.items() if is_given]
    if given:
        raise TaskError(f"{why}, so {' and '.join(given)} would have no effect. {remedy}")


def _built_in(
    known: KnownTask, test_fraction: float, seed: int
) -> tuple[tuple[Example, ...], tuple[Example, ...], str]:
    """Training and test examples of a built-in task, and where they come from."""
    hub = known.hub
    if hub is None:
        folder = demo.folder(known.name)
        train, test = (
            to_examples(
                read_rows(folder / f"{split}.jsonl"), known.labels, origin=f"{known.name} {split}"
            )
            for split in ("train", "test")
        )
        return train, test, "icl_mech offline data"
    offline = [task.name for task in known_tasks() if task.offline]
    train, *rest = (
        hub_examples(hub, split, known.labels, task=known.name, offline=offline)
        for split in (hub.train, hub.test)
        if split is not None
    )
    if rest:
        test = rest[0]
    else:
        train, test = split_examples(
            train, len(known.labels), origin=hub.path, test_fraction=test_fraction, seed=seed
        )
    return train, test, f"hub {hub.path}"


def _format(
    known: KnownTask | None,
    template: Template | str | None,
    prompt_format: int | None,
    labels: Sequence[str] | None,
    separator: str | None,
    narrative: str | None,
) -> tuple[Template, tuple[str, ...]]:
    """The template and the label words; `known` is the built-in task they are for, if any."""
    named = known if template is None else None
    if isinstance(template, str) and template in _KNOWN:
        named = _KNOWN[template]
    brought_by = "labels=" if labels is not None else f"template={template!r}"
    if named is not None:
        form = named.prompt_format(prompt_format)
        if form.fault and labels is None:
            warnings.warn(
                f"prompt_format={prompt_format} of {named.name!r}: {form.fault}. "
                "Give labels= to correct it.",
                stacklevel=3,
            )
        template = form.template
        labels = form.labels if labels is None else labels
    elif prompt_format is not None:
        raise TaskError(
            f"prompt_format={prompt_format} chooses among the formats of a built-in task; "
            "name that task with template=, or leave it out."
        )
    elif known is not None and labels is None:
        labels = known.labels
    if template is None or labels is None:
        raise TaskError(
            "A task from files needs template= (for example "
            "'Review: {text}\\nSentiment:{label}', or the name of a built-in task) and labels= "
            "(label words in class order)."
        )
    if known is not None and len(labels) != len(known.labels):
        raise TaskError(
            f"Task {known.name!r} has {len(known.labels)} classes ({', '.join(known.labels)}); "
            f"{brought_by} names {len(labels)}."
        )
    if isinstance(template, str):
        template = Template(template)
    laid_out = Template(
        template.pattern,
        template.separator if separator is None else separator,
        template.narrative if narrative is None else narrative,
    )
    return laid_out, tuple(label.strip() for label in labels)


def _split_file(folder: Path, split: str) -> Path:
    for suffix in (".jsonl", ".csv", ".tsv", ".json"):
        if (folder / f"{split}{suffix}").is_file():
            return folder / f"{split}{suffix}"
    raise TaskError(
        f"Folder {str(folder)!r} has no {split}.jsonl, {split}.csv or {split}.tsv; "
        "a task folder holds train.* and test.*."
    )
