"""Forecast the cost of a run: rows, time, memory and disk, from a rehearsal and a few trials on this device."""

import resource
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from icl_mech.bars import duration
from icl_mech.engine.memory import free_memory
from icl_mech.engine.trials import Costs, tried
from icl_mech.errors import IclMechError
from icl_mech.models.rehearsal import Ledger, Load, Stage, in_use, rehearsing, stage
from icl_mech.results.wording import counted, listed
from icl_mech.studies.analysis import Analysis

if TYPE_CHECKING:
    import pandas as pd

SLACK = 1.2
"""Memory that the allocator takes for a pass, as a multiple of the bytes in its tensors."""

OF_NOISE = "The rehearsal, which fills passes with noise, raised this error after such passes; a real run may not."

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class ItemForecast:
    """Forecast for one run of one model, or for several equal ones.

    Attributes:
        title: Title of the run.
        items: Number of equal runs: runs of a sweep that differ only in their seed. All other fields are for one.
        prompts: Number of prompts, of both sides for a pair.
        tokens: Mean number of tokens per prompt.
        longest: Number of tokens in the longest prompt.
        rows: Token rows through a block, `forward` (recomputed rows count again) and `backward` (for each
            prompt where a prefix is shared), and rows that become logits of the vocabulary (`unembed`).
        cpu_seconds: Processor time; for a GPU wall-clock time.
        seconds: Wall-clock time at the load of the machine during the trials.
        memory: Peak by device, in bytes; for a CPU the peak of the whole process.
        needed: Bytes of it that are not in use yet.
        free: Bytes that were free when the forecast began.
        disk: Bytes of the saved results, without a page.
        options: Changes that would make the run fit, if it does not.
        notes: Assumptions of the forecast.
    """

    title: str
    items: int
    prompts: int
    tokens: float
    longest: int
    rows: Mapping[str, int]
    cpu_seconds: float
    seconds: float
    memory: Mapping[str, int]
    needed: int
    free: int
    disk: int
    options: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """True if the memory it needs is free."""
        return self.needed <= self.free

    def __str__(self) -> str:
        """The forecast in a few lines."""
        peaks = listed(f"{_size(peak)} on {device}" for device, peak in self.memory.items())
        lines = (
            f"{self.title}{f' (x {self.items})' if self.items > 1 else ''}",
            f"prompts  {self.prompts} of {self.tokens:.0f} tokens, the longest {self.longest}",
            f"rows     {listed(f'{count:,} {kind}' for kind, count in self.rows.items())}",
            f"time     about {duration(self.seconds)} ({duration(self.cpu_seconds)} of the processor)",
            f"memory   about {peaks}; {_size(self.needed)} more than now, {_size(self.free)} free: "
            f"{'fits' if self.fits else 'DOES NOT FIT'}",
            f"disk     about {_size(self.disk)}",
            *(f"to fit   {option}" for option in self.options),
            *(f"note     {note}" for note in self.notes),
        )
        return "\n  ".join(lines)


@dataclass(frozen=True, repr=False)
class Forecast:
    """The expected cost of runs; returned by `analyze`, `measure` and `sweep` with `plan=True`.

    Attributes:
        items: One forecast per run; runs of a sweep that differ only in their seed share one.
    """

    items: tuple[ItemForecast, ...]

    @property
    def fits(self) -> bool:
        """True if all runs fit into memory."""
        return all(run.fits for run in self.items)

    def total(self, name: str) -> float:
        """The sum of a field, such as `seconds`, over all runs."""
        return sum(float(getattr(run, name)) * run.items for run in self.items)

    def __repr__(self) -> str:
        """All runs, and their sum."""
        whole = duration(self.total("seconds")), _size(self.total("disk"))
        count = counted(sum(run.items for run in self.items), "run")
        return "\n".join([*map(str, self.items), f"{count}: about {' and '.join(whole)} in total"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"items": [{**asdict(run), "fits": run.fits} for run in self.items]}

    def to_pandas(self) -> "pd.DataFrame":
        """One row for each run."""
        import pandas as pd

        return pd.DataFrame(self.to_dict()["items"])


def plannable(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that `plan=True` returns its `Forecast` instead of running it."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs.pop("plan", False):
            return function(*args, **kwargs)
        return cast("R", forecast(function, *args, **kwargs))

    return run


def forecast(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Forecast:
    """The expected cost of a call that runs models.

    The call is made in a rehearsal: it raises the same errors, writes nothing, and runs models only in the
    trials afterwards. Runs of a sweep share the trials of their model.

    Raises:
        IclMechError: raised by the call; after passes, the message adds that the rehearsal fills them with noise.
    """
    known = outer.costs if (outer := stage()) else dict[int, Costs]()
    rehearsal, result, notes = Stage(), cast("object", None), list[str]()
    cpu, clock = -time.process_time(), -time.perf_counter()
    high = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with rehearsing(rehearsal):
        try:
            result = function(*args, **kwargs)
        except IclMechError as error:
            if not any(ledger.calls for ledger in rehearsal.ledgers.values()):
                raise
            raise type(error)(f"{error} {OF_NOISE}") from error
    if rehearsal.items:
        return Forecast(tuple(rehearsal.items))
    cpu, clock = cpu + time.process_time(), clock + time.perf_counter()
    if rehearsal.depends:
        notes.append(
            f"Later passes depend on results and are estimated for typical ones: {listed(rehearsal.depends)}."
        )
    memory, free, needed, options = dict[str, int](), 0, 0, list[str]()
    ledgers = [ledger for ledger in rehearsal.ledgers.values() if ledger.calls]
    for ledger in ledgers:
        costs, device = known.get(id(ledger.model)), ledger.model.device
        if costs is None or not {call.kind for call in ledger.calls} <= costs.times.keys():
            costs = known[id(ledger.model)] = tried(ledger)
        spent = costs.seconds(ledger.calls) + ledger.networks * costs.network
        cpu, clock = cpu + spent, clock + spent * costs.rate
        needed = max(needed, _most(ledger, costs))
        free = free_memory(device) + max(0, in_use(device) - ledger.before)
        memory[str(device)] = max(ledger.before + needed, high * (device.type == "cpu"))
        for extra in {weight.device for weight in ledger.model.module.parameters()} - {device}:
            memory[str(extra)] = in_use(extra) + needed  # as if all of it were on this device
            free = min(free, free_memory(extra))
        options += _fitting(ledger, costs, free) if needed > free else []
    analysis = result if isinstance(result, Analysis) else Analysis({}, function.__name__)
    lengths = [len(prompt) for batch in analysis.prompts for prompt in batch] or [0]
    kinds = ("forward", "backward", "unembed")
    rows = {kind: sum(ledger.rows(kind) for ledger in ledgers) for kind in kinds}
    about = (analysis.title, 1, len(lengths), sum(lengths) / len(lengths), max(lengths), rows)
    rest = (_disk(analysis), tuple(options), tuple(notes))
    return Forecast((ItemForecast(*about, cpu, clock, memory, needed, free, *rest),))


def _disk(analysis: Analysis) -> int:
    """Size of the saved run, in bytes."""
    with TemporaryDirectory() as place:
        analysis.save(Path(place) / "run")
        return sum(file.stat().st_size for file in Path(place).rglob("*.*"))


def _most(
    ledger: Ledger, costs: Costs, *, batch: int = 1 << 30, share: float = 1, again: bool = False
) -> int:
    """Peak memory of a run beyond what is in use, in bytes, with smaller, shorter or recomputed passes."""

    def changed(load: Load) -> Load:
        _, many, rows, columns, _ = call = load.call
        rows, columns = int(rows * share), int(columns * share)
        call = call._replace(batch=min(many, batch), rows=rows, columns=columns)
        return load._replace(call=call, graph="recomputed" if load.graph and again else load.graph)

    return int(max(held + SLACK * costs.bytes(changed(load)) for load, held in ledger.held.items()))


def _fitting(ledger: Ledger, costs: Costs, free: int) -> Iterator[str]:
    """Options that would make it fit, the mildest of each kind."""
    sizes = sorted({load.call.batch for load in ledger.held}, reverse=True)
    budget, most = f"memory='{free / 2e9:.1g}GB', which recomputes blocks", _most(ledger, costs)
    ways: list[dict[str, dict[str, Any]]] = [
        {f"batch_size={size}": {"batch": size} for size in sizes},
        {budget: {"batch": 1, "again": True}},
        {
            f"prompts of {fraction:.0%} of the length": {"share": fraction}
            for fraction in (0.75, 0.5, 0.25, 0.1)
        },
    ]
    for way in ways:
        fit = [name for name, how in way.items() if _most(ledger, costs, **how) <= free]
        yield from fit[:1]
    if ledger.model.info.dtype == "float32" and most / 2 <= free + ledger.weights / 2:
        yield "dtype='bfloat16'"
    if (kept := max(ledger.held.values())) > most - free:
        yield f"{1 - (most - free) / kept:.0%} of the prompts"


def _size(count: int | float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
