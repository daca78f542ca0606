"""What a paper claims, and what was found."""

from dataclasses import dataclass

from icl_mech.results.judging import Status, judged, together

__all__ = ["Status", "Verdict", "judged", "together"]


@dataclass(frozen=True)
class Verdict:
    """One claim of a paper beside what was found.

    Attributes:
        claim: In words.
        status: What the intervals say of it.
        finding: Effect, interval, comparison and number of prompts, in one or two sentences.
        result: Name of the result it rests on, which is a section of the page.
    """

    claim: str
    status: Status
    finding: str
    result: str
