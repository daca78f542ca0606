"""The claims on task heads: scores of every head, and what ablating the best changes on prompts that did not choose them.

* *Learning heads*: accuracy among the label words falls, more than without random heads of the same layers; and more
  than with the same demonstrations under shuffled labels (a head that reads the query alone costs as much there);
* *recognition heads*: the probability outside the label words rises, more than without random heads; and more than in
  the same query without demonstrations.

Contexts are compared in nats: of the right label word among the label words, and of all label words together. Accuracy
near chance can hardly fall, and a probability near 1 hardly rise, so that on these scales a head that costs as much in
both contexts would pass.

Each claim needs something to lose: accuracy above the majority-class baseline, and less probability outside the label
words than without demonstrations. At least `LEAST` of that must go with the heads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.causal.head_maps import FAMILY, Head, clear_heads
from icl_mech.measurements.heads.head_sets import SHARED, Overlap, overlaps
from icl_mech.measurements.heads.label_span import LEARNING, RECOGNITION
from icl_mech.measurements.heads.task_sets import Scored
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.judging import CHANCE, FEWEST_PROMPTS, Status, jointly, judged
from icl_mech.results.quantities import kept

TaskSet = Literal["recognition", "learning"]
SETS: tuple[TaskSet, ...] = ("recognition", "learning")
CONDITIONS = ("none", *SETS)
CONTEXT: dict[TaskSet, str] = {"recognition": "zero_shot", "learning": "shuffled"}
"""Context in which a set should change less."""

LEAST = 0.1
"""Smallest fraction of what there is to lose that must be lost without a set."""

ABLATED = Definition(
    "ablation of task heads",
    r"\Delta_S = \frac{1}{N} \sum_n m(x_n \mid z_S \leftarrow 0) - m(x_n)",
    "The heads S that one score chose on other prompts are ablated at the last token. For learning "
    "heads m is 1 where the true label word has the largest logit among the label words, for "
    "recognition heads the probability outside the label words, one minus their sum. Compared with "
    "another context, m is the log-probability of the true label word among the label words, or minus "
    "the log of the label words' probability (nats).",
)

Measured = Float[Tensor, "batch context condition"]


class Effects(NamedTuple):
    """Effects of ablating a set of heads on the measure that defines it; recognition heads should raise it, learning heads lower it.

    Attributes:
        change: Change with demonstrations.
        beyond_random: The same minus that without random heads; None with a single draw.
        beyond_context: Change in nats, minus that without demonstrations (recognition: of minus the log of the label words'
            probability) or with shuffled labels (learning: of the right label word's log-probability among them); None where
            these cannot be built.
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
        log_right: Log-probability of the right label word among the label words (nats), likewise; None in results saved
            before it was: learning is compared with shuffled labels by `right` there.
        log_inside: Log of the label words' probability (nats), likewise; None in results saved before it was: computed
            from `outside` there.
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
    log_right: Measured | None = None
    log_inside: Measured | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Scores, their excess over the controls, both measures by context and ablated set, and their changes."""
        right, outside = "fraction of right answers", "probability outside label words"
        quantities = super().quantities()
        for name, above in (
            ("recognition_above", self.recognition - self.random_recognition),
            ("learning_above", self.learning - self.blind_learning),
        ):
            quantities[name] = Quantity(("layer", "head"), above, unit="score minus its control")
        for name, values, random, unit in (
            ("right", self.right, self.random_right, right),
            ("outside", self.outside, self.random_outside, outside),
        ):
            change, by_draw = values[..., 1:] - values[..., :1], random - values[:, :1, :1]
            more: dict[str, Any] = {"unit": f"change of the {unit}", "kind": "change"}
            quantities |= {
                name: Quantity(("context", "condition"), values, unit=unit, kind="outcome"),
                f"{name}_change": Quantity(("context", "set"), change, **more),
                f"random_{name}_change": Quantity(("set",), by_draw.mean(-1), **more),
            }
        return quantities

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

    @checked(ResultError)
    def of(self, name: TaskSet) -> tuple[Head, ...]:
        """The heads of a set.

        Raises:
            ResultError: no such set.
        """
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
        plain = self.outside[..., 0]
        return {
            "recognition": None if bare is None else plain[:, bare] - plain[:, 0],
            "learning": self.right[:, 0, 0] - constant,
        }

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

    def _in_nats(self, name: TaskSet) -> Measured:
        """The measure on a scale without bounds, on which contexts are compared."""
        if name == "learning":
            return self.right if self.log_right is None else self.log_right
        if self.log_inside is None:
            return -torch.log1p(-self.outside.double().clamp(max=1 - 1e-15))
        return -self.log_inside

    @checked(ResultError)
    @kept
    def effects(self, name: TaskSet) -> Effects:
        """Effects of ablating a set of heads.

        Raises:
            ResultError: no such set.
        """
        values, random = {
            "recognition": (self.outside, self.random_outside),
            "learning": (self.right, self.random_right),
        }[name]
        place, room = SETS.index(name), self.room[name]
        changes, nats = (
            each[..., 1 + place] - each[..., 0] for each in (values, self._in_nats(name))
        )
        other = self._context(CONTEXT[name])
        loss = changes[:, 0] if name == "recognition" else -changes[:, 0]
        return Effects(
            mean_interval(changes[:, 0], "change"),
            beyond_draws(values[:, 0, 1 + place], random[:, place], "change"),
            None if other is None else mean_interval(nats[:, 0] - nats[:, other]),
            None if room is None else mean_interval(room),
            None if room is None else mean_interval(loss - LEAST * room),
        )

    @checked(ResultError)
    @kept
    def status_of(self, name: TaskSet) -> Status:
        """Status of the claim on a set of heads.

        Cannot be judged where there is nothing to lose, or where a comparison is missing. *Present, not used*: the effect
        is clear but clearly below `LEAST` of what there is to lose.

        Raises:
            ResultError: no such set.
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
    def too_few(self) -> bool:
        """True if there are too few prompts for a conclusion."""
        return self.count < FEWEST_PROMPTS

    @property
    def n_heads(self) -> int:
        """Number of heads of the model."""
        return self.recognition[0].numel()

    def on_page(self) -> tuple[str, ...]:
        """Scores, ablation, the map, and the overlap with other sets."""
        return self.shows if self.beside else self.shows[:-1]
