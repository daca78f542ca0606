"""Which heads carry the task: the average indirect effect of every head at the target.

On prompts with shuffled labels, which teach no task, one head's `z` at the last token is replaced by its
mean over prompts with true labels. A head whose mean output carries what the demonstrations teach then
raises the correct answer: the probability of its label word over the vocabulary (the published measure), and
its logit minus the mean logit of the other label words. In classification a mean over all queries also
removes the head's query-specific output; `mean="class"` averages over true prompts of the same class with
other queries.

Source: Todd et al. 2024, *Function vectors in large language models*, §2.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.engine import RowsReading
from icl_mech.errors import PromptError, ResultError
from icl_mech.interventions import Patch
from icl_mech.measurements.base import Options, Pair, PairMeasurement, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers, check_label_words
from icl_mech.measurements.causal.head_maps import (
    FAMILY,
    FRAMED,
    Head,
    any_clear,
    clear_heads,
    heads_of,
    intervals_of,
    ordered,
)
from icl_mech.measurements.demonstrations import query
from icl_mech.measurements.doors import door
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Result, quantity
from icl_mech.results.judging import Status
from icl_mech.results.quantities import kept

Measure = Literal["probability", "difference"]
MeanOver = Literal["all", "class"]

UNITS = {
    "probability": "change of the right answer's probability",
    "difference": "change of the right answer's logit above the others",
}

TODD = "Todd et al. 2024, Function vectors in large language models, §2"

INDIRECT = Definition(
    "average indirect effect",
    r"\mathrm{AIE}(l,h) = \frac{1}{N} \sum_n P\!\left(y_n \mid \tilde p_n, z_{lh} \leftarrow "
    r"\bar z_{lh}\right) - P\!\left(y_n \mid \tilde p_n\right)",
    "On prompts p̃ with shuffled labels, the output z of one head at the last token is replaced "
    "by its mean z̄ over prompts with true labels; the effect is the change of the probability of "
    "the right answer y.",
    TODD,
)

DIFFERENCE = Definition(
    "effect on the logit difference",
    r"\Delta_{n}(l,h) = d\!\left(\tilde p_n, z_{lh} \leftarrow \bar z_{lh}\right) - d(\tilde p_n), "
    r"\quad d = \ell_{y} - \frac{1}{C-1} \sum_{c \neq y} \ell_c",
    "The effect of the same patch on the logit of the right label word minus the mean of the "
    "others. In weak models, probabilities are so small that their changes are uninformative.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadMediationResult(Result):
    """Effect of every head on every prompt with shuffled labels.

    Attributes:
        probability: Change of the correct label word's probability.
        difference: Change of its logit minus the mean of the other label words'.
        plain_probability: The probability without any patch.
        plain_difference: The logit difference without any patch.
        means: Mean output `z` of every head at the last token of the true prompts.
        mean: What was patched in: the mean over `all` true prompts, or over other true prompts of the query's
            `class`.
    """

    shows: ClassVar[tuple[str, ...]] = ("maps", *UNITS)
    definitions: ClassVar[tuple[Definition, ...]] = (INDIRECT, DIFFERENCE, FAMILY)
    ranked: ClassVar[bool] = True

    probability: Float[Tensor, "batch layer head"] = quantity(UNITS["probability"])
    difference: Float[Tensor, "batch layer head"] = quantity(UNITS["difference"])
    plain_probability: Float[Tensor, " batch"] = quantity("probability", kind="outcome")
    plain_difference: Float[Tensor, " batch"] = quantity("logits")
    means: Float[Tensor, "layer head d_head"]
    mean: MeanOver = "all"

    @checked(ResultError)
    def effect(self, by: Measure = "probability") -> Float[Tensor, "layer head"]:
        """Mean over prompts: the average indirect effect."""
        return self.quantities()[by].value()

    @checked(ResultError)
    def top(self, k: Count = FRAMED, by: Measure = "probability") -> tuple[Head, ...]:
        """The k heads with the largest mean effect (signed), largest first."""
        return ordered(self.effect(by), k)

    @checked(ResultError)
    @kept
    def clear(self, by: Measure = "difference", *, below: bool = False) -> tuple[Head, ...]:
        """Heads whose effect lies above 0 (`below`: below 0), corrected for multiple testing over all heads."""
        return clear_heads(getattr(self, by), below=below)

    @checked(ResultError)
    def leading(self, k: Count = FRAMED) -> dict[str, Interval]:
        """Effects on the logit difference of the k heads with the largest effects, by name, largest first."""
        return intervals_of(self.sel("difference"), self.top(k, "difference"))

    @property
    def count(self) -> int:
        """Number of prompts with shuffled labels."""
        return len(self.difference)

    @property
    def status(self) -> Status:
        """Status of the claim that some head raises the logit difference, see `clear`."""
        return any_clear(self.clear(), self.count)


@dataclass(frozen=True)
class HeadMediation(PairMeasurement[HeadMediationResult]):
    """Average indirect effect of every head at the target.

    The true prompts of the pair give the mean outputs; the others are patched: with labels="random" they
    teach nothing, as published; with permuted labels they teach another task.

    Costs one pass over the true prompts and, for each head, one token of every shuffled prompt.

    Attributes:
        mean: Average over `all` true prompts (as published), or for every prompt over those of its `class` with
            other queries.

    Raises:
        PromptError: sets with different label words, shuffled prompts without answers, or with
            mean="class" a class of one query.
        RunError: processed weights.

    Source: Todd et al. 2024, §2.
    """

    mean: MeanOver = "all"

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject prompts without answers, pairs from two tasks, and processed weights.

        Raises:
            PromptError: says what is missing.
            RunError: processed weights.
        """
        true, shuffled = data
        check_label_words(true, shuffled)
        check_answers(shuffled, "head_mediation")
        check_own_weights(model, "head_mediation")
        if self.mean == "class":
            _ = class_weights(true, shuffled)

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """The pass for the mean outputs; the patched passes follow from them."""
        return [Pass(data[0], [self._reading(model, data)], title="mean outputs")]

    def _reading(self, model: LanguageModel, data: Pair) -> RowsReading:
        sites = [Site("z", layer) for layer in range(model.info.n_layers)]
        return RowsReading(sites, data[0].targets[:, None], only_target=True)

    def steps(
        self, model: LanguageModel, data: Pair, options: Options
    ) -> Steps[HeadMediationResult]:
        """Mean outputs of the true prompts, then every head patched on the shuffled prompts."""
        ((read,),) = yield self.passes(model, data)
        outputs = torch.stack([output[:, 0].double() for output in read.values()], dim=1)
        means = outputs.mean(0).float()
        if self.mean == "class":
            weights = class_weights(*data)
            # By prompt, token and place, as a Patch wants them.
            values = torch.einsum("nm,mlhd->lhnd", weights, outputs).float()[..., None, None, :]
        else:
            values = means[..., None, :]
        patches = [[Patch("z", [head], values=values[head])] for head in heads_of(means.shape[:2])]
        (runs,) = yield [
            Variants(data[1], [AnswerReading()], title="heads", variants=[[], *patches])
        ]
        return self.result(model, data, [means, [run for (run,) in runs]])

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> HeadMediationResult:
        """Changes of the correct answer's probability and logit difference."""
        means, runs = read
        answers = data[1].answers
        probability = torch.stack([run.probability(answers) for run in runs], dim=1)
        difference = torch.stack([run.difference(answers) for run in runs], dim=1)
        heads = len(answers), *means.shape[:2]
        return HeadMediationResult(
            probability=(probability[:, 1:] - probability[:, :1]).reshape(heads),
            difference=(difference[:, 1:] - difference[:, :1]).reshape(heads),
            plain_probability=probability[:, 0],
            plain_difference=difference[:, 0],
            means=means,
            mean=self.mean,
        )


def class_weights(true: PromptBatch, shuffled: PromptBatch) -> Float[Tensor, "shuffled true"]:
    """Equal weights of the true prompts of each prompt's class, without those that have its query.

    Raises:
        PromptError: prompts without roles of their texts, or one whose class no other query has.
    """
    queries = [[query(prompt) for prompt in prompts] for prompts in (true, shuffled)]
    if not all(map(all, queries)):
        raise PromptError(
            "mean='class' excludes each prompt's own query, but the query texts of these prompts "
            "are not known. Build prompts with build_prompts or prompts_from_text, or use "
            "mean='all'."
        )
    same = torch.tensor(
        [
            [shuffled_query == true_query for true_query in queries[0]]
            for shuffled_query in queries[1]
        ]
    )
    counted = ((shuffled.answers[:, None] == true.answers) & ~same).double()
    alone = (counted.sum(1) == 0).nonzero().flatten().tolist()
    if alone:
        raise PromptError(
            "mean='class' needs true prompts of the same class with other queries, but prompt "
            f"{alone[0]} (class {shuffled.labels[int(shuffled.answers[alone[0]])]}) has none. Give "
            "more prompts, or use mean='all'."
        )
    return counted / counted.sum(1, keepdim=True)


head_mediation = door(
    HeadMediation,
    "head_mediation",
    true="Prompts with true labels, over which every head's output at the last token is averaged.",
    shuffled='Prompts of the same task that teach nothing (labels="random"): these are patched.',
)
