"""What readings keep: rows in input order, in storage of their own."""

import pytest
import torch

from icl_mech.engine import Kept
from icl_mech.models import Site

ONE, TWO = Site("pattern", 0), Site("z", 1)


def rows(prompts, *, scale=1.0, shape=(2,)):
    """A row per prompt that tells its number."""
    return torch.stack([torch.full(shape, scale * (prompt + 1)) for prompt in prompts])


def kept(batches, sites=(ONE, TWO), *, ragged=False):
    """Batches of prompts, the second site ten times the first."""
    store = Kept(sum(map(len, batches)), ragged=ragged)
    for prompts in batches:
        store.add(prompts, {s: rows(prompts, scale=10.0**i) for i, s in enumerate(sites)})
    return store


def test_input_order_whatever_the_order_of_batches():
    """Longest prompts come first; halves of a batch come apart."""
    store = kept([(4, 1), (0,), (3, 2)])
    expected = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    found = store.stacked()
    assert found.shape == (5, 2, 2)
    for i, site in enumerate((ONE, TWO)):
        for channel in range(2):
            assert torch.equal(found[:, i, channel], expected * 10**i)
        assert torch.equal(store.by_site()[site][:, 0], expected * 10**i)


def test_sites_keep_the_order_they_came_in():
    assert list(kept([(0, 1)], (TWO, ONE)).by_site()) == [TWO, ONE]
    assert kept([(1, 0)], (TWO, ONE)).stacked()[:, :, 0].tolist() == [[1.0, 10.0], [2.0, 20.0]]


@pytest.mark.parametrize("ragged", [False, True])
def test_what_was_given_may_change_afterwards(ragged):
    """Activations' memory is used again by the next batch."""
    given = rows((1, 0))
    store = Kept(2, ragged=ragged)
    store.add((1, 0), {ONE: given})
    given.fill_(-7)
    found = torch.stack(store.per_prompt()) if ragged else store.stacked()
    assert found[:, 0, 0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("ragged", [False, True])
def test_no_storage_is_shared_with_what_was_given(ragged):
    """A small row that is a view would hold the whole activation."""
    activation = torch.rand(2, 1000)
    store = Kept(2, ragged=ragged)
    store.add((0, 1), {ONE: activation[:, :3]})
    found = store.per_prompt()[0] if ragged else store.by_site()[ONE]
    assert found.untyped_storage().data_ptr() != activation.untyped_storage().data_ptr()
    assert found.untyped_storage().nbytes() <= 2 * 3 * 4
    if ragged:
        assert all(row.untyped_storage().nbytes() == 3 * 4 for row in store._rows[1])


def test_shapes_may_differ_by_site():
    store = Kept(3)
    for prompts in ((2, 0), (1,)):
        store.add(prompts, {ONE: rows(prompts, shape=(4, 1)), TWO: rows(prompts, shape=())})
    by_site = store.by_site()
    assert by_site[ONE].shape == (3, 4, 1)
    assert by_site[ONE][:, 3, 0].tolist() == [1.0, 2.0, 3.0]
    assert by_site[TWO].tolist() == [1.0, 2.0, 3.0]


def test_ragged_rows_keep_their_own_shape():
    store = Kept(3, ragged=True)
    for prompts, width in (((2, 0), 5), ((1,), 2)):
        values = {
            site: rows(prompts, scale=scale, shape=(width, width))
            for site, scale in ((ONE, 1.0), (TWO, 10.0))
        }
        store.add(prompts, values)
    found = store.per_prompt()
    assert [tuple(row.shape) for row in found] == [(2, 5, 5), (2, 2, 2), (2, 5, 5)]
    for number, row in enumerate(found):
        assert torch.equal(row[0], torch.full_like(row[0], number + 1))
        assert torch.equal(row[1], 10 * row[0])


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_the_dtype_is_kept(dtype, ragged):
    store = Kept(2, ragged=ragged)
    store.add((1, 0), {ONE: torch.tensor([[1], [0]], dtype=dtype)})
    found = torch.stack(store.per_prompt()) if ragged else store.stacked()
    assert found.dtype == dtype
    assert found.flatten().tolist() == [0, 1]
