"""`analyze`: a study of one model on one set of prompts, as one `Analysis`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, get_type_hints

from icl_mech.checking import Count, Natural, conformed
from icl_mech.engine import Loss, Overall, Path
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import AnyMeasurement, Options
from icl_mech.measurements.running import Item, Prompts, check_data
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.metrics.layers import HALF
from icl_mech.models import adapt, exclusive
from icl_mech.names import is_address
from icl_mech.prompts import PromptBatch
from icl_mech.studies.analysis import Analysis
from icl_mech.studies.anchors import ANCHORS
from icl_mech.studies.bench import Bench, prepared_folder
from icl_mech.studies.budget import check_budget, in_budget, show_first
from icl_mech.studies.causal import CAUSAL
from icl_mech.studies.contextualise import CONTEXTUALISE
from icl_mech.studies.flow import FLOW
from icl_mech.studies.forecast import plannable
from icl_mech.studies.label_words import LABEL_WORDS
from icl_mech.studies.measuring import (
    Making,
    analysis_of,
    by_command,
    call_line,
    check_values,
    measure,
)
from icl_mech.studies.nulls import usual_nulls
from icl_mech.studies.overthinking import OVERTHINKING
from icl_mech.studies.study import Study, settle, study_named
from icl_mech.studies.until import goal_of, in_stages
from icl_mech.studies.untrained import check_nulls
from icl_mech.tasks import Task, as_task

__all__ = [
    "ANCHORS",
    "CAUSAL",
    "CONTEXTUALISE",
    "FLOW",
    "LABEL_WORDS",
    "OVERTHINKING",
    "Analysis",
    "Study",
    "analyze",
    "by_command",
    "measure",
]

settle(LABEL_WORDS, OVERTHINKING, CAUSAL, CONTEXTUALISE, ANCHORS, FLOW)

OPTIONS = ("maps", "reduction", "loss", "seed", "heads_from", "nulls", "threshold", "until", "most")
"""Options of studies; each study takes those it knows."""


@plannable
@exclusive
def analyze(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    study: Study | type[Study] | str | None = None,
    measurements: Sequence[AnyMeasurement[Any, Any]] = (),
    interventions: Sequence[Intervention] = (),
    maps: Natural = 1,
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
    seed: Natural = 0,
    heads_from: str | Task | PromptBatch | None = None,
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
    out: str | FilePath | None = None,
    nulls: Natural | None = None,
    threshold: float = HALF,
    until: float | int | Mapping[str, float | int] | None = None,
    most: Count | None = None,
    budget: str | float | int | None = None,
    wait: bool | int | float = True,
    plan: bool = False,
) -> Analysis:
    """Run a study on all prompts.

    * Default: predictions and information flow in one pass; maps of the first few prompts.
    * `label_words`: also isolation, extraction, compression, confusion and re-weighting.
    * `overthinking`: accuracy by layer and by number of demonstrations, early exit, head
      scores, false induction heads chosen on another task, and ablations; takes the pair
      (true, false) of `build_prompt_pairs`.
    * `anchors`: attention and saliency between the spans of texts, suppression of each span, their
      agreement, and anchor tokens; takes the texts that `texts` returns.
    * `causal`: function-vector, induction, false induction and label-promoting heads, chosen on one
      half of the pairs and ablated on the other, each set without the heads of the others; the function
      vector in bare queries; whether answers follow demonstrated labels; calibration. Takes the pair (true, false).
    * `contextualise`: loss of right answers without attention between demonstrations, and without attention
      from the target to demonstrations, in early, middle, late and all layers.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each, a pair of such sets, or texts.
        study: The study, by name or as a value, or the address of a custom one, `my_module:MY_STUDY`;
            None is the default one.
        measurements: Further measurements, for example custom ones; see `measure`.
        interventions: Applied in every pass.
        maps: Number of prompts whose whole saliency maps are kept (0: none).
        reduction: See `saliency_maps`.
        loss: See `saliency_maps`.
        seed: Seed of random controls and splits.
        heads_from: Task or false prompts on which the overthinking study chooses the heads that it
            ablates (default: `unnatural`, or `headlines` if that is the task studied).
        batch_size: Maximum number of prompts per batch.
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `measure`.
        progress: Show progress bars.
        out: Folder that keeps every finished result at once, see `measure`.
        nulls: Number of randomly initialised models of the same architecture to compare with: flow and attention
            are tested against them, and figures over layers outline their range. None: three, for models of at
            most 4 GiB; 0: none. Each is measured on eight prompts (flow, isolation) or 24 (attention, accuracy by
            layer), and takes the memory of one more model.
        threshold: Fraction of the final gap that is reached from the critical layer on, in the overthinking
            study; see `layer_accuracy`.
        until: Add prompts, drawn as these were, until half the width of the 95 % interval of
            each effect of the study's first claim (in the default study: early and late flow) is at
            most this; or `{effect: half-width}`, an effect by its name or as `"part.quantity"`. Stages
            begin with 48 prompts, or with the given prompts if these are more; each stage is measured from scratch: the
            numbers are those of one run with the final number of prompts, at the cost of all stages. See
            `icl_mech.studies.until`.
        most: Maximum number of prompts that `until` may measure at once (default: four times the first stage).
        budget: A time such as `"2 min"` or seconds: as many of the prompts, from the first on, as fit, then untrained
            networks; a note says what was left out and what more time would buy. The first eight prompts are measured to
            learn what a prompt costs; in a notebook their first figure is shown meanwhile. See
            `icl_mech.studies.budget`.
        wait: While another thread runs this model: True waits, False raises at once, a number
            waits at most that many seconds.
        plan: Run nothing; return the `Forecast` of rows, time, memory and disk instead.

    Raises:
        RunError: unknown study, one untrained network, or an impossible width, number of prompts or budget.
        IclMechError: model, prompts or variants that would give wrong numbers.
    """
    chosen = study_named(study)
    called = {**locals(), "study": chosen.name if study is not None else None}
    making = Making(call_line(analyze, called))
    chosen.check(check_data(prompts))
    check_values(measurements)
    options = Options(interventions, batch_size, memory, path, progress)
    chosen_options = {name: called[name] for name in OPTIONS}
    if heads_from is not None and "heads_from" not in chosen.options:
        raise RunError(
            "heads_from= sets the prompts on which the overthinking study chooses heads, and this is another study; "
            "leave it out."
        )
    if heads_from is not None and not isinstance(heads_from, PromptBatch):
        chosen_options["heads_from"] = as_task(heads_from)
    hints = get_type_hints(analyze, include_extras=True)
    chosen_options = {
        name: conformed(name, value, hints[name]) for name, value in chosen_options.items()
    }
    check_nulls(chosen_options["nulls"])
    adapted = adapt(model)
    goal = goal_of(chosen, measurements, chosen_options["until"], chosen_options["most"])
    check_budget(budget, until)

    def run(data: Prompts, folder: str | FilePath | None, **changed: Any) -> Bench:
        bench = Bench(adapted, options, prepared_folder(folder))
        for measurement in measurements:
            Item.checked(measurement, adapted, data, options)
        chosen.run(bench, data, measurements, **chosen_options | changed)
        bench.withdraw()
        return bench

    def preview(bench: Bench, data: Prompts) -> None:
        if progress is not False:
            show_first(analysis_of(replace(bench, out=None), data, making, about), chosen.first)

    about: dict[str, Any] = {"study": chosen.name}
    if isinstance(study, str) and is_address(study):
        about["study_at"] = study
    with Overall(f"{chosen.name.replace('_', ' ')} study", progress):
        if budget is not None:
            wanted = usual_nulls(adapted) if nulls is None else nulls
            networks = wanted if "nulls" in chosen.options else 0
            bench, data, about["budget"] = in_budget(
                budget,
                prompts,
                networks,
                # Networks that were not asked for are left out with a note if they cannot be made.
                lambda some, folder, count: run(some, folder, nulls=count and nulls),
                out,
                preview,
            )
        elif goal is not None:
            bench, data, about["until"] = in_stages(goal, prompts, model, run, out)
        else:
            return analysis_of(run(prompts, out), prompts, making, about)
    about["setup"] = making.done(adapted, prompts)["setup"]
    return analysis_of(bench, data, making, about)
