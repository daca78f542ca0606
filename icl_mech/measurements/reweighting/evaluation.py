"""Re-weighting judged: plain against re-weighted in-context learning on the same test prompts.

Accuracy is the share of prompts whose largest label logit is that of the true class. Both
conditions take one path through the model, so with all factors 1 they are equal to the last bit.
How factors are learned: `icl_mech.measurements.reweighting.fit`.

Re-weighting learned and judged on one set of prompts, split by class.

The factors are learned on the first few prompts of each class (the paper: four) and the accuracy
with and without them is that of all other prompts, so it is held out.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1, table 1.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from typing_extensions import Unpack

from icl_mech.checking import Count, Natural
from icl_mech.errors import RunError
from icl_mech.interventions import FittedReweight, Reweight
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.passes import How
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reweighting.fit import (
    Training,
    check_learnable,
    check_same_queries,
    count_seen,
    fit_reweighting,
    split,
    warn_seen,
)
from icl_mech.measurements.reweighting.result import Condition, ReweightingResult
from icl_mech.measurements.running import check_numbers, measured
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch


@dataclass(frozen=True)
class EvaluateReweighting(Measurement[ReweightingResult]):
    """Accuracy of the plain and of the re-weighted model.

    Attributes:
        reweighting: The factors, learned (`fit_reweighting`) or given.
        more_shots: The same queries behind more demonstrations, run plain for comparison.
    """

    name: ClassVar[str] = "reweighting"

    reweighting: Reweight
    more_shots: PromptBatch | None = None

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse what cannot be judged; warn of prompts the factors were learned from.

        Raises:
            PromptError: prompts without answers or demonstrations, or `more_shots` with other
                queries.
            RunError: factors of another model's size or number of classes.
        """
        check_learnable(data, "test")
        if self.more_shots is not None:
            check_same_queries(self.more_shots, data)
        self.reweighting.check(model.info)
        if self.reweighting.beta.shape[2] != data.n_labels:
            raise RunError(
                f"beta has {self.reweighting.beta.shape[2]} classes, the prompts have "
                f"{data.n_labels}."
            )
        warn_seen(self.reweighting, data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Both conditions over the test prompts, and the plain model over those of more shots."""
        readings = [PredictionReading()]
        passes: list[Pass] = [Variants(data, readings, variants=[[], [self.reweighting]])]
        if self.more_shots is not None:
            passes.append(Pass(self.more_shots, readings, title="more shots"))
        return passes

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> ReweightingResult:
        """The label logits of every condition, and how the factors came about."""
        conditions, *more = read
        factors = self.reweighting
        fitted = factors if isinstance(factors, FittedReweight) else None
        batches = [data, data, *([] if self.more_shots is None else [self.more_shots])]
        names: tuple[Condition, ...] = ("plain", "reweighted", "more_shots")
        origin = {} if fitted is None else {"training": fitted.training}
        if self.more_shots is not None:
            origin["more_shots"] = prompt_source(self.more_shots)
        return ReweightingResult(
            label_logits=torch.stack(
                [label_logits for ((label_logits, *_),) in (*conditions, *more)]
            ),
            answers=data.answers,
            beta=factors.beta,
            losses=None if fitted is None else fitted.losses,
            held_out_losses=None if fitted is None else fitted.held_out_losses,
            conditions=names[: len(batches)],
            demonstrations=tuple(batch.n_demos for batch in batches),
            labels=data.labels,
            seen_in_training=count_seen(factors, data),
            provenance=origin,
        )


@with_options
def evaluate_reweighting(
    model: Any,
    reweighting: Reweight,
    prompts: PromptBatch,
    *,
    more_shots: PromptBatch | None = None,
    **how: Unpack[How],
) -> ReweightingResult:
    """Plain against re-weighted in-context learning on the same test prompts.

    What both have in common is computed once: the shared demonstrations, or everything before
    the targets.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        reweighting: The factors, learned (`fit_reweighting`) or given.
        prompts: Test prompts with answers.
        more_shots: The same queries behind more demonstrations, run plain for comparison.

    Warns:
        UserWarning: if the factors were learned from some of these prompts.

    Raises:
        PromptError: prompts without answers, or `more_shots` with other queries.
        RunError: factors of another model's size or number of classes.

    Source: Wang et al. 2023, §3.1, table 1.
    """
    return measured(EvaluateReweighting(reweighting, more_shots), model, prompts, **how)


@dataclass(frozen=True)
class Reweighting(Measurement[ReweightingResult]):
    """Factors learned on the first few prompts of each class and judged on all others.

    Attributes:
        per_class: Prompts of each class to learn from (the paper: four).
        lr: Learning rate.
        epochs: Passes over the prompts learned from.
        batch_size: Prompts per training step.
        seed: Of the order in which they are learned from.
    """

    per_class: Count = 4
    lr: float = 0.01
    epochs: Count = 10
    batch_size: Count = 1
    seed: Natural = 0

    @property
    def training(self) -> Training:
        """How they are learned."""
        return Training(self.lr, self.epochs, self.batch_size, seed=self.seed)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse options out of range and prompts that are too few to learn from and be judged by.

        Raises:
            RunError: names the option.
            PromptError: prompts without answers or demonstrations, or too few of a class.
        """
        _ = self.training
        check_learnable(data, "given")
        split(data, self.per_class)

    def check_options(self, model: LanguageModel, data: PromptBatch, options: Options) -> None:
        """Refuse interventions that would meet prompts of other numbers in the two parts.

        Raises:
            RunError: names the intervention.
        """
        for part in split(data, self.per_class):
            check_numbers(part, data, options.interventions)

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[ReweightingResult]:
        """Learn under the user's interventions, then evaluate under them.

        Means that an intervention still needs are those of the prompts it meets: of the training
        prompts, then of the test prompts.
        """
        training, test = split(data, self.per_class)
        fitted = fit_reweighting(
            model,
            training,
            **asdict(self.training),
            interventions=options.interventions,
            memory=options.memory,
            progress=options.progress,
        )
        evaluation = EvaluateReweighting(fitted)
        evaluation.check(model, test)
        read = yield evaluation.passes(model, test)
        return self.result(model, data, [fitted, *read])

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """None that are known before the factors are learned, see `steps`."""
        return []

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> ReweightingResult:
        """That of the evaluation, from the learned factors and its passes' values."""
        fitted, *values = read
        _, test = split(data, self.per_class)
        result = EvaluateReweighting(fitted).result(model, test, values)
        return replace(result, provenance={**result.provenance, "tested_on": prompt_source(test)})
