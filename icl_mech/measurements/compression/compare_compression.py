"""The compression methods side by side on the same prompts (Wang et al. 2023, §3.2, table 2)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.compression.kept import WORDS, Method, beyond_full, name_of
from icl_mech.measurements.compression.methods import METHODS, Comparison, Compression, Outcome
from icl_mech.measurements.compression.quality import (
    OVERLAP,
    TITLE,
    StandInQuality,
    check_known,
    constant,
    dots,
)
from icl_mech.measurements.compression.speed import SPEED_UP, speed_figure, speed_ups
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import Kind
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, basis, quantity
from icl_mech.results.judging import Required, Status, opening, required
from icl_mech.results.prompts import answer_kind, given
from icl_mech.results.wording import counted, listed, percent, said, told
from icl_mech.shapes import Bars, Scatter, Table

Loyalty = Literal["label_loyalty", "word_loyalty", "accuracy", "kl", "log_prob", "next_tokens"]

ANCHORS = "hidden_anchor"

CONTROLS = ("text_anchor", "hidden_random")
"""What anchors are judged against; the best of many random draws was picked on the same prompts."""

SOURCE = "Wang et al. 2023, Label Words are Anchors, §3.2"

DEFINITIONS = (
    Definition(
        "label loyalty",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat{y}_n = \hat{y}_n^{\text{stand-in}}\right]",
        "Share of the N prompts whose predicted class ŷ is that of the full prompt.",
        SOURCE,
    ),
    Definition(
        "word loyalty",
        r"\frac{1}{N} \sum_{n=1}^{N} "
        r"\frac{|V_n \cap V_n^{\text{stand-in}}|}{|V_n \cup V_n^{\text{stand-in}}|}",
        "Mean Jaccard overlap of the sets V of likeliest next tokens with those of the full prompt.",
        SOURCE,
    ),
    SPEED_UP,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompareCompressionResult(StandInQuality):
    """How well each method's stand-in replaces the demonstrations; the prompts are the same.

    Attributes:
        methods: Names of the methods, in the order of the leading axes.
        kept: Positions, by method and prompt.
        label_logits: Logits of the label words' first tokens after each stand-in.
        label_kept, correct: The predicted class is that of the full prompt, the true one (None without).
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        kl, log_prob, next_tokens: Of texts, over the tokens after the stand-in up to the one that
            follows the target: mean divergence of next-token distributions from those of the full text,
            mean change of the tokens' log-probability, share whose likeliest next token stays.
    """

    title: ClassVar[str] = "Demonstrations compressed to their anchors"
    shows: ClassVar[tuple[str, ...]] = ("loyalty", "accuracy", "speed", "table")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"method": "methods"}

    methods: tuple[str, ...]
    kept: tuple[tuple[tuple[int, ...], ...], ...]
    label_logits: Float[Tensor, "method batch label"]
    label_kept: Bool[Tensor, "method batch"] = quantity("share of prompts", name="label_loyalty")
    word_overlap: Float[Tensor, "method batch"] = quantity(
        OVERLAP, kind="outcome", name="word_loyalty"
    )
    correct: Bool[Tensor, "method batch"] | None = quantity(
        "share of prompts", name="accuracy", default=None
    )
    kl: Float[Tensor, "method batch"] | None = quantity(
        "KL divergence (nats)", kind="amount", default=None
    )
    log_prob: Float[Tensor, "method batch"] | None = quantity(
        "change of log-probability (nats per token)", default=None
    )
    next_tokens: Float[Tensor, "method batch"] | None = quantity(
        "share of unchanged next tokens", kind="outcome", default=None
    )

    @classmethod
    def of(cls, outcome: Outcome, prompts: PromptBatch) -> "CompareCompressionResult":
        """What came out of several methods."""
        found = outcome.methods
        answered = torch.stack([one.predicted for one in found])
        told = [one.following for one in found if one.following is not None]
        kl, log_prob, same = torch.stack(told, dim=1) if told else (None,) * 3
        return cls(
            methods=tuple(one.method for one in found),
            kept=tuple(one.kept for one in found),
            label_logits=torch.stack([one.label_logits for one in found]),
            label_kept=torch.stack([one.label_kept for one in found]),
            word_overlap=torch.stack([one.word_overlap for one in found]),
            correct=answered == prompts.answers if prompts.has_answers else None,
            kl=kl,
            log_prob=log_prob,
            next_tokens=same,
            **outcome.common(prompts),
        )

    def label_loyalty(self, method: str) -> Interval:
        """Share of prompts whose predicted class is kept, with Wilson interval."""
        return self.interval("label_loyalty", method=method)

    def word_loyalty(self, method: str) -> Interval:
        """Mean overlap of the likeliest next tokens, with its interval."""
        return self.interval("word_loyalty", method=method)

    def accuracy(self, method: str) -> Interval:
        """Share of prompts answered correctly, with Wilson interval.

        Raises:
            ResultError: a method that was not compared, or true classes are not known.
        """
        check_known(self.correct)
        return self.interval("accuracy", method=method)

    @checked(ResultError)
    def difference(self, first: str, second: str, quantity: Loyalty = "label_loyalty") -> Interval:
        """`first` minus `second`, paired over prompts; of shares with score interval.

        Raises:
            ResultError: an unknown quantity, one these prompts do not have, or a method that was not
                compared.
        """
        if quantity == "accuracy":
            check_known(self.correct)
        both = self.sel(quantity, method=[first, second]).quantities()[quantity].per_prompt.double()
        kind: Kind = "value" if quantity in ("kl", "log_prob") else "change"
        return mean_interval(both[:, 0] - both[:, 1], kind)

    def found(self, method: str) -> dict[str, Interval]:
        """All numbers of one method by name."""
        names = [name for name, one in self.quantities().items() if one.dims]
        return {name.replace("_", " "): self.interval(name, method=method) for name in names}

    @property
    def controls(self) -> tuple[str, ...]:
        """Methods the anchors are judged against, as far as they were compared."""
        return tuple(method for method in CONTROLS if method in self.methods)

    def status_of(self, quantity: Loyalty) -> Status:
        """Of the claim that anchors keep more than the controls, by one quantity."""
        return self._required(quantity).status

    @property
    def status(self) -> Status:
        """Of the claim that the states of label words can stand for the demonstrations.

        They must keep more answers and more of the likely next words than the controls.
        """
        return self.required.status

    @property
    def required(self) -> Required:
        """The same as a measure that a claim requires, with its p-value."""
        return self._required("label_loyalty", "word_loyalty")

    def _required(self, *quantities: Loyalty) -> Required:
        if ANCHORS not in self.methods:
            return Required("loyalty", "cannot be judged", None)
        differences = [
            self.difference(ANCHORS, other, quantity)
            for quantity in quantities
            for other in self.controls
        ]
        return required("loyalty", *differences, prompts=len(self.full_predicted))

    def more_columns(self) -> dict[str, float | None]:
        """What the stand-ins cost, and the accuracy of full prompts where it is known."""
        right = self.full_correct
        return {
            "demonstration_share": float(self.demonstration_share.mean()),
            "prompt_share": float(self.prompt_share.mean()),
            "speed_up": self.speed_up,
            "speed_up_cached": self.speed_up_cached,
            **({} if right is None else {"full_accuracy": self.full_accuracy.value}),
        }

    @property
    def timed(self) -> dict[str, Any]:
        """What was timed, prompt by prompt; empty in files of before, or where nothing was."""
        speed = self.provenance.get("speed", {})
        return speed if speed.get("tokens") and speed.get("each") else {}

    def drawing(self, show: str = "loyalty") -> Bars | Scatter | Table:
        """Loyalties or accuracies by method, speed-up against length, or all numbers as a table.

        Args:
            show: `loyalty`, `accuracy`, `speed` or `table`.

        Raises:
            ResultError: another, accuracy without answers, or speed that was not measured.
        """
        self.check_show(show)
        note = f"{basis(self)}; {self._costs()}"
        if show == "speed":
            return speed_ups(self.timed)
        if show == "table":
            names = tuple(self.found(self.methods[0]))
            rows = [(name_of(own), *map(said, self.found(own).values())) for own in self.methods]
            if self.correct is not None:
                same = ["0", "0", "1"] if self.kl is not None else []
                rows.append(("full prompts", "1", "1", said(self.full_accuracy), *same))
            return Table(TITLE, ("stand-in", *names), tuple(rows), note)
        if show == "accuracy":
            check_known(self.correct)
            found = {name_of(own): [self.accuracy(own)] for own in self.methods}
            found["full prompts"] = [self.full_accuracy]
            chance = 1 / self.label_logits.shape[-1]
            levels = ((chance, f"chance {told(chance)}"),)
            return dots(found, ["accuracy"], "accuracy", note, meanings=("label",), levels=levels)
        found = {
            name_of(own): [self.label_loyalty(own), self.word_loyalty(own)] for own in self.methods
        }
        kept = self.constant_loyalty
        return dots(
            found,
            ["label loyalty", "word loyalty"],
            "share of answers, overlap of likely next words",
            note,
            meanings=("label", "label"),
            apart=("label loyalty: share of answers", "word loyalty: overlap of likely next words"),
            levels=() if math.isnan(kept) else ((kept, f"{constant(self)} {told(kept)}"),),
        )

    def _costs(self) -> str:
        if self.speed_up is None or self.speed_up_cached is None:
            return self.kept_share
        return f"{self.kept_share}, speed-up {told(self.speed_up)} (cached: {told(self.speed_up_cached)})"

    def summary(self) -> str:
        """Label loyalties, and how the first method differs from the others."""
        first, *others = self.methods
        loyalties = ", ".join(
            f"{name_of(method)} {said(self.label_loyalty(method))}" for method in self.methods
        )
        compared = ", ".join(
            f"{_verdict(interval)} {name_of(other)} ({said(interval, sign=True)})"
            for other in others
            for interval in [self.difference(first, other)]
        )
        text = f"label loyalty: {loyalties}"
        if not math.isnan(self.constant_loyalty):
            text += f", a constant answer {told(self.constant_loyalty)}"
        return f"{text}; {name_of(first)}: {compared}" if others else text

    def figures(self) -> list[Figure]:
        """Loyalties, accuracies and speed-up."""
        found = [_loyalties(self)]
        if self.correct is not None:
            found.append(_accuracies(self))
        if self.timed:
            ends = (own or float("nan") for own in (self.speed_up, self.speed_up_cached))
            found.append(speed_figure(self.timed, *ends))
        return found


def _verdict(difference: Interval) -> str:
    if difference.low > 0:
        return "more labels kept than"
    return "fewer labels kept than" if difference.high < 0 else "no clear difference from"


def answer(result: CompareCompressionResult) -> str:
    """What anchors keep, and by how much more than the controls."""
    n = counted(len(result.full_predicted), "prompt")
    if ANCHORS not in result.methods:
        return f"Cannot be judged: anchor states were not run; compared were {listed(map(name_of, result.methods))}."
    kept = said(result.label_loyalty(ANCHORS))
    if not result.controls:
        return f"Cannot be judged: anchor states keep {kept} of the answers ({n}), but nothing was run to compare them with."
    loyalties: tuple[Loyalty, ...] = ("label_loyalty", "word_loyalty")
    lead, words = (
        listed(
            f"{said(result.difference(ANCHORS, other, own), sign=True)} against {name_of(other)}"
            for other in result.controls
        )
        for own in loyalties
    )
    text = (
        f"{opening(result.status, n)} the states of label words and template keep {kept} of the answers "
        f"({lead}) and {said(result.word_loyalty(ANCHORS))} of the likely next words ({words})."
    )
    if result.label_loyalty(ANCHORS).low <= result.constant_loyalty:
        text += (
            f" But {constant(result)} alone keeps {told(result.constant_loyalty)} of the answers."
        )
    return text


def _loyalties(result: CompareCompressionResult) -> Figure:
    n = counted(len(result.full_predicted), "prompt")
    methods = "; ".join(f"{name_of(own)}: {WORDS[own]}" for own in result.methods if own in WORDS)
    ends = "; of texts label words are the ends of spans, and random states keep the last one"
    methods += ends * (result.kl is not None)
    share = float(result.demonstration_share.mean())
    dashed = f" Dashed: what {constant(result)} keeps of the answers."
    return Figure(
        "loyalty",
        "Can the label words' states stand for the demonstrations?",
        answer(result),
        f"**How many answers (label loyalty) and likely next words (word loyalty) stay the same when the "
        f"demonstrations are replaced by a stand-in** of {percent(share)} of their tokens. {methods[:1].upper()}{methods[1:]}. "
        f"Bars: 95 % intervals over {n}{given(result)} (Wilson; word loyalty with an effective n)."
        f"{dashed * (answer_kind(result) == 'classes')}",
        establishes="the texts of the demonstrations are no longer needed once label words and template "
        "have read them."
        if result.status == "supported"
        else "",
        limits="which of the kept tokens matter: template tokens are kept with the label words.",
        short="Compressing demonstrations",
    )


def _accuracies(result: CompareCompressionResult) -> Figure:
    n = counted(len(result.full_predicted), "prompt")
    full = result.full_accuracy
    parts = [f"{name_of(own)} {said(result.accuracy(own))}" for own in result.methods]
    return Figure(
        "accuracy",
        "Does the stand-in answer as well as the full prompt?",
        f"Full prompts: {said(full)} right; {', '.join(parts)} ({n}).{beyond_full(full, {name_of(own): result.accuracy(own) for own in result.controls})}",
        f"**Accuracy after each stand-in and with full prompts.** Bars: 95 % Wilson intervals over {n}"
        f"{given(result)}.",
        limits="that a stand-in of equal accuracy gives equal answers; that is label loyalty.",
        short="Accuracy when compressed",
    )


@dataclass(frozen=True)
class CompareCompression(Compression[CompareCompressionResult]):
    """The methods on the same prompts; full prompts and demonstrations are run once for all.

    Attributes:
        methods: Those compared.

    Raises:
        RunError: no methods or one twice, and as `compress_demonstrations`.
        PromptError: as `compress_demonstrations`.

    Source: Wang et al. 2023, §3.2, table 2.
    """

    methods: Sequence[Method] = METHODS

    @property
    def comparison(self) -> Comparison:
        """Of full prompts and these methods."""
        return self.of(self.methods)

    def found(self, outcome: Outcome, prompts: PromptBatch) -> CompareCompressionResult:
        """All methods."""
        return CompareCompressionResult.of(outcome, prompts)
