"""Colours of the explorer: those of all figures, as CSS variables for light and dark."""

from importlib.resources import files

from icl_mech.plots import style
from icl_mech.plots.style import LOOKS

SIGNED = ("d0", "d1", "d2", "dm", "d3", "d4", "d5")


def css() -> str:
    """The style sheet, then the colours, which stand in for its own."""
    own = files("icl_mech.explorer").joinpath("page.css").read_text(encoding="utf-8")
    looks = {
        "page": style.PAGE,
        "panel": style.PANEL,
        "ink": style.INK,
        "muted": style.QUIET,
        "grid": style.GRID,
        "rule": style.RULE,
    }
    looks |= {"link": style.LINK, "template": LOOKS["other"], "ref": LOOKS["reference"]}
    looks |= {own: LOOKS[own] for own in ("text", "label", "query", "target", "true", "false")}
    light = {name: own.light for name, own in looks.items()}
    dark = {name: own.dark for name, own in looks.items()}
    for found, scale, signed in (
        (light, style.SCALE, style.SIGNED_SCALE),
        (dark, style.SCALE_DARK, style.SIGNED_SCALE_DARK),
    ):
        found |= {f"s{step}": colour for step, colour in enumerate(scale)}
        found |= dict(zip(SIGNED, signed, strict=True))
    return "\n".join([own, _rule(".icl-explore", light), _rule(".icl-explore.dark", dark)])


def _rule(selector: str, colours: dict[str, str]) -> str:
    inside = " ".join(f"--icl-{name}: {colour};" for name, colour in colours.items())
    return f"{selector} {{ {inside} }}"
