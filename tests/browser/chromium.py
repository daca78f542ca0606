"""Where Chromium is, and pages opened in it with the network cut off."""

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

MISSING = "no Chromium was found"
"""Begins the reason of every skipped test, which the summary counts."""

DRAWN = """() => new Promise(go => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(go))))"""
"""Until two frames were drawn: the first hears of what has changed, the second shows it."""

RESTED = "() => new Promise(go => requestAnimationFrame(() => setTimeout(go, 130)))"
"""Until whatever a page puts off was done: it does so for 120 ms, and timers of one page ring in their order."""

HARMLESS = re.compile(r"^(data|blob):")


def found() -> str | None:
    """Path of the browser: `ICL_MECH_CHROMIUM`, else the first of `NAMES` that is installed."""
    given = os.environ.get("ICL_MECH_CHROMIUM")
    if given:
        return given if Path(given).is_file() else None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Opened:
    """A page in a browser that has no network.

    Attributes:
        page: Playwright's page.
        address: Of the file.
        errors: What it wrote to the console as an error, and exceptions.
        requests: Addresses it asked for, its own file apart.
    """

    page: Any
    address: str
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, context: Any, path: Path, *, folded: bool = False, place: str = "") -> "Opened":
        """Open a file, at a place in it, with its appendix folded or not, and wait until all is drawn."""
        page = context.new_page()
        own = cls(page, path.as_uri())
        page.on("console", own._heard)
        page.on("pageerror", lambda error: own.errors.append(str(error)))
        page.on("request", own._asked)
        page.goto(own.address + place)
        page.wait_for_selector("html[data-ready]", state="attached")
        if not folded:
            own.unfold()
        return own

    def unfold(self) -> None:
        """Open the sections of the appendix and wait for their figures."""
        self.run("document.querySelectorAll('.fold').forEach(own => { own.open = true; })")
        drawn = (
            "[...document.querySelectorAll('.plot')].every(own => own.querySelector('.main-svg'))"
        )
        self.page.wait_for_function(drawn)

    def rested(self) -> None:
        """Wait until the page has heard of another size, medium or scheme of colours, and drawn itself again."""
        for script in (DRAWN, RESTED, DRAWN):
            self.page.evaluate(script)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _asked(self, request: Any) -> None:
        if request.url.split("#")[0] != self.address and not HARMLESS.match(request.url):
            self.requests.append(request.url)

    def run(self, script: str, value: Any = None) -> Any:
        """What a JavaScript expression or function gives."""
        return self.page.evaluate(script, value)

    def plots(self) -> list[str]:
        """Ids of all figures."""
        return self.run("[...document.querySelectorAll('.plot')].map(own => own.id)")

    def figure(self, name: str) -> dict[str, Any]:
        """Data and layout of a figure as it is drawn now."""
        script = "id => { const own = document.getElementById(id); return {data: own.data, layout: own.layout}; }"
        return self.run(script, f"{name}-plot")

    def hover(self, name: str, curve: int, point: int | list[int]) -> str:
        """The text that pointing at a point shows."""
        script = """([id, curve, point]) => {
            const own = document.getElementById(id);
            Plotly.Fx.unhover(own);  // else plotly lets some time pass before the next
            Plotly.Fx.hover(own, [{curveNumber: curve, pointNumber: point}]);
            return own.querySelector(".hoverlayer").textContent;
        }"""
        return self.run(script, [f"{name}-plot", curve, point])

    def hover_cell(self, name: str, row: float, column: float) -> str:
        """The text that pointing at a cell of a map shows, with the mouse as a reader does."""
        plot = self.page.locator(f"#{name}-plot")
        plot.scroll_into_view_if_needed()
        script = """([id, row, column]) => {
            const own = document.getElementById(id), box = own.getBoundingClientRect();
            const {xaxis, yaxis} = own._fullLayout;
            return [box.x + xaxis._offset + xaxis.d2p(column), box.y + yaxis._offset + yaxis.d2p(row)];
        }"""
        x, y = self.run(script, [f"{name}-plot", row, column])
        self.page.mouse.move(x, y + 1)
        self.page.mouse.move(x, y)
        plot.locator(".hoverlayer .hovertext").wait_for()
        return plot.locator(".hoverlayer").text_content()

    def status(self, selector: str) -> str:
        """The text of an element."""
        return self.page.locator(selector).first.inner_text()


def serious(page: Any, *, dark: bool = False) -> list[tuple[str, str, str]]:
    """What axe finds in a page of Playwright's: rule, element, what is wrong.

    Args:
        dark: Look at the contrast of colours alone: all else is the same in both themes.
    """
    axe = pytest.importorskip("axe_playwright_python.base")
    page.evaluate(axe.AXE_FILE_PATH.read_text(encoding="utf-8"))
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
    if dark:
        options["runOnly"] = ["color-contrast"]
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        (rule["id"], rule["nodes"][0]["html"][:200], rule["nodes"][0]["failureSummary"])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]
