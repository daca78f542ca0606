"""The first level of a study's HTML report as the picture of the README: SmolLM2 on 48 prompts of `headlines`.

    python docs/page_picture.py RUN

RUN keeps the analysis, which takes minutes, and is read again if it exists. Needs Playwright and a Chromium.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

import icl_mech as icl

OUT = Path(__file__).parent / "images" / "page.png"

ACROSS, HIGH = 1240, 1180


def main() -> None:
    """Measure, unless the run exists, and take the picture."""
    run = Path(sys.argv[1])
    if not (run / "analysis.json").is_file():
        model = icl.load_model()
        prompts = icl.build_prompts("headlines", model, shots=1, n=48)
        icl.analyze(model, prompts, study="label_words").save(run)
    html = icl.load(run, kind=icl.Analysis).to_html(run.with_suffix(".html"), overwrite=True)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"))
        page = browser.new_page(viewport={"width": ACROSS, "height": HIGH})
        page.goto(html.absolute().as_uri())
        page.wait_for_timeout(2000)
        page.screenshot(path=OUT)
        browser.close()


if __name__ == "__main__":
    main()
