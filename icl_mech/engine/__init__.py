"""The engine: readings x interventions, one pass for all readings."""

from icl_mech.engine.losses import Loss, target_loss
from icl_mech.engine.paths import Prepared, prepare
from icl_mech.engine.readings import GradientReading, Kept, Reading
from icl_mech.engine.runs import run
from icl_mech.engine.variants import run_variants

__all__ = [
    "GradientReading",
    "Kept",
    "Loss",
    "Prepared",
    "Reading",
    "prepare",
    "run",
    "run_variants",
    "target_loss",
]
