"""`Undo`: changes of a model that are taken back whatever happens, also at an interrupt.

An interrupt (`KeyboardInterrupt`) can arise between any two steps: after a change and before the
`try` that would take it back, or at the first step of what takes it back. So how to take a change
back is noted before it is made; taking it back a second time does nothing; and what an interrupt
left over is taken back by the pass that made it (`kept`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from icl_mech.models.precision import leave


class Undo:
    """What has been changed for a while, by how it is taken back."""

    def __init__(self) -> None:
        self._pending: dict[object, Callable[[], None]] = {}

    @contextmanager
    def by(self, take_back: Callable[[], None]) -> Iterator[None]:
        """Context in which a change may be made; `take_back` restores what was before it.

        Args:
            take_back: Must hold what was before, and do nothing where nothing was changed.
        """
        key = object()
        try:
            self._pending[key] = take_back
            yield
        finally:
            self._take_back([key])

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Context that leaves nothing behind that was changed inside, nor in torch's modes."""
        before, enabled = set(self._pending), torch.is_grad_enabled()
        try:
            yield
        except BaseException:
            self._take_back([key for key in self._pending if key not in before])
            leave()
            torch.set_grad_enabled(enabled)
            raise

    def _take_back(self, keys: Sequence[object]) -> None:
        interrupt: KeyboardInterrupt | None = None
        for key in reversed(keys):
            while key in self._pending:
                try:
                    self._pending[key]()
                    self._pending.pop(key, None)
                except KeyboardInterrupt as error:  # noqa: PERF203 - it must not end the loop
                    interrupt = error
        if interrupt is not None:
            raise interrupt
