"""Command line: `icl-mech demo | analyze | models | tasks`.

A thin layer over the Python functions of the same names; every option means what the
argument of that name means there.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from icl_mech.errors import IclMechError, TaskError
from icl_mech.tasks import known_task, known_tasks, load_task

app = typer.Typer(
    help="How does a language model use its in-context demonstrations?",
    no_args_is_help=True,
    add_completion=False,
)
console = Console()

Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Replace what was saved in the folder before; files of your own stay.",
    ),
]

DEMO_TASKS = ("reviews", "headlines", "questions")


@app.command()
def demo(
    out: Annotated[
        Path | None, typer.Option(help="New folder for the page (default: runs/demo, -2, -3, ...).")
    ] = None,
    n: Annotated[int, typer.Option(help="Prompts per task.")] = 36,
    seed: Annotated[int, typer.Option(help="Seed of texts and demonstrations.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Show the information flow of three offline tasks in the offline model."""
    from icl_mech.results import PAGE, claimed

    with claimed(out, "runs/demo", overwrite=overwrite, files=[PAGE]) as place:
        place.replace(PAGE, _demo_page(n, seed))
        print(f"Page: {place.path / PAGE}")


def _demo_page(n: int, seed: int) -> bytes:
    from icl_mech import analyze, build_prompts, load_model
    from icl_mech.reports import Section, page_bytes

    with console.status("Loading SmolLM2-135M-Instruct (the first time takes half a minute) ..."):
        model = load_model()
    sections = []
    lines = []
    for number, name in enumerate(DEMO_TASKS):
        prompts = build_prompts(
            load_task(name), model, shots=1, n=n, seed=seed, demonstrations="per_prompt"
        )
        report = analyze(model, prompts, maps=int(number == 0), progress=True)
        for section in report.sections():
            if section.name != report.predictions.page_title:
                title = f"{name}: {section.name}"
                sections.append(
                    Section(title, section.sentence, section.figure, section.provenance)
                )
        lines.append(
            f"{name:<10} S_wp - S_pq, first third of layers: {report.flow.difference('first')}, "
            f"last third: {report.flow.difference('last')}"
        )
    lead = (
        "Label words are anchors: in shallow layers information flows from the texts to the label "
        "words (S_wp leads), in deep layers from the label words to the target (S_pq leads). "
        "Shares of a layer's saliency per edge, 95 % intervals over prompts."
    )
    console.print(f"Information flow in SmolLM2-135M-Instruct, {n} prompts per task", style="bold")
    for line in lines:
        print(line)
    title = f"Information flow in SmolLM2-135M-Instruct ({n} prompts per task)"
    return page_bytes(title, sections, lead=lead)


@app.command()
def analyze(
    model: Annotated[str, typer.Option(help="Known name, hub id, folder or .gguf file.")] = (
        "smollm2-135m"
    ),
    task: Annotated[
        str, typer.Option(help="Known task, CSV/JSONL file or folder, or owner/name on the hub.")
    ] = "reviews",
    out: Annotated[
        Path | None,
        typer.Option(help="New folder for results and page (default: runs/analysis, -2, -3, ...)."),
    ] = None,
    overwrite: Overwrite = False,
    study: Annotated[
        str | None,
        typer.Option(help="label_words or overthinking; without it predictions and flow."),
    ] = None,
    shots: Annotated[int, typer.Option(help="Demonstrations per class.")] = 1,
    n: Annotated[int, typer.Option(help="Prompts.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of texts and demonstrations.")] = 0,
    demonstrations: Annotated[
        str | None,
        typer.Option(help="shared (default) or per_prompt (default of the overthinking study)."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Label setting of the demonstrations; for overthinking of the false ones."
        ),
    ] = None,
    template: Annotated[
        str | None, typer.Option(help=r"For files: 'Review: {text}\nSentiment:{label}' or a task.")
    ] = None,
    label_words: Annotated[
        str | None, typer.Option(help="For files: label words in class order, comma-separated.")
    ] = None,
    text_column: Annotated[str, typer.Option(help="For your own data.")] = "text",
    label_column: Annotated[str, typer.Option(help="For your own data.")] = "label",
    label_map: Annotated[
        str | None,
        typer.Option(help="Label words of the column's values: pos=Positive,neg=Negative"),
    ] = None,
    labels_as: Annotated[
        str | None, typer.Option(help="names or indices, if label words are numbers.")
    ] = None,
    train_split: Annotated[str | None, typer.Option(help="For data of the hub.")] = None,
    test_split: Annotated[str | None, typer.Option(help="For data of the hub.")] = None,
    config: Annotated[str | None, typer.Option(help="For data of the hub.")] = None,
    overlap: Annotated[
        str, typer.Option(help="Texts in training and test: avoid, keep or refuse.")
    ] = "avoid",
    loss: Annotated[str | None, typer.Option(help="label, prediction or vocab.")] = None,
    reduction: Annotated[str, typer.Option(help="sum_then_abs or abs_then_sum.")] = "sum_then_abs",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
) -> None:
    """Analyse one model on one task; writes results and a page into a folder."""
    import icl_mech as icl
    from icl_mech.results import PAGE, claimed, paths_of
    from icl_mech.studies.analysis import PARTS

    files = paths_of(PARTS, page=True)
    with claimed(out, "runs/analysis", overwrite=overwrite, files=files) as place:
        # Entering it proves, before minutes of work, that it can be written.
        chosen = load_task(
            task,
            template=template.replace("\\n", "\n") if template else None,
            labels=_words(label_words) if label_words else None,
            text_column=text_column,
            label_column=label_column,
            label_map=_pairs(label_map) if label_map else None,
            labels_as=labels_as,  # type: ignore[arg-type]
            train_split=train_split,
            test_split=test_split,
            config=config,
            overlap=overlap,  # type: ignore[arg-type]
        )
        with console.status(f"Loading {model} ..."):
            loaded = icl.load_model(model, device=device, dtype=dtype)
        options: dict[str, Any] = {"shots": shots, "n": n, "seed": seed}
        prompts: Any
        if study == "overthinking":
            prompts = icl.build_prompt_pairs(
                chosen, loaded, demonstrations=demonstrations or "per_prompt",
                false_labels=labels or "permuted", **options,  # type: ignore[arg-type]
            )  # fmt: skip
        else:
            prompts = icl.build_prompts(
                chosen, loaded, demonstrations=demonstrations or "shared",  # type: ignore[arg-type]
                labels=labels or "correct", **options,  # type: ignore[arg-type]
            )  # fmt: skip
        report = icl.analyze(
            loaded, prompts, study=study, loss=loss, reduction=reduction,  # type: ignore[arg-type]
            seed=seed, progress=True,
        )  # fmt: skip
        report.save_into(place, page=True)
    print(report.summary())
    print(f"Results: {place.path}")
    print(f"Page: {place.path / PAGE}")


def _words(words: str) -> list[str]:
    return [word.strip() for word in words.split(",")]


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise TaskError(f"--label-map {text!r}; write value=Label word, separated by commas.")
    return {value.strip(): word.strip() for value, _, word in pairs}


@app.command()
def models() -> None:
    """List the models known by name."""
    from icl_mech.models import known_models

    table = Table("name", "parameters", Column("from", overflow="fold"), "note", box=None)
    for known in known_models():
        table.add_row(known.name, known.parameters, known.hub_id, known.note)
    console.print(table)
    console.print("Any other hub id, local folder or .gguf file works too.")


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(help="Show one task's template.")] = None,
) -> None:
    """List the tasks known by name."""
    if name is not None:
        known = known_task(name)
        for number, form in enumerate(known.formats):
            if len(known.formats) > 1:
                print(f"\nformat {number}" + (f" (fault: {form.fault})" if form.fault else ""))
            if form.template.narrative:
                print(form.template.narrative + "\n")
            print(form.template.pattern)
            print("labels: " + ", ".join(form.labels))
        return
    table = Table(
        Column("name", no_wrap=True), "classes", Column("data", overflow="fold"), "note", box=None
    )
    for task in known_tasks():
        source = "offline" if task.hub is None else f"hub: {task.hub.path}"
        table.add_row(task.name, str(len(task.labels)), source, task.note)
    console.print(table)


def main() -> None:
    """Run the command line; errors of ours are one red line and exit code 1."""
    try:
        app()
    except IclMechError as error:
        # Paths and lists in a message hold brackets, which are not rich's markup.
        Console(stderr=True).print(
            f"[red]Error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
