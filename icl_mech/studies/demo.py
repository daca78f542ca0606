"""`icl-mech demo`: what demonstrations add, and how much of it the answer reads from label words.

Two of the claims of the study of label words, with the measurements they need.
"""

from collections.abc import Mapping, Sequence

from icl_mech.measurements.accuracy.gain import Gain
from icl_mech.measurements.isolation.edge_cuts import EdgeCuts
from icl_mech.measurements.predictions import Predict
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.results import Result
from icl_mech.results.judging import OPENINGS
from icl_mech.studies.judge import Verdict
from icl_mech.studies.label_words import EXTRACTION, READING
from icl_mech.studies.sentences import Facts, headline
from icl_mech.studies.study import Study


def _answer(results: Mapping[str, Result], verdicts: Sequence[Verdict]) -> Facts:
    reading = verdicts[0]
    share = reading.effects.get(READING.share.name) if READING.share is not None else None
    known = {"gain": results["gain"], "cuts": results["edge_cuts"]}
    return {**known, "opening": OPENINGS[reading.status], "share": share}


def demo_study(seed: int) -> Study:
    """The study of the demo; it is known by name from now on."""
    return Study(
        "demo",
        (
            Predict(),
            Gain(seed=seed),
            EdgeCuts("anchors", rows="target", draws=1, seed=seed),
            Flow(seed=seed),
        ),
        (READING, EXTRACTION),
        headline("demo", _answer),
        kicker="Demo · Wang et al. 2023, Label Words are Anchors",
        source="Label Words are Anchors",
        first=("gain", "edge_cuts"),
    )
