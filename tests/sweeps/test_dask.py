"""On a real cluster of two worker processes, and what is left after kills."""

import warnings

import pytest

from icl_mech.sweeps import Sweep
from tests.sweeps.killed import run
from tests.sweeps.kills import compare, torment

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as connected,
        ):
            yield connected


def test_the_same_numbers_as_serially(client, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.sweeps.killed.SEEDS", range(12))  # 24 items
    found = run(tmp_path / "s", executor=client.get_executor())
    assert len(found) == 24
    compare(tmp_path / "s")
    memory = run(None, executor=client.get_executor())
    assert memory.items.state.tolist() == ["done"] * 24


@pytest.mark.exhaustive
@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_kills_lose_and_double_nothing(executor, tmp_path, monkeypatch):
    if executor == "dask":
        pytest.importorskip("distributed")
    # The three kills come before the end: for each at most 3 items are waited for, and 2 workers that need
    # a second for an item finish 2 in the moment before it and 2 while nobody looks. There are 32.
    monkeypatch.setenv("SLOW", "1")
    monkeypatch.setenv("SEEDS", "16")
    monkeypatch.setattr("tests.sweeps.killed.SEEDS", range(16))
    killed = torment(tmp_path / "s", 3, executor, seed=1, longest=1)
    assert sum(killed.values()) == 3
    assert Sweep.load(tmp_path / "s").items.state.tolist() == ["done"] * 32
    monkeypatch.setenv("SLOW", "0")
    compare(tmp_path / "s")
