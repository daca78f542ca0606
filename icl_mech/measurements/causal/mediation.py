"""Which heads carry the task: the average indirect effect of every head at the target.

On prompts with shuffled labels, which teach no task, one head's `z` at the last token is replaced by its
mean over prompts with true labels. A head whose mean output carries what the demonstrations teach then
raises the right answer. In classification a mean over all queries also takes away what a head says of one
query; `mean="class"` is over true prompts of the same class with other queries. See
`icl_mech.measurements.causal.mediation`.

Average indirect effects of heads, and the mean outputs they were patched with.

The effect of a head on one prompt is the change, when its output at the last token is replaced by its
mean over prompts with true labels, of

* the probability of the right label word over the vocabulary (the published measure), and
* its logit minus the mean logit of the other label words.

Source: Todd et al. 2024, *Function vectors in large language models*, §2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.engine import RowsReading
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Patch
from icl_mech.measurements.base import Options, Pair, PairMeasurement, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers, check_label_words
from icl_mech.measurements.causal.definitions import DIFFERENCE, FAMILY, INDIRECT
from icl_mech.measurements.causal.head_maps import (
    FRAMED,
    clear_heads,
    head_map,
    intervals_of,
    ordered,
    table_of,
)
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.texts import head_name
from icl_mech.measurements.reweighting.fit import query
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, said
from icl_mech.shapes import Grid, Grids

if TYPE_CHECKING:
    import pandas as pd

Measure = Literal["probability", "difference"]
MeanOver = Literal["all", "class"]

UNITS = {
    "probability": "change of the right answer's probability",
    "difference": "change of the right answer's logit above the others",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadMediation(Result):
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

    probability: Float[Tensor, "batch layer head"]
    difference: Float[Tensor, "batch layer head"]
    plain_probability: Float[Tensor, " batch"]
    plain_difference: Float[Tensor, " batch"]
    means: Float[Tensor, "layer head d_head"]
    mean: MeanOver = "all"

    def quantities(self) -> dict[str, Quantity]:
        """Mean effects in both measures, and what both are without a patch."""
        dims = ("layer", "head")
        return {
            "probability": Quantity(dims, self.probability, unit=UNITS["probability"]),
            "difference": Quantity(dims, self.difference, unit=UNITS["difference"]),
            "plain_probability": Quantity((), self.plain_probability, unit="probability"),
            "plain_difference": Quantity((), self.plain_difference, unit="logits"),
        }

    @checked(ResultError)
    def effect(self, by: Measure = "probability") -> Float[Tensor, "layer head"]:
        """Mean over prompts: the average indirect effect."""
        return self.quantities()[by].value()

    @checked(ResultError)
    def top(self, k: Count = FRAMED, by: Measure = "probability") -> tuple[tuple[int, int], ...]:
        """The k heads with the largest mean effect (signed), largest first."""
        return ordered(self.effect(by), k)

    @checked(ResultError)
    def clear(
        self, by: Measure = "difference", *, below: bool = False
    ) -> tuple[tuple[int, int], ...]:
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
        found = self.quantities()[by]
        quantity = "probability" if by == "probability" else "logits"
        title = f"{UNITS[by][0].upper()}{UNITS[by][1:]}"
        framed = ordered(found.value(), FRAMED)
        return head_map(title, found, framed, quantity=quantity, signed=True, note=note)

    def figures(self) -> list[Figure]:
        """Which heads raise the right answer, and which lower it."""
        top = self.top(FRAMED, "difference")
        return [
            mediating(
                intervals_of(self.quantities()["difference"], top),
                self.clear(),
                self.clear(below=True),
                heads=self.means[..., 0].numel(),
                prompts=len(self.difference),
                plain=self.interval("plain_probability"),
                by_class=self.mean == "class",
                given=given(self),
            )
        ]

    def summary(self) -> str:
        """The heads with the largest effects."""
        found = self.quantities()
        parts = [
            f"{name}: {value} ({found['probability'].value()[head]:+.2g} in probability)"
            for head, (name, value) in zip(
                self.top(3, "difference"),
                intervals_of(found["difference"], self.top(3, "difference")).items(),
                strict=True,
            )
        ]
        return "largest effects on the logit difference (layer.head): " + ", ".join(parts)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, largest effect on the logit difference first."""
        import pandas as pd

        found = self.quantities()
        heads = self.top(self.difference[0].numel(), "difference")
        return pd.DataFrame(table_of({name: found[name] for name in UNITS}, heads))


SHOWN = 5


def mediating(
    top: Mapping[str, Interval],
    raising: Sequence[tuple[int, int]],
    lowering: Sequence[tuple[int, int]],
    *,
    heads: int,
    prompts: int,
    plain: Interval,
    by_class: bool,
    given: str,
) -> Figure:
    """Which heads, at their mean output over true demonstrations, bring the right answer back?

    Args:
        top: Effects on the logit difference of the heads with the largest, largest first.
        raising: Heads clearly above 0, corrected for looking at all.
        lowering: Heads clearly below 0.
        heads: Number of heads of the model.
        prompts: Number of prompts.
        plain: Probability of the right answer without any patch.
        by_class: Means are over other queries of the same class.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    best, effect = next(iter(top.items()))
    if prompts < FEWEST_PROMPTS:
        answer = (
            f"Cannot be judged from {counted(prompts, 'prompt')}: the largest effect is that of {best}, "
            f"{said(effect, sign=True)} logits."
        )
    elif raising:
        answer = (
            f"Yes: {named(raising)} ({len(raising)} of {heads} heads) raise the right answer, corrected for "
            f"looking at all heads; most of all {best}, by {said(effect, sign=True)} logits."
        )
    else:
        answer = (
            f"Not shown: no head of {heads} clearly raises the right answer; the largest effect is that of "
            f"{best}, {said(effect, sign=True)} logits."
        )
    if lowering and prompts >= FEWEST_PROMPTS:
        answer += f" {named(lowering)} lower{'s' * (len(lowering) == 1)} it."
    which = "prompts with true labels" + by_class * " and other queries of the same class"
    return Figure(
        "maps",
        "Do single heads carry what the demonstrations teach?",
        answer,
        "**Effect of every head: its output at the last token of prompts with other labels, replaced by "
        f"its mean over {which}.** Means over {counted(prompts, 'prompt')}; above, change of "
        f"the right label word's probability ({said(plain)} without a patch), below, of its logit above the "
        f"other label words. Framed: the largest effects (layer.head). Intervals (when pointing): 95 % "
        f"over prompts{given}, for each head alone.",
        "that the mean output of these heads at the last token is enough to move the answer towards what "
        "true demonstrations teach."
        if raising and prompts >= FEWEST_PROMPTS
        else "",
        "that the heads are needed: with several of them doing the same, leaving one out may change "
        "nothing. A head may also carry which labels are possible, not which text has which. Heads chosen "
        "here are to be tested on other prompts.",
        "Effects of heads",
    )


def named(heads: Sequence[tuple[int, int]]) -> str:
    """The first few by name, the others by number."""
    names = [head_name(head) for head in heads[:SHOWN]]
    more = len(heads) - len(names)
    return listed([*names, *([counted(more, "other")] if more else [])])


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
