"""`FalseInductionHeads`: all heads by prefix matching, the chosen ones, and what controls say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.base import Pair
from icl_mech.measurements.heads.ablating import ablation
from icl_mech.measurements.heads.ablation import Ablation
from icl_mech.measurements.heads.definitions import MATCHING, PROMOTING, SHUFFLED
from icl_mech.measurements.heads.texts import head_name
from icl_mech.metrics import ONE_SIDED, Interval, above_together, ends_together
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch, build_prompt_pairs
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, Status, judged
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, listed, said, spelled
from icl_mech.shapes import Table
from icl_mech.tasks import Task, as_task

if TYPE_CHECKING:
    import pandas as pd


@checked(RunError)
def false_prompts(
    model: Any, task: Any, *, shots: Count = 4, n: Count, seed: Natural
) -> PromptBatch:
    """Prompts of a task (or its name) with permuted labels, demonstrations of their own each; or
    those given.

    Raises:
        IclMechError: as `build_prompt_pairs`.
    """
    return task if isinstance(task, PromptBatch) else pairs_of(model, task, shots, n, seed)[1]


def pairs_of(model: Any, task: str | Task, shots: int, n: int, seed: int) -> Pair:
    """Pairs of prompts of a task, demonstrations of their own each."""
    tokenizer = model if hasattr(model, "tokenizer") else adapt(model)
    return build_prompt_pairs(
        as_task(task), tokenizer, shots=shots, n=n, seed=seed, demonstrations="per_prompt"
    )


HeldOut = Mapping[str, tuple[Interval, Interval]] | None
"""Prefix matching above its control and label promoting, by head, of prompts that did not choose."""


def both(held_out: HeldOut, prompts: int | None = None) -> list[str]:
    """Heads that match beyond their control and promote the false label, on held-out prompts."""
    return [
        name
        for name, (above, promoting) in (held_out or {}).items()
        if judged(above, prompts=prompts) == judged(promoting, prompts=prompts) == "supported"
    ]


def status_of(held_out: HeldOut, prompts: int | None = None) -> Status:
    """Of the claim that some of the chosen heads are false induction heads.

    Args:
        held_out: What these heads score on prompts that did not choose them.
        prompts: How many these are.
    """
    if not held_out or (prompts is not None and prompts < FEWEST_PROMPTS):
        return "cannot be judged"
    return "supported" if both(held_out, prompts) else "not shown"


def found_heads(
    chosen: Sequence[str],
    confirmed: Sequence[str],
    task: str,
    held_out: HeldOut,
    prompts: int,
    *,
    given: str,
) -> Figure:
    """Are there heads that copy false labels?

    Args:
        chosen: The heads that match prefixes most, best first.
        confirmed: Those that are clear of both controls on the prompts that chose them.
        task: Where they were chosen.
        held_out: The same choice on one half of the prompts, tested on the other.
        prompts: All of them; 0 if not known.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    tested = prompts // 2
    status = status_of(held_out, tested if prompts else None)
    named = (
        f"the {spelled(len(chosen))} heads that match prefixes most on {task} ({listed(chosen)})"
    )
    if len(chosen) == 1:
        named = f"the head that matches prefixes most on {task} ({chosen[0]})"
    own = (
        f"nothing can be said of {named}"
        if 0 < prompts < FEWEST_PROMPTS
        else (
            f"of {named}, {listed(confirmed)} also {'push' if len(confirmed) > 1 else 'pushes'} to the false "
            "label, beyond what the order of the labels gives"
            if confirmed
            else f"of {named}, none is clear of both controls (shuffled labels, no promotion)"
        )
    )
    if held_out is None:
        check = "the check on held-out prompts cannot be made: "
        check += "one prompt cannot be split" if prompts else "single prompts were not kept"
    elif status == "cannot be judged":
        check = f"a half of {counted(tested, 'prompt')} is too few for the held-out check"
    else:
        sure = both(held_out, tested)
        which = listed(sure) if sure else "none"
        check = (
            f"of the {spelled(len(held_out))} chosen anew on one half of the prompts, {which} "
            f"{'is' if len(sure) < 2 else 'are'} clear of both on the other half"
        )
        if not sure:
            best = max(held_out, key=lambda name: held_out[name][0].value)
            above, promoting = held_out[best]
            check += (
                f" (highest {best}: {said(above, sign=True)} above its control, promoting "
                f"{said(promoting, sign=True)})"
            )
    return Figure(
        "",
        "Are there heads that copy false labels?",
        f"{OPENINGS[status]}: {own}; {check}.",
        f"**The heads that match prefixes most on {task}, best first**: their prefix matching, whether "
        "it lies above the score with shuffled labels, and what they add to the false label's logit. "
        f"In brackets: 95 % bootstrap intervals over {counted(prompts, 'prompt')}{given}, on the prompts "
        "that chose the heads, for each head alone; “class-sensitive” is corrected for all heads, and the "
        "sentence above tests on other prompts, the chosen heads together."
        if prompts
        else f"**The heads that match prefixes most on {task}, best first.**",
        f"that there are heads on {task} that match and promote false labels: "
        f"{listed(both(held_out, tested))}."
        if status == "supported"
        else "",
        "that they do so on other tasks, or that they cause errors there: see heads and ablations on the "
        "studied task.",
        "False induction heads",
    )


SCORES = {
    "prefix_matching": "prefix-matching score",
    "above_shuffled": "prefix matching above its control",
    "label_promoting": "logit of false label above true label",
}
"""By what heads are ranked, and what makes them class-sensitive and promoting."""


def tested_together(
    above: Float[Tensor, "batch layer head"],
    promoting: Float[Tensor, "batch layer head"],
    heads: Sequence[tuple[int, int]],
) -> dict[str, tuple[Interval, Interval]]:
    """Prefix matching above its control and label promoting of some heads, by name.

    Intervals hold for all these heads together (max-T).
    """
    layers, numbers = (list(axis) for axis in zip(*heads, strict=True))
    columns = []
    for scores in (above, promoting):
        own = scores[:, layers, numbers].double()
        ends = torch.stack([own.mean(0), *ends_together(own)], dim=1)
        columns.append([Interval(*row) for row in ends.tolist()])
    return dict(zip(map(head_name, heads), zip(*columns, strict=True), strict=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class FalseInductionHeads(Result):
    """Heads ranked by prefix matching, best first, and what each control says.

    Attributes:
        heads: (layer, head) pairs, all heads of the model.
        chosen: How many of the first count as found.
        prefix_matching: Mean score of each ranked head.
        matching_low: Lower end of its 95 % bootstrap interval over prompts.
        matching_high: Upper end.
        class_sensitive: The score is above its shuffled-label control, corrected for all heads
            of the model (max-T, one-sided 2.5 %): the best were picked on the same prompts.
        promoting: Mean logit of the false label above the true one.
        promoting_low: Lower end of its interval.
        promoting_high: Upper end.
        task: Where they were chosen.
        scores: Of every prompt and head (by its place in the model, not by rank): those of
            `SCORES`; None in results that were saved without them.
    """

    title: ClassVar[str] = "False induction heads"
    definitions: ClassVar[tuple[Definition, ...]] = (MATCHING, SHUFFLED, PROMOTING)

    heads: tuple[tuple[int, int], ...]
    chosen: int
    prefix_matching: Float[Tensor, " rank"]
    matching_low: Float[Tensor, " rank"]
    matching_high: Float[Tensor, " rank"]
    class_sensitive: tuple[bool, ...]
    promoting: Float[Tensor, " rank"]
    promoting_low: Float[Tensor, " rank"]
    promoting_high: Float[Tensor, " rank"]
    task: str
    scores: Float[Tensor, "batch score layer head"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """The scores heads are ranked and tested by."""
        if self.scores is None:
            return {}
        return {
            name: Quantity(("layer", "head"), values, unit=SCORES[name])
            for name, values in zip(SCORES, self.scores.unbind(1), strict=True)
        }

    @property
    def top(self) -> tuple[tuple[int, int], ...]:
        """The chosen heads."""
        return self.heads[: self.chosen]

    @property
    def confirmed(self) -> tuple[tuple[int, int], ...]:
        """Chosen heads that are class-sensitive and promote the false label.

        Both are corrected for all heads of the model, since these were chosen on the same prompts.
        """
        return tuple(
            head
            for head, sensitive, promotes in zip(
                self.top, self.class_sensitive, self._promotes, strict=False
            )
            if sensitive and promotes
        )

    @cached_property
    def _promotes(self) -> tuple[bool, ...]:
        """By rank, whether a head promotes the false label."""
        if self.scores is None:
            return tuple((self.promoting_low > 0).tolist())
        clear = above_together(
            self.scores[:, list(SCORES).index("label_promoting")], level=ONE_SIDED
        )
        return tuple(bool(clear[head]) for head in self.heads)

    def test(
        self,
        model: Any,
        task: str | Task,
        *,
        shots: int = 2,
        n: int = 100,
        seed: int = 0,
        draws: int = 20,
        progress: bool | None = None,
    ) -> Ablation:
        """Zero the chosen heads on another task, against random heads.

        Raises:
            ResultError: the task the heads were chosen on.
        """
        chosen = as_task(task)
        if chosen.name == self.task:
            raise ResultError(
                f"The heads were chosen on {self.task!r}; testing them there would flatter them. "
                "Give another task."
            )
        true, false = pairs_of(model, chosen, shots, n, seed)
        return ablation(model, true, false, heads=self.top, draws=draws, progress=progress)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, by rank."""
        import pandas as pd

        return pd.DataFrame(
            {
                "layer": layer,
                "head": head,
                "prefix_matching": float(self.prefix_matching[i]),
                "low": float(self.matching_low[i]),
                "high": float(self.matching_high[i]),
                "class_sensitive": self.class_sensitive[i],
                "label_promoting": float(self.promoting[i]),
                "promoting_low": float(self.promoting_low[i]),
                "promoting_high": float(self.promoting_high[i]),
                "chosen": i < self.chosen,
            }
            for i, (layer, head) in enumerate(self.heads)
        )

    def held_out(self) -> dict[str, tuple[Interval, Interval]] | None:
        """The check of the choice: heads chosen on one half of the prompts, scored on the other.

        Returns:
            By head as `layer.head`, best first: prefix matching above its shuffled control, and
            label promoting, both of the other half, with intervals that hold for all of them
            together. None for results saved without the scores of every prompt, or of one
            prompt.
        """
        if self.scores is None or len(self.scores) < 2:
            return None
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(self.scores)))
        half = (len(order) + 1) // 2
        choosing, testing = (self.scores[part].double() for part in (order[:half], order[half:]))
        matching = choosing[:, 0].mean(0)
        best = matching.flatten().argsort(descending=True, stable=True)[: self.chosen].tolist()
        heads = [divmod(int(place), matching.shape[1]) for place in best]
        return tested_together(testing[:, 1], testing[:, 2], heads)

    def drawing(self, rows: Count = 10) -> Table:
        """The first ranks as a table."""
        return Table(
            title=f"Heads by prefix matching on {self.task}",
            columns=("head", "prefix matching", "class-sensitive", "label promoting (logits)"),
            rows=tuple(
                (
                    head_name(head) + (" (chosen)" if i < self.chosen else ""),
                    said(Interval(*(float(end[i]) for end in self._matching))),
                    "yes" if self.class_sensitive[i] else "no",
                    said(Interval(*(float(end[i]) for end in self._promoting)), sign=True),
                )
                for i, head in enumerate(self.heads[:rows])
            ),
            note=f"{basis(self)}; class-sensitive: above the score with labels shuffled",
        )

    @property
    def _matching(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.prefix_matching, self.matching_low, self.matching_high

    @property
    def _promoting(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.promoting, self.promoting_low, self.promoting_high

    def figures(self) -> list[Figure]:
        """Who was chosen on what, and the check on the other half of the prompts."""
        prompts = 0 if self.scores is None else len(self.scores)
        names, sure = (tuple(map(head_name, heads)) for heads in (self.top, self.confirmed))
        return [found_heads(names, sure, self.task, self.held_out(), prompts, given=given(self))]

    def summary(self) -> str:
        """The chosen heads and how many hold up."""
        names = ", ".join(f"{layer}.{head}" for layer, head in self.top)
        return (
            f"chosen on {self.task} by prefix matching (layer.head): {names}; "
            f"{sum(self.class_sensitive[: self.chosen])} class-sensitive, {len(self.confirmed)} "
            "class-sensitive and promoting the false label"
        )
