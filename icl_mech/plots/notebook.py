"""What a notebook shows: figures as plotly's own data, drawn without a network.

JupyterLab, Notebook, VS Code and others draw `application/vnd.plotly.v1+json` with the plotly that
is installed beside them. HTML with a script, which plotly offers too, needs a network there or is
not run at all.
"""

import json
from html import escape

import plotly.graph_objects as go
import plotly.io as pio

MIME = "application/vnd.plotly.v1+json"

CONFIG = {"displaylogo": False, "showSendToCloud": False}
"""Nothing is uploaded from a figure."""

DRAWN_BY_FRONTEND = frozenset(
    {"", "plotly_mimetype", "jupyterlab", "nteract", "vscode", "notebook"}
)


def show(*parts: "str | go.Figure") -> None:
    """Show sentences and figures below the cell, one after the other.

    Figures go to the frontend as data, unless another renderer was chosen for plotly, such as
    `colab`, which plotly itself finds.
    """
    from IPython.display import display

    others = set(pio.renderers.default.split("+")) - DRAWN_BY_FRONTEND
    for part in parts:
        if isinstance(part, str):
            display({"text/html": f"<p>{escape(part)}</p>", "text/plain": part}, raw=True)
        elif others:
            part._ipython_display_()
        else:
            display(bundle(part), raw=True)


def bundle(figure: go.Figure) -> dict[str, object]:
    """A figure by media type, as `IPython.display.display(..., raw=True)` takes it."""
    title = figure.layout.title.text or "A figure"
    return {MIME: {**json.loads(figure.to_json()), "config": CONFIG}, "text/plain": title}
