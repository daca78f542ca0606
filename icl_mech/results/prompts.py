"""The prompts behind a result, and whether they are enough for its intervals."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from icl_mech.errors import ResultError
from icl_mech.metrics import prompts_needed
from icl_mech.metrics.means import FEWEST_VALUES
from icl_mech.results import answer_words
from icl_mech.results.quantities import Quantity, labels_of, too_narrow
from icl_mech.results.record import Record
from icl_mech.results.tables import sizes
from icl_mech.results.wording import counted

FOR_A_TENTH = 48
"""Number of prompts at which intervals of means keep coverage if a tenth of the values is ten times as large."""


def check_same_prompts(one: Record, other: Record) -> None:
    """Reject results of different prompts, or whose prompts are not known.

    Raises:
        ResultError: says which of the two it is.
    """
    digests = [
        tuple(
            result.provenance.get(side, {}).get("digest") for side in ("prompts", "false_prompts")
        )
        for result in (one, other)
    ]
    if digests[0][0] is None or digests[1][0] is None:
        raise ResultError(
            "A result does not record its prompts (no digest in its provenance), so the two results "
            "cannot be paired; measure both again."
        )
    if digests[0] != digests[1]:
        counts = [result.provenance["prompts"].get("count") for result in (one, other)]
        raise ResultError(
            f"These results come from different prompts ({counts[0]} and {counts[1]} of them), but pairs need "
            "the same prompts in the same order; measure both on one PromptBatch."
        )


def paired(
    name: str, one: Record, other: Record
) -> tuple[Quantity, Quantity, dict[str, list[Any]]]:
    """A quantity of two results over the same prompts, and the labels of its axes.

    Raises:
        ResultError: different prompts or axes, or a side without per-prompt values.
    """
    check_same_prompts(one, other)
    first, second = one.quantities().get(name), other.quantities().get(name)
    if first is None:
        raise ResultError(
            f"These samples of {name!r} have no per-prompt values, because they are not means; subtract "
            "the whole results first, then select with sel()."
        )
    if second is None:
        raise ResultError(
            f"One side holds {name!r}, the other {', '.join(map(repr, other.quantities()))}; "
            "subtract samples of one quantity."
        )
    labels, others = (
        labels_of({name: quantity}, result.coordinates())
        for quantity, result in ((first, one), (second, other))
    )
    if labels != others or first.dims != second.dims:
        raise ResultError(
            f"{name} has the axes {sizes(labels)} on one side and {sizes(others)} on the "
            "other, so cells cannot be paired; select the labels that both have with sel()."
        )
    if first.count != second.count:
        raise ResultError(
            f"{name} uses {first.count} prompts on one side and {second.count} on the other, so they "
            "cannot be paired; measure both on the same prompts."
        )
    return first, second, labels


def basis(
    result: Record, prompts: str = "", quantity: str | None = None, over: str = "prompt"
) -> str:
    """Note on the intervals of a result: number of prompts, conditions, and doubts.

    Args:
        result: The result with the intervals.
        prompts: Description of the prompts, such as "24 pairs of prompts"; by default their number.
        quantity: The quantity whose intervals are checked for doubts; by default the main one, `""`
            for none.
        over: The unit the numbers are averaged over, if it is not prompts.
    """
    origin, quantities = result.provenance, result.quantities()
    if not prompts:
        whole = origin.get("prompts", {}).get("count", 0)
        # A measurement may leave out some of the prompts it was given.
        count = next((estimated.count for estimated in quantities.values()), whole)
        prompts = counted(count, over)
    shown = quantities.get(next(iter(quantities), "") if quantity is None else quantity)
    doubt = doubts([shown] if shown is not None else []).replace("prompts", f"{over}s")
    return f"{prompts}, 95 % intervals over {over}s{given(result)}{doubt}"


def doubts(quantities: Iterable[Quantity]) -> str:
    """Addition to a note, starting with a semicolon, if there are too few prompts for intervals of values.

    Fewer than 12 prompts do not show how skewed values are; more may still be fewer than
    `prompts_needed`. Outcomes, their differences and functions of means have other intervals.
    """
    every = [*quantities]
    if narrow := too_narrow(every):
        return narrow
    of_values = [quantity for quantity in every if _of_values(quantity)]
    few = [quantity.count for quantity in of_values if quantity.count < FEWEST_VALUES]
    if few:
        return f"; {min(few)} prompts are too few to show how skewed the values are (at least {FEWEST_VALUES})"
    skewed = [counts for counts in map(too_skewed, of_values) if counts[0]]
    if not skewed:
        return ""
    cells, means, most = (list(part) for part in zip(*skewed, strict=True))
    return (
        f"; too few prompts for the skewed values of {sum(cells)} of {sum(means)} "
        f"{'means' if sum(means) > 1 else 'mean'} (n ≥ {max(most)} needed)"
    )


def too_skewed(quantity: Quantity) -> tuple[int, int, int]:
    """Number of means whose values are too skewed for so few prompts, number of means, and prompts needed."""
    needed = prompts_needed(quantity.per_prompt) if _of_values(quantity) else torch.zeros(1)
    above = needed > quantity.count
    return int(above.sum()), needed.numel(), int(needed[above].max()) if bool(above.any()) else 0


def doubtful(results: Mapping[str, Record]) -> list[str]:
    """Sentences on intervals for which the prompts of some results (by title) may be too few."""
    by_doubt: dict[str, list[str]] = {}
    counts = []
    for result in results.values():
        for name, quantity in result.quantities().items():
            doubt = doubts([quantity])
            if doubt:
                by_doubt.setdefault(doubt.removeprefix("; "), []).append(name.replace("_", " "))
            if _of_values(quantity):
                counts.append(quantity.count)
    short = [
        f"Intervals of {', '.join(dict.fromkeys(names))} may be too narrow: {doubt}."
        for doubt, names in by_doubt.items()
    ]
    # No statistic of the sample can reveal rare values that none of its prompts has.
    if counts and FEWEST_VALUES <= min(counts) < FOR_A_TENTH:
        short.append(
            f"{min(counts)} prompts carry no information on values that fewer than one prompt in "
            f"{min(counts) // 3} has: means that such values shift may lie farther off than the intervals say."
        )
    return short


ENDS = {
    "share": "Wilson for fractions, with the effective n that corresponds to their spread",
    "change": "Tango for changes of outcomes, with the effective n",
    "mean": "for other means, the studentised bootstrap (10,000 resamples) or Student's t, whichever end "
    "is farther out",
    "function": "for ratios and other functions of means, bootstrap percentiles, widened as Student's "
    "t is",
}
"""Method of each type of interval, in words."""


def kinds_of_ends(results: Mapping[str, Record]) -> str:
    """A sentence on the methods behind the intervals of some results; empty if there are none."""
    every = (quantity for result in results.values() for quantity in result.quantities().values())
    computed = [quantity for quantity in every if quantity.known is None]
    has = {
        "share": any(quantity.outcomes for quantity in computed),
        "change": any(
            quantity.kind in ("change", "contrast")
            for quantity in computed
            if not quantity.statistic
        ),
        "mean": any(map(_of_values, computed)),
        "function": any(quantity.statistic is not None for quantity in computed),
    }
    said = "; ".join(text for kind, text in ENDS.items() if has[kind])
    return f"Interval methods: {said}." if said else ""


def _of_values(quantity: Quantity) -> bool:
    """True if its intervals are of means of non-binary values."""
    return (
        quantity.statistic is None
        and quantity.known is None
        and quantity.kind in ("value", "correlation", "amount")
        and not quantity.outcomes
    )


def answer_kind(result: Record) -> str:
    """Kind of answers of a result: `classes`, `choices` or `vocabulary`, see `PromptBatch`."""
    return answer_words.answer_kind(result.provenance)


def given(result: Record) -> str:
    """Condition of the intervals of a result, in words; empty if there is none."""
    shared = bool(result.provenance.get("conditional_on_demonstrations"))
    return ", given their shared demonstrations" * shared
