"""Over what heads, critical layers and claims hold on the offline model.

Called as `pages` says. Cells: task, measurement.
"""

from typing import Any

import icl_mech as icl
from icl_mech.measurements import Stability
from icl_mech.measurements.stability.agreement import Line
from icl_mech.measurements.stability.variants import TEMPLATES
from icl_mech.results.wording import said, told
from tests.benchmarks.pages import TASKS, Cell, Kept, Page

WORDS = ("seed", "template", "label set")
CELLS: dict[str, tuple[float, dict[str, Any]]] = {
    "head_scores": (1, {"over": (*WORDS, "subset")}),
    "layer_accuracy": (0.5, {"over": WORDS}),
    "flow": (0.25, {"over": WORDS, "templates": TEMPLATES[:2]}),
    "head_mediation": (0.5, {"over": ("seed",)}),
}
"""What is repeated, on what fraction of the prompts and over which axes; less of what costs more."""

CLAIMS = {
    "flow": "label words exceed random tokens in the flow",
    "layer_accuracy": "false demonstrations lower accuracy",
    "head_mediation": "some head raises the right answer",
    "head_scores": "some head matches prefixes",
}


def measured(model: Any, cell: Cell, n: int, kept: Kept) -> list[dict[str, Any]]:
    """The lines of one measurement on one task."""
    task, name = cell
    share, variants = CELLS[name]
    n, measurement = int(share * n), Stability(name, **variants)
    if measurement.side == "false":
        data: Any = icl.build_prompt_pairs(task, model, shots=1, n=n)
    else:
        data = icl.build_prompts(task, model, shots=1, n=n)
    return measurement(model, data, progress=False).table


def heads(lines: list[Line]) -> str:
    """A row of the table of heads: overlap of the top heads and rank correlation of all."""
    by_measure = {line.measure: line for line in lines}
    top, ranking = by_measure["overlap"], by_measure["correlation"]
    p = "< .001" if top.p is not None and top.p < 0.001 else f"{top.p:.3f}"
    named = ", ".join(f"**{head}**" if head in top.clear else head for head in top.heads)
    cells = (
        f"{len(top.names)} {top.axis}",
        *(said(top.interval), told(top.chance), p, f"{top.held} of {len(top.names)}"),
        *(named or "none", said(ranking.interval), told(ranking.chance)),
    )
    return " | ".join(cells)


def counted(lines: list[Line], measure: str) -> str:
    """Values of each axis at which a claim holds, or at which there is a critical layer."""
    cells = []
    for line in lines:
        if line.measure == measure:
            there = [layer for layer in line.layers if layer is not None]
            held = line.held if measure == "claim" else len(there)
            cells.append(f"{held} of {len(line.names)} {line.axis}")
    return "; ".join(cells)


def table(kept: Kept) -> str:
    """Tables of heads, and of claims and critical layers."""
    ranked = [
        "| task | heads by | over | overlap of the top five | by chance | p | runs that agree | in most runs (bold: clear) | "
        "rank correlation of all | by chance |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    claims = ["| task | claim | holds over |", "|---|---|---|"]
    for (task, name), values in sorted(kept.items()):
        lines, words = [Line.from_dict(line) for line in values], str(name).replace("_", " ")
        for axis in dict.fromkeys(line.over for line in lines):
            along = [line for line in lines if line.over == axis]
            if {"overlap", "correlation"} <= {line.measure for line in along}:
                ranked.append(f"| `{task}` | {words} | {heads(along)} |")
        if holds := counted(lines, "claim"):
            claims.append(f"| `{task}` | {CLAIMS[str(name)]} (`{name}`) | {holds} |")
        if there := counted(lines, "distance"):
            claims.append(f"| `{task}` | there is a critical layer (`{name}`) | {there} |")
    return "\n".join([*ranked, "", *claims, ""])


PAGE = Page(
    "stability",
    measured,
    table,
    n=32,
    cells=lambda seeds: [(task, name) for name in CELLS for task in TASKS],
)

if __name__ == "__main__":
    PAGE.run()
