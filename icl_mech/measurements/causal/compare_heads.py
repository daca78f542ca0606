"""Sets of heads side by side: which heads they share, and what each does that the others do not.

Heads are found by many measures (prefix matching, effects, induction scores, label promoting), and the sets
overlap. *Alone* are the heads of a set that are in no other set. Removing them changes, on every pair of prompts, the
logit difference (right minus taught false label word) and whether the answer is right; beside it stand
the changes by random heads of the same layers that are in no set.

Source: Yin and Steinhardt 2025, *Which attention heads matter for in-context learning?* (ablation with
exclusion); Halawi et al. 2023, *Overthinking the Truth*, §5 (random heads).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Called, Count, Heads, Natural
from icl_mech.errors import ResultError, RunError
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
from icl_mech.results import Definition, Figure, Quantity, Result, Samples, basis, quantity
from icl_mech.results.judging import jointly, judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, said
from icl_mech.shapes import Bars, LabelMatrix

MEASURES = ("difference", "correct")

CLEAR = ("supported", "opposite")

LACKING = "not known, from one draw"
"""What is said where random heads were drawn once, which shows no spread."""

OVERLAP = Definition("overlap", r"|H_a \cap H_b|", "Number of heads that two sets have in common.")

ALONE = Definition(
    "change without a set's own heads",
    r"m(p_n \mid z_{H_a \setminus \bigcup_{b \neq a} H_b} \leftarrow 0) - m(p_n)",
    "The heads that only set a has are removed at the last token; m is the logit of the right minus that of "
    "the taught false label word, or whether the answer is right. Beside it stand random heads, as many in "
    "each layer and in no set; the interval of the difference is at least that of one more draw.",
    "Yin and Steinhardt 2025, Which attention heads matter for in-context learning?",
)


class HeadSet(NamedTuple):
    """A set of heads, what it has alone, and random heads beside it."""

    name: str
    heads: tuple[Head, ...]
    alone: tuple[Head, ...]
    drawn: tuple[tuple[Head, ...], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class CompareHeadsResult(Result):
    """What removing each set's own heads changes, beside random heads.

    Attributes:
        change: Of the logit difference and of right answers, with true and with false demonstrations;
            not-a-number for sets that have no head alone.
        random: The same for each draw of random heads.
        plain: Without any ablation.
        sets: Names.
        heads: (layer, head) of each set.
        alone: Those that are in no other set.
        kind: What stood in for an ablated head.
        draws: Random draws beside each set.
        bare_change: Of the logit difference in the same queries without demonstrations. None in results saved before
            it was measured, and where the queries cannot be cut out of the prompts.
        bare: The logit difference there without any ablation; None likewise.
    """

    title: ClassVar[str] = "Sets of heads"
    shows: ClassVar[tuple[str, ...]] = ("ablation", "overlap")
    definitions: ClassVar[tuple[Definition, ...]] = (OVERLAP, ALONE)

    axis_labels: ClassVar[Mapping[str, str | Sequence[str]]] = {
        "measure": MEASURES,
        "side": SIDES,
        "set": "ablated",
    }

    change: Float[Tensor, "batch measure side set"]
    random: Float[Tensor, "batch measure side set draw"]
    plain: Float[Tensor, "batch measure side"] = quantity("logits, or share right")
    sets: tuple[str, ...]
    heads: tuple[tuple[Head, ...], ...]
    alone: tuple[tuple[Head, ...], ...]
    kind: str
    draws: int
    bare_change: Float[Tensor, "batch set"] | None = None
    bare: Float[Tensor, " batch"] | None = None

    def changes_of(self, name: str, side: str) -> Float[Tensor, " batch"] | None:
        """Change of the logit difference without the heads only this set has; None for a set that has none."""
        if name not in self.ablated:
            return None
        return self.change[
            :, MEASURES.index("difference"), SIDES.index(side), self.sets.index(name)
        ]

    @property
    def ablated(self) -> tuple[str, ...]:
        """Sets that have heads alone."""
        return tuple(name for name, own in zip(self.sets, self.alone, strict=True) if own)

    def quantities(self) -> dict[str, Quantity]:
        """Changes without each set, and without random heads, mean over the draws."""
        inside = torch.tensor([bool(own) for own in self.alone])
        if not bool(inside.any()):
            return super().quantities()
        dims, unit = ("measure", "side", "set"), "change (logits, or share right)"
        own, drawn = self.change[..., inside], self.random[..., inside, :].mean(-1)
        return {
            "change": Quantity(dims, own, unit=unit),
            "random": Quantity(dims, drawn, unit=unit),
            **super().quantities(),
        }

    def beside_random(
        self, name: str, side: str = "false", measure: str = "difference"
    ) -> Interval | None:
        """Change without the heads only this set has, minus that without random ones, paired over prompts.

        The interval takes the spread of the draws in, see `beyond_draws`. None for a set that has no head of
        its own, and without two draws.

        Raises:
            ResultError: no such set, side or measure.
        """
        if name in self.sets and name not in self.ablated:
            return None
        self.interval("change", measure=measure, side=side, set=name)  # refuses what is not there
        m, s, own = MEASURES.index(measure), SIDES.index(side), self.sets.index(name)
        return beyond_draws(self.change[:, m, s, own], self.random[:, m, s, own])

    @property
    def overlap(self) -> Float[Tensor, "set set"]:
        """Number of heads that two sets share."""
        own = [set(heads) for heads in self.heads]
        return torch.tensor([[float(len(a & b)) for b in own] for a in own]).double()

    def drawing(self, show: str = "ablation") -> Bars | LabelMatrix:
        """Changes of the logit difference, or the overlap.

        Args:
            show: `ablation` or `overlap`.

        Raises:
            ResultError: unknown `show`, or no set has a head of its own.
        """
        self.check_show(show)
        if show == "overlap":
            title = "Heads that sets share"
            return LabelMatrix(
                title,
                self.overlap,
                self.sets,
                self.sets,
                "",
                "",
                "heads",
                counts=True,
                diagonal=True,
            )
        if not self.ablated:
            raise ResultError("No set has a head that is in no other set, so none was ablated.")
        own, random = (self.sel(name, measure="difference") for name in ("change", "random"))
        # By set, its own heads before the random ones, then by side.
        value, low, high = (
            torch.stack([one.T, other.T], dim=1).flatten(0, 1)
            for one, other in zip(_ends(own), _ends(random), strict=True)
        )
        return Bars(
            title="Removing the heads that only one set has",
            groups=tuple(
                name for own in self.ablated for name in (own, f"random heads beside {own}")
            ),
            names=("true demonstrations", "false demonstrations"),
            values=value,
            low=low,
            high=high,
            y_title="change of the logit difference",
            note=f"{basis(self)}; random heads: mean of {self.draws} draws",
            meanings=("true", "false"),
            sides=("wrong label gains", "right label gains"),
        )

    def figures(self) -> list[Figure]:
        """What each set does beyond the others and beyond random heads, and which heads sets share."""
        pairs = f"{counted(len(self.plain), 'pair')} of prompts{given(self)}"
        shared = [
            f"{self.sets[i]} and {self.sets[j]}: {int(self.overlap[i, j])}"
            for i in range(len(self.sets))
            for j in range(i)
        ]
        return [
            Figure(
                "ablation",
                question="Does a set of heads do what the other sets do not?",
                answer=self._answer(),
                caption="**Change of the logit difference (right minus taught false label word) when the heads "
                "that only one set has are removed at the last token**, beside random heads of the same layers "
                f"that are in no set (mean of {self.draws} draws). In the sentence: with false demonstrations "
                f"unless said otherwise. Bars: 95 % intervals over {pairs}, for each set alone; those beyond "
                "random heads take in how far draws lie apart. Yes needs both to lie on one side of 0.",
                limits="what the heads do that two sets share: they are left out on both sides. Sets of "
                "different size remove different amounts; the random heads have each set's size.",
                short="Sets of heads",
                drawn=bool(self.ablated),
            ),
            Figure(
                "overlap",
                question="Which heads do the sets share?",
                answer=f"{listed(shared)}.",
                caption="**Heads that two sets have in common**; framed: the size of each set.",
                limits="that two measures find the same mechanism where they find the same heads.",
                short="Overlap",
            ),
        ]

    def _answer(self) -> str:
        parts, clear, count = [], False, len(self.plain)
        sizes = dict(zip(self.sets, zip(self.heads, self.alone, strict=True), strict=True))
        for name in self.ablated:
            change, true = (
                self.interval("change", measure="difference", side=side, set=name)
                for side in ("false", "true")
            )
            beyond, (heads, alone) = self.beside_random(name), sizes[name]
            clear |= jointly(*(judged(own, prompts=count) for own in (change, beyond))) in CLEAR
            parts.append(
                f"{name} ({len(alone)} of {counted(len(heads), 'head')}) {said(change, sign=True)}, beyond "
                f"random heads {said(beyond, sign=True) if beyond else LACKING}, with true demonstrations {said(true, sign=True)}"
            )
        if not parts:
            return "Cannot be judged: every head of every set is in another set too."
        return f"{opening(any_clear(clear, count), counted(count, 'pair'))} {'; '.join(parts)}."

    def summary(self) -> str:
        """Sizes, and the effects of what each set has alone."""
        parts = [f"{name}: {self.beside_random(name)}" for name in self.ablated]
        if not parts:
            return f"{listed(self.sets)}: no set has a head of its own"
        return (
            "change of the logit difference beyond random heads, false demonstrations – "
            + "; ".join(parts)
        )


def _ends(found: Samples) -> tuple[Tensor, Tensor, Tensor]:
    return found.values, found.low, found.high


Sets = Annotated[
    Mapping[str, Heads], Called("a mapping from names to lists of (layer, head) pairs")
]


@dataclass(frozen=True)
class CompareHeads(PairMeasurement[CompareHeadsResult]):
    """Overlap of sets of heads, and ablation of each without the heads of the others.

    Attributes:
        sets: Heads by name.
        kind: What stands in for an ablated head, see `ZeroHeads`.
        draws: Random draws of heads beside each set.
        seed: Of the draws.

    Raises:
        PromptError: sets of prompts that are not pairs.
        RunError: fewer than two sets, an empty one, heads that are not there, or too few others.

    Source: Yin and Steinhardt 2025; Halawi et al. 2023, §5.
    """

    sets: Sets
    kind: Kind = "zero_output"
    draws: Count = 20
    seed: Natural = 0

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are none, heads the model does not have, and prompts that are no pairs.

        Raises:
            PromptError: sets of prompts that are not pairs.
            RunError: fewer than two sets, an empty one, or heads that are not there.
        """
        check_pairs(*data)
        check_answers(data[1], "compare_heads")
        if len(self.sets) < 2 or not all(self.sets.values()):
            raise RunError(
                "compare_heads needs two sets of heads at least, none of them empty; got "
                f"{ {name: len(heads) for name, heads in self.sets.items()} }."
            )
        for heads in self.sets.values():
            ZeroHeads(heads, kind=self.kind).check(model.info)
        _ = self.members(model.info)

    def members(self, info: ModelInfo) -> list[HeadSet]:
        """Every set with what it has alone, and the random heads beside it.

        Raises:
            RunError: too few heads outside of the sets.
        """
        found = []
        for number, (name, heads) in enumerate(self.sets.items()):
            others = {head for other, own in self.sets.items() if other != name for head in own}
            alone = tuple(head for head in heads if head not in others)
            shape = (info.n_layers, info.n_heads)
            seed = self.seed + 7919 * number
            drawn = random_heads(alone, shape, self.draws if alone else 0, seed, without=[*others])
            found.append(HeadSet(name, tuple(heads), alone, tuple(map(tuple, drawn))))
        return found

    def passes(self, model: LanguageModel, data: Pair) -> list[Variants]:
        """Both sides and the bare queries unablated, without each set's own heads, and on the sides without random ones."""
        conditions, alone = [list[Intervention]()], [list[Intervention]()]
        for own in self.members(model.info):
            removed = [own.alone, *own.drawn] if own.alone else []
            conditions += [[ZeroHeads(heads, kind=self.kind)] for heads in removed]
            alone += [[ZeroHeads(own.alone, kind=self.kind)]] if own.alone else []
        bare = without_demonstrations(data[0])
        found = [(side, conditions) for side in data]
        found += [] if bare is None else [(bare, alone)]
        return [
            Variants(prompts, [AnswerReading()], title="ablations", variants=variants)
            for prompts, variants in found
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> CompareHeadsResult:
        """Changes of the logit difference and of right answers."""
        members = self.members(model.info)
        differences, correct = [], []
        for side in read[:2]:
            logits = [own.label_logits.double() for (own,) in side]
            differences.append(torch.stack([contrast(own, data[1]) for own in logits], dim=1))
            right = [own.argmax(-1) == data[1].answers for own in logits]
            correct.append(torch.stack(right, dim=1).double())
        values = torch.stack([torch.stack(differences, 1), torch.stack(correct, 1)], dim=1)
        own, random, place = [], [], 1
        nothing = torch.full(values[..., 0].shape, torch.nan, dtype=torch.float64)
        for member in members:
            if not member.alone:
                own.append(nothing)
                random.append(nothing[..., None].expand(*nothing.shape, self.draws))
                continue
            changes = values[..., place : place + 1 + self.draws] - values[..., :1]
            own.append(changes[..., 0])
            random.append(changes[..., 1:])
            place += 1 + self.draws
        bare, bare_change = self._bare(members, data, read[2]) if len(read) > 2 else (None, None)
        return CompareHeadsResult(
            bare=bare,
            bare_change=bare_change,
            change=torch.stack(own, dim=-1),
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
        """The logit difference in bare queries, and its change without the heads that only each set has."""
        plain, *without = (contrast(own.label_logits.double(), data[1]) for (own,) in read)
        nothing = torch.full_like(plain, torch.nan)
        changes = iter(own - plain for own in without)
        columns = [next(changes) if member.alone else nothing for member in members]
        return plain, torch.stack(columns, dim=1)


compare_heads = door(
    CompareHeads,
    "compare_heads",
    then=("sets",),
    true="Prompts with true demonstrations; others than the sets were chosen on.",
    false="The same prompts with false ones.",
)
