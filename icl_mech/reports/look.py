"""Colours of a page as CSS variables and as the table by which figures become dark."""

from icl_mech.plots.prompt_style import ROLE_NAMES
from icl_mech.plots.style import (
    GRID,
    INK,
    LINK,
    LOOKS,
    PAGE,
    PANEL,
    QUIET,
    RULE,
    SCALE,
    SCALE_DARK,
    dark_colours,
    of_role,
)


def variables() -> tuple[str, str]:
    """CSS declarations of all colours, in the light and in the dark."""
    pairs = {name: (own.light, own.dark) for name, own in LOOKS.items()}
    for name, own in (
        ("page", PAGE), ("panel", PANEL), ("ink", INK), ("quiet", QUIET), ("grid", GRID),
        ("rule", RULE), ("link", LINK),
    ):  # fmt: skip
        pairs[name] = (own.light, own.dark)  # type: ignore[index]
    for number, (light, dark) in enumerate(zip(SCALE, SCALE_DARK, strict=True)):
        pairs[f"s{number}"] = (light, dark)  # type: ignore[index]
    light, dark = (
        "".join(f"--{name}:{pair[place]};" for name, pair in pairs.items()) for place in (0, 1)
    )
    return light, dark


def colours() -> dict[str, object]:
    """What the script of a page needs: the dark partner of each colour, those of roles, the scale."""
    return {
        "dark": dark_colours(),
        "roles": {role: of_role(role).light for role in ROLE_NAMES},
        "roleNames": dict(ROLE_NAMES),
        "scale": list(SCALE),
        "ink": INK.light,
        "quiet": QUIET.light,
        "page": PAGE.light,
    }
