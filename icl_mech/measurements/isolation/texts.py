"""What a page says about isolation in the first or last layers, written from its numbers."""

from typing import NamedTuple

from icl_mech.measurements.isolation.agreement import LOYALTIES, SHOWN, Key, Loyalty, class_name
from icl_mech.measurements.isolation.values import LoyaltyByWindow
from icl_mech.metrics import Interval
from icl_mech.results.figures import Definition, Figure
from icl_mech.results.judging import OPENINGS, Required, Status, judged, required
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, said, told

SOURCE = "Wang et al. 2023, Label Words are Anchors, §2.2"

LABEL_LOYALTY = Definition(
    "label loyalty",
    r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat{y}_n = \hat{y}_n^{\text{isolated}}\right]",
    "Share of the N prompts whose predicted class ŷ, the label word with the largest logit, is the "
    "same with and without isolation.",
    SOURCE,
)

WORD_LOYALTY = Definition(
    "word loyalty",
    r"\frac{1}{N} \sum_{n=1}^{N} "
    r"\frac{|V_n \cap V_n^{\text{isolated}}|}{|V_n \cup V_n^{\text{isolated}}|}",
    "Mean Jaccard overlap of the sets V of the k likeliest next tokens with and without isolation.",
    SOURCE,
)

ISOLATION = Definition(
    "isolation",
    r"s_{l,h}[p, j] = -\infty \quad \text{for } j < p,\ l \in \Lambda",
    "In the layers Λ the attention scores s of the isolated tokens p (the first token of each label "
    "word, or as many random tokens of the demonstrations) to everything before them are set to "
    "minus infinity before the softmax. The variant “zero” sets the pattern to 0 after it.",
    SOURCE,
)

DEFINITIONS = (ISOLATION, LABEL_LOYALTY, WORD_LOYALTY)


CONTROL = "random tokens"
"""What decides: cut off in the same layers."""


class Compared(NamedTuple):
    """The early window beside what it is compared with.

    Attributes:
        early: Label words in the first layers.
        others: What it is compared with, in words.
    """

    early: Key
    others: dict[str, Key]


def compared(result: LoyaltyByWindow) -> Compared | None:
    """Label words in the first layers, and the last layers and random tokens that were run."""
    k = result.usual_depth
    early = ("first", k, "label")
    others = {"random tokens": ("first", k, "random"), "last layers": ("last", k, "label")}
    found = {name: key for name, key in others.items() if key in result.windows}
    return Compared(early, found) if early in result.windows and found else None


def status(result: LoyaltyByWindow) -> Status:
    """Of the claim that label words collect the demonstrations in early layers.

    Both loyalties must fall below those of random tokens in the same layers. Label words in the last
    layers stand beside them as a curve and decide nothing: few later blocks read what is cut there, so
    isolation does nearly nothing by construction, in networks that learned nothing, too.
    """
    return required_of(result).status


def required_of(result: LoyaltyByWindow) -> Required:
    """The same as a measure that a claim requires, with its p-value."""
    differences = [_difference(result, loyalty) for loyalty in LOYALTIES]
    return required("isolation", *differences, rising=False, prompts=len(result.predicted))


def status_of(result: LoyaltyByWindow, loyalty: Loyalty) -> Status:
    """The same by one loyalty."""
    return judged(_difference(result, loyalty), rising=False, prompts=len(result.predicted))


def _difference(result: LoyaltyByWindow, loyalty: Loyalty) -> Interval | None:
    """Of label words and of random tokens in the first layers."""
    windows = compared(result)
    if windows is None or CONTROL not in windows.others:
        return None
    return result.difference(windows.early, windows.others[CONTROL], loyalty)


def figures(result: LoyaltyByWindow) -> list[Figure]:
    """Loyalties, what is answered under isolation, and which words become likely."""
    found = [
        Figure(
            "loyalty",
            "Do label words collect the demonstrations early?",
            answer(result),
            _caption(result),
            _establishes(result),
            _limits(result),
            "Isolating label words",
        )
    ]
    if result.isolated is not None:
        found.append(_answers(result))
    if result.words:
        found.append(_words(result))
    return found


def answer(result: LoyaltyByWindow) -> str:
    """The effect of the early window, its comparisons, and the constant answer it may have become."""
    windows = compared(result)
    if windows is None:
        return f"Cannot be judged: {_lone(result)}, and nothing was run to compare it with."
    own = status(result)
    n = len(result.predicted)
    loyalty = result.loyalty(windows.early)
    k = windows.early[1]
    only = "only " if own == "supported" else ""
    instead = {
        "random tokens": "as many random tokens cut off there",
        "last layers": f"label words cut off in the last {k} instead",
    }
    parts = [
        f"{instead[name]} it is {told(result.loyalty(key).value)} "
        f"(difference {said(result.difference(windows.early, key), sign=True)})"
        for name, key in windows.others.items()
    ]
    why = f" from {counted(n, 'prompt')}" if own == "cannot be judged" else ""
    text = (
        f"{OPENINGS[own]}{why}{':' if why else '.'} "
        f"{'with' if why else 'With'} label words cut off from what stands before them in the first "
        f"{counted(k, 'layer')} of {result.n_layers}, {only}{said(loyalty)} of the answers stay the "
        f"same; with {', and with '.join(parts)}."
    )
    if own == "mixed":
        text += f" {_words_differ(result, windows)}"
    constant = became(result)
    return f"{text} {constant}" if constant else text


def became(result: LoyaltyByWindow) -> str:
    """The answer that nearly all prompts get in the early window, if there is one."""
    windows = compared(result)
    if windows is None or result.isolated is None:
        return ""
    own = result.isolated[result.place(windows.early), 0]
    place = int(own.mode().values)
    count, n = int((own == place).sum()), len(own)
    if n < 2 or count < 0.8 * n or bool((result.predicted == place).all()):
        return ""
    before = int((result.predicted == place).sum())
    return (
        f"Isolated so, the model answers “{class_name(result.labels, place)}” for {count} of {n} "
        f"prompts (before: {before}), and always answering that keeps {told(before / n)}."
    )


def summary(result: LoyaltyByWindow) -> str:
    """One line: both loyalties of the early window and their differences to the others."""
    windows = compared(result)
    if windows is None:
        return _lone(result)
    text = _lone(result)
    clear = []
    for name, key in windows.others.items():
        found = {loyalty: result.difference(windows.early, key, loyalty) for loyalty in LOYALTIES}
        text += f"; minus {name}: {', '.join(said(own, sign=True) for own in found.values())}"
        clear += [
            f"{loyalty.replace('_', ' ')} below {name}"
            for loyalty, interval in found.items()
            if interval.high < 0
        ]
    return f"{text}; clear: {', '.join(clear) or 'no difference'}"


def _lone(result: LoyaltyByWindow) -> str:
    k = result.usual_depth
    key = ("first", k, "label")
    if key not in result.windows:
        key = next(window for window in result.windows if window[1] == k)
    side, depth, tokens = key
    label, word = (said(result.loyalty(key, own)) for own in LOYALTIES)
    return (
        f"{SHOWN[tokens]} isolated in the {side} {depth} of {result.n_layers} layers "
        f"({counted(len(result.predicted), 'prompt')}): label loyalty {label}, word loyalty {word}"
    )


def _words_differ(result: LoyaltyByWindow, windows: Compared) -> str:
    label, word = (status_of(result, own) for own in LOYALTIES)
    found = {
        name: (said(result.difference(windows.early, key, "word_loyalty"), sign=True))
        for name, key in windows.others.items()
    }
    said_of = listed(f"{value} against {name}" for name, value in found.items())
    if word == "supported" and label != "supported":
        return f"The likely next words do change: word loyalty differs by {said_of}."
    return f"The two loyalties disagree; word loyalty differs by {said_of}."


def _caption(result: LoyaltyByWindow) -> str:
    kinds = dict.fromkeys(tokens for *_, tokens in result.windows)
    sides = listed(dict.fromkeys(side for side, *_ in result.windows), "or")
    isolated = listed((SHOWN[kind] for kind in kinds), "or as many")
    apart = " Points are set a little apart so that equal ones stay visible." * (len(kinds) > 1)
    drawn = ""
    if "random" in kinds and result.draws > 1:
        own = [i for i, (*_, tokens) in enumerate(result.windows) if tokens == "random"]
        least, most = (float(end) for end in result.draw_loyalty[own].aminmax())
        drawn = (
            f" Random tokens: mean of {result.draws} draws (label loyalty of single draws "
            f"{told(least)} to {told(most)}), which differences to them take into account."
        )
    return (
        f"**Share of answers that stay the same (label loyalty, top) and overlap of the "
        f"{result.top_k} likeliest next tokens (word loyalty, bottom)** when {isolated} may no longer "
        f"read what comes before them in the {sides} k of {result.n_layers} layers. Dashed: what "
        f"chance and constant answers keep.{apart} Bars: 95 % intervals over "
        f"{counted(len(result.predicted), 'prompt')}{given(result)} (Wilson; values between 0 "
        f"and 1 with an effective number of prompts).{drawn}"
    )


def _establishes(result: LoyaltyByWindow) -> str:
    found, windows = status(result), compared(result)
    if windows is None or found not in ("supported", "opposite"):
        return ""
    if found == "opposite":
        return "Answers rest less on what label words read early than on what other tokens read."
    return "Answers rest on what label words read in the early layers, more than on what other tokens read."


def _limits(result: LoyaltyByWindow) -> str:
    parts = []
    if result.isolated is None:
        parts.append("what the isolated model answers instead; this run does not hold it.")
    else:
        parts.append(
            "that the answers which stay are still known: a constant answer keeps some, too."
        )
    if any(side == "last" for side, *_ in result.windows):
        parts.append(
            "Isolation in the last layers changes little by construction, also in untrained networks."
        )
    if result.provenance.get("conditional_on_demonstrations"):
        parts.append("One set of demonstrations was used.")
    return " ".join(parts)


def _answers(result: LoyaltyByWindow) -> Figure:
    windows = compared(result)
    n = len(result.predicted)
    key = windows.early if windows else result.windows[0]
    assert result.isolated is not None
    own = result.isolated[result.place(key), 0]
    commonest = int(own.mode().values)
    before = int(result.predicted.mode().values)
    side, k, tokens = key
    name, earlier = (class_name(result.labels, c) for c in (commonest, before))
    return Figure(
        "answers",
        "What does the isolated model answer instead?",
        f"Mostly “{name}”: {int((own == commonest).sum())} of {n} answers with {SHOWN[tokens]} "
        f"isolated in the {side} {counted(k, 'layer')}; without isolation it answers “{earlier}” most "
        f"often ({int((result.predicted == before).sum())} of {n}).",
        f"**How often each class is predicted** without isolation (first row) and with it; rows add up "
        f"to {counted(n, 'prompt')}."
        + f" Random tokens: mean of {result.draws} draws."
        * (result.draws > 1 and any(tokens == "random" for *_, tokens in result.windows)),
        limits="which prompts moved: two rows with equal counts may hold other prompts.",
        short="Answers under isolation",
    )


def _words(result: LoyaltyByWindow) -> Figure:
    plain = result.words[0]
    windows = compared(result)
    key = windows.early if windows else result.windows[0]
    isolated = result.words[result.place(key) + 1]
    kept = sum(one[0] == other[0] for one, other in zip(plain, isolated, strict=True))
    side, k, tokens = key
    return Figure(
        "words",
        "Which words does the isolated model expect?",
        f"With {SHOWN[tokens]} isolated in the {side} {counted(k, 'layer')} the likeliest next token "
        f"stays the same in {kept} of the first {counted(len(plain), 'prompt')}.",
        f"**The {result.top_k} likeliest next tokens** of the first {counted(len(plain), 'prompt')}, "
        f"best first, without isolation (bold) and with it, in {counted(result.usual_depth, 'layer')}.",
        limits="anything of other prompts: these are examples.",
        short="Next words under isolation",
    )
