"""Names in tables of TeX and of spreadsheets are text: nothing in them acts."""

import io
import re

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_mech.export_text import csv_text, one_line, sheet_text, tex_text

HOSTILE = [
    r"\input /etc/passwd ", "a~b^c", "50 % & more_#1 {x}", "[2em] row", "*", "a--b---c", "$\\alpha$",
    'say "yes"', "<b>|", "two\nlines\\end{tabular}", "", " ",
]  # fmt: skip

UNITS = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^",
    r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\symbol{34}": '"',
    "{[}": "[", "{]}": "]", "{*}": "*", "-{}": "-",
    **{f"\\{sign}": sign for sign in "&%$#_{}"},
}  # fmt: skip


def read_tex(text: str) -> str:
    """What TeX sets for the commands that may stand in a cell; anything else is an error."""
    found, rest = "", text
    while rest:
        unit = next((own for own in UNITS if rest.startswith(own)), None)
        assert unit or rest[0] not in "\\{}~^&%$#_", f"{rest!r} acts"
        found += UNITS[unit] if unit else rest[0]
        rest = rest[len(unit or rest[0]) :]
    return found


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_letters_to_tex(name):
    assert read_tex(tex_text(name)) == one_line(name)


@given(st.text())
@settings(max_examples=300, derandomize=True, deadline=None)
def test_any_text_comes_back_from_tex(name):
    assert read_tex(tex_text(name)) == one_line(name)
    assert "\n" not in tex_text(name)


@given(st.text())
@settings(max_examples=300, derandomize=True, deadline=None)
def test_any_text_comes_back_from_a_sheet(text):
    cell = sheet_text(text)
    assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r"))
    assert cell.removeprefix("'") == text


def test_formulas_in_csv_are_text_and_numbers_stay():
    frame = pd.DataFrame({"=name": ["=cmd|' /C calc'!A0", "plain"], "value": [-1.5, 2.0]})
    back = pd.read_csv(io.StringIO(csv_text(frame)))
    assert list(back.columns) == ["'=name", "value"]
    assert back.iloc[0, 0] == "'=cmd|' /C calc'!A0"
    assert back["value"].tolist() == [-1.5, 2.0]


def test_one_line_keeps_words():
    assert re.fullmatch("a b c", one_line("a\tb\u2028c"))
