"""Building blocks for your own measurements, results, interventions and studies."""

from icl_mech.engine import GradientReading, Reading
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import (
    AnyMeasurement,
    Measurement,
    Options,
    Pair,
    PairMeasurement,
    Pass,
    Steps,
    Variants,
)
from icl_mech.measurements.doors import door
from icl_mech.models import Site
from icl_mech.results import Definition, Figure, Quantity, Result
from icl_mech.segments import Segment
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import Claim, Effect, Words
from icl_mech.studies.judge import Verdict
from icl_mech.studies.study import Mean, Study

__all__ = [
    "AnyMeasurement",
    "Bench",
    "Claim",
    "Definition",
    "Effect",
    "Figure",
    "GradientReading",
    "Intervention",
    "Mean",
    "Measurement",
    "Options",
    "Pair",
    "PairMeasurement",
    "Pass",
    "Quantity",
    "Reading",
    "Result",
    "Segment",
    "Site",
    "Steps",
    "Study",
    "Variants",
    "Verdict",
    "Words",
    "door",
]
