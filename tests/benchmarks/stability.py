"""Over what heads, critical layers and claims hold on the offline model.

    python -m tests.benchmarks.stability OUT.json [--model smollm2-135m]

Each cell (task, measurement) is written when it is done; those that are there are not made again. The table of
docs/results/stability.md is printed, and written with --write.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import icl_mech as icl
from icl_mech.measurements import Stability
from icl_mech.measurements.stability.agreement import Line
from icl_mech.measurements.stability.variants import TEMPLATES
from icl_mech.results.wording import listed, said, told

TASKS = ("headlines", "questions")
WORDS = ("seed", "template", "label set")
CELLS: dict[str, tuple[int, dict[str, Any]]] = {
    "head_scores": (32, {"over": (*WORDS, "subset")}),
    "layer_accuracy": (16, {"over": WORDS}),
    "flow": (8, {"over": WORDS, "templates": TEMPLATES[:2]}),
    "head_mediation": (16, {"over": ("seed",)}),
}
"""What is repeated, on how many prompts and over which axes; less of what costs more."""

PLACE = Path("docs") / "results" / "stability.md"

HEAD = (
    "| task | conclusion | over | agreement between runs | by chance | p | holds | heads or layers |",
    "|---|---|---|---|---|---|---|---|",
)


def cell(model: Any, task: str, of: str) -> dict[str, Any]:
    """The lines of one measurement on one task."""
    n, variants = CELLS[of]
    measurement = Stability(of, **variants)
    start = time.process_time()
    if measurement.side == "false":
        data: Any = icl.build_prompt_pairs(task, model, shots=1, n=n)
    else:
        data = icl.build_prompts(task, model, shots=1, n=n)
    result = measurement(model, data, progress=False)
    return {"table": result.table, "seconds": time.process_time() - start, "n": n}


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


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cells = json.loads(options.out.read_text()) if options.out.exists() else {}
    model, end = None, time.monotonic() + 60 * options.minutes
    for of in CELLS:
        for task in TASKS:
            if f"{task} {of}" in cells or options.write or time.monotonic() > end:
                continue
            model = model or icl.load_model(options.model)
            cells[f"{task} {of}"] = cell(model, task, of)
            options.out.write_text(json.dumps(cells))
            print(task, of, round(cells[f"{task} {of}"]["seconds"]), flush=True)
    lines = [
        row(name.partition(" ")[0], Line.from_dict(entry))
        for name in sorted(cells)
        for entry in cells[name]["table"]
    ]
    text = "\n".join([*HEAD, *lines, ""])
    print(text)
    if options.write:
        PLACE.parent.mkdir(exist_ok=True)
        PLACE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
