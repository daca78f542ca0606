"""`module` and `css`: the explorer's page from the files of `page/`, with the colours of all figures as CSS variables."""

from importlib.resources import files

from icl_mech.plots import style
from icl_mech.plots.style import LOOKS

SCRIPTS = (
    "transport",
    "elements",
    "words",
    "app",
    "hear",
    "header",
    "prompt",
    "answer",
    "board",
    "lens",
    "heads",
    "layers",
    "tour",
    "keyboard",
    "theme",
    "dialogs",
    "share",
)
"""Scripts of the page, joined in this order into one module: a widget's module has nowhere to import others from."""

SHEETS = (
    "base",
    "prompt",
    "answer",
    "board",
    "layers",
    "heads",
    "tour",
    "dialogs",
    "share",
    "narrow",
)
"""Style sheets of the page, in this order."""

SIGNED = ("d0", "d1", "d2", "dm", "d3", "d4", "d5")


def module() -> str:
    """The page's script as one module."""
    return _joined(SCRIPTS, "js")


def _joined(names: tuple[str, ...], ending: str) -> str:
    folder = files("icl_mech.explorer") / "page"
    texts = ((folder / f"{name}.{ending}").read_text(encoding="utf-8") for name in names)
    return "\n".join(texts)


def css() -> str:
    """The style sheets, then the colours, which override their defaults."""
    sheet = _joined(SHEETS, "css")
    looks = {
        "page": style.PAGE,
        "panel": style.PANEL,
        "ink": style.INK,
        "muted": style.QUIET,
        "grid": style.GRID,
        "rule": style.RULE,
    }
    looks |= {"link": style.LINK, "template": LOOKS["other"], "ref": LOOKS["reference"]}
    looks |= {name: LOOKS[name] for name in ("text", "label", "query", "target", "true", "false")}
    light = {name: look.light for name, look in looks.items()}
    dark = {name: look.dark for name, look in looks.items()}
    for colours, scale, signed in (
        (light, style.SCALE, style.SIGNED_SCALE),
        (dark, style.SCALE_DARK, style.SIGNED_SCALE_DARK),
    ):
        colours |= {f"s{step}": colour for step, colour in enumerate(scale)}
        colours |= dict(zip(SIGNED, signed, strict=True))
    return "\n".join([sheet, _rule(".icl-explore", light), _rule(".icl-explore.dark", dark)])


def _rule(selector: str, colours: dict[str, str]) -> str:
    inside = " ".join(f"--icl-{name}: {colour};" for name, colour in colours.items())
    return f"{selector} {{ {inside} }}"
