"""Tables with hostile names, compiled by a real TeX: names stay text."""

import shutil
import subprocess
import sys

import pytest

from icl_mech.export_text import tex_text

HOSTILE = (
    r"\input /etc/passwd", r"\write18{touch x}", "a & b", "50 %", "x_1^2", "{", "}", "~", "#1", "$x$", "\\",
    "^^5cinput", "line\nbreak", "é ü ß", "“quoted”", "-- ---", "<b>&amp;</b>",
)  # fmt: skip


@pytest.mark.slow
def test_hostile_names_compile_as_text(tmp_path):
    if shutil.which("pdflatex") is None:
        sys.stderr.write("\n*** pdflatex is not installed: tables were NOT compiled by TeX ***\n")
        pytest.skip("pdflatex is not installed (apt install texlive-latex-base)")
    rows = " \\\\\n".join(f"{number} & {tex_text(name)}" for number, name in enumerate(HOSTILE))
    (tmp_path / "table.tex").write_text(
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\begin{document}\n"
        f"\\begin{{tabular}}{{ll}}\n{rows} \\\\\n\\end{{tabular}}\n\\end{{document}}\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "table.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1500:]
    assert (tmp_path / "table.pdf").stat().st_size > 1000
    assert "passwd" not in done.stdout.replace("table.tex", "")
    assert not (tmp_path / "x").exists()
