"""Attribution patching: which nodes carry the difference between true and false demonstrations.

`s_a = (a_true - a_false) . dm/da` for every node: the token embedding, every head's output and every MLP,
at every position; `m` is the logit of the correct label word minus that of the demonstrated false one. It is a
first-order estimate, from one backward pass, of patching each node from the run with true demonstrations
into the run with false ones. Its rank agreement with exact patching, which replaces one head's output at
all positions, is also measured.

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
    heads_of,
    intervals_of,
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
from icl_mech.metrics import Interval, rank_agreement
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.judging import Status, judged
from icl_mech.results.quantities import kept

SCORE = "attribution, in logits"

AGREEMENT = Definition(
    "agreement with patching",
    r"\rho_n = \operatorname{Spearman}_{l,h}\left(s_{lh},\ \Delta m_{lh}\right)",
    "Rank correlation over heads, for each prompt, between attribution and the actual change of m "
    "when the head's output is patched at all positions.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class AttributionPatchingResult(Result):
    """Scores of every node on every pair of prompts.

    Attributes:
        nodes: Sums over positions, in the order of `writers`.
        by_position: Scores at every position, per prompt (prompts differ in length).
        edges: Scores from every writer to every reader, summed over positions; 0 where there is no edge; None
            if not requested.
        clean: Logit difference with true demonstrations.
        corrupt: Logit difference with false demonstrations.
        exact: Change of the logit difference when a head's output is patched at all positions; None if not
            requested.
        shape: Layers and heads.
        writers: Names of the nodes: `embed`, `layer.head`, `mlp layer`.
        readers: Names of the readers: `layer.head q` (`k`, `v`), `mlp layer`, `logits`.
        points: Number of points of the path over which gradients are averaged; 0: the false run alone.
        roles: Role of every token, per prompt.
    """

    shows: ClassVar[tuple[str, ...]] = ("maps", "attribution", "exact", "both")
    definitions: ClassVar[tuple[Definition, ...]] = (ATTRIBUTION, AGREEMENT, EDGE)
    axis_labels: ClassVar[Mapping[str, str]] = {"node": "writers", "reader": "readers"}
    ranked: ClassVar[bool] = True
    good_agreement: ClassVar[float] = 0.7
    """Minimum rank correlation at which the estimate counts as ordering heads much as exact patching does."""

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
        """Logit difference with true demonstrations minus that with false ones."""
        return self.clean - self.corrupt

    @property
    def missed(self) -> Float[Tensor, " batch"]:
        """Sum of all scores of the embeddings minus the gap: 0 for gradients along the whole path."""
        return self.nodes[:, 0] - self.gap

    @property
    def agreement(self) -> Float[Tensor, " batch"] | None:
        """Rank correlation over heads with exact patching, for each prompt; None without exact patching."""
        if self.exact is None:
            return None
        return rank_agreement(self.heads.flatten(1).double(), self.exact.flatten(1).double())

    def quantities(self) -> dict[str, Quantity]:
        """Scores of heads and nodes, exact patching and its agreement, if it was run, and the gap."""
        heads = Quantity(("layer", "head"), self.heads, unit=SCORE)
        quantities = {"attribution": heads, **super().quantities()}
        quantities["mlp"] = Quantity(("layer",), self.mlps, unit=SCORE)
        quantities["gap"] = Quantity((), self.gap, unit="logits")
        agreement, unit = self.agreement, "rank correlation over heads"
        if agreement is not None and not bool(agreement.isnan().any()):
            quantities["agreement"] = Quantity((), agreement, unit=unit, kind="correlation")
        return quantities

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
            raise ResultError("Edges were not scored; measure again with edges=True.")
        mean = self.edges.double().mean(0)
        order = mean.abs().flatten().argsort(descending=True, stable=True)[:k].tolist()
        places = [divmod(int(place), mean.shape[1]) for place in order]
        return [(self.writers[w], self.readers[r], float(mean[w, r])) for w, r in places]

    def by_role(self) -> dict[str, Float[Tensor, " node"]]:
        """Mean over prompts of each node's scores, summed over the tokens of each role."""
        totals: dict[str, Tensor] = {}
        for scores, roles in zip(self.by_position, self.roles, strict=True):
            for role in dict.fromkeys(roles):
                inside = torch.tensor([token_role == role for token_role in roles])
                mean = scores[:, inside].sum(1).double() / len(self.by_position)
                totals[role] = totals.get(role, 0.0) + mean
        return totals

    # --- summary ---

    @property
    def count(self) -> int:
        """Number of pairs of prompts."""
        return len(self.nodes)

    @property
    @kept
    def clear(self) -> tuple[str, ...]:
        """Names of the heads with attribution above 0, corrected for multiple testing over heads, largest first."""
        return tuple(map(head_name, clear_heads(self.heads)))

    @property
    def status(self) -> Status:
        """Status of the claim that some head's attribution lies above 0."""
        return any_clear(bool(self.clear), self.count)

    def largest(self, k: Count = FRAMED) -> dict[str, Interval]:
        """The k heads with the largest attribution, by name, largest first."""
        return intervals_of(self.sel(), self.top(k))

    @property
    def mean_agreement(self) -> Interval | None:
        """Mean of `agreement`; None without exact patching, or where either score is constant over heads."""
        return self.interval("agreement") if "agreement" in self.quantities() else None

    @property
    def exact_status(self) -> Status:
        """Status of the claim that the mean agreement is at least `good_agreement`."""
        return judged(self.mean_agreement, null=self.good_agreement, prompts=self.count)

    @property
    def most_missed(self) -> float:
        """The largest absolute value of `missed`."""
        return float(self.missed.abs().max())

    def on_page(self) -> tuple[str, ...]:
        """The maps and, if exact patching was run, its comparison with them."""
        return ("maps",) if self.exact is None else ("maps", "both")


@dataclass(frozen=True)
class AttributionPatching(PairMeasurement[AttributionPatchingResult]):
    """Attribution of the difference between true and false demonstrations to every node.

    Attributes:
        points: Gradients are averaged over this many points between the embeddings of the two runs;
            0: gradients of the run with false demonstrations.
        edges: Score edges between nodes too.
        exact: Also patch every head in turn, and report the rank agreement.

    Raises:
        PromptError: sets that are not pairs, or whose tokens do not align.
        RunError: processed weights, edges of a model that normalises head outputs, interventions by prompt number.
    """

    points: Natural = 0
    edges: bool = False
    exact: bool = True

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject sets that are not pairs or do not align, and models that attribution is not defined for.

        Raises:
            PromptError: which prompts do not align, and why.
            RunError: processed weights, or edges of a model that normalises its head outputs.
        """
        check_pairs(*data)
        check_answers(data[1], "attribution_patching")
        Place("all").check_aligned(data[1], data[0], every=False)
        check_own_weights(model, "attribution_patching")
        if self.edges and model.attention_norm(0) is not None:
            raise RunError(
                f"{model.info.name!r} normalises the sum of its heads before adding it to the "
                "residual stream, so single heads have no edges. Use edges=False."
            )

    def check_options(self, model: LanguageModel, data: Pair, options: Options) -> None:
        """Reject interventions that depend on single prompts or other runs.

        Raises:
            RunError: names the intervention.
        """
        for intervention in options.interventions:
            if intervention.by_number or intervention.taken_from() is not None:
                raise RunError(
                    f"{intervention!r} depends on the index of a prompt or takes its values from "
                    "another run, but attribution_patching batches each side separately. Leave it "
                    "out."
                )

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Exact patching of every head at all positions, if requested."""
        if not self.exact:
            return []
        heads = heads_of((model.info.n_layers, model.info.n_heads))
        variants = [[], *([Patch("z", [head], at="all", source=data[0])] for head in heads)]
        return [Variants(data[1], [AnswerReading()], title="exact patching", variants=variants)]

    def steps(
        self, model: LanguageModel, data: Pair, options: Options
    ) -> Steps[AttributionPatchingResult]:
        """Attribution first, then exact patching if requested."""
        scored = pair_scores(model, data, options, steps=self.points, edges=self.edges)
        jobs = self.passes(model, data)
        patched: list[Any] = (yield jobs) if jobs else [None]
        return self.result(model, data, [scored, *patched])

    def result(
        self, model: LanguageModel, data: Pair, read: list[Any]
    ) -> AttributionPatchingResult:
        """Build the result from the scores of all prompts and the answers under exact patches."""
        scored: PairScores = read[0]
        exact, info = None, model.info
        if read[1] is not None:
            differences = [
                contrast(answers.label_logits.double(), data[1]) for (answers,) in read[1]
            ]
            change = torch.stack(differences[1:], dim=1) - differences[0][:, None]
            exact = change.reshape(-1, info.n_layers, info.n_heads)
        return AttributionPatchingResult(
            nodes=torch.stack([scores.sum(-1) for scores in scored.nodes]),
            by_position=tuple(scores.float() for scores in scored.nodes),
            edges=None if scored.edges is None else torch.stack([*scored.edges]).float(),
            clean=scored.clean,
            corrupt=scored.corrupt,
            exact=exact,
            shape=(info.n_layers, info.n_heads),
            writers=writer_names(info),
            readers=reader_names(info) if self.edges else (),
            points=self.points,
            roles=tuple(
                tuple(span.role for span in prompt.spans for _ in range(span.start, span.stop))
                for prompt in data[1]
            ),
        )


attribution_patching = door(
    AttributionPatching,
    "attribution_patching",
    called={"points": "steps"},
    clean="Prompts with true demonstrations, from which values are taken.",
    corrupt=(
        "The same prompts with false demonstrations, aligned token by token, in which gradients "
        "are taken."
    ),
)
