"""Rows of measurements as they come: a limit of time for each part, a table and a JSON file after every row.

A part is a plan: the names of its rows, each with what measures it. A row that raises becomes a row that says
so; a part that reaches its limit stops before its next row and names those it did not reach.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.measure import seconds

Clock = Callable[[], float]


@dataclass(frozen=True)
class Number:
    """One number of a row: the cell of a column.

    `low` and `high` are the ends of its interval; `aim` is what it should be, such as "<= 1.1". A value of
    None has not been measured, and with an aim has missed it.
    """

    name: str
    value: float | None
    unit: str = ""
    low: float | None = None
    high: float | None = None
    aim: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the value is what it should be; None without an aim."""
        if not self.aim:
            return None
        sign, limit = self.aim.split()
        if self.value is None:
            return False
        return self.value <= float(limit) if sign == "<=" else self.value >= float(limit)

    @property
    def column(self) -> str:
        """Head of its column."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def cell(self, *, aim: bool) -> str:
        """The value with its interval; with its aim, or marked where it missed that of the column."""
        text = shown(self.value)
        if self.low is not None and self.high is not None:
            text += f" [{shown(self.low)}, {shown(self.high)}]"
        missed = self.met is False
        if aim and self.aim:
            return f"{text}, aim {self.aim}" + (": **missed**" if missed else "")
        return f"{text} **missed**" if missed else text


def shown(value: float | None) -> str:
    """Three digits, all of a count, or a dash."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


Measured = tuple[Sequence[Number], str]
"""Numbers of a row, and what else must be said of it."""

Plan = Sequence[tuple[str, Callable[[], Measured]]]
"""Rows of a part: the name of each, and what measures it."""


@dataclass
class Row:
    """A measured row, and when it was there."""

    name: str
    numbers: list[Number]
    note: str
    seconds: float

    def document(self) -> dict[str, Any]:
        """What the JSON file says of it."""
        numbers = [{**asdict(number), "met": number.met} for number in self.numbers]
        return {"name": self.name, "seconds": self.seconds, "numbers": numbers, "note": self.note}


@dataclass
class Section:
    """One part, of one model: its rows, and the names of those that it did not reach."""

    part: str
    title: str
    about: dict[str, str]
    rows: list[Row] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)
    remark: str = ""

    def columns(self) -> dict[str, str]:
        """Heads of the columns in order, each with the aim that all its numbers share."""
        aims: dict[str, set[str]] = {}
        for row in self.rows:
            for number in row.numbers:
                aims.setdefault(number.column, set()).add(number.aim)
        return {name: next(iter(every)) if len(every) == 1 else "" for name, every in aims.items()}

    def table(self) -> list[str]:
        """Lines of its part of the page."""
        lines = ["", f"## {self.title}", ""]
        if self.remark:
            lines += [self.remark, ""]
        if self.rows:
            columns = self.columns()
            shared = {name: aim for name, aim in columns.items() if aim and len(self.rows) > 1}
            heads = [f"{name}, aim {shared[name]}" if name in shared else name for name in columns]
            lines += [_line(["", *heads, "note", "s since start"])]
            lines += [_line(["---"] * (len(heads) + 3))]
            for row in self.rows:
                cells = {
                    number.column: number.cell(aim=number.column not in shared)
                    for number in row.numbers
                }
                middle = [cells.get(name, "–") for name in columns]
                lines.append(_line([row.name, *middle, row.note, f"{row.seconds:.0f}"]))
        if self.not_reached:
            lines += ["", f"Not reached within the limit: {'; '.join(self.not_reached)}."]
        return lines

    def document(self) -> dict[str, Any]:
        """What the JSON file says of it."""
        return {
            "part": self.part,
            "title": self.title,
            **self.about,
            "remark": self.remark,
            "rows": [row.document() for row in self.rows],
            "not_reached": self.not_reached,
        }


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class Report:
    """The table and the JSON file of one run, written anew after each row.

    Args:
        path: The table; the JSON file stands beside it, under the same stem.
        title: First line of the table.
        about: What both files say of the machine and the versions.
        limit: Seconds for each part, loading its model included; None: no limit.
        total: Seconds for all parts together.
        clock: Seconds since any moment.
    """

    def __init__(
        self,
        path: Path,
        title: str,
        about: Mapping[str, str],
        *,
        limit: float | None = None,
        total: float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.path, self.title, self.about = path, title, dict(about)
        self.limit, self.total, self.clock = limit, total, clock
        self.start = self.begun = clock()
        self.sections: list[Section] = []
        self.finished = False

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.start

    def late(self) -> bool:
        """Whether the present part, or the whole run, is at its limit."""
        part = self.limit is not None and self.clock() - self.begun >= self.limit
        return part or (self.total is not None and self.elapsed >= self.total)

    def measure(
        self, part: str, title: str, plan: Callable[[], tuple[Plan, str]], **about: str
    ) -> Section:
        """Measure the rows of a part until its limit; `plan` makes them, and a remark on them all."""
        self.begun = self.clock()
        section = Section(part, title, about)
        self.sections.append(section)
        if self.late():
            section.not_reached = ["all of it"]
            self.say(f"{title}: not reached")
            self.write()
            return section
        try:
            steps, section.remark = plan()
        except Exception as error:  # noqa: BLE001 - the other parts go on
            section.remark = f"Not measured: {_reason(error)}"
            self.say(f"{title}: {section.remark}")
            self.write()
            return section
        for place, (name, step) in enumerate(steps):
            if self.late():
                section.not_reached = [left for left, _ in steps[place:]]
                self.say(f"{title}: not reached: {'; '.join(section.not_reached)}")
                break
            numbers, note = attempted(step)
            row = Row(name, list(numbers), note, round(self.elapsed, 1))
            section.rows.append(row)
            cells = [f"{number.column} {number.cell(aim=True)}" for number in row.numbers]
            self.say(f"{title}: {name}: {'; '.join([*cells, *([note] if note else [])])}")
            self.write()
        self.write()
        return section

    def say(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        print(f"[{self.elapsed:6.1f}] {text}", flush=True)

    def finish(self) -> None:
        """Note that no part is left."""
        self.finished = True
        self.write()

    def write(self) -> None:
        """Both files, each whole or as it was."""
        state = "" if self.finished else " Not all parts were measured yet."
        known = ", ".join(f"{name} {value}" for name, value in self.about.items() if value)
        lines = [f"# {self.title}", "", f"{known}. {self.elapsed:.0f} s.{state}"]
        for section in self.sections:
            lines += section.table()
        document = {
            "title": self.title,
            "about": self.about,
            "limit": self.limit,
            "total": self.total,
            "seconds": round(self.elapsed, 1),
            "finished": self.finished,
            "sections": [section.document() for section in self.sections],
        }
        _replace(self.path, "\n".join(lines) + "\n")
        _replace(self.path.with_suffix(".json"), json.dumps(document, indent=1) + "\n")


def attempted(step: Callable[[], Measured]) -> Measured:
    """What a row measures, or why it could not: a row that fails must not take the others with it."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001 - the other rows go on
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return (), f"not measured: {_reason(error)}"


def _reason(error: Exception) -> str:
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "does not fit"
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def peak(device: str, function: Callable[[], object]) -> tuple[float, float | None]:
    """Milliseconds of a call, and its peak memory in GB above what was there (None on a CPU)."""
    if not device.startswith("cuda"):
        return 1000 * seconds(function), None
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    took = 1000 * seconds(function)
    return took, (torch.cuda.max_memory_allocated() - before) / 1e9
