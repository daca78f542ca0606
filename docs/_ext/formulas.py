"""Formulas as MathML, which browsers render without scripts, fonts or a network."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

# The converter puts a one-letter limit next to the sign; displayed formulas need it below.
UNDER = re.compile(r"<msub>(<mo>&#x0(?:2211|220F);</mo><m[ino]>[^<]*</m[ino]>)</msub>")

# Bars of a fixed size do not stretch in all browsers; paired bars do.
BARS = re.compile(r"\\[Bb]igg?\|(.+?)\\[Bb]igg?\|", re.DOTALL)


def mathml(latex: str, display: str) -> str:
    """LaTeX as one `<math>` element, with its source as text alternative."""
    converted = convert(BARS.sub(r"\\left|\1\\right|", latex.strip()), display=display)
    if display == "block":
        converted = UNDER.sub(r"<munder>\1</munder>", converted)
    said = nodes.Text(latex.strip()).astext().replace("&", "&amp;").replace('"', "&quot;")
    return converted.replace("<math ", f'<math aria-label="{said.replace("<", "&lt;")}" ', 1)


def inline(self: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """Write a displayed formula; wide ones scroll separately."""
    formula = mathml(node.astext(), "block")
    self.body.append(f'<div class="formula" role="group" tabindex="0">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer and select it."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config["html_math_renderer"] = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
