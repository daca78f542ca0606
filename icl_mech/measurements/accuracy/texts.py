"""What a page says about accuracy by layer and by number of demonstrations, from its numbers."""

from typing import NamedTuple

from icl_mech.metrics import Interval, IntervalKind
from icl_mech.results.figures import Figure
from icl_mech.results.judging import OPENINGS, Status, judged
from icl_mech.results.wording import counted, said, told

KINDS: dict[IntervalKind, str] = {
    "score": "95 % score intervals over pairs of prompts",
    "bootstrap": "95 % bootstrap intervals over pairs of prompts",
    "reference": "mean ± 1.96 standard errors over pairs of prompts",
}

NO_CURVES = (
    "Curves of the paper are not drawn: they are of other models and data sets, and this package "
    "carries their averages only (section on published numbers)."
)

SCORE = (
    "A prompt counts as right if its true label's probability among the label words lies above that "
    "label's quantile over the prompts."
)


class Sides(NamedTuple):
    """One measure at the last layer, and what it rests on.

    Attributes:
        true: With true demonstrations.
        false: With false ones.
        gap: True minus false, paired.
        pairs: Number of pairs of prompts.
        given: What the intervals take as given, with a comma before it, or nothing.
        kind: Of the intervals.
    """

    true: Interval
    false: Interval
    gap: Interval
    pairs: int
    given: str = ""
    kind: IntervalKind = "score"

    @property
    def basis(self) -> str:
        """Intervals and number of prompts."""
        return f"{KINDS[self.kind]}, {counted(self.pairs, 'pair')}{self.given}"

    @property
    def both(self) -> str:
        """Both accuracies in words."""
        return f"{said(self.true)} with true and {said(self.false)} with false demonstrations"


def few(status: Status, pairs: int) -> str:
    """Why something cannot be judged, where that is so."""
    return f" from {counted(pairs, 'pair')} of prompts" if status == "cannot be judged" else ""


def reference_lines(chance: float, reachable: float) -> str:
    """What the dashed lines of calibrated accuracy are."""
    text = f"Dashes: chance, which is also what any constant answer scores ({told(chance)})"
    if reachable < 1:
        return (
            f"{text}, and the most a perfect classifier can reach: {told(reachable)}, not 1, since the "
            "true classes of the queries are not balanced."
        )
    return f"{text}. A perfect classifier reaches 1."


def harm(own: Sides, critical: Interval | None, chance: float, reachable: float, *, alike: bool) -> Figure:  # fmt: skip
    """Calibrated accuracy by layer.

    Args:
        own: At the last layer.
        critical: The critical layer, or None where it is not defined.
        chance: One over the number of classes.
        reachable: By a perfect classifier.
        alike: At the embedding all prompts are alike.
    """
    status = judged(own.gap, prompts=own.pairs)
    critical = critical if status == "supported" else None
    answer = f"{OPENINGS[status]}{few(status, own.pairs)}"
    answer += ". At" if status in ("supported", "opposite") else ": at"
    answer += f" the last layer calibrated accuracy is {own.both}, a gap of {said(own.gap)}"
    if status == "opposite":
        answer += ": false demonstrations do not hurt here, they help."
    elif critical is not None:
        answer += f"; it stays open from layer {_layer(critical.value)} on."
    elif status == "not shown":
        answer += " that includes 0."
    else:
        answer += "."
    caption = (
        "**Calibrated accuracy after each layer, with true and with false demonstrations**, and the "
        f"gap between the two. {SCORE} Layer 0 is the embedding, the last one the model's own answer. "
        f"Bands (each point for itself): {own.basis}. {reference_lines(chance, reachable)}"
    )
    if critical is not None:
        caption += (
            f" Dotted: the critical layer, {_layer(critical.value)} (95 % interval "
            f"{_layer(critical.low)} to {_layer(critical.high)}), from which the gap stays at half its "
            "final value or more."
        )
    if alike:
        caption += " At the embedding all prompts are alike: every score there is a tie."
    limits = "that a layer at chance knows nothing: its answer may be there in another form than the last layer reads."  # fmt: skip
    if critical is None:
        limits += f" Where the curves part: that needs a gap clear of 0, and here it is {said(own.gap)}."  # fmt: skip
    return Figure(
        "calibrated",
        "Do false demonstrations hurt, and from which layer on?",
        answer,
        f"{caption} {NO_CURVES}",
        {
            "supported": "that the labels of the demonstrations, not only their texts, move the answers.",
            "opposite": "that false labels do not lower accuracy on these prompts.",
        }.get(status, ""),
        limits,
        "Accuracy by layer",
    )


def followed(score: Interval, chance: float, own: Sides) -> Figure:
    """The permuted score of the false side: is the false label the answer?"""
    status = judged(score, null=chance, prompts=own.pairs)
    words = {
        "supported": f"above chance ({told(chance)})",
        "opposite": f"below chance ({told(chance)})",
    }.get(status, f"not clear of chance ({told(chance)})")
    return Figure(
        "permuted",
        "Is it the false label that is answered instead?",
        f"{OPENINGS[status]}{few(status, own.pairs)}: after the last layer the label that false "
        f"demonstrations teach scores {said(score)} in place of the true one, {words}.",
        "**Permuted score after each layer**: calibrated accuracy with the label that the false "
        "demonstrations teach for the query in place of the true one, on an axis of its own. "
        f"Bands (each point for itself): {own.basis}. Dashes: chance.",
        "that errors under false demonstrations follow the rule the demonstrations show."
        if status == "supported"
        else "",
        "how the model gets there: copying labels and learning the rule look alike here."
        if status == "supported"
        else "that false labels leave the answers alone: they may lower accuracy without being followed.",
        "Following false labels",
    )


def uncalibrated(own: Sides, commonest: float, chance: float) -> Figure:
    """Accuracy over the label words."""
    status = judged(own.gap, prompts=own.pairs)
    constant = constant_answer(commonest, chance)
    return Figure(
        "plain",
        "Is the gap there without calibration too?",
        f"{OPENINGS[status]}{few(status, own.pairs)}: the likeliest label word is right in "
        f"{own.both}, a difference of {said(own.gap)}; {constant} is right in {told(commonest)}.",
        "**Share of prompts whose likeliest label word is right, after each layer.** Bands (each point for itself): 95 % "
        f"intervals ({'mean ± 1.96 standard errors' if own.kind == 'reference' else 'Wilson'}), "
        f"{counted(own.pairs, 'pair')} of prompts{own.given}; the difference is paired (Tango). Dashes: "
        f"{constant} ({told(commonest)})"
        + (
            ", which is chance."
            if commonest <= chance + 1e-9
            else f", and chance ({told(chance)})."
        ),
        "",
        "what the model knows of a class it never names: one preferred label word pulls this "
        "measure to the base rate. Calibrated accuracy does not have that fault.",
        "Without calibration",
    )


def constant_answer(commonest: float, chance: float) -> str:
    """What scores the share of the most frequent class."""
    return "any constant answer" if commonest <= chance + 1e-9 else "always the commonest class"


def format_found(own: Sides, half: int | None) -> Figure:
    """Probability of all label words."""
    when = (
        "they never hold half of it"
        if half is None
        else f"with true ones they hold half of it or more from layer {half} on"
    )
    return Figure(
        "label_space",
        "From which layer on does the model answer in label words?",
        f"After the last layer all label words together have a probability of {own.both}; {when}.",
        "**Probability of all label words together, after each layer**: where the format of the answer "
        f"is understood, right or wrong. Bands (each point for itself): {own.basis}.",
        "",
        "that the answer is right: the label words may share the probability in any way.",
        "Label words at all",
    )


def growing(
    none: Interval, own: Sides, first: Interval, growth: Interval | None, count: int, *, permuted: bool
) -> Figure:  # fmt: skip
    """Accuracy by number of demonstrations.

    Args:
        none: Accuracy without demonstrations.
        own: With all of them.
        first: Gap after the first demonstration.
        growth: Gap with all minus gap after the first, paired; None if there is but one.
        count: Number of demonstrations of the last point.
        permuted: A panel shows the permuted score.
    """
    status = judged(growth, prompts=own.pairs)
    answer = OPENINGS[status] + few(status, own.pairs) * (growth is not None)
    answer += f": after {counted(count, 'demonstration')} accuracy is {own.both}"
    if growth is None:
        answer = f"{answer}; with one number of demonstrations nothing can grow."
    else:
        answer += (
            f", a gap of {said(own.gap)}, after the first one the gap is {said(first)} (change "
            f"{said(growth, sign=True)}). Without any, accuracy is {said(none)}."
        )
    panels = (
        " On an axis of its own: how often the label that false demonstrations teach is the calibrated "
        "answer (permuted score)."
        if permuted
        else ""
    )
    return Figure(
        "",
        "Does the harm grow with the number of false demonstrations?",
        answer,
        f"**Calibrated accuracy after 0 to {count} demonstrations, true and false.**{panels} {SCORE} "
        f"Bars or bands: {own.basis}. Dashes: chance, the accuracy without demonstrations, and what a "
        "perfect classifier reaches at each point, which is below 1 where the classes of the queries "
        "there are not balanced.",
        "that more false demonstrations do more harm on these prompts."
        if status == "supported"
        else "",
        "the order of neighbouring points: each is about other texts (the k-th demonstration serves as "
        "the query after k demonstrations), and few prompts decide between them.",
        "Number of demonstrations",
    )


def _layer(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"
