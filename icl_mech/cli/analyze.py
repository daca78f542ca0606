"""`icl-mech analyze`: a study of one model on one task."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import icl_mech as icl
from icl_mech.cli.console import in_options
from icl_mech.cli.inputs import Prompts, check_names, loaded_lens, own_measurements, total_of
from icl_mech.cli.job import Job, command_line
from icl_mech.cli.options import (
    ModelOptions,
    OutputOptions,
    OwnOptions,
    PromptOptions,
    RunOptions,
    TaskOptions,
    TextOptions,
    grouped,
    study_names,
)
from icl_mech.errors import RunError, near_matches
from icl_mech.names import is_address

if TYPE_CHECKING:
    from icl_mech.measurements import LogitLens
    from icl_mech.studies.study import Study

_STUDY = "Study"

STUDIES = ("label_words", "overthinking", "causal", "contextualise", "anchors", "default")
Loss = Literal["label", "prediction", "vocab", "next", "rest"]
Reduction = Literal["sum_then_abs", "abs_then_sum"]
HALF = 0.5
NULLS = "untrained_"
"""The names in studies and measurements, which are not imported just to print help."""


@grouped
def analyze(
    context: object,
    *,
    study: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_STUDY,
            help=f"{', '.join(STUDIES)}, or a custom study, my_module:MY_STUDY; without it, predictions "
            "and flow.",
            autocompletion=study_names,
        ),
    ] = None,
    loss: Annotated[
        Loss | None,
        typer.Option(rich_help_panel=_STUDY, help="Loss for the saliency; default label."),
    ] = None,
    reduction: Annotated[
        Reduction,
        typer.Option(
            rich_help_panel=_STUDY,
            help="Take the absolute value after or before the sum over heads.",
        ),
    ] = "sum_then_abs",
    nulls: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_STUDY,
            min=0,
            help="Number of untrained (randomly initialised) networks that claims must beat, "
            "0 or at least 2; default 3 for models up to 4 GiB.",
        ),
    ] = None,
    threshold: Annotated[
        float,
        typer.Option(
            rich_help_panel=_STUDY,
            help="Overthinking study: fraction of the final gap that is reached from the "
            "critical layer on.",
        ),
    ] = HALF,
    until: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_STUDY,
            metavar="WIDTH|EFFECT=WIDTH,...",
            help="Add prompts until the half-width of the 95 % interval is at most this, for "
            "the effects of the first claim or for named ones.",
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_STUDY,
            min=1,
            help="Maximum number of prompts measured at once with --until; default four times "
            "the initial number.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_STUDY,
            metavar="TIME",
            help="Measure as many of the prompts, then untrained networks, as fit into a time such as "
            "'2 min'; a note says what was left out.",
        ),
    ] = None,
    lens: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_STUDY,
            metavar="FOLDER",
            help="Also read the layers through a fitted lens, a saved or a published one.",
        ),
    ] = None,
    own: OwnOptions,
    model: ModelOptions,
    task: TaskOptions,
    texts: TextOptions,
    prompts: PromptOptions,
    run: RunOptions,
    output: OutputOptions,
) -> None:
    """Analyse one model on one task; write results and an HTML report to a folder."""
    check_names(model, task if texts.texts is None else None)
    chosen, besides = _chosen(study), own_measurements(own)
    from icl_mech.studies.budget import check_budget
    from icl_mech.studies.until import goal_of
    from icl_mech.studies.untrained import check_nulls

    width = _width(until) if until is not None else None
    options = {"until": "--until", "most": "--most", "nulls": "--nulls", "budget": "--budget"}
    with in_options(options):
        check_nulls(nulls)
        check_budget(budget, until)
        goal_of(chosen, besides, width, most)
    if budget is not None and output.resume:
        raise typer.BadParameter(
            "the number of prompts depends on the time, so there is nothing to continue; leave out --resume.",
            param_hint="--budget",
        )
    if prompts.shots == 0 or total_of(prompts) == 0:
        raise typer.BadParameter(
            "a study needs at least one demonstration per class.",
            param_hint="--total" if prompts.shots is None else "--shots",
        )
    if chosen.takes == "texts" and texts.texts is None:
        raise typer.BadParameter(
            f"the study {chosen.name} needs a file of texts.", param_hint="--texts"
        )
    if lens is not None and chosen.pair:
        raise typer.BadParameter(
            f"the study {chosen.name} compares true with false demonstrations and reads layers by the logit lens; "
            "use icl-mech measure layer-accuracy --lens, or early-exit --lens.",
            param_hint="--lens",
        )
    if chosen.name == "default" and prompts.demonstrations is None:
        # Flow needs no shared demonstrations; without them its interval holds beyond a single set.
        prompts = replace(prompts, demonstrations="per_prompt")

    def work(loaded: Any, built: Prompts, options: dict[str, Any]) -> "icl.Analysis":
        return icl.analyze(
            loaded,
            built,
            study=study,
            measurements=[*besides, *_through(lens, loaded)],
            loss=loss,
            reduction=reduction,
            nulls=nulls,
            threshold=threshold,
            until=width,
            most=most,
            budget=budget,
            seed=prompts.seed,
            **options,
        )

    job = Job(model, task, prompts, run, output, command_line(context), texts)
    parts = [*chosen.parts, *(given.name for given in besides), *(["logit_lens"] if lens else [])]
    job.do(
        work,
        pair=chosen.pair,
        name="analysis",
        parts=[*parts, *(f"{NULLS}{name}" for name in parts)],
    )


def _through(folder: Path | None, model: object) -> "list[LogitLens]":
    """The readout of the layers through the lens in a folder."""
    if folder is None:
        return []
    from icl_mech.measurements import LogitLens

    return [LogitLens(lens=loaded_lens(folder, model))]


def _width(text: str) -> float | dict[str, float]:
    try:
        widths = {
            name.strip(): float(half)
            for name, _, half in (part.rpartition("=") for part in text.split(","))
        }
    except ValueError:
        why = f"{text!r} is not a half-width; write a number such as 0.1, or EFFECT=0.1,OTHER=0.2."
        raise typer.BadParameter(why, param_hint="--until") from None
    if "" in widths and "," in text:
        why = (
            f"{text!r} mixes a width for all effects with widths for named ones; give a single "
            "number, or a name for every width."
        )
        raise typer.BadParameter(why, param_hint="--until")
    return widths.get("", widths)


def _chosen(study: str | None) -> "Study":
    if study is not None and study not in STUDIES and not is_address(study):
        why = f"study={study!r} is not a known study. {near_matches(study, STUDIES)}"
        raise typer.BadParameter(why, param_hint="--study")
    from icl_mech.studies.study import study_named

    try:
        return study_named(study)
    except RunError as error:
        raise typer.BadParameter(str(error), param_hint="--study") from error
