"""Texts, formulas and provenance as HTML; all text is escaped."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from icl_mech.reports.tables import written
from icl_mech.results import jsonable

if TYPE_CHECKING:
    from markupsafe import Markup

_BOLD = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)

_CODE = re.compile(r"`(\w[\w.=]*)`")

_NUMBER = r"[+−-]?(?:\d[\d.,]*(?:[eE][+−-]?\d+)?|∞|nan|undefined)(?:\s?%)?"

_INTERVAL = re.compile(rf"\[{_NUMBER}, {_NUMBER}\]")


_WORDS = re.compile(r"\\text\{([^{}]*)\}")

_ARG = re.compile(r"\\arg\s*\\(max|min)(?![a-z])")
"""Two commands of LaTeX which the converter would leave as it is written."""

_OWN = re.compile(r"\{http://www\.w3\.org/1998/Math/MathML\}m[a-z]+")
"""Elements of MathML."""


_SCORE = re.compile(r"\bS_(wp|pq|ww)\b")


def text_html(text: str) -> "Markup":
    """A text as HTML: `**bold**` parts, names as code, scores as symbols, intervals unbroken in lighter type."""
    from markupsafe import Markup, escape

    marked = _BOLD.sub(r"<b>\1</b>", str(escape(text)))
    marked = _CODE.sub(r"<code>\1</code>", marked)
    marked = _SCORE.sub(r"<i>S</i><sub>\1</sub>", marked)
    return Markup(_INTERVAL.sub(r'<span class="ci">\g<0></span>', marked))


def plain(text: str) -> str:
    """A text without bold marks, for labels read by screen readers."""
    return _BOLD.sub(r"\1", text)


def mathml(formula: str) -> "Markup":
    """A LaTeX formula as MathML, which browsers render without a script or fonts.

    Formulas that the converter cannot handle are shown as written.
    """
    from latex2mathml.converter import convert
    from markupsafe import Markup

    # The converter does not escape text, so that it could contain any element.
    safe = _WORDS.sub(lambda match: rf"\text{{{escape(match[1], quote=False)}}}", formula)
    safe = _ARG.sub(r"\\operatorname*{arg\1}", safe)
    try:
        drawn = convert(safe, display="block")
        elements = [*ElementTree.fromstring(drawn).iter()]
        if all(_OWN.fullmatch(own.tag) and "\\" not in (own.text or "") for own in elements):
            return Markup(drawn)
    except Exception:  # noqa: BLE001 - it raises errors of its own without a common class
        pass
    return Markup("<code>{}</code>").format(formula)


def anchor(name: str) -> str:
    """A name as the fragment of a URL."""
    return re.sub(r"\W+", "-", name.lower()).strip("-") or "section"


HIDDEN = ("d_model", "d_head", "d_vocab", "n_ctx", "n_kv_heads", "notes")
"""Facts about a model that its name implies; left out."""


def origin_rows(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of the provenance, nested ones joined; empty ones are left out."""
    return [
        (name.replace("_", " "), text)
        for name, value in jsonable(provenance).items()
        if (text := _text(value))
    ]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(
            f"{key.replace('_', ' ')}: {f'({text})' if isinstance(entry, Mapping) else text}"
            for key, entry in value.items()
            if key not in HIDDEN and (text := _text(entry))
        )
    if isinstance(value, list):
        return _listed(value)
    return written(value)


def _listed(values: Iterable[Any]) -> str:
    texts = [
        f"({text})" if isinstance(value, Mapping) else text
        for value in values
        if (text := _text(value))
    ]
    return ", ".join(texts)
