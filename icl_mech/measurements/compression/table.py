"""The compression methods side by side on the same prompts, as in the paper's table 2.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.engine import Path
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.compression.kept import Method
from icl_mech.measurements.compression.methods import METHODS, Comparison, Compression
from icl_mech.measurements.compression.outcome import Outcome
from icl_mech.measurements.compression.quality import (
    TITLE,
    UNIT,
    StandInQuality,
    check_known,
    qualities,
)
from icl_mech.measurements.compression.stand_in import Position
from icl_mech.measurements.running import measured
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Figure, Quantity, basis
from icl_mech.shapes import Bars, Table

if TYPE_CHECKING:
    import pandas as pd

Loyalty = Literal["label_loyalty", "word_loyalty", "accuracy"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CompressionTable(StandInQuality):
    """How well each method's stand-in replaces the demonstrations; the prompts are the same.

    Attributes:
        methods: Names of the methods, in the order of the leading axes.
        kept: Positions kept, by method and prompt.
        label_logits: Logits of the label words' first tokens behind each stand-in.
        label_kept: The predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        correct: The predicted class is the true one; None without answers.
    """

    title: ClassVar[str] = "Demonstrations compressed to their anchors"
    shows: ClassVar[tuple[str, ...]] = ("bars", "table")

    methods: tuple[str, ...]
    kept: tuple[tuple[tuple[int, ...], ...], ...]
    label_logits: Float[Tensor, "method batch label"]
    label_kept: Bool[Tensor, "method batch"]
    word_overlap: Float[Tensor, "method batch"]
    correct: Bool[Tensor, "method batch"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Label loyalty, word loyalty and accuracy by method."""
        correct = None if self.correct is None else self.correct.T
        own = qualities(("method",), self.label_kept.T, self.word_overlap.T, correct)
        return {**own, **super().quantities()}

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the methods."""
        return {"method": self.methods}

    def label_loyalty(self, method: str) -> Interval:
        """Share of prompts whose predicted class is kept, with Wilson interval."""
        return self.interval("label_loyalty", method=method)

    def word_loyalty(self, method: str) -> Interval:
        """Mean overlap of the likeliest next tokens, with bootstrap interval."""
        return self.interval("word_loyalty", method=method)

    def accuracy(self, method: str) -> Interval:
        """Share of prompts answered correctly, with Wilson interval.

        Raises:
            ResultError: a method that was not compared, or true classes are not known.
        """
        check_known(self.correct)
        return self.interval("accuracy", method=method)

    @checked(ResultError)
    def difference(self, first: str, second: str, quantity: Loyalty = "label_loyalty") -> Interval:
        """`first` minus `second`, paired over prompts, with bootstrap interval.

        Raises:
            ResultError: an unknown quantity or a method that was not compared.
        """
        if quantity == "accuracy":
            check_known(self.correct)
        both = self.sel(quantity, method=[first, second]).quantities()[quantity].per_prompt.double()
        return mean_interval(both[:, 0] - both[:, 1])

    def _found(self, method: str) -> dict[str, Interval]:
        names = [name for name, one in self.quantities().items() if one.dims]
        return {name.replace("_", " "): self.interval(name, method=method) for name in names}

    def drawing(self, show: str = "bars") -> Bars | Table:
        """Bars by method, or the numbers as a table.

        Args:
            show: `bars` or `table`.

        Raises:
            ResultError: another.
        """
        self.check_show(show)
        return self._bars() if show == "bars" else self._table()

    def figures(self) -> list[Figure]:
        """Bars, and their numbers."""
        table = Figure("table", "table", "The same numbers as a table, with costs.")
        return [Figure("bars", "", self.summary()), table]

    def _bars(self) -> Bars:
        rows = [list(self._found(method).values()) for method in self.methods]
        groups = self.methods
        if self.correct is not None:
            unknown = Interval(float("nan"), float("nan"), float("nan"))
            rows.append([unknown, unknown, self.full_accuracy])
            groups = (*groups, "full prompt")
        values = torch.tensor([[list(interval) for interval in row] for row in rows])
        names = tuple(self._found(self.methods[0]))
        value, low, high = values.unbind(-1)
        return Bars(TITLE, groups, names, value, low, high, UNIT, note=self._note())

    def _table(self) -> Table:
        names = tuple(self._found(self.methods[0]))
        rows = [
            (method, *(str(interval) for interval in self._found(method).values()))
            for method in self.methods
        ]
        if self.correct is not None:
            rows.append(("full prompt", "1", "1", str(self.full_accuracy)))
        return Table(TITLE, ("method", *names), tuple(rows), self._note())

    def _note(self) -> str:
        return (
            f"{basis(self)}; {self._costs()}; "
            f"a constant answer has label loyalty {self.constant_loyalty:.2f}"
        )

    def _costs(self) -> str:
        if self.speed_up is None or self.speed_up_cached is None:
            return self.kept_share
        return (
            f"{self.kept_share}, speed-up {self.speed_up:.2g} (cached: {self.speed_up_cached:.2g})"
        )

    def summary(self) -> str:
        """Label loyalties, and how the first method differs from the others."""
        first, *others = self.methods
        loyalties = ", ".join(f"{method} {self.label_loyalty(method)}" for method in self.methods)
        compared = ", ".join(
            f"{_verdict(interval)} {other} ({interval.value:+.2f} "
            f"[{interval.low:+.2f}, {interval.high:+.2f}])"
            for other in others
            for interval in [self.difference(first, other)]
        )
        constant = f"a constant answer {self.constant_loyalty:.3g}"
        return f"label loyalty: {loyalties}, {constant}" + (
            f"; {first} keeps {compared}" if others else ""
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per method, and one for the full prompts; columns end in `_low`, `_high`."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for method in self.methods:
            row: dict[str, Any] = {"method": method}
            for name, interval in self._found(method).items():
                key = name.replace(" ", "_")
                row |= {
                    key: interval.value,
                    f"{key}_low": interval.low,
                    f"{key}_high": interval.high,
                }
            row["demonstration_share"] = float(self.demonstration_share.mean())
            row["prompt_share"] = float(self.prompt_share.mean())
            row["speed_up"], row["speed_up_cached"] = self.speed_up, self.speed_up_cached
            rows.append(row)
        if self.correct is not None:
            value, low, high = self.full_accuracy
            rows.append(
                {
                    "method": "full prompt", "label_loyalty": 1.0, "word_loyalty": 1.0,
                    "accuracy": value, "accuracy_low": low, "accuracy_high": high,
                    "demonstration_share": 1.0, "prompt_share": 1.0,
                }
            )  # fmt: skip
        return pd.DataFrame(rows)


def _verdict(difference: Interval) -> str:
    if difference.low > 0:
        return "more labels than"
    return "fewer labels than" if difference.high < 0 else "not clearly more or fewer than"


@dataclass(frozen=True)
class CompareCompression(Compression[CompressionTable]):
    """The methods on the same prompts; full prompts and demonstrations are run once for all.

    Attributes:
        methods: Those compared.
        position: Where queries stand: as in the full prompt (`true`) or at 0 (`overlap`).
        seed: Of the random methods.
        draws: Of `hidden_random_top`.
        top_k: Number of likeliest next tokens compared.
        measure_speed: Also time the first prompts.
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
            **outcome.common(prompts),
        )


def compare_compression(
    model: Any,
    prompts: PromptBatch,
    methods: Sequence[Method] = METHODS,
    *,
    interventions: Sequence[Intervention] = (),
    position: Position = "true",
    seed: int = 0,
    draws: int = 20,
    top_k: int = 5,
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    measure_speed: bool = True,
    progress: bool | None = None,
) -> CompressionTable:
    """The methods on the same prompts; full prompts and demonstrations are run once for all.

    The options are those of `compress_demonstrations`.

    Raises:
        RunError: no methods or one twice, and as `compress_demonstrations`.
        PromptError: as `compress_demonstrations`.

    Source: Wang et al. 2023, §3.2, table 2.
    """
    return measured(
        CompareCompression(methods, position, seed, draws, top_k, measure_speed), model, prompts,
        interventions=interventions, batch_size=batch_size, memory=memory, path=path,
        progress=progress,
    )  # fmt: skip
