"""`icl-mech demo`: the information flow of three offline tasks, as one page."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from icl_mech.cli.console import say, waiting
from icl_mech.cli.interrupted import interruptible
from icl_mech.results import PAGE, claimed

DEMO_TASKS = ("reviews", "headlines", "questions")


def demo(
    out: Annotated[
        Path | None, typer.Option(help="New folder for the page (default: runs/demo, -2, -3, ...).")
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Prompts per task.")] = 36,
    seed: Annotated[int, typer.Option(min=0, help="Seed of texts and demonstrations.")] = 0,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace what was saved in the folder before; files of your own stay.",
        ),
    ] = False,
) -> None:
    """Show the information flow of three offline tasks in the offline model."""
    with (
        interruptible("Nothing was written; the same command begins anew."),
        claimed(out, "runs/demo", overwrite=overwrite, files=[PAGE]) as place,
    ):
        place.replace(PAGE, _demo_page(n, seed))
        say(f"Page: {place.path / PAGE}")


def _demo_page(n: int, seed: int) -> bytes:
    from icl_mech import analyze, build_prompts, load_model, load_task
    from icl_mech.reports import page_bytes

    with waiting(
        "Loading SmolLM2-135M-Instruct (the first time takes half a minute) ...", quiet=False
    ):
        model = load_model()
    pages = []
    lines = []
    for number, name in enumerate(DEMO_TASKS):
        prompts = build_prompts(
            load_task(name), model, shots=1, n=n, seed=seed, demonstrations="per_prompt"
        )
        report = analyze(model, prompts, maps=int(number == 0), progress=True)
        page = report.page()
        shown = [section for section in page.sections if section.key != "predictions"]
        pages.append(replace(page, sections=[section.of(name) for section in shown]))
        lines.append(
            f"{name:<10} label words above random tokens: into them, first third of layers "
            f"{_above(report, 'wp', 'first')}; from them to the target, last third "
            f"{_above(report, 'pq', 'last')}"
        )
    lead = (
        "Label words are anchors: in shallow layers more information flows into them than into random "
        "tokens in their place, in deep layers more from them to the target – and more than in networks of "
        "the same architecture that learned nothing. Differences of shares of a layer's saliency per edge, "
        "95 % intervals over prompts."
    )
    say(f"Information flow in SmolLM2-135M-Instruct, {n} prompts per task")
    for line in lines:
        say(line)
    origin = pages[0].origin
    return page_bytes(
        replace(
            pages[0],
            title=f"Information flow in SmolLM2-135M-Instruct ({n} prompts per task)",
            kicker=f"Three tasks: {', '.join(DEMO_TASKS)}",
            lead=lead,
            origin=replace(
                origin,
                command=f"icl-mech demo --n {n} --seed {seed}",
                facts=[own for own in origin.facts if own.name not in ("Task", "Prompts")],
            ),
            sections=[section for page in pages for section in page.sections],
        )
    )


def _above(report: Any, score: str, third: str) -> str:
    """Label words above random tokens, and where one more untrained network would lie."""
    from icl_mech.studies.untrained import UntrainedFlow

    found = report.flow.above_null(score, third)
    if found is None:
        return "not measured"
    nulls = next((own for own in report.results.values() if isinstance(own, UntrainedFlow)), None)
    beside = "" if nulls is None else f" (untrained networks below {nulls.bound(third):.2g})"
    return f"{found[1]}{beside}"
