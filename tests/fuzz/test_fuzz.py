"""Random cases against plain Hugging Face, for FUZZ_SECONDS (default 6), and that the fuzzer finds faults."""

import os
import time

import numpy as np
import pytest

import icl_mech.models.bridge as bridge
from icl_mech.engine.prepared import Prepared
from icl_mech.models.bridge import FusedWeights
from icl_mech.models.watching import Watch
from icl_mech.prompts import PromptBatch
from icl_mech.studies.bench import Bench
from tests.fuzz.cases import Case
from tests.fuzz.compare import outcome

KEPT = (9, 188, 450, 2052, 2492)
"""Seeds that failed once."""

SECONDS = float(os.environ.get("FUZZ_SECONDS", "6"))

LEAST = 16
"""Cases that are drawn whatever the time: of the first eight, half are refused."""

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_random_cases_equal_plain_hugging_face(times):
    until, found, seed = time.monotonic() + times * SECONDS, [], 0
    while time.monotonic() < until or seed < LEAST:
        found.append(outcome(Case.drawn(seed)))
        seed += 1
    failures = [str(own) for own in found if own.failed]
    assert not failures, "\n".join(failures)
    refused = sum(bool(own.refused) for own in found)
    assert refused <= 0.4 * len(found), [own.refused for own in found if own.refused]


@pytest.mark.parametrize("seed", KEPT)
def test_what_failed_once_stays_mended(seed):
    own = outcome(Case.drawn(seed))
    assert not own.failed, str(own)


def no_hooks(patch):
    """Hooks of the caller's on modules are not looked for."""
    patch.setattr(Watch, "_foreign", lambda self: iter(()))


def left_out(patch):
    """Hooks on modules that the bridge does not call are let through."""
    patch.setattr(bridge, "check_heard", lambda *_: None)


def stale(patch):
    """Weights are always those of the first look."""
    patch.setattr(Watch, "weights", lambda self, exact=False: "the same")


def as_split(patch):
    """Fused weights are split once and for all."""
    patch.setattr(FusedWeights, "renew", lambda self: None)


def prepared(patch):
    """Keys and values of earlier weights are taken."""
    patch.setattr(Prepared, "check_current", lambda self: None)


def numbers(patch):
    """Masks are read as numbers."""

    def item(self, index):
        if isinstance(index, int | np.integer):
            return self.prompts[index]
        if isinstance(index, slice):
            return PromptBatch(self.prompts[index], self.source)
        return PromptBatch(tuple(self.prompts[int(i)] for i in index), self.source)

    patch.setattr(PromptBatch, "__getitem__", item)


def kept(patch):
    """A finished result is taken whatever it is of."""
    from icl_mech.results import Result

    def finished(self, name, item, weights):
        folder = self.out / name if self.out is not None else None
        return Result.load(folder) if folder is not None and folder.exists() else None

    patch.setattr(Bench, "_finished", finished)


FAULTS = {no_hooks: 2, left_out: 9, stale: 72, as_split: 450, prepared: 188, numbers: 8, kept: 68}
"""What would be wrong with the package, and a seed that shows it."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda own: own.__name__)
def test_the_fuzzer_finds(fault, monkeypatch):
    case = Case.drawn(FAULTS[fault])
    assert not outcome(case).failed
    fault(monkeypatch)
    assert outcome(Case.drawn(case.seed)).failed
