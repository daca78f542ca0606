"""The engine: readings x interventions, one pass for all readings."""

from icl_mech.engine.hooks import AnyReading
from icl_mech.engine.layouts import Batched, Layout, behind_cache, can_share, common_prefix
from icl_mech.engine.memory import parse_memory, plan
from icl_mech.engine.prepared import Prepared, prepare, single_rows
from icl_mech.engine.progress import Overall, Progress, cost, expect, is_watched
from icl_mech.engine.readings import (
    OF_CLASSES,
    GradientReading,
    Kept,
    Loss,
    Reading,
    check_loss_of,
    target_loss,
)
from icl_mech.engine.runs import Path, fill_means, price, run, run_variants
from icl_mech.engine.taking import RowsReading
from icl_mech.engine.work import Work

__all__ = [
    "OF_CLASSES",
    "AnyReading",
    "Batched",
    "GradientReading",
    "Kept",
    "Layout",
    "Loss",
    "Overall",
    "Path",
    "Prepared",
    "Progress",
    "Reading",
    "RowsReading",
    "Work",
    "behind_cache",
    "can_share",
    "check_loss_of",
    "common_prefix",
    "cost",
    "expect",
    "fill_means",
    "is_watched",
    "parse_memory",
    "plan",
    "prepare",
    "price",
    "run",
    "run_variants",
    "single_rows",
    "target_loss",
]
