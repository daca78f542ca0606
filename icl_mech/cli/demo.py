"""`icl-mech demo`: what demonstrations add on a task that the offline model does, and what goes through label words."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from icl_mech.cli.console import interruptible, say, waiting

if TYPE_CHECKING:
    from icl_mech.studies.study import Study

MODEL = "SmolLM2-135M-Instruct"
TASK = "past_tense"

NEXT = f"""To go on:
  icl-mech explore --task {TASK}                        # change a prompt or a layer by hand, in the browser
  icl-mech analyze --study label_words --task {TASK}    # everything in the paper; with --dry-run, what it costs
  icl-mech tasks                                          # other tasks, and how to use a file of your own"""


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for the HTML report (default: runs/demo, -2, -3, ...)."),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Number of prompts.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Seed of texts and demonstrations.")] = 0,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace earlier results in the folder; your own files stay."
        ),
    ] = False,
) -> None:
    """Show what demonstrations add on an offline task, and how much of it goes through label words."""
    from icl_mech import analyze, build_prompts, load_model
    from icl_mech.reports import page_bytes
    from icl_mech.results import PAGE, claimed

    with (
        interruptible("Nothing was written; run the same command to start again."),
        claimed(out, "runs/demo", overwrite=overwrite, files=[PAGE]) as place,
    ):
        with waiting(f"Loading {MODEL} ...", quiet=False):
            model = load_model()
        prompts = build_prompts(TASK, model, shots=4, n=n, seed=seed, demonstrations="per_prompt")
        run = analyze(model, prompts, study=_study(), seed=seed, progress=True)
        run.made["command"] = f"icl-mech demo --n {n} --seed {seed}"
        page = run.page()
        place.replace(PAGE, page_bytes(page))
        say(f"{page.title}\n{page.lead}")
        say(f"Page: {place.path / PAGE}")
        say(NEXT)


def _study() -> "Study":
    """Part of the study of label words: those of its claims that say how much of the answer goes through them."""
    from icl_mech.measurements import EdgeCuts, Gain
    from icl_mech.measurements.saliency.flow import Flow
    from icl_mech.measurements.predictions import Predict
    from icl_mech.studies.label_words import EXTRACTION, READING, Study

    return Study(
        "demo",
        [Predict(), Gain(), EdgeCuts("anchors", rows="target", draws=2), Flow()],
        claims=(READING, EXTRACTION),
        headline="How much of what demonstrations add to {model} on {task} goes through label words?",
        kicker="Demo · Wang et al. 2023, Label Words are Anchors",
        first=("gain", "edge_cuts"),
    )
