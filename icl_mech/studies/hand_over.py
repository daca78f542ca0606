"""The hand-over claim: label words carry what demonstrations teach first, the target carries it last.

After arXiv 2605.04061 and 2504.00132. It is judged whenever a `Transplant` (activation patching) of label words and
target was measured, as in `analyze(..., study="causal", measurements=[Transplant()])`.

Any network, trained or not, gives the answer of the other run if the words themselves are swapped, or if the target
is swapped at the end. So the claim is tested at a third and at five sixths of the depth, and requires a majority: of
the prompts that the runs answer differently, more than half must switch to the other run's answer, beyond the same
number of random tokens of the same demonstrations, and beyond patching the other position. In randomly initialised
networks the answers hardly differ (so it cannot be judged), and these networks mix the words into all other
tokens before that depth. The claim is opposite only if fewer answers switch than with random tokens, or with the other
position.
"""

from collections.abc import Callable
from typing import Any

from icl_mech.measurements.causal.transplant import MOST, TransplantResult
from icl_mech.metrics import Interval
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run
from icl_mech.studies.sentences import Facts, sentences

TEXT = "Hand-over: the answer is moved with the label words early and with the target late"

Found = Callable[[TransplantResult], Interval | None]

EARLY: dict[str, Found] = {
    "label words early, beyond random tokens": lambda result: result.beside_random(
        "anchors", result.early
    ),
    "label words early, beyond the target": lambda result: result.beside(
        "anchors", "target", result.early
    ),
}

LATE: dict[str, Found] = {
    "target late, beyond random tokens": lambda result: result.beside_random("target", result.late),
    "target late, beyond the label words": lambda result: result.beside(
        "target", "anchors", result.late
    ),
}


def _moved(run: Run) -> Facts | None:
    result: TransplantResult = run[TransplantResult]
    if not {"anchors", "target"} <= set(result.at):
        return None
    effects = {name: effect(result) for name, effect in (EARLY | LATE).items()}
    shares = {name: share for name, share in effects.items() if share}
    return {"result": result, "shares": shares, "most": MOST}


def _differing(run: Run) -> int:
    """Number of pairs that the two runs answer differently."""
    result: TransplantResult = run[TransplantResult]
    return result.differing


def _effect(name: str, read: Found, when: str) -> Effect:
    def of(run: Run) -> Interval | None:
        result: TransplantResult = run[TransplantResult]
        return read(result) if {"anchors", "target"} <= set(result.at) else None

    how: dict[str, Any] = {"opposite": 0.0, "prompts": _differing}
    return Effect(name, of, null=MOST, ends=DIFFERENCE, measure=when, **how)


HAND_OVER = Claim(
    TEXT,
    [
        _effect(*effect, when)
        for when, effects in (("early", EARLY), ("late", LATE))
        for effect in effects.items()
    ],
    "transplant",
    words=sentences("causal", "hand_over", _moved),
)
