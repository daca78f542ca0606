"""Export a page as parts of a paper: vector figures, LaTeX tables, a methods paragraph, and references.

`paper.tex` combines all of it in two columns, so that it can be compiled and viewed.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from os.path import exists, expanduser, isdir
from pathlib import Path

import plotly.graph_objects as go

from icl_mech._files import replace_file
from icl_mech.checking import conformed
from icl_mech.errors import ResultError
from icl_mech.export_text import as_bytes, csv_text, tex_prose
from icl_mech.plots.vector import Width, browser, vectors
from icl_mech.reports.figures import drawn
from icl_mech.reports.model import ClaimMatrix, Page, PromptText, Section
from icl_mech.reports.tables import HtmlTable, frame_table, shape_tables
from icl_mech.shapes import Shape

ROWS = 24
"""Maximum number of rows of a table; the CSV file has all of them."""

CITED = {
    "Wang et al.": "wang2023label",
    "Halawi et al.": "halawi2024overthinking",
    "Todd et al.": "todd2024function",
    "Olsson et al.": "olsson2022context",
}
"""Keys of `references.bib` by how a page cites the paper."""

MARKS = {
    "supported": "+",
    "present, not used": "(+)",
    "mixed": "±",
    "not shown": "o",
    "opposite": "×",
    "cannot be judged": "?",
}
"""Symbols of the statuses in a claim matrix."""

HEAD = r"""\documentclass[10pt,twocolumn]{article}
\usepackage{iftex}
\ifpdftex\usepackage[T1]{fontenc}\usepackage[utf8]{inputenc}\else\usepackage{fontspec}\fi
\usepackage[margin=0.75in,columnsep=0.25in]{geometry}
\usepackage{amsmath,booktabs,graphicx,hyperref,textcomp}
\begin{document}
"""


def export_page(
    page: Callable[[], Page], folder: str | Path, *, width: Width, figures: bool, overwrite: bool
) -> Path:
    """Write a page as the parts of a paper.

    `figures/NAME.pdf` and `.svg` without titles, `tables/NAME.tex` and `.csv`, `claims.tex`, `matrix.tex` for several
    models or tasks, `methods.tex`, `references.bib`, and `paper.tex`, which combines them. Nothing is written unless every
    part can be made.

    Args:
        page: Returns the page of a run, a comparison or a recipe; called when nothing else is in the way.
        folder: A new or empty folder.
        width: Width of figures: `column` (3.25 inches) or `page` (6.75 inches).
        figures: False leaves out the figures, which need a browser.
        overwrite: Replace files of these names.

    Raises:
        ResultError: figures cannot be drawn, the width is unknown, or the folder is not empty.
    """
    conformed("width", width, Width, ResultError)
    conformed("figures", figures, bool, ResultError)
    place = Path(expanduser(folder))
    if not overwrite and exists(place) and (not isdir(place) or any(place.iterdir())):
        raise ResultError(f"{str(folder)!r} is not empty; give a new folder, or overwrite=True.")
    drawing = browser("; figures=False exports everything else") if figures else None
    parts = dict(_parts(page(), width, figures))
    shown = {name: part for name, part in parts.items() if isinstance(part, go.Figure)}
    drawn = vectors(shown, width, drawing=drawing) if shown else {}
    for name, part in parts.items():
        content = drawn[name] if isinstance(part, go.Figure) else part
        replace_file(place / name, content, ResultError)
    return place


def _parts(page: Page, width: Width, figures: bool) -> Iterator[tuple[str, bytes | go.Figure]]:
    """Names and contents of all files; of figures, what is drawn into them."""
    body: list[str] = []
    for number, section in enumerate(page.sections, 1):
        name = f"{number:02d}-{re.sub('[^a-z0-9]+', '-', (section.key or section.name).lower())}"
        end = "" if section.name.endswith("?") else "."
        caption = tex_prose(f"{section.name}{end} {section.caption or section.sentence}")
        if figures and (figure := _figure(section, width)) is not None:
            yield from ((f"figures/{name}.{form}", figure) for form in ("pdf", "svg"))
            body.append(
                _float("figure", rf"\includegraphics{{figures/{name}.pdf}}", caption, width)
            )
        # Several figures of one result share their numbers.
        again = any(earlier.numbers is section.numbers for earlier in page.sections[: number - 1])
        tables = _tables(section, again)
        for place, table in enumerate(tables):
            stem = name if len(tables) == 1 else f"{name}-{place + 1}"
            yield f"tables/{stem}.tex", as_bytes(tabular(table))
            body.append(_float("table", _shrunk(rf"\input{{tables/{stem}.tex}}"), caption, "page"))
        if section.numbers is not None and not again:
            yield f"tables/{name}.csv", as_bytes(csv_text(section.numbers))
    yield "claims.tex", as_bytes(_claims(page))
    matrix = ""
    if page.matrix is not None:
        yield "matrix.tex", as_bytes(_matrix(page.matrix))
        caption = f"{page.matrix.caption} {', '.join(f'{mark}: {status}' for status, mark in MARKS.items())}."
        matrix = _float("table", _shrunk(r"\input{matrix.tex}"), tex_prose(caption), "page")
    yield "methods.tex", as_bytes(_methods(page))
    yield "references.bib", files("icl_mech.reports").joinpath("references.bib").read_bytes()
    whole = [
        rf"{HEAD}\title{{{tex_prose(page.title)}}}\date{{}}\maketitle",
        tex_prose(page.lead),
        r"\section*{Methods}\input{methods.tex}",
        matrix,
        _float("table", r"\input{claims.tex}", tex_prose("Findings on each claim."), "page"),
        *body,
        r"\bibliographystyle{plain}\bibliography{references}",
        "\\end{document}\n",
    ]
    yield "paper.tex", as_bytes("\n\n".join(part for part in whole if part))


def _figure(section: Section, width: Width) -> go.Figure | None:
    """The figure of a section, in the layout for this width; None for tables and prompts."""
    shown = section.figure
    if shown is None or isinstance(shown, PromptText):
        return None
    if isinstance(shown, Shape) and shape_tables(shown):
        return None
    forms = drawn(shown)
    return go.Figure(forms.get("narrow", forms["wide"]) if width == "column" else forms["wide"])


def _tables(section: Section, again: bool) -> Sequence[HtmlTable]:
    shown = section.figure
    if isinstance(shown, Shape) and (tables := shape_tables(shown)):
        return tables
    if again or section.numbers is None or len(section.numbers) > ROWS:
        return ()
    return [frame_table(section.numbers)]


def tabular(table: HtmlTable) -> str:
    """A table as LaTeX; requires `booktabs`."""
    columns = "".join(
        "r" if all(row[place].number for row in table.rows) else "l"
        for place in range(len(table.columns))
    )
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    lines += [" & ".join(map(tex_prose, table.columns)) + r" \\", r"\midrule"]
    for row in table.rows:
        cells = [tex_prose(f"{cell.text} {cell.interval}".strip()) for cell in row]
        bold = [
            rf"\textbf{{{text}}}" if cell.bold else text
            for cell, text in zip(row, cells, strict=True)
        ]
        lines.append(" & ".join(bold) + r" \\")
    return "\n".join([*lines, r"\bottomrule", "\\end{tabular}\n"])


def _float(environment: str, content: str, caption: str, width: Width) -> str:
    star = "*" if width == "page" else ""
    inside = f"\\centering\n{content}\n\\caption{{{caption}}}"
    return f"\\begin{{{environment}{star}}}\n{inside}\n\\end{{{environment}{star}}}"


def _shrunk(content: str) -> str:
    """The content scaled down to the page if it is wider."""
    return rf"\resizebox{{\ifdim\width>\textwidth\textwidth\else\width\fi}}{{!}}{{{content}}}"


def _claims(page: Page) -> str:
    rows = [
        " & ".join(map(tex_prose, (finding.claim, finding.status, finding.finding))) + r" \\"
        for finding in page.origin.findings
    ]
    head = r"\begin{tabular}{p{0.26\textwidth}p{0.12\textwidth}p{0.54\textwidth}}"
    lines = [r"\small", head, r"\toprule", r"claim & status & effect \\", r"\midrule", *rows]
    return "\n".join([*lines, r"\bottomrule", "\\end{tabular}\n"])


def _matrix(matrix: ClaimMatrix) -> str:
    """Claims by models and tasks; below each claim its effects, for each task and pooled."""
    kinds = "".join("c" * len(places) for _, places in matrix.columns)
    models = [
        rf"\multicolumn{{{len(places)}}}{{c}}{{{tex_prose(model)}}}"
        for model, places in matrix.columns
    ]
    tasks = [tex_prose(place) for _, places in matrix.columns for place in places]
    alone = [not matrix.full and "whole" not in end for end in matrix.ends]
    lines = [rf"\begin{{tabular}}{{l{kinds}}}", r"\toprule"]
    lines += [rf"{' & '.join(['', *cells])} \\" for cells in (models, tasks)]
    for row in matrix.rows:
        name, *signs = row.claim.split(":")[0], *(MARKS.get(sign.status, "") for sign in row.signs)
        lines += [r"\midrule", rf"{' & '.join(map(tex_prose, [name, *signs]))} \\"]
        for at, effect in enumerate(row.effects):
            values = (sign.effects[at] if sign.effects else "" for sign in row.signs)
            cells = map(_stacked, values, alone)
            lines.append(rf"\quad {' & '.join([tex_prose(effect), *cells])} \\")
    return "\n".join([*lines, r"\bottomrule", "\\end{tabular}\n"])


def _stacked(effect: str, alone: bool) -> str:
    """A value above its interval, or the value alone."""
    value, _, ends = effect.partition(" [")
    if alone or not ends:
        return tex_prose(value)
    return rf"\shortstack{{{tex_prose(value)}\\{{\scriptsize {tex_prose(f'[{ends}')}}}}}"


def _methods(page: Page) -> str:
    """A paragraph on the measurements, methods and limitations behind all numbers."""
    sentences = [
        rf"\textbf{{{tex_prose(fact.name)}:}} {tex_prose(f'{fact.value} ({fact.detail})' if fact.detail else fact.value)}."
        for fact in page.origin.facts
    ]
    libraries = {
        str(section.provenance.get("model", {}).get("library")) for section in page.sections
    }
    lens = any(library.startswith("transformer-lens") for library in libraries)
    where = r" on TransformerLens \cite{nanda2022transformerlens}" if lens else ""
    sentences.append(rf"Measured with \texttt{{icl\_mech}} \cite{{icl_mech}}{where}.")
    if cited := [key for words, key in CITED.items() if words in page.kicker]:
        sentences.append(rf"The measurements follow \cite{{{','.join(cited)}}}.")
    # One measurement may occur in several variants; sections may share one.
    variants = dict.fromkeys(
        variant for section in page.sections if (variant := _variants(section))
    )
    if variants:
        sentences.append(f"Variants: {tex_prose('; '.join(variants))}.")
    sentences += [tex_prose(limit) for limit in page.origin.limits]
    by = "".join(f"% {line}\n" for line in page.origin.command.splitlines())
    return f"{by}{' '.join(sentences)}\n"


def _variants(section: Section) -> str:
    """A measurement with its variants; empty if it has none."""
    name, chosen = (section.provenance.get(key) for key in ("measurement", "variants"))
    text = ", ".join(f"{key} {value}" for key, value in (chosen or {}).items() if value is not None)
    return re.sub(r"[\[\]']", "", f"{name} ({text})".replace("_", " ")) if name and text else ""
