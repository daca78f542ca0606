"""The table of a recipe: rows and columns of the paper, measured numbers above published ones, and its notes."""

from collections.abc import Sequence
from string import ascii_lowercase

from icl_mech.export_text import tex_prose
from icl_mech.recipes.recipe import Recipe
from icl_mech.recipes.rows import OUTSIDE, Row, decimal, shared_reasons
from icl_mech.results.wording import counted, listed
from icl_mech.shapes import Table
from icl_mech.sweeps import Sweep
from icl_mech.sweeps.item import short_name

WIDEST = 6
"""Maximum number of columns; a table with more of them, and fewer rows, is turned around."""

HERE = "here"

Place = tuple[str, str]


def laid_out(rows: Sequence[Row], title: str) -> tuple[Table, list[str]]:
    """The table, and the notes that explain its dashes, letters and stars."""
    several = len({row.of_task for row in rows}) > 1
    cells: dict[tuple[Place, str], Row] = {}
    for row in rows:
        cells[_place(row, several), row.model] = row
    turned = _turned(cells)
    downs, acrosses = (
        list(dict.fromkeys(place[side] for place, _ in cells))
        for side in ((1, 0) if turned else (0, 1))
    )
    models = list(dict.fromkeys(row.model for row in rows))
    published = list(dict.fromkeys(name for row in rows for name in row.published))
    marks = Marks(rows)

    def line(heading: str, down: str, texts: Sequence[str]) -> list[tuple[str, ...]]:
        return [(down, heading, *texts)] if any(texts) else []

    lines: list[tuple[str, ...]] = []
    for down in downs:
        of = [
            {
                model: cells.get(((across, down) if turned else (down, across), model))
                for model in models
            }
            for across in acrosses
        ]
        group = []
        for model in models:
            heading = HERE if len(models) == 1 else short_name(model)
            group += line(heading, down, [marks.measured(at[model]) for at in of])
        for name in published:
            alone = published == models
            texts = [marks.published(next(filter(None, at.values()), None), name) for at in of]
            if {*texts} - {"", "–"}:
                marks.dashes |= "–" in texts
                group += line("published" if alone else f"published, {name}", down, texts)
        for model in models:
            heading = "difference" if len(models) == 1 else f"difference, {short_name(model)}"
            group += line(heading, down, [marks.difference(at[model]) for at in of])
        lines += [(line[0] if not i else "", *line[1:]) for i, line in enumerate(group)]
    plain = {line[1] for line in lines} <= {HERE}
    heads = ("", *acrosses) if plain else ("", "", *acrosses)
    shown = tuple((line[0], *line[2:]) for line in lines) if plain else tuple(lines)
    return Table(title, heads, shown), marks.notes()


def _place(row: Row, several: bool) -> Place:
    """Row and column of a number."""
    number = row.number
    if number.along:
        down, parts = row.label or row.name, [number.column or number.name]
    else:
        down, parts = number.row or number.name, [number.column] if number.column else []
    parts += [row.of_task] if several or not parts else []
    return down, ", ".join(parts)


def _turned(cells: dict[tuple[Place, str], Row]) -> bool:
    across = len({place[1] for place, _ in cells})
    return across > WIDEST and across > len({place[0] for place, _ in cells})


class Marks:
    """The texts of cells, and the notes on the marks that occur in them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Begin with the reasons that all rows share."""
        self.shared = shared_reasons(rows)
        self.letters: dict[tuple[str, ...], str] = {}
        self.dashes = self.stars = False

    def measured(self, row: Row | None) -> str:
        """The measured value, with a letter for the reasons that are its own."""
        if row is None:
            return ""
        own = tuple(why for why in row.why if why not in self.shared)
        if not own:
            return row.here
        letter = self.letters.setdefault(own, _letter(len(self.letters)))
        return f"{row.here} ({letter})"

    def published(self, row: Row | None, name: str) -> str:
        """The published value of a model of the paper."""
        if row is None:
            return ""
        known = name in row.published
        return decimal(row.published[name], row.number.digits) if known else "–"

    def difference(self, row: Row | None) -> str:
        """The difference, with a star where the published value lies outside the interval."""
        if row is None or row.why:
            return ""
        outside = row.verdict == OUTSIDE
        self.stars |= outside
        return row.apart + "*" * outside

    def lettered(self) -> list[str]:
        """What the letters stand for."""
        return [f"({own}) {_sentence('; '.join(why))}" for why, own in self.letters.items()]

    def notes(self) -> list[str]:
        """One sentence or two for each mark, after the reasons that all numbers share."""
        notes = [f"No differences are given: {'; '.join(self.shared)}."] if self.shared else []
        notes += self.lettered()
        if self.stars:
            notes.append("*: the published number lies outside the interval measured here.")
        if self.dashes:
            notes.append("– in lines of published numbers: the paper gives none.")
        return notes


def _letter(number: int) -> str:
    """One letter for each of the first 26, then two."""
    first, last = divmod(number, len(ascii_lowercase))
    return (_letter(first - 1) if first else "") + ascii_lowercase[last]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def caption(recipe: Recipe, sweep: Sweep, rows: Sequence[Row]) -> str:
    """What a reader of the table needs: models, tasks, prompts, seeds, intervals, and the source."""
    plan = sweep.plan
    models, tasks, seeds, sizes, shots, totals = (
        list(dict.fromkeys(getattr(item, name) for item in plan))
        for name in ("model", "task", "seed", "n", "shots", "total")
    )
    prompts = listed(map(str, sorted(sizes))) if len(sizes) < 3 else f"{min(sizes)} to {max(sizes)}"
    shown = [
        f"**{recipe.title}.**",
        f"{listed(map(short_name, models))} on {listed(tasks)};"
        if len(tasks) < 7
        else f"{listed(map(short_name, models))} on {len(tasks)} tasks;",
        f"{prompts} {'prompt' if sizes == [1] else 'prompts'} per run,",
        f"{counted(len(seeds), 'seed')}",
    ]
    if len(shots) == 1 and shots[0] is not None:
        shown[-1] += f", {counted(shots[0], 'demonstration')} per class"
    elif len(totals) == 1 and totals[0] is not None:
        shown[-1] += (
            f", {'as many demonstrations as fit' if totals[0] == 'max' else counted(totals[0], 'demonstration')}"
        )
    shown[-1] += "."
    if any(row.own.low == row.own.low for row in rows):
        over = "seeds and prompts" if len(seeds) > 1 else "prompts, with the one seed"
        mean = "; a mean is over these tasks alone" if len(tasks) > 1 else ""
        shown.append(f"Square brackets: 95 % intervals over {over}{mean}.")
    if any(row.number.percent for row in rows):
        every = all(row.number.percent for row in rows)
        shown.append("All values in %." if every else "Accuracies and other fractions in %.")
    numbers = any(row.published for row in rows)
    shown.append(f"{'Published' if numbers else 'After'}: {recipe.source}.")
    return " ".join(shown)


def latex(recipe: Recipe, sweep: Sweep, rows: Sequence[Row]) -> str:
    """The table as a float of LaTeX, its notes below it."""
    from icl_mech.reports.paper import tabular
    from icl_mech.reports.tables import shape_tables

    table, notes = laid_out(rows, recipe.title)
    (drawn,) = shape_tables(table)
    below = [r"\par\smallskip\raggedright\footnotesize", *map(tex_prose, notes)] if notes else []
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,graphicx}",
            r"\begin{table*}[t]",
            r"\centering",
            rf"\caption{{{tex_prose(caption(recipe, sweep, rows))}}}",
            rf"\label{{tab:{recipe.name}}}",
            r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
            f"{tabular(drawn).rstrip()}}}",
            *below,
            "\\end{table*}\n",
        ]
    )
