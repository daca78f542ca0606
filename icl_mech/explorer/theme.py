"""Colours of the explorer, the same as in all figures, as CSS variables for light and dark."""

from importlib.resources import files

from icl_mech.plots import style
from icl_mech.plots.style import LOOKS

SIGNED = ("d0", "d1", "d2", "dm", "d3", "d4", "d5")


def css() -> str:
    """The style sheet, then the colours, which override its defaults."""
    sheet = files("icl_mech.explorer").joinpath("page.css").read_text(encoding="utf-8")
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
