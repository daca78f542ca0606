"""`icl-mech demo`: what demonstrations add on three offline tasks, and how much of it goes through label words."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from icl_mech.cli.console import interruptible, say, waiting

MODEL = "SmolLM2-135M-Instruct"
DEMO_TASKS = ("questions", "headlines", "reviews")


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for the HTML report (default: runs/demo, -2, -3, ...)."),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Number of prompts per task.")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Seed of texts and demonstrations.")] = 0,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Replace earlier results in the folder; your own files stay."
        ),
    ] = False,
) -> None:
    """Show what demonstrations add on three offline tasks, and how much of it goes through label words."""
    from icl_mech.results import PAGE, claimed

    with (
        interruptible("Nothing was written; run the same command to start again."),
        claimed(out, "runs/demo", overwrite=overwrite, files=[PAGE]) as place,
    ):
        place.replace(PAGE, _demo_page(n, seed))
        say(f"Page: {place.path / PAGE}")


def _measured(n: int, seed: int) -> dict[str, Any]:
    """Flow, gain and attention knockouts of every task, by task name."""
    from icl_mech import analyze, build_prompts, load_model, load_task
    from icl_mech.measurements import EdgeCuts

    with waiting(f"Loading {MODEL} (the first time takes half a minute) ...", quiet=False):
        model = load_model()
    runs, lines = {}, []
    for number, name in enumerate(DEMO_TASKS):
        prompts = build_prompts(
            load_task(name), model, shots=1, n=n, seed=seed, demonstrations="per_prompt"
        )
        cuts = EdgeCuts("anchors", rows="target", draws=2, seed=seed)
        how: dict[str, Any] = {"maps": int(number == 0), "progress": True, "nulls": 0}
        runs[name] = report = analyze(model, prompts, measurements=[cuts], **how)
        lines.append(f"{name:<10} {report['gain'].summary()}")
    say(f"What demonstrations add to {MODEL}, {n} prompts per task")
    say("\n".join(lines))
    return runs


def _demo_page(n: int, seed: int) -> bytes:
    from icl_mech.reports import page_bytes
    from icl_mech.studies.competence import ABLE, ADDS
    from icl_mech.studies.label_words import EXTRACTION, READING
    from icl_mech.studies.pages import levels
    from icl_mech.sweeps import Sweep
    from icl_mech.sweeps.compare import NESTED, findings, lead, matrix
    from icl_mech.sweeps.result import item_of
    from icl_mech.sweeps.sections import sections
    from icl_mech.sweeps.verdicts import among_all, by_model

    runs = _measured(n, seed)
    analyses = {replace(item_of(analysis), model=MODEL): analysis for analysis in runs.values()}
    sweep = Sweep([*analyses], analyses={item.key: analysis for item, analysis in analyses.items()})
    able = list(by_model(sweep, ABLE))
    asked = [*able, *by_model(sweep, ADDS)]
    judged = among_all(
        [verdict for claim in (READING, EXTRACTION) for verdict in by_model(sweep, claim)]
    )
    first, *_ = pages = [analysis.page() for analysis in runs.values()]
    means = [
        replace(
            section,
            sentence="Each panel is one task and shows how strong each path looks; the claims "
            "above judge how much of the answer goes through it.",
        )
        for section in sections(sweep).sections
        if section.key == "flow-tasks"
    ]
    details = [
        replace(section, first=False).of(name)
        for name, page in zip(runs, pages, strict=True)
        for section in page.sections
        if section.key != "predictions"
    ]
    return page_bytes(
        replace(
            first,
            title=f"How much of what demonstrations add to {MODEL} goes through label words?",
            kicker="Demo · Wang et al. 2023, Label Words are Anchors",
            about=f"{n} prompts per task",
            lead=lead(able, judged),
            matrix=matrix([*asked, *judged]),
            origin=replace(
                first.origin,
                findings=findings([*asked, *judged]),
                command=f"icl-mech demo --n {n} --seed {seed}",
                facts=[fact for fact in first.origin.facts if fact.name not in ("Task", "Prompts")],
                limits=[NESTED, *first.origin.limits[1:]],
            ),
            sections=levels([*means, *details], [f"{DEMO_TASKS[0]}-edge_cuts", "flow-tasks"]),
        )
    )
