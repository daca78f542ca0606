"""Transfers between host memory and a device that do not wait for work queued on the device."""

from collections.abc import Sequence

import torch

from icl_mech._typing import Tensor

BLOCK = 2**28
"""Largest number of bytes of a transfer, which needs as much extra memory on the device."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, without waiting for work queued there.

    CUDA has read memory that is not pinned before the call returns, so the source may change afterwards.
    In the other direction torch does not wait by itself: the host would read values that have not arrived.
    """
    return tensor.to(device, non_blocking=device.type not in ("cpu", "mps"))


def to_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in host memory; tensors already there are returned unchanged.

    The tensors of each device are concatenated as bytes and moved block by block.
    """
    moved = list(tensors)
    for device in {tensor.device for tensor in tensors if tensor.device.type != "cpu"}:
        block: list[int] = []
        size = 0
        for number, tensor in enumerate(tensors):
            if tensor.device != device:
                continue
            if block and size + tensor.nbytes > BLOCK:
                _move(moved, block)
                block, size = [], 0
            block.append(number)
            size += tensor.nbytes
        _move(moved, block)
    return moved


def _move(tensors: list[Tensor], block: Sequence[int]) -> None:
    """Replace some of the tensors, in place, by copies in host memory."""
    flat = [tensors[n].detach().contiguous().flatten().view(torch.uint8) for n in block]
    laid = torch.cat(flat)
    if laid.device.type == "cuda":
        host = torch.empty(len(laid), dtype=torch.uint8, pin_memory=True).copy_(laid)
    else:
        host = laid.cpu()
    for number, piece in zip(block, host.split([len(part) for part in flat]), strict=True):
        tensor = tensors[number]
        # A copy: a view would keep the whole block in memory.
        tensors[number] = piece.clone().view(tensor.dtype).view(tensor.shape)
