"""Export a notebook as one HTML file whose figures work offline.

    jupyter nbconvert --to icl_mech.exporting.OfflinePage notebook.ipynb

The HTML of nbconvert itself loads scripts and formulas from the network, and leaves out figures that
are stored as plotly's own data. Requires nbconvert, which comes with JupyterLab.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from latex2mathml.converter import convert

try:
    from nbconvert.exporters import HTMLExporter
    from nbconvert.preprocessors import Preprocessor
except ImportError as error:
    raise ImportError(
        "Exporting a notebook as HTML requires nbconvert: pip install nbconvert"
    ) from error
from nbformat.v4 import output_from_msg
from traitlets.config import Config

from icl_mech.plots import MIME

FORMULA = re.compile(
    r"(?P<code>```.*?```|`[^`]*`)|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$\n]+?)\$", re.DOTALL
)
"""Formulas in a text cell; code is matched first, so that its dollar signs are kept."""

DRAW = """
for (const box of document.querySelectorAll(".plotly-figure")) {
  const figure = JSON.parse(box.firstElementChild.textContent);
  const drawn = document.createElement("div");
  box.append(drawn);
  Plotly.newPlot(drawn, figure.data, figure.layout, {displaylogo: false, showSendToCloud: false});
}
"""


class Figures(Preprocessor):  # type: ignore[misc]
    """Insert figures into the page as data, and plotly's script once after them."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """The notebook with its figures and formulas as HTML."""
        last = None
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                cell.source = FORMULA.sub(_formula, cell.source)
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                if MIME in data:
                    last = cell
                    output["data"] = type(nb)({"text/html": _element(data[MIME])})
        if last is not None:
            from plotly.offline import get_plotlyjs

            script = f"<script>{get_plotlyjs()}</script><script>{DRAW}</script>"
            last.outputs.append(
                output_from_msg(
                    {
                        "header": {"msg_type": "display_data"},
                        "content": {"data": {"text/html": script}, "metadata": {}},
                    }
                )
            )
        return nb, resources


class OfflinePage(HTMLExporter):  # type: ignore[misc]
    """A notebook as a self-contained HTML page."""

    export_from_notebook = "icl_mech page"

    def from_notebook_node(self, nb: Any, resources: Any = None, **kw: Any) -> tuple[Any, Any]:
        """The page, without the empty tags of scripts that are not loaded."""
        page, resources = super().from_notebook_node(nb, resources, **kw)
        return re.sub(r'<script src="">\s*</script>', "", page), resources

    @property
    def default_config(self) -> Config:
        """The configuration: figures are inserted first, and no script is loaded."""
        config = Config(
            {
                "OfflinePage": {
                    "preprocessors": [Figures],
                    "mathjax_url": "",
                    "require_js_url": "",
                    "jquery_url": "",
                    "jupyter_widgets_base_url": "",
                    "widget_renderer_url": "",
                }
            }
        )
        config.merge(super().default_config)
        return config


def _formula(match: "re.Match[str]") -> str:
    """A formula as MathML, which browsers render natively."""
    if match["code"]:
        return match[0]
    block = match["block"] is not None
    written: str = convert(
        match["block"] or match["inline"], display="block" if block else "inline"
    )
    return written


def _element(figure: Mapping[str, object]) -> str:
    # "</script>" in a text must not end the element.
    text = json.dumps({key: figure[key] for key in ("data", "layout")}).replace("<", "\\u003c")
    return f'<div class="plotly-figure"><script type="application/json">{text}</script></div>'
