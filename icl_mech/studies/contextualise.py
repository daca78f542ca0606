"""Contextualise, then aggregate: do demonstrations read each other early, and does the target read them late?

After arXiv 2504.00132. Edges between demonstrations, and from them to the target, have no random control: they are
nearly all that their rows read, so that too few others are left to cut in their place. So right answers must be
lost, and not only some of their logit, which any cut takes.
"""

from collections.abc import Callable
from functools import partial

from icl_mech.measurements.isolation.edge_cuts import CONTROLLED, EdgeCuts, EdgeCutsResult
from icl_mech.measurements.predictions import Predict, Predictions
from icl_mech.metrics import Interval
from icl_mech.prompts import PromptBatch
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import Claim, Effect, Run
from icl_mech.studies.competence import ABOVE_CONSTANT
from icl_mech.studies.flow import GIVEN
from icl_mech.studies.study import FEW, Mean, Study


def _steps(bench: Bench, prompts: PromptBatch, *, seed: int = 0) -> None:
    """Predictions, and what they lose without some edges."""
    bench.measure(prompts, Predict(), EdgeCuts(seed=seed))
    if prompts.source.get("demonstrations") == "shared":
        bench.notes.append(GIVEN)


def _effects(name: str, edges: str, window: str, before: str | None = None) -> list[Effect]:
    """What the right answer loses in a window, or more than in another; and the same of all right answers or beyond random edges.

    None where these edges were not cut in these windows.
    """

    def effect(more: str, found: Callable[[EdgeCutsResult], Interval | None]) -> Effect:
        def read(run: Run) -> Interval | None:
            own: EdgeCutsResult = run[EdgeCutsResult]
            known = edges in own.edges and {window, before or window} <= {*own.windows}
            return found(own) if known else None

        return Effect(f"{name}{more}", read, rising=False)

    def lost(own: EdgeCutsResult, beside: bool = False) -> Interval | None:
        if before is not None:
            return own.step(edges, before, window, beside=beside)
        return own.beside(edges, window) if beside else own.change(edges, window)

    plain = effect(", logits", lost)
    if edges in CONTROLLED:
        return [plain, effect(" beyond random edges, logits", partial(lost, beside=True))]
    return [plain, effect(", right answers", lambda own: own.right_answers(edges, window, before))]


CONTEXT = Claim(
    "Contextualise: in early layers demonstrations read earlier ones, and right answers need it",
    _effects("cut between demonstrations, early", "contextualise", "early"),
    "edge_cuts",
    needs=ABOVE_CONSTANT,
    one=True,
)
AGGREGATE = Claim(
    "Aggregate: in late layers the target reads demonstrations, and right answers need it",
    _effects("cut to the target, late", "aggregate", "late"),
    "edge_cuts",
    needs=ABOVE_CONSTANT,
    one=True,
)
ORDER = Claim(
    "Then: edges between demonstrations matter more early, edges to the target more late",
    [
        *_effects("cut between demonstrations, early minus late", "contextualise", "early", "late"),
        *_effects("cut to the target, late minus early", "aggregate", "late", "early"),
    ],
    "edge_cuts",
    needs=ABOVE_CONSTANT,
    one=True,
)

CONTEXTUALISE = Study(
    "contextualise",
    headline="Does {model} first contextualise demonstrations and then aggregate them on {task}?",
    steps=_steps,
    claims=[ORDER, CONTEXT, AGGREGATE],
    kicker="Contextualise, then aggregate · after arXiv 2504.00132",
    source="Contextualize-then-aggregate (arXiv 2504.00132)",
    gives={"predictions": Predictions, "edge_cuts": EdgeCutsResult},
    means=[
        Mean(
            "Which edges do right answers need, and in which layers?",
            "Cut edges",
            "edge_cuts",
            "edge_cuts.change",
            limits=FEW,
        )
    ],
    known_by=lambda kinds: EdgeCutsResult in kinds,
)
