"""Parse a GGUF file once: transformers reads its header for the tokenizer, the configuration and the weights.

Most of the time goes into lists of vocabulary length, in which `GGUFReader` slices every entry out of the
mapped file separately. Here a list is sliced in one go.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, SupportsInt, TypeVar
from unittest.mock import patch

import gguf
import numpy as np
from gguf import GGUFReader, GGUFValueType
from transformers import modeling_gguf_pytorch_utils

T = TypeVar("T")

Parsed = tuple[int, list[Any], list[int], list[Any]]
"""Size of a field in bytes, its parts, which of them are data, and their types."""

_TYPE_AND_LENGTH = 12
"""Bytes in front of the entries of a list."""


class ListReader(GGUFReader):
    """`GGUFReader` that slices whole lists of strings and numbers in one go."""

    def _get_field_parts(self, orig_offs: int, raw_type: SupportsInt) -> Parsed:
        """A field as `Parsed`; fields that are not plain lists are parsed by the base class."""
        if raw_type == GGUFValueType.ARRAY and self.byte_order == "I":
            kind, length = self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)
            inner, count, start = int(kind[0]), int(length[0]), orig_offs + _TYPE_AND_LENGTH
            if inner == GGUFValueType.STRING:
                entries = self._strings(start, count)
            elif inner in self.gguf_scalar_to_np:
                numbers = self._get(start, self.gguf_scalar_to_np[GGUFValueType(inner)], count)
                entries = [*np.asarray(numbers).reshape(count, 1)]
            else:
                entries = []
            if entries:
                size = _TYPE_AND_LENGTH + sum(entry.nbytes for entry in entries)
                step = len(entries) // count
                data = [*range(1 + step, 2 + len(entries), step)]
                types = [GGUFValueType.ARRAY, GGUFValueType(inner)]
                return size, [kind, length, *entries], data, types
        parsed: Parsed = super()._get_field_parts(orig_offs, int(raw_type))
        return parsed

    def _strings(self, offset: int, count: int) -> list[Any]:
        """The length and the bytes of each string of a list."""
        held = np.asarray(self.data)
        entries: list[Any] = []
        for _ in range(count):
            length = held[offset : offset + 8].view(np.uint64)
            offset += 8 + int(length[0])
            if offset > len(held):
                raise ValueError("a list of strings extends beyond the end of the file")
            entries += length, held[offset - int(length[0]) : offset]
        return entries


@contextmanager
def parsed_once(file: Path, watched: Callable[[Iterable[T]], Iterable[T]]) -> Iterator[GGUFReader]:
    """Context in which every reader of a file is the one yielded here.

    The map of names is the same for all modules of a model, too; transformers makes it anew for each.

    Args:
        file: A GGUF file.
        watched: What goes through the tensors while they are de-quantised, instead of a bar of tqdm
            that no setting turns off.
    """
    reader = ListReader(file)

    def reader_of(path: str | Path) -> GGUFReader:
        return reader if Path(path) == file else GGUFReader(path)

    def through(tensors: Iterable[T], **_: object) -> Iterable[T]:
        return watched(tensors)

    with (
        patch.object(gguf, "GGUFReader", reader_of),
        patch.object(gguf, "get_tensor_name_map", cache(gguf.get_tensor_name_map)),
        patch.object(modeling_gguf_pytorch_utils, "tqdm", through, create=True),
    ):
        yield reader
