"""Runs as the parts of a paper: vector figures of its widths, tables and methods that TeX sets."""

import asyncio
import inspect
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import icl_mech as icl
from icl_mech.errors import ResultError
from icl_mech.export_text import _UNICODE, tex_prose
from icl_mech.measurements import Flow, Isolation, LogitLens, Predict
from icl_mech.plots import vector
from icl_mech.reports import paper
from icl_mech.reports.model import ClaimMatrix, ClaimRow, Sign
from icl_mech.reports.paper import tabular
from icl_mech.reports.tables import Cell, HtmlTable
from tests import patience
from tests.browser.chromium import MISSING, found
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def report():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts("reviews", model, shots=1, n=4)
    chosen = (Predict(), Flow(), Isolation(depths=[1]), LogitLens())
    return icl.measure(model, prompts, *chosen, progress=False)


class Browser:
    """Kaleido without a browser; `answers` is what it does instead of opening it."""

    answers = staticmethod(lambda: asyncio.sleep(0))

    def __init__(self, **_):
        self.asked, self.closed = [], 0

    async def open(self):
        await self.answers()

    async def calc_fig(self, figure, opts):
        self.asked.append((figure, opts))
        return opts["format"].encode()

    async def close(self):
        self.closed += 1


def replaced(monkeypatch, browser):
    """This one is what kaleido gives."""
    module = SimpleNamespace(Kaleido=browser)
    monkeypatch.setattr(vector, "import_module", lambda _: module)


@pytest.fixture
def drawn(monkeypatch):
    """What was asked of kaleido, which needs a browser."""
    browser = Browser()
    replaced(monkeypatch, lambda **_: browser)
    return browser.asked


def test_a_figure_is_written_at_the_width_of_a_column_or_a_page(report, drawn, tmp_path):
    path = report["flow"].plot().save(tmp_path / "flow.pdf")
    assert path.read_bytes() == b"pdf"
    report["flow"].plot().save(tmp_path / "wide.svg", width="page", font="Palatino")
    (column, narrow), (page, wide) = drawn
    assert narrow["width"] * narrow["scale"] == pytest.approx(96 * 3.25, abs=0.5)
    assert wide["width"] * wide["scale"] == pytest.approx(96 * 6.75, abs=0.5)
    assert column["layout"]["font"]["family"].startswith("STIX")
    assert page["layout"]["font"]["family"] == "Palatino"
    assert "title" not in column["layout"]
    # Type of the screen's 13 pixels or less has about eight points.
    assert page["layout"]["font"].get("size", 13) * vector.SCALE * 0.75 == pytest.approx(7.4, abs=1)


def test_panels_stand_below_each_other_in_a_column_unless_the_figure_was_changed(
    report, drawn, tmp_path
):
    figure = report["flow"].plot("null")
    figure.save(tmp_path / "a.svg")
    figure.save(tmp_path / "b.svg", width="page")
    changed = report["flow"].plot("null")
    changed.layout.xaxis.title.text = "my own"
    changed.save(tmp_path / "c.svg")
    column, page, own = (found["layout"] for found, _ in drawn)
    assert column["height"] > 1.4 * page["height"]
    assert own["xaxis"]["title"]["text"] == "my own"


def test_what_cannot_be_written_is_refused(report, drawn, tmp_path):
    figure = report["flow"].plot()
    with WORDS.raises(ResultError, "what_cannot_written_refused"):
        figure.save(tmp_path / "flow.png")
    with pytest.raises(ResultError, match=r"width='colum'.*column"):
        inspect.unwrap(vector.save)(figure, tmp_path / "flow.pdf", width="colum")
    figure.save(tmp_path / "flow.pdf")
    with pytest.raises(ResultError, match="overwrite=True"):
        figure.save(tmp_path / "flow.pdf")
    with WORDS.raises(ResultError, "what_cannot_written_refused_2"):
        figure.save(tmp_path / "flow.pdf" / "x.pdf")
    assert [own.name for own in tmp_path.iterdir()] == ["flow.pdf"]


def test_without_kaleido_or_its_browser_the_way_is_told(report, monkeypatch, tmp_path):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(vector, "import_module", missing)
    with pytest.raises(ResultError, match=r'pip install "kaleido>=1"'):
        report.export(tmp_path / "paper")
    assert not (tmp_path / "paper").exists()

    async def fails():
        raise OSError("no browser here")

    browser = Browser()
    browser.answers = fails
    replaced(monkeypatch, lambda **_: browser)
    with WORDS.raises(ResultError, "without_kaleido_browser_way"):
        report.export(tmp_path / "paper")
    assert not (tmp_path / "paper").exists()
    assert browser.closed == 1


def test_that_there_is_no_browser_is_found_out_first(report, monkeypatch, tmp_path):
    """By the real kaleido, before the page is made."""
    pytest.importorskip("kaleido")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "chromium"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(icl.Analysis, "page", lambda _: pytest.fail("the page was made"))
        with WORDS.raises(ResultError, "no_browser"):
            report.export(tmp_path / "paper")
    with WORDS.raises(ResultError, "no_browser_for_figure"):
        report["flow"].plot().save(tmp_path / "flow.pdf")
    assert [*tmp_path.iterdir()] == []
    whole = report.export(tmp_path / "paper", figures=False)
    text = (whole / "paper.tex").read_text()
    assert "includegraphics" not in text
    assert not (whole / "figures").exists()
    for used in re.findall(r"input\{([^}]+)\}", text):
        assert (whole / used).is_file()
    assert (whole / "tables" / "01-isolation.csv").is_file()
    export = inspect.unwrap(paper.export_page)
    with pytest.raises(ResultError, match="figures='no'"):
        export(report.page, tmp_path / "other", width="page", figures="no", overwrite=False)


def test_a_browser_that_does_not_answer_is_given_up(report, monkeypatch, tmp_path):
    monkeypatch.setattr(vector, "PATIENCE", 0.01)
    browser = Browser()
    browser.answers = lambda: asyncio.sleep(1000)
    replaced(monkeypatch, lambda **_: browser)
    with WORDS.raises(ResultError, "no_answer", "0.01"):
        report.export(tmp_path / "paper")
    assert browser.closed == 1
    assert not (tmp_path / "paper").exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the browser is a shell script")
def test_a_process_that_does_not_answer_is_ended(report, monkeypatch, tmp_path):
    pytest.importorskip("kaleido")
    script, number = tmp_path / "chromium", tmp_path / "pid"
    script.write_text(f"#!/bin/sh\necho $$ > {number}\nexec sleep 1000\n")
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(script))
    monkeypatch.setattr(vector, "PATIENCE", 3.0)
    monkeypatch.setattr(vector, "FAREWELL", 1.0)
    with WORDS.raises(ResultError, "no_answer", "3"):
        report.export(tmp_path / "paper")

    def gone():
        try:
            os.kill(int(number.read_text()), 0)
        except ProcessLookupError:
            return True

    patience.until(gone, 10, "the end of the browser")


@pytest.mark.slow
def test_a_run_as_the_parts_of_a_paper(report, drawn, tmp_path):
    place = report.export(tmp_path / "paper")
    names = {own.relative_to(place).as_posix() for own in place.rglob("*") if own.is_file()}
    assert {"claims.tex", "methods.tex", "references.bib", "paper.tex"} < names
    assert (
        sum(name.endswith(".pdf") for name in names) == sum(n.endswith(".svg") for n in names) > 2
    )
    paper = (place / "paper.tex").read_text()
    for used in re.findall(r"(?:input|includegraphics)\{([^}]+)\}", paper):
        assert used in names
    methods = (place / "methods.tex").read_text()
    for told in ("reviews", "4 prompts", "seed 0", "95 \\%", "icl-mech", "\\cite{"):
        assert told in methods
    WORDS(methods, "run_parts_paper")
    assert "None" not in methods
    digest = report["flow"].provenance["model"]["weights"]
    assert f"digest {digest[:12]}" in methods
    cited = {key for own in re.findall(r"\\cite\{([^}]+)\}", methods) for key in own.split(", ")}
    assert cited <= set(re.findall(r"@\w+\{(\w+),", (place / "references.bib").read_text()))
    asked = len(drawn)
    with WORDS.raises(ResultError, "run_parts_paper_2"):
        report.export(place)
    assert len(drawn) == asked  # refused before anything is drawn
    report.export(place, overwrite=True)


def test_methods_say_by_what_the_model_was_changed(report, drawn, tmp_path):
    model = tiny_model("gpt2")
    prompts = icl.build_prompts("reviews", model, shots=1, n=4)
    cut = [icl.Isolate([0, 1])]
    changed = icl.measure(model, prompts, Predict(), interventions=cut, progress=False)
    told = (changed.export(tmp_path / "changed") / "methods.tex").read_text()
    assert r"\textbf{Interventions:} Isolate \{'layers': {[}0, 1{]}" in told
    assert "Interventions" in changed.to_html(tmp_path / "page.html").read_text()
    plain = (report.export(tmp_path / "plain") / "methods.tex").read_text()
    assert "Interventions" not in plain


def test_names_in_tables_stay_text():
    table = HtmlTable(
        ("label", "value"), ((Cell("a & b_c", bold=True), Cell("−0.50", "[−1, 2]", number=True)),)
    )
    text = tabular(table)
    assert r"\textbf{a \& b\_c} & $-$0.50 {[}$-$1, 2{]} \\" in text
    assert r"\begin{tabular}{lr}" in text


def test_scores_are_formulas_and_other_names_are_not():
    assert tex_prose("**S_wp** is not my_wp") == r"$S_{wp}$ is not my\_wp"
    assert tex_prose("0 → 1 × “x” – 50 %") == r"0 $\to$ 1 $\times$ ``x'' -- 50 \%"


@pytest.fixture(scope="module")
def comparison():
    how = {"shots": 1, "n": 4, "seeds": (0, 1), "progress": False}
    tasks = icl.planted_task(), replace(icl.planted_task(), name="again")
    runs = (
        icl.sweep(
            {name: icl.planted_model(seed=seed)}, tasks, [Predict(), Flow(), Isolation()], **how
        )
        for seed, name in enumerate(("a_b", "other"))
    )
    return icl.compare(*runs)


def test_a_comparison_has_its_matrix_of_claims(comparison, drawn, tmp_path):
    place = comparison.export(tmp_path / "paper")
    matrix = (place / "matrix.tex").read_text()
    assert r"\multicolumn{3}{c}{a\_b} & \multicolumn{3}{c}{other}" in matrix
    WORDS(matrix, "comparison_matrix_claims")
    rows = [line for line in matrix.splitlines() if line.endswith(r"\\")]
    assert {line.count(" & ") for line in rows[1:]} == {6}
    own = comparison.page().matrix
    for row in own.rows:
        marks = [paper.MARKS.get(sign.status, "") for sign in row.signs]
        assert f"{row.claim.split(':')[0]} & {' & '.join(map(tex_prose, marks))} " in matrix
    assert r"\textbf{Models:} a\_b and other." in (place / "methods.tex").read_text()
    whole = (place / "paper.tex").read_text()
    assert r"\input{matrix.tex}" in whole
    assert "+: supported" in whole


def test_a_large_matrix_has_intervals_of_all_tasks_only():
    effect = "+0.33 [+0.07, +0.50]"
    for count, intervals in ((2, 3), (40, 1)):
        places = (*(str(i) for i in range(count)), "all tasks")
        row = ClaimRow("Harm: it harms", ("gap",), (Sign("mixed", (effect,)),) * (count + 1))
        rows = (row,) * (2 if count > 2 else 1)
        text = paper._matrix(ClaimMatrix("", (("m", places),), rows, whole="all tasks"))
        assert text.count(r"\shortstack{+0.33\\{\scriptsize") == intervals * len(rows)
        assert text.count("+0.33") == (count + 1) * len(rows)


@pytest.mark.browser
def test_figures_are_vectors(report, tmp_path, monkeypatch):
    if (browser := found()) is None:
        pytest.skip(f"{MISSING}: make browser")
    monkeypatch.setenv("BROWSER_PATH", browser)
    file = report["flow"].plot().save(tmp_path / "flow.svg")
    text = file.read_text()
    assert 'width="312' in text
    assert "<path" in text
    assert "layer" in text
    assert report["flow"].plot().save(tmp_path / "flow.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["report", "comparison"])
def test_tex_sets_the_paper(request, kind, drawn, tmp_path):
    if shutil.which("pdflatex") is None:
        sys.stderr.write("\n*** pdflatex is not installed: the paper was NOT compiled by TeX ***\n")
        pytest.skip("pdflatex is not installed (apt install texlive-latex-recommended)")
    place = request.getfixturevalue(kind).export(tmp_path / "paper")
    whole = (place / "paper.tex").read_text()
    signs = tex_prose(_UNICODE)  # all that the package's own words hold
    whole = whole.replace("\\maketitle", f"\\maketitle {signs}")
    (place / "paper.tex").write_text(re.sub(r"\\includegraphics\{[^}]+\}", "figure", whole))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    done = subprocess.run(
        [*command, "paper.tex"], cwd=place, capture_output=True, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
