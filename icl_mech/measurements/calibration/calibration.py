"""Calibration baselines: label probabilities divided by those for content-free inputs.

Contextual calibration divides by the mean over queries without content (“N/A”, nothing, “[MASK]”),
domain calibration by the mean over random words of calibration texts, batch calibration by the
mean over the prompts themselves. All use the demonstrations of the prompts and are
evaluated on the same prompts, next to re-weighting and more demonstrations if these are given.

Source: Zhao et al. 2021, *Calibrate Before Use*; Fei et al. 2023, *Mitigating Label Biases for
In-context Learning*; Zhou et al. 2024, *Batch Calibration*.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from typing_extensions import Unpack

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import PromptError
from icl_mech.interventions import Reweight
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.calibration.content_free import (
    ContentFree,
    check_own_texts,
    check_replaceable,
    random_words,
    replaced,
    texts_of,
    training_texts,
)
from icl_mech.measurements.demonstrations import check_same_queries
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.passes import How
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.reweighting.evaluate_reweighting import EvaluateReweighting
from icl_mech.measurements.running import measured
from icl_mech.metrics import above_together
from icl_mech.metrics.calibration import (
    BatchForm,
    CalibrationForm,
    calibrate_batch,
    calibrate_labels,
)
from icl_mech.metrics.intervals import ONE_SIDED
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch, check_batch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import FEWEST_PROMPTS, Status
from icl_mech.results.quantities import kept
from icl_mech.tasks import Task, as_task

PRIORS = ("contextual", "domain", "batch")

CALIBRATED_LABELS = Definition(
    "calibration by a prior",
    r"\hat p(c) = \frac{p(c) / \bar p(c)}{\sum_{c'} p(c') / \bar p(c')}",
    "Probability p of class c among the label words, divided by a prior and renormalised. The "
    "prior is the mean probability over content-free queries (contextual), over random words of "
    "calibration texts (domain), or over the prompts (batch), always with the same "
    "demonstrations.",
    "Zhao et al. 2021, Calibrate Before Use; Fei et al. 2023; Zhou et al. 2024",
)


class Preferred(NamedTuple):
    """A label with its mean probabilities.

    Attributes:
        label: Its name.
        contextual: Probability after inputs without content.
        domain: Probability after random words of calibration texts.
        batch: Mean probability on the prompts.
    """

    label: str
    contextual: float
    domain: float
    batch: float


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationResult(Result):
    """Predictions of each method on the same prompts.

    Attributes:
        scores: Score of each label; the largest is the answer. Probabilities except under
            `form="difference"`.
        priors: Mean probabilities that were divided out or subtracted: contextual, domain, batch.
        answers: True class of each query.
        methods: `plain`, `contextual`, `domain`, `batch` and, if given, `reweighted`, `more_shots`.
        labels: Names of the classes.
        form: Form of the calibration, see `Calibration`.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (CALIBRATED_LABELS,)
    shows: ClassVar[tuple[str, ...]] = ("accuracy", "priors")
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {
        "method": "methods",
        "source": PRIORS,
        "label": "labels",
    }

    scores: Float[Tensor, "batch method label"]
    priors: Float[Tensor, "batch source label"]
    answers: Int[Tensor, " batch"]
    methods: tuple[str, ...]
    labels: tuple[str, ...]
    form: str = "paper"

    def quantities(self) -> dict[str, Quantity]:
        """Correct answers by method, the gain of each over plain (paired), and the priors."""
        right = self.scores.argmax(-1) == self.answers[:, None]
        gain = right.double() - right[:, :1].double()
        return {
            "accuracy": Quantity(("method",), right, unit="accuracy over label words"),
            "gain": Quantity(
                ("method",),
                gain,
                unit="accuracy above that of plain label probabilities",
                kind="change",
            ),
            "prior": Quantity(("source", "label"), self.priors, unit="mean label probability"),
        }

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.answers)

    @property
    def chance(self) -> float:
        """Probability of each label, and accuracy, without any preference."""
        return 1 / len(self.labels)

    @property
    @kept
    def better(self) -> tuple[str, ...]:
        """Calibrations whose accuracy clearly lies above plain, corrected for multiple testing over all of them."""
        gains = self.quantities()["gain"].per_prompt[:, 1:4]
        clear = above_together(gains, level=ONE_SIDED)
        names = zip(self.methods[1:4], clear, strict=True)
        return tuple(name for name, above in names if bool(above))

    @property
    def status(self) -> Status:
        """Status of the claim that one of the calibrations improves accuracy."""
        if self.count < FEWEST_PROMPTS:
            return "cannot be judged"
        return "supported" if self.better else "not shown"

    @property
    def preferred(self) -> Preferred:
        """The most probable label after inputs without content."""
        prior = self.quantities()["prior"].value()
        place = int(prior[0].argmax())
        return Preferred(self.labels[place], *prior[:, place].tolist())

    def on_page(self) -> tuple[str, ...]:
        """Accuracies and priors."""
        return self.shows


CONTENT_FREE = ("N/A", "", "[MASK]")
"""The content-free inputs of Zhao et al."""


@dataclass(frozen=True)
class Calibration(Measurement[CalibrationResult]):
    """Accuracy of plain, contextual, domain and batch-calibrated label probabilities.

    Attributes:
        inputs: Texts without content.
        texts: Calibration texts whose words are drawn, never those of the prompts; None: the texts of
            the prompts' demonstrations.
        draws: Number of texts of random words.
        form: `paper`: p / prior, normalised to sum 1 (Zhao et al.'s diagonal W, Fei et al.); `staicc`:
            softmax(p / prior) as StaICC 0.1.1 has it; `difference`: p - prior (Zhao et al.'s identity W).
        batch_form: Form of batch calibration. `ratio`: p / mean, normalised to sum 1; `staicc`: softmax(p -
            mean); `log_mean`: softmax(log p - mean log p).
        together: Number of consecutive prompts that share a mean in batch calibration; None: all.
        seed: Seed of the random words.
        reweighting: Factors on attention to label words, evaluated as another method.
        more_shots: The same queries with more demonstrations, evaluated as another method.
    """

    inputs: Sequence[str] = CONTENT_FREE
    texts: Sequence[str] | None = None
    draws: Count = 20
    form: CalibrationForm = "paper"
    batch_form: BatchForm = "ratio"
    together: Count | None = None
    seed: Natural = 0
    reweighting: Reweight | None = None
    more_shots: PromptBatch | None = None

    why_not = (
        "it corrects for how often the model predicts each class, and these prompts have no "
        "classes in common"
    )

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts that cannot be calibrated, and calibration texts that are also test texts.

        Raises:
            PromptError: prompts without answers or query texts, test texts, no texts at all, or
                `more_shots` with other queries.
            RunError: factors of another model.
        """
        _ = data.answers
        check_replaceable(data)
        if model.tokenizer is None:
            raise PromptError(
                f"{model.info.name!r} has no tokenizer, which is needed to write content-free "
                "texts. Load the model with its tokenizer."
            )
        if not self.inputs:
            raise PromptError(f"inputs is empty; give content-free texts such as {CONTENT_FREE}.")
        check_own_texts(self._texts(data), data)
        if self.reweighting is not None:
            EvaluateReweighting(self.reweighting).check(model, data)
        if self.more_shots is not None:
            check_same_queries(self.more_shots, data)

    def _texts(self, data: PromptBatch) -> Sequence[str]:
        return texts_of(data, "demo_text") if self.texts is None else self.texts

    def _content_free(self, model: LanguageModel, data: PromptBatch) -> ContentFree:
        """Prompts of the contextual and, after these, of the domain prior."""
        words = random_words(self._texts(data), self.draws, self.seed)
        return replaced(data, [*self.inputs, *words], model.tokenizer)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, those without content, and any additional methods."""
        reading = [PredictionReading()]
        passes = [Pass(data, reading, title="prompts")]
        # One for each context, whose demonstrations are then run once.
        passes += [
            Pass(prompts, reading, title="without content")
            for prompts in self._content_free(model, data).by_context()
        ]
        if self.reweighting is not None:
            passes.append(Pass(data, reading, [self.reweighting], title="re-weighted"))
        if self.more_shots is not None:
            passes.append(Pass(self.more_shots, reading, title="more shots"))
        return passes

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> CalibrationResult:
        """Label probabilities of every method, and the priors."""
        plain, *others = [logits.double().softmax(-1) for ((logits, *_),) in read]
        empty = self._content_free(model, data)
        count = len(empty.by_context())
        free_probs = _by_prompt(empty, torch.cat(others[:count]))
        rows = free_probs.split([len(self.inputs), self.draws], dim=1)
        probs = [plain, *(calibrate_labels(plain, prior, self.form) for prior in rows)]
        probs += [calibrate_batch(plain, self.batch_form, self.together), *others[count:]]
        names = ["plain", "contextual", "domain", "batch"]
        names += ["reweighted"] * (self.reweighting is not None)
        names += ["more_shots"] * (self.more_shots is not None)
        size = self.together or len(plain)
        mean = [chunk.mean(0).expand(len(chunk), -1) for chunk in plain.split(size)]
        origin = {} if self.more_shots is None else {"more_shots": prompt_source(self.more_shots)}
        return CalibrationResult(
            scores=torch.stack(probs, dim=1),
            priors=torch.stack([*(prior.mean(1) for prior in rows), torch.cat(mean)], dim=1),
            answers=data.answers,
            methods=tuple(names),
            labels=data.labels,
            form=self.form,
            provenance=origin,
        )


def _by_prompt(
    content_free: ContentFree, probs: Float[Tensor, "row label"]
) -> Float[Tensor, "batch each label"]:
    """Rows of probabilities for each prompt's context."""
    by_context = probs.reshape(-1, content_free.each, probs.shape[-1])
    return by_context[list(content_free.context)]


@with_options
def calibration(
    model: Any,
    prompts: PromptBatch,
    *,
    task: str | Task | None = None,
    texts: Sequence[str] | None = None,
    inputs: Sequence[str] = CONTENT_FREE,
    draws: int = 20,
    form: CalibrationForm = "paper",
    batch_form: BatchForm = "ratio",
    together: int | None = None,
    seed: int = 0,
    reweighting: Reweight | None = None,
    more_shots: PromptBatch | None = None,
    **how: Unpack[How],
) -> CalibrationResult:
    """Plain, contextual, domain and batch-calibrated accuracy on the same prompts.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with answers.
        task: The task from whose training texts the random words are drawn, without texts that are
            queries of these prompts.
        texts: Custom texts for this; by default those of the task, else of the demonstrations.
        inputs: Texts without content.
        draws: Number of texts of random words.
        form: `paper`, `staicc` or `difference`, see `Calibration`.
        batch_form: `ratio`, `staicc` or `log_mean`, see there.
        together: Number of consecutive prompts that share a mean in batch calibration; None: all.
        seed: Seed of the random words.
        reweighting: Factors on attention to label words (`fit_reweighting`), evaluated as another method.
        more_shots: The same queries with more demonstrations, evaluated as another method.

    Raises:
        PromptError: prompts without answers or query texts, calibration texts that are also test texts, no
            texts at all, both `task` and `texts`, or `more_shots` with other queries.
        RunError: an option out of range, or factors of another model.
        TaskError: an unknown task.

    Source: Zhao et al. 2021, §4; Fei et al. 2023, §4; Zhou et al. 2024, §3.
    """
    if task is not None:
        if texts is not None:
            raise PromptError(
                "task and texts both specify the texts to draw words from; give only one of them."
            )
        texts = training_texts(as_task(task), check_batch(prompts))
    measurement = Calibration(
        inputs, texts, draws, form, batch_form, together, seed, reweighting, more_shots
    )
    return measured(measurement, model, prompts, **how)
