"""`analyze`: a study of one model on one set of prompts, as one `Analysis`."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

from icl_mech.analysis import Analysis, load_analysis
from icl_mech.engine import Loss
from icl_mech.errors import PromptError, RunError, near_matches
from icl_mech.interventions import Intervention
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.studies.default import Options, flow_results, title
from icl_mech.studies.label_words import label_words
from icl_mech.studies.overthinking import overthinking
from icl_mech.tasks import Task

__all__ = ["Analysis", "Study", "analyze", "load_analysis"]

Study = Literal["label_words", "overthinking"]


def analyze(
    model: Any,
    prompts: PromptBatch | tuple[PromptBatch, PromptBatch],
    *,
    study: Study | None = None,
    interventions: Sequence[Intervention] = (),
    maps: int = 1,
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
    seed: int = 0,
    heads_from: str | Task | PromptBatch | None = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> Analysis:
    """A study of all prompts.

    * Default: predictions and information flow in one pass; maps of the first few prompts.
    * `label_words`: also isolation, extraction, compression, confusion and re-weighting.
    * `overthinking`: accuracy by layer and by number of demonstrations, early exit, head
      scores, false induction heads chosen on another task, and ablations; takes the pair
      (true, false) of `build_prompt_pairs`.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each, or a pair of such sets.
        study: Which study; None is the default one.
        interventions: Made during the pass (default study).
        maps: Number of prompts whose whole saliency maps are kept (0: none).
        reduction: See `saliency_maps`.
        loss: See `saliency_maps`.
        seed: Of random controls and splits.
        heads_from: Task or false prompts on which heads are chosen that the overthinking study
            ablates (default: `unnatural`, or `headlines` if that is the one studied).
        batch_size: Prompts per batch at most.
        progress: Show progress bars.

    Raises:
        RunError: unknown study.
        IclMechError: model, prompts or variants that would give wrong numbers.
    """
    if study is not None and study not in get_args(Study):
        raise RunError(f"study={study!r}. {near_matches(study, get_args(Study))}")
    options = Options(
        interventions=interventions, maps=maps, reduction=reduction, loss=loss,
        batch_size=batch_size, progress=progress, seed=seed,
        heads_from=heads_from,
    )  # fmt: skip
    if study == "overthinking":
        if isinstance(prompts, PromptBatch):
            raise PromptError(
                "The overthinking study compares true and false demonstrations; give the pair that "
                "build_prompt_pairs returns."
            )
        true, false = prompts
        return overthinking(model, true, false, options)
    if not isinstance(prompts, PromptBatch):
        raise PromptError("A pair of prompt sets is for study='overthinking'; give one set here.")
    if study == "label_words":
        return label_words(model, prompts, options)
    adapted = adapt(model)
    return Analysis(flow_results(adapted, prompts, options), title(adapted, prompts))
