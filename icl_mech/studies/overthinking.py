"""The study of *Overthinking the Truth*, §§3-5, on the user's own model and prompts."""

from dataclasses import dataclass

from icl_mech.errors import IclMechError
from icl_mech.interventions import Intervention
from icl_mech.measurements.accuracy.context import AccuracyByDemonstrations
from icl_mech.measurements.accuracy.early_exit import EarlyExit, LeavingEarly
from icl_mech.measurements.accuracy.layers import AccuracyByLayer
from icl_mech.measurements.base import Pair
from icl_mech.measurements.heads.ablating import Ablate
from icl_mech.measurements.heads.by_layer import LayerMatching
from icl_mech.measurements.heads.false_heads import false_prompts
from icl_mech.measurements.heads.false_induction import FalseInductionHeads, FindHeads
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.heads.scoring import HeadScoring
from icl_mech.measurements.heads.tokens import AttentionOfHeads
from icl_mech.measurements.lens.compare import WordsByLayer
from icl_mech.measurements.running import Item
from icl_mech.prompts import PromptBatch
from icl_mech.studies.bench import Bench
from icl_mech.studies.nulls import PROMPTS, add_untrained
from icl_mech.studies.published import overthinking_numbers
from icl_mech.tasks import Task

CHOSEN_ON = ("unnatural", "headlines")
"""Task the heads are chosen on by default; the second if the first is the one studied."""

LATE = "late_ablation"
"""Name of the result of zeroing late layers; it rests on other prompts than that of heads."""

HEADS = 5
"""Heads that are chosen and ablated (the paper's number)."""

ORDER = (
    "layer_accuracy", "context_accuracy", "early_exit", "top_words", "head_scores", "matching_by_layer",
    "head_attention", "false_induction", "ablation", LATE, "published",
)  # fmt: skip
"""Of the results on a page: layers, numbers of demonstrations, leaving early, heads."""


@dataclass(frozen=True)
class Overthinking:
    """Everything the paper measures; what prompts cannot give is left out with a note.

    Attributes:
        heads_from: Task or false prompts on which the ablated heads are chosen.
        seed: Of random controls and splits.
        nulls: Untrained networks behind accuracy by layer; None: three of models that are not large.
    """

    heads_from: str | Task | PromptBatch | None = None
    seed: int = 0
    nulls: int | None = None

    def run(self, bench: Bench, pair: Pair) -> None:
        """Put everything that these prompts give on the bench."""
        own_weights = not bench.model.info.processed_weights
        of_heads = (HeadScoring(seed=self.seed), LayerMatching()) if own_weights else ()
        bench.measure(
            pair,
            AccuracyByLayer(),
            LeavingEarly(seed=self.seed),
            optional=(AccuracyByDemonstrations(), WordsByLayer(), *of_heads),
        )
        if own_weights:
            self._heads(bench, pair)
        else:
            bench.notes.append(
                "Heads and ablations left out: they are defined on the checkpoint's own weights, and "
                f"those of {bench.model.info.name!r} are processed (norms folded or weights centred)."
            )
        add_untrained(bench, pair, {"layer_accuracy": (AccuracyByLayer(), 3 * PROMPTS)}, self.nulls)
        bench.keep("published", overthinking_numbers(bench.results))
        bench.order(ORDER)

    def _heads(self, bench: Bench, pair: Pair) -> None:
        """Where the top heads look, and what ablating heads chosen on another task changes."""
        scores = bench.results.get("head_scores")
        if isinstance(scores, HeadScores):
            bench.measure(pair, AttentionOfHeads(scores.top(HEADS), first=1))
        studied = pair[0].source.get("task", {}).get("name")
        given = self.heads_from or next(name for name in CHOSEN_ON if name != studied)
        by_number = [edit for edit in bench.options.interventions if edit.by_number]
        try:
            others = false_prompts(bench.model, given, n=len(pair[0]), seed=self.seed)
        except IclMechError as error:
            bench.notes.append(f"No heads were chosen or ablated: {error}")
        else:
            if by_number:
                bench.notes.append(
                    f"No heads were chosen or ablated: {by_number[0]!r} may go by the number of a "
                    "prompt, and heads are chosen on prompts of another task."
                )
            else:
                bench.measure(others, optional=[FindHeads(HEADS, self.seed)])
        found, leaving = bench.results.get("false_induction"), bench.results["early_exit"]
        chosen = found.top if isinstance(found, FalseInductionHeads) else ()
        if chosen:
            bench.measure(pair, Ablate(heads=chosen, seed=self.seed))
        if isinstance(leaving, EarlyExit):
            self._late(bench, pair, leaving, by_number)

    def _late(
        self, bench: Bench, pair: Pair, leaving: EarlyExit, by_number: list[Intervention]
    ) -> None:
        """Zero the layers behind the exit, on the prompts that did not choose it."""
        if by_number:
            bench.notes.append(
                f"No late layers were ablated: {by_number[0]!r} may go by the number of a prompt, and "
                "they are tested on one half of the prompts."
            )
            return
        part = leaving.held_out()
        held_out = (pair[0][part], pair[1][part])
        late = Ablate(start=leaving.layer, seed=self.seed)
        try:
            item = Item.checked(late, bench.model, held_out, bench.options)
        except IclMechError as error:
            bench.notes.append(f"No late layers were ablated: {error}")
        else:
            bench.run({LATE: item})
