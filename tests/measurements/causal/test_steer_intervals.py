"""Intervals of probabilities stay between 0 and 1, however few and uneven the prompts are."""

import torch

from icl_mech.measurements.causal.head_mediation import HeadMediationResult
from icl_mech.measurements.causal.steer import SteerResult
from icl_mech.results.quantities import Quantity


def test_probabilities_have_ends_between_0_and_1():
    uneven = torch.tensor([0.001, 0.002, 0.96])
    for result in (HeadMediationResult, SteerResult):
        declared = result.__dataclass_fields__["plain_probability"].metadata
        ((_, unit, kind),) = declared.values()
        low, high = Quantity((), uneven, unit=unit, kind=kind).ends()
        assert 0 <= low <= 0.321 <= high <= 1
