"""JupyterLab itself: results draw there without a network, and so do stored notebooks."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import plotly.graph_objects as go
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from icl_mech.plots.notebook import bundle
from tests.browser.chromium import MISSING

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterlab") is None,
        reason=f"{MISSING} with JupyterLab: make browser installs it",
    ),
]

CELLS = (
    "import icl_mech as icl\n"
    "from icl_mech.engine.progress import Progress\n"
    "from tests.engine.test_paths import TASK\n"
    "from tests.tiny import tiny_model\n"
    "model = tiny_model('llama')\n"
    "prompts = icl.build_prompts(TASK, model, shots=2, n=4)\n"
    "with Progress('a bar', 10, None) as bar:\n"
    "    bar.advance(4)\n"
    "prompts",
    "report = icl.analyze(model, prompts, maps=1)\nreport",
    "report.flow.plot()",
)


@pytest.fixture
def server(tmp_path):
    """Address of a JupyterLab that runs in a folder with one notebook."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "try.ipynb")
    root = Path(__file__).parents[2]
    own = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    port = 18000 + os.getpid() % 4000
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *(f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token="),
            *("--LabApp.news_url=None", "--LabApp.check_for_updates_class="
              "jupyterlab.NeverCheckForUpdate", f"--ServerApp.root_dir={tmp_path}"),
        ],
        env={**os.environ, **own}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _answers(f"{address}/api", process)
        yield address
    finally:
        process.terminate()
        process.wait(20)


def _answers(address, process):
    for _ in range(240):
        assert process.poll() is None, "JupyterLab ended"
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.25)
    pytest.fail("JupyterLab did not answer within a minute")


@pytest.mark.slow
def test_a_report_draws_in_jupyterlab_without_a_network(browser, server, tmp_path):
    asked = []
    context = browser.new_context(viewport={"width": 1400, "height": 1600})

    page = context.new_page()
    page.on("request", lambda ask: asked.append(ask.url))
    page.goto(f"{server}/lab/tree/try.ipynb?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=90_000)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=90_000)
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    for _ in CELLS:
        page.keyboard.press("Shift+Enter")
    page.wait_for_function(
        "document.querySelectorAll('.js-plotly-plot').length >= 4 && "
        "[...document.querySelectorAll('.js-plotly-plot')].every(p => p.querySelector('.main-svg'))",
        timeout=180_000,
    )
    if kept := os.environ.get("ICL_MECH_PICTURES"):
        page.locator(".jp-Notebook .jp-CodeCell").nth(1).scroll_into_view_if_needed()
        page.screenshot(path=str(Path(kept) / "jupyterlab.png"))
    texts = page.locator(".jp-OutputArea").all_inner_texts()
    assert "label word" in texts[0]  # the prompts as coloured text, and their legend
    assert not [text for text in texts if "Error" in text or "ipywidgets" in text]
    assert "a bar" not in texts[0]  # gone when it was done
    elsewhere = [url for url in asked if not url.startswith((server, "blob:", "data:"))]
    assert elsewhere == []  # with the network there, too
    context.close()


def test_a_stored_notebook_becomes_a_page_that_needs_nothing(opened_page, tmp_path):
    figure = bundle(go.Figure(go.Scatter(y=[1, 2], name="</script><b>")))
    cells = [
        new_code_cell(outputs=[new_output("display_data", figure)], execution_count=i)
        for i in (1, 2)
    ]
    text = nbformat.v4.new_markdown_cell("Cost `$5` and $S_{wp}$ and\n\n$$\\sum_i a_i$$\n")
    nbformat.write(new_notebook(cells=[text, *cells]), tmp_path / "stored.ipynb")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nbconvert", "--to", "icl_mech.exporting.OfflinePage"),
            str(tmp_path / "stored.ipynb"),
        ],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = opened_page(tmp_path / "stored.html")
    page.wait_for_selector(".js-plotly-plot .main-svg", timeout=20_000)
    assert page.locator(".js-plotly-plot").count() == 2
    assert page.locator("math").count() == 2
    assert page.locator("code", has_text="$5").count() == 1
    assert page.evaluate("document.querySelectorAll('script[src]').length") == 0


@pytest.fixture
def opened_page(browser):
    """Opens a file without network; it must ask for nothing and raise no error."""
    seen = []
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)

    def open_page(path):
        page = context.new_page()
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("request", lambda ask: ask.url.startswith("http") and seen.append(ask.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    context.close()
    assert seen == []
