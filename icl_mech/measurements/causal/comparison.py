"""Sets of heads side by side: overlap, and what removing each alone changes.

*Alone* are the heads of a set that are in no other set. Removing them changes, on every pair of prompts, the
logit difference (right minus taught false label word) and whether the answer is right; beside it stand
the changes by random heads of the same layers that are in no set.

Source: Yin and Steinhardt 2025, *Which attention heads matter for in-context learning?*; Halawi et al.
2023, *Overthinking the Truth*, §5.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.accuracy.pairs import SIDES
from icl_mech.measurements.causal.comparison_texts import compared
from icl_mech.measurements.causal.definitions import ALONE, OVERLAP
from icl_mech.metrics import Interval, mean_interval, one_more
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.prompts import given
from icl_mech.results.wording import listed
from icl_mech.shapes import Bars, LabelMatrix

MEASURES = ("difference", "correct")


class HeadSet(NamedTuple):
    """A set of heads, what it has alone, and random heads beside it."""

    name: str
    heads: tuple[tuple[int, int], ...]
    alone: tuple[tuple[int, int], ...]
    drawn: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadComparison(Result):
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
    """

    title: ClassVar[str] = "Sets of heads"
    shows: ClassVar[tuple[str, ...]] = ("ablation", "overlap")
    definitions: ClassVar[tuple[Definition, ...]] = (OVERLAP, ALONE)

    change: Float[Tensor, "batch measure side set"]
    random: Float[Tensor, "batch measure side set draw"]
    plain: Float[Tensor, "batch measure side"]
    sets: tuple[str, ...]
    heads: tuple[tuple[tuple[int, int], ...], ...]
    alone: tuple[tuple[tuple[int, int], ...], ...]
    kind: str
    draws: int

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Measures, sides, and the sets that have heads alone."""
        return {"measure": MEASURES, "side": SIDES, "set": self.ablated}

    @property
    def ablated(self) -> tuple[str, ...]:
        """Sets that have heads alone."""
        return tuple(name for name, own in zip(self.sets, self.alone, strict=True) if own)

    def quantities(self) -> dict[str, Quantity]:
        """Changes without each set, and without random heads, mean over the draws."""
        inside = torch.tensor([bool(own) for own in self.alone])
        if not bool(inside.any()):
            return {
                "plain": Quantity(("measure", "side"), self.plain, unit="logits, or share right")
            }
        dims, unit = ("measure", "side", "set"), "change (logits, or share right)"
        own, drawn = self.change[..., inside], self.random[..., inside, :].mean(-1)
        return {
            "change": Quantity(dims, own, unit=unit),
            "random": Quantity(dims, drawn, unit=unit),
            "plain": Quantity(dims[:2], self.plain, unit="logits, or share right"),
        }

    def beside_random(
        self, name: str, side: str = "false", measure: str = "difference"
    ) -> Interval | None:
        """Change without the heads only this set has, minus that without random ones, paired over prompts.

        The interval takes the spread of the draws in: it is that over prompts or, where it is wider,
        that of one more draw beside these (Student's t), which is the null of heads that are as good as
        any others. None for a set that has no head of its own.

        Raises:
            ResultError: no such set, side or measure.
        """
        if name in self.sets and name not in self.ablated:
            return None
        self.interval("change", measure=measure, side=side, set=name)  # refuses what is not there
        m, s, own = MEASURES.index(measure), SIDES.index(side), self.sets.index(name)
        drawn = self.random[:, m, s, own].double()
        values = self.change[:, m, s, own].double() - drawn.mean(1)
        value, low, high = mean_interval(values)
        half = one_more(drawn.mean(0))
        return Interval(value, min(low, value - half), max(high, value + half))

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
            return LabelMatrix(
                "Heads that sets share", self.overlap, self.sets, self.sets, "", "", "heads", counts=True,
                diagonal=True,
            )  # fmt: skip
        if not self.ablated:
            raise ResultError("No set has a head that is in no other set, so none was ablated.")
        found = self.quantities()
        rows: list[tuple[Tensor, Tensor, Tensor]] = []
        for place in range(len(self.ablated)):
            rows += [self._ends(found[name], place) for name in ("change", "random")]
        value, low, high = (torch.stack(own) for own in zip(*rows, strict=True))
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

    def _ends(self, found: Quantity, place: int) -> tuple[Tensor, Tensor, Tensor]:
        low, high = found.ends()
        return found.value()[0, :, place], low[0, :, place], high[0, :, place]

    def figures(self) -> list[Figure]:
        """What each set does beyond the others and beyond random heads."""
        effects = {
            name: (
                self.interval("change", measure="difference", side="false", set=name),
                beside,
                self.interval("change", measure="difference", side="true", set=name),
            )
            for name in self.ablated
            if (beside := self.beside_random(name)) is not None
        }
        shared = {
            f"{self.sets[i]} and {self.sets[j]}": int(self.overlap[i, j])
            for i in range(len(self.sets))
            for j in range(i)
        }
        sizes = {
            name: (len(heads), len(own))
            for name, heads, own in zip(self.sets, self.heads, self.alone, strict=True)
        }
        return compared(effects, shared, sizes, len(self.plain), self.draws, given=given(self))

    def summary(self) -> str:
        """Sizes, and the effects of what each set has alone."""
        parts = [f"{name}: {self.beside_random(name)}" for name in self.ablated]
        if not parts:
            return f"{listed(self.sets)}: no set has a head of its own"
        return (
            "change of the logit difference beyond random heads, false demonstrations – "
            + "; ".join(parts)
        )
