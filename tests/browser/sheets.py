"""Pages as a printer lays them out: sheets of A4 side by side, fragmented by the browser's own rules."""

from typing import Any, NamedTuple

from tests.browser.chromium import Opened

ACROSS, TALL, BETWEEN = 680, 1024, 60
"""What A4 leaves between the margins of the pages' style sheet, and the space between sheets, in pixels."""

LAID = f"""
html {{ scroll-behavior: auto !important; }}
body {{ width: {ACROSS}px; height: {TALL}px; columns: {ACROSS}px; column-gap: {BETWEEN}px; column-fill: auto; }}
"""

SEEN = """([across, between, kept]) => {
    const sheet = box => Math.round(box.left / (across + between));
    const shown = own => own.checkVisibility() && own.getClientRects().length;
    const cut = [...document.querySelectorAll(kept)].filter(shown)
        .filter(own => new Set([...own.getClientRects()].map(sheet)).size > 1)
        .map(own => own.id || own.className.baseVal || own.className || own.tagName);
    const ends = [];
    for (const own of document.querySelectorAll("main :is(h1, h2, p, li, td, th, dt, dd, pre, .plot, .prompt, svg)")) {
        for (const box of shown(own) ? own.getClientRects() : []) {
            const at = sheet(box);
            if (box.width) ends[at] = Math.max(ends[at] ?? 0, box.bottom);
        }
    }
    return [cut, Array.from(ends, end => end ?? 0)];
}"""

KEPT = ".plot, .findings li, .facts, tr, h1, h2, .legend, .command"
"""What must not be cut over two sheets."""


class Sheets(NamedTuple):
    """What stands on the sheets of a page.

    Attributes:
        cut: Elements that were cut over two sheets.
        filled: Fraction of the height of each sheet that is filled.
    """

    cut: list[str]
    filled: list[float]


def sheets(page: Opened) -> Sheets:
    """The sheets on which a browser would print a page as it is now."""
    own: Any = page.page
    own.set_viewport_size({"width": ACROSS, "height": TALL})
    own.emulate_media(media="print")
    page.rested()
    own.add_style_tag(content=LAID)
    page.rested()
    cut, ends = own.evaluate(SEEN, [ACROSS, BETWEEN, KEPT])
    return Sheets(cut, [round(end / TALL, 2) for end in ends])
