"""Comparison of sets of heads: which heads they have in common, and what each does that the others do not.

Heads are identified by many measures (prefix matching, effects, induction scores, label promoting), and the
sets overlap. *Alone* are the heads of a set that are in no other set. Ablating them changes, on every pair of
prompts, the logit difference (correct minus demonstrated false label word) and whether the answer is correct;
the control is the same change for random heads of the same layers that are in no set.

Source: Yin and Steinhardt 2025, *Which attention heads matter for in-context learning?* (ablation with
exclusion); Halawi et al. 2023, *Overthinking the Truth*, §5 (random heads).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Called, Count, Heads, Natural
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.interventions import Intervention, ZeroHeads
from icl_mech.interventions.zeroing import Kind
from icl_mech.measurements.base import Pair, PairMeasurement, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers, contrast
from icl_mech.measurements.causal.head_maps import Head, any_clear
from icl_mech.measurements.demonstrations import SIDES, check_pairs, without_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.metrics import Interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.models import LanguageModel, ModelInfo
from icl_mech.prompts import ANSWER_KINDS
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, jointly, judged
from icl_mech.results.quantities import kept

MEASURES = ("difference", "correct")

OVERLAP = Definition("overlap", r"|H_a \cap H_b|", "Number of heads that two sets have in common.")

ALONE = Definition(
    "change without a set's own heads",
    r"m(p_n \mid z_{H_a \setminus \bigcup_{b \neq a} H_b} \leftarrow 0) - m(p_n)",
    "The heads that only set a contains are ablated at the last token; m is the logit of the "
    "right label word minus that of the demonstrated false one, or whether the answer is right. "
    "The control is random heads outside all sets, as many in each layer; the interval of the "
    "difference is at least as wide as the prediction interval for one more draw.",
    "Yin and Steinhardt 2025, Which attention heads matter for in-context learning?",
)


class HeadSet(NamedTuple):
    """A set of heads, the heads that only it contains, and its random control heads."""

    name: str
    heads: tuple[Head, ...]
    alone: tuple[Head, ...]
    drawn: tuple[tuple[Head, ...], ...]


class Removal(NamedTuple):
    """Changes caused by ablating the heads that only one set contains.

    Attributes:
        name: Name of the set.
        heads: Number of its heads.
        alone: Number of its heads that are in no other set.
        change: Change of the logit difference with false demonstrations.
        true: The same change with true demonstrations.
        beyond: `change` minus that from ablating random heads; None with a single draw of them, which shows no
            spread.
    """

    name: str
    heads: int
    alone: int
    change: Interval
    true: Interval
    beyond: Interval | None

    def clear(self, pairs: int) -> bool:
        """True if `change` and `beyond` lie on one side of 0."""
        both = jointly(*(judged(effect, prompts=pairs) for effect in (self.change, self.beyond)))
        return both in ("supported", "opposite")


class Shared(NamedTuple):
    """Two sets of heads, and how many heads they share."""

    first: str
    second: str
    heads: int


@dataclass(frozen=True, eq=False, kw_only=True)
class CompareHeadsResult(Result):
    """Changes caused by ablating the heads that only one set contains, compared with random heads.

    Attributes:
        change: Change of the logit difference and of correct answers, with true and with false demonstrations;
            not-a-number for sets that have no head alone.
        random: The same change for each draw of random heads.
        plain: The values without any ablation.
        sets: Names.
        heads: (layer, head) of each set.
        alone: Heads that are in no other set.
        kind: What replaced an ablated head's output.
        draws: Number of random draws for each set.
        bare_change: Change of the logit difference in the same queries without demonstrations. None in results saved
            before it was measured, and where the queries cannot be cut out of the prompts.
        bare: The logit difference there without any ablation; None likewise.
    """

    shows: ClassVar[tuple[str, ...]] = ("ablation", "overlap")
    definitions: ClassVar[tuple[Definition, ...]] = (OVERLAP, ALONE)

    axis_labels: ClassVar[Mapping[str, str | Sequence[str]]] = {"side": SIDES, "set": "ablated"}

    change: Float[Tensor, "batch measure side set"]
    random: Float[Tensor, "batch measure side set draw"]
    plain: Float[Tensor, "batch measure side"]
    sets: tuple[str, ...]
    heads: tuple[tuple[Head, ...], ...]
    alone: tuple[tuple[Head, ...], ...]
    kind: str
    draws: int
    bare_change: Float[Tensor, "batch set"] | None = None
    bare: Float[Tensor, " batch"] | None = None

    def changes_of(self, name: str, side: str) -> Float[Tensor, " batch"] | None:
        """Change of the logit difference without the heads that only this set contains; None if there are none."""
        if name not in self.ablated:
            return None
        return self.change[
            :, MEASURES.index("difference"), SIDES.index(side), self.sets.index(name)
        ]

    @property
    def ablated(self) -> tuple[str, ...]:
        """Sets that have heads alone."""
        return tuple(name for name, alone in zip(self.sets, self.alone, strict=True) if alone)

    def quantities(self) -> dict[str, Quantity]:
        """Changes without each set's heads, and without random heads, averaged over the draws; values without ablation.

        `change`, `random` and `plain` are logit differences; `correct_change`, `random_correct_change` and
        `plain_correct` are fractions of right answers.
        """
        inside = torch.tensor([bool(alone) for alone in self.alone])
        dims, logits, right = ("side", "set"), "logit difference", "fraction right"
        quantities = {}
        if bool(inside.any()):
            change, random = self.change[..., inside], self.random[..., inside, :].mean(-1)
            quantities = {
                "change": Quantity(dims, change[:, 0], unit=f"change of the {logits}"),
                "random": Quantity(dims, random[:, 0], unit=f"change of the {logits}"),
                "correct_change": Quantity(
                    dims, change[:, 1], unit=f"change of the {right}", kind="change"
                ),
                "random_correct_change": Quantity(
                    dims, random[:, 1], unit=f"change of the {right}", kind="change"
                ),
            }
        return quantities | {
            "plain": Quantity(("side",), self.plain[:, 0], unit=logits),
            "plain_correct": Quantity(("side",), self.plain[:, 1], unit=right, kind="outcome"),
        }

    def beside_random(
        self, name: str, side: str = "false", measure: str = "difference"
    ) -> Interval | None:
        """Change without the heads that only this set contains, minus that without random heads, paired over prompts.

        The interval includes the spread of the draws, see `beyond_draws`. None for a set that has no head alone, and
        with fewer than two draws.

        Raises:
            ResultError: no such set, side or measure.
        """
        if name in self.sets and name not in self.ablated:
            return None
        self.interval("change", side=side, set=name)  # rejects unknown names
        if measure not in MEASURES:
            raise ResultError(
                f"measure={measure!r} is not available. {near_matches(measure, MEASURES)}"
            )
        m, s, place = MEASURES.index(measure), SIDES.index(side), self.sets.index(name)
        return beyond_draws(self.change[:, m, s, place], self.random[:, m, s, place])

    @property
    @kept
    def removals(self) -> tuple[Removal, ...]:
        """Effect of ablating the heads that only one set contains, for each set that has some."""
        every = zip(self.sets, self.heads, self.alone, strict=True)
        return tuple(
            Removal(
                name=name,
                heads=len(heads),
                alone=len(alone),
                change=self._change(name, "false"),
                true=self._change(name, "true"),
                beyond=self.beside_random(name),
            )
            for name, heads, alone in every
            if alone
        )

    def _change(self, name: str, side: str) -> Interval:
        return self.interval("change", side=side, set=name)

    @property
    def status(self) -> Status:
        """Status of the claim that some set, with false demonstrations, has an effect beyond random heads."""
        return any_clear(any(removal.clear(self.count) for removal in self.removals), self.count)

    @property
    def count(self) -> int:
        """Number of pairs of prompts."""
        return len(self.plain)

    @property
    def overlap(self) -> Float[Tensor, "set set"]:
        """Number of heads that two sets share."""
        sets = [set(heads) for heads in self.heads]
        return torch.tensor([[float(len(a & b)) for b in sets] for a in sets]).double()

    @property
    def shared(self) -> tuple[Shared, ...]:
        """Number of shared heads for each pair of sets."""
        overlap, places = self.overlap, range(len(self.sets))
        return tuple(
            Shared(self.sets[i], self.sets[j], int(overlap[i, j])) for i in places for j in range(i)
        )

    def on_page(self) -> tuple[str, ...]:
        """The overlap and the ablation."""
        return self.shows

    def is_drawn(self, show: str) -> bool:
        """False for the ablation if no set has heads alone."""
        return show != "ablation" or bool(self.ablated)


Sets = Annotated[
    Mapping[str, Heads], Called("a mapping from names to lists of (layer, head) pairs")
]


@dataclass(frozen=True)
class CompareHeads(PairMeasurement[CompareHeadsResult]):
    """Overlap of sets of heads, and ablation of each without the heads of the others.

    Attributes:
        sets: Heads by name.
        kind: What replaces an ablated head's output, see `ZeroHeads`.
        draws: Number of random draws of heads for each set.
        seed: Seed of the draws.

    Raises:
        PromptError: sets of prompts that are not pairs.
        RunError: fewer than two sets, an empty one, heads that do not exist, or too few heads outside of the sets.

    Source: Yin and Steinhardt 2025; Halawi et al. 2023, §5.
    """

    sets: Sets
    kind: Kind = "zero_output"
    draws: Count = 20
    seed: Natural = 0

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject invalid sets of heads, heads the model does not have, and prompts that are not pairs.

        Raises:
            PromptError: sets of prompts that are not pairs.
            RunError: fewer than two sets, an empty one, or heads that do not exist.
        """
        check_pairs(*data)
        check_answers(data[1], "compare_heads")
        if len(self.sets) < 2 or not all(self.sets.values()):
            raise RunError(
                "compare_heads needs at least two sets of heads, none of them empty; got "
                f"{ {name: len(heads) for name, heads in self.sets.items()} }."
            )
        for heads in self.sets.values():
            ZeroHeads(heads, kind=self.kind).check(model.info)
        _ = self.members(model.info)

    def members(self, info: ModelInfo) -> list[HeadSet]:
        """Every set with the heads that only it contains, and its random control heads.

        Raises:
            RunError: too few heads outside of the sets.
        """
        members = []
        for number, (name, heads) in enumerate(self.sets.items()):
            others = {
                head
                for other_name, other_heads in self.sets.items()
                if other_name != name
                for head in other_heads
            }
            alone = tuple(head for head in heads if head not in others)
            shape = (info.n_layers, info.n_heads)
            seed = self.seed + 7919 * number
            drawn = random_heads(alone, shape, self.draws if alone else 0, seed, without=[*others])
            members.append(HeadSet(name, tuple(heads), alone, tuple(map(tuple, drawn))))
        return members

    def passes(self, model: LanguageModel, data: Pair) -> list[Variants]:
        """Both sides and the bare queries, unablated and without each set's unshared heads; sides also without random ones."""
        conditions, alone = [list[Intervention]()], [list[Intervention]()]
        for member in self.members(model.info):
            if member.alone:
                removed = (member.alone, *member.drawn)
                conditions += [[ZeroHeads(heads, kind=self.kind)] for heads in removed]
                alone.append([ZeroHeads(member.alone, kind=self.kind)])
        bare = without_demonstrations(data[0])
        sides = [(side, conditions) for side in data]
        sides += [] if bare is None else [(bare, alone)]
        return [
            Variants(prompts, [AnswerReading()], title="ablations", variants=variants)
            for prompts, variants in sides
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> CompareHeadsResult:
        """Changes of the logit difference and of correct answers."""
        members = self.members(model.info)
        differences, correct = [], []
        for side in read[:2]:
            logits = [run.label_logits.double() for (run,) in side]
            differences.append(torch.stack([contrast(run, data[1]) for run in logits], dim=1))
            right = [run.argmax(-1) == data[1].answers for run in logits]
            correct.append(torch.stack(right, dim=1).double())
        values = torch.stack([torch.stack(differences, 1), torch.stack(correct, 1)], dim=1)
        change, random, place = [], [], 1
        nothing = torch.full(values[..., 0].shape, torch.nan, dtype=torch.float64)
        for member in members:
            if not member.alone:
                change.append(nothing)
                random.append(nothing[..., None].expand(*nothing.shape, self.draws))
                continue
            changes = values[..., place : place + 1 + self.draws] - values[..., :1]
            change.append(changes[..., 0])
            random.append(changes[..., 1:])
            place += 1 + self.draws
        bare, bare_change = self._bare(members, data, read[2]) if len(read) > 2 else (None, None)
        return CompareHeadsResult(
            bare=bare,
            bare_change=bare_change,
            change=torch.stack(change, dim=-1),
            random=torch.stack(random, dim=-2),
            plain=values[..., 0],
            sets=tuple(member.name for member in members),
            heads=tuple(member.heads for member in members),
            alone=tuple(member.alone for member in members),
            kind=self.kind,
            draws=self.draws,
        )

    def _bare(
        self, members: Sequence[HeadSet], data: Pair, read: Sequence[Any]
    ) -> tuple[Float[Tensor, " batch"], Float[Tensor, "batch set"]]:
        """The logit difference in bare queries, and its change without the heads that only each set contains."""
        plain, *without = (contrast(run.label_logits.double(), data[1]) for (run,) in read)
        nothing = torch.full_like(plain, torch.nan)
        changes = iter(difference - plain for difference in without)
        columns = [next(changes) if member.alone else nothing for member in members]
        return plain, torch.stack(columns, dim=1)


compare_heads = door(
    CompareHeads,
    "compare_heads",
    then=("sets",),
    true="Prompts with true demonstrations, different from those the sets were chosen on.",
    false="The same prompts with false ones.",
)
