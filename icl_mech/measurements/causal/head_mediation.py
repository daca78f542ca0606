"""Which heads carry the task: the average indirect effect of every head at the target.

On prompts with shuffled labels, which teach no task, one head's `z` at the last token is replaced by its
mean over prompts with true labels. A head whose mean output carries what the demonstrations teach then
raises the right answer: the probability of its label word over the vocabulary (the published measure), and
its logit minus the mean logit of the other label words. In classification a mean over all queries also
takes away what a head says of one query; `mean="class"` is over true prompts of the same class with other
queries.

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
    head_map,
    heads_of,
    intervals_of,
    named,
    ordered,
)
from icl_mech.measurements.demonstrations import query
from icl_mech.measurements.doors import door
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Figure, Result, basis, quantity
from icl_mech.results.judging import opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said
from icl_mech.shapes import Grid, Grids

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
    "On prompts p̃ with shuffled labels the output z of one head at the last token is replaced by its "
    "mean z̄ over prompts with true labels; the effect is the change of the probability of the right "
    "answer y.",
    TODD,
)

DIFFERENCE = Definition(
    "effect on the logit difference",
    r"\Delta_{n}(l,h) = d\!\left(\tilde p_n, z_{lh} \leftarrow \bar z_{lh}\right) - d(\tilde p_n), "
    r"\quad d = \ell_{y} - \frac{1}{C-1} \sum_{c \neq y} \ell_c",
    "The same patch, judged by the logit of the right label word minus the mean of the others: "
    "probabilities of weak models are so small that their changes say little.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadMediationResult(Result):
    """Effect of every head on every prompt with shuffled labels.

    Attributes:
        probability: Change of the right label word's probability.
        difference: Change of its logit minus the mean of the other label words'.
        plain_probability: The probability without any patch.
        plain_difference: The logit difference without any patch.
        means: Mean output `z` of every head at the last token of the true prompts.
        mean: What was patched in: the mean over `all` true prompts, or over others of the query's
            `class`.
    """

    title: ClassVar[str] = "Heads that carry the task"
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
    def clear(self, by: Measure = "difference", *, below: bool = False) -> tuple[Head, ...]:
        """Heads whose effect lies above 0 (`below`: below 0), corrected for looking at all heads."""
        return clear_heads(getattr(self, by), below=below)

    def drawing(self, show: str = "maps") -> Grids | Grid:
        """Maps of the effects, layers across and heads down.

        Args:
            show: `maps` (both measures) or one measure.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        if show != "maps":
            return self._map(show, f"{basis(self)}; framed: the {FRAMED} largest effects")
        return Grids("Effect of single heads", tuple(map(self._map, UNITS)), basis(self))

    def _map(self, by: str, note: str = "") -> Grid:
        found = self.sel(by)
        unit = "probability" if by == "probability" else "logits"
        title = f"{UNITS[by][0].upper()}{UNITS[by][1:]}"
        framed = ordered(found.values, FRAMED)
        return head_map(found, title, framed, quantity=unit, signed=True, note=note)

    def figures(self) -> list[Figure]:
        """Which heads raise the right answer, and which lower it."""
        count = len(self.difference)
        which = (
            "prompts with true labels"
            + (self.mean == "class") * " and other queries of the same class"
        )
        status = any_clear(self.clear(), count)
        return [
            Figure(
                "maps",
                question="Do single heads carry what the demonstrations teach?",
                answer=self._answer(),
                caption="**Effect of every head: its output at the last token of prompts with other labels, "
                f"replaced by its mean over {which}.** Means over {counted(count, 'prompt')}; above, change of "
                f"the right label word's probability ({said(self.interval('plain_probability'))} without a "
                "patch), below, of its logit above the other label words. Framed: the largest effects "
                f"(layer.head). Intervals (when pointing): 95 % over prompts{given(self)}, for each head alone.",
                establishes="that the mean output of these heads at the last token is enough to move the answer "
                "towards what true demonstrations teach."
                if status == "supported"
                else "",
                limits="that the heads are needed: with several of them doing the same, leaving one out may "
                "change nothing. A head may also carry which labels are possible, not which text has which. "
                "Heads chosen here are to be tested on other prompts.",
                short="Effects of heads",
            )
        ]

    def _answer(self) -> str:
        raising, lowering = self.clear(), self.clear(below=True)
        heads, count = self.means[..., 0].numel(), len(self.difference)
        top = intervals_of(self.sel("difference"), self.top(FRAMED, "difference"))
        best, effect = next(iter(top.items()))
        status, amount = any_clear(raising, count), f"{said(effect, sign=True)} logits"
        found = f"the largest effect is that of {best}, {amount}."
        if status == "supported":
            found = (
                f"{named(raising)} ({len(raising)} of {heads} heads) raise the right answer, corrected for "
                f"looking at all heads; most of all {best}, by {amount}."
            )
        elif status == "not shown":
            found = f"no head of {heads} clearly raises the right answer; {found}"
        if lowering and status != "cannot be judged":
            found += f" {named(lowering)} lower{'s' * (len(lowering) == 1)} it."
        return f"{opening(status, counted(count, 'prompt'))} {found}"

    def summary(self) -> str:
        """The heads with the largest effects."""
        heads, probability = self.top(3, "difference"), self.effect()
        effects = intervals_of(self.sel("difference"), heads).items()
        parts = [
            f"{name}: {value} ({probability[head]:+.2g} in probability)"
            for head, (name, value) in zip(heads, effects, strict=True)
        ]
        return "largest effects on the logit difference (layer.head): " + ", ".join(parts)


@dataclass(frozen=True)
class HeadMediation(PairMeasurement[HeadMediationResult]):
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

    mean: MeanOver = "all"

    takes = ANSWER_KINDS

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

    def steps(
        self, model: LanguageModel, data: Pair, options: Options
    ) -> Steps[HeadMediationResult]:
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

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> HeadMediationResult:
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
        return HeadMediationResult(
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


head_mediation = door(
    HeadMediation,
    "head_mediation",
    true="Prompts with true labels: the mean output of every head at their last token is taken.",
    shuffled='Prompts of the same task that teach nothing (labels="random"): these are patched.',
)
