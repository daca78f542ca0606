"""Over what heads, critical layers and claims hold on the offline model.

Called as `pages` says. Cells: task, measurement.
"""

from typing import Any

import icl_mech as icl
from icl_mech.measurements import Stability
from icl_mech.measurements.stability.agreement import Line
from icl_mech.measurements.stability.variants import TEMPLATES
from icl_mech.results.wording import listed, said, told
from tests.benchmarks.pages import TASKS, Cell, Kept, Page

WORDS = ("seed", "template", "label set")
CELLS: dict[str, tuple[float, dict[str, Any]]] = {
    "head_scores": (1, {"over": (*WORDS, "subset")}),
    "layer_accuracy": (0.5, {"over": WORDS}),
    "flow": (0.25, {"over": WORDS, "templates": TEMPLATES[:2]}),
    "head_mediation": (0.5, {"over": ("seed",)}),
}
"""What is repeated, on what fraction of the prompts and over which axes; less of what costs more."""

HEAD = (
    "| task | conclusion | over | agreement between runs | by chance | p | holds | heads or layers |",
    "|---|---|---|---|---|---|---|---|",
)


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


def row(task: str, line: Line) -> str:
    """One line of the table."""
    agreement = (
        "–" if line.value is None else told(line.value) if line.low is None else said(line.interval)
    )
    p = "–" if line.p is None else "< 0.001" if line.p < 0.001 else f"{line.p:.3f}"
    held = f"{line.held} of {len(line.names)}" if line.holds else "–"
    about = "–"
    if line.measure == "overlap":
        stands = f"; clear in most: {listed(line.clear)}" if line.clear else "; none clear in most"
        about = f"in most runs: {listed(line.heads) if line.heads else 'none'}{stands}"
    elif line.measure == "distance":
        about = ", ".join("none" if layer is None else f"{layer:g}" for layer in line.layers)
    chance = "–" if line.chance is None else told(line.chance)
    cells = (
        task,
        line.subject,
        f"{len(line.names)} {line.axis}",
        agreement,
        chance,
        p,
        held,
        about,
    )
    return f"| {' | '.join(cells)} |"


def table(kept: Kept) -> str:
    """The lines of all cells."""
    cells = sorted(kept.items())
    lines = [row(cell[0], Line.from_dict(line)) for cell, table in cells for line in table]
    return "\n".join([*HEAD, *lines, ""])


PAGE = Page(
    "stability",
    measured,
    table,
    n=32,
    cells=lambda seeds: [(task, name) for name in CELLS for task in TASKS],
)

if __name__ == "__main__":
    PAGE.run()
