"""A task as a card: what it is, how a demonstration is written, one example of each class."""

from collections.abc import Sequence
from html import escape

from icl_mech.plots.prompt_view import style

LONGEST = 240
"""Characters of an example that are shown."""

MOST = 6
"""Classes of which an example is shown."""


def task_html(about: str, rows: Sequence[tuple[str, str, str]]) -> str:
    """One line about the task, and a table of classes.

    Args:
        about: What it is, in one line.
        rows: For each class its label word, how many examples it has, and one as it is written.
    """
    shown = "".join(
        f"<tr><th scope='row'>{escape(label)}</th><td>{escape(count)}</td>"
        f"<td><pre style='white-space:pre-wrap;margin:0'>{escape(_cut(example))}</pre></td></tr>"
        for label, count, example in rows[:MOST]
    )
    left = len(rows) - MOST
    more = f'<p class="icl-note">{left} more classes are not shown here.</p>' if left > 0 else ""
    return (
        f'<style>{style(levels=False)}</style><div class="icl-prompt">'
        f'<p class="icl-note">{escape(about)}</p>'
        "<table style='text-align:left'><thead><tr><th scope='col'>label word</th>"
        "<th scope='col'>train, test</th><th scope='col'>a demonstration</th></tr></thead>"
        f"<tbody>{shown}</tbody></table>{more}</div>"
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
