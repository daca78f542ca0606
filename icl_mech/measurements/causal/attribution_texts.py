"""What a page says about attribution, from its numbers."""

from collections.abc import Mapping, Sequence

from icl_mech.measurements.causal.mediation_texts import named
from icl_mech.metrics import Interval
from icl_mech.results.figures import Figure
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, judged
from icl_mech.results.wording import counted, said, told

GOOD = 0.7
"""Rank correlation from which the estimate orders heads much as exact patching does."""


def attributed(
    top: Mapping[str, Interval],
    clear: Sequence[tuple[int, int]],
    *,
    heads: int,
    prompts: int,
    gap: Interval,
    agreement: Interval | None,
    missed: tuple[int, float] | None = None,
    given: str,
) -> Figure:
    """Which heads carry the difference between true and false demonstrations, by attribution?

    Args:
        top: Attribution of the heads with the largest, largest first.
        clear: Heads clearly above 0, corrected for looking at all.
        heads: Number of heads of the model.
        prompts: Number of pairs.
        gap: Logit difference with true minus with false demonstrations.
        agreement: Rank correlation with exact patching; None if it was not run.
        missed: Steps of the path, and by how much the embeddings' scores miss the gap at most; None
            without a path.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    best, score = next(iter(top.items()))
    most = f"the largest attribution is that of {best}, {said(score, sign=True)} logits"
    if prompts < FEWEST_PROMPTS:
        answer = f"Cannot be judged from {counted(prompts, 'pair')}: {most}."
    elif clear:
        answer = (
            f"Yes, by estimate: {named(clear)} ({len(clear)} of {heads} heads) are above 0, corrected for looking "
            f"at all heads; {most}, of a gap of {said(gap, sign=True)}."
        )
    else:
        answer = f"Not shown: no head of {heads} is clearly above 0; {most}."
    if agreement is None:
        answer += " The estimate was not compared with exact patching."
    else:
        answer += f" Rank agreement with exact patching: {said(agreement)}."
    if missed is not None:
        answer += (
            f" Over {missed[0]} steps the embeddings miss the gap by {told(missed[1])} at most."
        )
    return Figure(
        "maps",
        "Which heads carry the difference between true and false demonstrations?",
        answer,
        "**Attribution of every head (added over positions)"
        + (
            " and, below, the true change when its output is patched at all positions"
            if agreement
            else ""
        )
        + f".** Means over {counted(prompts, 'pair')} of prompts; in logits of the right above the wrong label "
        "word. Framed: the largest attributions (layer.head). Intervals (when pointing): 95 % over "
        f"pairs{given}, for each head alone.",
        limits="what patching would really change: attribution is a first-order estimate, and poor where "
        "attention or norms saturate. Believe the exact map where the two differ.",
        short="Attribution",
    )


def estimated(agreement: Interval | None, prompts: int, *, given: str) -> Figure:
    """Does the estimate order heads as exact patching does?"""
    status = judged(agreement, null=GOOD, prompts=prompts)
    few = f" from {counted(prompts, 'pair')}" if status == "cannot be judged" else ""
    value = "one side is the same for all heads"
    if agreement is not None:
        value = f"rank correlation over heads {said(agreement)}, mean over prompts (compared with {GOOD})"
    return Figure(
        "both",
        "Does the estimate order the heads as exact patching does?",
        f"{OPENINGS[status]}{few}: {value}.",
        "**Attribution against the true change of every head**, means over "
        f"{counted(prompts, 'pair')} of prompts{given}. Named: the largest attributions.",
        limits="that single heads are ordered right: the correlation is over all heads.",
        short="Estimate and exact",
    )
