"""`sweep`: from one prompt set to a paper: many models, tasks, settings and seeds."""

from icl_mech.sweeps.averages import Averages
from icl_mech.sweeps.compare import Comparison, compare, comparison
from icl_mech.sweeps.item import Item
from icl_mech.sweeps.result import Sweep
from icl_mech.sweeps.running import sweep
from icl_mech.sweeps.sections import fixed_exit, gap_reduction

__all__ = [
    "Averages",
    "Comparison",
    "Item",
    "Sweep",
    "compare",
    "comparison",
    "fixed_exit",
    "gap_reduction",
    "sweep",
]
