"""Lenses that are fitted to a model, for `lens=` of what reads the residual stream."""

from icl_mech.measurements.lens.compare import compare_lenses
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.jacobian import JacobianLens, fit_jacobian_lens, load_jacobian_lens
from icl_mech.measurements.lens.tuned import TunedLens, fit_tuned_lens, load_tuned_lens

__all__ = [
    "FittedLens",
    "JacobianLens",
    "TunedLens",
    "compare_lenses",
    "fit_jacobian_lens",
    "fit_tuned_lens",
    "load_jacobian_lens",
    "load_tuned_lens",
]
