"""Escape text for other programs: LaTeX and spreadsheets."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\symbol{34}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    # At the start of a row they would be read as options of the line break before it.
    **{sign: f"{{{sign}}}" for sign in "[]*"},
}

_ACTS_IN_SHEETS = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
"""Leading characters that make a spreadsheet read text as a formula, and the mark that prevents it."""


def one_line(text: str) -> str:
    """The text with control characters (line breaks, tabs, ...) replaced by spaces."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text)


def tex_text(text: str) -> str:
    r"""The text escaped for LaTeX, so that nothing in it is a command.

    Control characters become spaces; runs of `-` are separated, so that they do not become a dash.
    """
    escaped = "".join(_TEX.get(sign, sign) for sign in one_line(text))
    return re.sub(r"-(?=-)", "-{}", escaped)


_UNICODE = "−×→←↵⇥≤≥≈±√∞⋯⟨⟩·αβγδΔεκλΛμρσΣτŷ₀₁₂₃₄₅₆₇₈₉…–—“”’‘✓␣�"
_LATEX = r"""$-$ $\times$ $\to$ $\leftarrow$ $\hookleftarrow$ $\mapsto$ $\le$ $\ge$ $\approx$ $\pm$ $\surd$ $\infty$ $\emptyset$
$\langle$ $\rangle$ $\cdot$ $\alpha$ $\beta$ $\gamma$ $\delta$ $\Delta$ $\varepsilon$ $\kappa$ $\lambda$ $\Lambda$ $\mu$
$\rho$ $\sigma$ $\Sigma$ $\tau$ $\hat{y}$ $_0$ $_1$ $_2$ $_3$ $_4$ $_5$ $_6$ $_7$ $_8$ $_9$ \dots{} -- --- `` '' ' ` yes
\textvisiblespace{} \rule{.4em}{.7em}"""
_SIGNS = dict(zip(_UNICODE, _LATEX.split(), strict=True)) | {"\u00a0": "~", "\u202f": "~"}
"""Characters that LaTeX writes as commands."""

_SCORE = re.compile(r"\b([A-Z])\\_(wp|pq|ww)\b")
_BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)


def tex_prose(text: str) -> str:
    r"""A sentence of a page for LaTeX: scores as formulas, `**bold**` as plain text, LaTeX quotes and dashes.

    Everything else is escaped as in `tex_text`.
    """
    plain = tex_text(_BOLD.sub(r"\1", text))
    return _SCORE.sub(r"$\1_{\2}$", "".join(_SIGNS.get(sign, sign) for sign in plain))


def sheet_text(text: str) -> str:
    """The text, with a leading `'` if a spreadsheet would read it as a formula.

    Text that begins with `'` gets another one, so that removing one restores the text.
    """
    return f"'{text}" if text.lstrip(" ").startswith(_ACTS_IN_SHEETS) else text


def as_bytes(text: str) -> bytes:
    """The text in UTF-8; lone surrogates, which file names may contain, become question marks."""
    return text.encode("utf-8", "replace")


def csv_text(frame: "pd.DataFrame") -> str:
    """The table as CSV, with text escaped as in `sheet_text`; numbers are unchanged."""
    plain = frame.rename(columns=lambda name: sheet_text(name) if isinstance(name, str) else name)
    plain = plain.map(lambda value: sheet_text(value) if isinstance(value, str) else value)
    text: str = plain.to_csv(index=False)
    return text
