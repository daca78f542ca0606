"""`Board`: the lens of every query of the set, measured batch by batch and cached by experiment and query.

Its last entry is the answer: the probability of the true one, and the class with the largest.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.bars import Bar
from icl_mech.engine import Overall, run
from icl_mech.errors import IclMechError
from icl_mech.explorer.actions import Stage
from icl_mech.explorer.experiment import Experiment, Query
from icl_mech.interventions import Intervention
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

TOGETHER = 5
"""Queries per batch; after each batch the run can be stopped."""

KEPT = 64
"""Maximum number of cached experiments."""

Changes = Callable[[Experiment, PromptBatch, Sequence[Query]], list[Intervention]]
"""The interventions of an experiment on prompts with these queries."""

Lens = Float[Tensor, "entry label"]
"""Logits of the label words."""

Lenses = dict[int, Lens | None]
"""Lenses by the number of the query; None: the query cannot be asked after these demonstrations."""


class StoppedError(Exception):
    """The run was stopped from outside; what was not sent is not kept."""


class Telling(Bar):
    """A bar that reports to a function after every batch, and ends the run on request."""

    def __init__(self, tell: Callable[[float, str], None], stop: Callable[[], bool]) -> None:
        """Report to `tell`; ask `stop` whether to end."""
        self._tell, self._stop = tell, stop

    def show(self, title: str, share: float, words: str) -> None:
        """Report progress after a batch.

        Raises:
            StoppedError: a stop was requested.
        """
        self._tell(share, words)
        if self._stop():
            raise StoppedError


@dataclass
class _Streamed(LayerLensReading):
    """The lens over the label words, also available while the run goes on."""

    vocabulary: bool = False
    values: dict[int, dict[Site, Tensor]] = field(default_factory=dict)

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Label logits of one entry."""
        logits = super().reduce(site, activation, segment)
        for index, row in zip(segment.indices, logits[:, 0], strict=True):
            self.values.setdefault(index, {})[site] = row
        return logits

    def finished(self, info: ModelInfo) -> dict[int, Lens]:
        """Take the prompts of which every entry was read."""
        sites = self.sites(info)
        done = [index for index, values in self.values.items() if len(values) == len(sites)]
        taken = {index: self.values.pop(index) for index in done}
        return {i: torch.stack([rows[site] for site in sites]).cpu() for i, rows in taken.items()}


class Board:
    """Lenses of all queries, by experiment."""

    def __init__(self, model: LanguageModel, stage: Stage, changes: Changes) -> None:
        """Start with nothing measured."""
        self.model, self.stage, self.changes = model, stage, changes
        self._known: OrderedDict[tuple[object, ...], Lenses] = OrderedDict()

    def lenses(
        self,
        experiment: Experiment,
        tell: Callable[[Lenses], None] = lambda more: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> Lenses:
        """The lens of every query.

        Args:
            experiment: Demonstrations and changes.
            tell: Receives what is cached, then each batch.
            stop: Asked after every batch whether to stop.

        Raises:
            StoppedError: a stop was requested; batches so far are kept.
            IclMechError: the package rejects the changes.
        """
        known = self.known(experiment)
        tell(dict(known))
        left = [n for n in range(len(self.stage.queries)) if n not in known]
        if not left:
            return known
        asked = self._possible(experiment, left)
        if impossible := [number for number in left if number not in asked]:
            known.update(dict.fromkeys(impossible))
            tell(dict.fromkeys(impossible))
        if asked:
            try:
                self._run(experiment, asked, known, tell, stop)
            except IclMechError:
                known.clear()  # what a rejected change left unchanged is no measurement of it
                raise
        return known

    def _run(
        self,
        experiment: Experiment,
        asked: Sequence[int],
        known: Lenses,
        tell: Callable[[Lenses], None],
        stop: Callable[[], bool],
    ) -> None:
        reading = _Streamed(lens=self.stage.lens)

        def heard(share: float, words: str) -> None:
            done = reading.finished(self.model.info)
            more: Lenses = {asked[index]: lens for index, lens in done.items()}
            known.update(more)
            if more:
                tell(more)

        prompts, changes = self._prompts(experiment, asked)
        with Overall("board", True, Telling(heard, stop)):
            run(self.model, prompts, [reading], changes, batch_size=TOGETHER)

    def known(self, experiment: Experiment) -> Lenses:
        """What was measured of it so far; it grows with every batch."""
        key = experiment.demos, experiment.changes, experiment.choices
        known = self._known.setdefault(key, {})
        self._known.move_to_end(key)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return known

    def _prompts(
        self, experiment: Experiment, numbers: Sequence[int]
    ) -> tuple[PromptBatch, list[Intervention]]:
        queries = [self.stage.queries[number] for number in numbers]
        prompts = experiment.prompts(self.stage.task, self.model, queries)
        return prompts, self.changes(experiment, prompts, queries)

    def _possible(self, experiment: Experiment, numbers: Sequence[int]) -> list[int]:
        """The queries that differ from every demonstration and have the tokens of all changes."""
        try:
            self._prompts(experiment, numbers)
        except IclMechError:
            if len(numbers) == 1:
                return []
            half = len(numbers) // 2
            parts = numbers[:half], numbers[half:]
            return [n for part in parts for n in self._possible(experiment, part)]
        return [*numbers]


def answered(lens: Lens | None, answer: int) -> list[Any] | None:
    """Probability of the true answer, and number of the likeliest one."""
    if lens is None:
        return None
    return [float(f"{lens[-1].softmax(-1)[answer]:.4g}"), int(lens[-1].argmax())]
