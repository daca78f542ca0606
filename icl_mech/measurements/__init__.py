"""What can be measured: one value for each method, to give to `icl_mech.measure`.

A folder holds a family of methods: measurements, their readings and their results.
"""

from icl_mech.measurements.base import (
    AnyMeasurement,
    Measurement,
    Options,
    PairMeasurement,
    Pass,
    Variants,
)
from icl_mech.measurements.compression.demonstrations import Compress
from icl_mech.measurements.compression.table import CompareCompression
from icl_mech.measurements.predictions import Predict
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.measurements.saliency.maps import Saliency

__all__ = [
    "AnyMeasurement",
    "CompareCompression",
    "Compress",
    "Flow",
    "Measurement",
    "Options",
    "PairMeasurement",
    "Pass",
    "Predict",
    "Saliency",
    "Variants",
]
