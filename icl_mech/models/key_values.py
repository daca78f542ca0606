"""`KeyValues`: what stands before the computed rows, as the model caches it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from icl_mech._typing import Float, Int, Tensor


@dataclass(frozen=True)
class KeyValues:
    """Keys and values of a prefix, one pair per layer, as the model caches them.

    `batch kv_head pos d_head`; heads may differ between layers, and between keys and values.
    """

    keys: tuple[Float[Tensor, "batch _ _ _"], ...]
    values: tuple[Float[Tensor, "batch _ _ _"], ...]

    @property
    def length(self) -> int:
        """Number of cached positions."""
        return int(self.keys[-1].shape[2])

    def expand(self, batch: int) -> "KeyValues":
        """The cache of one prompt seen by `batch` prompts (views, no copy)."""
        return KeyValues(
            tuple(key.expand(batch, -1, -1, -1) for key in self.keys),
            tuple(value.expand(batch, -1, -1, -1) for value in self.values),
        )

    def rows(self, part: slice) -> "KeyValues":
        """The cache of some of the prompts."""
        return KeyValues(
            tuple(key[part] for key in self.keys), tuple(value[part] for value in self.values)
        )

    def padded(self, width: int) -> "KeyValues":
        """Filled up with zeros on the left to `width` positions."""
        missing = (0, 0, width - self.length, 0)
        return KeyValues(
            tuple(pad(key, missing) for key in self.keys),
            tuple(pad(value, missing) for value in self.values),
        )

    @classmethod
    def stacked(cls, parts: "Sequence[KeyValues]") -> "KeyValues":
        """The caches of several batches of prompts as one, of equal lengths."""
        return cls(
            tuple(torch.cat(keys) for keys in zip(*(part.keys for part in parts), strict=True)),
            tuple(torch.cat(values) for values in zip(*(p.values for p in parts), strict=True)),
        )

    def select(self, index: Int[Tensor, " kept"]) -> "KeyValues":
        """The cache cut down to the positions `index`, in that order."""
        return KeyValues(
            tuple(key[:, :, index.to(key.device)] for key in self.keys),
            tuple(value[:, :, index.to(value.device)] for value in self.values),
        )
