"""Do label words collect the demonstrations early? The early window beside its controls.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.measurements.isolation.agreement import LOYALTIES, SHOWN, TITLES, Key, Loyalty
from icl_mech.measurements.isolation.answers import became as became_constant
from icl_mech.metrics import Interval
from icl_mech.results import Samples
from icl_mech.results.answer_words import answer_kind
from icl_mech.results.judging import Required, Status, judged, opening, required
from icl_mech.results.wording import counted, listed, said, told
from icl_mech.shapes import LayerCurves, Meaning, Panel

CONTROL = "random tokens"
"""What decides: cut off in the same layers."""


APART = 0.13
"""Points of label words and random tokens stand this part of a step from the middle."""

MEANINGS: dict[str, Meaning] = {"label": "label", "random": "other"}


@runtime_checkable
class Loyalties(Protocol):
    """Loyalty by window, as the result of isolation holds it."""

    @property
    def windows(self) -> tuple[Key, ...]:
        """Side, depth and tokens of every window."""

    @property
    def predicted(self) -> Int[Tensor, " batch"]:
        """Predicted class without isolation."""

    @property
    def isolated(self) -> Int[Tensor, "window draw batch"] | None:
        """Predicted class under isolation, of each draw."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""

    @property
    def n_layers(self) -> int:
        """Layers of the model."""

    @property
    def usual_depth(self) -> int:
        """The depth that texts speak of."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Where it comes from."""

    def loyalty(self, key: Key, quantity: Loyalty = "label_loyalty") -> Interval:
        """Loyalty of one window."""

    def difference(self, first: Key, second: Key, quantity: Loyalty = "label_loyalty") -> Interval:
        """Loyalty of the first window minus that of the second."""


def curves(found: Sequence[Samples], levels: Sequence[tuple[float, str]], note: str) -> LayerCurves:
    """A panel for each loyalty and side; label words and random tokens are its curves.

    Args:
        found: Loyalties by tokens, side and depth.
        levels: Label loyalty that constant answers keep, with words.
        note: What the numbers rest on.
    """
    kinds, sides, depths = found[0].labels
    # By measure and side, then tokens: the curves of a panel follow each other.
    value, low, high = (
        torch.cat([end.movedim(1, 0).flatten(0, 1) for end in ends])
        for ends in zip(*((own.values, own.low, own.high) for own in found), strict=True)
    )
    panels: list[Panel] = []
    for measure, side in product((own.name for own in found), sides):
        places = range(len(panels) * len(kinds), (len(panels) + 1) * len(kinds))
        known = value[list(places)][value[list(places)].isfinite()]
        one = known.numel() and not bool((known != 1).any())
        panels.append(
            Panel(
                f"{TITLES[measure]}, {side} k layers",
                tuple(places),
                TITLES[measure].lower(),
                levels=tuple(levels) if measure == "label_loyalty" else (),
                remark=("both exactly 1" if len(kinds) > 1 else "exactly 1") if one else "",
                y_range=(-0.06, 1.1),
            )
        )
    gaps = [b - a for a, b in pairwise(depths)]
    return LayerCurves(
        title="Loyalty with tokens isolated in some layers",
        names=tuple(SHOWN[kind] for kind in kinds) * len(panels),
        values=value,
        low=low,
        high=high,
        y_title="loyalty",
        note=note,
        x=tuple(map(float, depths)),
        x_title="number of isolated layers k",
        meanings=tuple(MEANINGS[kind] for kind in kinds) * len(panels),
        panels=tuple(panels),
        columns=len(sides),
        apart=APART * min(gaps, default=1) if len(kinds) > 1 else 0.0,
    )


class Compared(NamedTuple):
    """The early window beside what it is compared with.

    Attributes:
        early: Label words in the first layers.
        others: What it is compared with, in words.
    """

    early: Key
    others: dict[str, Key]


def compared(result: Loyalties) -> Compared | None:
    """Label words in the first layers, and the last layers and random tokens that were run."""
    k = result.usual_depth
    early = ("first", k, "label")
    others = {"random tokens": ("first", k, "random"), "last layers": ("last", k, "label")}
    found = {name: key for name, key in others.items() if key in result.windows}
    return Compared(early, found) if early in result.windows and found else None


def status(result: Loyalties) -> Status:
    """Of the claim that label words collect the demonstrations in early layers.

    Both loyalties must fall below those of random tokens in the same layers. Label words in the last
    layers stand beside them as a curve and decide nothing: few later blocks read what is cut there, so
    isolation does nearly nothing by construction, in networks that learned nothing, too.
    """
    return required_of(result).status


def required_of(result: Loyalties) -> Required:
    """The same as a measure that a claim requires, with its p-value."""
    differences = [_difference(result, loyalty) for loyalty in LOYALTIES]
    return required("isolation", *differences, rising=False, prompts=len(result.predicted))


def status_of(result: Loyalties, loyalty: Loyalty) -> Status:
    """The same by one loyalty."""
    return judged(_difference(result, loyalty), rising=False, prompts=len(result.predicted))


def _difference(result: Loyalties, loyalty: Loyalty) -> Interval | None:
    """Of label words and of random tokens in the first layers."""
    windows = compared(result)
    if windows is None or CONTROL not in windows.others:
        return None
    return result.difference(windows.early, windows.others[CONTROL], loyalty)


def answer(result: Loyalties) -> str:
    """The effect of the early window, its comparisons, and the constant answer it may have become."""
    windows = compared(result)
    if windows is None:
        return f"Cannot be judged: {lone(result)}, and nothing was run to compare it with."
    own, k = status(result), windows.early[1]
    instead = {
        CONTROL: "as many random tokens cut off there",
        "last layers": f"label words cut off in the last {k} instead",
    }
    others = ", and with ".join(
        f"{instead[name]} it is {told(result.loyalty(key).value)} "
        f"(difference {said(result.difference(windows.early, key), sign=True)})"
        for name, key in windows.others.items()
    )
    text = (
        f"{opening(own, counted(len(result.predicted), 'prompt'))} with label words cut off from what "
        f"stands before them in the first {counted(k, 'layer')} of {result.n_layers}, "
        f"{'only ' * (own == 'supported')}{said(result.loyalty(windows.early))} of the answers stay the "
        f"same; with {others}."
    )
    if own == "mixed":
        text += f" {_words_differ(result, windows)}"
    constant = became(result)
    return f"{text} {constant}" if constant else text


def became(result: Loyalties) -> str:
    """The answer that nearly all prompts get in the early window, if there is one."""
    windows = compared(result)
    if windows is None or result.isolated is None or answer_kind(result.provenance) != "classes":
        return ""
    own = result.isolated[result.windows.index(windows.early), 0]
    return became_constant(own, result.predicted, result.labels)


def lone(result: Loyalties) -> str:
    """Both loyalties of the early window, or of the first of its depth."""
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


def _words_differ(result: Loyalties, windows: Compared) -> str:
    label, word = (status_of(result, own) for own in LOYALTIES)
    found = {
        name: (said(result.difference(windows.early, key, "word_loyalty"), sign=True))
        for name, key in windows.others.items()
    }
    said_of = listed(f"{value} against {name}" for name, value in found.items())
    if word == "supported" and label != "supported":
        return f"The likely next words do change: word loyalty differs by {said_of}."
    return f"The two loyalties disagree; word loyalty differs by {said_of}."


def establishes(result: Loyalties) -> str:
    """What a clear finding says."""
    found, windows = status(result), compared(result)
    if windows is None or found not in ("supported", "opposite"):
        return ""
    if found == "opposite":
        return "Answers rest less on what label words read early than on what other tokens read."
    return "Answers rest on what label words read in the early layers, more than on what other tokens read."


def summary(result: Loyalties) -> str:
    """One line: both loyalties of the early window and their differences to the others."""
    windows, text = compared(result), lone(result)
    if windows is None:
        return text
    clear = []
    for name, key in windows.others.items():
        found = {own: result.difference(windows.early, key, own) for own in LOYALTIES}
        text += f"; minus {name}: {', '.join(said(own, sign=True) for own in found.values())}"
        clear += [
            f"{loyalty.replace('_', ' ')} below {name}"
            for loyalty, interval in found.items()
            if interval.high < 0
        ]
    return f"{text}; clear: {', '.join(clear) or 'no difference'}"
