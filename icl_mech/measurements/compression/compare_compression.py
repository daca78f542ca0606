"""Comparison of the compression methods on the same prompts (Wang et al. 2023, §3.2, table 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.compression.kept import Method, name_of
from icl_mech.measurements.compression.methods import METHODS, Comparison, Compression, Outcome
from icl_mech.measurements.compression.quality import OVERLAP, StandInQuality, check_known
from icl_mech.measurements.compression.speed import SPEED_UP
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import Kind
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, quantity
from icl_mech.results.judging import Required, Status, required

Loyalty = Literal["label_loyalty", "word_loyalty", "accuracy", "kl", "log_prob", "next_tokens"]

ANCHORS = "hidden_anchor"

CONTROLS = ("text_anchor", "hidden_random")
"""Controls of the anchors; not `hidden_random_top`, which was selected on the same prompts."""

SOURCE = "Wang et al. 2023, Label Words are Anchors, §3.2"

DEFINITIONS = (
    Definition(
        "label loyalty",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat{y}_n = \hat{y}_n^{\text{stand-in}}\right]",
        "Fraction of the N prompts whose predicted class ŷ is that of the full prompt.",
        SOURCE,
    ),
    Definition(
        "word loyalty",
        r"\frac{1}{N} \sum_{n=1}^{N} "
        r"\frac{|V_n \cap V_n^{\text{stand-in}}|}{|V_n \cup V_n^{\text{stand-in}}|}",
        "Mean Jaccard overlap of the sets V of most probable next tokens with those of the full "
        "prompt.",
        SOURCE,
    ),
    SPEED_UP,
)


class Beyond(NamedTuple):
    """A stand-in that answers better than full prompts.

    Attributes:
        method: Its name.
        clear: True if their intervals do not overlap.
    """

    method: str
    clear: bool

    @classmethod
    def of(cls, full: Interval, accuracies: Mapping[str, Interval]) -> "Beyond | None":
        """The best of these methods; None if it does not answer better."""
        best = max(accuracies, key=lambda method: accuracies[method].value, default="")
        if not best or accuracies[best].value <= full.value:
            return None
        return cls(best, accuracies[best].low > full.high)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompareCompressionResult(StandInQuality):
    """How well each method's stand-in replaces the demonstrations, on the same prompts.

    Attributes:
        methods: Names of the methods, in the order of the leading axes.
        kept: Positions, by method and prompt.
        label_logits: Logits of the label words' first tokens after each stand-in.
        label_kept, correct: Whether the predicted class is that of the full prompt, and the true one (None without).
        word_overlap: Jaccard overlap of the top next tokens with those of the full prompt.
        kl, log_prob, next_tokens: For texts, over the tokens after the stand-in up to the one that
            follows the target: mean divergence of next-token distributions from those of the full text,
            mean change of the tokens' log-probability, fraction whose top next token stays the same.
    """

    shows: ClassVar[tuple[str, ...]] = ("loyalty", "accuracy", "speed", "table")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"method": "methods"}

    methods: tuple[str, ...]
    kept: tuple[tuple[tuple[int, ...], ...], ...]
    label_logits: Float[Tensor, "method batch label"]
    label_kept: Bool[Tensor, "method batch"] = quantity("fraction of prompts", name="label_loyalty")
    word_overlap: Float[Tensor, "method batch"] = quantity(
        OVERLAP, kind="outcome", name="word_loyalty"
    )
    correct: Bool[Tensor, "method batch"] | None = quantity(
        "fraction of prompts", name="accuracy", default=None
    )
    kl: Float[Tensor, "method batch"] | None = quantity(
        "KL divergence (nats)", kind="amount", default=None
    )
    log_prob: Float[Tensor, "method batch"] | None = quantity(
        "change of log-probability (nats per token)", default=None
    )
    next_tokens: Float[Tensor, "method batch"] | None = quantity(
        "fraction of unchanged next tokens", kind="outcome", default=None
    )

    @classmethod
    def of(cls, outcome: Outcome, prompts: PromptBatch) -> "CompareCompressionResult":
        """Build the result from the outcome of several methods."""
        methods = outcome.methods
        answered = torch.stack([compressed.predicted for compressed in methods])
        following = [
            compressed.following for compressed in methods if compressed.following is not None
        ]
        kl, log_prob, same = torch.stack(following, dim=1) if following else (None,) * 3
        return cls(
            methods=tuple(compressed.method for compressed in methods),
            kept=tuple(compressed.kept for compressed in methods),
            label_logits=torch.stack([compressed.label_logits for compressed in methods]),
            label_kept=torch.stack([compressed.label_kept for compressed in methods]),
            word_overlap=torch.stack([compressed.word_overlap for compressed in methods]),
            correct=answered == prompts.answers if prompts.has_answers else None,
            kl=kl,
            log_prob=log_prob,
            next_tokens=same,
            **outcome.common(prompts),
        )

    def label_loyalty(self, method: str) -> Interval:
        """Fraction of prompts whose predicted class is kept, with Wilson interval."""
        return self.interval("label_loyalty", method=method)

    def word_loyalty(self, method: str) -> Interval:
        """Mean overlap of the top next tokens, with its interval."""
        return self.interval("word_loyalty", method=method)

    def accuracy(self, method: str) -> Interval:
        """Fraction of prompts answered correctly, with Wilson interval.

        Raises:
            ResultError: a method that was not compared, or unknown true classes.
        """
        check_known(self.correct)
        return self.interval("accuracy", method=method)

    @checked(ResultError)
    def difference(self, first: str, second: str, quantity: Loyalty = "label_loyalty") -> Interval:
        """Difference `first` minus `second`, paired over prompts; fractions get a score interval.

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
        names = [name for name, quantity in self.quantities().items() if quantity.dims]
        return {name.replace("_", " "): self.interval(name, method=method) for name in names}

    @property
    def controls(self) -> tuple[str, ...]:
        """Methods that the anchors are compared with, of those that were run."""
        return tuple(method for method in CONTROLS if method in self.methods)

    def status_of(self, quantity: Loyalty) -> Status:
        """Status of the claim that anchors keep more than the controls, by one quantity."""
        return self._required(quantity).status

    @property
    def status(self) -> Status:
        """Status of the claim that the states of label words can replace the demonstrations.

        They must preserve more answers and more of the top next words than the controls.
        """
        return self.required.status

    @property
    def required(self) -> Required:
        """The same status as a measure that a claim requires, with its p-value."""
        return self._required("label_loyalty", "word_loyalty")

    def _required(self, *quantities: Loyalty) -> Required:
        if ANCHORS not in self.methods:
            return Required("loyalty", "cannot be judged", None)
        differences = [
            self.difference(ANCHORS, control, quantity)
            for quantity in quantities
            for control in self.controls
        ]
        return required("loyalty", *differences, prompts=self.count)

    def more_columns(self) -> dict[str, float | None]:
        """Cost of the stand-ins, and the accuracy of full prompts where it is known."""
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
        """The timing, prompt by prompt; empty in files of earlier versions, or without timing."""
        speed = self.provenance.get("speed", {})
        return speed if speed.get("tokens") and speed.get("each") else {}

    # --- facts for the summary ---

    @property
    def names(self) -> dict[str, str]:
        """Display names of the methods."""
        return {method: name_of(method) for method in self.methods}

    @property
    def no_better_than_constant(self) -> bool:
        """True if anchors do not clearly keep more answers than the majority-class baseline."""
        return self.label_loyalty(ANCHORS).low <= self.constant_loyalty

    @property
    def beyond_full(self) -> Beyond | None:
        """The best control, whose states include no anchors, if it answers better than full prompts."""
        return Beyond.of(
            self.full_accuracy, {method: self.accuracy(method) for method in self.controls}
        )

    def on_page(self) -> tuple[str, ...]:
        """Loyalties; accuracies and speed-up where they are known."""
        known = {"accuracy": self.correct is not None, "speed": bool(self.timed)}
        return ("loyalty", *(show for show, there in known.items() if there))


@dataclass(frozen=True)
class CompareCompression(Compression[CompareCompressionResult]):
    """Comparison of the methods on the same prompts; full prompts and demonstrations are run once for all.

    Attributes:
        methods: The compared methods.

    Raises:
        RunError: no methods or a repeated one, and as `compress_demonstrations`.
        PromptError: as `compress_demonstrations`.

    Source: Wang et al. 2023, §3.2, table 2.
    """

    methods: Sequence[Method] = METHODS

    @property
    def comparison(self) -> Comparison:
        """Comparison of full prompts and these methods."""
        return self.of(self.methods)

    def found(self, outcome: Outcome, prompts: PromptBatch) -> CompareCompressionResult:
        """The result of all methods."""
        return CompareCompressionResult.of(outcome, prompts)
