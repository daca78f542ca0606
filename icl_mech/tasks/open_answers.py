"""Tasks with open answers: every example brings its own, a word (or words) of the vocabulary.

The offline ones were written for `icl_mech`: antonyms, plurals, past tenses, capitals, and French words
for English ones. Each row also holds what another relation would answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from icl_mech import demo
from icl_mech.errors import TaskError
from icl_mech.tasks.files import read_rows
from icl_mech.tasks.known import KnownTask
from icl_mech.tasks.rows import Columns, Part, as_written, refuse_missing
from icl_mech.tasks.types import Example, Task, Template, answer_fault, text_fault


def offline_task(known: KnownTask, template: Template, name: str | None) -> Task:
    """A built-in task with open answers."""
    rows = read_rows(demo.table(known.name))
    parts = [
        Part(f"{known.name} {split}", [row for row in rows if row["split"] == split])
        for split in ("train", "test")
    ]
    train, test = open_examples(parts, Columns(label="answer", other="other"))
    return Task(name or known.name, template, (), train, test, "icl_mech offline data")


def open_examples(parts: Sequence[Part], columns: Columns) -> list[tuple[Example, ...]]:
    """The examples of each part.

    Raises:
        TaskError: a column is missing, or a text or an answer empty; names the row.
    """
    found: list[tuple[Example, ...]] = []
    for origin, rows in parts:
        examples: list[Example] = []
        for number, row in enumerate(rows, start=1):
            where = f"{origin}, row {number}"
            refuse_missing(columns, list(row), where)
            for column in columns.texts:
                if bad := text_fault(row[column]):
                    raise TaskError(f"{where}: the text in column {column!r} {bad}.")
            examples.append(_example(row, columns))
            if fault := answer_fault(examples[-1]):
                raise TaskError(f"{where}: {fault}.")
        found.append(tuple(examples))
    return found


def _example(row: Mapping[str, Any], columns: Columns) -> Example:
    return Example(
        row[columns.text],
        text2=row[columns.text2] if columns.text2 else None,
        answers=_accepted(row[columns.label]),
        other=as_written(row[columns.other]) if columns.other else None,
    )


def _accepted(value: object) -> tuple[str, ...]:
    """Accepted answers of one row, the displayed one first."""
    value = getattr(value, "tolist", lambda: value)()
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split("|"))
    if isinstance(value, Iterable):
        return tuple(str(part).strip() for part in value)
    written = as_written(value)
    return () if written is None else (written,)
