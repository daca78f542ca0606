"""Task recognition and task learning heads: heads that point into the label words' span, and to the right label in it.

Heads are scored by their output at the target (see `label_span`). On half of the prompts we choose the `top` heads by
learning above its control, then the `top` of the others by recognition above its control: an output that points to the
right label lies in the span as well, so a head that is among the first by both goes to learning. On the other half each
set is ablated at the target:

* *learning*: accuracy among the label words falls, more than without random heads of the same layers, and more than
  with the same demonstrations under shuffled labels (a head that reads the query alone costs as much there);
* *recognition*: the probability outside the label words rises, more than without random heads, and more than in the same
  query without demonstrations.

Each claim needs something to lose: accuracy above the majority-class baseline, and less probability outside the label
words than without demonstrations. At least `LEAST` of that must go with the heads.

Source: Yang, Cho and Inoue 2025, arXiv 2509.24164; controls, baselines and the test on other prompts are ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import RunError
from icl_mech.interventions import ZeroHeads
from icl_mech.interventions.zeroing import Kind
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, Answers, check_answers
from icl_mech.measurements.causal.compare_heads import Sets
from icl_mech.measurements.causal.head_maps import FAMILY, Head, clear_heads, ordered
from icl_mech.measurements.demonstrations import (
    check_demonstrations,
    two_parts,
    without_demonstrations,
)
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.measurements.heads.head_sets import SHARED, Overlap, overlaps
from icl_mech.measurements.heads.label_span import (
    LEARNING,
    RECOGNITION,
    LabelSpanReading,
    Null,
    SpanScores,
    SpanVariant,
)
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics import Interval, mean_ends, mean_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.models import LanguageModel, ModelInfo
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.rewriting import shuffled, zero_shot
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.judging import CHANCE, Status, jointly, judged
from icl_mech.results.quantities import kept

TaskSet = Literal["recognition", "learning"]
SETS: tuple[TaskSet, ...] = ("recognition", "learning")
CONDITIONS = ("none", *SETS)
CONTEXT: dict[TaskSet, str] = {"recognition": "zero_shot", "learning": "shuffled"}
"""Context in which a set should change less."""

LEAST = 0.1
"""Smallest fraction of what there is to lose that must be lost without a set."""

TOP = 5

ABLATED = Definition(
    "ablation of task heads",
    r"\Delta_S = \frac{1}{N} \sum_n m(x_n \mid z_S \leftarrow 0) - m(x_n)",
    "The heads S that one score chose on other prompts are ablated at the last token. For learning "
    "heads m is 1 where the true label word has the largest logit among the label words, for "
    "recognition heads the probability outside the label words, one minus their sum.",
)

Scored = Float[Tensor, "batch layer head"]
Measured = Float[Tensor, "batch context condition"]


class Effects(NamedTuple):
    """Effects of ablating a set of heads on the measure that defines it; recognition heads should raise it, learning heads lower it.

    Attributes:
        change: Change with demonstrations.
        beyond_random: The same minus that without random heads; None with a single draw.
        beyond_context: The same minus that without demonstrations (recognition) or with shuffled labels (learning); None
            where these cannot be built.
        room: How much there is to lose, see `TaskHeadsResult.room`; None likewise.
        enough: Loss minus `LEAST` of it.
    """

    change: Interval
    beyond_random: Interval | None
    beyond_context: Interval | None
    room: Interval | None
    enough: Interval | None


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskHeadsResult(Result):
    """Scores of every head, and effects of ablating the best, on the prompts that did not choose them.

    Attributes:
        recognition: Fraction of each head's output inside the label words' span.
        random_recognition: The same for spans of random directions, averaged over the draws.
        learning: Cosine of the projected output with the direction of the right label.
        blind_learning: The same towards each class, weighted by how many queries have it.
        random_draws: Mean over prompts of recognition for every draw of random directions.
        right: 1 where the right label word has the largest logit, by context and ablated set.
        outside: Probability outside the label words, likewise.
        random_right: `right` without random heads of each set's layers, with demonstrations.
        random_outside: `outside` likewise.
        contexts: `demonstrations`, and of `zero_shot` and `shuffled` those that could be built.
        heads: (layer, head) of each set, best first.
        shared: Heads that were among the first by both scores, and went to learning.
        chosen_on: Number of prompts that chose the heads.
        answers: True class of each query.
        labels: Names of the classes.
        other_names: Names of the other sets of heads.
        others: (layer, head) of each of these.
        random_tokens: True if random directions are those of tokens, False if they are Gaussian.
        notes: Reasons why a context is missing.
    """

    shows: ClassVar[tuple[str, ...]] = ("scores", "ablation", "map", "overlap")
    definitions: ClassVar[tuple[Definition, ...]] = (
        *(RECOGNITION, LEARNING, FAMILY),
        *(ABLATED, SHARED),
    )
    axis_labels: ClassVar[Mapping[str, Any]] = {
        "context": "contexts",
        "condition": CONDITIONS,
        "set": SETS,
    }

    recognition: Scored = quantity("fraction of the output in the label words' span")
    random_recognition: Scored = quantity("fraction in the span of random directions")
    learning: Scored = quantity("cosine with the right label's direction")
    blind_learning: Scored = quantity("cosine with the directions of all queries' labels")
    random_draws: Float[Tensor, "direction layer head"]
    right: Measured
    outside: Measured
    random_right: Float[Tensor, "batch set draw"]
    random_outside: Float[Tensor, "batch set draw"]
    contexts: tuple[str, ...]
    heads: tuple[tuple[Head, ...], ...]
    shared: tuple[Head, ...]
    chosen_on: int
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...]
    other_names: tuple[str, ...] = ()
    others: tuple[tuple[Head, ...], ...] = ()
    random_tokens: bool = True
    notes: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Scores, their excess over the controls, both measures by context and ablated set, and their changes."""
        above = {
            "recognition_above": self.recognition - self.random_recognition,
            "learning_above": self.learning - self.blind_learning,
        }
        units = {"right": "fraction of right answers", "outside": "probability outside label words"}
        measures = {"right": self.right, "outside": self.outside}
        random = {"right": self.random_right, "outside": self.random_outside}
        dims, changed = ("context", "condition"), ("context", "set")
        return {
            **super().quantities(),
            **{
                name: Quantity(("layer", "head"), values, unit="score minus its control")
                for name, values in above.items()
            },
            **{
                name: Quantity(dims, values, unit=units[name], kind="outcome")
                for name, values in measures.items()
            },
            **{
                f"{name}_change": Quantity(
                    changed, values[..., 1:] - values[..., :1], None, f"change of the {units[name]}",
                    kind="change",
                )
                for name, values in measures.items()
            },
            **{
                f"random_{name}_change": Quantity(
                    ("set",), values.mean(-1) - measures[name][:, 0, :1], None,
                    f"change of the {units[name]}", kind="change",
                )
                for name, values in random.items()
            },
        }  # fmt: skip

    # --- scores ---

    @kept
    def recognising(self) -> tuple[Head, ...]:
        """Heads whose recognition exceeds that of random directions, largest first; a joint statement about all heads.

        For other prompts: clear as in `clear_heads`. For other directions: the head's distance from the mean of all
        draws, in standard deviations, is exceeded by the largest one of any head in at most 2.5 % of the draws (the
        label words count as one more draw).
        """
        every = torch.cat([self.recognition.double().mean(0)[None], self.random_draws.double()])
        spread = every.std(0, correction=1)
        far = (every - every.mean(0)) / spread.clamp(min=1e-12)
        largest = far.flatten(1).amax(1)
        rare = (largest[:, None, None] >= far[0]).double().mean(0) <= CHANCE
        above = clear_heads(self.recognition - self.random_recognition)
        return tuple(head for head in above if bool(rare[head]))

    @kept
    def teaching(self) -> tuple[Head, ...]:
        """Heads whose learning exceeds its control, largest first; a joint statement about all heads."""
        return clear_heads(self.learning - self.blind_learning)

    def of(self, name: TaskSet) -> tuple[Head, ...]:
        """The heads of a set."""
        return self.heads[SETS.index(name)]

    @property
    def beside(self) -> dict[str, tuple[Head, ...]]:
        """The other sets of heads by name."""
        return dict(zip(self.other_names, self.others, strict=True))

    @property
    def sets(self) -> dict[str, tuple[Head, ...]]:
        """All sets of heads by name, the two of this measurement first."""
        return {f"task {name}": self.of(name) for name in SETS} | self.beside

    @property
    @kept
    def overlaps(self) -> tuple[Overlap, ...]:
        """Heads that each of the two sets shares with the other sets, compared with chance."""
        pairs = [(f"task {name}", other) for other, name in product(self.beside, SETS)]
        return overlaps(self.sets, pairs, self.recognition[0].numel())

    @property
    def beyond_chance(self) -> tuple[Overlap, ...]:
        """Overlaps that exceed chance."""
        return tuple(overlap for overlap in self.overlaps if overlap.beyond)

    # --- effects ---

    @cached_property
    def room(self) -> dict[TaskSet, Float[Tensor, " batch"] | None]:
        """What there is to lose, by prompt: accuracy above the majority-class baseline, and how much less probability lies outside the label words than without demonstrations."""
        constant = self.answers.bincount().max() / len(self.answers)
        bare = self._context("zero_shot")
        return {
            "recognition": None if bare is None else self.outside[:, bare, 0] - self.outside[:, 0, 0],
            "learning": self.right[:, 0, 0] - constant,
        }  # fmt: skip

    def has_room(self, name: TaskSet) -> bool:
        """True if there clearly is something to lose; for recognition, `LEAST` of the probability outside without demonstrations."""
        room, bare = self.room[name], self._context("zero_shot")
        if room is None:
            return False
        if name == "recognition":
            room = room - LEAST * self.outside[:, bare, 0]
        return judged(mean_interval(room), prompts=self.count) == "supported"

    def _context(self, name: str) -> int | None:
        return self.contexts.index(name) if name in self.contexts else None

    @kept
    def effects(self, name: TaskSet) -> Effects:
        """Effects of ablating a set of heads."""
        values, random = {
            "recognition": (self.outside, self.random_outside),
            "learning": (self.right, self.random_right),
        }[name]
        place, room = SETS.index(name), self.room[name]
        changes = values[..., 1 + place] - values[..., 0]
        other = self._context(CONTEXT[name])
        loss = changes[:, 0] if name == "recognition" else -changes[:, 0]
        return Effects(
            mean_interval(changes[:, 0], "change"),
            beyond_draws(values[:, 0, 1 + place], random[:, place], "change"),
            None if other is None else mean_interval(changes[:, 0] - changes[:, other], "contrast"),
            None if room is None else mean_interval(room),
            None if room is None else mean_interval(loss - LEAST * room),
        )

    @kept
    def status_of(self, name: TaskSet) -> Status:
        """Status of the claim on a set of heads.

        Cannot be judged where there is nothing to lose, or where a comparison is missing. *Present, not used*: the effect
        is clear but clearly below `LEAST` of what there is to lose.
        """
        effects = self.effects(name)
        if not self.has_room(name):
            return "cannot be judged"
        status = jointly(
            *(
                judged(effect, rising=name == "recognition", prompts=self.count)
                for effect in effects[:3]
            )
        )
        if status != "supported":
            return status
        enough = judged(effects.enough, prompts=self.count)
        return "present, not used" if enough == "opposite" else enough

    # --- facts ---

    @property
    def count(self) -> int:
        """Number of prompts that did not choose the heads."""
        return len(self.right)

    @property
    def n_heads(self) -> int:
        """Number of heads of the model."""
        return self.recognition[0].numel()

    def on_page(self) -> tuple[str, ...]:
        """Scores, ablation, the map, and the overlap with other sets."""
        return self.shows if self.beside else self.shows[:-1]


class _Contexts(NamedTuple):
    """Prompts in which heads are ablated.

    Attributes:
        prompts: By name, those with demonstrations first.
        notes: Why one is missing.
    """

    prompts: dict[str, PromptBatch]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TaskHeads(Measurement[TaskHeadsResult]):
    """Heads that recognise the task and heads that learn it, chosen on half of the prompts and ablated on the other.

    Costs one pass over the prompts and, for each half-size context, one token per prompt for every ablation: both sets in
    three contexts, and `draws` of random heads for each set.

    Attributes:
        top: Number of heads in each set; None: five, or a quarter of the heads if that is less.
        kind: What replaces an ablated head's output, see `ZeroHeads`.
        draws: Number of random draws of heads for each set.
        directions: Number of random draws of directions; at least 39 to name heads beyond them.
        null: Random directions: those of random `tokens`, or `gaussian` vectors.
        variant: `sound`: relative to the head's size, through the final norm; `reference`: the published scores.
        beside: Other sets of heads by name, with which the two are compared.
        seed: Seed of the halves, the draws and the shuffled labels.

    Raises:
        PromptError: prompts without demonstrations or answers, repeated queries, or queries of one class.
        RunError: processed weights, too few heads, as many classes as the residual stream is wide, heads that do not exist.

    Source: Yang, Cho and Inoue 2025.
    """

    top: Count | None = None
    kind: Kind = "zero_output"
    draws: Count = 20
    directions: Count = 99
    null: Null = "tokens"
    variant: SpanVariant = "sound"
    beside: Sets = field(default_factory=dict)
    seed: Natural = 0

    why_not = "the label words of all prompts must span one subspace"

    def filled(self, model: LanguageModel, data: PromptBatch) -> "TaskHeads":
        """With the number of heads filled in."""
        total = model.info.n_layers * model.info.n_heads
        return self if self.top else replace(self, top=max(1, min(TOP, total // 4)))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts and models for which the scores are not defined, and sets without a control.

        Raises:
            PromptError: prompts without demonstrations or answers, repeated queries, or queries of one class.
            RunError: see the class.
        """
        check_answers(data, "task_heads")
        check_demonstrations(data, "task_heads")
        check_own_weights(model, "task_heads")
        two_parts(data, self.seed)
        info, top = model.info, self._top(model, data)
        if data.n_labels >= info.d_model:
            raise RunError(
                f"The {data.n_labels} label words span the whole residual stream of {info.name!r} "
                f"(width {info.d_model}), so every head would recognise the task; use fewer classes."
            )
        if 3 * top > info.n_layers * info.n_heads:
            raise RunError(
                f"Two sets of top={top} heads and as many random heads do not fit into the "
                f"{info.n_layers * info.n_heads} heads of {info.name!r}; use a smaller top."
            )
        if self.variant == "reference" and any(
            model.attention_norm(layer) is not None for layer in range(info.n_layers)
        ):
            raise RunError(
                f"The published scores depend on the size of each head's output, but {info.name!r} "
                "normalises the sum of all heads; use variant='sound'."
            )
        for heads in self.beside.values():
            ZeroHeads(heads).check(info)

    def _top(self, model: LanguageModel, data: PromptBatch) -> int:
        top = self.filled(model, data).top
        assert top is not None
        return top

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Scores on both halves; the ablations follow from those of the first."""
        reading = LabelSpanReading(self.directions, self.seed, self.null, self.variant)
        titles = ("choose heads", "scores of heads")
        parts = two_parts(data, self.seed)
        return [
            Pass(data[part], [reading], title=title)
            for part, title in zip(parts, titles, strict=True)
        ]

    def _contexts(self, model: LanguageModel, testing: PromptBatch) -> _Contexts:
        """The tested prompts, their queries alone, and the same demonstrations with shuffled labels."""
        bare, order = (
            zero_shot(testing, model.tokenizer),
            shuffled(testing, model.tokenizer, self.seed),
        )
        alone = bare.prompts or without_demonstrations(testing)
        prompts, notes = {"demonstrations": testing}, []
        for name, batch, why_not in (
            ("zero_shot", alone, bare.why_not),
            ("shuffled", order.prompts, order.why_not),
        ):
            if batch is None:
                notes.append(f"There are no {name.replace('_', '-')} prompts ({why_not}).")
            else:
                prompts[name] = batch
        return _Contexts(prompts, tuple(notes))

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[TaskHeadsResult]:
        """Scores on both halves, then ablations of the heads that the first half chose."""
        scores = yield self.passes(model, data)
        choosing, testing = (data[part] for part in two_parts(data, self.seed))
        ((chosen_by,), _) = scores
        sets, _ = self._chosen(model, choosing, chosen_by)
        random = [heads for drawn in self._drawn(model.info, sets) for heads in drawn]
        ablated = yield [
            Variants(
                prompts,
                [AnswerReading()],
                title="ablations",
                variants=[
                    [ZeroHeads(heads, kind=self.kind)] if heads else []
                    for heads in ((), *sets, *(random if name == "demonstrations" else ()))
                ],
            )
            for name, prompts in self._contexts(model, testing).prompts.items()
        ]
        return self.result(model, data, [*scores, ablated])

    def _chosen(
        self, model: LanguageModel, prompts: PromptBatch, scores: SpanScores
    ) -> tuple[list[tuple[Head, ...]], tuple[Head, ...]]:
        """Both sets, and the heads that were among the first by both scores."""
        top = self._top(model, prompts)
        learning, blind = right_and_blind(scores.towards, prompts.answers)
        by_learning = _first(learning - blind)
        recognition, random = scores.recognition.double(), scores.random.double()
        rank = (random.mean(0) >= recognition.mean(0)[..., None]).double().mean(-1)
        by_recognition = [
            head for head in _first(recognition - random.mean(-1)) if float(rank[head]) <= CHANCE
        ]
        of_learning = by_learning[:top]
        of_recognition = [head for head in by_recognition if head not in of_learning][:top]
        shared = tuple(head for head in of_learning if head in by_recognition[:top])
        return [tuple(of_recognition), tuple(of_learning)], shared

    def _drawn(self, info: ModelInfo, sets: list[tuple[Head, ...]]) -> list[list[list[Head]]]:
        """Random heads of each set's layers that are in neither set."""
        shape = (info.n_layers, info.n_heads)
        return [
            random_heads(heads, shape, self.draws, self.seed + number, without=other)
            for number, (heads, other) in enumerate(zip(sets, sets[::-1], strict=True))
        ]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> TaskHeadsResult:
        """Scores, and both measures in every context under every ablation."""
        ((chosen_by,), (scores,), ablated) = read
        choosing, testing = (data[part] for part in two_parts(data, self.seed))
        sets, shared = self._chosen(model, choosing, chosen_by)
        learning, blind = right_and_blind(scores.towards, testing.answers)
        contexts = self._contexts(model, testing)
        right, outside = (
            [torch.stack([measure(run, testing) for (run,) in runs], dim=1) for runs in ablated]
            for measure in (_right, _outside)
        )
        kept_runs = 1 + len(SETS)
        return TaskHeadsResult(
            recognition=scores.recognition,
            random_recognition=scores.random.mean(-1),
            learning=learning,
            blind_learning=blind,
            random_draws=scores.random.double().mean(0).movedim(-1, 0),
            right=torch.stack([runs[:, :kept_runs] for runs in right], dim=1),
            outside=torch.stack([runs[:, :kept_runs] for runs in outside], dim=1),
            random_right=right[0][:, kept_runs:].unflatten(1, (len(SETS), self.draws)),
            random_outside=outside[0][:, kept_runs:].unflatten(1, (len(SETS), self.draws)),
            contexts=tuple(contexts.prompts),
            heads=tuple(sets),
            shared=shared,
            chosen_on=len(choosing),
            answers=testing.answers,
            labels=testing.labels,
            other_names=tuple(self.beside),
            others=tuple(map(tuple, self.beside.values())),
            random_tokens=self.null == "tokens",
            notes=contexts.notes,
        )


def _first(above: Scored) -> list[Head]:
    """Heads whose mean excess over the control lies above 0 (pointwise interval over prompts), largest first."""
    low, _ = mean_ends(above.double())
    return [head for head in ordered(above.double().mean(0), low.numel()) if float(low[head]) > 0]


def right_and_blind(
    towards: Float[Tensor, "batch layer head label"], answers: Int[Tensor, " batch"]
) -> tuple[Scored, Scored]:
    """Learning towards the right class, and towards the classes of all queries: the mean over exchanged answers."""
    right = towards[torch.arange(len(answers)), :, :, answers]
    frequency = answers.bincount(minlength=towards.shape[-1]) / len(answers)
    return right, towards @ frequency.to(towards.dtype)


def _right(run: Answers, prompts: PromptBatch) -> Float[Tensor, " batch"]:
    return (run.label_logits.argmax(-1) == prompts.answers).double()


def _outside(run: Answers, prompts: PromptBatch) -> Float[Tensor, " batch"]:
    inside = (run.label_logits.double().logsumexp(-1) - run.log_sum.double()).exp()
    return 1 - inside.clamp(max=1.0)


task_heads = door(
    TaskHeads,
    "task_heads",
    prompts="With demonstrations and answers: half of them choose heads, the others test them.",
)
