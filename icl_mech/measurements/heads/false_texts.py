"""What a page says about false induction heads: who was chosen on what, and the check."""

from collections.abc import Mapping, Sequence

from icl_mech.metrics import Interval
from icl_mech.results.figures import Figure
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, Status, judged
from icl_mech.results.wording import counted, listed, said, spelled

HeldOut = Mapping[str, tuple[Interval, Interval]] | None
"""Prefix matching above its control and label promoting, by head, of prompts that did not choose."""


def both(held_out: HeldOut, prompts: int | None = None) -> list[str]:
    """Heads that match beyond their control and promote the false label, on held-out prompts."""
    return [
        name
        for name, (above, promoting) in (held_out or {}).items()
        if judged(above, prompts=prompts) == judged(promoting, prompts=prompts) == "supported"
    ]


def status_of(held_out: HeldOut, prompts: int | None = None) -> Status:
    """Of the claim that some of the chosen heads are false induction heads.

    Args:
        held_out: What these heads score on prompts that did not choose them.
        prompts: How many these are.
    """
    if not held_out or (prompts is not None and prompts < FEWEST_PROMPTS):
        return "cannot be judged"
    return "supported" if both(held_out, prompts) else "not shown"


def found_heads(
    chosen: Sequence[str],
    confirmed: Sequence[str],
    task: str,
    held_out: HeldOut,
    prompts: int,
    *,
    given: str,
) -> Figure:
    """Are there heads that copy false labels?

    Args:
        chosen: The heads that match prefixes most, best first.
        confirmed: Those that are clear of both controls on the prompts that chose them.
        task: Where they were chosen.
        held_out: The same choice on one half of the prompts, tested on the other.
        prompts: All of them; 0 if not known.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    tested = prompts // 2
    status = status_of(held_out, tested if prompts else None)
    named = (
        f"the {spelled(len(chosen))} heads that match prefixes most on {task} ({listed(chosen)})"
    )
    if len(chosen) == 1:
        named = f"the head that matches prefixes most on {task} ({chosen[0]})"
    own = (
        f"nothing can be said of {named}"
        if 0 < prompts < FEWEST_PROMPTS
        else (
            f"of {named}, {listed(confirmed)} also {'push' if len(confirmed) > 1 else 'pushes'} to the false "
            "label, beyond what the order of the labels gives"
            if confirmed
            else f"of {named}, none is clear of both controls (shuffled labels, no promotion)"
        )
    )
    if held_out is None:
        check = "the check on held-out prompts cannot be made: "
        check += "one prompt cannot be split" if prompts else "single prompts were not kept"
    elif status == "cannot be judged":
        check = f"a half of {counted(tested, 'prompt')} is too few for the held-out check"
    else:
        sure = both(held_out, tested)
        which = listed(sure) if sure else "none"
        check = (
            f"of the {spelled(len(held_out))} chosen anew on one half of the prompts, {which} "
            f"{'is' if len(sure) < 2 else 'are'} clear of both on the other half"
        )
        if not sure:
            best = max(held_out, key=lambda name: held_out[name][0].value)
            above, promoting = held_out[best]
            check += (
                f" (highest {best}: {said(above, sign=True)} above its control, promoting "
                f"{said(promoting, sign=True)})"
            )
    return Figure(
        "",
        "Are there heads that copy false labels?",
        f"{OPENINGS[status]}: {own}; {check}.",
        f"**The heads that match prefixes most on {task}, best first**: their prefix matching, whether "
        "it lies above the score with shuffled labels, and what they add to the false label's logit. "
        f"In brackets: 95 % bootstrap intervals over {counted(prompts, 'prompt')}{given}, on the prompts "
        "that chose the heads, for each head alone; “class-sensitive” is corrected for all heads, and the "
        "sentence above tests on other prompts, the chosen heads together."
        if prompts
        else f"**The heads that match prefixes most on {task}, best first.**",
        f"that there are heads on {task} that match and promote false labels: "
        f"{listed(both(held_out, tested))}."
        if status == "supported"
        else "",
        "that they do so on other tasks, or that they cause errors there: see heads and ablations on the "
        "studied task.",
        "False induction heads",
    )
