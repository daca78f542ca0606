"""`analyze`: a study of one model on one set of prompts, as one `Analysis`."""

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from icl_mech.checking import Natural, conformed
from icl_mech.engine import Loss, Overall, Path
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import AnyMeasurement, Options
from icl_mech.measurements.running import Item, check_data
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.models import adapt, exclusive
from icl_mech.prompts import PromptBatch
from icl_mech.studies.analysis import Analysis, load_analysis
from icl_mech.studies.anchors import Anchors
from icl_mech.studies.bench import Bench, prepared_folder
from icl_mech.studies.causal import Causal
from icl_mech.studies.default import GIVEN, FlowStudy
from icl_mech.studies.label_words import LabelWords
from icl_mech.studies.made import Making, by_command, call_line
from icl_mech.studies.measuring import check_values, measure, title
from icl_mech.studies.names import PAIRED, Study
from icl_mech.studies.nulls import PROMPTS, add_untrained
from icl_mech.studies.overthinking import Overthinking
from icl_mech.tasks import Task, as_task

__all__ = ["Analysis", "Study", "analyze", "by_command", "load_analysis", "measure"]


@exclusive
def analyze(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    study: Study | None = None,
    measurements: Sequence[AnyMeasurement[Any, Any]] = (),
    interventions: Sequence[Intervention] = (),
    maps: int = 1,
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
    seed: int = 0,
    heads_from: str | Task | PromptBatch | None = None,
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
    out: str | FilePath | None = None,
    nulls: Natural | None = None,
    wait: bool | int | float = True,
) -> Analysis:
    """A study of all prompts.

    * Default: predictions and information flow in one pass; maps of the first few prompts.
    * `label_words`: also isolation, extraction, compression, confusion and re-weighting.
    * `overthinking`: accuracy by layer and by number of demonstrations, early exit, head
      scores, false induction heads chosen on another task, and ablations; takes the pair
      (true, false) of `build_prompt_pairs`.
    * `anchors`: attention and saliency between the spans of texts, suppression of each span, their
      agreement, and anchor tokens; takes the texts that `texts` returns.
    * `causal`: function-vector, induction, false induction and label-promoting heads, chosen on one
      half of the pairs and ablated on the other, each set without the heads of the others; the function
      vector in bare queries; what answers follow; calibration. Takes the pair (true, false).

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each, a pair of such sets, or texts.
        study: Which study; None is the default one.
        measurements: Measured besides, your own for example; see `measure`.
        interventions: Made in every pass.
        maps: Number of prompts whose whole saliency maps are kept (0: none).
        reduction: See `saliency_maps`.
        loss: See `saliency_maps`.
        seed: Of random controls and splits.
        heads_from: Task or false prompts on which heads are chosen that the overthinking study
            ablates (default: `unnatural`, or `headlines` if that is the one studied).
        batch_size: Prompts per batch at most.
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `measure`.
        progress: Show progress bars.
        out: Folder that keeps every finished result at once, see `measure`.
        nulls: Untrained networks of the same architecture beside the model: claims about the flow must
            beat them, and figures over layers show their range in grey. None: three, of models of at
            most 4 GiB; 0: none, and claims about the flow cannot be judged. Each is measured on eight
            prompts (flow, isolation) or 24 (attention, accuracy by layer), and takes the memory of one
            more model.
        wait: While another thread runs this model: True waits, False refuses at once, a number
            waits at most so many seconds.

    Raises:
        RunError: unknown study.
        IclMechError: model, prompts or variants that would give wrong numbers.
    """
    making = Making(call_line(analyze, locals()))
    conformed("study", study, Study | None)
    pair = isinstance(check_data(prompts), tuple)
    if study in PAIRED and not pair:
        raise PromptError(
            f"The {study} study compares true and false demonstrations; give the pair that "
            "build_prompt_pairs returns."
        )
    if study not in PAIRED and pair:
        raise PromptError(
            "A pair of prompt sets is for study='overthinking' or 'causal'; give one set here."
        )
    check_values(measurements)
    options = Options(interventions, batch_size, memory, path, progress)
    flow = FlowStudy(maps, reduction, loss)
    seed = conformed("seed", seed, Natural)
    nulls = conformed("nulls", nulls, Natural | None)
    if heads_from is not None and study != "overthinking":
        raise RunError(
            "heads_from= says on what the overthinking study chooses heads; leave it out."
        )
    if heads_from is not None and not isinstance(heads_from, PromptBatch):
        heads_from = as_task(heads_from)
    adapted = adapt(model)
    bench = Bench(adapted, options, prepared_folder(out))
    for given in measurements:
        Item.checked(given, adapted, prompts, options)
    with Overall(f"{(study or 'flow').replace('_', ' ')} study", progress):
        if study == "causal" and isinstance(prompts, tuple):
            Causal(seed).run(bench, prompts)
        elif isinstance(prompts, tuple):
            Overthinking(heads_from, seed, nulls).run(bench, prompts)
        elif study == "label_words":
            LabelWords(flow, seed, nulls).run(bench, prompts)
        elif study == "anchors":
            Anchors(reduction, loss).run(bench, prompts)
        else:
            bench.measure(prompts, *flow.measurements(), *measurements)
            add_untrained(bench, prompts, {"flow": (flow.flow, PROMPTS)}, nulls)
            bench.order(["predictions", "flow", "untrained"])
            if prompts.source.get("demonstrations") == "shared":
                bench.notes.append(GIVEN)
        if study is not None and measurements:
            bench.measure(prompts, *measurements)
    return bench.analysis(title(adapted, prompts), prompts, making)
