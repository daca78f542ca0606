"""What a page says about scores of heads, from their numbers."""

from collections.abc import Mapping, Sequence

from icl_mech.metrics import Interval
from icl_mech.results.figures import Figure
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, judged
from icl_mech.results.wording import counted, listed, said, spelled, told

Scored = Mapping[str, Interval]
"""Heads as `layer.head`, best first, with a score."""


def head_name(head: Sequence[int]) -> str:
    """`layer.head`."""
    return f"{head[0]}.{head[1]}"


def matching(
    top: Scored,
    clear: Sequence[str],
    heads: int,
    prompts: int,
    *,
    given: str,
    false: bool,
    promoting: bool,
    lowest: float,
) -> Figure:
    """Which heads look back at demonstrations of the query's class?

    Args:
        top: Prefix matching of the chosen heads, best first.
        clear: All heads that stand above their shuffled control after correction.
        heads: Number of heads of the model.
        prompts: Number of prompts.
        given: What the intervals take as given, with a comma before it, or nothing.
        false: The demonstrations show false labels.
        promoting: Label promoting is drawn too.
        lowest: Lowest prefix matching of any head.
    """
    best, score = next(iter(top.items()))
    if prompts < FEWEST_PROMPTS:
        answer = (
            f"Cannot be judged from {counted(prompts, 'prompt')}: the highest prefix matching is {best} "
            f"with {said(score)}."
        )
    elif clear:
        shown = [name for name in top if name in clear]
        more = len(clear) - len(shown)
        if shown:
            named = listed([*shown, *([counted(more, "other")] if more else [])])
        else:
            named = listed(list(clear)[:5])
        answer = (
            f"Yes: {named} ({len(clear)} of {heads} heads) {'stands' if len(clear) == 1 else 'stand'} above "
            f"the shuffled control, corrected for looking at all heads; the highest is {best} with "
            f"{said(score)}."
        )
    else:
        answer = (
            f"Not shown: no head of {heads} stands clearly above its shuffled control; the highest "
            f"prefix matching is {best} with {said(score)}."
        )
    taught = "the false label taught for the query" if false else "the query's class"
    caption = (
        f"**{'Scores' if promoting else 'Prefix matching'} of every head, means over "
        f"{counted(prompts, 'prompt')}.** Prefix matching: attention from the last token to label words "
        f"that show {taught}, less that to the other label words. Framed and named in "
        f"{'both maps' if promoting else 'the map'}: the {spelled(len(top))} heads that match prefixes most "
        "(layer.head)."
    )
    if lowest < 0:
        caption += f" Its colours start at 0; values below (lowest {told(lowest)}) are drawn as 0."
    if promoting:
        caption += (
            " Label promoting: what the head adds to the false label's logit above the true one's; brown "
            "promotes the false label, blue the true one."
        )
    return Figure(
        "maps",
        "Which heads look back at demonstrations of the query's class?",
        f"{answer}",
        f"{caption} Intervals (when pointing): 95 % bootstrap over prompts{given}, for each head alone.",
        "which heads attend to matching labels beyond what the order of the demonstrations gives."
        if clear and prompts >= FEWEST_PROMPTS
        else "",
        f"that the framed heads do anything special: they are the highest of {heads}, chosen on the "
        "prompts shown. Attention and direct effect are not cause: see the ablation.",
        "Heads",
    )


def promoted(
    top: Scored,
    towards: Sequence[str],
    away: Sequence[str],
    prompts: int,
    heads: int,
    *,
    given: str,
) -> Figure:
    """Do the heads that match prefixes promote the false label?

    Args:
        top: Label promoting of the heads that match most.
        towards: Those that push to the false label, corrected for looking at all of `top`.
        away: Those that push away from it.
        prompts: Number of prompts.
        heads: Number of heads of the model.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    left = [name for name in top if name not in towards and name not in away]
    best = max(top, key=lambda name: top[name].value)
    parts = []
    for own, verb in ((towards, "to"), (away, "away from")):
        if own:
            named = [f"{name} ({said(top[name], sign=True)})" for name in own]
            parts.append(f"{listed(named)} push{'es' * (len(own) == 1)} {verb} the false label")
    if left == list(top):
        parts = [
            f"none of {listed(left)} is clear of 0 (highest {best}, {said(top[best], sign=True)})"
        ]
        if len(top) == 1:
            parts = [f"{best} is not clear of 0 ({said(top[best], sign=True)})"]
    elif left:
        parts.append(f"{listed(left)} {'is' if len(left) == 1 else 'are'} not clear of 0")
    if prompts < FEWEST_PROMPTS:
        opening = f"Cannot be judged from {counted(prompts, 'prompt')}"
        parts = [f"the highest is {best} with {said(top[best], sign=True)}"]
    elif towards:
        share = f", {len(towards)} of {len(top)}" if len(towards) < len(top) else ""
        opening = f"Yes{share}"
    else:
        opening = "No" if len(away) == len(top) else "Not shown"
    return Figure(
        "both",
        "Do the heads that match prefixes promote the false label?",
        f"{opening}: {'; '.join(parts)}.",
        f"**Prefix matching against label promoting of all {heads} heads**, means over "
        f"{counted(prompts, 'prompt')}. Filled squares: the {spelled(len(top))} heads that match prefixes "
        "most, named; also named: the extremes of label promoting. In brackets: 95 % bootstrap intervals "
        f"over prompts{given}.",
        "",
        "what else a head does: label promoting is its direct effect on the logits only. The sentence is "
        f"corrected for looking at {counted(len(top), 'head')}; the intervals are of each head alone.",
        "Matching and promoting",
    )


def looking(shares: Mapping[str, float], matching: Mapping[str, float], prompts: int) -> Figure:
    """Where the heads look.

    Args:
        shares: Attention to label words, by head.
        matching: Of that to matching ones; empty where no class is taught.
        prompts: Number of prompts measured.
    """
    parts = [
        f"{name}: {_percent(share)}"
        + (
            f" (of these {_percent(matching[name] / share)} to matching ones)"
            if matching and share > 0
            else ""
        )
        for name, share in shares.items()
    ]
    over = "on the prompt shown"
    if prompts > 1:
        over = f"means over {counted(prompts, 'prompt')}, of which one is shown"
    return Figure(
        "",
        "Where do the heads look from the last token?",
        f"Share of attention that goes to label words, by head (layer.head) – {'; '.join(parts)}.",
        f"**Attention of single heads from the last token to every token before it**, {over}. "
        "Label words of the demonstrations are framed. The rest goes to template and text, often to the "
        "first token.",
        "",
        "what is done with what is read there: see label promoting and the ablation. One prompt is an "
        "example, not evidence.",
        "Where heads look",
    )


def opening_gap(
    best: int,
    score: Interval,
    share: Interval | None,
    prompts: int,
    *,
    given: str,
) -> Figure:
    """Does the gap open where heads match prefixes?

    Args:
        best: Layer whose heads match most.
        score: Its summed prefix matching.
        share: Of the final gap after that layer less that before it; None without a gap.
        prompts: Number of prompts.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    status = judged(share, prompts=prompts)
    where = f"heads match prefixes most in layer {best} (sum {said(score)})"
    if share is None:
        answer = (
            f"Cannot be judged: the gap between true and false demonstrations includes 0, so no share of "
            f"it can be given. {where[0].upper()}{where[1:]}."
        )
    else:
        few = f" from {counted(prompts, 'prompt')}" if status == "cannot be judged" else ""
        answer = f"{OPENINGS[status]}{few}: {where}; across it {said(share, sign=True)} of the final gap opens."
    return Figure(
        "",
        "Does the gap open where heads match prefixes?",
        answer,
        "**Prefix matching of whole layers (heads added), and the share of the final gap between true "
        "and false demonstrations that is open after each layer**, on axes of their own. A head in layer "
        "l acts between the readings “after layer l” and “after layer l + 1”. Bands (each point for itself): 95 % bootstrap "
        f"intervals over {counted(prompts, 'pair')} of prompts{given}."
        + ("" if share is not None else " No share is drawn: the final gap includes 0."),
        "",
        "that these heads make the gap: what happens at the same depth need not be its cause.",
        "Matching by layer",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
