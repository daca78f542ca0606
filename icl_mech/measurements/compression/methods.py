"""Compression of one set of prompts by several methods: the kept tokens, the runs and the outcome."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.engine import AnyReading
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.interventions.cut import NamedCut
from icl_mech.measurements.anchors.moved import ResidualReading, moved_rows
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.compression.kept import (
    Method,
    Parts,
    Positions,
    anchor_positions,
    given_positions,
    parts,
    random_positions,
)
from icl_mech.measurements.compression.speed import Speed, measure_speed
from icl_mech.measurements.compression.stand_in import (
    Behind,
    Position,
    StandIn,
    misplaced,
    together,
)
from icl_mech.measurements.predictions import check_top_k
from icl_mech.measurements.reading import PredictionReading, answer_names, predicted, same_answer
from icl_mech.metrics import word_overlap
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, Prompt, PromptBatch
from icl_mech.results import Result
from icl_mech.segments import check_fits

METHODS: tuple[Method, ...] = get_args(Method)
R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class Chosen:
    """The kept tokens.

    Attributes:
        kept: Positions kept of each prompt, by method and draw.
        layout: Start of the demonstrations and of the query in each prompt.
    """

    kept: Sequence[Sequence[tuple[Positions, ...]]]
    layout: Sequence[Parts]

    @property
    def queries(self) -> list[int]:
        """Position of the first query token in each prompt."""
        return [part.query for part in self.layout]

    @property
    def first(self) -> tuple[Positions, ...]:
        """Positions kept by the first method and draw."""
        return self.kept[0][0]


@dataclass(frozen=True, eq=False)
class Compressed:
    """Outcome of one method.

    Attributes:
        method: Its name.
        kept: Positions kept of each prompt.
        label_logits: Logits at the target, after the stand-in.
        label_kept: Whether the predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the top next tokens with those of the full prompt.
        predicted: The answers after the stand-in.
        draws: Label loyalty of every draw, where there were several.
        draw: The draw that was taken.
        following: For texts, means over the tokens after the stand-in, see `moved`.
    """

    method: Method
    kept: tuple[Positions, ...]
    label_logits: Float[Tensor, "batch label"]
    label_kept: Bool[Tensor, " batch"]
    word_overlap: Float[Tensor, " batch"]
    predicted: Int[Tensor, " batch"]
    draws: tuple[float, ...] = ()
    draw: int = 0
    following: Float[Tensor, "3 batch"] | None = None

    @property
    def choice(self) -> dict[str, Any]:
        """Provenance record of the draws."""
        return {"draw": self.draw, "label_loyalty_of_draws": list(self.draws)}


@dataclass(frozen=True, eq=False)
class Outcome:
    """Outcome of several methods on the same prompts.

    Attributes:
        full_predicted: Class predicted from each full prompt.
        methods: Outcome of each method, in the order asked for.
        shares: Kept tokens / tokens of the demonstrations, and (kept + query) / whole prompt;
            equal for all methods, which keep the same number of tokens.
        cut: Whether the cache was cut; False where columns could only be hidden.
        speed: Timing of the first prompts; None if they were not timed.
    """

    full_predicted: Int[Tensor, " batch"]
    methods: tuple[Compressed, ...]
    shares: Float[Tensor, "share=2 batch"]
    cut: bool
    speed: Speed | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Provenance record of the outcome."""
        draws = {
            compressed.method: compressed.choice for compressed in self.methods if compressed.draws
        }
        facts: dict[str, Any] = {"cache": "cut" if self.cut else "hidden"}
        facts |= {"draws": draws} if draws else {}
        if any(
            compressed.following is not None and "random" in compressed.method
            for compressed in self.methods
        ):
            facts["last_end"] = "kept"  # of texts, in random draws too; see `random_positions`
        return facts if self.speed is None else {**facts, "speed": self.speed.to_dict()}

    def common(self, prompts: PromptBatch) -> dict[str, Any]:
        """Fields that results of one and of several methods share."""
        known = prompts.has_answers
        return {
            "full_correct": self.full_predicted == prompts.answers if known else None,
            "full_predicted": self.full_predicted,
            "demonstration_share": self.shares[0].clone(),
            "prompt_share": self.shares[1].clone(),
            "speed_up": None if self.speed is None else self.speed.up,
            "speed_up_cached": None if self.speed is None else self.speed.up_cached,
            "labels": answer_names(prompts),
            "provenance": self.facts,
        }


@dataclass(frozen=True)
class Comparison:
    """Comparison of several methods on the same prompts; full prompts and demonstrations are run once for all.

    Attributes:
        methods: Their names.
        position: Position ids of the queries.
        keep: Positions to keep instead of those the roles give.
        seed: Seed of the random methods.
        draws: Number of draws of `hidden_random_top`.
        top_k: Number of top next tokens compared.
        timing: Also time the first stand-in.
    """

    methods: Sequence[Method]
    position: Position
    keep: Any
    seed: int
    draws: int
    top_k: int
    timing: bool

    def check(self, model: LanguageModel, prompts: PromptBatch) -> None:
        """Reject options that contradict each other, and prompts that lack something a method needs.

        Raises:
            RunError: says which options, or a model that would misplace queries.
            PromptError: prompts this model or a method cannot take.
        """
        if len(set(self.methods)) < len(self.methods):
            raise RunError(
                f"methods={list(self.methods)}; name at least one method, without duplicates."
            )
        if self.keep is not None and "hidden_random_top" in self.methods:
            raise RunError(
                "hidden_random_top draws the positions itself, so keep= has no effect. To choose "
                "the positions, use method='hidden_random'."
            )
        check_top_k(self.top_k, model)
        check_fits(model, prompts)
        chosen = self.chosen(prompts)
        as_text = all(method == "text_anchor" for method in self.methods)
        if self.position == "overlap" and not as_text and not model.takes_positions:
            raise misplaced(model, 0, len(chosen.first[0]))

    def chosen(self, prompts: PromptBatch) -> Chosen:
        """The tokens kept by each method and draw.

        Raises:
            PromptError: prompts that lack something a method needs, or wrong `keep`.
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
        """Stand-ins, one for each method and draw."""
        return [
            StandIn.made(model, prompts, chosen.queries, kept, method, self.position)
            for method, draws in zip(self.methods, chosen.kept, strict=True)
            for kept in draws
        ]

    def passes(self, model: LanguageModel, prompts: PromptBatch) -> list[Pass]:
        """Full prompts, and their queries after every stand-in."""
        readings: list[AnyReading] = [PredictionReading(self.top_k)]
        if prompts.answer_kind == "vocabulary":
            readings.append(ResidualReading())
        chosen = self.chosen(prompts)
        stand_ins = self.stand_ins(model, prompts, chosen)
        return [
            Pass(prompts, readings, title="full prompts"),
            Variants(
                prompts,
                readings,
                title="compressed prompts",
                variants=[stand_in.interventions for stand_in in stand_ins],
                layout=Behind(same_demonstrations(prompts, chosen.queries), stand_ins),
            ),
        ]

    def outcome(self, model: LanguageModel, prompts: PromptBatch, read: list[Any]) -> Outcome:
        """Each method's predictions compared with those of the full prompts."""
        (full, *plain), behind = read
        answered, readouts = predicted(full[0], full[2], prompts), iter(behind)
        chosen, done = self.chosen(prompts), []
        for method, draws in zip(self.methods, chosen.kept, strict=True):
            candidates, rows = [], []
            for kept in draws:
                given, *more = next(readouts)
                rows.append(more)
                answers = predicted(given[0], given[2], prompts)
                agrees = same_answer(given, full, prompts)
                overlap = word_overlap(given[2], full[2])
                candidates.append(Compressed(method, kept, given[0], agrees, overlap, answers))
            winner = best(candidates)
            if plain:
                runs = zip(prompts, chosen.queries, *plain, *rows[winner.draw], strict=True)
                following = torch.stack([_following(model, *run) for run in runs], dim=1)
                winner = replace(winner, following=following)
            done.append(winner)
        return Outcome(answered, tuple(done), _shares(prompts, chosen), model.takes_positions)


@dataclass(frozen=True, kw_only=True)
class Compression(Measurement[R]):
    """Base class of the compression measurements.

    Attributes:
        position: Position ids of queries: as in the full prompt (`true`) or from 0 (`overlap`).
        seed: Seed of the random methods.
        draws: Number of draws of `hidden_random_top`.
        top_k: Number of top next tokens compared.
        timing: Also time the first prompts, for the speed-up.
    """

    position: Position = "true"
    seed: Natural = 0
    draws: Count = 20
    top_k: int = 5
    timing: bool = False

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def of(self, methods: Sequence[Method], keep: Any = None) -> Comparison:
        """Comparison of full prompts with these methods."""
        drawn = self.seed, self.draws
        return Comparison(methods, self.position, keep, *drawn, self.top_k, self.timing)

    @property
    @abstractmethod
    def comparison(self) -> Comparison:
        """The comparison to run."""

    @abstractmethod
    def found(self, outcome: Outcome, prompts: PromptBatch) -> R:
        """Build the result from the outcome."""

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject what `Comparison.check` rejects."""
        self.comparison.check(model, data)

    def check_options(self, model: LanguageModel, data: PromptBatch, options: Options) -> None:
        """Reject interventions that may act by position where text anchors are read.

        Raises:
            RunError: names the intervention.
        """
        refuse_positions(self.comparison.methods, options.interventions, data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Full prompts, and their queries after every stand-in."""
        return self.comparison.passes(model, data)

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> R:
        """Each method's predictions compared with those of the full prompts."""
        return self.found(self.comparison.outcome(model, data, read), data)

    def steps(self, model: LanguageModel, data: PromptBatch, options: Options) -> Steps[R]:
        """Run the usual steps, and time the first stand-in under the same interventions.

        With models that count positions themselves nothing is cut or timed.
        """
        comparison = self.comparison
        read = yield self.passes(model, data)
        outcome = comparison.outcome(model, data, read)
        if comparison.timing and model.takes_positions:
            chosen = comparison.chosen(data)
            stand_in = comparison.stand_ins(model, data, chosen)[0]
            speed = measure_speed(model, data, chosen.queries, stand_in, options.interventions)
            outcome = replace(outcome, speed=speed)
        return self.found(outcome, data)


def best(candidates: list[Compressed]) -> Compressed:
    """The candidate with the highest label loyalty, the first of them on ties."""
    if len(candidates) == 1:
        return candidates[0]
    loyalties = [float(candidate.label_kept.double().mean()) for candidate in candidates]
    draw = loyalties.index(max(loyalties))
    return replace(candidates[draw], draws=tuple(loyalties), draw=draw)


def same_demonstrations(prompts: PromptBatch, queries: Sequence[int]) -> list[list[int]]:
    """Numbers of the prompts, grouped by equal demonstrations."""
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
    """Reject interventions that may act by position where text anchors are read, which are separate prompts.

    Raises:
        RunError: names the intervention.
    """
    if "text_anchor" not in methods:
        return
    for intervention in interventions:
        given = isinstance(intervention, NamedCut) and intervention.by_number
        # On zero tokens all interventions act alike, except those that do not define `shares`.
        if given or not intervention.shares(prompts, 0):
            raise RunError(
                f"{intervention!r} may depend on positions in the full prompt, but text_anchor "
                "reads the kept tokens as a separate prompt with other positions. Leave "
                "text_anchor out, or define shares() if the intervention depends on token roles "
                "only."
            )


def _following(
    model: LanguageModel, prompt: Prompt, query: int, plain: Tensor, behind: Tensor
) -> Float[Tensor, "3"]:
    """Means over the tokens of one text, from residuals of all its rows and of those after the stand-in."""
    stop = prompt.target + 1
    tokens = torch.tensor([*prompt.tokens[query + 1 : stop], prompt.label_tokens[0]])
    return moved_rows(model, plain[query:stop], behind[: stop - query], tokens).mean(1)


def _shares(prompts: PromptBatch, chosen: Chosen) -> Float[Tensor, "share=2 batch"]:
    rows = [
        (
            sum(position >= part.demos for position in kept) / (part.query - part.demos),
            (len(kept) + len(prompt) - part.query) / len(prompt),
        )
        for prompt, part, kept in zip(prompts, chosen.layout, chosen.first, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64).T
