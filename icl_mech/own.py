"""What measurements, results and interventions of your own are made of."""

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

__all__ = [
    "AnyMeasurement",
    "Definition",
    "Figure",
    "GradientReading",
    "Intervention",
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
    "Variants",
    "door",
]
