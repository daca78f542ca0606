"""The widget: a session behind anywidget's comm, for JupyterLab, Notebook, VS Code, Colab and marimo."""

from functools import lru_cache
from html import escape
from typing import Any

import torch

from icl_mech.explorer.session import Session
from icl_mech.explorer.theme import css, module
from icl_mech.shapes import Bars

MISSING = "The widget needs anywidget in the environment of the kernel: pip install anywidget"

ELSEWHERE = (
    "This is a static picture. To interact with it, install anywidget in the environment that runs JupyterLab "
    "(pip install anywidget) and reload the page, or run icl-mech explore in a terminal."
)


@lru_cache(maxsize=1)
def widget_class() -> Any:
    """The class of the widget; None without anywidget."""
    try:
        import anywidget
        import traitlets
    except ImportError:
        return None

    class ExplorerWidget(anywidget.AnyWidget):
        """Widget that passes messages between page and session."""

        _esm = module()
        _css = css()
        first = traitlets.List().tag(sync=True)
        """Messages that a page hears before the kernel is free to answer it, as while further cells run."""

        def __init__(self, session: Session) -> None:
            super().__init__()
            self._session = session
            self.on_msg(self._heard)
            session.join(self.send)

        def _heard(self, widget: object, content: object, buffers: object) -> None:
            self._session.do(content, self.send)

    return ExplorerWidget


def bundle(session: Session) -> dict[str, Any]:
    """The MIME bundle for a notebook: the widget, with a static picture and a note on what is missing as fallback."""
    made = widget_class()
    mime: dict[str, Any] = {}
    text = ELSEWHERE if made is not None else MISSING
    still_shown = {"text/plain": still_text(session), "text/html": still(session, text)}
    if made is not None:
        if session.widget is None:  # one for all cells that show it, each of which gets every part
            session.widget = made(session)
        session.widget.first = session.heard()
        shown = session.widget._repr_mimebundle_()
        mime = dict(shown[0] if isinstance(shown, tuple) else shown or {})
    return {**mime, **still_shown}


def still_text(session: Session) -> str:
    """The present state in a few lines."""
    history, asker = session.history, session.asker
    now = history.now
    asker.check_current()
    lines = [f"{asker.stage.info.name} on {asker.stage.task.name}: {now.title(history.start)}"]
    words = [(d.words or asker.stage.task.labels)[d.shown] for d in now.demos]
    lines += [f"{number + 1}. {d.text} → {words[number]}" for number, d in enumerate(now.demos)]
    probs = asker.ask("now", now)["probs"]
    answers = ", ".join(
        f"{label} {p:.2f}" for label, p in zip(asker.names(now), probs, strict=True)
    )
    return "\n".join([*lines, f"{now.query.text} → {answers}"])


def still(session: Session, text: str) -> str:
    """The prompt by role and its answer as a picture, with a sentence below them."""
    from icl_mech.plots import figure
    from icl_mech.plots.still import still as picture

    now, asker = session.history.now, session.asker
    probs = torch.tensor(asker.ask("now", now)["probs"])[:, None]
    none = torch.full_like(probs, torch.nan)
    title, labels = now.title(session.history.start), tuple(asker.names(now))
    drawn = picture(figure(Bars(title, labels, ("now",), probs, none, none, "probability")), "")
    return f"{asker.prompts(now)._repr_html_()}{drawn}<p><em>{escape(text)}</em></p>"
