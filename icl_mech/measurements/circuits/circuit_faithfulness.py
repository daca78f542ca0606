"""Faithfulness of a circuit: how much of the answer a set of heads, nodes or edges carries.

The circuit is *kept alone*: everything outside it is ablated, at all tokens; or it is *cut out*, and everything else stays.
The metric m is the logit of the right label word minus that of the label the counterfactual leads to (with false
demonstrations, the demonstrated one; see `alignment.margin`). The curve over sizes takes the components with the largest
scores; its areas are those of the mechanistic interpretability benchmark (MIB). The control is random sets of equal size.
Edges on no path of the set from the embedding to the logits are left out, as in the benchmark; random sets of edges are
connected, and have as many edges as then remain (ours).

Without a circuit, components are scored by EAP-IG on one half of the pairs, and tested on the other.

Sources: Mueller et al. 2025, *MIB: A Mechanistic Interpretability Benchmark*, arXiv 2504.13151; Hanna et al. 2024, *Have
faith in faithfulness*, arXiv 2403.17806.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Called, Count, Heads, Natural, checked
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.base import Options, Pair, PairMeasurement, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers, check_label_words
from icl_mech.measurements.causal.tracing import is_parallel
from icl_mech.measurements.circuits.ablated import FewRows, Stored, all_rows, check_separate
from icl_mech.measurements.circuits.alignment import (
    Places,
    aligned,
    check_alike,
    margin,
    positions,
    split,
    unlike,
)
from icl_mech.measurements.circuits.edge_scores import EAP_IG, Variant, check_edges, eap_ig
from icl_mech.measurements.circuits.files import read_circuit
from icl_mech.measurements.circuits.graph import Circuit, Components, Granularity, Ranking
from icl_mech.measurements.circuits.reading import Divergence, TargetLogProbs
from icl_mech.measurements.circuits.runs import Runs, Sets, check_empty
from icl_mech.measurements.doors import door
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.metrics.ratios import ratio_interval
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import ANSWER_KINDS
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, judged
from icl_mech.results.quantities import function_of_means
from icl_mech.segments import Segment

Ablation = Literal["resample", "mean", "zero"]

GRID = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Fractions of all components at which MIB takes circuits."""

MIB = "Mueller et al. 2025, MIB, arXiv 2504.13151"

FAITHFULNESS = Definition(
    "faithfulness",
    r"f(C) = \frac{\bar m(C) - \bar m(\emptyset)}{\bar m(M) - \bar m(\emptyset)}",
    "m(C) is the metric with everything outside the circuit C ablated, m(M) that of the whole model, m(∅) that with all "
    "components ablated; means over the same prompts. f(M) = 1 and f(∅) = 0.",
    MIB,
)

AREAS = Definition(
    "CPR and CMD",
    r"\mathrm{CPR} = \int f(C_k)\,dk, \quad \mathrm{CMD} = \int \left|1 - f(C_k)\right| dk",
    "C_k holds the fraction k of all components with the largest scores (rounded down); trapezoidal rule over the fractions "
    "0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5 and 1 on a linear axis, as in the benchmark's code.",
    MIB,
)

CUT = Definition(
    "fraction lost",
    r"1 - f(M \setminus C)",
    "The same with the circuit ablated and everything else kept.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class CircuitFaithfulnessResult(Result):
    """The metric of the circuit, of circuits of other sizes and of random sets, on every test pair.

    Attributes:
        alone: Metric with everything outside the circuit ablated.
        random_alone: The same for random sets of its size.
        cut: Metric with the circuit ablated and everything else kept.
        random_cut: The same for random sets of its size.
        plain: Metric of the whole model.
        empty: Metric with all components ablated.
        divergence: KL divergence of the next-token distribution of the circuit alone from that of the whole model, in nats.
        curve: Metric of the components with the largest scores alone, by number; None without scores.
        random: The same for random sets of equal size.
        curve_divergence: Divergence by number of components.
        sizes: Numbers of components.
        fractions: Fractions of all components of the curve.
        at: Index of each fraction in `sizes`.
        components: Names of all components.
        chosen: Names of the components in the circuit; of edges, those on a path from the embedding to the logits.
        before_pruning: Number of components of the circuit, also of edges on no such path.
        overlap: Number of components that each random set shares with the circuit.
        acting: For each of `sizes`, number of components in the set; of edges, those on such a path. Random sets have as
            many.
        scores: Score of every component; None without scores.
        granularity: What the components are.
        ablation: What ablated components write.
        reduced: True if a circuit of edges was reduced to its nodes.
        origin: Where the circuit comes from.
        selected: Number of pairs that components were scored on; 0 if the circuit was given.
        unlike: Number of test pairs with spans of different lengths.
    """

    shows: ClassVar[tuple[str, ...]] = ("circuit", "faithfulness")
    definitions: ClassVar[tuple[Definition, ...]] = (FAITHFULNESS, AREAS, CUT, EAP_IG)
    axis_labels: ClassVar[Mapping[str, str | Sequence[str]]] = {"size": "sizes"}

    alone: Float[Tensor, " batch"]
    random_alone: Float[Tensor, "batch draw"]
    cut: Float[Tensor, " batch"]
    random_cut: Float[Tensor, "batch draw"]
    plain: Float[Tensor, " batch"]
    empty: Float[Tensor, " batch"]
    divergence: Float[Tensor, " batch"]
    curve: Float[Tensor, "batch size"] | None
    random: Float[Tensor, "batch size draw"] | None
    curve_divergence: Float[Tensor, "batch size"] | None
    sizes: tuple[int, ...]
    fractions: tuple[float, ...]
    at: tuple[int, ...]
    components: tuple[str, ...]
    chosen: tuple[str, ...]
    before_pruning: int
    overlap: tuple[int, ...]
    acting: tuple[int, ...]
    scores: Float[Tensor, " component"] | None
    granularity: Granularity
    ablation: Ablation
    reduced: bool
    origin: str
    selected: int
    unlike: int

    def quantities(self) -> dict[str, Quantity]:
        """Faithfulness of the circuit and by size, the fraction lost without it, areas, divergences and the metric."""
        nats, logits, unit = "KL divergence (nats)", "logits", "faithfulness"
        quantities = {
            "carried": self._ratio(self.alone, unit),
            "random_carried": self._ratio(self.random_alone.double().mean(1), unit),
            "lost": self._ratio(self._without(self.cut), "fraction lost"),
            "random_lost": self._ratio(self._without(self.random_cut.mean(1)), "fraction lost"),
            "divergence": Quantity((), self.divergence.double(), unit=nats, kind="amount"),
            "gap": Quantity((), self._gap, unit=logits),
        }
        metrics = {
            "metric": self.plain,
            "alone": self.alone,
            "random_alone": self.random_alone.double().mean(1),
            "cut": self.cut,
            "random_cut": self.random_cut.double().mean(1),
            "empty": self.empty,
        }
        quantities |= {
            name: Quantity((), values.double(), unit=logits) for name, values in metrics.items()
        }
        if self.curve is None or self.random is None or self.curve_divergence is None:
            return quantities
        return quantities | {
            "faithfulness": self._ratio(self.curve, unit),
            "random": self._ratio(self.random.double().mean(2), unit),
            "curve_divergence": Quantity(
                ("size",), self.curve_divergence.double(), unit=nats, kind="amount"
            ),
            **self._areas(),
        }

    @property
    def _gap(self) -> Float[Tensor, " batch"]:
        return self.plain.double() - self.empty.double()

    def _without(self, cut: Tensor) -> Tensor:
        """The metric lost without some components, above that of the empty circuit."""
        return self.plain.double() - cut.double() + self.empty.double()

    def _ratio(self, metric: Tensor, unit: str) -> Quantity:
        """Mean of `metric - empty` over that of the gap, with Fieller's interval."""
        above = metric.double() - self.empty.double().reshape(-1, *[1] * (metric.ndim - 1))
        columns = above.reshape(len(above), -1)
        ends = torch.tensor([ratio_interval(column, self._gap)[1:] for column in columns.T])
        low, high = ends.double().reshape(*above.shape[1:], 2).unbind(-1)
        both = torch.cat([columns, self._gap[:, None]], dim=1)

        def ratios(means: Tensor) -> Tensor:
            return (means[:, :-1] / means[:, -1:]).reshape(-1, *above.shape[1:])

        dims = ("size",) * (above.ndim - 1)
        return Quantity(dims, above, function_of_means(both, ratios), unit, (low, high))

    def _areas(self) -> dict[str, Quantity]:
        """Areas under faithfulness, and between it and 1, over the fractions of the curve; unknown without a clear gap."""
        assert self.curve is not None
        above = self.curve.double()[:, list(self.at)] - self.empty.double()[:, None]
        both = torch.cat([above, self._gap[:, None]], dim=1)
        grid = torch.tensor(self.fractions, dtype=torch.float64)

        def cpr(means: Tensor) -> Tensor:
            return torch.trapezoid(means[:, :-1] / means[:, -1:], grid, dim=1)

        def cmd(means: Tensor) -> Tensor:
            return torch.trapezoid((1 - means[:, :-1] / means[:, -1:]).abs(), grid, dim=1)

        _, *ends = ratio_interval(torch.trapezoid(above, grid, dim=1), self._gap)
        low, high = torch.tensor(ends, dtype=torch.float64)
        unknown = None if bool(low.isfinite()) else (low, high)
        under, beside = (function_of_means(both, area) for area in (cpr, cmd))
        return {
            "cpr": Quantity((), self._gap, under, "area under faithfulness", (low, high)),
            "cmd": Quantity((), self._gap, beside, "area between faithfulness and 1", unknown),
        }

    # --- summary ---

    @property
    def count(self) -> int:
        """Number of test pairs."""
        return len(self.plain)

    @property
    def draws(self) -> int:
        """Number of random sets of each size."""
        return self.random_alone.shape[1]

    @property
    def gap(self) -> Interval:
        """Metric of the whole model above that with all components ablated, in logits."""
        return mean_interval(self._gap)

    @property
    def carried(self) -> Interval:
        """Faithfulness of the circuit; NaN where the gap is not clear."""
        return ratio_interval(self.alone.double() - self.empty.double(), self._gap)

    @property
    def lost(self) -> Interval:
        """Fraction of the gap that is lost without the circuit; NaN where the gap is not clear."""
        return ratio_interval(self.plain.double() - self.cut.double(), self._gap)

    @property
    def beyond_random(self) -> Interval | None:
        """Metric of the circuit above that of random sets of equal size, in logits; None for fewer than two draws."""
        return beyond_draws(self.alone, self.random_alone)

    @property
    def lost_beyond_random(self) -> Interval | None:
        """Metric lost without the circuit above that lost without random sets of equal size, in logits."""
        return beyond_draws(-self.cut, -self.random_cut)

    @property
    def has_gap(self) -> bool:
        """True if there is clearly something to carry."""
        return judged(self.gap, prompts=self.count) == "supported"

    @property
    def has_control(self) -> bool:
        """True if some random set differs from the circuit."""
        return any(shared < len(self.chosen) for shared in self.overlap)

    def _judged(self, beyond: Interval | None) -> Status:
        if not (self.has_gap and self.has_control):
            return "cannot be judged"
        return judged(beyond, prompts=self.count)

    @property
    def status(self) -> Status:
        """Status of the claim that the circuit alone carries more of the answer than random sets of equal size."""
        return self._judged(self.beyond_random)

    @property
    def cut_status(self) -> Status:
        """Status of the claim that more of the answer is lost without the circuit than without random sets."""
        return self._judged(self.lost_beyond_random)

    @checked(ResultError)
    def top(self, k: Count = 10) -> list[tuple[str, float]]:
        """The k components with the largest scores, and their scores.

        Raises:
            ResultError: a circuit without scores.
        """
        if self.scores is None:
            raise ResultError(
                "This circuit has no scores; measure with circuit=None for those of EAP-IG."
            )
        order = self.scores.nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)[:k]
        return [(self.components[i], float(self.scores[i])) for i in order.tolist()]

    @property
    def reached(self) -> tuple[int, ...]:
        """The smallest sizes with at least half and nine tenths of the gap; the largest where none has it."""
        values = self.sel("faithfulness").values.tolist()
        over = [
            [size for size, value in zip(self.sizes, values, strict=True) if value >= least]
            for least in (0.5, 0.9)
        ]
        return tuple(sorted({sizes[0] if sizes else self.sizes[-1] for sizes in over}))

    def on_page(self) -> tuple[str, ...]:
        """The circuit and, where there are scores, faithfulness by size."""
        return self.shows

    def is_drawn(self, show: str) -> bool:
        """False for the curve without scores, and where there is nothing to carry."""
        return show != "faithfulness" or (self.curve is not None and self.gap.low > 0)


@dataclass(frozen=True)
class CircuitFaithfulness(PairMeasurement[CircuitFaithfulnessResult]):
    """How much of the answer a circuit carries, kept alone and cut out.

    The first set of the pair holds the clean prompts, the second their counterfactuals (false demonstrations, or another
    query), aligned by role. Without a circuit, EAP-IG scores come from one half of the pairs and the test uses the other.

    Attributes:
        circuit: A `Circuit`, a file of another tool (see `read_circuit`), or pairs (layer, head); None: EAP-IG scores.
        granularity: Ablate `heads` (MLPs stay), `nodes` (heads and MLPs; embeddings stay), or single `edges`.
        ablation: An ablated component writes what it writes in the counterfactual (`resample`), the mean over the
            prompts and counterfactuals of the first half by role (`mean`), or 0 (`zero`).
        fraction: Fraction of all components that make up the circuit, for scores that come without a choice.
        fractions: Fractions of the curve.
        ranking: By `signed` scores, or by `absolute` ones.
        points: Number of points of the path of EAP-IG.
        variant: Points of EAP-IG's `paper`, or of its `reference` code.
        draws: Number of random sets of each size; sets of edges are connected.
        seed: Seed of the halves and the random sets.

    Raises:
        PromptError: prompts and counterfactuals that do not align, or too few pairs for two halves.
        RunError: a circuit of another model, edges of a model whose heads cannot be separated, processed weights.
    """

    circuit: Annotated[
        Circuit | str | Heads | None,
        Called("a Circuit, the path of a file, or a list of pairs (layer, head)"),
    ] = None
    granularity: Granularity = "heads"
    ablation: Ablation = "resample"
    fraction: float = 0.1
    fractions: Sequence[float] = GRID
    ranking: Ranking = "signed"
    points: Count = 5
    variant: Variant = "paper"
    draws: Count = 5
    seed: Natural = 0

    takes = ANSWER_KINDS

    def filled(self, model: LanguageModel, data: Pair) -> "CircuitFaithfulness":
        """With the circuit read from its file or made of its heads."""
        if self.circuit is None or isinstance(self.circuit, Circuit):
            return self
        if isinstance(self.circuit, str):
            return replace(self, circuit=read_circuit(self.circuit, model.info))
        return replace(self, circuit=Circuit.of_heads(self.circuit, model.info))

    @property
    def _in_halves(self) -> bool:
        return self.circuit is None or self.ablation == "mean"

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject prompts that do not align, circuits of another model, and models whose edges cannot be ablated.

        Raises:
            PromptError: says which prompts, and why.
            RunError: says which argument, or why the model is not supported.
        """
        check_alike(*data)
        check_label_words(*data)
        check_answers(data[0], "circuit_faithfulness")
        check_own_weights(model, "circuit_faithfulness")
        if not 0 < self.fraction <= 1:
            raise RunError(f"fraction={self.fraction} must lie above 0 and be at most 1.")
        grid = list(self.fractions)
        if grid != sorted(set(grid)) or any(not 0 < fraction <= 1 for fraction in grid):
            raise RunError(
                f"fractions={grid} must lie above 0 and be at most 1, in increasing order without duplicates."
            )
        if isinstance(self.circuit, Circuit):
            edges = self.granularity == "edges"
            self.circuit.check(model.info, parallel=edges and _is_parallel(model, data))
        if self._in_halves:
            _ = split(data, self.seed)
        if self.ablation == "mean":
            _ = Places.of(*data)
        if self.granularity == "edges":
            check_edges(model)
            check_separate(model, data[0])

    def check_options(self, model: LanguageModel, data: Pair, options: Options) -> None:
        """Reject interventions that depend on single prompts or other runs.

        Raises:
            RunError: names the intervention.
        """
        for intervention in options.interventions:
            if intervention.by_number or intervention.taken_from() is not None:
                raise RunError(
                    f"{intervention!r} depends on the index of a prompt or takes its values from another run, but "
                    "circuit_faithfulness runs parts of the prompts. Leave it out."
                )

    def _parts(self, data: Pair) -> tuple[Pair, Pair]:
        """Pairs for scores and means, and pairs for the test."""
        return split(data, self.seed) if self._in_halves else (data, data)

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """The answers of the whole model, and what ablated components write; the circuits follow from the scores."""
        first, test = self._parts(data)
        passes = [Pass(test[0], [AnswerReading(), TargetLogProbs()], title="whole model")]
        if self.ablation == "resample":
            read = all_rows(model, aligned(*test))
            passes.append(Pass(test[1], [AnswerReading(), read], title="counterfactuals"))
        elif self.ablation == "mean":
            passes += [
                Pass(side, [AnswerReading(), all_rows(model, positions(side))], title="means")
                for side in first
            ]
        return passes

    def steps(
        self, model: LanguageModel, data: Pair, options: Options
    ) -> Steps[CircuitFaithfulnessResult]:
        """Scores, what ablated components write, then every circuit and random set."""
        first, test = self._parts(data)
        parallel = _is_parallel(model, data)
        parts = Components.of(model.info, self.granularity, parallel=parallel)
        circuit = self.circuit
        if not isinstance(circuit, Circuit):
            edges = self.granularity == "edges"
            scored = eap_ig(
                model, first, options, steps=self.points, variant=self.variant, edges=edges
            )
            values = scored.nodes if scored.edges is None else scored.edges
            circuit = Circuit(
                "edges" if edges else "nodes", values.double().mean(0), origin="EAP-IG"
            )
        sets = Sets.of(
            parts,
            circuit,
            model.info,
            fraction=self.fraction,
            fractions=self.fractions,
            ranking=self.ranking,
            draws=self.draws,
            seed=self.seed,
        )
        (answers, reference), *read = yield self.passes(model, data)
        stored = self._stored(test, first, [values for _, values in read])
        runs = Runs(model.info, parts, stored, parallel)
        runs.add(sets.every)
        layout = FewRows(model, test[0]) if parts.granularity == "edges" else None
        (values,) = yield [
            Variants(
                test[0],
                [AnswerReading(), Divergence(reference)],
                title="circuits",
                variants=runs.interventions,
                layout=layout,
            )
        ]
        plain, metrics = (
            [margin(answers.label_logits.double(), *test) for answers in some]
            for some in ([answers], [answers for answers, _ in values])
        )
        by_run = torch.stack(metrics, dim=1), torch.stack([nats for _, nats in values], dim=1)
        if sets.whole in runs:
            # Exactly the run of all components: passes of different shapes differ by rounding.
            plain = [runs.of([sets.whole], by_run[0])[:, 0]]
        if parts.granularity == "edges" and self.ablation == "resample":
            other = margin(read[0][0].label_logits.double(), *test)
            check_empty(runs.of([sets.empty], by_run[0])[:, 0], other)
        return self.result(
            model, test, [parts, circuit, sets, runs, plain[0], *by_run, len(first[0])]
        )

    def _stored(self, test: Pair, first: Pair, read: Sequence[Mapping[Site, Tensor]]) -> Stored:
        if self.ablation == "zero":
            return Stored.zeros(test[0])
        if self.ablation == "mean":
            return Stored.of_means(read, first, test[0])
        return Stored.of_counterfactuals(read[0], test)

    def result(
        self, model: LanguageModel, data: Pair, read: list[Any]
    ) -> CircuitFaithfulnessResult:
        """Metrics and divergences of the test pairs, by set."""
        parts, circuit, sets, runs, plain, metric, nats, selected = read
        cut = [~chosen for chosen in (sets.circuit, *sets.random)]
        without = runs.of(cut, metric)
        curve = random = curve_divergence = None
        if sets.sizes:
            curve, curve_divergence = runs.of(sets.curve, metric), runs.of(sets.curve, nats)
            random = torch.stack([runs.of(drawn, metric) for drawn in sets.random_curve], dim=1)
        return CircuitFaithfulnessResult(
            alone=runs.of([sets.circuit], metric)[:, 0],
            random_alone=runs.of(sets.random, metric),
            cut=without[:, 0],
            random_cut=without[:, 1:],
            plain=plain,
            empty=runs.of([sets.empty], metric)[:, 0],
            divergence=runs.of([sets.circuit], nats)[:, 0],
            curve=curve,
            random=random,
            curve_divergence=curve_divergence,
            sizes=sets.sizes,
            fractions=tuple(self.fractions) if sets.sizes else (),
            at=sets.at,
            components=parts.names,
            chosen=tuple(parts.names[i] for i in sets.circuit.nonzero().flatten().tolist()),
            before_pruning=sets.before_pruning,
            overlap=sets.overlap,
            acting=sets.acting,
            scores=parts.scores(circuit),
            granularity=self.granularity,
            ablation=self.ablation,
            reduced=circuit.level == "edges" and self.granularity != "edges",
            origin=circuit.origin,
            selected=selected if self.circuit is None else 0,
            unlike=unlike(*data),
        )


def _is_parallel(model: LanguageModel, data: Pair) -> bool:
    return is_parallel(Segment.build(model, data[0][:1], [0]))


circuit_faithfulness = door(
    CircuitFaithfulness,
    "circuit_faithfulness",
    called={"points": "steps"},
    true="Clean prompts, such as those with true demonstrations.",
    false="Their counterfactuals: the same prompts with false demonstrations, or other queries, aligned by role.",
)
