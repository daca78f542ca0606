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
    monkeypatch.setenv("SLOW", "1")
    killed = torment(tmp_path / "s", 3, executor, seed=1)
    assert sum(killed.values()) == 3
    assert Sweep.load(tmp_path / "s").items.state.tolist() == ["done"] * 12
    compare(tmp_path / "s")
