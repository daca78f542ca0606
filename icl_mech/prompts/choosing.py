"""Which prompts an index means: numbers, or a mask of booleans."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icl_mech._typing import Tensor
from icl_mech.checking import shown
from icl_mech.errors import PromptError

Array = NDArray[Any]


def chosen_numbers(index: Any, count: int) -> int | list[int]:
    """The number, or the numbers, of the prompts that are meant.

    Args:
        index: A whole number, several, or one boolean for each prompt, as list, array or tensor.
        count: Prompts there are.

    Raises:
        PromptError: says what was found.
    """
    given = index.detach().cpu().numpy() if isinstance(index, Tensor) else index
    if not isinstance(given, np.ndarray):
        try:
            given = np.asarray(list(given) if isinstance(given, range | Sequence) else given)
        except ValueError:  # lists of several lengths
            given = np.asarray(None)
    if not given.size and given.ndim == 1:
        given = given.astype(np.int64)
    if given.dtype == np.bool_ and given.ndim == 1:
        if len(given) != count:
            raise PromptError(
                f"A mask of {len(given)} booleans for {count} prompts; give one for each."
            )
        return [int(number) for number in given.nonzero()[0]]
    if not np.issubdtype(given.dtype, np.integer) or given.ndim > 1:
        raise PromptError(
            f"Prompts cannot be chosen by {shown(index)}; give a number, a slice, a list of numbers, or "
            "a mask with one boolean for each prompt."
        )
    if given.ndim == 0:
        # IndexError, too, is how Python's own iteration ends.
        return _within(int(given), count)
    return [_within(int(number), count) for number in given]


class _NoSuchPromptError(PromptError, IndexError):
    """A number beyond the last prompt."""


def _within(number: int, count: int) -> int:
    if not -count <= number < count:
        raise _NoSuchPromptError(
            f"There is no prompt {number}: the batch has {count}, numbered from 0."
        )
    return number
