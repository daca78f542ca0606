"""Rehearsals: a run whose blocks are counted instead of computed.

Within `rehearsing` a model is met as a stand-in: its sites hold noise of the right shape, so layouts,
hooks, readings, backward passes and statistics are those of the run, and what each pass would compute
is noted where the run would compute it. There is one plan of passes, that of the engine.
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
"""Sites of a block as they are reached."""

SPARE = 1 << 16
"""Numbers of noise beyond the largest site: hardly any two sites hold the same."""


class Call(NamedTuple):
    """The shape of what is computed at once; in a backward pass each block is a call."""

    kind: Literal["forward", "backward", "unembed"]
    batch: int
    rows: int
    columns: int = 0
    blocks: int = 1

    @property
    def work(self) -> int:
        """Token rows through a block, of the unembedding rows."""
        return self.batch * self.rows * self.blocks

    @property
    def features(self) -> tuple[int, ...]:
        """Passes, blocks, token rows through them, and pairs of a row and what it sees."""
        return self.kind != "backward", self.blocks, self.work, self.work * self.columns


class Load(NamedTuple):
    """A pass as what it holds in memory.

    Attributes:
        call: Its forward pass.
        graph: `kept` for the backward pass, made again (`recomputed`), or empty: there is none.
        behind: Columns of a common beginning through which the backward pass goes on.
        beginning: The graph of that beginning is kept.
        hooked: Numbers of the largest site with a hook.
    """

    call: Call
    graph: Literal["", "kept", "recomputed"] = ""
    behind: int = 0
    beginning: bool = False
    hooked: int = 0


@dataclass(eq=False)
class Ledger:
    """What was noted of one model.

    Attributes:
        model: The model.
        before: Bytes in use when the rehearsal began.
        calls: How often each shape is computed.
        held: Of each pass the most bytes that are held besides when it is made.
        networks: Untrained networks made of it.
        tokens: Of prompts, for trials.
        beginning: The graph of a common beginning is kept.
        alive: Untrained networks in memory.
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
        return sum(own.nbytes for own in self.model.module.parameters())

    def note(self, load: Load) -> None:
        """A pass begins."""
        self.calls[load.call] += 1
        now = in_use(self.model.device) - self.before - self.pool.nbytes
        self.held[load] = max(now + (self.alive and self.weights), self.held.get(load, 0))

    def noise(self, shape: Sequence[int], chain: Tensor | None) -> Tensor:
        """Numbers that depend on the graph."""
        size = prod(shape)
        if len(self.pool) < size + SPARE:
            drawn = torch.rand(size + SPARE, generator=torch.Generator().manual_seed(0))
            self.pool = drawn.to(self.model.device, getattr(torch, self.model.info.dtype))
        self.turn = (self.turn + 7919) % SPARE
        own = self.pool[self.turn : self.turn + size].view(*shape)
        if torch.is_grad_enabled():  # graphs hold one pool, into which nobody writes
            return own if chain is None else own + chain
        return own.clone()

    def linked(self, chain: Tensor | None, *tensors: Tensor) -> Tensor | None:
        """A number that depends on these too, as far as they are in a graph."""
        for own in tensors:
            if own.requires_grad and torch.is_grad_enabled():
                link = (own * self.noise(own.shape, None)).sum() / max(1, own.numel()) ** 0.75
                chain = link if chain is None else chain + link
        return chain

    def passed(self, chain: Tensor, call: Call, *, again: bool) -> Tensor:
        """A block in the graph: its backward pass is noted, and the forward pass that it repeats."""
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
    """Bytes this process has in use on a device; 0 where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096
    except OSError:
        return 0


class Rehearsed(LanguageModel):
    """A stand-in: an adapter of the model's own class, but for what it computes."""

    ledger: Ledger
    placed: list[tuple[Site, Any]]
    again: bool

    @classmethod
    def of(cls, ledger: Ledger, name: str = "") -> "Rehearsed":
        """The stand-in of a model, or, with a name, of an untrained network of its kind."""
        found: Rehearsed = object.__new__(type(cls.__name__, (cls, type(ledger.model)), {}))
        vars(found).update(vars(ledger.model), ledger=ledger, placed=[], again=False)
        if name:
            found.info = replace(found.info, name=name)
            ledger.networks, ledger.alive = ledger.networks + 1, 1
            weakref.finalize(found, setattr, ledger, "alive", 0)
        return found

    @contextmanager
    def installed(self, hooks: Sequence[tuple[Site, Any]]) -> Iterator[None]:
        """Noted; also put in place, which refuses sites that are not there."""
        before = partial(setattr, self, "placed", self.placed)
        with self.ledger.model.installed(hooks), self.undo.by(before):
            self.placed = [*self.placed, *hooks]
            yield

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Backward passes then repeat each block's forward pass."""
        before = partial(setattr, self, "again", False)
        with self.ledger.model.checkpointed(), self.undo.by(before):
            self.again = True
            yield

    def unembed(self, normed: Tensor, *, bias: bool = True) -> Tensor:
        """Noise."""
        *rows, _ = normed.shape
        self.ledger.note(Load(Call("unembed", 1, prod(rows))))
        return self.ledger.noise((*rows, self.info.d_vocab), self.ledger.linked(None, normed))

    def _forward(self, asked: ForwardInput) -> ForwardOutput:
        """Calls the hooks with noise, and notes what the blocks would compute."""
        ledger, own, start, cache = self.ledger, self.info, asked.start, asked.cache
        at: dict[tuple[str, int], list[Any]] = defaultdict(list)
        with ledger.model.installed(asked.hooks):
            for site, function in (*self.placed, *asked.hooks):
                at[site].append(function)
        (batch, rows), columns = asked.tokens.shape, asked.mask.shape[1]
        first = start.layer if start else 0
        call = Call("forward", batch, rows, columns, asked.stop - first)
        ledger.tokens = max(ledger.tokens, asked.tokens, key=torch.numel)
        stored = (batch, own.n_kv_heads, columns, own.d_head)
        shapes = dict.fromkeys(("q", "z"), (batch, rows, own.n_heads, own.d_head))
        shapes |= dict.fromkeys(("k", "v"), (batch, rows, own.n_kv_heads, own.d_head))
        shapes |= dict.fromkeys(("scores", "pattern"), (batch, own.n_heads, rows, columns))
        chain = ledger.linked(None, *([start.residual] if start else []))
        kept = [] if cache is None else [*zip(cache.keys, cache.values, strict=True)]
        kept = kept or [(ledger.noise((batch, 1, 0, 1), None),) * 2] * own.n_layers
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
                    width = self.wrapped.cfg.d_mlp if name == "mlp_post" else own.d_model
                    shape = shapes.get(name, (batch, rows, width))
                    found = ledger.noise(shape, None if shape[2:] == (rows, columns) else chain)
                    hooked = max(hooked, found.numel())
                    for function in functions:
                        changed = function(found)
                        found = found if changed is None else changed
                    chain = ledger.linked(chain, found)
        behind = cache.length if cache is not None and cache.keys[-1].requires_grad else 0
        graph: Any = "" if chain is None else "recomputed" if self.again else "kept"
        if asked.keep_cache and call.blocks == own.n_layers:
            ledger.beginning = bool(graph)
        ledger.note(Load(call, graph, behind, bool(behind) and ledger.beginning, hooked))
        residual = ledger.noise((batch, rows, own.d_model), chain)
        keys, values = zip(*kept, strict=True)
        return ForwardOutput(residual, KeyValues(keys, values) if asked.keep_cache else None)


@dataclass(eq=False)
class Stage:
    """A rehearsal: the models it met, and what it was told.

    Attributes:
        ledgers: Of each model.
        depends: Measurements whose later passes depend on what earlier ones gave.
        items: Forecasts of the items of a sweep, which makes them one by one.
        costs: What was tried for earlier items, by model.
    """

    ledgers: dict[int, Ledger] = field(default_factory=dict)
    depends: dict[str, None] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    costs: dict[int, Any] = field(default_factory=dict)


_STAGE: ContextVar[Stage | None] = ContextVar("stage", default=None)
stage = _STAGE.get
"""The rehearsal under way, or None."""


@contextmanager
def rehearsing(new: Stage | None) -> Iterator[None]:
    """Context in which every model is met as its stand-in; None: as itself."""
    token = _STAGE.set(new)
    try:
        yield
    finally:
        _STAGE.reset(token)


def met(model: LanguageModel) -> LanguageModel:
    """The model, in a rehearsal its stand-in.

    Raises:
        ModelError: a model on a server, in a rehearsal.
    """
    own = stage()
    if own is None or isinstance(model, Rehearsed):
        return model
    if isinstance(model, ServerModel):
        what = "runs on a server, which cannot be tried; make a forecast with a model loaded here"
        raise ModelError(f"{model.info.name!r} {what}.")
    ledger = own.ledgers.setdefault(id(model), Ledger(model, in_use(model.device)))
    return Rehearsed.of(ledger)
