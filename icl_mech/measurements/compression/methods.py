"""Compression of one set of prompts by several methods: what is kept, and what is run."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention, Isolate
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.compression.behind import Behind
from icl_mech.measurements.compression.kept import (
    Method,
    Parts,
    Positions,
    anchor_positions,
    given_positions,
    parts,
    random_positions,
)
from icl_mech.measurements.compression.quality import Compressed, Outcome, StandInQuality, best
from icl_mech.measurements.compression.speed import measure_speed
from icl_mech.measurements.compression.stand_in import Position, StandIn, misplaced, together
from icl_mech.measurements.predictions import PredictionReading, check_top_k
from icl_mech.metrics import same_label, word_overlap
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.segments import check_fits

METHODS: tuple[Method, ...] = get_args(Method)
Q = TypeVar("Q", bound=StandInQuality)


@dataclass(frozen=True)
class Chosen:
    """The tokens that stay.

    Attributes:
        kept: Positions kept of each prompt, by method and draw.
        layout: Where demonstrations and query of each prompt begin.
    """

    kept: Sequence[Sequence[tuple[Positions, ...]]]
    layout: Sequence[Parts]

    @property
    def queries(self) -> list[int]:
        """Where the query of each prompt begins."""
        return [part.query for part in self.layout]

    @property
    def first(self) -> tuple[Positions, ...]:
        """By the first method and draw."""
        return self.kept[0][0]


@dataclass(frozen=True)
class Comparison:
    """Several methods on the same prompts; full prompts and demonstrations are run once for all.

    Attributes:
        methods: Their names.
        position: Where queries stand.
        keep: Positions to keep instead of those the roles give.
        seed: Of the random methods.
        draws: Of `hidden_random_top`.
        top_k: Number of likeliest next tokens compared.
        measure_speed: The first stand-in is timed, too.
    """

    methods: Sequence[Method]
    position: Position
    keep: Any
    seed: int
    draws: int
    top_k: int
    measure_speed: bool

    def check(self, model: LanguageModel, prompts: PromptBatch) -> None:
        """Refuse options that contradict each other, and prompts without what a method needs.

        Raises:
            RunError: says which, or a model that would misplace queries.
            PromptError: prompts this model or a method cannot take.
        """
        if self.keep is not None and "hidden_random_top" in self.methods:
            raise RunError(
                "hidden_random_top draws positions itself, so keep= has no meaning; give the positions "
                "with method='hidden_random'."
            )
        check_top_k(self.top_k, model.info)
        check_fits(model, prompts)
        chosen = self.chosen(prompts)
        as_text = all(method == "text_anchor" for method in self.methods)
        if self.position == "overlap" and not as_text and not model.takes_positions:
            raise misplaced(model, 0, len(chosen.first[0]))

    def chosen(self, prompts: PromptBatch) -> Chosen:
        """The tokens that stay.

        Raises:
            PromptError: prompts without what a method needs, or wrong `keep`.
        """
        kept = [self._kept(method, prompts) for method in self.methods]
        return Chosen(kept, [parts(*pair) for pair in zip(prompts, kept[0][0], strict=True)])

    def _kept(self, method: Method, prompts: PromptBatch) -> list[tuple[Positions, ...]]:
        if self.keep is not None:
            return [tuple(given_positions(self.keep, prompts))]
        if method in ("hidden_anchor", "text_anchor"):
            return [tuple(anchor_positions(prompt) for prompt in prompts)]
        wanted = self.draws if method == "hidden_random_top" else 1
        rows = [random_positions(prompt, seed=self.seed, draws=wanted) for prompt in prompts]
        # Demonstrations with shorter texts have fewer draws, which are then used again.
        return [tuple(row[n % len(row)] for row in rows) for n in range(max(map(len, rows)))]

    def stand_ins(
        self, model: LanguageModel, prompts: PromptBatch, chosen: Chosen
    ) -> list[StandIn]:
        """One for each method and draw."""
        return [
            StandIn.made(model, prompts, chosen.queries, kept, method, self.position)
            for method, draws in zip(self.methods, chosen.kept, strict=True)
            for kept in draws
        ]

    def passes(self, model: LanguageModel, prompts: PromptBatch) -> list[Pass]:
        """Full prompts, and their queries behind every stand-in."""
        reading, chosen = PredictionReading(self.top_k), self.chosen(prompts)
        stand_ins = self.stand_ins(model, prompts, chosen)
        return [
            Pass(prompts, [reading], title="full prompts"),
            Variants(
                prompts,
                [reading],
                title="compressed prompts",
                variants=[stand_in.interventions for stand_in in stand_ins],
                layout=Behind(same_demonstrations(prompts, chosen.queries), stand_ins),
            ),
        ]

    def outcome(self, model: LanguageModel, prompts: PromptBatch, read: list[Any]) -> Outcome:
        """Each method's predictions beside those of the full prompts."""
        ((logits, _, top_tokens),), behind = read
        predicted, found = logits.argmax(-1), iter(behind)
        chosen, done = self.chosen(prompts), []
        for method, draws in zip(self.methods, chosen.kept, strict=True):
            candidates = []
            for own in draws:
                ((label_logits, _, top),) = next(found)
                agrees = same_label(label_logits.argmax(-1), predicted)
                overlap = word_overlap(top, top_tokens)
                candidates.append(Compressed(method, own, label_logits, agrees, overlap))
            done.append(best(candidates))
        return Outcome(predicted, tuple(done), _shares(prompts, chosen), model.takes_positions)


@dataclass(frozen=True)
class Compression(Measurement[Q]):
    """What the measurements of compression share."""

    @property
    @abstractmethod
    def comparison(self) -> Comparison:
        """What is compared."""

    @abstractmethod
    def found(self, outcome: Outcome, prompts: PromptBatch) -> Q:
        """The result, without times."""

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse as `Comparison.check`."""
        self.comparison.check(model, data)

    def check_options(self, model: LanguageModel, data: PromptBatch, options: Options) -> None:
        """Refuse what may act by position where text anchors are read.

        Raises:
            RunError: names the intervention.
        """
        refuse_positions(self.comparison.methods, options.interventions, data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Full prompts, and their queries behind every stand-in."""
        return self.comparison.passes(model, data)

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> Q:
        """Each method's predictions beside those of the full prompts."""
        return self.found(self.comparison.outcome(model, data, read), data)

    def steps(self, model: LanguageModel, data: PromptBatch, options: Options) -> Steps[Q]:
        """As for any measurement, and the time of the first stand-in under the same interventions.

        With models that count positions themselves nothing is cut, and nothing timed.
        """
        comparison = self.comparison
        read = yield self.passes(model, data)
        found = self.result(model, data, read)
        if not comparison.measure_speed or not model.takes_positions:
            return found
        chosen = comparison.chosen(data)
        stand_in = comparison.stand_ins(model, data, chosen)[0]
        speed = measure_speed(model, data, chosen.queries, stand_in, options.interventions)
        return replace(
            found,
            speed_up=speed.up,
            speed_up_cached=speed.up_cached,
            provenance={**found.provenance, "speed": speed.to_dict()},
        )


def same_demonstrations(prompts: PromptBatch, queries: Sequence[int]) -> list[list[int]]:
    """Numbers of the prompts, those with equal demonstrations together."""
    return together(
        range(len(prompts)),
        lambda row: (
            prompts[row].tokens[: queries[row]],
            prompts[row].label_positions,
            prompts[row].label_classes,
        ),
    )


def refuse_positions(
    methods: Sequence[Method], interventions: Sequence[Intervention], prompts: PromptBatch
) -> None:
    """Refuse what may act by position where text anchors, a prompt of their own, are read.

    Raises:
        RunError: names the intervention.
    """
    if "text_anchor" not in methods:
        return
    for intervention in interventions:
        given = isinstance(intervention, Isolate) and intervention.positions is not None
        # In no tokens at all everything does the same, but for those that say nothing about it.
        if given or not intervention.shares(prompts, 0):
            raise RunError(
                f"{intervention!r} may go by positions of the full prompt; text_anchor reads the kept "
                "tokens as a prompt of their own, where other tokens stand there. Leave text_anchor "
                "out, or define shares() if the intervention goes by the tokens' roles."
            )


def _shares(prompts: PromptBatch, chosen: Chosen) -> Float[Tensor, "share=2 batch"]:
    rows = [
        (
            sum(position >= part.demos for position in own) / (part.query - part.demos),
            (len(own) + len(prompt) - part.query) / len(prompt),
        )
        for prompt, part, own in zip(prompts, chosen.layout, chosen.first, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64).T
