"""What is read of weights to recognise them: little, where they are, in one transfer for each device."""

import hashlib
import zlib

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from icl_mech.errors import ModelError
from icl_mech.models import watching
from icl_mech.models.checks import check_weights
from icl_mech.models.watching import PIECE, Watch, checksum
from tests.tiny import tiny_hf

LARGE = 1000, 600

LAYOUTS = {
    "contiguous": lambda: torch.randn(LARGE),
    "transposed": lambda: torch.randn(LARGE).t(),
    "permuted": lambda: torch.randn(30, 100, 200).permute(2, 0, 1),
    "columns": lambda: torch.randn(1000, 1800)[:, 600:1200],
    "every other": lambda: torch.randn(2000, 1200)[::2, 1::2],
    "expanded": lambda: torch.randn(1000, 1).expand(LARGE),
    "overlapping": lambda: torch.randn(2000).unfold(0, 600, 1)[:1000],
    "expanded columns": lambda: torch.randn(9000, 3, 1)[:, 1:].expand(9000, 2, 40),
    "small": lambda: torch.randn(30, 20).t(),
    "small columns": lambda: torch.randn(30, 20)[:, 3:9],
    "small expanded": lambda: torch.randn(30, 2, 1)[:, 1:].expand(30, 1, 5000),
}


def holder(*tensors):
    """A module that holds tensors as they lie."""
    module = torch.nn.Module()
    for number, tensor in enumerate(tensors):
        module.register_buffer(f"t{number}", tensor)
    return module


class Made(TorchDispatchMode):
    """Bytes of tensors that are made, views apart, and how often a number is read."""

    def __init__(self, *weights):
        super().__init__()
        self.storages = {own.untyped_storage().data_ptr() for own in weights}
        self.sizes = []
        self.made = set()
        self.synchronised = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.synchronised += func is torch.ops.aten._local_scalar_dense.default
        made = func(*args, **(kwargs or {}))
        for own in made if isinstance(made, tuple | list) else [made]:
            if isinstance(own, torch.Tensor):
                storage = own.untyped_storage()
                if storage.data_ptr() not in self.storages:
                    self.sizes.append(storage.nbytes())
                    self.made.add(storage.data_ptr())
        return made


@pytest.mark.parametrize("name", [own for own in LAYOUTS if "small" not in own])
def test_asking_again_gathers_a_small_share(name, monkeypatch):
    tensor = LAYOUTS[name]()
    watch = Watch(holder(tensor))
    before = watch.weights()
    monkeypatch.setattr(watching, "checksum", None)  # nothing is read whole
    with Made(tensor) as made:
        assert watch.weights() == before
    assert made.sizes
    assert sum(made.sizes) < 0.01 * tensor.nbytes


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_hidden_change_is_seen_however_the_tensor_lies(name):
    tensor = LAYOUTS[name]()
    watch = Watch(holder(tensor))
    before = watch.weights()
    entries = tensor.untyped_storage().nbytes() // 4
    tensor.untyped_storage().copy_(torch.randn(entries).untyped_storage())
    assert tensor._version == 0
    assert watch.weights() != before
    assert watch.weights() == Watch(holder(tensor.clone())).weights()


@pytest.mark.parametrize("name", [own for own in LAYOUTS if "small" in own])
def test_of_small_ones_every_entry_is_compared_and_no_other(name):
    tensor = LAYOUTS[name]()
    watch = Watch(holder(tensor))
    storage = tensor.untyped_storage()
    entries = torch.empty(0).set_(storage, 0, (storage.nbytes() // 4,))
    for entry in entries.data:
        old, before = tensor.clone(), watch.weights()
        entry += 1
        assert (watch.weights() == before) == torch.equal(tensor, old)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(768, 768), (2304, 768), (768, 3072), (192, 576), (4096, 128)])
def test_hidden_changes_of_one_head_are_seen(shape, axis):
    """A sixteenth of the rows or columns, whichever."""
    tensor = torch.randn(shape)
    watch = Watch(holder(tensor))
    for part in tensor.data.chunk(16, axis):
        before = watch.weights()
        part += 1
        assert watch.weights() != before


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_digest_is_of_the_entries_in_their_order(name, monkeypatch):
    tensor = LAYOUTS[name]()
    monkeypatch.setattr(watching, "PIECE", 10_000)
    expected = zlib.crc32(tensor.numpy().tobytes())
    assert checksum(tensor) == checksum(tensor.contiguous()) == expected


def test_the_digest_is_the_one_of_before():
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    words = repr([("t0", (3, 4), "torch.float32", zlib.crc32(weight.numpy().tobytes()))])
    expected = hashlib.sha256(words.encode()).hexdigest()[:32]
    assert expected == "85a717904d0e17da403755f445ede0ae"
    for own in (weight, weight.t().contiguous().t(), torch.stack([weight, weight], 2)[..., 0]):
        assert Watch(holder(own)).weights() == expected


KINDS = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool float8_e4m3fn float8_e5m2"
)


def of_kind(name, at=1):
    """Columns of bytes `at`, as a format, and small ones in order."""
    kind = getattr(torch, name)
    content = torch.full((400, 64 * kind.itemsize), at, dtype=torch.uint8)
    return content.view(kind)[:, 8:40], content[0].view(kind)


def test_all_formats_side_by_side():
    names = KINDS.split()
    for changed in names:
        tensors = {name: of_kind(name) for name in names}
        module = holder(*(own for pair in tensors.values() for own in pair))
        watch = Watch(module)
        before = watch.weights()
        assert watch.weights() == before
        other = of_kind(changed, 0)
        for own, fresh in zip(tensors[changed], other, strict=True):
            own.data.copy_(fresh)
            after = watch.weights()
            assert after not in (before, "")
            before = after
        assert before == Watch(module).weights()


def test_another_tensor_in_the_place_of_one_that_is_gone():
    """Memory is given out again: place and counter are those of before, and so is the sample."""
    layer = torch.nn.Linear(300, 300)
    kept, watch = layer.weight.detach().clone(), Watch(layer)
    before, places = watch.weights(), [layer.weight.data_ptr()]
    for number in range(30):
        layer.weight.data = torch.zeros(0)  # gone before the next is made
        fresh = kept.clone()
        fresh[7, 11] = number
        layer.weight.data = fresh
        del fresh
        places.append(layer.weight.data_ptr())
        before, last = watch.weights(), before
        assert before != last
    assert len(set(places)) < len(places)


def test_what_is_known_keeps_no_weights():
    layer = torch.nn.Linear(300, 300)
    watch = Watch(layer)
    watch.weights()
    old = StorageWeakRef(layer.weight.untyped_storage())
    layer.weight.data = torch.zeros(300, 300)
    assert old.expired()
    assert watch.weights() == Watch(layer).weights()


@pytest.mark.parametrize("name", ["transposed", "columns", "expanded"])
def test_a_digest_holds_two_pieces(name, monkeypatch):
    tensor = LAYOUTS[name]()
    monkeypatch.setattr(watching, "PIECE", 100_000)
    with Made(tensor) as made:
        checksum(tensor)
    assert set(made.sizes) == {100_000}
    assert len(made.made) == 2


def test_a_digest_copies_nothing_that_lies_in_order():
    tensor = torch.randn(LARGE)
    with Made(tensor) as made:
        checksum(tensor)
    assert not made.sizes


# Other devices, played by tensors that count what leaves them.


class Far(torch.Tensor):
    """A tensor of another device, whose numbers lie here."""

    left: list

    @staticmethod
    def __new__(cls, inner, device):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), dtype=inner.dtype, device=device
        )

    def __init__(self, inner, device):
        self.inner = inner

    def data_ptr(self):
        return self.inner.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        flat = [own for own in tree_leaves((args, kwargs)) if isinstance(own, Far)]
        made = func(*tree_map_only(Far, lambda own: own.inner, args), **kwargs)
        goes = func is torch.ops.aten._to_copy.default and kwargs["device"].type == "cpu"
        if goes or func is torch.ops.aten.copy_.default:
            cls.left.append((flat[0].device, made.nbytes))
            return made
        return tree_map_only(torch.Tensor, lambda own: Far(own, flat[0].device), made)


@pytest.fixture
def far():
    Far.left = []
    devices = [torch.device("xpu", number) for number in (0, 1)]
    shapes = (LARGE, (300,), (8, 8))
    return [
        Far(torch.randn(shape).to(kind), device)
        for device in devices
        for shape in shapes
        for kind in (torch.float32, torch.bfloat16)
    ]


def test_samples_of_a_device_leave_it_at_once(far):
    watch = Watch(holder(*far))
    before = watch.weights()
    Far.left.clear()
    assert watch.weights() == before
    assert [device.index for device, _ in Far.left] == [0, 1]
    assert sum(size for _, size in Far.left) < 0.01 * sum(own.nbytes for own in far)
    far[-1].inner += 1
    assert watch.weights() != before


def test_the_digest_is_the_same_on_every_device(far):
    here = holder(*(own.inner for own in far))
    assert Watch(holder(*far)).weights() == Watch(here).weights()
    assert max(size for _, size in Far.left) <= PIECE


# Checks and what is split.


def test_no_flag_of_a_parameter_is_read_by_itself():
    model = tiny_hf("llama")
    with Made() as made:
        check_weights(model)
    assert made.synchronised == 0


@pytest.mark.parametrize("last", [False, True])
def test_the_first_damaged_weight_is_named(last):
    model = tiny_hf("llama").half()
    names = [name for name, _ in model.named_parameters()]
    with torch.no_grad():
        for name in names[-1:] if last else names[3:]:
            model.get_parameter(name).view(-1)[0] = float("nan")
        model.get_parameter(names[1]).fill_(60_000)  # whose sum is not finite
    with pytest.raises(ModelError, match=repr(names[-1] if last else names[3])):
        check_weights(model)
