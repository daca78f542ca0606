"""Rehearsals: runs whose blocks are counted instead of computed.

Within `rehearsing` a mock model replaces each model: its sites hold noise of the right shape, so layouts,
hooks, readings, backward passes and statistics are those of the run, and each computation is recorded
where the run would do it. The plan of passes is that of the engine.
"""

import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.errors import ModelError
from icl_mech.models.interface import ForwardInput, ForwardOutput, KeyValues, LanguageModel, Site
from icl_mech.models.server import ServerModel

ORDER = get_args(Site.__annotations__["name"])
"""Sites of a block in the order of the forward pass."""

SPARE = 1 << 16
"""Extra noise beyond the size of the largest site, so that hardly any two sites hold the same values."""


class Call(NamedTuple):
    """The shape of one computation; in a backward pass each block is a call."""

    kind: Literal["forward", "backward", "unembed"]
    batch: int
    rows: int
    columns: int = 0
    blocks: int = 1

    @property
    def work(self) -> int:
        """Number of token rows times blocks; for the unembedding the number of rows."""
        return self.batch * self.rows * self.blocks

    @property
    def features(self) -> tuple[int, ...]:
        """Number of passes, blocks, token rows through them, and pairs of a row and an attended column."""
        return self.kind != "backward", self.blocks, self.work, self.work * self.columns


class Load(NamedTuple):
    """The memory load of a pass.

    Attributes:
        call: Its forward pass.
        graph: `kept` for the backward pass, `recomputed`, or empty if there is none.
        behind: Columns of a common beginning through which the backward pass continues.
        beginning: True if the graph of that beginning is kept.
        hooked: Number of entries of the largest site with a hook.
    """

    call: Call
    graph: Literal["", "kept", "recomputed"] = ""
    behind: int = 0
    beginning: bool = False
    hooked: int = 0


@dataclass(eq=False)
class Ledger:
    """Record of the computations of one model.

    Attributes:
        model: The model.
        before: Bytes in use when the rehearsal began.
        calls: Number of computations of each shape.
        held: For each pass, the most bytes held in addition when it runs.
        networks: Number of randomly initialised models made from it.
        tokens: Tokens of prompts, for trials.
        beginning: True if the graph of a common beginning is kept.
        alive: Number of randomly initialised models in memory.
    """

    model: LanguageModel
    before: int
    calls: Counter[Call] = field(default_factory=Counter)
    held: dict[Load, int] = field(default_factory=dict)
    networks: int = 0
    tokens: Int[Tensor, "batch pos"] = field(default_factory=lambda: torch.zeros(1, 1).long())
    beginning: bool = False
    alive: int = 0
    pool: Tensor = field(default_factory=lambda: torch.zeros(0))
    turn: int = 0

    def rows(self, kind: str) -> int:
        """Token rows through a block, forward or backward, or through the unembedding."""
        return sum(call.work * count for call, count in self.calls.items() if call.kind == kind)

    @property
    def weights(self) -> int:
        """Bytes of the model."""
        return sum(parameter.nbytes for parameter in self.model.module.parameters())

    def note(self, load: Load) -> None:
        """Record that a pass begins."""
        self.calls[load.call] += 1
        now = in_use(self.model.device) - self.before - self.pool.nbytes
        self.held[load] = max(now + (self.alive and self.weights), self.held.get(load, 0))

    def noise(self, shape: Sequence[int], chain: Tensor | None) -> Tensor:
        """Random numbers of a shape, connected to the graph of `chain`."""
        size = prod(shape)
        if len(self.pool) < size + SPARE:
            drawn = torch.rand(size + SPARE, generator=torch.Generator().manual_seed(0))
            self.pool = drawn.to(self.model.device, getattr(torch, self.model.info.dtype))
        # A prime step, so that offsets into the pool do not soon repeat.
        self.turn = (self.turn + 7919) % SPARE
        numbers = self.pool[self.turn : self.turn + size].view(*shape)
        if torch.is_grad_enabled():  # graphs share the pool; with gradients no hook writes in place
            return numbers if chain is None else numbers + chain
        return numbers.clone()

    def linked(self, chain: Tensor | None, *tensors: Tensor) -> Tensor | None:
        """A scalar that also depends on these tensors, if they are part of a graph."""
        for tensor in tensors:
            if tensor.requires_grad and torch.is_grad_enabled():
                link = (tensor * self.noise(tensor.shape, None)).sum() / max(
                    1, tensor.numel()
                ) ** 0.75
                chain = link if chain is None else chain + link
        return chain

    def passed(self, chain: Tensor, call: Call, *, again: bool) -> Tensor:
        """A block in the graph, which records its backward pass and the forward pass this repeats."""
        inner = torch._C._functorch

        def back(gradient: Tensor) -> None:
            batched = inner.is_batchedtensor(gradient)
            many = inner.get_unwrapped(gradient).numel() if batched else 1
            self.calls[call._replace(kind="backward", batch=call.batch * many, blocks=1)] += 1
            self.calls[call._replace(blocks=1)] += again

        chain = chain.clone()
        chain.register_hook(back)
        return chain


def in_use(device: torch.device) -> int:
    """Bytes this process has in use on a device; 0 if the system does not report it."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096
    except OSError:
        return 0


class Rehearsed(LanguageModel):
    """A mock model: an adapter of the model's class that records computations instead of doing them."""

    ledger: Ledger
    placed: list[tuple[Site, Any]]
    again: bool

    @classmethod
    def of(cls, ledger: Ledger, name: str = "") -> "Rehearsed":
        """The mock of a model or, with a name, of a randomly initialised model of its kind."""
        rehearsed: Rehearsed = object.__new__(type(cls.__name__, (cls, type(ledger.model)), {}))
        vars(rehearsed).update(vars(ledger.model), ledger=ledger, placed=[], again=False)
        if name:
            rehearsed.info = replace(rehearsed.info, name=name)
            ledger.networks, ledger.alive = ledger.networks + 1, 1
            weakref.finalize(rehearsed, setattr, ledger, "alive", 0)
        return rehearsed

    @contextmanager
    def installed(self, hooks: Sequence[tuple[Site, Any]]) -> Iterator[None]:
        """Record the hooks; they are also installed, which rejects missing sites."""
        before = partial(setattr, self, "placed", self.placed)
        with self.ledger.model.installed(hooks), self.undo.by(before):
            self.placed = [*self.placed, *hooks]
            yield

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Context in which backward passes repeat the forward pass of each block."""
        before = partial(setattr, self, "again", False)
        with self.ledger.model.checkpointed(), self.undo.by(before):
            self.again = True
            yield

    def unembed(self, normed: Tensor, *, bias: bool = True) -> Tensor:
        """Noise of the shape of the logits."""
        *rows, _ = normed.shape
        self.ledger.note(Load(Call("unembed", 1, prod(rows))))
        return self.ledger.noise((*rows, self.info.d_vocab), self.ledger.linked(None, normed))

    def _forward(self, asked: ForwardInput) -> ForwardOutput:
        """Call the hooks with noise, and record what the blocks would compute."""
        ledger, info, start, cache = self.ledger, self.info, asked.start, asked.cache
        at: dict[tuple[str, int], list[Any]] = defaultdict(list)
        with ledger.model.installed(asked.hooks):
            for site, function in (*self.placed, *asked.hooks):
                at[site].append(function)
        (batch, rows), columns = asked.tokens.shape, asked.mask.shape[1]
        first = start.layer if start else 0
        call = Call("forward", batch, rows, columns, asked.stop - first)
        ledger.tokens = max(ledger.tokens, asked.tokens, key=torch.numel)
        stored = (batch, info.n_kv_heads, columns, info.d_head)
        shapes = dict.fromkeys(("q", "z"), (batch, rows, info.n_heads, info.d_head))
        shapes |= dict.fromkeys(("k", "v"), (batch, rows, info.n_kv_heads, info.d_head))
        shapes |= dict.fromkeys(("scores", "pattern"), (batch, info.n_heads, rows, columns))
        chain = ledger.linked(None, *([start.residual] if start else []))
        kept = [] if cache is None else [*zip(cache.keys, cache.values, strict=True)]
        kept = kept or [(ledger.noise((batch, 1, 0, 1), None),) * 2] * info.n_layers
        hooked = 0
        for layer in range(first, asked.stop):
            for name in ORDER:
                if name == "scores":
                    before = chain
                    chain = ledger.linked(chain, *kept[layer])
                    if asked.keep_cache:
                        kept[layer] = ledger.noise(stored, before), ledger.noise(stored, before)
                if name == "mlp_out" and chain is not None:
                    chain = ledger.passed(chain, call, again=self.again)
                if functions := at.get((name, layer)):
                    width = self.wrapped.cfg.d_mlp if name == "mlp_post" else info.d_model
                    shape = shapes.get(name, (batch, rows, width))
                    activation = ledger.noise(
                        shape, None if shape[2:] == (rows, columns) else chain
                    )
                    hooked = max(hooked, activation.numel())
                    for function in functions:
                        changed = function(activation)
                        activation = activation if changed is None else changed
                    chain = ledger.linked(chain, activation)
        behind = cache.length if cache is not None and cache.keys[-1].requires_grad else 0
        graph: Any = "" if chain is None else "recomputed" if self.again else "kept"
        if asked.keep_cache and call.blocks == info.n_layers:
            ledger.beginning = bool(graph)
        ledger.note(Load(call, graph, behind, bool(behind) and ledger.beginning, hooked))
        residual = ledger.noise((batch, rows, info.d_model), chain)
        keys, values = zip(*kept, strict=True)
        return ForwardOutput(residual, KeyValues(keys, values) if asked.keep_cache else None)


@dataclass(eq=False)
class Stage:
    """The state of a rehearsal.

    Attributes:
        ledgers: Ledger of each model.
        depends: Measurements whose later passes depend on results of earlier ones.
        items: Forecasts of the runs of a sweep, made one by one.
        costs: Measured costs of earlier runs, by model.
        planning: Runs of a sweep are listed as jobs in `items`, and not forecast.
    """

    ledgers: dict[int, Ledger] = field(default_factory=dict)
    depends: dict[str, None] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    costs: dict[int, Any] = field(default_factory=dict)
    planning: bool = False


_STAGE: ContextVar[Stage | None] = ContextVar("stage", default=None)
stage = _STAGE.get
"""The rehearsal under way, or None."""


@contextmanager
def rehearsing(new: Stage | None) -> Iterator[None]:
    """Context in which every model is replaced by its mock; None: models are used as they are."""
    token = _STAGE.set(new)
    try:
        yield
    finally:
        _STAGE.reset(token)


def met(model: LanguageModel) -> LanguageModel:
    """The model itself, or its mock in a rehearsal.

    Raises:
        ModelError: a model on a server, in a rehearsal.
    """
    current = stage()
    if current is None or isinstance(model, Rehearsed):
        return model
    if isinstance(model, ServerModel):
        what = (
            "runs on a server, so its cost cannot be forecast; use a model loaded on this machine"
        )
        raise ModelError(f"{model.info.name!r} {what}.")
    ledger = current.ledgers.setdefault(id(model), Ledger(model, in_use(model.device)))
    return Rehearsed.of(ledger)
