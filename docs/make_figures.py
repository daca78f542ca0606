"""Makes every number and picture of the site and of the README from real runs.

    python docs/make_figures.py [--runs FOLDER] [--thumbnails] [--gallery]

Runs that FOLDER (default: runs/docs) does not contain are made first, with the commands shown on the
pages; this takes about ten minutes on two cores. The script writes `docs/numbers.json`, which supplies
the numbers on the pages, the figures in `docs/figures`, and the pictures in `docs/images`. Pictures need
kaleido and a Chromium. With --thumbnails it renews only the pictures in the list of notebooks, from
the stored notebooks; with --gallery only the figures made for the gallery and the guides
(`docs/gallery_figures.py`), which needs neither.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gallery_figures
import guide_numbers
import plotly.graph_objects as go

import icl_mech as icl
from icl_mech.measurements.reweighting.evaluate_reweighting import ReweightingResult
from icl_mech.measurements.saliency.flow import FlowScores

DOCS = Path(__file__).parent
COMMANDS = {
    "reviews": "icl-mech analyze --task reviews --shots 1 --n 50 --demonstrations per_prompt",
    "lw": "icl-mech analyze --study label_words --task headlines --n 12",
    "ot": "icl-mech analyze --study overthinking --task headlines --shots 2 --n 12",
}

IN_GUIDES = {
    "lw": ("saliency_maps", "flow", "isolation", "extraction", "compare_compression", "confusion"),
    "ot": ("context_accuracy", "layer_accuracy", "early_exit", "late_ablation", "head_scores", "matching_by_layer",
           "false_induction", "ablation"),
}  # fmt: skip
"""Figures of the guides to the papers, by run: results that they draw."""


def analysis(folder: Path, name: str) -> icl.Analysis:
    """The run of that name, made if it does not exist."""
    own = folder / name
    if not (own / "analysis.json").is_file():
        command = f"{COMMANDS[name]} --out {own}"
        subprocess.run([sys.executable, "-m", *shlex.split(command.replace("icl-mech", "icl_mech"))],
                       check=True)  # fmt: skip
    return icl.Analysis.load(own)


def reweighting(folder: Path) -> ReweightingResult:
    """Table 1 as in the guide: factors learned on other prompts than those of the test."""
    own = folder / "reweighting"
    if not (own / "result.json").is_file():
        model, task = icl.load_model(), icl.load_task("headlines")
        train = icl.build_prompts(task, model, shots=1, n=16, seed=0, split="train")
        test = icl.build_prompts(task, model, shots=1, n=12, seed=0)
        icl.evaluate_reweighting(model, icl.fit_reweighting(model, train), test).save(own)
    return ReweightingResult.load(own)


def seeds(folder: Path, count: int = 5) -> list[FlowScores]:
    """Flow scores of other prompts and demonstrations, as many as in the run on the home page."""
    flows = []
    for seed in range(count):
        own = folder / f"seed-{seed}"
        if not (own / "result.json").is_file():
            model = icl.load_model()
            prompts = icl.build_prompts("reviews", model, shots=1, n=50, seed=seed)
            icl.flow_scores(model, prompts, draws=1).save(own)
        flows.append(FlowScores.load(own))
    return flows


def guides(runs: Mapping[str, icl.Analysis], folder: Path) -> None:
    """Figures of the guides to the papers, of the runs whose numbers stand there."""
    folder.mkdir(exist_ok=True)
    for run, names in IN_GUIDES.items():
        for name in names:
            text = runs[run][name].plot().to_json()
            (folder / f"{run}_{name}.json").write_text(text, encoding="utf-8")


def picture(figure: go.Figure, path: Path, width: int = 840, height: int = 460) -> None:
    """A figure as PNG on white, at twice the size for sharp screens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = go.Figure(figure).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    plain.write_image(path, width=width, height=height, scale=2)


def thumbnails(folder: Path) -> None:
    """The first plotly figure of each notebook, for the list of notebooks."""
    for path in sorted((DOCS.parent / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            datas = [output.get("data", {}) for output in cell.get("outputs", ())]
            figures = [data["application/vnd.plotly.v1+json"] for data in datas
                       if "application/vnd.plotly.v1+json" in data]  # fmt: skip
            if figures:
                kept = {name: figures[0][name] for name in ("data", "layout")}
                picture(go.Figure(kept), folder / f"{path.stem}.png", 700, 420)
                break


def main() -> None:
    """Write numbers, figures and pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/docs"))
    parser.add_argument("--thumbnails", action="store_true")
    parser.add_argument("--gallery", action="store_true")
    given = parser.parse_args()
    folder = given.runs
    if not given.thumbnails:
        gallery_figures.write(folder, DOCS / "figures")
        if given.gallery:
            return
    thumbnails(DOCS / "images" / "notebooks")
    if given.thumbnails:
        return
    runs = {name: analysis(folder, name) for name in COMMANDS}
    numbers: dict[str, Any] = {
        **{
            f"{name}_command_block": f"```bash\n{command}\n```"
            for name, command in COMMANDS.items()
        },
        "reviews": guide_numbers.of_flow(runs["reviews"]) | guide_numbers.beyond(runs["reviews"]),
        "seeds": guide_numbers.over_seeds(seeds(folder)),
        "lw": guide_numbers.label_words(runs["lw"], reweighting(folder)),
        "lw_isolation": guide_numbers.isolation_table(runs["lw"]),
        "lw_compression": guide_numbers.compression_table(runs["lw"]),
        "ot": guide_numbers.overthinking(runs["ot"]),
        "ot_zeroed": guide_numbers.zeroed_rows(runs["ot"]),
    }
    text = json.dumps(numbers, indent=1, ensure_ascii=False)
    (DOCS / "numbers.json").write_text(text + "\n", encoding="utf-8")
    guides(runs, DOCS / "figures" / "guides")
    flow = go.Figure(runs["reviews"].flow.plot())
    flow.update_layout(title=None, margin={"t": 50})  # the text around it says this
    (DOCS / "figures" / "flow.json").write_text(flow.to_json(), encoding="utf-8")
    picture(flow, DOCS / "images" / "flow_reviews.png")
    beside = go.Figure(runs["reviews"].untrained.plot())
    beside.update_layout(title=None, margin={"t": 50})
    picture(beside, DOCS / "images" / "untrained_reviews.png", 1000, 400)


if __name__ == "__main__":
    main()
