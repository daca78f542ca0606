"""Demonstration compression: which short stand-in preserves the answers of the full demonstrations?

Each method keeps a few of the demonstrations' tokens; BOS, narrative and everything else before
the first demonstration stay, and only the query follows:

* `hidden_anchor`: keys and values of format tokens and label words, computed with the full
  text present, in every layer;
* `text_anchor`: the same tokens as a prompt, without the text;
* `hidden_random`: as `hidden_anchor`, but each label's first token is replaced by a random
  text token of the same demonstration (for texts, each span end except the one right before the query);
* `hidden_random_top`: of several such draws, all different, the one with the highest label
  loyalty (the first on ties) on these very prompts.

Label loyalty is the fraction of prompts whose predicted class is that of full in-context
learning, word loyalty the mean Jaccard overlap of the top next tokens.

In layers with a sliding window (Gemma) the window counts the cached columns: on a
compressed cache those layers see kept tokens that were outside their window in the full
prompt, as they would with a shorter context.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.measurements.compression.compare_compression import CompareCompressionResult
from icl_mech.measurements.compression.kept import Method, plain_positions
from icl_mech.measurements.compression.methods import Comparison, Compression, Outcome
from icl_mech.measurements.compression.quality import OVERLAP, StandInQuality, check_known
from icl_mech.measurements.doors import door
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import quantity

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class CompressDemonstrationsResult(StandInQuality):
    """How well a stand-in replaces the demonstrations.

    Attributes:
        method: How the stand-in was made.
        kept: Positions kept of each prompt.
        label_logits: Logits of the label words' first tokens after the stand-in.
        label_kept: Whether the predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the top next tokens with those of the full prompt.
        correct: Whether the predicted class is the true one; None without answers.
    """

    method: str
    kept: tuple[tuple[int, ...], ...]
    label_logits: Float[Tensor, "batch label"]
    label_kept: Bool[Tensor, " batch"] = quantity("fraction of prompts", name="label_loyalty")
    word_overlap: Float[Tensor, " batch"] = quantity(OVERLAP, kind="outcome", name="word_loyalty")
    correct: Bool[Tensor, " batch"] | None = quantity(
        "fraction of prompts", name="accuracy", default=None
    )

    @property
    def predicted(self) -> Int[Tensor, " batch"]:
        """Class with the largest label logit."""
        return self.label_logits.argmax(-1)

    @property
    def label_loyalty(self) -> Interval:
        """Fraction of prompts whose predicted class is kept, with Wilson interval."""
        return self.interval("label_loyalty")

    @property
    def word_loyalty(self) -> Interval:
        """Mean overlap of the top next tokens, with its interval."""
        return self.interval("word_loyalty")

    @property
    def accuracy(self) -> Interval:
        """Fraction of prompts answered correctly, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        check_known(self.correct)
        return self.interval("accuracy")

    def by_prompt(self, quantity: str | None = None) -> "pd.DataFrame":
        """One row per prompt: the prediction, whether it is kept, and whether it is correct; or one quantity."""
        import pandas as pd

        if quantity is not None:
            return super().by_prompt(quantity)
        table: dict[str, list[Any]] = {
            "predicted": [self.labels[c] for c in self.predicted.tolist()],
            "label_kept": self.label_kept.tolist(),
            "word_overlap": self.word_overlap.tolist(),
            "tokens_kept": [len(kept) for kept in self.kept],
            "demonstration_share": self.demonstration_share.tolist(),
            "prompt_share": self.prompt_share.tolist(),
        }
        if self.correct is not None and self.full_correct is not None:
            table["correct"] = self.correct.tolist()
            table["full_correct"] = self.full_correct.tolist()
        return pd.DataFrame(table)


@dataclass(frozen=True)
class CompressDemonstrations(Compression[CompressDemonstrationsResult | CompareCompressionResult]):
    """Predictions after a stand-in for the demonstrations, compared with full prompts.

    Several methods are compared on the same prompts: full prompts and demonstrations are run once for
    all, and the result has all of them (`CompareCompressionResult`).

    Demonstrations that prompts share are run once, cut, and seen by all their queries.

    Interventions act on full prompts, on demonstrations while their keys and values are computed,
    and on queries after the stand-in.

    Attributes:
        method: Which tokens stay, and how; or several methods.
        keep: Positions to keep instead of those the roles give: one row per prompt, or for all.

    Raises:
        RunError: unknown or contradictory options, or `overlap` with a model that counts
            positions itself.
        PromptError: prompts without demonstrations, without roles while `keep` is not given,
            or with positions in `keep` that are out of range, in the query or not ascending.

    Source: Wang et al. 2023, §3.2.
    """

    method: Method | Sequence[Method] = "hidden_anchor"
    keep: Any = None

    @property
    def comparison(self) -> Comparison:
        """Comparison of full prompts and these methods."""
        return self.of([self.method] if isinstance(self.method, str) else self.method, self.keep)

    def filled(self, model: LanguageModel, data: PromptBatch) -> "CompressDemonstrations":
        """Replace `keep` by checked positions."""
        return replace(self, keep=plain_positions(self.keep, data))

    def found(
        self, outcome: Outcome, prompts: PromptBatch
    ) -> CompressDemonstrationsResult | CompareCompressionResult:
        """The result of the one method, or of all."""
        if not isinstance(self.method, str):
            return CompareCompressionResult.of(outcome, prompts)
        (compressed,) = outcome.methods
        right = compressed.predicted == prompts.answers if prompts.has_answers else None
        return CompressDemonstrationsResult(
            method=compressed.method,
            kept=compressed.kept,
            label_logits=compressed.label_logits,
            label_kept=compressed.label_kept,
            word_overlap=compressed.word_overlap,
            correct=right,
            **outcome.common(prompts),
        )


compress_demonstrations = door(
    CompressDemonstrations,
    "compress_demonstrations",
    prompts="Prompts with demonstrations.",
    interventions=(
        "Applied in every pass. Text anchors are read as a separate prompt, in which "
        "interventions act by token roles; those that may act by position, because they do not "
        "define `shares`, raise an error there."
    ),
)
