"""Attribution patching: which nodes carry the difference between true and false demonstrations.

`s_a = (a_true - a_false) . dm/da` for every node: the token embedding, every head's output and every MLP,
at every position; `m` is the logit of the right label word minus that of the taught false one. It is a
first-order estimate, from one backward pass, of patching every node from the run with true into the run
with false demonstrations. How far its ranks agree with exact patching, which replaces one head's output
at all positions, is measured beside it.

Source: Nanda 2023, *Attribution patching*; Syed et al. 2023; Hanna et al. 2024 (integrated gradients).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Patch, Place
from icl_mech.measurements.base import Options, Pair, PairMeasurement, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers, contrast
from icl_mech.measurements.causal.head_maps import (
    FRAMED,
    Head,
    any_clear,
    clear_heads,
    head_map,
    heads_of,
    intervals_of,
    named,
    ordered,
)
from icl_mech.measurements.causal.tracing import (
    ATTRIBUTION,
    EDGE,
    PairScores,
    pair_scores,
    reader_names,
    writer_names,
)
from icl_mech.measurements.demonstrations import check_pairs
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics import Interval, mean_interval, rank_agreement
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS
from icl_mech.results import Definition, Figure, Quantity, Result, basis, quantity
from icl_mech.results.judging import judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import Grid, Grids, Scatter

SCORE = "attribution, in logits"

GOOD = 0.7
"""Rank correlation from which the estimate orders heads much as exact patching does."""

AGREEMENT = Definition(
    "agreement with patching",
    r"\rho_n = \operatorname{Spearman}_{l,h}\left(s_{lh},\ \Delta m_{lh}\right)",
    "Rank correlation over heads, for each prompt, of attribution and the true change of m when the "
    "head's output is patched at all positions.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class AttributionPatchingResult(Result):
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
    axis_labels: ClassVar[Mapping[str, str]] = {"node": "writers", "reader": "readers"}
    ranked: ClassVar[bool] = True

    nodes: Float[Tensor, "batch node"] = quantity(SCORE)
    by_position: tuple[Float[Tensor, "node _"], ...]
    edges: Float[Tensor, "batch node reader"] | None = quantity(SCORE)
    clean: Float[Tensor, " batch"]
    corrupt: Float[Tensor, " batch"]
    exact: Float[Tensor, "batch layer head"] | None = quantity("change of the logit difference")
    shape: tuple[int, int]
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    points: int
    roles: tuple[tuple[str, ...], ...]

    @property
    def heads(self) -> Float[Tensor, "batch layer head"]:
        """Attribution of heads, summed over positions."""
        return self.nodes[:, 1:].reshape(len(self.nodes), self.shape[0], -1)[..., :-1]

    @property
    def mlps(self) -> Float[Tensor, "batch layer"]:
        """Attribution of MLPs, summed over positions."""
        return self.nodes[:, 1:].reshape(len(self.nodes), self.shape[0], -1)[..., -1]

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
        """Scores of heads and nodes, exact patching and its agreement, if it was run, and the gap."""
        heads = Quantity(("layer", "head"), self.heads, unit=SCORE)
        found = {"attribution": heads, **super().quantities()}
        found["mlp"] = Quantity(("layer",), self.mlps, unit=SCORE)
        found["gap"] = Quantity((), self.gap, unit="logits")
        own, unit = self.agreement, "rank correlation over heads"
        if own is not None and not bool(own.isnan().any()):
            found["agreement"] = Quantity((), own, unit=unit, kind="correlation")
        return found

    @checked(ResultError)
    def top(self, k: Count = FRAMED) -> tuple[Head, ...]:
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
        return head_map(
            self.sel(name), title, self.top(), quantity="logits", signed=True, note=note
        )

    def _against(self) -> Scatter:
        found, top = self.quantities(), self.top()
        x, y = found["attribution"].value(), found["exact"].value()
        cells = heads_of(x.shape)
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
        pairs, agreement = f"{counted(len(self.nodes), 'pair')} of prompts", self._agreement()
        patched = " and, below, the true change when its output is patched at all positions"
        shown = [
            Figure(
                "maps",
                question="Which heads carry the difference between true and false demonstrations?",
                answer=self._answer(),
                caption=f"**Attribution of every head (added over positions){patched if agreement else ''}.** "
                f"Means over {pairs}; in logits of the right above the wrong label word. Framed: the largest "
                f"attributions (layer.head). Intervals (when pointing): 95 % over pairs{given(self)}, for each "
                "head alone.",
                limits="what patching would really change: attribution is a first-order estimate, and poor where "
                "attention or norms saturate. Believe the exact map where the two differ.",
                short="Attribution",
            )
        ]
        if self.exact is None:
            return shown
        status = judged(agreement, null=GOOD, prompts=len(self.nodes))
        value = "one side is the same for all heads"
        if agreement is not None:
            value = f"rank correlation over heads {said(agreement)}, mean over prompts (compared with {GOOD})"
        exact = Figure(
            "both",
            question="Does the estimate rank the heads as exact patching does?",
            answer=f"{opening(status, counted(len(self.nodes), 'pair'))} {value}.",
            caption=f"**Attribution against the true change of every head**, means over {pairs}{given(self)}. "
            "Named: the largest attributions.",
            limits="that single heads are ordered right: the correlation is over all heads.",
            short="Estimate and exact",
        )
        return [*shown, exact]

    def _answer(self) -> str:
        clear, heads, count = clear_heads(self.heads), self.heads[0].numel(), len(self.nodes)
        best, score = next(iter(intervals_of(self.sel(), self.top()).items()))
        most = f"the largest attribution is that of {best}, {said(score, sign=True)} logits"
        status = any_clear(clear, count)
        found = f"{most}."
        if status == "supported":
            found = (
                f"{named(clear)} ({len(clear)} of {heads} heads) are above 0, corrected for looking at all "
                f"heads; {most}, of a gap of {said(self.interval('gap'), sign=True)}."
            )
        elif status == "not shown":
            found = f"no head of {heads} is clearly above 0; {most}."
        agreement = self._agreement()
        found += (
            " The estimate was not compared with exact patching."
            if agreement is None
            else f" Rank agreement with exact patching: {said(agreement)}."
        )
        if self.points:
            missed = told(self._most)
            found += f" Over {self.points} steps the embeddings miss the gap by {missed} at most."
        few = counted(count, "pair")
        return f"{opening(status, few, supported='Yes, by estimate:')} {found}"

    def _agreement(self) -> Interval | None:
        own = self.agreement
        return None if own is None or bool(own.isnan().any()) else mean_interval(own, "correlation")

    def summary(self) -> str:
        """Largest attributions, and how far they can be trusted."""
        found = intervals_of(self.sel(), self.top(3))
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


@dataclass(frozen=True)
class AttributionPatching(PairMeasurement[AttributionPatchingResult]):
    """Attribution of every node to the difference of true and false demonstrations.

    Attributes:
        points: Gradients are the mean over so many points between the embeddings of the two runs;
            0: those of the run with false demonstrations.
        edges: Score edges between nodes too.
        exact: Also patch every head in turn, and say how far the ranks agree.

    Raises:
        PromptError: sets that are not pairs, or whose tokens do not stand beside each other.
        RunError: processed weights, edges of a model that norms what heads add, interventions by number.
    """

    points: Natural = 0
    edges: bool = False
    exact: bool = True

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs or do not align, and models it is not defined for.

        Raises:
            PromptError: which prompts do not align, and why.
            RunError: processed weights, or edges of a model that norms what its heads add.
        """
        check_pairs(*data)
        check_answers(data[1], "attribution_patching")
        Place("all").check_aligned(data[1], data[0], every=False)
        check_own_weights(model, "attribution_patching")
        if self.edges and model.attention_norm(0) is not None:
            raise RunError(
                f"{model.info.name!r} norms the sum of its heads before adding it to the residual stream, so "
                "heads have no edges of their own; leave edges=False."
            )

    def check_options(self, model: LanguageModel, data: Pair, options: Options) -> None:
        """Refuse interventions that belong to single prompts or other runs.

        Raises:
            RunError: names the intervention.
        """
        for own in options.interventions:
            if own.by_number or own.taken_from() is not None:
                raise RunError(
                    f"{own!r} goes by the number of a prompt or takes its values from another run; "
                    "attribution_patching runs both sides in batches of their own. Leave it out."
                )

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Exact patching of every head at all positions, if asked for."""
        if not self.exact:
            return []
        heads = heads_of((model.info.n_layers, model.info.n_heads))
        variants = [[], *([Patch("z", [head], at="all", source=data[0])] for head in heads)]
        return [Variants(data[1], [AnswerReading()], title="exact patching", variants=variants)]

    def steps(
        self, model: LanguageModel, data: Pair, options: Options
    ) -> Steps[AttributionPatchingResult]:
        """Attribution first, then exact patching where it is asked for."""
        scored = pair_scores(model, data, options, steps=self.points, edges=self.edges)
        jobs = self.passes(model, data)
        patched: list[Any] = (yield jobs) if jobs else [None]
        return self.result(model, data, [scored, *patched])

    def result(
        self, model: LanguageModel, data: Pair, read: list[Any]
    ) -> AttributionPatchingResult:
        """From the scores of all prompts, and the answers under exact patches."""
        scored: PairScores = read[0]
        exact, info = None, model.info
        if read[1] is not None:
            found = [contrast(own.label_logits.double(), data[1]) for (own,) in read[1]]
            change = torch.stack(found[1:], dim=1) - found[0][:, None]
            exact = change.reshape(-1, info.n_layers, info.n_heads)
        return AttributionPatchingResult(
            nodes=torch.stack([own.sum(-1) for own in scored.nodes]),
            by_position=tuple(own.float() for own in scored.nodes),
            edges=None if scored.edges is None else torch.stack([*scored.edges]).float(),
            clean=scored.clean,
            corrupt=scored.corrupt,
            exact=exact,
            shape=(info.n_layers, info.n_heads),
            writers=writer_names(info),
            readers=reader_names(info) if self.edges else (),
            points=self.points,
            roles=tuple(
                tuple(own.role for own in prompt.spans for _ in range(own.start, own.stop))
                for prompt in data[1]
            ),
        )


attribution_patching = door(
    AttributionPatching,
    "attribution_patching",
    called={"points": "steps"},
    clean="Prompts with true demonstrations, which values are taken from.",
    corrupt="The same prompts with false ones, token beside token, in which gradients are taken.",
)
