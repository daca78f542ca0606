"""Scores of attention heads: prefix matching, label attending, label promoting, with controls.

In row `t` (the target, or the token before a demonstration's label), over the label tokens of
earlier demonstrations:

* `all`: attention to all of them (*label attending*);
* `same`: attention to those whose displayed label is the row's: the class the false labels
  teach in a false set, the true class in a true one;
* *prefix matching* `PM = same - (all - same) / (C - 1)`, in `[-1/(C-1), 1]`;
* *class sensitivity* `same / all`; a head blind to the class has the share `f` of earlier
  label tokens that carry the row's label, and `PM = all (f - (1 - f) / (C - 1))`;
* *shuffled* prefix matching: the demonstrations' labels permuted in the score only, what
  recency alone gives;
* *label promoting*: the logit the head's output adds to the false label, minus that of the
  true one (`norm="frozen"` or `"own"`, see `icl_mech.measurements.lens.logit_lens`).

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.heads.definitions import (
    ATTENDING,
    FAMILY,
    MATCHING,
    PROMOTING,
    SHUFFLED,
)
from icl_mech.measurements.heads.drawings import against_promoting
from icl_mech.measurements.heads.texts import head_name, matching, promoted
from icl_mech.metrics import Interval, above_together
from icl_mech.results import Definition, Figure, Quantity, Result, basis, function_of_means
from icl_mech.results.prompts import given
from icl_mech.shapes import Grid, Grids, Scatter

if TYPE_CHECKING:
    import pandas as pd

SCORES = {
    "prefix_matching": "prefix-matching score",
    "shuffled": "prefix matching, labels shuffled in the score",
    "label_attending": "attention to label words",
    "same": "attention to label words of the row's class",
    "label_promoting": "logit of false label above true label",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadScores(Result):
    """Scores of every head on every prompt.

    Attributes:
        matching: Prefix-matching score.
        attending: Attention to all earlier label words (`all`).
        same: Attention to those of the row's class.
        shuffled_matching: Prefix matching with the labels permuted in the score only.
        promoting: Label-promoting score, or None where the prompts teach no one false class.
        same_share: Share of earlier label tokens that carry the row's label (`f`).
        n_labels: Number of classes.
    """

    title: ClassVar[str] = "Heads that match prefixes"
    shows: ClassVar[tuple[str, ...]] = ("maps", *SCORES, "both")
    definitions: ClassVar[tuple[Definition, ...]] = (
        MATCHING, SHUFFLED, FAMILY, ATTENDING, PROMOTING,
    )  # fmt: skip

    matching: Float[Tensor, "batch layer head"]
    attending: Float[Tensor, "batch layer head"]
    same: Float[Tensor, "batch layer head"]
    shuffled_matching: Float[Tensor, "batch layer head"]
    same_share: Float[Tensor, " batch"]
    n_labels: int
    promoting: Float[Tensor, "batch layer head"] | None = None

    @property
    def per_prompt(self) -> dict[str, Float[Tensor, "batch layer head"]]:
        """Scores by name, prompt axis first."""
        scores = {
            "prefix_matching": self.matching,
            "shuffled": self.shuffled_matching,
            "label_attending": self.attending,
            "same": self.same,
        }
        return scores if self.promoting is None else {**scores, "label_promoting": self.promoting}

    def quantities(self) -> dict[str, Quantity]:
        """All scores, and what the two controls say of prefix matching.

        `above_shuffled` is prefix matching minus that with shuffled labels, paired over prompts;
        `class_sensitivity` is `same / all` of the means.
        """
        dims = ("layer", "head")
        found = {
            name: Quantity(dims, values, unit=SCORES[name])
            for name, values in self.per_prompt.items()
        }
        found["above_shuffled"] = Quantity(
            dims, self.matching - self.shuffled_matching, unit="prefix matching above its control"
        )
        both = torch.stack([self.same, self.attending], dim=1)
        found["class_sensitivity"] = Quantity(
            dims, both, function_of_means(both, _ratio), "share of attention to label words"
        )
        return found

    @property
    def prefix_matching(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self._score("prefix_matching").value()

    @property
    def label_attending(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self._score("label_attending").value()

    @property
    def label_promoting(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts.

        Raises:
            ResultError: the prompts teach no one false class.
        """
        return self._score("label_promoting").value()

    @property
    def shuffled(self) -> Float[Tensor, "layer head"]:
        """Mean over prompts."""
        return self._score("shuffled").value()

    @property
    def class_sensitivity(self) -> Float[Tensor, "layer head"]:
        """`same / all`, of the means over prompts; compare with the mean of `same_share`."""
        return _ratio(torch.stack([self._score("same").value(), self.label_attending]))

    @property
    def blind_matching(self) -> Float[Tensor, "layer head"]:
        """Prefix matching of a head with the same `all` that does not see the class."""
        f = self.same_share[:, None, None].to(self.attending.dtype)
        return (self.attending * (f - (1 - f) / (self.n_labels - 1))).mean(0)

    def _score(self, score: str) -> Quantity:
        if score not in SCORES:
            raise ResultError(f"Unknown score {score!r}. {near_matches(score, SCORES)}")
        if score not in self.per_prompt:
            raise ResultError(
                "Label promoting compares the class the false labels teach with the true one; these "
                "prompts teach none. Build them with labels='permuted' or 'half_permuted'."
            )
        return self.quantities()[score]

    @checked(ResultError)
    def top(self, k: Count = 5, score: str = "prefix_matching") -> tuple[tuple[int, int], ...]:
        """The k heads with the largest score, as (layer, head), best first.

        Raises:
            ResultError: unknown score, or one that is not defined for these prompts.
        """
        mean = self._score(score).value()
        order = mean.flatten().argsort(descending=True, stable=True)[:k].tolist()
        return tuple(divmod(int(i), mean.shape[1]) for i in order)

    def clear(self) -> tuple[tuple[int, int], ...]:
        """Heads whose prefix matching lies above its shuffled control, best first.

        One statement about all heads: where none does, one is named in 5 % of the cases.
        """
        above = above_together(self.matching - self.shuffled_matching)
        return tuple(head for head in self.top(above.numel()) if bool(above[head]))

    def drawing(self, show: str = "maps", top: Count = 5) -> Grids | Grid | Scatter:
        """Maps of scores, layers across and heads down, or matching against promoting.

        Args:
            show: `maps` (prefix matching and label promoting), one score, or `both`.
            top: How many of the heads that match prefixes most are framed and named.

        Raises:
            ResultError: unknown `show`, or a score that is not defined for these prompts.
        """
        self.check_show(show)
        if show == "both":
            return against_promoting(
                self.prefix_matching, self.label_promoting, self.top(top), len(self.matching)
            )
        if show != "maps":
            return self._map(show, top, f"{basis(self)}; ")
        kinds = ["prefix_matching", *(["label_promoting"] if self.promoting is not None else [])]
        maps = tuple(self._map(kind, top) for kind in kinds)
        return Grids("Scores of heads", maps, basis(self))

    def _map(self, score: str, top: int, note: str = "") -> Grid:
        found = self._score(score)
        low, high = found.ends()
        chosen = self.top(top)
        return Grid(
            title=SCORES[score][0].upper() + SCORES[score][1:],
            values=found.value().T,
            row_title="head",
            column_title="layer",
            quantity="logits" if score == "label_promoting" else "score",
            note=note and f"{note}framed: the {top} heads that match prefixes most",
            signed=score == "label_promoting",
            marked=tuple((head, layer) for layer, head in chosen),
            names=tuple(map(head_name, chosen)),
            low=low.T,
            high=high.T,
        )

    def figures(self) -> list[Figure]:
        """Maps of the scores and, where a false class is taught, matching against promoting."""
        chosen, n, behind = self.top(), len(self.matching), given(self)
        heads = self.prefix_matching.numel()
        clear = [head_name(head) for head in self.clear()]
        false = self.promoting is not None
        shown = [
            matching(
                self._of(chosen, "prefix_matching"), clear, heads, n, given=behind, false=false,
                promoting=false, lowest=float(self.prefix_matching.min()),
            )
        ]  # fmt: skip
        if false:
            pushed = self._of(chosen, "label_promoting")
            own = torch.stack(
                [self._score("label_promoting").per_prompt[:, i, j] for i, j in chosen], 1
            )
            towards, away = (
                [name for name, far in zip(pushed, above_together(sign * own), strict=True) if far]
                for sign in (1, -1)
            )
            shown.append(promoted(pushed, towards, away, n, heads, given=behind))
        return shown

    def _of(self, heads: Sequence[tuple[int, int]], score: str) -> dict[str, Interval]:
        """One score of these heads, with intervals."""
        found = self._score(score)
        value, (low, high) = found.value(), found.ends()
        return {
            head_name(head): Interval(*(float(end[head]) for end in (value, low, high)))
            for head in heads
        }

    def summary(self) -> str:
        """The top heads, with what recency alone would give them."""
        matching, shuffled = self._score("prefix_matching"), self.shuffled
        value, (low, high) = matching.value(), matching.ends()
        parts = [
            f"{head[0]}.{head[1]}: {float(value[head]):.3g} "
            f"[{float(low[head]):.3g}, {float(high[head]):.3g}] "
            f"(shuffled {float(shuffled[head]):.2g})"
            for head in self.top(3)
        ]
        return "highest prefix matching (layer.head): " + ", ".join(parts)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, highest prefix matching first."""
        import pandas as pd

        heads = self.top(self.matching[0].numel())
        table = pd.DataFrame(heads, columns=["layer", "head"])
        rows = tuple(torch.tensor(axis) for axis in zip(*heads, strict=True))
        for name in self.per_prompt:
            score = self._score(name)
            low, high = score.ends()
            for column, end in (
                (name, score.value()),
                (f"{name}_low", low),
                (f"{name}_high", high),
            ):
                table[column] = end[rows].tolist()
        table["class_sensitivity"] = self.class_sensitivity[rows].tolist()
        table["blind_matching"] = self.blind_matching[rows].tolist()
        return table


def _ratio(means: Float[Tensor, "*r 2 layer head"]) -> Float[Tensor, "*r layer head"]:
    """`same / all`."""
    return means[..., 0, :, :] / means[..., 1, :, :].clamp(min=1e-12)
