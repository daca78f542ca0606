"""What a page says about sets of heads, from their numbers."""

from collections.abc import Mapping

from icl_mech.metrics import Interval
from icl_mech.results.figures import Figure
from icl_mech.results.judging import FEWEST_PROMPTS, judged
from icl_mech.results.wording import counted, listed, said


def compared(
    effects: Mapping[str, tuple[Interval, Interval, Interval]],
    shared: Mapping[str, int],
    sizes: Mapping[str, tuple[int, int]],
    prompts: int,
    draws: int,
    *,
    given: str,
) -> list[Figure]:
    """What each set does beyond the others, and which heads sets share.

    Args:
        effects: Of each set's own heads: change of the logit difference with false demonstrations, the same
            beyond random heads, and change with true ones.
        shared: Heads that two sets have in common, by their names.
        sizes: Heads of each set, and heads it has alone.
        prompts: Number of pairs of prompts.
        draws: Random draws beside each set.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    parts = []
    clear = False
    for name, (change, beyond, true) in effects.items():
        both = {judged(own, prompts=prompts) for own in (change, beyond)}
        clear |= both in ({"supported"}, {"opposite"})
        parts.append(
            f"{name} ({sizes[name][1]} of {counted(sizes[name][0], 'head')}) {said(change, sign=True)}, beyond random "
            f"heads {said(beyond, sign=True)}, with true demonstrations {said(true, sign=True)}"
        )
    opening = "Yes" if clear else "Not shown"
    if prompts < FEWEST_PROMPTS:
        opening = f"Cannot be judged from {counted(prompts, 'pair')}"
    answer = f"{opening}: {'; '.join(parts)}."
    if not parts:
        answer = "Cannot be judged: every head of every set is in another set too."
    return [
        Figure(
            "ablation",
            "Does a set of heads do what the other sets do not?",
            answer,
            "**Change of the logit difference (right minus taught false label word) when the heads that only "
            "one set has are removed at the last token**, beside random heads of the same layers that are in "
            f"no set (mean of {draws} draws). In the sentence: with false demonstrations unless said otherwise. Bars: "
            f"95 % intervals over {counted(prompts, 'pair')} of prompts{given}, for each set alone; those beyond random "
            "heads take in how far draws lie apart. Yes needs both to lie on one side of 0.",
            limits="what the heads do that two sets share: they are left out on both sides. Sets of different "
            "size remove different amounts; the random heads have each set's size.",
            short="Sets of heads",
            drawn=bool(parts),
        ),
        Figure(
            "overlap",
            "Which heads do the sets share?",
            f"{listed(f'{names}: {count}' for names, count in shared.items())}.",
            "**Heads that two sets have in common**; framed: the size of each set.",
            limits="that two measures find the same mechanism where they find the same heads.",
            short="Overlap",
        ),
    ]
