"""Which prompts a result rests on."""

from icl_mech.errors import ResultError
from icl_mech.results.base import Result


def check_same_prompts(one: Result, other: Result) -> None:
    """Refuse results of other prompts, or whose prompts are not known.

    Raises:
        ResultError: says which.
    """
    digests = [
        tuple(
            result.provenance.get(side, {}).get("digest") for side in ("prompts", "false_prompts")
        )
        for result in (one, other)
    ]
    if digests[0][0] is None or digests[1][0] is None:
        raise ResultError(
            "A result does not say which prompts it is of (no digest in its provenance), so the two "
            "cannot be paired; measure both again."
        )
    if digests[0] != digests[1]:
        counts = [result.provenance["prompts"].get("count") for result in (one, other)]
        raise ResultError(
            f"These results are of different prompts ({counts[0]} and {counts[1]} of them): pairs need "
            "the same prompts in the same order. Measure both on one PromptBatch."
        )


def basis(result: Result, prompts: str = "") -> str:
    """How many prompts the intervals of a result rest on, and what they take as given.

    Args:
        result: Whose intervals.
        prompts: Which they are, such as "24 pairs of prompts"; by default their number.
    """
    origin = result.provenance
    if not prompts:
        whole = origin.get("prompts", {}).get("count", 0)
        # A measurement may leave out some of the prompts it is given.
        count = next((quantity.count for quantity in result.quantities().values()), whole)
        prompts = f"{count} prompts"
    return f"{prompts}, 95 % intervals over prompts{given(result)}"


def given(result: Result) -> str:
    """What intervals of a result take as given, in words; empty if nothing."""
    shared = bool(result.provenance.get("conditional_on_demonstrations"))
    return ", given their shared demonstrations" * shared
