"""Render a page as one self-contained HTML file, with colours as CSS variables."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from icl_mech.export_text import csv_text
from icl_mech.plots.pieces import in_text
from icl_mech.plots.prompt_style import ROLE_NAMES
from icl_mech.plots.style import (
    GRID,
    INK,
    LINK,
    LOOKS,
    PAGE,
    PANEL,
    QUIET,
    RULE,
    SCALE,
    SCALE_DARK,
    dark_colours,
    of_role,
)
from icl_mech.reports.figures import drawn, spoken
from icl_mech.reports.markup import anchor, mathml, origin_rows, plain, text_html
from icl_mech.reports.model import Page, PromptText, Section
from icl_mech.reports.prompts import ShownPrompt, strips_text
from icl_mech.reports.saliency import numbers, packed
from icl_mech.reports.tables import HtmlTable, frame_table, shape_tables
from icl_mech.results import Definition
from icl_mech.shapes import LayerCurves, TokenMatrix, TokenStrips

if TYPE_CHECKING:
    from jinja2 import Environment


def variables() -> tuple[str, str]:
    """CSS declarations of all colours, for the light and the dark theme."""
    grounds = {"page": PAGE, "panel": PANEL, "ink": INK, "quiet": QUIET}
    lines = {"grid": GRID, "rule": RULE, "link": LINK}
    looks = {str(name): look for name, look in LOOKS.items()} | grounds | lines
    pairs = {name: (look.light, look.dark) for name, look in looks.items()}
    for number, (light, dark) in enumerate(zip(SCALE, SCALE_DARK, strict=True)):
        pairs[f"s{number}"] = (light, dark)
    light, dark = (
        "".join(f"--{name}:{pair[place]};" for name, pair in pairs.items()) for place in (0, 1)
    )
    return light, dark


def colours() -> dict[str, object]:
    """The colours the script of a page needs: the dark counterpart of each, role colours, the scale."""
    return {
        "dark": dark_colours(),
        "roles": {role: of_role(role).light for role in ROLE_NAMES},
        "roleNames": dict(ROLE_NAMES),
        "scale": list(SCALE),
        "ink": INK.light,
        "quiet": QUIET.light,
        "page": PAGE.light,
    }


SCRIPTS = ("narrow.js", "page.js", "prompt.js", "matrix.js", "start.js")


@dataclass(frozen=True)
class Shown:
    """One section with the data its HTML template needs."""

    section: Section
    number: int
    id: str
    kind: str
    tables: Sequence[HtmlTable] = ()
    spoken: str = ""
    height: int = 0
    csv: str = ""
    frame: HtmlTable | None = None
    prompt: ShownPrompt | None = None
    layers: int = 0
    n_tokens: int = 0
    same: "Shown | None" = None
    told: bool = False
    answer: Sequence[str] = ()
    caption: Sequence[str] = ()
    definitions: Sequence[Definition] = ()
    origin: Sequence[tuple[str, str]] = ()


class Writer:
    """Collects the data of a page while its sections become HTML."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.ids: dict[str, int] = {}
        self.figures: dict[str, Any] = {}
        self.maps: dict[str, Any] = {}
        self.prompts: dict[str, Any] = {}
        self.folded = any(section.first for section in page.sections)

    def shown(self) -> list[Shown]:
        """All sections; they are rendered before the prompt at the top, which may be linked to one of their maps."""
        self.shared = shared_rows(self.page.sections) if self.folded else []
        cited = {finding.key for finding in self.page.origin.findings}
        sections: list[Shown] = []
        # The main part comes first; content of earlier sections is not repeated.
        for i, section in enumerate(sorted(self.page.sections, key=lambda each: not each.first)):
            shown = self._section(section, i + 1)
            same = next(
                (
                    earlier
                    for earlier in sections
                    if self.folded and _same(earlier.section, section)
                ),
                None,
            )
            rows = [row for row in origin_rows(section.provenance) if row not in self.shared]
            more: dict[str, Any] = {"same": same}
            if same is None:
                more |= {"definitions": section.definitions, "origin": rows}
            answer, caption = (
                _SENTENCE.split(text, maxsplit=1) if section.first else [text] if text else []
                for text in (section.sentence, section.caption)
            )
            known = section.key in cited or answer[:1] == [self.page.lead]
            shown = replace(shown, told=known, answer=answer, caption=caption, **more)
            sections.append(replace(shown, frame=None) if same else shown)
        return sections

    def _id(self, section: Section) -> str:
        name = anchor(section.key or plain(section.name))
        self.ids[name] = self.ids.get(name, 0) + 1
        return name if self.ids[name] == 1 else f"{name}-{self.ids[name]}"

    def _section(self, section: Section, number: int) -> Shown:
        name = self._id(section)
        figure = section.figure
        more: dict[str, Any] = {}
        frame = section.numbers
        if frame is None and isinstance(figure, TokenMatrix):
            frame = numbers(figure)
        if frame is not None:
            more["csv"] = csv_link(csv_text(frame))
            more["frame"] = frame_table(frame)
        if figure is None:
            return Shown(section, number, name, "none", **more)
        if isinstance(figure, TokenMatrix) and len(figure.tokens) > 1:
            self.maps[name] = data = packed(figure)
            several = len(figure.segments) < len(figure.tokens)
            both = several and bool(data["blob"]) and bool(data["means"])
            return Shown(
                section,
                number,
                name,
                "matrix",
                layers=data["layers"],
                n_tokens=len(figure.tokens) * both,
                **more,
            )
        if isinstance(figure, TokenStrips | PromptText):
            text = figure if isinstance(figure, PromptText) else strips_text(figure)
            prompt = self.prompt(text, f"{name}-prompt")
            return Shown(section, number, name, "prompt", prompt=prompt, **more)
        tables = [] if _drawn_already(figure) else shape_tables(figure)
        if tables:
            return Shown(section, number, name, "table", tables=tables, **more)
        self.figures[name] = data = {**drawn(figure), "layered": section.layered}
        if not more:
            more["csv"] = csv_link(_points(data["wide"]))
        height = int(data["wide"]["layout"].get("height", 450))
        if section.layered and isinstance(figure, LayerCurves):
            more["layers"] = figure.values.shape[1]
        return Shown(
            section, number, name, "plot", spoken=spoken(data["wide"]), height=height, **more
        )

    def prompt(self, text: PromptText, name: str) -> ShownPrompt:
        """The prompt for the template; its data are collected for the script."""
        names = [token.name for token in in_text(text.tokens)]
        mapped = next(
            (key for key, token_map in self.maps.items() if token_map["names"] == names), ""
        )
        shown = ShownPrompt.of(text, name, self.maps.get(mapped))
        self.prompts[name] = shown.data(text, mapped)
        return shown


_SENTENCE = re.compile(r"(?<=\.)\s|(?<=\.\*\*)\s")
"""The gap between the first sentence and the rest."""


def _same(first: Section, second: Section) -> bool:
    """True for two figures of one result, which share numbers and definitions."""
    return first.key == second.key and first.numbers is second.numbers


def shared_rows(sections: Sequence[Section]) -> list[tuple[str, str]]:
    """Provenance rows that most results share; the page shows them once."""
    counts = Counter(row for section in sections for row in origin_rows(section.provenance))
    return [row for row, count in counts.items() if count > len(sections) / 2]


def _drawn_already(figure: object) -> bool:
    import plotly.graph_objects as go

    return isinstance(figure, go.Figure)


def csv_link(text: str) -> str:
    """A CSV table as a data URL."""
    return "data:text/csv;charset=utf-8," + quote(text, safe=" ,;:/?@!$*()-_.~=")


def _points(figure: dict[str, Any]) -> str:
    """The points of a figure as CSV, for results without a table."""
    import pandas as pd

    rows = []
    for trace in figure["data"]:
        xs, ys = trace.get("x"), trace.get("y")
        if isinstance(xs, list) and isinstance(ys, list) and trace.get("hoverinfo") != "skip":
            rows += [(trace.get("name", ""), x, y) for x, y in zip(xs, ys, strict=False)]
    return csv_text(pd.DataFrame(rows, columns=["curve", "x", "y"]))


def embedded(value: object) -> str:
    """JSON that is safe inside a script element: it contains no character that could end one."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def part(name: str, package: str = "icl_mech.reports") -> str:
    """The text of a file of a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


@lru_cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader

    environment = Environment(
        autoescape=True, loader=FunctionLoader(part), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"rich": text_html, "plain": plain, "math": mathml}
    return environment


def html(page: Page, *, offline: bool | str) -> str:
    """The whole page, with the plotly script inline, from its CDN, or from a URL."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    writer = Writer(page)
    sections = writer.shown()
    prompt = writer.prompt(page.prompt, "prompt") if page.prompt else None
    if not writer.figures and not writer.maps:
        library = ""
    elif offline is True:
        library = f"<script>{get_plotlyjs()}</script>"
    else:
        address = offline or f"https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js"
        library = f'<script src="{address}" charset="utf-8"></script>'
    light, dark = variables()
    data = {
        "figures": writer.figures,
        "maps": {
            name: {key: value for key, value in token_map.items() if key != "blob"}
            for name, token_map in writer.maps.items()
        },
        "prompts": writer.prompts,
        "colours": colours(),
    }
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            sections=sections,
            folded=writer.folded,
            first_level=sum(shown.section.first for shown in sections),
            shared=writer.shared,
            places={shown.section.key: shown for shown in reversed(sections)},
            prompt=prompt,
            maps=writer.maps,
            library=Markup(library),
            style=Markup(part("page.css").replace("/*light*/", light).replace("/*dark*/", dark)),
            script=Markup("\n".join(part(name) for name in SCRIPTS)),
            data=Markup(embedded(data)),
            blobs={
                name: token_map["blob"]
                for name, token_map in writer.maps.items()
                if token_map["blob"]
            },
        )
    )
