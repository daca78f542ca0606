"""What one run shows – its heads, its layer, its claims –, and over what runs agree on it.

A result takes part by what it declares, whatever its kind:

* *heads*: its main quantity (or the named one) has the axes layer and head; `clear` (a method or property), if it
  has one, gives the heads that stand out from its null, as (layer, head) or `layer.head`;
* *a critical layer*: `critical` is an interval or None, and `last` the last layer it may be;
* *claims*: `status`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.metrics import Interval
from icl_mech.metrics.stability import (
    Agreement,
    Within,
    head_correlation,
    head_overlap,
    layer_distance,
    top_heads,
)
from icl_mech.results import Result
from icl_mech.results.judging import CHANCE, Status, jointly, together

Measure = Literal["overlap", "correlation", "distance", "claim"]

PLURALS = {
    "labels": "label settings",
    "false_share": "fractions of false labels",
    "n": "numbers of prompts",
}
"""Axes that form their plural in another way than by adding an s."""

SUBJECTS: Mapping[Measure, str] = {
    "overlap": "top heads",
    "correlation": "ranking of heads",
    "distance": "critical layer",
    "claim": "claim",
}

FEWEST_RUNS = 3
"""With fewer runs nothing is judged: two may agree on what no third shows."""


@runtime_checkable
class HasCritical(Protocol):
    """A result with a critical layer."""

    @property
    def critical(self) -> Interval | None:
        """The critical layer; None if there is none."""

    @property
    def last(self) -> int:
        """The last layer it may be, counted from 0."""


class Seen(NamedTuple):
    """What one run shows.

    Attributes:
        scores: Score of every head, or None.
        clear: Heads that stand out from the null of these scores; None if that is not tested.
        critical: Critical layer; None if there is none, or if it was not measured.
        entries: Number of layers it may be; 0 if it was not measured.
        claims: Status of each claim.
    """

    scores: Float[Tensor, "layer head"] | None = None
    clear: frozenset[str] | None = None
    critical: float | None = None
    entries: int = 0
    claims: Mapping[str, Status] = {}


def seen(result: Result, claim: str, quantity: str | None = None) -> Seen:
    """What a result shows.

    Args:
        result: The result.
        claim: Name of its own claim, if it has a status.
        quantity: The quantity by which heads are ranked; None: the main one, if it ranks heads.

    Raises:
        ResultError: it has no such quantity over layers and heads.
    """
    quantities = result.quantities()
    name = next(iter(quantities), "") if quantity is None else quantity
    ranks = name in quantities and quantities[name].dims == ("layer", "head")
    if quantity is not None and not ranks:
        names = [n for n, q in quantities.items() if q.dims == ("layer", "head")]
        raise ResultError(
            f"{type(result).__name__} does not rank heads by {quantity!r}; its quantities over layers and heads "
            f"are {', '.join(names) or 'none'}."
        )
    scores = quantities[name].value() if ranks else None
    critical, entries = None, 0
    if isinstance(result, HasCritical):
        layer = result.critical
        critical, entries = (None if layer is None else float(layer.value)), result.last + 1
    status: Any = getattr(result, "status", None)
    claims: dict[str, Status] = {claim: status} if status in get_args(Status) else {}
    # A custom quantity need not have the null of `clear`.
    return Seen(
        scores, _clear(result) if ranks and quantity is None else None, critical, entries, claims
    )


def _clear(result: Result) -> frozenset[str] | None:
    clear: Any = getattr(result, "clear", None)
    named = clear() if callable(clear) else clear
    if not isinstance(named, tuple | list):
        return None
    return frozenset(head if isinstance(head, str) else head_name(head) for head in named)


@dataclass(frozen=True)
class Line:
    """Over what one conclusion holds, along one axis.

    Attributes:
        place: Model, where a sweep has several; else empty.
        of: Name of the result, or the claim.
        measure: `overlap` of the top heads (Jaccard), rank `correlation` over all heads, `distance` of critical layers, or
            a `claim`.
        over: What differs between runs.
        names: Its values.
        holds: For each value, the status of agreement with the other values, or of the claim; empty for correlations.
        value: Mean over pairs of runs.
        low: Lower end of its 95 % interval for new runs; None with fewer than three.
        high: Upper end.
        chance: Expectation under the null.
        p: One-sided p-value of agreement beyond chance.
        heads: Heads in the top k of more than half of the runs, the most frequent first.
        clear: Heads among these that stand out from their null in more than half of the runs; None if not tested.
        layers: Critical layer at each value (mean over groups); None where there is none.
        groups: Number of groups of runs within which only this axis differs.
        runs: Number of runs.
        status: Status of the statement that runs agree; None for correlations, which are not judged.
    """

    place: str
    of: str
    measure: Measure
    over: str
    names: tuple[str, ...]
    holds: tuple[Status, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    p: float | None = None
    heads: tuple[str, ...] = ()
    clear: tuple[str, ...] | None = None
    layers: tuple[float | None, ...] = ()
    groups: int = 1
    runs: int = 0
    status: Status | None = "cannot be judged"

    @property
    def held(self) -> int:
        """Number of values at which it holds."""
        return self.holds.count("supported")

    @property
    def axis(self) -> str:
        """The axis in the plural."""
        word = self.over.replace("_", " ")
        return PLURALS.get(self.over, word if word.endswith("s") else f"{word}s")

    @property
    def origin(self) -> str:
        """The model, where there are several, and the result or claim."""
        name = self.of if " " in self.of else self.of.replace("_", " ")
        return ", ".join(filter(None, (self.place, name)))

    @property
    def subject(self) -> str:
        """What agrees, in words."""
        what = "" if " " in self.of else SUBJECTS[self.measure]
        return ": ".join(filter(None, (self.origin, what)))

    @property
    def interval(self) -> Interval:
        """The mean over pairs of runs with its interval."""
        ends = (self.value, self.low, self.high)
        return Interval(*(float("nan") if end is None else end for end in ends))

    @property
    def critical(self) -> tuple[str, ...]:
        """The critical layers that there are, as text."""
        return tuple(f"{layer:.3g}" for layer in self.layers if layer is not None)

    @property
    def outcome(self) -> tuple[str, tuple[str, ...]]:
        """What the overlap of heads shows, and the heads that recur and stand out.

        `few` runs; no more than `chance`; beyond chance, but heads are `untested` or none stands out (`idle`); `stands`.
        """
        if len(self.names) < FEWEST_RUNS:
            return "few", ()
        if self.p is None or self.p > CHANCE:
            return "chance", ()
        if self.clear is None:
            return "untested", ()
        return ("stands", self.clear) if self.clear else ("idle", ())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a file; see `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Line":
        """The line that `to_dict` wrote; files hold tuples as lists."""
        plain: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**plain)


class Lines(NamedTuple):
    """Lines, and for each line on the overlap of heads the fraction of runs that have a head in their top k."""

    lines: tuple[Line, ...]
    shares: tuple[Float[Tensor, "layer head"], ...]


def lines_over(
    over: str,
    names: Sequence[str],
    groups: Sequence[Sequence[Mapping[str, Seen] | None]],
    *,
    k: int,
    within: Within,
    seed: int = 0,
    place: str = "",
    comparable: bool = True,
) -> Lines:
    """All lines along one axis.

    Args:
        over: The axis.
        names: Its values.
        groups: Groups of runs within which only this axis differs: for each value, what the results of that run show, by
            name; None where there is no run.
        k: Number of top heads.
        within: Heads that chance exchanges.
        seed: Seed of relabellings and of ties.
        place: Model.
        comparable: False if a head or layer of one run has no counterpart in the others (different models).

    Raises:
        ResultError: `k` is half of the heads or more.
    """
    lines: list[Line] = []
    shares: list[Tensor] = []
    of = dict.fromkeys(name for group in groups for run in group if run for name in run)
    for name in of:
        table = [[run.get(name) if run else None for run in group] for group in groups]
        about = {"place": place, "of": name, "over": over, "names": tuple(names)}
        if comparable:
            ranked = _of_heads(table, about, k=k, within=within, seed=seed)
            lines += ranked.lines
            shares += ranked.shares
            lines += _of_layers(table, about, seed=seed)
        lines += _of_claims(table, about)
    return Lines(tuple(lines), tuple(shares))


Table = Sequence[Sequence[Seen | None]]
"""Groups of runs, one for each value of an axis."""


def _usable(there: Bool[Tensor, "group run"]) -> Tensor:
    """Runs in groups of at least two."""
    return there & (there.sum(1, keepdim=True) > 1)


def too_many(k: int, heads: int) -> str:
    """Why so many top heads say nothing; empty if they are few enough.

    A head of random rank is among the top half in about half of the runs.
    """
    if 2 * k < heads:
        return ""
    return f"k={k} is half of the {heads} heads or more, so that many recur by chance; give at most {(heads - 1) // 2}."


def _of_heads(table: Table, about: dict[str, Any], *, k: int, within: Within, seed: int) -> Lines:
    shapes = {
        run.scores.shape for group in table for run in group if run and run.scores is not None
    }
    there = torch.tensor(
        [[bool(run and run.scores is not None) for run in group] for group in table]
    )
    present = _usable(there)
    if len(shapes) != 1 or not bool(present.any()):
        return Lines((), ())
    blank = torch.zeros(next(iter(shapes)), dtype=torch.float64)
    scores = torch.stack(
        [
            torch.stack(
                [run.scores.double() if run and run.scores is not None else blank for run in group]
            )
            for group in table
        ]
    )
    every = scores[present]
    # Scores that do not depend on what is varied agree by construction.
    if bool((every == every[0]).all()):
        return Lines((), ())
    if problem := too_many(k, blank.numel()):
        raise ResultError(problem)
    chosen = torch.stack(
        [
            torch.stack(
                [
                    top_heads(run, k, seed=seed + 7919 * place + number)
                    for number, run in enumerate(group)
                ]
            )
            for place, group in enumerate(scores)
        ]
    )
    overlap = head_overlap(chosen, present, within=within, seed=seed)
    correlation = head_correlation(scores, present, within=within, seed=seed)
    share = chosen[present].double().mean(0)
    order = share.flatten().argsort(descending=True, stable=True).tolist()
    often = [divmod(place, share.shape[1]) for place in order if share.flatten()[place] > 1 / 2]
    heads = tuple(map(head_name, often))
    tested = [
        run for g, group in enumerate(table) for r, run in enumerate(group) if run and present[g, r]
    ]
    clear: tuple[str, ...] | None = None
    if all(run.clear is not None for run in tested):
        counts = Counter(head for run in tested for head in run.clear or ())
        clear = tuple(head for head in heads if 2 * counts[head] > len(tested))
    beyond: Status = "supported" if overlap.p <= CHANCE else "not shown"
    standing: Status = (
        "cannot be judged" if clear is None else "supported" if clear else "not shown"
    )
    values = int(present.any(0).sum())
    status = jointly(beyond, standing) if values >= FEWEST_RUNS else "cannot be judged"
    both = {"groups": int(present.any(1).sum()), "runs": int(present.sum())} | about
    return Lines(
        (
            Line(
                **both,
                measure="overlap",
                **_numbers(overlap),
                holds=_holds(overlap, present.any(0)),
                heads=heads,
                clear=clear,
                status=status,
            ),
            Line(**both, measure="correlation", **_numbers(correlation), status=None),
        ),
        (share,),
    )


def _of_layers(table: Table, about: dict[str, Any], *, seed: int) -> list[Line]:
    entries = {run.entries for group in table for run in group if run and run.entries}
    if len(entries) != 1:
        return []
    layers = torch.tensor(
        [
            [float("nan") if run is None or run.critical is None else run.critical for run in group]
            for group in table
        ],
        dtype=torch.float64,
    )
    measured = torch.tensor([[bool(run and run.entries) for run in group] for group in table])
    usable = _usable(~layers.isnan())
    means = [column[~column.isnan()] for column in layers.T]
    shown = tuple(float(column.mean()) if len(column) else None for column in means)
    line = Line(
        **about,
        measure="distance",
        layers=shown,
        groups=len(table),
        runs=int(measured.sum()),
        holds=tuple("not shown" for _ in shown),
    )
    if not bool(usable.any()):
        return [line] if int(measured.sum()) > 1 else []
    agreement = layer_distance(layers.masked_fill(~usable, torch.nan), entries.pop(), seed=seed)
    # A layer that most runs lack is not stable, however close the others are.
    enough = int(usable.any(0).sum()) >= FEWEST_RUNS and 2 * int(usable.sum()) > int(measured.sum())
    beyond: Status = "supported" if agreement.p <= CHANCE else "not shown"
    return [
        Line(
            **{**line.to_dict(), **_numbers(agreement)}
            | {
                "holds": _holds(agreement, usable.any(0)),
                "status": beyond if enough else "cannot be judged",
            }
        )
    ]


def _of_claims(table: Table, about: dict[str, Any]) -> list[Line]:
    lines = []
    claims = dict.fromkeys(c for group in table for run in group if run for c in run.claims)
    for claim in claims:
        columns = [
            [run.claims[claim] for run in column if run and claim in run.claims]
            for column in zip(*table, strict=True)
        ]
        if sum(map(bool, columns)) > 1:
            holds = tuple(_most(column) for column in columns)
            lines.append(
                Line(
                    **{**about, "of": claim},
                    measure="claim",
                    holds=holds,
                    groups=len(table),
                    runs=sum(map(len, columns)),
                    status=together(*holds),
                )
            )
    return lines


def _most(statuses: Sequence[Status]) -> Status:
    """`supported` if more than half are, else the most frequent other status."""
    if 2 * statuses.count("supported") > len(statuses):
        return "supported"
    others = [status for status in statuses if status != "supported"]
    return Counter(others).most_common(1)[0][0] if others else "cannot be judged"


def _numbers(agreement: Agreement) -> dict[str, Any]:
    value, *ends = (None if end != end else float(end) for end in agreement.interval)
    return {
        "value": value,
        "low": ends[0],
        "high": ends[1],
        "chance": agreement.chance,
        "p": agreement.p,
    }


def _holds(agreement: Agreement, measured: Bool[Tensor, " run"]) -> tuple[Status, ...]:
    return tuple(
        "cannot be judged" if not usable else "supported" if p <= CHANCE else "not shown"
        for p, usable in zip(agreement.by_run, measured.tolist(), strict=True)
    )
