"""The demo's page as the picture of the README: `python docs/page_picture.py`, in a minute.

The README's sentence is printed last; `tests/cli/test_commands.py` compares the two. Needs Playwright and a Chromium.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

OUT = Path(__file__).parent / "images" / "demo.png"

ACROSS, HIGH = 1240, 1180


def main() -> None:
    """Run the demo and take the picture."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "demo"
        command = [sys.executable, "-m", "icl_mech", "demo", "--out", str(place)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"))
            page = browser.new_page(viewport={"width": ACROSS, "height": HIGH})
            page.goto((place / "index.html").as_uri())
            page.wait_for_timeout(2000)
            page.screenshot(path=OUT)
            browser.close()
    sys.stdout.write(said)


if __name__ == "__main__":
    main()
