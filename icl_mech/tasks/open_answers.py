"""Tasks with open answers: every example brings its own, a word (or words) of the vocabulary.

The offline ones were written for `icl_mech`: antonyms, plurals, past tenses, capitals, and French words
for English ones. Each row also holds what another relation would answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from icl_mech import demo
from icl_mech.errors import TaskError
from icl_mech.tasks.files import read_rows
from icl_mech.tasks.known import KnownTask
from icl_mech.tasks.parts import Overlap, apart, divide
from icl_mech.tasks.rows import Columns, Part, as_written
from icl_mech.tasks.sources import Source
from icl_mech.tasks.types import Example, Task, Template, answer_fault, text_fault


class AnswerColumns(NamedTuple):
    """Columns of open answers; several accepted ones are a list, or stand between bars (`a|b`)."""

    answers: str
    other: str | None = None


def open_task(
    source: Source,
    columns: Columns,
    answers: AnswerColumns,
    template: Template,
    *,
    name: str | None,
    test_fraction: float,
    seed: int,
    overlap: Overlap,
) -> Task:
    """The task that a source of rows with answers holds.

    Raises:
        TaskError: a column is missing, a text or an answer empty, or a part would be.
    """
    # A source asks for the columns it must have; those of answers take the label's place.
    examples = to_examples(source.read(columns), columns, answers)
    if len(examples) == 2:
        found = apart(*examples, origin=source.origin, overlap=overlap)
    else:
        found = divide(
            examples[0], 1, origin=source.origin, test_fraction=test_fraction, seed=seed,
            overlap=overlap,
        )  # fmt: skip
    origin = source.origin + (f"; {found.note}" if found.note else "")
    return Task(name or source.name, template, (), found.train, found.test, origin)


def offline_task(known: KnownTask, template: Template, name: str | None) -> Task:
    """A built-in task with open answers."""
    rows = read_rows(demo.table(known.name))
    parts = [
        Part(f"{known.name} {split}", [row for row in rows if row["split"] == split])
        for split in ("train", "test")
    ]
    train, test = to_examples(parts, Columns(), AnswerColumns("answer", "other"))
    return Task(name or known.name, template, (), train, test, "icl_mech offline data")


def to_examples(
    parts: Sequence[Part], columns: Columns, answers: AnswerColumns
) -> list[tuple[Example, ...]]:
    """The examples of each part.

    Raises:
        TaskError: a column is missing, or a text or an answer empty; names the row.
    """
    named = (*columns.texts, *(name for name in answers if name is not None))
    found: list[tuple[Example, ...]] = []
    for origin, rows in parts:
        examples: list[Example] = []
        for number, row in enumerate(rows, start=1):
            where = f"{origin}, row {number}"
            missing = [name for name in named if name not in row]
            if missing:
                raise TaskError(
                    f"{where} has no column {missing[0]!r}; it has {', '.join(map(repr, row))}. Name "
                    "the right one with text_column=, answers= or other_answers=."
                )
            for column in columns.texts:
                if bad := text_fault(row[column]):
                    raise TaskError(f"{where}: the text in column {column!r} {bad}.")
            examples.append(_example(row, columns, answers))
            if fault := answer_fault(examples[-1]):
                raise TaskError(f"{where}: {fault}.")
        found.append(tuple(examples))
    return found


def _example(row: Mapping[str, Any], columns: Columns, answers: AnswerColumns) -> Example:
    return Example(
        row[columns.text],
        text2=row[columns.text2] if columns.text2 else None,
        answers=_accepted(row[answers.answers]),
        other=as_written(row[answers.other]) if answers.other else None,
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
