"""`icl-mech analyze`: a study of one model on one task."""

from dataclasses import replace
from typing import Annotated, Any

import typer

import icl_mech as icl
from icl_mech.cli.command_line import command_line
from icl_mech.cli.grouping import grouped
from icl_mech.cli.inputs import Prompts
from icl_mech.cli.job import Job
from icl_mech.cli.options import (
    ModelOptions,
    OutputOptions,
    PromptOptions,
    RunOptions,
    TaskOptions,
    TextOptions,
)
from icl_mech.engine import Loss
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.studies import Study
from icl_mech.studies.analysis import PARTS
from icl_mech.studies.anchors import ORDER as ANCHORS
from icl_mech.studies.causal import ORDER as CAUSAL
from icl_mech.studies.names import PAIRED

_STUDY = "Study"


@grouped
def analyze(
    context: Any,
    *,
    study: Annotated[
        Study | None,
        typer.Option(rich_help_panel=_STUDY, help="Which one; without it predictions and flow."),
    ] = None,
    loss: Annotated[
        Loss | None,
        typer.Option(rich_help_panel=_STUDY, help="Of the saliency; default label."),
    ] = None,
    reduction: Annotated[
        Reduction,
        typer.Option(
            rich_help_panel=_STUDY, help="Absolute value after or before the sum over heads."
        ),
    ] = "sum_then_abs",
    nulls: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_STUDY,
            min=0,
            help="Untrained networks that claims must beat; default 3 of models up to 4 GiB.",
        ),
    ] = None,
    model: ModelOptions,
    task: TaskOptions,
    texts: TextOptions,
    prompts: PromptOptions,
    run: RunOptions,
    output: OutputOptions,
) -> None:
    """Analyse one model on one task; write results and a page into a folder."""
    if prompts.shots < 1:
        raise typer.BadParameter(
            "a study needs demonstrations, one per class at least.", param_hint="--shots"
        )

    if study == "anchors" and texts.texts is None:
        raise typer.BadParameter(
            "the study of anchors needs a file of texts.", param_hint="--texts"
        )

    if study is None and prompts.demonstrations is None:
        # Flow needs no shared demonstrations: its interval then holds beyond one set of them.
        prompts = replace(prompts, demonstrations="per_prompt")

    def work(loaded: Any, built: Prompts, options: dict[str, Any]) -> icl.Analysis:
        return icl.analyze(
            loaded, built, study=study, loss=loss, reduction=reduction, nulls=nulls,
            seed=prompts.seed, **options,
        )  # fmt: skip

    job = Job(model, task, prompts, run, output, command_line(context), texts)
    parts = (*PARTS, *ANCHORS, *CAUSAL)
    job.do(work, pair=study in PAIRED, name="analysis", parts=parts)
