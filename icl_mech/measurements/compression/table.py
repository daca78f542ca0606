"""The compression methods side by side on the same prompts, as in the paper's table 2.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech.checking import Count, Natural
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.compression import texts
from icl_mech.measurements.compression.kept import Method
from icl_mech.measurements.compression.methods import METHODS, Comparison, Compression
from icl_mech.measurements.compression.numbers import ComparedMethods
from icl_mech.measurements.compression.quality import TITLE, Outcome, check_known
from icl_mech.measurements.compression.stand_in import Position
from icl_mech.measurements.doors import door
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, basis
from icl_mech.results.wording import said, told
from icl_mech.shapes import Bars, Scatter, Table

UNKNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompressionTable(ComparedMethods):
    """How well each method's stand-in replaces the demonstrations; the prompts are the same.

    Attributes:
        methods: Names of the methods, in the order of the leading axes.
        kept: Positions kept, by method and prompt.
        label_logits: Logits of the label words' first tokens behind each stand-in.
        label_kept: The predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        correct: The predicted class is the true one; None without answers.
        labels: Names of the classes.
    """

    title: ClassVar[str] = "Demonstrations compressed to their anchors"
    shows: ClassVar[tuple[str, ...]] = ("loyalty", "accuracy", "speed", "table")
    definitions: ClassVar[tuple[Definition, ...]] = texts.DEFINITIONS

    def drawing(self, show: str = "loyalty") -> Bars | Scatter | Table:
        """Loyalties or accuracies by method, speed-up against length, or all numbers as a table.

        Args:
            show: `loyalty`, `accuracy`, `speed` or `table`.

        Raises:
            ResultError: another, accuracy without answers, or speed that was not measured.
        """
        self.check_show(show)
        if show == "table":
            return self._table()
        if show == "speed":
            return self._speed()
        return self._loyalties() if show == "loyalty" else self._accuracies()

    def figures(self) -> list[Figure]:
        """Loyalties, accuracies and speed-up."""
        return texts.figures(self)

    def _loyalties(self) -> Bars:
        rows = [[self.label_loyalty(own), self.word_loyalty(own)] for own in self.methods]
        constant = self.constant_loyalty
        return _dots(
            tuple(map(texts.name_of, self.methods)),
            ("label loyalty", "word loyalty"),
            rows,
            "share of answers, overlap of likely next words",
            self._note(),
            meanings=("label", "label"),
            apart=("label loyalty: share of answers", "word loyalty: overlap of likely next words"),
            levels=((constant, f"{texts.constant(self)} {told(constant)}"),),
        )

    def _accuracies(self) -> Bars:
        check_known(self.correct)
        rows = [[self.accuracy(own)] for own in self.methods]
        chance = self.label_logits.shape[-1]
        return _dots(
            (*map(texts.name_of, self.methods), "full prompts"),
            ("accuracy",),
            [*rows, [self.full_accuracy]],
            "accuracy",
            self._note(),
            meanings=("label",),
            levels=((1 / chance, f"chance {told(1 / chance)}"),),
        )

    def _speed(self) -> Scatter:
        speed = texts.speed_of(self)
        if not speed:
            raise ResultError(
                "This result does not hold how long each prompt took; measure again with "
                "measure_speed=True, on a model that takes position ids."
            )
        full, cached, compressed = speed["each"]
        tokens = speed["tokens"]
        ways = {
            "full prompt without cache ÷ compressed": full,
            "query on full cache ÷ compressed": cached,
        }
        ratios = [a / b for own in ways.values() for a, b in zip(own, compressed, strict=True)]
        return Scatter(
            title="Speed-up behind the compressed demonstrations",
            x=torch.tensor(tokens * len(ways), dtype=torch.float64),
            y=torch.tensor(ratios, dtype=torch.float64),
            names=tuple(f"prompt {i}" for _ in ways for i in range(len(tokens))),
            groups=tuple(name for name in ways for _ in tokens),
            x_title="length of the prompt (tokens)",
            y_title="times as fast",
            note=f"medians of {len(speed['full'])} repeats on this machine, one prompt at a time",
            order=tuple(ways),
            meanings=("label", "other"),
            levels=((1.0, "equally fast"),),
        )

    def _table(self) -> Table:
        names = tuple(self.found(self.methods[0]))
        rows = [
            (texts.name_of(method), *(said(interval) for interval in self.found(method).values()))
            for method in self.methods
        ]
        if self.correct is not None:
            rows.append(("full prompts", "1", "1", said(self.full_accuracy)))
        return Table(TITLE, ("stand-in", *names), tuple(rows), self._note())

    def _note(self) -> str:
        return f"{basis(self)}; {self._costs()}"

    def _costs(self) -> str:
        if self.speed_up is None or self.speed_up_cached is None:
            return self.kept_share
        return f"{self.kept_share}, speed-up {told(self.speed_up)} (cached: {told(self.speed_up_cached)})"

    def summary(self) -> str:
        """Label loyalties, and how the first method differs from the others."""
        first, *others = self.methods
        loyalties = ", ".join(
            f"{texts.name_of(method)} {said(self.label_loyalty(method))}" for method in self.methods
        )
        compared = ", ".join(
            f"{_verdict(interval)} {texts.name_of(other)} ({said(interval, sign=True)})"
            for other in others
            for interval in [self.difference(first, other)]
        )
        constant = f"a constant answer {told(self.constant_loyalty)}"
        return f"label loyalty: {loyalties}, {constant}" + (
            f"; {texts.name_of(first)}: {compared}" if others else ""
        )


def _dots(
    groups: tuple[str, ...], names: tuple[str, ...], rows: list[list[Interval]], unit: str, note: str,
    **more: object,
) -> Bars:  # fmt: skip
    value, low, high = (
        torch.tensor([[list(one) for one in row] for row in rows]).double().unbind(-1)
    )
    return Bars(TITLE, groups, names, value, low, high, unit, note=note, **more)  # type: ignore[arg-type]


def _verdict(difference: Interval) -> str:
    if difference.low > 0:
        return "more labels kept than"
    return "fewer labels kept than" if difference.high < 0 else "no clear difference from"


@dataclass(frozen=True)
class CompareCompression(Compression[CompressionTable]):
    """The methods on the same prompts; full prompts and demonstrations are run once for all.

    The options are those of `compress_demonstrations`.

    Attributes:
        methods: Those compared.
        position: Where queries stand: as in the full prompt (`true`) or at 0 (`overlap`).
        seed: Of the random methods.
        draws: Of `hidden_random_top`.
        top_k: Number of likeliest next tokens compared.
        measure_speed: Also time the first prompts.

    Raises:
        RunError: no methods or one twice, and as `compress_demonstrations`.
        PromptError: as `compress_demonstrations`.

    Source: Wang et al. 2023, §3.2, table 2.
    """

    name: ClassVar[str] = "compression"

    methods: Sequence[Method] = METHODS
    position: Position = "true"
    seed: Natural = 0
    draws: Count = 20
    top_k: int = 5
    measure_speed: bool = True

    @property
    def comparison(self) -> Comparison:
        """Of full prompts and these methods."""
        return Comparison(
            self.methods, self.position, None, self.seed, self.draws, self.top_k, self.measure_speed
        )

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse a method named twice, and as `Comparison.check`.

        Raises:
            RunError: names the methods.
        """
        if len(set(self.methods)) < len(self.methods):
            raise RunError(f"methods={list(self.methods)}; name at least one, each once.")
        super().check(model, data)

    def found(self, outcome: Outcome, prompts: PromptBatch) -> CompressionTable:
        """All methods."""
        found = outcome.methods
        logits = torch.stack([one.label_logits for one in found])
        answers = prompts.answers if prompts.has_answers else None
        return CompressionTable(
            methods=tuple(self.methods),
            kept=tuple(one.kept for one in found),
            label_logits=logits,
            label_kept=torch.stack([one.label_kept for one in found]),
            word_overlap=torch.stack([one.word_overlap for one in found]),
            correct=None if answers is None else logits.argmax(-1) == answers,
            labels=prompts.labels,
            **outcome.common(prompts),
        )


compare_compression = door(
    CompareCompression,
    "compare_compression",
    then=("methods",),
    prompts="Prompts.",
)
