"""Scores of pairs of prompts at every entry of the lens, shared by accuracies by layer and by demonstrations.

Source: Halawi et al. 2023, *Overthinking the Truth*, §2 and §3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.demonstrations import SIDES, check_balance, check_pairs
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.residuals import LayerLensReading, LensRows, LensVariant
from icl_mech.metrics import Interval, calibrated_scores, normalised_probs
from icl_mech.metrics.calibration import (
    IntervalKind,
    Ties,
    near_ties,
    plain_scores,
    score_interval,
    top_labels_match,
    top_one_scores,
)
from icl_mech.metrics.means import Kind
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, judged

R = TypeVar("R", bound=Result)

PAPER = "Halawi et al. 2023, Overthinking the Truth"

CALIBRATED = Definition(
    "calibrated accuracy",
    r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\!\left[\tilde p_n(y_n) > Q_{(C-1)/C}\big(\tilde p_{1\dots N}"
    r"(y_n)\big)\right], \quad \tilde p(c) = \frac{p(c) + 10^{-14}}{\sum_{c'} p(c') + C\,10^{-14}}",
    "A prompt counts as correct if the probability of its true label y, normalised over the C "
    "label words, lies above the (C − 1)/C quantile Q of that label's probability over all "
    "prompts of the same kind at the same layer; a tie counts 1/C. Always preferring one label "
    "word gains nothing: any constant answer scores 1/C.",
    f"{PAPER}, §2",
)

REACHABLE = Definition(
    "highest reachable calibrated accuracy",
    r"\frac{1}{N} \sum_{c} \min\!\left(N_c,\ \left\lfloor\tfrac{N-1}{C}\right\rfloor + \tau\right), \quad "
    r"\tau = \begin{cases} 1/C & C \mid N - 1 \\ 1 & \text{else} \end{cases}",
    "The score of a perfect classifier: at most as many prompts can count as correct as lie above "
    "a label's quantile. N_c is the number of queries of class c. The score is 1 only if the "
    "classes are balanced.",
    "follows from the definition of calibrated accuracy",
)

PERMUTED = Definition(
    "permuted score",
    r"\text{calibrated accuracy with } \tilde y_n \text{ in place of } y_n",
    "The same score for the label that the false demonstrations teach for the query (ỹ).",
    f"{PAPER}, §3",
)

PLAIN = Definition(
    "accuracy over label words",
    r"\frac{1}{N} \sum_n \mathbb{1}\!\left[p_n(y_n) \ge \max_c p_n(c)\right]",
    "Fraction of prompts in which no label word is more probable than the true one.",
)

METRICS = ("calibrated", "permuted", "plain", "top_1", "top_labels", "label_space")
"""Scores of a prompt; `permuted` is the calibrated score of the class the false labels teach."""

METRIC_NAMES = {
    "calibrated": "calibrated accuracy",
    "permuted": "permuted score",
    "plain": "accuracy over label words",
    "top_1": "top-1 accuracy over the vocabulary",
    "top_labels": "fraction whose top C tokens are the label words",
    "label_space": "probability of all label words",
}

ZERO_OR_ONE = ("plain", "top_1", "top_labels")
"""Metrics whose outcomes are 0 or 1; their intervals are Wilson's."""

OUTCOMES = ("calibrated", "permuted", *ZERO_OR_ONE)
"""Metrics of correct or incorrect answers, ties included."""

WITH_THRESHOLDS = ("calibrated", "permuted")
"""Metrics whose thresholds are fitted on the same prompts."""


class OwnChoices:
    """Base class of results whose scores have no thresholds where answers are choices of each prompt."""

    own_choices: bool

    @property
    def accuracy_name(self) -> str:
        """Name of the measure: calibrated where thresholds are fitted."""
        return self._named("calibrated accuracy")

    def _named(self, text: str) -> str:
        return without_thresholds(text, self.own_choices)


def without_thresholds(text: str, own_choices: bool) -> str:
    """Adapt a text on calibrated accuracy to plain accuracy where choices of each prompt have no thresholds."""
    if not own_choices:
        return text
    return text.replace("calibrated accuracy", "accuracy").replace(
        "Calibrated accuracy", "Accuracy"
    )


class Sides(NamedTuple):
    """One measure at the last layer.

    Attributes:
        true: The measure with true demonstrations.
        false: The measure with false demonstrations.
        gap: True minus false, paired.
        pairs: Number of pairs of prompts.
    """

    true: Interval
    false: Interval
    gap: Interval
    pairs: int

    @property
    def status(self) -> Status:
        """Status of the claim that the measure is larger with true demonstrations."""
        return judged(self.gap, prompts=self.pairs)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairScores(OwnChoices, Result):
    """Scores of pairs of prompts with true and false demonstrations.

    Every metric is a quantity by side and the axes in `axes`: `result.interval("plain",
    side="false", layer=12)`. Layers are entries of the lens: 0 is the embedding.

    Attributes:
        scores: Scores by metric (see `metrics`), side (`true`, `false` demonstrations), prompt.
        interval_kind: `score` (Wilson's, for scores between 0 and 1 with an effective n),
            `bootstrap` (percentiles; results of earlier versions) or `reference`.
        tie_counts: Number of calibrated scores that are ties, nearly ties, and in all, by side
            (see `near_ties`); None in results that were saved without them.
        own_choices: True if each prompt has its own choices as answers: `calibrated` and `permuted` are then
            fractions of prompts in which no other choice is more probable, without thresholds.
    """

    renamed: ClassVar[dict[str, str]] = {"interval": "interval_kind"}

    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"side": SIDES}

    axes: ClassVar[tuple[str, ...]] = ("layer",)
    """Axes of a score, after its side."""

    scores: Float[Tensor, "metric side batch *rest"]
    interval_kind: IntervalKind = "score"
    own_choices: bool = False
    tie_counts: Int[Tensor, "count side *rest"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Every metric that is defined for these prompts, the calibrated score first."""
        return {metric: self._quantity(metric) for metric in METRICS if self.defined(metric)}

    def _quantity(self, metric: str) -> Quantity:
        dims, unit = ("side", *self.axes), METRIC_NAMES[metric]
        unit = self._named(unit)
        scores = self.scores[METRICS.index(metric)].transpose(0, 1)
        kind: Kind = "outcome" if metric in OUTCOMES else "value"
        own_ends = self.interval_kind
        plain = metric in (OUTCOMES if self.own_choices else ZERO_OR_ONE)
        known = None
        if own_ends == "score" and metric in WITH_THRESHOLDS and not plain:
            known = score_interval(scores, n_labels=self._labels())
        elif own_ends == "reference" or (
            own_ends == "bootstrap" and kind == "outcome" and not plain
        ):
            known = score_interval(scores, own_ends)
        if plain and known is None:
            scores = scores.bool()
        return Quantity(dims, scores, unit=unit, known=known, kind=kind)

    def _labels(self) -> int | None:
        """Number of classes."""
        return None

    @property
    def pairs(self) -> int:
        """Number of pairs of prompts."""
        return self.scores.shape[2]

    @property
    def tells_followed(self) -> bool:
        """True if accuracy does not determine the permuted score, as it does with two classes."""
        return (self._labels() or 0) > 2 and self.defined("permuted")

    @property
    def ties(self) -> Ties:
        """Ties among the calibrated scores that the summary reports, those of the last entry.

        Other entries are in `tie_counts`: at the embedding of a rotary model all prompts are
        alike, so all scores there are ties.
        """
        return Ties.of(None if self.tie_counts is None else self.tie_counts[..., -1])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names along the metric axis."""
        return METRICS

    def defined(self, metric: str) -> bool:
        """False for the permuted score of labels that do not follow a single permutation.

        Raises:
            ResultError: unknown metric.
        """
        return not bool(self.scores[_place(metric, METRICS)].isnan().any())

    def accuracy(self, side: str, metric: str = "calibrated") -> Float[Tensor, " *rest"]:
        """Mean over prompts of one side; `sel(metric, side=side)` has its intervals too.

        Raises:
            ResultError: unknown side or metric, or a metric that is not defined here.
        """
        place = _place(metric, METRICS)
        self._main(metric)
        return self.scores[place, _place(side, SIDES)].mean(0)

    def _main(self, quantity: str | None) -> str:
        if quantity in METRICS and not self.defined(quantity):
            raise ResultError(
                f"The {quantity} score is not defined for these prompts, whose labels do not "
                "follow a single permutation. Build them with false_labels='permuted' or "
                "'half_permuted'."
            )
        return super()._main(quantity)


def _place(name: str, known: tuple[str, ...]) -> int:
    if name not in known:
        raise ResultError(f"Unknown {name!r}. {near_matches(name, known)}")
    return known.index(name)


@dataclass(frozen=True)
class OfPairs(PairMeasurement[R]):
    """Scores of the lens on both sides of a pair: one pass over each.

    Attributes:
        variant: `sound`, or `reference`: the paper's lens, exact ties and first crossing.
        interval: `score` (see `score_interval`), `bootstrap` (percentiles), or `reference`: mean +-
            1.96 sd / sqrt(N).
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
    """

    variant: LensVariant = "sound"
    interval: IntervalKind = "score"
    lens: FittedLens | None = None

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject sets that are not pairs, and a lens of another model.

        Raises:
            PromptError: says what differs.
            RunError: see `check_lens`.
        """
        check_pairs(*data)
        check_balance(data[0])
        check_lens(self.lens, model, self.variant)

    def readings(self) -> list[LayerLensReading]:
        """The readouts of each side; by default the lens at the target."""
        return [LayerLensReading(self.variant, lens=self.lens)]

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """The true prompts and the false ones."""
        return [
            Pass(prompts, self.readings(), title=f"{side} demonstrations")
            for side, prompts in zip(SIDES, data, strict=True)
        ]


class EntryScores(NamedTuple):
    """Scores of one prompt set at every entry.

    Attributes:
        scores: Scores by metric.
        probs: Normalised label probabilities.
        tie_counts: Ties of the calibrated scores, see `near_ties`.
    """

    scores: Float[Tensor, "metric batch *demo entry"]
    probs: Float[Tensor, "batch *demo entry label"]
    tie_counts: Int[Tensor, "count *demo entry"]


def entry_scores(
    lens: LensRows,
    row: int | slice,
    answers: Int[Tensor, " batch *demo"],
    taught: Int[Tensor, " batch *demo"] | None,
    prompts: PromptBatch,
    *,
    exact_ties: bool,
) -> EntryScores:
    """All metrics of one prompt set at every entry."""
    logits = lens.label_logits[:, row].double()
    if lens.log_sum is None or lens.top_tokens is None:
        raise ValueError("scores need the vocabulary")
    probs = (logits - lens.log_sum[:, row].double()[..., None]).exp()
    top = lens.top_tokens[:, row]
    norm = normalised_probs(probs)
    n_entries = norm.shape[-2]

    def spread(classes: Tensor) -> Tensor:
        return classes[..., None].expand(*classes.shape, n_entries)

    nothing = torch.full(norm.shape[:-1], torch.nan, dtype=torch.float64)

    def judged(classes: Tensor) -> Tensor:
        # Calibration needs common classes, which prompts with their own choices do not have.
        if not prompts.has_classes:
            return plain_scores(logits, classes)
        return calibrated_scores(norm, classes, exact_ties=exact_ties)

    true, label_tokens = spread(answers), prompts.choice_tokens
    scores = {
        "calibrated": judged(true),
        "permuted": nothing if taught is None else judged(spread(taught)),
        "plain": plain_scores(logits, true),
        "top_1": top_one_scores(top, label_tokens, true),
        "top_labels": top_labels_match(top, label_tokens),
        "label_space": probs.sum(-1),
    }
    ties = near_ties(norm, true, exact_ties=exact_ties)
    return EntryScores(
        torch.stack([scores[name] for name in METRICS]),
        norm,
        ties if prompts.has_classes else torch.zeros_like(ties),
    )
