"""Attribution scores of nodes and edges, beside what exact patching gives.

`s_a = (a_true - a_false) . dm/da` for every node: the token embedding, every head's output and every MLP,
at every position; `m` is the logit of the right label word minus that of the taught false one. `nodes`
holds sums over positions. Exact patching replaces one head's output at all positions; agreement is the
rank correlation over heads, for each prompt.

Source: Nanda 2023, *Attribution patching*; Syed et al. 2023; Hanna et al. 2024.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError
from icl_mech.measurements.causal.definitions import AGREEMENT, ATTRIBUTION, EDGE
from icl_mech.measurements.causal.head_maps import (
    FRAMED,
    clear_heads,
    head_map,
    intervals_of,
    ordered,
    table_of,
)
from icl_mech.measurements.causal.mediation import named
from icl_mech.measurements.heads.texts import head_name
from icl_mech.metrics import Interval, mean_interval, rank_agreement
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS, OPENINGS, judged
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import Grid, Grids, Scatter

if TYPE_CHECKING:
    import pandas as pd

GOOD = 0.7
"""Rank correlation from which the estimate orders heads much as exact patching does."""


def attributed(
    top: Mapping[str, Interval],
    clear: Sequence[tuple[int, int]],
    *,
    heads: int,
    prompts: int,
    gap: Interval,
    agreement: Interval | None,
    missed: tuple[int, float] | None = None,
    given: str,
) -> Figure:
    """Which heads carry the difference between true and false demonstrations, by attribution?

    Args:
        top: Attribution of the heads with the largest, largest first.
        clear: Heads clearly above 0, corrected for looking at all.
        heads: Number of heads of the model.
        prompts: Number of pairs.
        gap: Logit difference with true minus with false demonstrations.
        agreement: Rank correlation with exact patching; None if it was not run.
        missed: Steps of the path, and by how much the embeddings' scores miss the gap at most; None
            without a path.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    best, score = next(iter(top.items()))
    most = f"the largest attribution is that of {best}, {said(score, sign=True)} logits"
    if prompts < FEWEST_PROMPTS:
        answer = f"Cannot be judged from {counted(prompts, 'pair')}: {most}."
    elif clear:
        answer = (
            f"Yes, by estimate: {named(clear)} ({len(clear)} of {heads} heads) are above 0, corrected for looking "
            f"at all heads; {most}, of a gap of {said(gap, sign=True)}."
        )
    else:
        answer = f"Not shown: no head of {heads} is clearly above 0; {most}."
    if agreement is None:
        answer += " The estimate was not compared with exact patching."
    else:
        answer += f" Rank agreement with exact patching: {said(agreement)}."
    if missed is not None:
        answer += (
            f" Over {missed[0]} steps the embeddings miss the gap by {told(missed[1])} at most."
        )
    return Figure(
        "maps",
        "Which heads carry the difference between true and false demonstrations?",
        answer,
        "**Attribution of every head (added over positions)"
        + (
            " and, below, the true change when its output is patched at all positions"
            if agreement
            else ""
        )
        + f".** Means over {counted(prompts, 'pair')} of prompts; in logits of the right above the wrong label "
        "word. Framed: the largest attributions (layer.head). Intervals (when pointing): 95 % over "
        f"pairs{given}, for each head alone.",
        limits="what patching would really change: attribution is a first-order estimate, and poor where "
        "attention or norms saturate. Believe the exact map where the two differ.",
        short="Attribution",
    )


def estimated(agreement: Interval | None, prompts: int, *, given: str) -> Figure:
    """Does the estimate order heads as exact patching does?"""
    status = judged(agreement, null=GOOD, prompts=prompts)
    few = f" from {counted(prompts, 'pair')}" if status == "cannot be judged" else ""
    value = "one side is the same for all heads"
    if agreement is not None:
        value = f"rank correlation over heads {said(agreement)}, mean over prompts (compared with {GOOD})"
    return Figure(
        "both",
        "Does the estimate order the heads as exact patching does?",
        f"{OPENINGS[status]}{few}: {value}.",
        "**Attribution against the true change of every head**, means over "
        f"{counted(prompts, 'pair')} of prompts{given}. Named: the largest attributions.",
        limits="that single heads are ordered right: the correlation is over all heads.",
        short="Estimate and exact",
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Attribution(Result):
    """Scores of every node on every pair of prompts.

    Attributes:
        nodes: Sums over positions, in the order of `writers`.
        by_position: Scores at every position, per prompt (prompts differ in length).
        edges: From every writer to every reader, summed over positions; 0 where there is no edge; None if
            not asked for.
        clean: Logit difference with true demonstrations.
        corrupt: Logit difference with false demonstrations.
        exact: Change of the logit difference when a head's output is patched at all positions; None if
            not asked for.
        shape: Layers and heads.
        writers: Names of the nodes: `embed`, `layer.head`, `mlp layer`.
        readers: Names of the readers: `layer.head q` (`k`, `v`), `mlp layer`, `logits`.
        points: Of the path over which gradients are averaged; 0: the false run alone.
        roles: Role of every token, per prompt.
    """

    title: ClassVar[str] = "Attribution patching"
    shows: ClassVar[tuple[str, ...]] = ("maps", "attribution", "exact", "both")
    definitions: ClassVar[tuple[Definition, ...]] = (ATTRIBUTION, AGREEMENT, EDGE)

    nodes: Float[Tensor, "batch node"]
    by_position: tuple[Float[Tensor, "node _"], ...]
    edges: Float[Tensor, "batch writer reader"] | None
    clean: Float[Tensor, " batch"]
    corrupt: Float[Tensor, " batch"]
    exact: Float[Tensor, "batch layer head"] | None
    shape: tuple[int, int]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    points: int
    roles: tuple[tuple[str, ...], ...]

    @property
    def heads(self) -> Float[Tensor, "batch layer head"]:
        """Attribution of heads, summed over positions."""
        layers, heads = self.shape
        return self.nodes[:, 1:].reshape(-1, layers, heads + 1)[..., :heads]

    @property
    def mlps(self) -> Float[Tensor, "batch layer"]:
        """Attribution of MLPs, summed over positions."""
        layers, heads = self.shape
        return self.nodes[:, 1:].reshape(-1, layers, heads + 1)[..., heads]

    @property
    def gap(self) -> Float[Tensor, " batch"]:
        """Logit difference with true minus with false demonstrations."""
        return self.clean - self.corrupt

    @property
    def missed(self) -> Float[Tensor, " batch"]:
        """Sum of the embeddings' scores minus the gap: 0 for gradients along the whole path."""
        return self.nodes[:, 0] - self.gap

    @property
    def agreement(self) -> Float[Tensor, " batch"] | None:
        """Rank correlation over heads with exact patching, of each prompt; None without it."""
        if self.exact is None:
            return None
        return rank_agreement(self.heads.flatten(1).double(), self.exact.flatten(1).double())

    def quantities(self) -> dict[str, Quantity]:
        """Scores of nodes and heads, the gap, and exact patching with the agreement, if it was run."""
        dims, unit = ("layer", "head"), "attribution, in logits"
        found = {
            "attribution": Quantity(dims, self.heads, unit=unit),
            "nodes": Quantity(("node",), self.nodes, unit=unit),
            "mlp": Quantity(("layer",), self.mlps, unit=unit),
            "gap": Quantity((), self.gap, unit="logits"),
        }
        if self.exact is not None:
            found["exact"] = Quantity(dims, self.exact, unit="change of the logit difference")
            agreement = self.agreement
            if agreement is not None and not bool(agreement.isnan().any()):
                found["agreement"] = Quantity(
                    (), agreement, unit="rank correlation over heads", kind="correlation"
                )
        if self.edges is not None:
            found["edges"] = Quantity(("node", "reader"), self.edges, unit=unit)
        return found

    def coordinates(self) -> dict[str, Sequence[Any]]:
        """Names of nodes and readers."""
        return {"node": self.writers, "reader": self.readers}

    @checked(ResultError)
    def top(self, k: Count = FRAMED) -> tuple[tuple[int, int], ...]:
        """The k heads with the largest attribution, largest first."""
        return ordered(self.heads.double().mean(0), k)

    @checked(ResultError)
    def top_edges(self, k: Count = 10) -> list[tuple[str, str, float]]:
        """The k edges of largest size: writer, reader and mean score.

        Raises:
            ResultError: edges were not scored.
        """
        if self.edges is None:
            raise ResultError("Edges were not scored; measure with edges=True.")
        mean = self.edges.double().mean(0)
        order = mean.abs().flatten().argsort(descending=True, stable=True)[:k].tolist()
        places = [divmod(int(place), mean.shape[1]) for place in order]
        return [(self.writers[w], self.readers[r], float(mean[w, r])) for w, r in places]

    def by_role(self) -> dict[str, Float[Tensor, " node"]]:
        """Mean over prompts of each node's scores, added over the tokens of each role."""
        found: dict[str, Tensor] = {}
        for scores, roles in zip(self.by_position, self.roles, strict=True):
            for role in dict.fromkeys(roles):
                inside = torch.tensor([own == role for own in roles])
                own = scores[:, inside].sum(1).double() / len(self.by_position)
                found[role] = found.get(role, 0.0) + own
        return found

    def drawing(self, show: str = "maps") -> Grids | Grid | Scatter:
        """Maps of attribution and exact patching, or one against the other.

        Args:
            show: `maps`, `attribution`, `exact` or `both` (one against the other).

        Raises:
            ResultError: unknown `show`, or exact patching was not run.
        """
        self.check_show(show)
        if self.exact is None and show in ("exact", "both"):
            raise ResultError("Exact patching was not run; measure with exact=True.")
        if show == "both":
            return self._against()
        if show != "maps":
            return self._map(show, f"{basis(self)}; framed: the {FRAMED} largest attributions")
        kinds = ["attribution", *(["exact"] if self.exact is not None else [])]
        return Grids("Attribution of heads", tuple(map(self._map, kinds)), basis(self))

    def _map(self, name: str, note: str = "") -> Grid:
        title = "Attribution" if name == "attribution" else "Exact patching, at all positions"
        found = self.quantities()[name]
        return head_map(title, found, self.top(), quantity="logits", signed=True, note=note)

    def _against(self) -> Scatter:
        found, top = self.quantities(), self.top()
        x, y = found["attribution"].value(), found["exact"].value()
        cells = [(layer, head) for layer in range(x.shape[0]) for head in range(x.shape[1])]
        return Scatter(
            title="Attribution and exact patching",
            x=x.flatten(),
            y=y.flatten(),
            names=tuple(map(head_name, cells)),
            groups=tuple("largest attribution" if cell in top else "other heads" for cell in cells),
            x_title="attribution, in logits",
            y_title="change under exact patching, in logits",
            note=f"means over {len(self.nodes)} pairs of prompts",
            order=("largest attribution", "other heads"),
            meanings=("target", "other"),
            named=tuple(i for i, cell in enumerate(cells) if cell in top),
        )

    def figures(self) -> list[Figure]:
        """Which heads are said to carry the difference, and how good the estimate is."""
        count, top = len(self.nodes), self.top()
        shown = [
            attributed(
                intervals_of(self.quantities()["attribution"], top),
                clear_heads(self.heads),
                heads=self.heads[0].numel(),
                prompts=count,
                gap=self.interval("gap"),
                agreement=self._agreement(),
                missed=(self.points, self._most) if self.points else None,
                given=given(self),
            )
        ]
        if self.exact is not None:
            shown.append(estimated(self._agreement(), count, given=given(self)))
        return shown

    def _agreement(self) -> Interval | None:
        own = self.agreement
        return None if own is None or bool(own.isnan().any()) else mean_interval(own, "correlation")

    def summary(self) -> str:
        """Largest attributions, and how far they can be trusted."""
        found = intervals_of(self.quantities()["attribution"], self.top(3))
        parts = ", ".join(f"{name}: {value}" for name, value in found.items())
        agreement = self._agreement()
        beside = "not compared with exact patching"
        if agreement is not None:
            beside = f"rank agreement with exact patching {agreement}"
        if self.points:
            beside += f"; over {self.points} steps the embeddings miss the gap by {self._most:.2g} at most"
        return f"largest attributions (layer.head): {parts}; {beside}"

    @property
    def _most(self) -> float:
        return float(self.missed.abs().max())

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, largest attribution first."""
        import pandas as pd

        names = ("attribution", *(("exact",) if self.exact is not None else ()))
        found = {name: self.quantities()[name] for name in names}
        return pd.DataFrame(table_of(found, self.top(self.heads[0].numel())))
