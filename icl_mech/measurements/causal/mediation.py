"""Which heads carry the task: the average indirect effect of every head at the target.

On prompts with shuffled labels, which teach no task, one head's `z` at the last token is replaced by its
mean over prompts with true labels. A head whose mean output carries what the demonstrations teach then
raises the right answer. In classification a mean over all queries also takes away what a head says of one
query; `mean="class"` is over true prompts of the same class with other queries. See
`icl_mech.measurements.causal.mediation_result`.

Source: Todd et al. 2024, *Function vectors in large language models*, §2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import RowsReading
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import Patch
from icl_mech.measurements.base import Options, Pair, PairMeasurement, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers, check_label_words
from icl_mech.measurements.causal.mediation_result import HeadMediation, MeanOver
from icl_mech.measurements.doors import door
from icl_mech.measurements.reweighting.learnable import query
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import PromptBatch


@dataclass(frozen=True)
class MediateHeads(PairMeasurement[HeadMediation]):
    """Average indirect effect of every head at the target.

    Of the pair the true prompts give the mean outputs, the others are patched: with labels="random" they
    teach nothing, as published; with permuted labels they teach another task.

    Costs one pass over the true prompts and, for each head, one token of every shuffled prompt.

    Attributes:
        mean: Over `all` true prompts (as published), or of every prompt over those of its `class` with
            other queries.

    Raises:
        PromptError: sets with different label words, shuffled prompts without answers, or with
            mean="class" a class of one query.
        RunError: processed weights.

    Source: Todd et al. 2024, §2.
    """

    name: ClassVar[str] = "head_mediation"

    mean: MeanOver = "all"

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse prompts without answers, sets of two tasks, and processed weights.

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
        """The mean outputs; the patched passes follow from them."""
        return [Pass(data[0], [self._reading(model, data)], title="mean outputs")]

    def _reading(self, model: LanguageModel, data: Pair) -> RowsReading:
        sites = [Site("z", layer) for layer in range(model.info.n_layers)]
        return RowsReading(sites, data[0].targets[:, None], only_target=True)

    def steps(self, model: LanguageModel, data: Pair, options: Options) -> Steps[HeadMediation]:
        """Mean outputs of the true prompts, then every head patched on the shuffled ones."""
        ((read,),) = yield self.passes(model, data)
        outputs = torch.stack([own[:, 0].double() for own in read.values()], dim=1)
        means = outputs.mean(0).float()
        if self.mean == "class":
            weights = class_weights(*data)
            # By prompt, token and place, as a Patch wants them.
            given = torch.einsum("nm,mlhd->lhnd", weights, outputs).float()[..., None, None, :]
        else:
            given = means[..., None, :]
        patches = [[Patch("z", [head], values=given[head])] for head in heads_of(means.shape[:2])]
        (found,) = yield [
            Variants(data[1], [AnswerReading()], title="heads", variants=[[], *patches])
        ]
        return self.result(model, data, [means, [own for (own,) in found]])

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> HeadMediation:
        """Changes of the right answer's probability and logit difference."""
        means, found = read
        answers = data[1].answers
        values = [
            torch.stack([own(answers) for own in kind], dim=1)
            for kind in zip(*((one.probability, one.difference) for one in found), strict=True)
        ]
        changes = [
            (value[:, 1:] - value[:, :1]).reshape(len(answers), *means.shape[:2])
            for value in values
        ]
        return HeadMediation(
            probability=changes[0],
            difference=changes[1],
            plain_probability=values[0][:, 0],
            plain_difference=values[1][:, 0],
            means=means,
            mean=self.mean,
        )


def class_weights(true: PromptBatch, shuffled: PromptBatch) -> Float[Tensor, "shuffled true"]:
    """Equal weights of the true prompts of each prompt's class, those with its own query left out.

    Raises:
        PromptError: prompts without roles of their texts, or one whose class no other query has.
    """
    queries = [[query(prompt) for prompt in own] for own in (true, shuffled)]
    if not all(map(all, queries)):
        raise PromptError(
            "mean='class' leaves a prompt's own query out, and the texts of these queries are not known; build "
            "prompts with build_prompts or prompts_from_text, or take mean='all'."
        )
    same = torch.tensor([[one == other for other in queries[0]] for one in queries[1]])
    counted = ((shuffled.answers[:, None] == true.answers) & ~same).double()
    alone = (counted.sum(1) == 0).nonzero().flatten().tolist()
    if alone:
        raise PromptError(
            f"mean='class' needs true prompts of the same class with other queries; prompt {alone[0]} (class "
            f"{shuffled.labels[int(shuffled.answers[alone[0]])]}) has none. Give more prompts, or mean='all'."
        )
    return counted / counted.sum(1, keepdim=True)


def heads_of(shape: Sequence[int]) -> list[tuple[int, int]]:
    """All (layer, head) pairs."""
    return [(layer, head) for layer in range(shape[0]) for head in range(shape[1])]


def check_own_weights(model: LanguageModel, what: str) -> None:
    """Refuse processed weights, whose heads have other outputs than the checkpoint's.

    Raises:
        RunError: says how to load the model.
    """
    if model.info.processed_weights:
        raise RunError(
            f"{what} is defined on the checkpoint's own weights, but the weights of {model.info.name!r} are "
            "processed (norms folded or weights centred). Load it with icl_mech.load_model, or with "
            "HookedTransformer.from_pretrained_no_processing."
        )


head_mediation = door(
    MediateHeads,
    "head_mediation",
    true="Prompts with true labels: the mean output of every head at their last token is taken.",
    shuffled='Prompts of the same task that teach nothing (labels="random"): these are patched.',
)
