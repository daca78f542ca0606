"""What a paper claims, and what was found."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from icl_mech.results.judging import Required, Status, disagreeing, holm, judged, largest, together
from icl_mech.results.wording import counted

__all__ = ["Status", "Verdict", "claimed", "judged", "stated_together", "together"]


@dataclass(frozen=True)
class Verdict:
    """One claim of a paper beside what was found.

    Attributes:
        claim: In words.
        status: What the measures it requires say of it, among all claims of the study (Holm).
        finding: Effect, interval, comparison and number of prompts, in one or two sentences.
        result: Name of the result it rests on, which is a section of the page.
        measures: Those it requires.
        alone: Its status if it were the only claim.
    """

    claim: str
    status: Status
    finding: str
    result: str
    measures: tuple[Required, ...] = ()
    alone: Status = "cannot be judged"

    @property
    def p(self) -> float | None:
        """One-sided p-value of the claim, the largest of the measures it requires.

        None where it cannot be judged; 1 where they disagree.
        """
        if self.alone == "cannot be judged":
            return None
        return 1.0 if self.alone == "mixed" else largest(own.p for own in self.measures)


def claimed(claim: str, measures: Sequence[Required], finding: str, result: str) -> Verdict:
    """A verdict on a claim that requires all these measures; says which disagree or are lacking."""
    status = together(*(own.status for own in measures))
    several = len(measures) > 1
    if several and status in ("mixed", "cannot be judged"):
        why = disagreeing(measures)
        finding = f"{why[0].upper()}{why[1:]}. {finding}"
    return Verdict(claim, status, finding, result, tuple(measures), status)


def stated_together(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts of one page: a claim stands if it stands among all that can be judged (Holm).

    Of networks in which nothing is to be found, one page in forty then shows anything, as with one
    claim alone.
    """
    p_values = [own.p for own in verdicts]
    count = sum(own is not None for own in p_values)
    found = []
    for verdict, stands in zip(verdicts, holm(p_values), strict=True):
        if verdict.status in ("supported", "opposite") and not stands and verdict.p is not None:
            own = f"{verdict.finding} Alone it would be {verdict.status} (p = {verdict.p:.2g}, one-sided), "
            own += f"but not among {counted(count, 'claim')} (Holm)."
            verdict = replace(verdict, status="not shown", finding=own)
        found.append(verdict)
    return tuple(found)
