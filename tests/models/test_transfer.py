"""Between the host and a device: the host waits for what it reads, and for nothing else."""

import pytest
import torch

from icl_mech.models.transfer import to_device


class Noted(torch.Tensor):
    """A tensor that stays where it is, and notes whether its move would be waited for."""

    def to(self, device, *, non_blocking):
        self.moved = torch.device(device).type, non_blocking
        return self


@pytest.mark.parametrize(
    ("device", "without_waiting"), [("cuda:1", True), ("xpu", True), ("cpu", False), ("mps", False)]
)
def test_the_host_waits_for_what_it_reads(device, without_waiting):
    tensor = torch.ones(2).as_subclass(Noted)
    to_device(tensor, torch.device(device))
    assert tensor.moved == (torch.device(device).type, without_waiting)
