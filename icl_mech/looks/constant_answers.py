"""Reference lines of loyalty: the majority-class baseline, other constant answers, and chance."""

from collections.abc import Sequence

from icl_mech._typing import Int, Tensor
from icl_mech.measurements.isolation.agreement import NEARLY_ALWAYS, class_name
from icl_mech.measurements.reading import ANOTHER
from icl_mech.results.wording import listed, told

MOST_CONSTANTS = 4
"""Maximum number of constant answers drawn if predictions under isolation are not known."""

CLOSE = 0.05
"""Lines closer than this are drawn as one."""


def constants(
    predicted: Int[Tensor, " batch"],
    isolated: Int[Tensor, "window batch"] | None,
    labels: Sequence[str],
    kind: str = "classes",
) -> list[tuple[float, str]]:
    """Label loyalty of chance and of the constant answers that matter, with labels.

    These are the most common answer without isolation, and every answer that a window (nearly)
    always gives; if the latter is not known, all answers if they are few.

    Args:
        predicted: Classes predicted without isolation.
        isolated: Classes predicted under isolation, one row per window.
        labels: Names of the classes.
        kind: Kind of answers. If it is not `classes`, constant answers are not defined; chance is drawn for
            `choices` only.
    """
    if kind != "classes":
        chance = 1 / len(labels)
        return [(chance, f"chance {told(chance)}")] if kind == "choices" else []
    n = len(predicted)
    most = max(int(classes.max()) for classes in (predicted, isolated) if classes is not None)
    shares = predicted.bincount(minlength=max(len(labels), most + 1)).double() / n
    matter = {int(shares.argmax())}
    if isolated is not None:
        matter |= {
            int(window.mode().values)
            for window in isolated
            if float((window == window.mode().values).double().mean()) >= NEARLY_ALWAYS
        }
    elif int((shares > 0).sum()) <= MOST_CONSTANTS:
        matter |= set(shares.nonzero()[:, 0].tolist())
    levels = [(float(shares[c]), f"always “{class_name(labels, c)}”") for c in sorted(matter)]
    # Chance over a whole vocabulary is negligible.
    if len(labels) > 1 and ANOTHER not in labels:
        levels.append((1 / len(labels), "chance"))
    return _merged(levels)


def _merged(levels: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """One line per height; if lines are closer than their labels are high, the upper one carries all labels."""
    names: dict[float, list[str]] = {}
    for height, words in sorted(levels):
        names.setdefault(height, []).append(words)
    merged: list[tuple[float, str]] = []
    for height, texts in names.items():
        text = f"{listed(texts)} {told(height)}"
        if merged and height - merged[-1][0] < CLOSE:
            below, above = merged.pop()
            merged.append((below, ""))
            text = f"{above}, {text}"
        merged.append((height, text))
    return merged
