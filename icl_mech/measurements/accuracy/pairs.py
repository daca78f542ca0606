"""What analyses of true and false demonstrations share."""

import warnings
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError, ResultError, near_matches
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.residuals import LayerLensReading, LensRows, LensVariant
from icl_mech.metrics import (
    IntervalKind,
    Kind,
    Ties,
    calibrated_scores,
    near_ties,
    normalised_probs,
    plain_scores,
    reachable_accuracy,
    score_interval,
    top_labels_match,
    top_one_scores,
)
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Quantity, Result

R = TypeVar("R", bound=Result)

METRICS = ("calibrated", "permuted", "plain", "top_1", "top_labels", "label_space")
"""Scores of a prompt; `permuted` is the calibrated score of the class the false labels teach."""

SAME = ("task", "shots", "n", "seed", "demonstrations", "split")
"""What the sources of a pair of prompt sets have in common."""

METRIC_NAMES = {
    "calibrated": "calibrated accuracy",
    "permuted": "permuted score",
    "plain": "accuracy over label words",
    "top_1": "top-1 accuracy over the vocabulary",
    "top_labels": "share whose top C tokens are the label words",
    "label_space": "probability of all label words",
}

SIDES = ("true", "false")

ZERO_OR_ONE = ("plain", "top_1", "top_labels")
"""Metrics whose outcomes are 0 or 1; their intervals are Wilson's."""

OUTCOMES = ("calibrated", "permuted", *ZERO_OR_ONE)
"""Metrics of right or wrong, ties included."""

WITH_THRESHOLDS = ("calibrated", "permuted")
"""Metrics whose thresholds are fitted on the same prompts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PairScores(Result):
    """Scores of pairs of prompts with true and false demonstrations.

    Every metric is a quantity by side and what `axes` names: `result.interval("plain",
    side="false", layer=12)`. Layers are entries of the lens: 0 is the embedding.

    Attributes:
        scores: By metric (see `metrics`), side (`true`, `false` demonstrations), prompt.
        interval_kind: `score` (Wilson's, of scores between 0 and 1 with an effective n),
            `bootstrap` (percentiles; results of before) or `reference`.
        tie_counts: How many calibrated scores are ties, nearly ties, and there at all, by side
            (see `near_ties`); None in results that were saved without them.
    """

    renamed: ClassVar[dict[str, str]] = {"interval": "interval_kind"}

    axes: ClassVar[tuple[str, ...]] = ("layer",)
    """Of a score, after its side."""

    scores: Float[Tensor, "metric side batch *rest"]
    interval_kind: IntervalKind = "score"
    tie_counts: Int[Tensor, "count side *rest"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Every metric that is defined for these prompts, the calibrated score first."""
        return {metric: self._quantity(metric) for metric in METRICS if self.defined(metric)}

    def _quantity(self, metric: str) -> Quantity:
        dims, unit = ("side", *self.axes), METRIC_NAMES[metric]
        scores = self.scores[METRICS.index(metric)].transpose(0, 1)
        kind: Kind = "outcome" if metric in OUTCOMES else "value"
        own_ends, plain = self.interval_kind, metric in ZERO_OR_ONE
        known = None
        if own_ends == "score" and metric in WITH_THRESHOLDS:
            known = score_interval(scores, n_labels=self._labels())
        elif own_ends == "reference" or (
            own_ends == "bootstrap" and kind == "outcome" and not plain
        ):
            known = score_interval(scores, own_ends)
        if plain and known is None:
            scores = scores.bool()
        return Quantity(dims, scores, unit=unit, known=known, kind=kind)

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the sides."""
        return {"side": SIDES}

    def _labels(self) -> int | None:
        """Number of classes."""
        return None

    @property
    def ties(self) -> Ties:
        """Ties among the calibrated scores that the summary speaks of, those of the last entry.

        Other entries are in `tie_counts`: at the embedding of a rotary model all prompts are
        alike, so all scores there are ties.
        """
        return Ties.of(None if self.tie_counts is None else self.tie_counts[..., -1])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names along the metric axis."""
        return METRICS

    def defined(self, metric: str) -> bool:
        """False for the permuted score of labels that follow no one permutation.

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
                f"The {quantity} score is not defined for these prompts: their labels follow no one "
                "permutation. Build them with false_labels='permuted' or 'half_permuted'."
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

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs, and a lens of another model.

        Raises:
            PromptError: says what differs.
            RunError: as `check_lens`.
        """
        check_pairs(*data)
        check_lens(self.lens, model, self.variant)

    def readings(self) -> list[LayerLensReading]:
        """What is read on either side; by default the lens at the target."""
        return [LayerLensReading(self.variant, lens=self.lens)]

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """The true prompts and the false ones."""
        return [
            Pass(prompts, self.readings(), title=f"{side} demonstrations")
            for side, prompts in zip(SIDES, data, strict=True)
        ]


def check_pairs(true: PromptBatch, false: PromptBatch) -> None:
    """Refuse sets that are not pairs; say so if the classes are not balanced.

    Raises:
        PromptError: different numbers of prompts, answers, label words or draws, or sets the
            wrong way round.
    """
    if len(true) != len(false):
        raise PromptError(
            f"{len(true)} prompts with true demonstrations and {len(false)} with false ones; pairs "
            "are needed. Build both with build_prompt_pairs."
        )
    if (
        not torch.equal(true.answers, false.answers)
        or not torch.equal(true.label_tokens, false.label_tokens)
        or any(true.source.get(key) != false.source.get(key) for key in SAME)
    ):
        raise PromptError(
            "The prompts with true and with false demonstrations have different queries, texts or "
            "label words; pairs are needed. Build both with build_prompt_pairs."
        )
    shown = true.source.get("labels", "correct")
    if shown != "correct":
        raise PromptError(
            f"The first set must show true labels, but was built with labels={shown!r}."
        )
    # Without demonstrations they are: the zero-shot end of a curve over their number.
    alike = all(t.tokens == f.tokens for t, f in zip(true, false, strict=True))
    # A small share of false labels may be none.
    drawn = "false_share" in false.source
    if alike and not drawn and any(prompt.label_positions for prompt in true):
        raise PromptError(
            "Both sets hold the same prompts, so that every difference would be 0. Build a true and a "
            "false set with build_prompt_pairs."
        )
    counts = torch.bincount(true.answers, minlength=true.n_labels)
    if int(counts.max() - counts.min()) > 1:
        best = reachable_accuracy(true.answers, true.n_labels)
        warnings.warn(
            f"The true classes of the queries are not balanced: a perfect classifier has a calibrated "
            f"accuracy of {best:.3g} here. Build prompts with balanced=True.",
            stacklevel=3,
        )


def taught_classes(prompts: PromptBatch) -> Int[Tensor, " batch"] | None:
    """The class a follower of the false labels would give; None where that is not defined."""
    classes = [prompt.false_answer for prompt in prompts]
    return None if any(label is None for label in classes) else torch.tensor(classes)


class EntryScores(NamedTuple):
    """What one prompt set scores at every entry.

    Attributes:
        scores: By metric.
        probs: Normalised label probabilities.
        tie_counts: Of the calibrated scores, see `near_ties`.
    """

    scores: Float[Tensor, "metric batch *demo entry"]
    probs: Float[Tensor, "batch *demo entry label"]
    tie_counts: Int[Tensor, "count *demo entry"]


def entry_scores(
    lens: LensRows,
    row: int | slice,
    answers: Int[Tensor, " batch *demo"],
    taught: Int[Tensor, " batch *demo"] | None,
    label_tokens: Int[Tensor, " label"],
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
    true = spread(answers)
    scores = {
        "calibrated": calibrated_scores(norm, true, exact_ties=exact_ties),
        "permuted": nothing
        if taught is None
        else calibrated_scores(norm, spread(taught), exact_ties=exact_ties),
        "plain": plain_scores(logits, true),
        "top_1": top_one_scores(top, label_tokens, true),
        "top_labels": top_labels_match(top, label_tokens),
        "label_space": probs.sum(-1),
    }
    return EntryScores(
        torch.stack([scores[name] for name in METRICS]),
        norm,
        near_ties(norm, true, exact_ties=exact_ties),
    )
