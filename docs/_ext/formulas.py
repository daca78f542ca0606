"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

# The converter puts a limit of one letter beside the sign; formulas on lines of their own have it below.
UNDER = re.compile(r"<msub>(<mo>&#x0(?:2211|220F);</mo><m[ino]>[^<]*</m[ino]>)</msub>")

# Bars of a given size do not stretch in all browsers; pairs of them do.
BARS = re.compile(r"\\[Bb]igg?\|(.+?)\\[Bb]igg?\|", re.DOTALL)


def mathml(latex: str, display: str) -> str:
    """LaTeX as one `<math>` element, with its source as text alternative."""
    converted = convert(BARS.sub(r"\\left|\1\\right|", latex.strip()), display=display)
    if display == "block":
        converted = UNDER.sub(r"<munder>\1</munder>", converted)
    said = nodes.Text(latex.strip()).astext().replace("&", "&amp;").replace('"', "&quot;")
    return converted.replace("<math ", f'<math aria-label="{said.replace("<", "&lt;")}" ', 1)


def inline(self: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """Write a formula of its own; wide ones scroll by themselves."""
    formula = mathml(node.astext(), "block")
    self.body.append(f'<div class="formula" role="group" tabindex="0">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer and make it the one in use."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config["html_math_renderer"] = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
