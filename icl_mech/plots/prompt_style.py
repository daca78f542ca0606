"""The style sheet of prompts shown as text: light and dark, and marks beside every colour."""

from collections.abc import Mapping

from icl_mech.plots.levels import level_colours
from icl_mech.plots.style import FONT, GRID, INK, LOOKS, PAGE, PANEL, QUIET, RULE

ROLE_STYLES: Mapping[str, str] = {
    "bos": "template",
    "narrative": "template",
    "format": "template",
    "demo_text": "text",
    "label_word": "label",
    "query_text": "query",
    "target": "target",
    "unknown": "unknown",
    "span": "unknown",
}
"""How tokens of a role are shown; the names of CSS classes after `icl-`."""

ROLE_NAMES: Mapping[str, str] = {
    "bos": "beginning of text",
    "narrative": "introduction",
    "format": "template",
    "demo_text": "demonstration text",
    "label_word": "label word",
    "query_text": "query text",
    "target": "target (the answer is read here)",
    "unknown": "other token",
    "span": "text in a span",
}
"""Roles in words."""

_RULES = """
.icl-prompt{background:var(--icl-page);color:var(--icl-ink);font:14px/1.75 FONT;padding:.6em .8em;
border:1px solid var(--icl-grid);border-radius:4px;max-width:60em;overflow-wrap:anywhere}
.icl-body{white-space:pre-wrap}
.icl-t{color:var(--icl-tone);unicode-bidi:isolate;border-radius:2px}
.icl-t.icl-text{--icl-tone:var(--icl-text)}
.icl-t.icl-template{--icl-tone:var(--icl-other);font-style:italic}
.icl-t.icl-label{--icl-tone:var(--icl-label);font-weight:700;outline:1px solid var(--icl-edge);
background:var(--icl-panel);--icl-edge:var(--icl-label)}
.icl-t.icl-query{--icl-tone:var(--icl-query);text-decoration:underline}
.icl-t.icl-target{--icl-tone:var(--icl-page);background:var(--icl-target);font-weight:700;
padding:0 .15em;outline:2px solid var(--icl-target)}
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
"""Front ends and pages that say they are dark."""

_LIGHT = ('[data-jp-theme-light="true"]', '[data-theme="light"]', ".vscode-light")
"""Those that say they are light, whatever the system prefers."""


def style(*, levels: bool = True) -> str:
    """The style sheet.

    Args:
        levels: With the colours of numbers.
    """
    rules = _RULES.replace("FONT", FONT)
    if levels:
        rules += _LEVEL_RULES
        for kind in "vs":
            for level in range(len(level_colours(signed=False, dark=False))):
                name = f"{kind}{level}"
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
        **looks, "page": PAGE, "panel": PANEL, "ink": INK, "quiet": QUIET, "grid": GRID, "rule": RULE
    }  # fmt: skip
    parts = {f"--icl-{name}": own.dark if dark else own.light for name, own in named.items()}
    if levels:
        for kind in "vs":
            for level, (ground, ink) in enumerate(level_colours(signed=kind == "s", dark=dark)):
                parts |= {f"--icl-{kind}{level}": ground, f"--icl-on-{kind}{level}": ink}
    return ";".join(f"{name}:{value}" for name, value in parts.items())
