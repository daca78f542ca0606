"""`icl-mech demo`: what demonstrations add on a task that the offline model does, and what goes through label words."""

from pathlib import Path
from typing import Annotated

import typer

from icl_mech.cli.console import interruptible, say, waiting

MODEL = "SmolLM2-135M-Instruct"
TASK = "past_tense"
SHOTS = 4

NEXT = f"""To go on:
  icl-mech explore --task {TASK}   # change a prompt or a layer by hand, in the browser
  icl-mech analyze --study label_words --task questions --budget "5 min"   # all measurements of the paper
  icl-mech prompts --task reviews   # what a prompt looks like to the model; a file of yours can take the task's place"""


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
    from icl_mech.studies import by_command
    from icl_mech.studies.demo import demo_study

    with (
        interruptible("Nothing was written; run the same command to start again."),
        claimed(out, "runs/demo", overwrite=overwrite, files=[PAGE]) as place,
    ):
        with waiting(f"Loading {MODEL} ...", quiet=False):
            model = load_model()
        prompts = build_prompts(
            TASK, model, shots=SHOTS, n=n, seed=seed, demonstrations="per_prompt"
        )
        with by_command(f"icl-mech demo --n {n} --seed {seed}"):
            page = analyze(model, prompts, study=demo_study(seed), progress=True).page()
        place.replace(PAGE, page_bytes(page))
        say(page.lead)
        say(f"Page: {place.path / PAGE}")
        say(NEXT)
