"""Texts and formulas as HTML: whatever a text holds is shown as text."""

import re
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from markupsafe import Markup

_BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)

_NUMBER = r"[+−-]?(?:\d[\d.,]*(?:[eE][+−-]?\d+)?|∞|nan|undefined)(?:\s?%)?"

_INTERVAL = re.compile(rf"\[{_NUMBER}, {_NUMBER}\]")


_WORDS = re.compile(r"\\text\{([^{}]*)\}")

_OWN = re.compile(r"\{http://www\.w3\.org/1998/Math/MathML\}m[a-z]+")
"""Elements of MathML."""


def text_html(text: str) -> "Markup":
    """A text with `**bold**` parts and intervals in lighter type that stay on one line."""
    from markupsafe import Markup, escape

    marked = _BOLD.sub(r"<b>\1</b>", str(escape(text)))
    return Markup(_INTERVAL.sub(r'<span class="ci">\g<0></span>', marked))


def plain(text: str) -> str:
    """A text without its marks, for labels that are read aloud."""
    return _BOLD.sub(r"\1", text)


def mathml(formula: str) -> "Markup":
    """A LaTeX formula as MathML, which browsers draw without a script or fonts.

    What the converter does not know is shown as it was written.
    """
    from latex2mathml.converter import convert
    from markupsafe import Markup

    # The converter writes words as they are, so that they could hold any element.
    safe = _WORDS.sub(lambda found: rf"\text{{{escape(found[1], quote=False)}}}", formula)
    try:
        drawn = convert(safe, display="block")
        if all(_OWN.fullmatch(own.tag) for own in ElementTree.fromstring(drawn).iter()):
            return Markup(drawn)
    except Exception:  # noqa: BLE001 - it raises errors of its own without a common class
        pass
    return Markup("<code>{}</code>").format(formula)


def anchor(name: str) -> str:
    """A name as the end of an address."""
    return re.sub(r"\W+", "-", name.lower()).strip("-") or "section"
