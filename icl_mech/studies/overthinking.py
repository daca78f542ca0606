"""The study of *Overthinking the Truth*, §§3-5, on the user's own model and prompts."""

from typing import Any

from icl_mech.analysis import Analysis
from icl_mech.engine import run
from icl_mech.errors import IclMechError, PromptError
from icl_mech.measurements.accuracy.context import check_context, context_readings, context_result
from icl_mech.measurements.accuracy.early_exit import early_exit
from icl_mech.measurements.accuracy.layers import LayerAccuracy, layer_result
from icl_mech.measurements.accuracy.pairs import check_pairs
from icl_mech.measurements.heads.ablation import ablation
from icl_mech.measurements.heads.by_layer import matching_by_layer
from icl_mech.measurements.heads.false_induction import find_false_induction_heads
from icl_mech.measurements.heads.scores import (
    HeadScores,
    check_head_prompts,
    head_readings,
    head_result,
)
from icl_mech.measurements.heads.tokens import head_attention
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.measurements.provenance import provenance
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.studies.default import Options, title
from icl_mech.studies.published import overthinking_numbers

CHOSEN_ON = ("unnatural", "headlines")
"""Task the heads are chosen on by default; the second if the first is the one studied."""

RANDOM_DRAWS = 20
PERMUTATIONS = 20


def overthinking(
    model: Any, true: PromptBatch, false: PromptBatch, options: Options, heads: int = 5
) -> Analysis:
    """Everything the paper measures; what these prompts cannot give is left out with a note."""
    if options.interventions:
        raise PromptError(
            "The overthinking study makes its own interventions; give yours to the single analyses."
        )
    check_pairs(true, false)
    adapted = adapt(model)
    common: dict[str, Any] = {"batch_size": options.batch_size, "progress": options.progress}
    notes: list[str] = []
    own = not adapted.info.processed_weights
    if not own:
        notes.append(
            "Heads and ablations left out: they are defined on the checkpoint's own weights, and "
            f"those of {adapted.info.name!r} are processed (norms folded or weights centred)."
        )
    accuracy, results = _one_pass(adapted, true, false, own, options.seed, common, notes)
    leaving = early_exit(accuracy, seed=options.seed)
    # In reading order: layers, numbers of demonstrations, leaving early, heads.
    heads_of_prompts = results.pop("head_scores", None)
    results["early_exit"] = leaving
    if isinstance(heads_of_prompts, HeadScores):
        results["head_scores"] = heads_of_prompts
        results["matching_by_layer"] = matching_by_layer(heads_of_prompts, accuracy)
        results["head_attention"] = head_attention(
            adapted, false[[0]], heads_of_prompts.top(heads), progress=False
        )
    chosen, found = _chosen_heads(adapted, true, options, heads, notes) if own else ((), None)
    if found is not None:
        results["false_induction"] = found
    if own:
        results["ablation"] = ablation(
            adapted, true, false,
            start=leaving.layer, heads=chosen, draws=RANDOM_DRAWS, seed=options.seed, **common,
        )  # fmt: skip
    results["published"] = overthinking_numbers(results)
    return Analysis(results, title(adapted, true), tuple(notes))


def _one_pass(
    model: LanguageModel,
    true: PromptBatch,
    false: PromptBatch,
    own_weights: bool,
    seed: int,
    common: dict[str, Any],
    notes: list[str],
) -> tuple[LayerAccuracy, dict[str, Result]]:
    """Layers, numbers of demonstrations and heads, from one pass over each side."""
    rows = by_number = None
    try:
        check_context(true, false)
        by_number = context_readings("sound")
    except PromptError as error:
        notes.append(f"Accuracy by number of demonstrations left out: {error}")
    if own_weights:
        try:
            rows = check_head_prompts(false)
        except PromptError as error:
            notes.append(f"Head scores of these prompts left out: {error}")
    lenses: list[Any] = by_number or [LayerLensReading()]
    heads = [] if rows is None else head_readings(false, "frozen", "labels")
    at_true = run(model, true, lenses, title="true demonstrations", **common)
    at_false = run(model, false, [*lenses, *heads], title="false demonstrations", **common)
    both = [at_true, at_false[: len(lenses)]]
    origin = provenance(model, true, lens="sound", interval="bootstrap")
    accuracy = layer_result([read[-1] for read in both], true, false, "sound", "bootstrap", origin)
    results: dict[str, Result] = {"layer_accuracy": accuracy}
    if by_number is not None:
        results["context_accuracy"] = context_result(
            both, true, false, "sound", "bootstrap", origin
        )
    if rows is not None:
        results["head_scores"] = head_result(
            at_false[len(lenses) :], false, rows, model,
            over="labels", permutations=PERMUTATIONS, seed=seed,
            origin=provenance(
                model, false, norm="frozen", over="labels", permutations=PERMUTATIONS,
                permutation_seed=seed,
            ),
        )  # fmt: skip
    return accuracy, results


def _chosen_heads(
    model: LanguageModel, prompts: PromptBatch, options: Options, heads: int, notes: list[str]
) -> tuple[tuple[tuple[int, int], ...], Result | None]:
    """Heads chosen on another task than the one studied."""
    studied = prompts.source.get("task", {}).get("name")
    task = options.heads_from or next(name for name in CHOSEN_ON if name != studied)
    try:
        found = find_false_induction_heads(
            model, task, top=heads, n=len(prompts), seed=options.seed,
            batch_size=options.batch_size, progress=options.progress,
        )  # fmt: skip
    except IclMechError as error:
        notes.append(f"No heads were chosen or ablated: {error}")
        return (), None
    return found.top, found
