"""The style sheet of prompts shown as text: light and dark, with a non-colour cue for every colour."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from icl_mech.errors import ResultError
from icl_mech.plots.style import (
    FONT,
    GRID,
    INK,
    LOOKS,
    PAGE,
    PANEL,
    QUIET,
    RULE,
    SCALE,
    SCALE_DARK,
    SIGNED_SCALE,
    SIGNED_SCALE_DARK,
)

LEVELS = 20
"""The highest colour level; the lowest is 0."""


@dataclass(frozen=True)
class Scale:
    """The values that colour levels stand for.

    Attributes:
        low: Value of level 0.
        high: Value of the highest level.
        signed: Values are centred on 0, which is the middle level.
    """

    low: float
    high: float
    signed: bool = False

    @classmethod
    def of(
        cls, values: Sequence[float], low: float | None = None, high: float | None = None
    ) -> "Scale":
        """A scale from 0 to the largest value; symmetric around 0 if values are negative.

        Args:
            values: Values that are shown; NaN is ignored.
            low: Value of the lowest level, to override the default.
            high: Value of the highest level, to override the default.

        Raises:
            ResultError: `low` is not below `high`, or they are not finite numbers.
        """
        finite = [value for value in values if math.isfinite(value)]
        most = max((abs(value) for value in finite), default=0.0) or 1.0
        signed = low is None and any(value < 0 for value in finite)
        if signed:
            reach = most if high is None else high
            low, high = -reach, reach
        low = 0.0 if low is None else low
        high = (most if most > low else low + 1.0) if high is None else high
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ResultError(
                f"low={low} and high={high} are not a scale; give two finite numbers, low below high."
            )
        return cls(float(low), float(high), signed)

    def level(self, value: float) -> int | None:
        """Level of a value, None for NaN; values beyond the ends are clipped."""
        if math.isnan(value):
            return None
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(LEVELS * share)

    def beyond(self, values: Sequence[float]) -> int:
        """Number of values outside the scale."""
        return sum(value < self.low or value > self.high for value in values)

    def name(self, level: int) -> str:
        """CSS class of a level."""
        return f"icl-{'s' if self.signed else 'v'}{level}"


def level_colours(*, signed: bool, dark: bool) -> list[tuple[str, str]]:
    """Background and text colour of each level; the text colour has the higher contrast."""
    stops: tuple[str, ...]
    if signed:
        stops = SIGNED_SCALE_DARK if dark else SIGNED_SCALE
    else:
        stops = SCALE_DARK if dark else SCALE
    grounds = [_between(stops, level / LEVELS) for level in range(LEVELS + 1)]
    # Between black and white one always reaches 4.5 : 1.
    return [
        (ground, max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, ground)))
        for ground in grounds
    ]


def contrast(one: str, other: str) -> float:
    """Contrast of two colours by WCAG 2, 1 to 21."""
    low, high = sorted(_luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _rgb(colour: str) -> list[float]:
    return [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]


def _between(stops: Sequence[str], share: float) -> str:
    steps = list(pairwise(stops))
    place = min(int(share * len(steps)), len(steps) - 1)
    rest = share * len(steps) - place
    first, second = (_rgb(colour) for colour in steps[place])
    mixed = (a + (b - a) * rest for a, b in zip(first, second, strict=True))
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed)


ROLE_STYLES: Mapping[str, str] = {
    "bos": "template",
    "narrative": "template",
    "format": "template",
    "demo_text": "text",
    "rationale": "rationale",
    "label_word": "label",
    "query_text": "query",
    "target": "target",
    "unknown": "unknown",
    "span": "unknown",
}
"""Style of each role: the suffix of the CSS class after `icl-`."""

ROLE_NAMES: Mapping[str, str] = {
    "bos": "beginning of text",
    "narrative": "introduction",
    "format": "template",
    "demo_text": "demonstration text",
    "rationale": "rationale",
    "label_word": "label word",
    "query_text": "query text",
    "target": "target (the answer is read here)",
    "unknown": "other token",
    "span": "text in a span",
}
"""Names of the roles for readers."""

_RULES = """
.icl-prompt{background:var(--icl-page);color:var(--icl-ink);font:14px/1.75 FONT;padding:.6em .8em;
border:1px solid var(--icl-grid);border-radius:4px;max-width:60em;overflow-wrap:anywhere}
.icl-body{white-space:pre-wrap;unicode-bidi:plaintext}
.icl-t{color:var(--icl-tone);border-radius:2px}
.icl-t.icl-text{--icl-tone:var(--icl-text)}
.icl-t.icl-rationale{--icl-tone:var(--icl-text);text-decoration:underline dashed 1px}
.icl-t.icl-template{--icl-tone:var(--icl-other);font-style:italic}
.icl-t.icl-label{--icl-tone:var(--icl-label);font-weight:700;outline:1px solid var(--icl-edge);
background:var(--icl-panel);--icl-edge:var(--icl-label)}
.icl-t.icl-more{outline:0}
.icl-t.icl-query{--icl-tone:var(--icl-query);text-decoration:underline}
.icl-t.icl-target{--icl-tone:var(--icl-page);background:var(--icl-target);font-weight:700;
padding:0 .15em;outline:2px solid var(--icl-target)}
.icl-t.icl-shared{text-decoration:underline dotted}
.icl-t.icl-unknown{--icl-tone:var(--icl-ink)}
.icl-legend{display:flex;flex-wrap:wrap;gap:.2em 1.2em;margin-bottom:.5em;font-size:13px}
.icl-legend .icl-plain{--icl-tone:var(--icl-ink)}
.icl-legend .icl-target.icl-plain{background:none}
.icl-cut{display:block;color:var(--icl-quiet);border-block:1px dashed var(--icl-rule);
text-align:center;margin:.4em 0}
.icl-note{color:var(--icl-quiet);font-size:13px;margin:.4em 0 0;line-height:1.45}
.icl-prompt summary{cursor:pointer;padding:.25em 0}
.icl-prompt details>.icl-prompt{border:0;padding:.2em 0 .6em}
@media print{.icl-prompt *{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

_LEVEL_RULES = """
.icl-scale{display:flex;flex-wrap:wrap;gap:.2em .6em;align-items:center;margin-top:.6em;
font-size:13px}
.icl-step{display:inline-block;width:1.1em;height:.9em}
.icl-t[data-v].icl-more{padding-inline:.12em}
.icl-t.icl-nan{--icl-tone:var(--icl-quiet);background:repeating-linear-gradient(135deg,
var(--icl-grid) 0 2px,transparent 2px 6px)}
.icl-t[data-v].icl-label{--icl-edge:currentColor;outline-width:1.5px}
.icl-t[data-v].icl-target{outline:3px double currentColor;outline-offset:1px}
"""

_DARK = (
    '[data-jp-theme-light="false"] .icl-prompt',
    '[data-theme="dark"] .icl-prompt',
    ".vscode-dark .icl-prompt",
    "html[theme=dark] .icl-prompt",
)
"""Selectors of front ends and pages with a dark theme."""

_LIGHT = ('[data-jp-theme-light="true"]', '[data-theme="light"]', ".vscode-light")
"""Selectors of light themes, whatever the system prefers."""


def style(*, levels: bool = True) -> str:
    """The style sheet.

    Args:
        levels: Include the colours of numbers.
    """
    rules = _RULES.replace("FONT", FONT)
    if levels:
        rules += _LEVEL_RULES
        for prefix in "vs":
            for level in range(len(level_colours(signed=False, dark=False))):
                name = f"{prefix}{level}"
                rules += (
                    f".icl-{name}{{background:var(--icl-{name})!important;"
                    f"--icl-tone:var(--icl-on-{name})!important}}\n"
                )
    asked = ", ".join(_LIGHT)
    light, dark = (_variables(dark=dark, levels=levels) for dark in (False, True))
    return (
        f".icl-prompt{{{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not({asked}) body:not({asked}) .icl-prompt{{{dark}}}}}\n"
        f"{','.join(_DARK)}{{{dark}}}\n"
        f"@media print{{.icl-prompt.icl-prompt.icl-prompt{{{light}}}}}{rules}"
    )


def _variables(*, dark: bool, levels: bool) -> str:
    looks = {name: LOOKS[name] for name in ("text", "label", "other", "query", "target")}
    named = {
        **looks,
        "page": PAGE,
        "panel": PANEL,
        "ink": INK,
        "quiet": QUIET,
        "grid": GRID,
        "rule": RULE,
    }
    parts = {f"--icl-{name}": look.dark if dark else look.light for name, look in named.items()}
    if levels:
        for prefix in "vs":
            for level, (ground, ink) in enumerate(level_colours(signed=prefix == "s", dark=dark)):
                parts |= {f"--icl-{prefix}{level}": ground, f"--icl-on-{prefix}{level}": ink}
    return ";".join(f"{name}:{value}" for name, value in parts.items())
