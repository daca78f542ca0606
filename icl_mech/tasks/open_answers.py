"""Tasks with free-form answers: each example has its own answer, one or more words of the vocabulary.

The offline tasks were written for `icl_mech`: antonyms, plurals, past tenses, capitals, and English-French
translation. Each row also holds the answer of another relation.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

from icl_mech import demo
from icl_mech.errors import TaskError
from icl_mech.tasks.files import read_rows
from icl_mech.tasks.known import KnownTask
from icl_mech.tasks.rows import Columns, Part, as_written, refuse_missing
from icl_mech.tasks.types import Example, Task, Template, answer_fault, shortened, text_fault


def offline_task(known: KnownTask, template: Template, name: str | None) -> Task:
    """A built-in task with free-form answers."""
    rows = read_rows(demo.table(known.name))
    parts = [
        Part(f"{known.name} {split}", [row for row in rows if row["split"] == split])
        for split in ("train", "test")
    ]
    train, test = open_examples(parts, Columns(label="answer", other="other"))
    return Task(name or known.name, template, (), train, test, "icl_mech offline data")


def answer_columns(answers: str) -> tuple[str, str | None]:
    """Column named by `answers=`, and the column of the correct choice, from `"choices[answer]"`."""
    both = re.fullmatch(r"([^\[\]]+)\[([^\[\]]+)\]", answers)
    return (both[1], both[2]) if both else (answers, None)


def open_examples(parts: Sequence[Part], columns: Columns) -> list[tuple[Example, ...]]:
    """Examples of each part.

    Raises:
        TaskError: a missing column, an empty text or answer, or answers in several formats or an
            unknown one; the message names the row.
    """
    by_part: list[tuple[Example, ...]] = []
    shapes: dict[str, str] = {}
    for origin, rows in parts:
        examples: list[Example] = []
        for number, row in enumerate(rows, start=1):
            where = f"{origin}, row {number}"
            refuse_missing(columns, list(row), where)
            for column in columns.texts:
                if bad := text_fault(row[column]):
                    raise TaskError(f"{where}: the text in column {column!r} {bad}.")
            examples.append(_example(row, columns, where, shapes))
            if fault := answer_fault(examples[-1]):
                raise TaskError(f"{where}: {fault}.")
        by_part.append(tuple(examples))
    return by_part


def _example(
    row: Mapping[str, Any], columns: Columns, where: str, shapes: dict[str, str]
) -> Example:
    """Example of one row; `shapes` records where each answer format was seen first."""
    cell = row[columns.label]
    at = f"{where}, column {columns.label!r}"
    shape, answers = _accepted(cell, at, choices=columns.choice is not None)
    shapes.setdefault(shape, where)
    if len(shapes) > 1:
        usual, first = next(iter(shapes.items()))
        raise TaskError(
            f"{at}: {_cut(cell)} is {shape}, but {first} holds {usual}; a column must use one format for all answers, "
            f"so that all rows accept answers by the same rule. {REMEDY}"
        )
    if columns.choice:
        answers = (
            _chosen(cell, answers, row[columns.choice], f"{where}, column {columns.choice!r}"),
        )
    other = row[columns.other] if columns.other else None
    if as_written(other) is not None:
        (other,) = _written([other], f"{where}, column {columns.other!r}")
    return Example(
        row[columns.text],
        text2=row[columns.text2] if columns.text2 else None,
        answers=tuple(dict.fromkeys(answers)),
        other=as_written(other),
        rationale=row[columns.rationale] if columns.rationale else None,
    )


SHAPES = (
    'a text ("Kyiv", or "Kyiv|Kiev" for several), a number, a list of these, {"text": [...], "answer_start": [...]} '
    'or {"value": ..., "aliases": [...]}; for choices, name both columns with answers="choices[answer]"'
)
REMEDY = "Convert each to a list of accepted answers: frame[column] = [[...], ...]."


def _accepted(cell: object, where: str, *, choices: bool) -> tuple[str, tuple[str, ...]]:
    """Answer format of one row, and the accepted answers, the displayed one first.

    Raises:
        TaskError: no answer, or an unknown format.
    """
    cell = _plain(cell)
    if isinstance(cell, str):
        return "a text", tuple(part.strip() for part in cell.split("|"))
    if isinstance(cell, list | tuple):
        return "a list", _written(cell, where)
    if isinstance(cell, Mapping):
        texts, aliases = _plain(cell.get("text")), _plain(cell.get("aliases"))
        if isinstance(texts, list) and cell.keys() <= {
            "text",
            "label" if choices else "answer_start",
        }:
            return "an object of texts", _written(texts, where)
        if isinstance(aliases, list) and "value" in cell:
            return "an object of value and aliases", _written([cell["value"], *aliases], where)
    elif as_written(cell) is None or isinstance(cell, Real | Decimal):
        return "a number", _written([cell], where)
    raise _unknown(cell, where)


def _plain(cell: object) -> object:
    """Cell value, with an array converted to a list."""
    return getattr(cell, "tolist", lambda: cell)()


def _written(cells: Sequence[object], where: str) -> tuple[str, ...]:
    """Texts and numbers in the spelling of a file.

    Raises:
        TaskError: no cells, a missing one, or one that is neither text nor number.
    """
    if not cells:
        raise TaskError(
            f"{where}: the list of answers is empty; drop the row or fill in an answer."
        )
    texts = tuple(str(as_written(cell)) for cell in cells)
    for cell in cells:
        if as_written(cell) is None:
            raise TaskError(
                f"{where}: an answer is missing ({cell!r}); drop the row or fill in the answer."
            )
        if not isinstance(cell, str | Real | Decimal):
            raise _unknown(cell, f"{where}, in its list")
    return texts


def _unknown(cell: object, where: str) -> TaskError:
    return TaskError(
        f"{where}: {_cut(cell)}, a {type(cell).__name__}, is not a readable answer; expected {SHAPES}. {REMEDY}"
    )


def _chosen(cell: object, choices: Sequence[str], mark: object, where: str) -> str:
    """The choice that a mark points to: its number from 0, its letter, or its label if choices have labels.

    Raises:
        TaskError: the mark does not match any choice.
    """
    labels = cell.get("label") if isinstance(cell, Mapping) else None
    numbers = [str(number) for number in range(len(choices))]
    letters = [chr(ord("A") + number) for number in range(len(choices))]
    known = [numbers, letters] if labels is None else [[*_written(labels, where)]]
    for names in known:
        if as_written(mark) in names and len(names) == len(choices):
            return choices[names.index(str(as_written(mark)))]
    shown = " or ".join(", ".join(names) for names in known)
    raise TaskError(
        f"{where}: {mark!r} matches none of the {len(choices)} choices of its row; expected {shown}. If the column "
        "counts from 1, subtract 1: frame[column] -= 1."
    )


def _cut(cell: object) -> str:
    return shortened(repr(cell), 60)
