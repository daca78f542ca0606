"""Re-weighting learned and judged on one set of prompts, split by class.

The factors are learned on the first few prompts of each class (the paper: four) and the accuracy
with and without them is that of all other prompts, so it is held out.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from icl_mech.checking import Count, Natural
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reweighting.evaluation import EvaluateReweighting
from icl_mech.measurements.reweighting.fit import fit_reweighting
from icl_mech.measurements.reweighting.learnable import check_learnable, split
from icl_mech.measurements.reweighting.result import ReweightingResult
from icl_mech.measurements.reweighting.training import Training
from icl_mech.measurements.running import check_numbers
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch


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
