"""Overthinking: how much better the model would answer if it exited earlier.

The early-exit layer is the argmax over entries before the last of the mean over tasks of
(calibrated accuracy with false demonstrations there - at the last entry), the first on ties. It is chosen on
one half of the prompts (split by seed and class, thresholds per half) and reported on the other; `reference`:
chosen and reported on the same prompts.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Natural, checked, conformed
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracy, LayerAccuracyResult
from icl_mech.measurements.accuracy.scores import CALIBRATED, PAPER, OwnChoices
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.demonstrations import SIDES, check_one_way
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.metrics import Interval, calibrated_scores, early_exit_layer, mean_ends
from icl_mech.metrics.calibration import Ties, near_ties
from icl_mech.metrics.layers import stratified_halves
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS
from icl_mech.results import Definition, Quantity, Result, function_of_means
from icl_mech.results.judging import Status, judged, together

if TYPE_CHECKING:
    import pandas as pd

EXIT = Definition(
    "early-exit layer",
    r"\operatorname*{argmax}_{\ell < L}\ \frac{1}{T}\sum_{t=1}^{T} \left(\operatorname{acc}^{t}_\ell"
    r"(\text{false}) - \operatorname{acc}^{t}_L(\text{false})\right)",
    "The layer at which reading out early improves accuracy most under false demonstrations, over "
    "T tasks (the first layer if several tie). It is chosen on one half of the prompts and "
    "reported on the other; thresholds are computed separately for each half.",
    f"{PAPER}, §4",
)

OVERTHINKING = Definition(
    "overthinking",
    r"\operatorname{acc}_{\ell^*}(\text{false}) - \operatorname{acc}_L(\text{false})",
    "Calibrated accuracy at the early-exit layer minus that at the last layer.",
    f"{PAPER}, §4",
)

UNIT = "change of calibrated accuracy"


class Halves(NamedTuple):
    """Numbers of prompt pairs of a task.

    Attributes:
        chose: Number of pairs the layer was chosen on; 0 if unknown.
        reported: Number of pairs it is reported on.
    """

    chose: int
    reported: int


@dataclass(frozen=True, eq=False, kw_only=True)
class EarlyExitResult(OwnChoices, Result):
    """The early-exit layer and the change in accuracy from exiting there.

    Attributes:
        layer: The entry (0: embedding, l: after l blocks).
        change: Accuracy there minus at the last entry, by task and side (`true`, `false`).
        low, high: Ends of the 95 % intervals (paired score) over the held-out prompts.
        tasks: Names of the tasks.
        tie_counts: Number of scores there and at the last entry that are ties, nearly ties, and in all,
            by task and side (see `near_ties`). This and the next two are None in results saved without.
        changes: Change of every prompt's score; not-a-number for prompts the entry was chosen on, and
            after the last prompt of a task that has fewer.
        sizes: Number of prompt pairs that the entry was chosen on, and that are reported, by task.
        chosen_with: Label setting it was chosen with, if it differs from the reported one.
        own_choices: True if each prompt has its own choices as answers; accuracy is then not calibrated.
    """

    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"task": "tasks", "side": SIDES}
    definitions: ClassVar[tuple[Definition, ...]] = (CALIBRATED, EXIT, OVERTHINKING)

    layer: int
    change: Float[Tensor, "task side"]
    low: Float[Tensor, "task side"]
    high: Float[Tensor, "task side"]
    tasks: tuple[str, ...]
    tie_counts: Int[Tensor, "count task side"] | None = None
    changes: Float[Tensor, "task side batch"] | None = None
    sizes: Int[Tensor, "task half"] | None = None
    chosen_with: str = ""
    own_choices: bool = False

    def quantities(self) -> dict[str, Quantity]:
        """The `change` by task and side, a mean over the held-out prompts of each task."""
        if self.changes is None:
            return {}
        per_prompt = self.changes.movedim(-1, 0)
        held_out = per_prompt.isfinite()
        counted = torch.stack([per_prompt.nan_to_num(), held_out.double()], dim=1)
        # Ends are those of each task's own held-out prompts; differences resample all prompts.
        mean = function_of_means(counted, lambda means: means[:, 0] / means[:, 1])
        ends = (self.low, self.high)
        return {"change": Quantity(("task", "side"), per_prompt, mean, self._named(UNIT), ends)}

    def plain_table(self) -> "pd.DataFrame | None":
        """The table for files of earlier versions, which hold no changes of single prompts."""
        import pandas as pd

        if self.changes is not None:
            return None
        rows = [(task, side) for task in self.tasks for side in SIDES]
        ends = {
            f"change{suffix}": end.flatten().tolist()
            for suffix, end in (("", self.change), ("_low", self.low), ("_high", self.high))
        }
        return pd.DataFrame(rows, columns=["task", "side"]).assign(**ends)

    @property
    def ties(self) -> Ties:
        """Ties among the held-out scores at this entry and at the last one, all tasks."""
        return Ties.of(self.tie_counts)

    @checked(ResultError)
    def overthinking(self, task: int = 0, side: str = "false") -> Interval:
        """Gain from exiting early, with false demonstrations or with true ones.

        Raises:
            ResultError: no such task or side.
        """
        if side not in SIDES:
            raise ResultError(f"side={side!r}. {near_matches(side, SIDES)}")
        if not 0 <= task < len(self.tasks):
            raise ResultError(f"task={task}; there are {len(self.tasks)} tasks, counted from 0.")
        ends = (self.change, self.low, self.high)
        return Interval(*(float(end[task, SIDES.index(side)]) for end in ends))

    def halves(self, task: int) -> Halves | None:
        """Numbers of pairs that the layer was chosen on and that it is reported on; None if unknown.

        Args:
            task: Index in `tasks`.
        """
        if self.sizes is not None:
            return Halves(*self.sizes[task].tolist())
        if self.changes is None:
            return None
        reported = int(self.changes[task, 0].isfinite().sum())
        total = self.changes.shape[-1] if len(self.tasks) == 1 else 0
        return Halves(total if self.same else total - reported, reported)

    @property
    def known_halves(self) -> list[tuple[str, Halves]]:
        """The same numbers by name of the task, for tasks where they are known."""
        pairs = [(name, self.halves(task)) for task, name in enumerate(self.tasks)]
        return [(name, halves) for name, halves in pairs if halves is not None]

    def held_out(self, task: int = 0) -> list[int]:
        """Prompts of a task that the layer was not chosen on; use them to test it.

        Raises:
            ResultError: the layer was chosen on all prompts, or it is unknown on which.
        """
        if self.changes is None or self.same:
            raise ResultError(
                "There are no held-out prompts: the layer was chosen on all prompts, or the "
                "result does not record on which. Choose it again with "
                "early_exit(variant='sound') from layer-accuracy results."
            )
        prompts: list[int] = self.changes[task, 0].isfinite().nonzero()[:, 0].tolist()
        return prompts

    @property
    def same(self) -> bool:
        """True if the layer was chosen and reported on the same prompts (the paper's way)."""
        options = self.provenance.get("early_exit", self.provenance.get("variants", {}))
        return bool(options.get("variant") == "reference")

    @property
    def status(self) -> Status:
        """Status of the claim that exiting early helps under false demonstrations, in all tasks.

        The claim cannot be tested where the layer was chosen on the prompts it is reported on.
        """
        if self.same:
            return "cannot be judged"
        each = ((self.overthinking(task), self.halves(task)) for task in range(len(self.tasks)))
        return together(
            *(
                judged(change, prompts=halves.reported if halves else None)
                for change, halves in each
            )
        )

    @property
    def costs(self) -> bool:
        """True if exiting early clearly lowers accuracy with true demonstrations in some task."""
        return any(self.overthinking(task, "true").high < 0 for task in range(len(self.tasks)))


@dataclass(frozen=True)
class EarlyExit(PairMeasurement[EarlyExitResult]):
    """The early-exit layer of one task, from the passes of `LayerAccuracy`.

    Attributes:
        variant: `sound` splits the prompts; `reference` does not, and takes the paper's lens.
        seed: Seed of the split.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
    """

    variant: LensVariant = "sound"
    seed: Natural = 0
    lens: FittedLens | None = None

    takes = ANSWER_KINDS

    @property
    def accuracy(self) -> LayerAccuracy:
        """The measurement it is computed from."""
        return LayerAccuracy(self.variant, lens=self.lens)

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject sets that are not pairs, or too few to be split.

        Raises:
            PromptError: sets that are not pairs.
            ResultError: too few prompts.
        """
        self.accuracy.check(model, data)
        self.parts(data[0].answers)

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """The passes of the accuracy by layer."""
        return self.accuracy.passes(model, data)

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> EarlyExitResult:
        """The early-exit result of this one task."""
        scores = self.accuracy.result(model, data, read)
        return self.exit([scores], [task_name(data[0].source)])

    def parts(self, answers: Int[Tensor, " batch"]) -> tuple[Tensor, Tensor]:
        """Prompts that the layer is chosen on, and prompts that it is reported on.

        Raises:
            ResultError: too few prompts.
        """
        if self.variant == "reference":
            return torch.arange(len(answers)), torch.arange(len(answers))
        first, second = stratified_halves(answers, self.seed)
        if not len(second):
            raise ResultError(
                "An early-exit layer needs at least two prompts per task; give more prompts."
            )
        return first, second

    def exit(
        self,
        results: Sequence[LayerAccuracyResult],
        tasks: Sequence[str],
        chosen_on: Sequence[LayerAccuracyResult] | None = None,
        chosen_with: str = "",
    ) -> EarlyExitResult:
        """One exit layer for all tasks, and the change from exiting there in each.

        Args:
            results: The results that are reported.
            tasks: Their names.
            chosen_on: Results, of the same queries, by which the layer is chosen; None: the same results.
            chosen_with: Label setting of `chosen_on`.
        """
        parts = [self.parts(result.answers) for result in results]
        chosen, held_out, counts = [], [], []
        choosing = results if chosen_on is None else chosen_on
        for result, by, (first, second) in zip(results, choosing, parts, strict=True):
            chosen.append(_scores(by, "false", first)[0].mean(0))
            sides = [_scores(result, side, second) for side in SIDES]
            held_out.append(torch.stack([scores for scores, _ in sides], dim=1))
            counts.append(torch.stack([ties for _, ties in sides], dim=1))
        layer = early_exit_layer(torch.stack(chosen))
        changes = [scores[..., layer] - scores[..., -1] for scores in held_out]
        ends = [mean_ends(change, "change") for change in changes]
        most = max(len(result.answers) for result in results)
        by_prompt = torch.full((len(results), 2, most), torch.nan, dtype=torch.float64)
        for task, ((_, second), change) in enumerate(zip(parts, changes, strict=True)):
            by_prompt[task, :, second] = change.T
        return EarlyExitResult(
            layer=layer,
            change=torch.stack([change.mean(0) for change in changes]),
            low=torch.stack([low for low, _ in ends]),
            high=torch.stack([high for _, high in ends]),
            tasks=tuple(tasks),
            tie_counts=torch.stack(counts, dim=1)[..., [layer, -1]].sum(-1),
            changes=by_prompt,
            sizes=torch.tensor([[len(first), len(second)] for first, second in parts]),
            chosen_with=chosen_with,
            own_choices=any(result.own_choices for result in results),
        )


def _scores(
    result: LayerAccuracyResult, side: str, part: Int[Tensor, " part"]
) -> tuple[Float[Tensor, "part entry"], Int[Tensor, "count entry"]]:
    """Scores of a part of the prompts of one side, with thresholds from that part, and their ties.

    Choices of each prompt have no thresholds: their scores are those of all prompts.
    """
    probs = result.true_probs if side == "true" else result.false_probs
    classes = result.answers[part][:, None].expand(-1, probs.shape[1])
    selected, exact = (probs[part], classes), result.variant == "reference"
    ties = near_ties(*selected, exact_ties=exact)
    if result.own_choices:
        return result.pair_scores[part, SIDES.index(side)], torch.zeros_like(ties)
    return calibrated_scores(*selected, exact_ties=exact), ties


def task_name(source: dict[str, Any]) -> str:
    """Name of the task that prompts come from."""
    return str(source.get("task", {}).get("name", "prompts"))


# --- for several tasks, from accuracies already measured ---


def early_exit(
    results: LayerAccuracyResult | Sequence[LayerAccuracyResult],
    *,
    chosen_on: LayerAccuracyResult | Sequence[LayerAccuracyResult] | None = None,
    variant: LensVariant = "sound",
    seed: int = 0,
) -> EarlyExitResult:
    """The early-exit layer of one or several tasks.

    Args:
        results: One `LayerAccuracyResult`, or several of one model.
        chosen_on: Results of the same queries with another label setting, one for each of `results`:
            the layer that is best on one half of their prompts is reported on the other half of `results`. The
            paper uses this to apply the layer chosen with permuted labels to half permuted and to random ones.
        variant: `sound` splits the prompts, `reference` does not.
        seed: Seed of the split.

    Raises:
        ResultError: no results, or results of models with different numbers of layers; too few
            prompts; mixed demonstrations per class and in total; `chosen_on` of other queries.
        RunError: unknown variant.
    """
    accepted = LayerAccuracyResult | Sequence[LayerAccuracyResult]
    results = conformed("results", results, accepted, ResultError)
    several = _listed(results)
    if not several:
        raise ResultError("results is empty; give at least one result of LayerAccuracy.")
    choosing = None
    if chosen_on is not None:
        choosing = _listed(conformed("chosen_on", chosen_on, accepted, ResultError))
    entries = {result.true_probs.shape[1] for result in (*several, *(choosing or ()))}
    if len(entries) != 1:
        raise ResultError(
            f"The results are from models with different numbers of residual-stream layers {sorted(entries)}; "
            "give results from one model."
        )
    check_one_way(several)
    measurement = EarlyExit(variant, seed)
    origins = [result.provenance for result in several]
    setting = "" if choosing is None else _other_setting(several, choosing)
    names = [task_name(origin.get("prompts", {})) for origin in origins]
    exit_result = measurement.exit(several, names, choosing, setting)
    origin = _provenance(measurement, origins)
    if choosing is not None:
        origin["chosen_on"] = [result.provenance.get("false_prompts", {}) for result in choosing]
    return replace(exit_result, provenance=origin)


def _listed(
    results: LayerAccuracyResult | Sequence[LayerAccuracyResult],
) -> list[LayerAccuracyResult]:
    return list(results) if isinstance(results, Sequence) else [results]


def _other_setting(
    several: Sequence[LayerAccuracyResult], choosing: Sequence[LayerAccuracyResult]
) -> str:
    """Label setting of the results by which the layer is chosen.

    Raises:
        ResultError: other queries, or unknown ones: the layer might then be reported on the half it was chosen on.
    """
    if len(several) != len(choosing):
        raise ResultError(
            f"There are {len(several)} results and {len(choosing)} in chosen_on; give one in "
            "chosen_on for each result, from the same task."
        )
    for number, (reported, by) in enumerate(zip(several, choosing, strict=True)):
        digests = [result.provenance.get("prompts", {}).get("digest") for result in (reported, by)]
        if None in digests or digests[0] != digests[1]:
            raise ResultError(
                f"Result {number} and its chosen_on do not have the same true prompts, so the "
                "layer might be reported on the prompts it was chosen on. Build both pairs with "
                "the same task, n, seed and demonstrations, and different false_labels."
            )
        settings = [
            (result.provenance.get("model", {}).get("weights"), result.variant)
            for result in (reported, by)
        ]
        if settings[0] != settings[1]:
            raise ResultError(
                f"Result {number} and its chosen_on come from different models or variants "
                f"(weights and variant {settings[0]} and {settings[1]}); measure both pairs with "
                "the same model and variant."
            )
    kinds = {
        str(result.provenance.get("false_prompts", {}).get("labels", "")) for result in choosing
    }
    return " and ".join(sorted(kinds))


def _provenance(measurement: EarlyExit, origins: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Provenance of the accuracies, with the prompts of all tasks."""
    first = origins[0]
    origin = {
        **first,
        "measurement": measurement.name,
        "variants": measurement.variants(),
        "layer_accuracy": first.get("variants", {}),
    }
    for side in ("prompts", "false_prompts"):
        sets = [provenance.get(side, {}) for provenance in origins]
        if len(sets) > 1:
            digests = [prompt_set.get("digest") for prompt_set in sets]
            known = all(isinstance(digest, str) for digest in digests)
            origin[side] = {
                "tasks": sets,
                "count": sum(prompt_set.get("count", 0) for prompt_set in sets),
                "digest": " ".join(digests) if known else None,
            }
    return origin
