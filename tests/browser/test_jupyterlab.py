"""JupyterLab itself: results draw there without a network, with and without plotly on its side, and so do stored notebooks.

The kernel is this environment's. JupyterLab runs in it too, or in those that these name: `ICL_MECH_JUPYTERLAB`, a
Python with `jupyterlab plotly anywidget`, and `ICL_MECH_JUPYTERLAB_ALONE`, one with `jupyterlab` and nothing else.
Without the latter JupyterLab is told to load no extensions, which to the browser is the same.
"""

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import nbformat
import plotly.graph_objects as go
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from icl_mech.explorer.widget import ELSEWHERE
from icl_mech.plots import bundle
from icl_mech.plots.still import ELSEWHERE as STILL
from tests import patience
from tests.browser.chromium import DRAWN, MISSING
from tests.patience import milliseconds, seconds, until


def installed(name):
    return importlib.util.find_spec(name) is not None


LAB = os.environ.get("ICL_MECH_JUPYTERLAB") or (installed("jupyterlab") and sys.executable)
ALONE = os.environ.get("ICL_MECH_JUPYTERLAB_ALONE")


pytestmark = pytest.mark.browser
with_lab = pytest.mark.skipif(
    not LAB, reason=f"{MISSING} with JupyterLab: make browser installs it"
)

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

WIDGET = (
    "import icl_mech as icl\n"
    "from tests.explorer.cases import TASK, model_of\n"
    "view = icl.explore(model_of(), TASK, n=4, threads=1)\n"
    "view",
    "view.session.history.now.demos[0].shown, view.session.history.now.demos[0].true",
)


@contextmanager
def served(folder, cells, python, *more):
    """Address of a JupyterLab that runs in a folder with one notebook, whose kernel is this environment's."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "project", "display_name": "Project"}
    nbformat.write(notebook, folder / "try.ipynb")
    root = Path(__file__).parents[2]
    kernel = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Project", "language": "python",
        "env": {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
    }  # fmt: skip
    own = folder / "jupyter"
    (own / "kernels" / "project").mkdir(parents=True)
    (own / "kernels" / "project" / "kernel.json").write_text(json.dumps(kernel), encoding="utf-8")
    command = [
        *(python, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--port=0", "--ServerApp.port_retries=0", "--IdentityProvider.token="),
        *("--LabApp.news_url=None", "--LabApp.check_for_updates_class="
          "jupyterlab.NeverCheckForUpdate", f"--ServerApp.root_dir={folder}", *more),
    ]  # fmt: skip
    # Nothing of whoever runs the tests: neither settings nor extensions of front ends.
    env = {**os.environ, "JUPYTER_PATH": str(own), "JUPYTER_DATA_DIR": str(own / "data"),
           "JUPYTER_CONFIG_DIR": str(own / "config"), "JUPYTER_RUNTIME_DIR": str(own / "runtime"),
           "PYTHONPATH": ""}  # fmt: skip
    log = own / "jupyterlab.log"
    with patience.served(command, lambda: answering(own / "runtime"), log, env=env) as address:
        yield address


def answering(runtime):
    """Address of the server that keeps its notes in a folder, once it answers there."""
    for note in runtime.glob("jpserver-*.json"):
        with suppress(OSError, ValueError):  # it is not there yet, or half written
            address = f"http://127.0.0.1:{json.loads(note.read_text())['port']}"
            with urllib.request.urlopen(f"{address}/api", timeout=seconds(20)):
                return address
    return None


@contextmanager
def opened(browser, address, high=1600):
    """The notebook in a browser; it must ask for nothing but the server."""
    asked = []
    context = browser.new_context(viewport={"width": 1400, "height": high})
    context.set_default_timeout(milliseconds(120))
    page = context.new_page()
    page.on("request", lambda ask: asked.append(ask.url))
    page.goto(f"{address}/lab/tree/try.ipynb?reset")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    page.get_by_text("Project | Idle").wait_for()
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
    yield page
    elsewhere = [url for url in asked if not url.startswith((address, "blob:", "data:"))]
    assert elsewhere == []  # with the network there, too
    context.close()


def run(page, count, first=0):
    """Run so many cells, and wait until all of them were."""
    for _ in range(count):
        page.keyboard.press("Shift+Enter")
    error = '[data-mime-type="application/vnd.jupyter.error"]'
    page.wait_for_function(
        "([first, count, error]) => document.querySelector(error) || "
        "[...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]"
        ".slice(first, first + count).every(own => /\\d/.test(own.textContent))",
        arg=[first, count, error],
        timeout=milliseconds(240),
    )
    assert page.locator(error).all_text_contents() == []


def written(outputs):
    """What outputs say, in view or not: JupyterLab does not render cells out of view, whose inner text is then empty."""
    return outputs.all_text_contents()


def pictured(page, name):
    if kept := os.environ.get("ICL_MECH_PICTURES"):
        page.screenshot(path=str(Path(kept) / f"{name}.png"))


def stored(page, folder):
    """The notebook as a file, saved now."""
    file = folder / "try.ipynb"
    before = file.stat().st_mtime_ns
    page.keyboard.press("Control+s")
    until(lambda: file.stat().st_mtime_ns != before, 60, "the notebook to be saved")
    page.wait_for_function("!document.querySelector('.lm-TabBar-tab.jp-mod-dirty')")
    return file


@with_lab
@pytest.mark.slow
def test_a_report_draws_in_jupyterlab_without_a_network(browser, tmp_path):
    with served(tmp_path, CELLS, LAB) as address, opened(browser, address) as page:
        run(page, len(CELLS))
        page.wait_for_function(
            "document.querySelectorAll('.js-plotly-plot').length >= 4 && "
            "[...document.querySelectorAll('.js-plotly-plot')].every(p => p.querySelector('.main-svg'))"
        )
        page.locator(".jp-Notebook .jp-CodeCell").nth(1).scroll_into_view_if_needed()
        pictured(page, "jupyterlab")
        texts = written(page.locator(".jp-OutputArea"))
        assert "label word" in texts[0]  # the prompts as coloured text, and their legend
        assert not [text for text in texts if "Error" in text or "ipywidgets" in text]
        assert "a bar" not in texts[0]  # gone when it was done
        assert page.locator(".jp-RenderedSVG").count() == 0  # plotly is there: no still pictures


ELSEWHERE_CELLS = (
    *CELLS[:2],
    "report.flow",
    CELLS[2],
    "other = icl.measure(model, prompts, icl.measurements.Predict(), interventions=[icl.ZeroHeads([(0, 0)])])\n"
    "other.predictions - icl.measure(model, prompts, icl.measurements.Predict()).predictions",
    WIDGET[0],
)


@pytest.mark.skipif(
    not (ALONE or LAB), reason=f"{MISSING} with JupyterLab: make browser installs it"
)
@pytest.mark.slow
def test_everything_draws_where_jupyterlab_has_neither_plotly_nor_widgets(browser, tmp_path):
    bare = () if ALONE else ("--LabServerApp.labextensions_path=[]",)
    with (
        served(tmp_path, ELSEWHERE_CELLS, ALONE or LAB, *bare) as address,
        opened(browser, address, high=5600) as page,
    ):
        run(page, len(ELSEWHERE_CELLS))
        outputs = page.locator(".jp-Notebook .jp-CodeCell .jp-Cell-outputArea")
        page.get_by_text(ELSEWHERE).wait_for()
        pictured(page, "jupyterlab-alone")
        texts = written(outputs)
        assert not [text for text in texts if "Error" in text]
        found = [outputs.nth(i).locator(".jp-RenderedSVG img") for i in range(len(texts))]
        assert [own.count() for own in found[2:6]] == [1, 1, 1, 0]
        assert found[1].count() >= 3
        drawn = "own => own.map(img => img.complete && img.naturalWidth > 300 && img.naturalHeight > 100)"
        for own in found[1:5]:
            until(lambda own=own: all(own.evaluate_all(drawn)), 60, "pictures to be drawn")
        assert page.locator(".js-plotly-plot, .icl-explore").count() == 0
        assert outputs.nth(5).locator("svg text", has_text="probability").count() == 1
        file = stored(page, tmp_path)
    kept = nbformat.read(file, 4)
    assert STILL in kept.cells[2].outputs[-1].data["image/svg+xml"]
    assert file.stat().st_size < 300_000
    assert "widgets" not in kept.metadata


@with_lab
@pytest.mark.slow
def test_the_explorer_is_played_in_jupyterlab(browser, tmp_path):
    with served(tmp_path, WIDGET, LAB) as address, opened(browser, address) as page:
        run(page, 1)
        root = page.locator(".jp-Notebook .icl-explore")
        root.locator(".ex-answers td").first.wait_for()
        page.wait_for_function("!document.querySelector('.icl-explore .ex-status').textContent")
        pictured(page, "jupyterlab-explorer")
        word = root.locator(".ex-label_word").first
        before = word.inner_text()
        word.click()
        page.wait_for_function(
            "before => document.querySelector('.icl-explore .ex-label_word').innerText !== before",
            arg=before,
        )
        for key in ("d", "d", "x", "b"):
            page.keyboard.press(key)
        # Nothing comes of them: the kernel is asked, and answers, after them.
        root.get_by_role("button", name="Copy as code").click()
        root.locator("dialog[open] pre").wait_for()
        page.keyboard.press("Escape")
        root.locator("dialog[open]").wait_for(state="detached")
        page.evaluate(DRAWN)
        assert page.locator(".jp-Notebook .jp-CodeCell").count() == len(WIDGET)
        assert root.count() == 1
        pictured(page, "jupyterlab-explorer-flipped")
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(1).click()
        run(page, 1, first=1)
        told = page.locator(".jp-OutputArea-executeResult pre").last.inner_text()
        shown, true = told.strip(" ()").split(", ")
        assert shown != true
        file = stored(page, tmp_path)
    assert file.stat().st_size < 50_000
    assert ELSEWHERE in str(nbformat.read(file, 4).cells[0].outputs)


@with_lab
@pytest.mark.slow
def test_the_explorer_shows_its_answer_while_the_kernel_runs_the_next_cell(browser, tmp_path):
    cells = (WIDGET[0], "import time\nwhile True: time.sleep(1)")
    with served(tmp_path, cells, LAB) as address, opened(browser, address) as page:
        page.keyboard.press("Shift+Enter")
        page.keyboard.press("Shift+Enter")
        root = page.locator(".jp-Notebook .icl-explore")
        root.locator(".ex-answers td").first.wait_for()
        assert root.locator(".ex-label_word").count() > 0
        running = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt").nth(1)
        assert running.inner_text() == "[*]:"


@pytest.mark.slow
@pytest.mark.skipif(
    not installed("nbconvert"), reason=f"{MISSING} with nbconvert: make browser installs it"
)
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
    page.wait_for_selector(".js-plotly-plot .main-svg")
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
