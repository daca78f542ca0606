"""Reference lines of loyalty: what a constant answer, and chance, would keep."""

from collections.abc import Sequence

from icl_mech._typing import Int, Tensor
from icl_mech.measurements.isolation.agreement import NEARLY_ALWAYS, class_name
from icl_mech.measurements.reading import ANOTHER
from icl_mech.results.wording import listed, told

MOST_CONSTANTS = 4
"""So many constant answers are drawn where predictions under isolation are not known."""

CLOSE = 0.05
"""Lines closer than this are drawn as one."""


def constants(
    predicted: Int[Tensor, " batch"],
    isolated: Int[Tensor, "window batch"] | None,
    labels: Sequence[str],
    kind: str = "classes",
) -> list[tuple[float, str]]:
    """Label loyalty that constant answers and chance keep, for those that matter, with words.

    They are the commonest answer without isolation, and every answer that a window (nearly)
    always gives; where that is not known, all answers if they are few.

    Args:
        predicted: Classes predicted without isolation.
        isolated: Those under isolation, one row per window.
        labels: Names of the classes.
        kind: What answers are. No answer is the same in prompts whose words differ; of texts there is no
            chance either.
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
    # Of a whole vocabulary chance is nothing.
    if len(labels) > 1 and ANOTHER not in labels:
        levels.append((1 / len(labels), "chance"))
    return _merged(levels)


def _merged(levels: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """A line at each height; where lines are closer than words are high, the upper one bears the words of all."""
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
