"""Function vector by demonstration: which demonstrations the chosen heads write it from, by routing or by values.

A head's output at the target q is `sum over columns j of A(q, j) v_j`; grouped by demonstration it is an exact sum:

* `FV_i`: what the chosen heads write into the residual stream through the tokens of demonstration i, and the rest
  (first token, narrative, query, template around it, target). The value bias belongs to the column it comes through;
  the output bias of a layer belongs to no head and is left out, as in `function_vector`;
* contextualisation: the same prompts are run with attention between demonstrations cut. *Routing* takes the pattern of
  this run with the values of the full one, *values* the reverse. Each is put in place of the chosen heads' output at
  the target of the full prompt, and the model is run on from there;
* additivity: `sum of FV_i` compared with the whole vector, in direction and in effect on queries without
  demonstrations (as in `steer`); vectors are means over prompts with other queries.

Source: arXiv 2605.16591, *How Few-Shot Examples Add Up*. The paper compares vectors of prompts with fewer
demonstrations; here one prompt's vector is split exactly, and both runs of the split share query and template.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, Heads, Natural
from icl_mech.engine import RowsReading
from icl_mech.errors import RunError
from icl_mech.interventions import Cut, Patch
from icl_mech.interventions.base import check_layers
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.by_demonstration.leave_one_out import Largest, above_other_classes
from icl_mech.measurements.by_demonstration.parts import (
    FinalScale,
    Outputs,
    PartsReading,
    label_logits_of,
    of_demonstrations,
)
from icl_mech.measurements.by_demonstration.splitting import (
    bare_queries,
    check_parted,
    halves_of,
    of_other_queries,
)
from icl_mech.measurements.causal.answers import AnswerReading, above_others
from icl_mech.measurements.causal.head_mediation import HeadMediation, MeanOver
from icl_mech.measurements.demonstrations import check_several_classes
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.measurements.heads.head_attention import TargetRowReading
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.models import LanguageModel, Site, SiteName
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, jointly, judged
from icl_mech.results.quantities import kept

PAPER = "arXiv 2605.16591, How Few-Shot Examples Add Up"

CONDITIONS = ("routing", "values", "both", "demonstrations")
"""What is replaced in the chosen heads' output: attention, values or both by those of the cut run; the last removes
all demonstrations' parts."""

VECTORS = ("whole", "demonstrations", "rest")
"""What is added to queries without demonstrations."""

RUNS = ("full", "cut")

DEFINITIONS = (
    Definition(
        "part of a demonstration",
        r"\mathrm{FV}_i = \sum_{(l,h) \in H} \sum_{j \in i} A_{lh}(q, j)\, v_{lh,j} W_{O,lh}, \qquad "
        r"\sum_i \mathrm{FV}_i + \text{rest} = \sum_{(l,h) \in H} z_{lh} W_{O,lh}",
        "What the chosen heads H write at the target q through the tokens j of demonstration i. The rest comes "
        "through the first token, narrative, query and template. Values include their bias; output biases "
        "belong to no head and are left out.",
        PAPER,
    ),
    Definition(
        "routing and values",
        r"z_{lh} \leftarrow \sum_j A^{\text{cut}}_{lh}(q, j)\, v^{\text{full}}_{lh,j} \;\text{(routing)}, \qquad "
        r"\sum_j A^{\text{full}}_{lh}(q, j)\, v^{\text{cut}}_{lh,j} \;\text{(values)}",
        "Output of the chosen heads at the target with the attention, or the values, of a run in which no "
        "demonstration attends to another. The loss is the decrease of the right answer's logit above the "
        "others; its test weights all classes equally and compares with random heads of the same layers.",
        PAPER,
    ),
    Definition(
        "effect of a part",
        r"d(p) - d\Big(p \,\Big|\, z_{lh} \leftarrow z_{lh} - \sum_{j \in i} A_{lh}(q, j)\, v_{lh,j}\Big), "
        r"\quad d = \ell_y - \tfrac{1}{C-1} \textstyle\sum_{c \neq y} \ell_c",
        "Decrease of the right answer's logit above the others when the part of demonstration i is taken out of "
        "the chosen heads' output. Direct contributions instead read the part through the final norm, with "
        "its scale held fixed.",
    ),
    Definition(
        "fraction of the vector",
        r"\mathrm{FV}_i \cdot \mathrm{FV} \,/\, \lVert \mathrm{FV} \rVert^2",
        "Length of a part along the whole vector; the fractions of all demonstrations and the rest add up to 1.",
    ),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class FunctionVectorByDemonstrationResult(Result):
    """Parts of the chosen heads' output at the target, in prompt order, and their effects on the answer.

    Effects are in logits of the right answer above the mean of the others.

    Attributes:
        lost: Decrease with routing, values or both from the run with demonstrations cut from each other, and
            without the demonstrations' parts.
        random: The same for draws of random heads, as many per layer.
        removed: Decrease without the part of each demonstration.
        direct: Direct contribution of each part; the rest last.
        share: Fraction of the whole vector along its direction; the rest last.
        cosine: Cosine between the sum of the demonstrations' parts and the whole vector.
        attention: Attention of the chosen heads to each demonstration, mean over heads, in both runs.
        plain: The answer's logit above the others, without any change.
        bare: The same for the query without demonstrations.
        added: Increase there with the whole vector, the demonstrations' sum, or the rest added.
        alone: Increase there with each demonstration's part added alone.
        vectors: Mean parts over prompts; the rest last.
        classes: Class that each demonstration displays.
        answers: Correct answer of each query.
        tested: Numbers of the prompts measured: all, or the half that did not choose the heads.
        heads: (layer, head) of the chosen heads.
        layer: Block to whose output vectors are added.
        labels: Names of the classes.
    """

    shows: ClassVar[tuple[str, ...]] = ("split", "demonstrations", "additivity")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[str]]] = {
        "condition": CONDITIONS,
        "vector": VECTORS,
        "run": RUNS,
    }

    lost: Float[Tensor, "batch condition"]
    random: Float[Tensor, "batch condition draw"]
    removed: Float[Tensor, "batch demo"]
    direct: Float[Tensor, "batch part"]
    share: Float[Tensor, "batch part"]
    cosine: Float[Tensor, " batch"]
    attention: Float[Tensor, "batch run demo"]
    plain: Float[Tensor, " batch"]
    bare: Float[Tensor, " batch"]
    added: Float[Tensor, "batch vector"]
    alone: Float[Tensor, "batch demo"]
    vectors: Float[Tensor, "part d_model"]
    classes: Int[Tensor, "batch demo"]
    answers: Int[Tensor, " batch"]
    tested: Int[Tensor, " batch"]
    heads: tuple[tuple[int, int], ...]
    layer: int
    labels: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Losses by condition (`lost`, `random_lost`), parts by demonstration, and effects of added vectors.

        Losses weight all classes equally, which cancels a push towards one label whatever the query is. `summed` is the
        sum of the effects of each demonstration's part added alone.
        """
        logits, demo = "logit difference", ("demo",)
        return {
            "lost": Quantity(
                ("condition",), self._even(self.lost), unit=f"decrease of the {logits}"
            ),
            "random_lost": Quantity(
                ("condition",), self._even(self.random.mean(-1)), unit=f"decrease of the {logits}"
            ),
            "removed": Quantity(demo, self.removed, unit=f"decrease of the {logits}"),
            "direct": Quantity(("part",), self.direct, unit=f"contribution to the {logits}"),
            "share": Quantity(("part",), self.share, unit="fraction of the function vector"),
            "attention": Quantity(("run", "demo"), self.attention, unit="attention"),
            "shift": Quantity(demo, self.shift, unit="change of attention"),
            "added": Quantity(("vector",), self.added, unit=f"increase of the {logits}"),
            "alone": Quantity(demo, self.alone, unit=f"increase of the {logits}"),
            "summed": Quantity((), self.alone.sum(1), unit=f"increase of the {logits}"),
            "cosine": Quantity((), self.cosine, unit="cosine"),
            "plain": Quantity((), self.plain, unit=logits),
            "bare": Quantity((), self.bare, unit=logits),
        }

    @property
    def shift(self) -> Float[Tensor, "batch demo"]:
        """Attention to each demonstration in the full run minus that with demonstrations cut from each other."""
        return self.attention[:, 0] - self.attention[:, 1]

    @property
    def prompts(self) -> int:
        """Number of prompts measured."""
        return len(self.lost)

    @property
    def count(self) -> int:
        """Number of demonstrations."""
        return self.removed.shape[1]

    @property
    def of_class(self) -> Bool[Tensor, "batch demo"]:
        """True for demonstrations that display the query's class."""
        return self.classes == self.answers[:, None]

    @kept
    def same_class(self) -> Interval | None:
        """Effect of demonstrations of the query's class minus that of the others; None if no prompt has both."""
        return above_other_classes(self.removed, self.of_class)

    @kept
    def recency(self) -> Interval:
        """Effect of the later half of the demonstrations minus that of the earlier half, per demonstration."""
        half = self.count // 2
        return mean_interval(self.removed[:, -half:].mean(1) - self.removed[:, :half].mean(1))

    @property
    def largest(self) -> Largest:
        """The demonstration whose part has the largest mean effect."""
        demo = int(self.removed.double().mean(0).argmax())
        return Largest(self.count - demo, self.interval("removed", demo=demo))

    @kept
    def beside_random(self, condition: str) -> Interval | None:
        """Loss minus that of random heads, see `beyond_draws`; None with fewer than two draws."""
        place = CONDITIONS.index(condition)
        return beyond_draws(self._even(self.lost)[:, place], self._even(self.random)[:, place])

    @kept
    def routing_above_values(self) -> Interval:
        """Loss of routing minus loss of values, all classes weighted equally."""
        routing, values = self._even(self.lost)[:, :2].unbind(1)
        return mean_interval(routing - values)

    def _even(self, values: Tensor) -> Tensor:
        """Values multiplied so that their mean gives each class the same weight."""
        if not self.labels:
            return values.double()
        classes, place, counts = self.answers.unique(return_inverse=True, return_counts=True)
        weights = (len(values) / len(classes) / counts.double())[place]
        even: Tensor = values.double() * weights.reshape(-1, *[1] * (values.ndim - 1))
        return even

    def carries(self, condition: str) -> Status:
        """Status of the claim that `routing` (or `values`) carries what contextualisation adds.

        Its loss is above 0, above that of random heads, and above the loss of the other.

        Raises:
            ResultError: see `judged`.
        """
        above = self.routing_above_values()
        return jointly(
            judged(self.interval("lost", condition=condition), prompts=self.prompts),
            judged(self.beside_random(condition), prompts=self.prompts),
            judged(above, rising=condition == "routing", prompts=self.prompts),
        )

    @property
    def status(self) -> Status:
        """Status of the claim that routing carries what contextualisation adds; opposite: values do."""
        routing, values = self.carries("routing"), self.carries("values")
        if "cannot be judged" in (routing, values):
            return "cannot be judged"
        if values == "supported":
            return "opposite"
        return "supported" if routing == "supported" else "not shown"

    def on_page(self) -> tuple[str, ...]:
        """All figures."""
        return self.shows


@dataclass(frozen=True)
class FunctionVectorByDemonstration(Measurement[FunctionVectorByDemonstrationResult]):
    """Parts of the function vector by demonstration, their effects, and the split into routing and values.

    Costs two passes each over the prompts and over the prompts with demonstrations cut from each other, and one token
    of every prompt for each effect; choosing the heads costs a `head_mediation` on half of the prompts.

    Attributes:
        heads: The chosen heads, selected on prompts that are not measured here. None: the `k` heads with the largest
            mean effect on the logit difference (`head_mediation`) on a half of the prompts with true and with shuffled
            label words; the other half is measured.
        k: Number of heads that are chosen.
        mean: Mean outputs by which they are chosen, see `head_mediation`: over `all` queries as published, or those of
            the same `class`, which also chooses heads whose output depends on the query; None: `class` where prompts
            have classes.
        layer: Block to whose output vectors are added in queries without demonstrations; None: a third of the way
            through the model.
        draws: Number of draws of random heads.
        seed: Seed of the halves, the shuffled label words and the draws.

    Raises:
        PromptError: prompts without answers, text roles or two demonstrations, or with different numbers of them;
            queries of one class, or all alike; with heads=None also a repeated query, or label words that cannot be
            shuffled.
        RunError: processed weights, a model that normalises the sum of its heads, heads or layers it does not have.

    Source: arXiv 2605.16591.
    """

    heads: Heads | None = None
    k: Count = 5
    mean: MeanOver | None = None
    layer: Natural | None = None
    draws: Count = 10
    seed: Natural = 0

    takes = ("classes", "choices")
    why_not = "it compares the right answer with others"

    def filled(self, model: LanguageModel, data: PromptBatch) -> "FunctionVectorByDemonstration":
        """A copy with the default layer and means."""
        layer = model.info.n_layers // 3 if self.layer is None else self.layer
        return replace(
            self, layer=layer, mean=self.mean or ("class" if data.has_classes else "all")
        )

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts and models without parts by demonstration, and heads or layers that do not exist.

        Raises:
            PromptError: says what is missing.
            RunError: see `check_parted`; heads or layers the model does not have, or too many heads.
        """
        what, info = "function_vector_by_demonstration", model.info
        check_parted(model, data, what)
        _ = of_other_queries(data)
        check_several_classes(data)
        check_layers([self._layer], info, what)
        if self.heads is None:
            pair, tested = halves_of(model, data, self.seed)
            self._choosing.check(model, pair)
            _ = of_other_queries(data[tested.tolist()])
        elif not self.heads or len(set(self.heads)) < len(self.heads):
            raise RunError(f"heads={list(self.heads)} must name at least one head, and each once.")
        count = self.k if self.heads is None else len(self.heads)
        chosen = self.heads or [divmod(place, info.n_heads) for place in range(count)]
        _ = random_heads(chosen, (info.n_layers, info.n_heads), 0)

    @property
    def _layer(self) -> int:
        assert self.layer is not None
        return self.layer

    @property
    def _choosing(self) -> HeadMediation:
        assert self.mean is not None
        return HeadMediation(self.mean)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """None at once: each depends on the values of earlier ones, see `steps`."""
        return []

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[FunctionVectorByDemonstrationResult]:
        """Choose heads, read attention and values in both runs, then run the model on from recombined outputs."""
        heads, tested, shape = self.heads, torch.arange(len(data)), model.info
        if heads is None:
            pair, tested = halves_of(model, data, self.seed)
            mediation = yield from self._choosing.steps(model, pair, options)
            heads = mediation.top(self.k, "difference")
        prompts, cut = data[tested.tolist()], [Cut("units", "units", "others")]
        bare = bare_queries(model, prompts)
        drawn = random_heads(heads, (shape.n_layers, shape.n_heads), self.draws, self.seed)
        sets = [tuple((layer, head) for layer, head in members) for members in (heads, *drawn)]
        every = tuple(dict.fromkeys(head for members in sets for head in members))
        rows = TargetRowReading(every, prompts.targets)
        (full, outputs, scale), (apart,), (residual,) = yield [
            Pass(prompts, [rows, _rows("z", [layer for layer, _ in every], prompts), FinalScale()]),
            Pass(prompts, [rows], cut, title="demonstrations cut"),
            Pass(bare, [_rows("resid_post", [self._layer], bare)], title="zero-shot"),
        ]
        members = of_demonstrations(prompts, full.shape[-1])
        reading = PartsReading(every, (full, apart), members)
        (of_full,), (of_cut,) = yield [
            Pass(prompts, [reading], title="values"),
            Pass(prompts, [reading], cut, title="values, demonstrations cut"),
        ]
        made = Outputs.of(every, of_full, of_cut)
        made.check(outputs, model)
        written = made.written(model, sets[0])
        changes = [change for members in sets for change in made.changes(members)]
        means = of_other_queries(prompts) @ written.double().flatten(1)
        means = means.unflatten(1, written.shape[1:]).to(written.dtype)
        parts = means[:, :-1]
        vectors = [means.sum(1), parts.sum(1), means[:, -1], *parts.unbind(1)]
        entered = residual[Site("resid_post", self._layer)]
        added = [
            Patch(
                "resid_post", layers=[self._layer], values=(entered + vector[:, None])[:, :, None]
            )
            for vector in vectors
        ]
        answers, zero = yield [
            Variants(
                prompts,
                [AnswerReading()],
                title="effects",
                variants=[[], *changes, *made.removals(sets[0])],
            ),
            Variants(
                bare, [AnswerReading()], title="vectors", variants=[[], *([p] for p in added)]
            ),
        ]
        attention = torch.stack([full, apart], 1)[:, :, : len(sets[0])].double().mean(2)
        read = [prompts, tested, sets, written, scale, members, attention, answers, zero]
        return self.result(model, data, read)

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> FunctionVectorByDemonstrationResult:
        """Effects as differences from the unchanged runs, and the parts' size, direction and direct contribution."""
        prompts, tested, sets, written, scale, members, attention, runs, zero = read
        answers = prompts.answers
        (plain, changed), (bare, added) = (
            (values[:, 0], values[:, 1:])
            for values in (
                torch.stack([run.difference(answers) for (run,) in side], dim=1)
                for side in (runs, zero)
            )
        )
        lost, gained = plain[:, None] - changed, added - bare[:, None]
        of_sets = lost[:, : len(sets) * len(CONDITIONS)].unflatten(1, (-1, len(CONDITIONS)))
        written = written.double()
        whole, demonstrations = written.sum(1), written[:, :-1].sum(1)
        logits = label_logits_of(model, written.float(), scale, prompts)
        direct = torch.stack([above_others(part, answers) for part in logits.double().unbind(1)], 1)
        return FunctionVectorByDemonstrationResult(
            lost=of_sets[:, 0].contiguous(),
            random=of_sets[:, 1:].transpose(1, 2).contiguous(),
            removed=lost[:, len(sets) * len(CONDITIONS) :].contiguous(),
            direct=direct,
            share=torch.einsum("bpd,bd->bp", written, whole) / whole.square().sum(1, keepdim=True),
            cosine=torch.cosine_similarity(demonstrations, whole, dim=1),
            attention=torch.einsum("brs,bds->brd", attention, members[..., : attention.shape[-1]]),
            plain=plain.contiguous(),
            bare=bare.contiguous(),
            added=gained[:, : len(VECTORS)].contiguous(),
            alone=gained[:, len(VECTORS) :].contiguous(),
            vectors=written.mean(0).float(),
            classes=prompts.label_classes,
            answers=answers,
            tested=tested,
            heads=sets[0],
            layer=self._layer,
            labels=data.labels if data.has_classes else (),
        )


def _rows(name: SiteName, layers: Sequence[int], prompts: PromptBatch) -> RowsReading:
    """Activations at the target."""
    sites = [Site(name, layer) for layer in sorted(set(layers))]
    return RowsReading(sites, prompts.targets[:, None], only_target=True)


function_vector_by_demonstration = door(
    FunctionVectorByDemonstration,
    "function_vector_by_demonstration",
    prompts="Prompts with answers and the same number of demonstrations each, at least two.",
    interventions=(
        "Applied in every pass; those that depend on the index of a prompt raise an error."
    ),
)
