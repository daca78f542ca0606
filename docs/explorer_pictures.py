"""The steps of docs/explorer.md as pictures: the offline model, driven in Chromium as a user would.

    python docs/explorer_pictures.py [OUT]

Needs Playwright and a Chromium; writes one PNG per step to docs/images/explorer.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import icl_mech as icl
from icl_mech.explorer import Explorer, Server, explore

OUT = Path(__file__).parent / "images" / "explorer"


def settled(view: Explorer, page: Page) -> None:
    """Wait until all parts are drawn."""
    for _ in range(3):  # between two parts nothing is being measured for a moment
        page.wait_for_timeout(500)
        while view.session.wanted is not None:
            page.wait_for_timeout(100)
        page.wait_for_function("() => !document.querySelector('.ex-status').textContent", timeout=0)


def place(page: Page, layer: int, head: int | None = None) -> tuple[float, float]:
    """Position in pixels of a layer in the flow track, or of a head."""
    svg = page.locator("svg[data-places]")
    box, own = svg.bounding_box(), json.loads(svg.get_attribute("data-places") or "{}")
    assert box is not None
    y = own["flow"] if head is None else own["heads"] + (head + 0.5) * own["cell"]
    return box["x"] + own["first"] + layer * own["column"], box["y"] + y


def dragged(page: Page, first: int, last: int) -> None:
    """A range of layers."""
    page.mouse.move(*place(page, first))
    page.mouse.down()
    page.mouse.move(*place(page, last), steps=5)
    page.mouse.up()


def steps(view: Explorer, page: Page, out: Path) -> None:
    """All pictures, in the order of the page."""

    def shot(name: str) -> None:
        settled(view, page)
        page.mouse.move(5, 5)
        page.wait_for_timeout(200)
        page.screenshot(path=out / f"{name}.png")
        print(name, flush=True)

    shot("0_first_minute")
    page.get_by_role("button", name="Skip").click()
    shot("1_start")
    page.keyboard.press("f")
    shot("2_false_labels")
    page.keyboard.press("u")
    settled(view, page)
    dragged(page, 0, 4)
    shot("3_isolated")
    page.keyboard.press("o")
    page.locator(".ex-intervals table").wait_for(timeout=600_000)
    shot("4_over_all")
    page.keyboard.press("u")
    settled(view, page)
    page.mouse.click(*place(page, 23))
    page.locator(".ex-label_word").first.click(modifiers=["Alt"])
    shot("5_into_a_label_word")
    page.keyboard.press("Escape")
    heads = view.figures()["heads"]
    best = max(
        (value, layer, head) for layer, row in enumerate(heads) for head, value in enumerate(row)
    )
    page.mouse.click(*place(page, best[1], best[2]))
    shot("6_a_head")
    page.keyboard.press("u")
    settled(view, page)
    page.locator(".ex-chip").first.click()
    shot("8_attention_of_a_head")
    page.locator(".ex-source").click()
    page.get_by_role("button", name="Zero these five").click()
    shot("9_five_heads")


def open_answers(view: Explorer, page: Page, out: Path) -> None:
    """False answers of another relation, over all prompts, and the menu of one of them."""
    page.get_by_role("button", name="Skip").click()
    page.keyboard.press("f")
    settled(view, page)
    page.keyboard.press("o")
    page.locator(".ex-intervals table").wait_for(timeout=600_000)
    settled(view, page)
    page.locator(".ex-label_word").nth(1).click()
    page.wait_for_timeout(300)
    page.screenshot(path=out / "7_open_answers.png")
    print("7_open_answers", view.over_all().sentence(), flush=True)


def drawn(view: Explorer, draw: Callable[[Explorer, Page, Path], None], out: Path) -> None:
    """Serve a view, drive it, and write the pictures."""
    server = Server(view.session)
    server.start()
    time.sleep(1)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 960})
        page.goto(server.url)
        page.wait_for_selector(".ex-answers td", timeout=120_000)
        draw(view, page, out)
        browser.close()
    server.stop()
    view.close()


def main() -> None:
    """All pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    model = icl.load_model()
    view = explore(model, "headlines", n=24, threads=1)
    view.do("query", number=9)  # one that the model answers correctly
    drawn(view, steps, out)
    drawn(explore(model, "antonyms", n=24, threads=1), open_answers, out)


if __name__ == "__main__":
    main()
