"""Early exit with a guarantee: the lens answers at the first layer that is confident enough, else zero-shot does.

The confidence of an entry is the largest probability among the label words that its lens gives. The rule with threshold λ
answers with the first entry whose confidence exceeds λ and, where none does, without demonstrations. Its loss on a
prompt is compared with zero-shot:

* `difference`: 1 if the rule is wrong, minus 1 if zero-shot is wrong, in [-1, 1]; tested as `(loss + 1) / 2` against
  `(ε + 1) / 2`, so that gains count (the paper's transformation);
* `harm`: 1 where zero-shot is right and the rule wrong.

λ is calibrated on one half of the prompts by Learn then Test with Hoeffding-Bentkus p-values, such that with probability
1 - δ over that half the expected loss is at most ε; the smallest accepted λ is taken and reported on the other
half. At λ = 1 the rule is zero-shot, whose risk is 0, so that nothing has to be tested there.

The published code takes the smallest threshold with p <= δ, without a correction for the number of thresholds, and exits
from the middle layer on (`first`).

Source: Wynn et al. 2025, *Controlling the Risk of Corrupted Contexts for Language Models via Early-Exiting*,
arXiv 2510.02480; Angelopoulos et al. 2021, *Learn then Test*, arXiv 2110.01052.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.demonstrations import check_halves
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.risk import hoeffding_bentkus, learn_then_test
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.rewriting import zero_shot
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, judged
from icl_mech.results.quantities import kept

PAPER = "arXiv 2510.02480"

Loss = Literal["difference", "harm"]
"""Error of the rule minus that of zero-shot, or errors where zero-shot is right."""

SAVED = 0.1
"""Fraction of the layers that must be saved to count."""

RULE = Definition(
    "early exit at a confidence",
    r"\hat y_\lambda(x) = \hat y_{\ell(x)}(D, x), \quad \ell(x) = \min\{\ell : \max_c P_\ell(c \mid D, x) > \lambda\}",
    "The answer of the first layer whose lens gives some label word a probability above λ among "
    "the label words; where no layer does, the answer of the model without demonstrations.",
    PAPER,
)

RISK = Definition(
    "risk against zero-shot",
    r"R(\lambda) = \mathbb{E}\left[\mathbb{1}[\hat y_\lambda \ne y] - \mathbb{1}[\hat y_0 \ne y]\right]",
    "Error of the rule minus that of the answers ŷ₀ without demonstrations (`difference`), or "
    "the fraction of prompts that zero-shot answers correctly and the rule does not (`harm`).",
    PAPER,
)

GUARANTEE = Definition(
    "guarantee",
    r"P\left(R(\hat\lambda) \le \varepsilon\right) \ge 1 - \delta",
    "Over random calibration halves. λ̂ is the smallest threshold accepted by Learn then Test: "
    "Hoeffding–Bentkus p-values of R(λ) > ε, tested in descending order of λ from several "
    "starts, each with an equal part of δ.",
    "arXiv 2110.01052",
)


class Splits(NamedTuple):
    """The calibration over many random halves.

    Attributes:
        violated: Fraction of splits whose risk on the other half exceeds ε.
        beyond: Fraction of splits whose risk over all prompts does: the guarantee, with these prompts as population.
        certified: Fraction of splits in which a threshold is accepted.
        saved: Mean fraction of layers saved on the other half.
        number: Number of splits.
    """

    violated: float
    beyond: float
    certified: float
    saved: float
    number: int


@dataclass(frozen=True, eq=False, kw_only=True)
class GuaranteedExitResult(Result):
    """Confidence and correctness of every layer, and the calibrated threshold.

    Attributes:
        confidence: Largest probability among the label words, by entry (0: embedding).
        right: 1 where an entry's top label word is right.
        zero_shot: 1 where the answer without demonstrations is right.
        calibration: True for prompts that the threshold was calibrated on.
        answers: True class of each query (or index of the right choice).
        thresholds: Thresholds λ, largest first.
        epsilon, delta: Tolerated risk, and probability of exceeding it.
        loss: `difference` or `harm`.
        starts: Number of starts of the test.
        first: The first entry that may answer.
        labels: Names of the classes.
        candidates: Number of words that each answer is chosen from (not used with classes).
    """

    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"threshold": "shown_thresholds"}
    definitions: ClassVar[tuple[Definition, ...]] = (RULE, RISK, GUARANTEE)

    confidence: Float[Tensor, "batch layer"]
    right: Float[Tensor, "batch layer"]
    zero_shot: Float[Tensor, " batch"]
    calibration: Bool[Tensor, " batch"]
    answers: Int[Tensor, " batch"]
    thresholds: Float[Tensor, " threshold"]
    epsilon: float
    delta: float
    loss: Loss
    starts: int
    first: int
    labels: tuple[str, ...] = ()
    candidates: int = 2

    @property
    def shown_thresholds(self) -> tuple[float, ...]:
        """The thresholds as plain numbers."""
        return tuple(round(float(threshold), 6) for threshold in self.thresholds)

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.right)

    @property
    def tested(self) -> int:
        """Number of prompts it is reported on."""
        return int((~self.calibration).sum())

    @property
    def blocks(self) -> int:
        """Number of layers of the model."""
        return self.right.shape[1] - 1

    # --- the rule at every threshold ---

    @kept
    def exits(self) -> Int[Tensor, "batch threshold"]:
        """Entry that answers; -1 where zero-shot does."""
        passed = self.confidence[:, None, self.first :] > self.thresholds[None, :, None]
        entry = passed.int().argmax(-1) + self.first
        return entry.where(passed.any(-1), torch.tensor(-1))

    @kept
    def correct(self) -> Float[Tensor, "batch threshold"]:
        """1 where the rule is right."""
        exits = self.exits()
        lens = self.right.double().gather(1, exits.clamp(min=0))
        return torch.where(exits < 0, self.zero_shot.double()[:, None], lens)

    @kept
    def losses(self) -> Float[Tensor, "batch threshold"]:
        """Loss of the rule against zero-shot: in [-1, 1], or in [0, 1] for `harm`."""
        change = self.zero_shot.double()[:, None] - self.correct()
        return change.clamp(min=0) if self.loss == "harm" else change

    @kept
    def savings(self) -> Float[Tensor, "batch threshold"]:
        """Fraction of the layers of the prompt's pass that need not run.

        0 where zero-shot answers: all of them ran by then, and those of a pass over the query alone come on top.
        """
        exits = self.exits()
        return torch.where(exits < 0, 0.0, 1 - exits.double() / self.blocks)

    def quantities(self) -> dict[str, Quantity]:
        """Risk, layers saved and accuracy by threshold, on the prompts not used for calibration; the lens by layer."""
        held_out, dims = ~self.calibration, ("threshold",)
        kind: Any = "outcome" if self.loss == "harm" else "change"
        return {
            "risk": Quantity(
                dims, self.losses()[held_out], unit="risk against zero-shot", kind=kind
            ),
            "saved": Quantity(
                dims, self.savings()[held_out], unit="fraction of layers saved", kind="outcome"
            ),
            "accuracy": Quantity(
                dims, self.correct()[held_out], unit="fraction of right answers", kind="outcome"
            ),
            "lens_accuracy": Quantity(
                ("layer",), self.right[held_out], unit="fraction of right answers", kind="outcome"
            ),
            "confidence": Quantity(
                ("layer",),
                self.confidence[held_out],
                unit="largest probability among the label words",
                kind="outcome",
            ),
        }

    # --- calibration ---

    @kept
    def p_values(self) -> Float[Tensor, " threshold"]:
        """p-values of a risk above ε, from the calibration half."""
        return self._tested(self.losses()[self.calibration].mean(0), int(self.calibration.sum()))

    def _tested(self, risk: Float[Tensor, "*r threshold"], count: int) -> Tensor:
        if self.loss == "harm":
            return hoeffding_bentkus(risk, self.epsilon, count)
        return hoeffding_bentkus((risk + 1) / 2, (self.epsilon + 1) / 2, count)

    @property
    def reachable(self) -> bool:
        """True if the calibration half is large enough for any threshold to be accepted."""
        least = 0.0 if self.loss == "harm" else -1.0
        p = self._tested(torch.tensor([least], dtype=torch.float64), int(self.calibration.sum()))
        return float(p) <= self.delta / self.starts

    @property
    def place(self) -> int | None:
        """Index of the smallest accepted threshold; None if none is accepted."""
        accepted = learn_then_test(self.p_values(), self.delta, self.starts).nonzero()
        return int(accepted.max()) if len(accepted) else None

    @property
    def threshold(self) -> float | None:
        """The smallest accepted threshold λ̂; None if none is accepted, so that zero-shot always answers."""
        return None if self.place is None else self.shown_thresholds[self.place]

    # --- the other half ---

    def _held_out(self, values: Tensor, unchanged: Tensor) -> Tensor:
        """Values at λ̂ on the other half; those of zero-shot without one."""
        column = unchanged if self.place is None else values[:, self.place]
        return column[~self.calibration].double()

    @property
    def risk(self) -> Interval:
        """Risk at λ̂ on the other half."""
        loss = self._held_out(self.losses(), torch.zeros_like(self.zero_shot))
        return mean_interval(loss, "outcome" if self.loss == "harm" else "change")

    @property
    def saved(self) -> Interval:
        """Fraction of the layers of the prompt's pass that need not run at λ̂, on the other half."""
        saved = self._held_out(self.savings(), torch.zeros_like(self.zero_shot))
        return mean_interval(saved, "outcome")

    @property
    def accuracy(self) -> Interval:
        """Fraction of right answers at λ̂ on the other half."""
        return mean_interval(self._held_out(self.correct(), self.zero_shot), "outcome")

    @property
    def without(self) -> Interval:
        """Fraction of right answers without demonstrations, on the same prompts."""
        return mean_interval(self.zero_shot[~self.calibration].double(), "outcome")

    @property
    def whole(self) -> Interval:
        """Fraction of right answers of the whole model with demonstrations, on the same prompts."""
        return mean_interval(self.right[~self.calibration, -1].double(), "outcome")

    @property
    def fell_back(self) -> float:
        """Fraction of these prompts that zero-shot answers at λ̂."""
        if self.place is None:
            return 1.0
        return float((self.exits()[~self.calibration, self.place] < 0).double().mean())

    @property
    def constant(self) -> float:
        """Accuracy of the best constant answer on these prompts; of a guess among the candidates for choices."""
        if not self.labels:
            return 1 / self.candidates
        counts = torch.bincount(self.answers[~self.calibration], minlength=len(self.labels))
        return float(counts.max() / counts.sum())

    @property
    def status(self) -> Status:
        """Status of the claim that layers can be saved with this guarantee.

        A threshold is accepted; on the other half more than a tenth of the layers of the prompt's pass need not run, and
        answers are better than the best constant answer (for choices: a guess). It cannot be judged where no calibration
        half of this size could accept any.
        """
        if not self.reachable:
            return "cannot be judged"
        if self.place is None:
            return "not shown"
        saves = judged(self.saved, null=SAVED, opposite=-1.0, prompts=self.tested)
        answers = judged(self.accuracy, null=self.constant, opposite=-1.0, prompts=self.tested)
        return saves if saves == answers else "not shown"

    @checked(ResultError)
    @kept
    def splits(self, count: Count = 1000, seed: Natural = 0) -> Splits:
        """Calibrate on many random halves and test on the others.

        Args:
            count: Number of splits.
            seed: Seed of the splits.
        """
        generator = torch.Generator().manual_seed(seed)
        half = int(self.calibration.sum())
        order = torch.rand(count, self.count, generator=generator).argsort(1)
        chosen = torch.zeros(count, self.count, dtype=torch.float64).scatter_(1, order[:, :half], 1)
        losses, savings = self.losses(), self.savings()
        accepted = learn_then_test(
            self._tested(chosen @ losses / half, half), self.delta, self.starts
        )
        number = torch.arange(len(self.thresholds))
        place = torch.where(accepted, number, -1).amax(-1)
        some, at = place >= 0, place.clamp(min=0)[:, None]

        def of(values: Tensor, weights: Tensor) -> Tensor:
            return torch.where(some, (weights @ values).gather(1, at)[:, 0], 0.0)

        rest = (1 - chosen) / (self.count - half)
        everything = torch.full_like(chosen, 1 / self.count)
        above = self.epsilon + 1e-9
        return Splits(
            float((of(losses, rest) > above).double().mean()),
            float((of(losses, everything) > above).double().mean()),
            float(some.double().mean()),
            float(of(savings, rest).mean()),
            count,
        )


@dataclass(frozen=True)
class GuaranteedExit(Measurement[GuaranteedExitResult]):
    """Early exit whose risk against zero-shot is at most ε with probability 1 - δ.

    Costs one pass over the prompts, as for the lens, and one over the queries alone. Prompts are taken as they are: give
    those that the rule is meant for, with true or false demonstrations.

    Attributes:
        epsilon: Tolerated risk ε, from 0 to below 1 (`harm`: above 0).
        delta: Probability δ of a larger risk.
        loss: `difference` or `harm`.
        grid: Number of thresholds: 1 - 1/grid, ..., 1/grid, 0.
        starts: Number of starts of the test; 1: a fixed sequence; `grid`: Bonferroni.
        first: The first entry that may answer; 1 is the residual after the first layer.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
        seed: Seed of the halves.

    Raises:
        RunError: options outside their range, or a lens of another model.
        PromptError: fewer than two prompts, repeated queries, queries of one class, or prompts without answers,
            demonstrations or zero-shot prompts.

    Source: arXiv 2510.02480.
    """

    epsilon: float = 0.1
    delta: float = 0.05
    loss: Loss = "difference"
    grid: Count = 100
    starts: Count = 5
    first: Natural = 1
    lens: FittedLens | None = None
    seed: Natural = 0

    takes = ("classes", "choices")
    why_not = "its confidence is the largest probability among candidates"

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: names the field and the values it may have.
        """
        super().__post_init__()
        harm = self.loss == "harm"
        if not 0 <= self.epsilon < 1 or (harm and self.epsilon == 0):
            expected = "above 0 and below 1 with loss='harm'" if harm else "at least 0 and below 1"
            raise RunError(f"epsilon={self.epsilon:g}; expected {expected}, such as 0.1.")
        if not 0 < self.delta < 1:
            raise RunError(f"delta={self.delta:g}; expected above 0 and below 1, such as 0.05.")
        if self.starts > self.grid:
            raise RunError(
                f"starts={self.starts} exceeds grid={self.grid}, the number of thresholds."
            )

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts that cannot be split, or have no zero-shot baseline.

        Raises:
            PromptError: says what is missing.
            RunError: no such entry, or a lens of another model.
        """
        check_lens(self.lens, model, "sound")
        if self.first > model.info.n_layers:
            raise RunError(
                f"first={self.first}, but the residual stream has layers 0 to {model.info.n_layers}."
            )
        if len(data) < 2:
            raise PromptError(
                "The threshold is calibrated on one half of the prompts and tested on the other, so "
                "it needs at least two prompts."
            )
        could = "the threshold could be tested on queries it was calibrated on"
        check_halves(data, "an exit with a guarantee", could)
        self._without(model, data)

    def _without(self, model: LanguageModel, data: PromptBatch) -> PromptBatch:
        """The queries alone.

        Raises:
            PromptError: they cannot be written.
        """
        bare = zero_shot(data, model.tokenizer)
        if bare.prompts is None:
            raise PromptError(
                f"There are no zero-shot prompts to fall back on ({bare.why_not}). Build the prompts "
                "with build_prompts or prompts_from_text, and with demonstrations."
            )
        return bare.prompts

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The lens of the prompts, and the answers without demonstrations."""
        lens, plain = (LayerLensReading(vocabulary=False, lens=way) for way in (self.lens, None))
        return [
            Pass(data, [lens], title="lens"),
            Pass(self._without(model, data), [plain], title="zero-shot"),
        ]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> GuaranteedExitResult:
        """Confidence, correctness, and the halves."""
        ((lens,), (bare,)) = read
        logits = lens.label_logits[:, 0].double()
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(self.seed))
        calibration = torch.zeros(len(data), dtype=torch.bool)
        calibration[order[: len(data) // 2]] = True
        steps = torch.arange(self.grid - 1, -1, -1, dtype=torch.float64)
        return GuaranteedExitResult(
            confidence=logits.softmax(-1).amax(-1),
            right=(logits.argmax(-1) == data.answers[:, None]).double(),
            zero_shot=(bare.label_logits[:, 0, -1].argmax(-1) == data.answers).double(),
            calibration=calibration,
            answers=data.answers,
            thresholds=steps / self.grid,
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            loss=self.loss,
            starts=self.starts,
            first=self.first,
            labels=data.labels if data.has_classes else (),
            candidates=data.n_labels,
        )


guaranteed_exit = door(
    GuaranteedExit,
    "guaranteed_exit",
    prompts="With demonstrations and answers, each query only once.",
)
