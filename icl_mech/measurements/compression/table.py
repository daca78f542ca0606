"""The compression methods side by side on the same prompts, as in the paper's table 2.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.measurements._old import provenance
from icl_mech.measurements.compression.kept import Method
from icl_mech.measurements.compression.methods import METHODS, check_options, compress_by
from icl_mech.measurements.compression.stand_in import Position
from icl_mech.metrics import Interval, mean_interval, wilson_interval
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.shapes import Bars, Table

if TYPE_CHECKING:
    import pandas as pd

Quantity = Literal["label_loyalty", "word_loyalty", "accuracy"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CompressionTable(Result):
    """How well each method's stand-in replaces the demonstrations; the prompts are the same.

    Attributes:
        methods: Names of the methods, in the order of the leading axes.
        kept: Positions kept, by method and prompt.
        label_logits: Logits of the label words' first tokens behind each stand-in.
        label_kept: The predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        correct: The predicted class is the true one; None without answers.
        full_correct: That of the full prompt is.
        full_predicted: Class predicted from the full prompt.
        demonstration_share: Kept tokens / tokens of the demonstrations, the same for all methods.
        prompt_share: Tokens left, query included / tokens of the prompt.
        speed_up: See `CompressionResult`; one number, for all methods keep equally many tokens.
        speed_up_cached: The same, against queries behind the full cache.
    """

    title: ClassVar[str] = "Demonstrations compressed to their anchors"

    methods: tuple[str, ...]
    kept: tuple[tuple[tuple[int, ...], ...], ...]
    label_logits: Float[Tensor, "method batch label"]
    label_kept: Bool[Tensor, "method batch"]
    word_overlap: Float[Tensor, "method batch"]
    correct: Bool[Tensor, "method batch"] | None = None
    full_correct: Bool[Tensor, " batch"] | None = None
    full_predicted: Int[Tensor, " batch"]
    demonstration_share: Float[Tensor, " batch"]
    prompt_share: Float[Tensor, " batch"]
    speed_up: float | None = None
    speed_up_cached: float | None = None

    def label_loyalty(self, method: str) -> Interval:
        """Share of prompts whose predicted class is kept, with Wilson interval.

        Raises:
            ResultError: a method that was not compared.
        """
        return wilson_interval(self.label_kept[self._row(method)])

    @property
    def constant_loyalty(self) -> float:
        """Label loyalty of always answering what most full prompts are answered with.

        Where it is high, label loyalty tells little: the model hardly looks at the queries.
        """
        counts = torch.bincount(self.full_predicted)
        return int(counts.max()) / len(self.full_predicted)

    def word_loyalty(self, method: str) -> Interval:
        """Mean overlap of the likeliest next tokens, with bootstrap interval.

        Raises:
            ResultError: a method that was not compared.
        """
        return mean_interval(self.word_overlap[self._row(method)])

    def accuracy(self, method: str) -> Interval:
        """Share of prompts answered correctly, with Wilson interval.

        Raises:
            ResultError: a method that was not compared, or true classes are not known.
        """
        return wilson_interval(self._per_prompt("accuracy")[self._row(method)])

    @property
    def full_accuracy(self) -> Interval:
        """Accuracy of full in-context learning, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        if self.full_correct is None:
            raise ResultError("These prompts have no answers; accuracy needs them.")
        return wilson_interval(self.full_correct)

    def difference(self, first: str, second: str, quantity: Quantity = "label_loyalty") -> Interval:
        """`first` minus `second`, paired over prompts, with bootstrap interval.

        Raises:
            ResultError: an unknown quantity or a method that was not compared.
        """
        values = self._per_prompt(quantity).double()
        return mean_interval(values[self._row(first)] - values[self._row(second)])

    def _per_prompt(
        self, quantity: str
    ) -> Float[Tensor, "method batch"] | Bool[Tensor, "method batch"]:
        known = {
            "label_loyalty": self.label_kept,
            "word_loyalty": self.word_overlap,
            "accuracy": self.correct,
        }
        if quantity not in known:
            raise ResultError(f"Unknown quantity {quantity!r}. {near_matches(quantity, known)}")
        values = known[quantity]
        if values is None:
            raise ResultError("These prompts have no answers; accuracy needs them.")
        return values

    def _row(self, method: str) -> int:
        if method not in self.methods:
            raise ResultError(f"{method!r} was not compared. {near_matches(method, self.methods)}")
        return self.methods.index(method)

    def _found(self, method: str) -> dict[str, Interval]:
        found = {
            "label loyalty": self.label_loyalty(method),
            "word loyalty": self.word_loyalty(method),
        }
        return found if self.correct is None else {**found, "accuracy": self.accuracy(method)}

    def drawing(self, kind: Literal["bars", "table"] = "bars") -> Bars | Table:
        """Bars by method, or the numbers as a table.

        Raises:
            ResultError: another kind.
        """
        if kind not in ("bars", "table"):
            raise ResultError(f"kind={kind!r}; expected 'bars' or 'table'.")
        return self._bars() if kind == "bars" else self._table()

    def _bars(self) -> Bars:
        rows = [list(self._found(method).values()) for method in self.methods]
        groups = self.methods
        if self.correct is not None:
            unknown = Interval(float("nan"), float("nan"), float("nan"))
            rows.append([unknown, unknown, self.full_accuracy])
            groups = (*groups, "full prompt")
        values = torch.tensor([[list(interval) for interval in row] for row in rows])
        return Bars(
            "Demonstrations replaced by a stand-in",
            groups,
            tuple(self._found(self.methods[0])),
            values[..., 0],
            values[..., 1],
            values[..., 2],
            "share of prompts; overlap",
            note=self._note(),
        )

    def _table(self) -> Table:
        names = tuple(self._found(self.methods[0]))
        rows = [
            (method, *(str(interval) for interval in self._found(method).values()))
            for method in self.methods
        ]
        if self.correct is not None:
            rows.append(("full prompt", "1", "1", str(self.full_accuracy)))
        return Table(
            "Demonstrations replaced by a stand-in", ("method", *names), tuple(rows), self._note()
        )

    def _note(self) -> str:
        conditional = self.provenance.get("conditional_on_demonstrations")
        given = " given their shared demonstrations" if conditional else ""
        return (
            f"{self.label_kept.shape[1]} prompts, 95 % intervals{given}; {self._costs()}; "
            f"a constant answer has label loyalty {self.constant_loyalty:.2f}"
        )

    def _costs(self) -> str:
        share = f"{float(self.demonstration_share.mean()):.0%} of the demonstrations' tokens kept"
        if self.speed_up is None or self.speed_up_cached is None:
            return share
        return f"{share}, speed-up {self.speed_up:.2g} (cached: {self.speed_up_cached:.2g})"

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


def compare_compression(
    model: Any,
    prompts: PromptBatch,
    methods: Sequence[Method] = METHODS,
    *,
    position: Position = "true",
    seed: int = 0,
    draws: int = 20,
    top_k: int = 5,
    batch_size: int | None = None,
    memory: str | int | None = None,
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
    if not methods or len(set(methods)) < len(methods):
        raise RunError(f"methods={list(methods)}; name at least one, each once.")
    check_options(methods, position, None, draws)
    adapted = adapt(model)
    compared = compress_by(
        adapted, prompts, methods, position=position, keep=None, seed=seed, draws=draws,
        top_k=top_k, batch_size=batch_size, memory=memory, measure=measure_speed,
        progress=progress,
    )  # fmt: skip
    found, speed = compared.methods, compared.speed
    choices: dict[str, Any] = {one.method: one.choice for one in found if one.draws}
    origin = provenance(
        adapted,
        prompts,
        methods=list(methods),
        position=position,
        seed=seed,
        top_k=top_k,
        **choices,
    )
    if speed is not None:
        origin["speed"] = speed.to_dict()
    logits = torch.stack([one.label_logits for one in found])
    answers = prompts.answers if prompts.has_answers else None
    return CompressionTable(
        methods=tuple(methods),
        kept=tuple(one.kept for one in found),
        label_logits=logits,
        label_kept=torch.stack([one.label_kept for one in found]),
        word_overlap=torch.stack([one.word_overlap for one in found]),
        correct=None if answers is None else logits.argmax(-1) == answers,
        full_correct=None if answers is None else compared.full_predicted == answers,
        full_predicted=compared.full_predicted,
        demonstration_share=compared.shares[0].clone(),
        prompt_share=compared.shares[1].clone(),
        speed_up=None if speed is None else speed.up,
        speed_up_cached=None if speed is None else speed.up_cached,
        provenance=origin,
    )
