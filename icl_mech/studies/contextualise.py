"""Contextualise, then aggregate: do demonstrations read each other early, and does the target read them late?

After arXiv 2504.00132. Edges between demonstrations and from the target to demonstrations have no matched random
control: their rows hold hardly any other edges. So attention knockout must cost right answers, not only some of their
logit, which any knockout lowers, and a stated fraction of what demonstrations add. For edges between demonstrations,
right answers must also be lost when the edges stay but lead to demonstrations with other labels: a row whose usual keys
are gone may lose answers for lack of any input.
"""

from collections.abc import Callable

from icl_mech.errors import IclMechError
from icl_mech.measurements.accuracy.gain import Gain, GainResult
from icl_mech.measurements.isolation.edge_cuts import EdgeCuts, EdgeCutsResult
from icl_mech.measurements.predictions import Predict, Predictions
from icl_mech.metrics import Interval
from icl_mech.prompts import PromptBatch
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import Claim, Effect, Run
from icl_mech.studies.competence import DOES, TAUGHT
from icl_mech.studies.flow import GIVEN
from icl_mech.studies.shares import carried
from icl_mech.studies.study import FEW, Mean, Study


def _steps(bench: Bench, prompts: PromptBatch, *, seed: int = 0) -> None:
    """Measure predictions, and what they lose under attention knockout."""
    cuts = EdgeCuts(("contextualise", "exchange", "aggregate", "anchors"), seed=seed)
    try:
        cuts.check_options(bench.model, prompts, bench.options)
        cuts.check(bench.model, prompts)
    except IclMechError as error:
        bench.notes.append(str(error))
        cuts = EdgeCuts(seed=seed)
    bench.measure(prompts, Predict(), cuts, optional=[Gain(seed=seed)])
    if prompts.source.get("demonstrations") == "shared":
        bench.notes.append(GIVEN)


def _effects(name: str, edges: str, window: str, before: str | None = None) -> list[Effect]:
    """Effects of a knockout in a window, or compared with another window: on the right logit, and on right answers.

    None if these edges were not cut in these windows.
    """

    def effect(suffix: str, lost: Callable[[EdgeCutsResult], Interval | None]) -> Effect:
        def read(run: Run) -> Interval | None:
            cuts: EdgeCutsResult = run[EdgeCutsResult]
            known = edges in cuts.edges and {window, before or window} <= {*cuts.windows}
            return lost(cuts) if known else None

        return Effect(f"{name}{suffix}", read, rising=False)

    def logit(cuts: EdgeCutsResult) -> Interval | None:
        if before is None:
            return cuts.change(edges, window)
        return cuts.step(edges, before, window, beside=False)

    answers = effect(", right answers", lambda cuts: cuts.right_answers(edges, window, before))
    return [effect(", logits", logit), answers]


CONTEXT = Claim(
    "Contextualise: in early layers demonstrations read earlier ones, and right answers need it",
    [
        *_effects("cut between demonstrations, early", "contextualise", "early"),
        *_effects("labels exchanged between demonstrations, early", "exchange", "early"),
    ],
    "edge_cuts",
    needs=(*DOES, *TAUGHT),
    share=carried(
        "fraction of what demonstrations add that goes between them early", "contextualise", "early"
    ),
    one=True,
)
AGGREGATE = Claim(
    "Aggregate: in late layers the target reads demonstrations, and right answers need it",
    _effects("cut to the target, late", "aggregate", "late"),
    "edge_cuts",
    needs=DOES,
    share=carried(
        "fraction of what demonstrations add that the target reads from them late",
        "aggregate",
        "late",
    ),
    one=True,
)
ORDER = Claim(
    "Then: edges between demonstrations matter more early, edges to the target more late",
    [
        *_effects("cut between demonstrations, early minus late", "contextualise", "early", "late"),
        *_effects("cut to the target, late minus early", "aggregate", "late", "early"),
    ],
    "edge_cuts",
    needs=(*DOES, *TAUGHT),
    one=True,
)

CONTEXTUALISE = Study(
    "contextualise",
    headline="Does {model} first contextualise demonstrations and then aggregate them on {task}?",
    steps=_steps,
    claims=[ORDER, CONTEXT, AGGREGATE],
    kicker="Contextualise, then aggregate · after arXiv 2504.00132",
    source="Contextualize-then-aggregate (arXiv 2504.00132)",
    gives={"predictions": Predictions, "gain": GainResult, "edge_cuts": EdgeCutsResult},
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
