"""`load_task`: a task by name, or from files, frames and data sets of the hub."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from icl_mech import demo
from icl_mech.errors import TaskError, near_matches
from icl_mech.tasks.files import read_rows
from icl_mech.tasks.frames import EXPECTED, by_name
from icl_mech.tasks.known import KnownTask
from icl_mech.tasks.open_answers import answer_columns, offline_task, open_examples
from icl_mech.tasks.parts import Overlap, apart, divide
from icl_mech.tasks.registry import find_known, known_tasks, task_format
from icl_mech.tasks.rows import Columns, LabelsAs, Part, checked_label_map, to_examples, words_of
from icl_mech.tasks.sources import find, hub_part
from icl_mech.tasks.types import Example, Task, Template

OF_CLASSES = ("labels", "label_column", "label_map", "labels_as")
"""Options that do not apply to free-form answers."""


def load_task(
    name_or_path: object,
    *,
    template: Template | str | None = None,
    prompt_format: int | None = None,
    labels: Iterable[str] | None = None,
    separator: str | None = None,
    narrative: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
    text2_column: str | None = None,
    label_map: Mapping[Any, str] | None = None,
    labels_as: LabelsAs | None = None,
    answers: str | None = None,
    other_answers: str | None = None,
    rationale: str | None = None,
    test_path: str | Path | None = None,
    train_split: str | None = None,
    test_split: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    test_fraction: float = 0.5,
    overlap: Overlap = "avoid",
    seed: int = 0,
    name: str | None = None,
) -> Task:
    r"""A task by name, or from your own data.

    Training and test examples share no text (white space aside) unless `overlap` allows it.

    Args:
        name_or_path: A built-in name (see `known_tasks`); a data file – CSV with commas, semicolons,
            tabs or bars, JSON (a list of objects, columns, lines), Parquet or Arrow – also packed
            (`.gz`, `.bz2`, `.xz`, `.zst`, `.zip` of one file); a folder that holds `train.*` and
            `test.*`, or was written by `save_to_disk`; a frame of pandas, polars or pyarrow; a
            `datasets.Dataset`, or an `IterableDataset` of up to 100,000 rows, which is read completely;
            several of these by split, such as a `datasets.DatasetDict`; or `owner/name` of any data
            set on the Hugging Face hub.
        template: A `Template`, a pattern such as `"Review: {text}\nSentiment: {label}"`, or the
            name of a built-in task whose template and labels are used. For a built-in task, it
            replaces the task's own template.
        prompt_format: Number of the format, for built-in tasks that have several (`ot-sst2`).
        labels: Label words in class order, so not a set. Not needed if `template` names a task, with
            `label_map`, or if a data set names its classes.
        separator: Text between demonstrations, if `template` is a pattern (default newline).
        narrative: Text that opens the prompt, if `template` is a pattern.
        text_column: Column of the text. This and the next ten arguments are for your own data.
        label_column: Column of the label: class index or label word; anything else (True, −1, "pos")
            needs `label_map`. 1.0 is 1.
        text2_column: Column of the second text (templates with `{text2}`; default `text2`).
        label_map: Label word of each value of the label column, `{"pos": "Positive", ...}`.
        labels_as: `names` or `indices`: content of the label column, if label words are
            numbers and both are possible.
        answers: Column of free-form answers, instead of labels: the answer of each text, a list of accepted
            ones, several separated by bars (`Kyiv|Kiev`), or objects as in SQuAD (`{"text": [...]}`) and
            TriviaQA (`{"value": ..., "aliases": [...]}`), the same for all rows; the first answer is
            displayed. `"choices[answer]"` names a column of choices and the column of the correct
            one, by number from 0, by letter, or by label (`{"text": [...], "label": [...]}`).
        other_answers: Column of answers of another relation (the capital's language, for example), for
            false demonstrations that imply a known answer.
        rationale: Column of the reasons for each answer, for templates with `{rationale}` (default `rationale`).
        test_path: A second file that holds the test examples.
        train_split: For data by split: split for demonstrations (default `train`).
        test_split: Split for queries (default `test`); if both are the same, it is divided.
        config: Configuration of a data set on the hub.
        revision: Revision of a data set on the hub.
        test_fraction: Fraction of each class kept for testing if the data has only one part:
            a single file or frame, or a public data set without a test split.
        overlap: Treatment of equal texts. `avoid`: when data is divided, they stay in one part; of given
            parts, training examples that the test part contains are left out; a warning says how
            many. `keep`: parts are used as they are. `refuse`: an error.
        seed: Seed of the split.
        name: Name of the task (default: that of the file, folder or data set).

    Raises:
        TaskError: an unknown name (the message lists near matches), a missing column, an unknown label, labels
            that could be names or indices, answers in different formats, an empty text, an unreadable file, an option
            without effect, an empty part, or an unreachable hub.
    """
    if name_or_path is None or isinstance(name_or_path, int | float | list | tuple | set):
        raise TaskError(
            f"Expected {EXPECTED}, but got {str(name_or_path)[:100]}, a {type(name_or_path).__name__}."
        )
    if overlap not in get_args(Overlap):
        raise TaskError(
            f"overlap={overlap!r} is not an option. {near_matches(str(overlap), get_args(Overlap))}"
        )
    given = {
        "text_column": text_column != "text",
        "label_column": label_column != "label",
        "text2_column": text2_column is not None,
        "label_map": label_map is not None,
        "labels_as": labels_as is not None,
        "answers": answers is not None,
        "other_answers": other_answers is not None,
        "rationale": rationale is not None,
        "test_path": test_path is not None,
        "train_split": train_split is not None,
        "test_split": test_split is not None,
        "config": config is not None,
        "revision": revision is not None,
        "test_fraction": test_fraction != 0.5,
    }
    written = partial(
        task_format,
        template=template,
        prompt_format=prompt_format,
        separator=separator,
        narrative=narrative,
    )

    def second(chosen_template: Template) -> str | None:
        return text2_column or ("text2" if chosen_template.is_pair else None)

    def reasons(chosen_template: Template) -> str | None:
        if rationale is not None and not chosen_template.has_rationale:
            raise TaskError(
                f"rationale={rationale!r} names a column that the template {chosen_template.pattern!r} does not show. "
                "Write {rationale} between the text and {label}, or omit rationale=."
            )
        return (rationale or "rationale") if chosen_template.has_rationale else None

    known = find_known(name_or_path)
    if known is not None:
        chosen, words = written(known, labels=labels)
        remedy = f"Omit it, or load a file: load_task('my.csv', template={known.name!r}, ...)."
        unused = tuple(given)[: -1 if known.undivided else None]
        _refuse_unused(given, unused, f"Task {known.name!r} is built in", remedy)
        if known.is_open:
            return offline_task(known, chosen, name)
        called, origin, examples = _built_in(known)
    else:
        source = find(name_or_path, test_path, train_split, test_split, config, revision)
        _refuse_unused(given, *source.unused)
        called, origin = source.name, source.origin
        if answers is not None:
            idle = {"labels": labels is not None, **given}
            why = "answers= names a column of free-form answers, which have no classes"
            _refuse_unused(idle, OF_CLASSES, why, "Omit it, or omit answers=.")
            (chosen, _), words = written(None, labels=("its", "own")), ()
            options = "answers=, other_answers="
            column, choice = answer_columns(answers)
            columns = Columns(text_column, column, second(chosen), options, other_answers, choice)
            columns = columns._replace(rationale=reasons(chosen))
            examples = open_examples(source.read(columns), columns)
        else:
            names = source.class_names(label_column) if labels_as != "indices" else None
            if labels is None and find_known(template) is None:
                labels = names if label_map is None else words_of(label_map)
            chosen, words = written(None, labels=labels)
            classes = [word.strip() for word in words]  # in the spelling of files and class names
            columns = Columns(text_column, label_column, second(chosen))
            columns = columns._replace(rationale=reasons(chosen))
            parts = source.read(columns)
            mapped: Mapping[str, str] | None = None
            if label_map is not None:
                mapped = checked_label_map(label_map, classes)
            if names is not None:
                parts, mapped, labels_as = by_name(parts, names, classes, label_column, mapped)
            examples = to_examples(parts, classes, columns, labels_as=labels_as, label_map=mapped)
    if len(examples) == 2:
        divided = apart(*examples, origin=origin, overlap=overlap)
    else:
        (only,), count = examples, max(len(words), 1)
        divided = divide(
            only, count, origin=origin, test_fraction=test_fraction, seed=seed, overlap=overlap
        )
    origin += f"; {divided.note}" if divided.note else ""
    return Task(name or called, chosen, words, divided.train, divided.test, origin)


def as_task(task: object) -> Task:
    """The task itself, or the task that `load_task` returns for its name or path.

    Raises:
        TaskError: neither a task nor a name.
    """
    if isinstance(task, Task):
        return task
    if isinstance(task, str | Path):
        return load_task(task)
    raise TaskError(
        f"Expected a task or its name, but got a {type(task).__name__}. Load one with "
        "load_task('reviews'), load_task('my.csv', ...), load_task(frame, ...) or Task(...)."
    )


def _refuse_unused(given: Mapping[str, bool], unused: Sequence[str], why: str, remedy: str) -> None:
    idle = [f"{name}=" for name, is_given in given.items() if is_given and name in unused]
    if idle:
        raise TaskError(f"{why}, so {' and '.join(idle)} would have no effect. {remedy}")


def _built_in(known: KnownTask) -> tuple[str, str, list[tuple[Example, ...]]]:
    """Name, origin and examples of a built-in task: one part to be divided, or training and test."""
    hub = known.hub
    if hub is None:
        columns = Columns(rationale="rationale" if known.template.has_rationale else None)
        files = ((split, demo.folder(known.name) / f"{split}.jsonl") for split in ("train", "test"))
        parts = [Part(f"{known.name} {split}", read_rows(file)) for split, file in files]
        examples = to_examples(parts, known.labels, columns)
        return known.name, "icl_mech offline data", examples
    offline = [task.name for task in known_tasks() if task.offline]
    parts = [
        hub_part(hub, split, task=known.name, offline=offline)
        for split in (hub.train, hub.test)
        if split is not None
    ]
    columns = Columns(hub.text, hub.label, hub.text2)
    examples = to_examples(parts, known.labels, columns, labels_as="indices")
    return known.name, f"hub {hub.path}", examples
