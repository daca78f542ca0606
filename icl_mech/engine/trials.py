"""Time and memory of passes on this machine: shapes recorded by a rehearsal, timed for about ten seconds.

A pass of `n` blocks over `r` rows (prompts times computed tokens) that attend to `c` columns takes
`e + n (a + b r + d r c)` seconds, a backward pass without `e`. It takes `n (b r + d r c) + e r` bytes
if its graph is kept, `b r + d r c` if not. The factors are fitted to the measurements by non-negative least squares.
"""

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from icl_mech._typing import Tensor
from icl_mech.engine.memory import free_memory
from icl_mech.models import LanguageModel, Site
from icl_mech.models.adapt import untrained
from icl_mech.models.rehearsal import Call, Ledger, Load

SECONDS = 10.0
"""Time budget of all trials of a model, unless a single one takes longer."""

SHAPES = 5
"""Number of shapes of each kind of call that are timed."""

REDUCED = 2
"""Copies of a hooked activation that its reductions and changes take."""

LONGEST = 128
"""Largest number of tokens of a prompt for which memory is measured."""


@dataclass(frozen=True)
class Costs:
    """Costs of passes of one model on its device.

    Attributes:
        times: Factors of the processor time, by kind of call.
        rate: Wall-clock seconds per second of processor time, at the current load.
        graph: Factors of the bytes of a pass with a graph.
        forward: Factors of the bytes of a pass without a graph.
        size: Bytes of a number.
        width: Width of the residual stream.
        vocabulary: Number of logits of a row.
        network: Processor time to make a randomly initialised model, if any are needed.
    """

    times: Mapping[str, Sequence[float]]
    rate: float
    graph: Sequence[float]
    forward: Sequence[float]
    size: int
    width: int
    vocabulary: int
    network: float

    def seconds(self, calls: Mapping[Call, int]) -> float:
        """Processor time of these calls, given the number of each shape."""
        return sum(n * _sum(self.times[call.kind], call.features) for call, n in calls.items())

    def bytes(self, load: Load) -> float:
        """Bytes a pass takes in addition to what is held throughout."""
        call, behind = load.call, load.behind
        rows, columns = call.batch * call.rows, call.columns
        if call.kind == "unembed":
            return 2.0 * rows * self.size * self.vocabulary
        taken = float(REDUCED * load.hooked * self.size)
        if not load.graph:
            return taken + _sum(self.forward, (rows, rows * columns))
        # A recomputed block is in memory together with its inputs: the residuals entering all blocks.
        again = load.graph == "recomputed"
        parts = [(rows, columns, 1 if again else call.blocks), (call.batch * behind, behind, 1)]
        parts.append((behind, behind, call.blocks * load.beginning))
        taken += sum(_sum(self.graph, (n * r, n * r * c, r)) for r, c, n in parts)
        return taken + again * rows * call.blocks * self.size * self.width


def tried(ledger: Ledger) -> Costs:
    """Costs of the shapes of a ledger; shapes that take more than half of the free memory are not run."""
    info, kinds = ledger.model.info, sorted({call.kind for call in ledger.calls}, reverse=True)
    longest = max(4, min(LONGEST, max(call.columns for call in ledger.calls)))
    forward, graph = dict[tuple[int, ...], float](), dict[tuple[int, ...], float]()
    for n in (longest // 2, longest):
        forward[n, n * n] = _most_bytes(ledger, Call("forward", 1, n, n))
        for blocks in {1, min(3, info.n_layers)} if "backward" in kinds else ():
            features = (blocks * n, blocks * n * n, n)
            graph[features] = _most_bytes(ledger, Call("backward", 1, n, n, blocks))
    sizes = getattr(torch, info.dtype).itemsize, info.d_model, info.d_vocab
    model = ledger.model
    made = _clocked(model, lambda: untrained(model.wrapped))[0] if ledger.networks else 0.0
    costs = Costs({}, 1.0, _fitted(graph), _fitted(forward), *sizes, made)
    times: dict[str, Sequence[float]] = {}
    spent, end = torch.zeros(2).double(), time.thread_time() + SECONDS
    for place, kind in enumerate(kinds):
        now, took = time.thread_time(), dict[tuple[int, ...], float]()
        until = now + (end - now) / (len(kinds) - place)
        for call in _chosen(ledger.calls, kind):
            if not took or time.thread_time() < until:
                for shape, seconds in _timed(ledger, call, until, costs):
                    took[shape.features] = seconds[0]
                    spent += torch.tensor(seconds)
        times[kind] = _fitted(took)
    return replace(costs, times=times, rate=float(spent[1] / spent[0]))


def _sum(factors: Sequence[float], features: Sequence[int]) -> float:
    return float(sum(map(mul, factors, features)))


def _fitted(samples: Mapping[tuple[int, ...], float]) -> Sequence[float]:
    """Non-negative factors, by least squares of relative errors."""
    from scipy.optimize import nnls

    if not samples:
        return ()
    table = torch.tensor(
        [[feature / value for feature in key] for key, value in samples.items()]
    ).double()
    scale = table.amax(0).clamp(min=1e-300)
    factors, _ = nnls((table / scale).numpy(), [1.0] * len(samples))
    return [*map(float, factors / scale.numpy())]


def _chosen(calls: Mapping[Call, int], kind: str) -> list[Call]:
    """The shapes that make up most of the work of a kind of call, small ones first."""
    work: Counter[Call] = Counter()
    for call, count in calls.items():
        work[call._replace(blocks=1)] += count * call.work * (call.kind == kind)
    return sorted(
        (shape for shape, size in work.most_common(SHAPES) if size), key=lambda shape: shape.work
    )


def _timed(
    ledger: Ledger, call: Call, until: float, costs: Costs
) -> Iterator[tuple[Call, tuple[float, float]]]:
    """Least time of a shape with one block, and with as many blocks as memory and time allow."""
    room = free_memory(ledger.model.device) / 2
    graph: Any = "kept" if call.kind == "backward" else ""
    while costs.bytes(Load(call, graph)) > room and call.batch * call.rows > 1:
        call = Call(call.kind, *(max(1, size // 2) for size in call[1:4]))
    _run(ledger, call)  # warms up
    seconds, passes = min(_run(ledger, call), _run(ledger, call)), 1 + bool(graph)
    yield call, seconds
    most = (until - time.thread_time()) / (2 * passes * max(seconds[0], 1e-6))
    blocks = int(min(most, room / costs.bytes(Load(call, graph)), ledger.model.info.n_layers))
    if call.kind != "unembed" and blocks > 1:
        call = call._replace(blocks=blocks)
        took = [_run(ledger, call)]
        while len(took) < 3 and took[-1][0] * passes < until - time.thread_time():
            took.append(_run(ledger, call))
        yield call, min(took)


def _run(ledger: Ledger, call: Call) -> tuple[float, float]:
    """Time one call of a shape, with tokens of real prompts; for a backward pass, without its forward pass."""
    model, (kind, batch, rows, columns, blocks) = ledger.model, call
    flat, cached, entered = ledger.tokens.flatten(), columns - rows, list[Tensor]()
    with torch.no_grad():
        if kind == "unembed":
            width, like = model.info.d_model, next(model.module.parameters())
            normed = like.new_ones(rows, width, device=model.device)
            return _clocked(model, lambda: model.unembed(normed))
        tokens = flat.repeat(-(-batch * rows // len(flat)))[: batch * rows].view(batch, rows)
        places = torch.arange(columns, device=tokens.device).expand(batch, -1)
        given = (tokens, places >= 0, places[:, cached:])
        how: dict[str, Any] = {"stop": blocks}
        if cached:
            first = model.forward(*(tensor[:1, :1] for tensor in given), keep_cache=True).cache
            how["cache"] = first and first.expand(batch).padded(cached)
        if kind == "forward":
            return _clocked(model, lambda: model.forward(*given, **how))

    def leaf(residual: Tensor) -> Tensor:
        entered.append(residual.detach().requires_grad_())
        return entered[0]

    with model.gradients(), model.installed([(Site("resid_pre", 0), leaf)]):
        total = model.forward(*given, **how).residual.sum()
        return _clocked(model, lambda: torch.autograd.grad(total, entered[0]))


def _clocked(model: LanguageModel, run: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall-clock seconds of a call; on a GPU both are wall-clock seconds."""
    # `int` does nothing: on a CPU the work is done when the call returns.
    wait = torch.cuda.synchronize if model.device.type == "cuda" else int
    wait()
    cpu, clock = time.process_time(), time.perf_counter()
    run()
    wait()
    took = time.perf_counter() - clock
    return (took if model.device.type == "cuda" else time.process_time() - cpu), took


class _Allocated(TorchDispatchMode):
    """Counts the bytes of live tensors that were created under this mode."""

    now = most = 0

    def __torch_dispatch__(self, func: Callable[..., object], *asked: Any, **_: Any) -> object:
        args, kwargs = asked[1], asked[2] or {}
        result, given = func(*args, **kwargs), _storages((args, kwargs))
        for key, storage in _storages(result).items():
            if key not in given:
                self._count(storage.nbytes())
                weakref.finalize(storage, self._count, -storage.nbytes())
        return result

    def _count(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


def _storages(tree: object) -> dict[int, torch.UntypedStorage]:
    tensors = (tensor for tensor in tree_leaves(tree) if isinstance(tensor, Tensor))
    return {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}


def _most_bytes(ledger: Ledger, call: Call) -> float:
    mode: Callable[[], Any] = _Allocated
    with mode() as counted:
        _run(ledger, call)
    return float(counted.most)
