"""Between the host's memory and a device, without waiting for what the device has still to do."""

from collections.abc import Sequence

import torch

from icl_mech._typing import Tensor

BLOCK = 2**28
"""Bytes of a transfer at most: as much again is held on the device meanwhile."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device, which may still be at work on what was asked of it before.

    CUDA has read memory that is not pinned before the call returns, so that it may change afterwards.
    In the other direction torch does not wait by itself: the host would read what has not arrived yet.
    """
    return tensor.to(device, non_blocking=device.type not in ("cpu", "mps"))


def to_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in the host's memory; those that lie there are returned as they are.

    Of each device they are laid end to end, as bytes, and moved block by block.
    """
    found = list(tensors)
    for device in {own.device for own in tensors if own.device.type != "cpu"}:
        block: list[int] = []
        size = 0
        for number, own in enumerate(tensors):
            if own.device != device:
                continue
            if block and size + own.nbytes > BLOCK:
                _move(found, block)
                block, size = [], 0
            block.append(number)
            size += own.nbytes
        _move(found, block)
    return found


def _move(tensors: list[Tensor], block: Sequence[int]) -> None:
    """Exchange some of them for their copies in the host's memory."""
    flat = [tensors[n].detach().contiguous().flatten().view(torch.uint8) for n in block]
    laid = torch.cat(flat)
    if laid.device.type == "cuda":
        host = torch.empty(len(laid), dtype=torch.uint8, pin_memory=True).copy_(laid)
    else:
        host = laid.cpu()
    for number, piece in zip(block, host.split([len(own) for own in flat]), strict=True):
        own = tensors[number]
        # A copy: a view would keep the block.
        tensors[number] = piece.clone().view(own.dtype).view(own.shape)
