"""Lenses fitted to a model, for `lens=` of measurements that read the residual stream."""

from icl_mech.measurements.lens.compare_lenses import compare_lenses
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.jacobian import JacobianLens, fit_jacobian_lens
from icl_mech.measurements.lens.lens_table import lens_table
from icl_mech.measurements.lens.tuned import TunedLens, fit_tuned_lens

__all__ = [
    "FittedLens",
    "JacobianLens",
    "TunedLens",
    "compare_lenses",
    "fit_jacobian_lens",
    "fit_tuned_lens",
    "lens_table",
]
