"""The study of what acts: sets of heads side by side, function vectors, calibration and what answers follow."""

from collections.abc import Mapping
from dataclasses import dataclass

from icl_mech.errors import IclMechError, PromptError, RunError
from icl_mech.measurements.accuracy.pairs import check_pairs
from icl_mech.measurements.alignment.semantic import Alignment
from icl_mech.measurements.base import Pair
from icl_mech.measurements.calibration.label_prior import Calibration
from icl_mech.measurements.causal.comparing import CompareHeads
from icl_mech.measurements.causal.function_vectors import function_vector
from icl_mech.measurements.causal.induction import Induction, InductionScores
from icl_mech.measurements.causal.mediation import HeadMediation, MediateHeads, check_own_weights
from icl_mech.measurements.causal.sets import (
    FALSE_INDUCTION,
    FUNCTION_VECTOR,
    INDUCTION,
    LABEL_PROMOTING,
)
from icl_mech.measurements.causal.steering import Steer
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.heads.scoring import HeadScoring
from icl_mech.measurements.lens.compare import without_demonstrations
from icl_mech.measurements.reweighting.fit import query
from icl_mech.metrics import stratified_halves
from icl_mech.results import Result
from icl_mech.studies.bench import Bench

HEADS = 5
"""Heads of each set; fewer in models with fewer than 40."""

SETS = 4
"""Function-vector, induction, false induction and label-promoting heads."""

VECTOR_HEADS = 10
"""Heads whose outputs make the function vector (the paper's number)."""

DRAWS = 5
"""Texts of random words behind each context; contexts differ, so that few are enough for their mean."""

ORDER = (
    "head_comparison", "head_mediation", "head_scores", "induction_scores", "vector_effect", "alignment",
    "calibration",
)  # fmt: skip
"""Of the results on a page."""

Sets = Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Causal:
    """Heads are chosen by four measures on one half of the pairs, and ablated on the other.

    Attributes:
        seed: Of the halves and of random controls.
    """

    seed: int = 0

    def run(self, bench: Bench, pair: Pair) -> None:
        """Put everything that these prompts give on the bench.

        Raises:
            PromptError: sets that are no pairs, queries that come twice or all of one class, too few
                pairs to choose heads on one half and test them on the other, or interventions that may
                go by the number of a prompt.
            RunError: processed weights, or too few heads.
        """
        check_own_weights(bench.model, "The causal study")
        check_pairs(*pair)
        total = bench.model.info.n_layers * bench.model.info.n_heads
        # As many heads again are left for the random ones.
        count = min(HEADS, total // (2 * SETS))
        if not count:
            raise RunError(
                f"The causal study compares {SETS} sets of heads with random ones, and {bench.model.info.name!r} "
                f"has {total} heads in all; {2 * SETS} are the fewest."
            )
        by_number = [edit for edit in bench.options.interventions if edit.by_number]
        if by_number:
            raise PromptError(
                f"{by_number[0]!r} may go by the number of a prompt, and the causal study chooses heads on "
                "one half of the prompts and tests them on the other; leave it out."
            )
        choosing, testing = self.halves(pair)
        bench.measure(
            choosing, MediateHeads("class"), HeadScoring(seed=self.seed), Induction(seed=self.seed)
        )
        sets = chosen(bench.results, count)
        bench.measure(testing, CompareHeads(sets, seed=self.seed))
        self._vector(bench, testing)
        bench.measure(pair, optional=[Alignment()])
        bench.measure(pair[0], optional=[Calibration(draws=DRAWS, seed=self.seed)])
        bench.notes.append(
            f"Heads were chosen on {len(choosing[0])} pairs and ablated on the other {len(testing[0])}. Those of "
            "the function vector raise the right answer behind the other labels of these pairs, patched by means "
            "over other queries of the class; the vector is the sum of their means over all queries."
        )
        bench.order(ORDER)

    def halves(self, pair: Pair) -> tuple[Pair, Pair]:
        """Pairs on which heads are chosen, and those they are tested on.

        Raises:
            PromptError: a query that comes twice, queries of one class, or a class with fewer than
                two queries in either half.
        """
        queries = [query(prompt) for prompt in pair[0]]
        again = [n for n, own in enumerate(queries) if own and own in queries[:n]]
        if again:
            raise PromptError(
                f"Query {again[0]} is that of an earlier prompt, so that heads could be tested on what chose "
                "them; give every query once."
            )
        if len(set(pair[0].answers.tolist())) < 2:
            raise PromptError(
                "All queries are of one class, where the right answer is a preference for one label; give "
                "queries of several (balanced=True)."
            )
        first, second = (part.tolist() for part in stratified_halves(pair[0].answers, self.seed))
        counts = pair[0].answers[first].bincount(minlength=pair[0].n_labels)
        rare = (counts == 1).nonzero().flatten().tolist()
        if not second or rare:
            name = pair[0].labels[rare[0]] if rare else "every class"
            raise PromptError(
                f"The causal study chooses heads on half of {len(pair[0])} pairs, by means over other queries "
                f"of the same class, and {name} has too few; give four pairs of each class at least."
            )
        return (pair[0][first], pair[1][first]), (pair[0][second], pair[1][second])

    def _vector(self, bench: Bench, testing: Pair) -> None:
        """The function vector of the chosen half in queries of the other, without demonstrations."""
        mediation, bare = bench.results["head_mediation"], without_demonstrations(testing[0])
        assert isinstance(mediation, HeadMediation)
        info = bench.model.info
        if bare is None:
            bench.notes.append(
                "The function vector was left out: the queries cannot be cut out of these prompts."
            )
            return
        try:
            k = min(VECTOR_HEADS, info.n_layers * info.n_heads)
            vector = function_vector(bench.model, mediation, k, by="difference").vector
        except IclMechError as error:
            bench.notes.append(f"The function vector was left out: {error}")
            return
        bench.measure(bare, Steer(vector.expand(info.n_layers, -1)))


def chosen(results: Mapping[str, Result], count: int) -> Sets:
    """The heads that each measure puts first, so many of each."""
    mediation, scores, induction = (
        results[name] for name in ("head_mediation", "head_scores", "induction_scores")
    )
    assert isinstance(mediation, HeadMediation)
    assert isinstance(scores, HeadScores)
    assert isinstance(induction, InductionScores)
    sets = {
        FUNCTION_VECTOR: mediation.top(count, "difference"),
        INDUCTION: induction.top(count),
        FALSE_INDUCTION: scores.top(count),
    }
    if scores.promoting is not None:
        sets[LABEL_PROMOTING] = scores.top(count, "label_promoting")
    return sets
