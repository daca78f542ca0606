"""The study of *Overthinking the Truth*, §§3-5, on the user's own model and prompts."""

from dataclasses import dataclass
from typing import Any

from icl_mech.errors import IclMechError, PromptError
from icl_mech.measurements.accuracy.context import context_accuracy
from icl_mech.measurements.accuracy.early_exit import early_exit
from icl_mech.measurements.accuracy.layers import layer_accuracy
from icl_mech.measurements.heads.ablating import ablation
from icl_mech.measurements.heads.by_layer import matching_by_layer
from icl_mech.measurements.heads.false_induction import find_false_induction_heads
from icl_mech.measurements.heads.scoring import head_scores
from icl_mech.measurements.heads.tokens import head_attention
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.studies.bench import Bench
from icl_mech.studies.published import overthinking_numbers
from icl_mech.tasks import Task

CHOSEN_ON = ("unnatural", "headlines")
"""Task the heads are chosen on by default; the second if the first is the one studied."""

RANDOM_DRAWS = 20
HEADS = 5


@dataclass(frozen=True)
class Overthinking:
    """Everything the paper measures; what prompts cannot give is left out with a note."""

    heads_from: str | Task | PromptBatch | None = None
    seed: int = 0

    def run(self, bench: Bench, pair: tuple[PromptBatch, PromptBatch]) -> None:
        """Put everything that these prompts give on the bench."""
        true, false = pair
        if bench.options.interventions:
            raise PromptError(
                "The overthinking study makes its own interventions; give yours to the single analyses."
            )
        adapted, results, notes = bench.model, bench.results, bench.notes
        common: dict[str, Any] = {
            "batch_size": bench.options.batch_size,
            "progress": bench.options.progress,
        }
        own = not adapted.info.processed_weights
        if not own:
            notes.append(
                "Heads and ablations left out: they are defined on the checkpoint's own weights, and "
                f"those of {adapted.info.name!r} are processed (norms folded or weights centred)."
            )
        accuracy = results["layer_accuracy"] = layer_accuracy(adapted, true, false, **common)
        try:
            results["context_accuracy"] = context_accuracy(adapted, true, false, **common)
        except PromptError as error:
            notes.append(f"Accuracy by number of demonstrations left out: {error}")
        leaving = results["early_exit"] = early_exit(accuracy, seed=self.seed)
        if own:
            try:
                scores = head_scores(adapted, false, seed=self.seed, **common)
                results["head_scores"] = scores
                results["matching_by_layer"] = matching_by_layer(scores, accuracy)
                results["head_attention"] = head_attention(
                    adapted, false[[0]], scores.top(HEADS), progress=False
                )
            except PromptError as error:
                notes.append(f"Head scores of these prompts left out: {error}")
            chosen, found = self._chosen_heads(adapted, true, notes, common)
            if found is not None:
                results["false_induction"] = found
            results["ablation"] = ablation(
                adapted, true, false,
                start=leaving.layer, heads=chosen, draws=RANDOM_DRAWS, seed=self.seed, **common,
            )  # fmt: skip
        results["published"] = overthinking_numbers(results)

    def _chosen_heads(
        self, model: LanguageModel, prompts: PromptBatch, notes: list[str], common: dict[str, Any]
    ) -> tuple[tuple[tuple[int, int], ...], Result | None]:
        """Heads chosen on another task than the one studied."""
        studied = prompts.source.get("task", {}).get("name")
        task = self.heads_from or next(name for name in CHOSEN_ON if name != studied)
        try:
            found = find_false_induction_heads(
                model, task, top=HEADS, n=len(prompts), seed=self.seed, **common
            )
        except IclMechError as error:
            notes.append(f"No heads were chosen or ablated: {error}")
            return (), None
        return found.top, found
