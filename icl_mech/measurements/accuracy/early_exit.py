"""Overthinking: how much better the model would answer if it stopped earlier.

The early-exit layer is the argmax over entries before the last of the mean over tasks of
(calibrated accuracy with false demonstrations there - at the last entry), first on ties. It
is chosen on one half of the prompts (split by seed and class, thresholds per half) and
reported on the other; `reference`: chosen and reported on the same prompts.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Natural, conformed
from icl_mech.errors import ResultError
from icl_mech.measurements.accuracy.exit_result import EarlyExit
from icl_mech.measurements.accuracy.layers import AccuracyByLayer, LayerAccuracy
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.metrics import (
    calibrated_scores,
    early_exit_layer,
    mean_ends,
    near_ties,
    stratified_halves,
)
from icl_mech.models import LanguageModel

__all__ = ["EarlyExit", "LeavingEarly", "early_exit"]


@dataclass(frozen=True)
class LeavingEarly(PairMeasurement[EarlyExit]):
    """The early-exit layer of one task, from the passes of `AccuracyByLayer`.

    Attributes:
        variant: `sound` splits the prompts; `reference` does not, and takes the paper's lens.
        seed: Of the split.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
    """

    name: ClassVar[str] = "early_exit"

    variant: LensVariant = "sound"
    seed: Natural = 0
    lens: FittedLens | None = None

    @property
    def accuracy(self) -> AccuracyByLayer:
        """What it is computed from."""
        return AccuracyByLayer(self.variant, lens=self.lens)

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs, or too few to be split.

        Raises:
            PromptError: sets that are not pairs.
            ResultError: too few prompts.
        """
        self.accuracy.check(model, data)
        self.parts(data[0].answers)

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Those of the accuracy by layer."""
        return self.accuracy.passes(model, data)

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> EarlyExit:
        """The exit of this one task."""
        scores = self.accuracy.result(model, data, read)
        return self.exit([scores], [_task(data[0].source)])

    def parts(self, answers: Int[Tensor, " batch"]) -> tuple[Tensor, Tensor]:
        """Prompts that choose, and prompts that are reported.

        Raises:
            ResultError: too few prompts.
        """
        if self.variant == "reference":
            return torch.arange(len(answers)), torch.arange(len(answers))
        first, second = stratified_halves(answers, self.seed)
        if not len(second):
            raise ResultError("An early-exit layer needs at least two prompts per task.")
        return first, second

    def exit(self, results: Sequence[LayerAccuracy], tasks: Sequence[str]) -> EarlyExit:
        """One exit for all tasks, by what leaving there changes in each."""
        parts = [self.parts(result.answers) for result in results]
        chosen, held_out, counts = [], [], []
        for result, (first, second) in zip(results, parts, strict=True):
            exact = result.variant == "reference"
            chosen.append(_scores(result.false_probs, result.answers, first, exact)[0].mean(0))
            sides = [
                _scores(probs, result.answers, second, exact)
                for probs in (result.true_probs, result.false_probs)
            ]
            held_out.append(torch.stack([scores for scores, _ in sides], dim=1))
            counts.append(torch.stack([ties for _, ties in sides], dim=1))
        layer = early_exit_layer(torch.stack(chosen))
        changes = [scores[..., layer] - scores[..., -1] for scores in held_out]
        ends = [mean_ends(change, "change") for change in changes]
        most = max(len(result.answers) for result in results)
        by_prompt = torch.full((len(results), 2, most), torch.nan, dtype=torch.float64)
        for task, ((_, second), change) in enumerate(zip(parts, changes, strict=True)):
            by_prompt[task, :, second] = change.T
        return EarlyExit(
            layer=layer,
            change=torch.stack([change.mean(0) for change in changes]),
            low=torch.stack([low for low, _ in ends]),
            high=torch.stack([high for _, high in ends]),
            tasks=tuple(tasks),
            tie_counts=torch.stack(counts, dim=1)[..., [layer, -1]].sum(-1),
            changes=by_prompt,
            sizes=torch.tensor([[len(first), len(second)] for first, second in parts]),
        )


def early_exit(
    results: LayerAccuracy | Sequence[LayerAccuracy],
    *,
    variant: LensVariant = "sound",
    seed: int = 0,
) -> EarlyExit:
    """The early-exit layer of one or several tasks.

    Args:
        results: One `LayerAccuracy`, or several of one model.
        variant: `sound` splits the prompts, `reference` does not.
        seed: Of the split.

    Raises:
        ResultError: no results, or of models with different numbers of layers; too few
            prompts.
        RunError: unknown variant.
    """
    kind = LayerAccuracy | Sequence[LayerAccuracy]
    results = conformed("results", results, kind, ResultError)
    several = list(results) if isinstance(results, Sequence) else [results]
    entries = {result.true_probs.shape[1] for result in several}
    if len(entries) != 1:
        raise ResultError(
            f"Results of models with {sorted(entries)} entries; give those of one model."
        )
    measurement = LeavingEarly(variant, seed)
    origins = [result.provenance for result in several]
    found = measurement.exit(several, [_task(origin.get("prompts", {})) for origin in origins])
    return replace(found, provenance=_provenance(measurement, origins))


def _provenance(measurement: LeavingEarly, origins: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """That of the accuracies, with the prompts of all tasks."""
    first = origins[0]
    origin = {
        **first,
        "measurement": measurement.name,
        "variants": measurement.variants(),
        "layer_accuracy": first.get("variants", {}),
    }
    for side in ("prompts", "false_prompts"):
        sets = [own.get(side, {}) for own in origins]
        if len(sets) > 1:
            digests = [own.get("digest") for own in sets]
            known = all(isinstance(digest, str) for digest in digests)
            origin[side] = {
                "tasks": sets,
                "count": sum(own.get("count", 0) for own in sets),
                "digest": " ".join(digests) if known else None,
            }
    return origin


def _scores(
    probs: Float[Tensor, "batch entry label"],
    answers: Int[Tensor, " batch"],
    part: Int[Tensor, " part"],
    exact_ties: bool,
) -> tuple[Float[Tensor, "part entry"], Int[Tensor, "count entry"]]:
    """Calibrated scores of a part of the prompts, thresholds from that part; and their ties."""
    classes = answers[part][:, None].expand(-1, probs.shape[1])
    own = probs[part], classes
    return calibrated_scores(*own, exact_ties=exact_ties), near_ties(*own, exact_ties=exact_ties)


def _task(source: dict[str, Any]) -> str:
    return str(source.get("task", {}).get("name", "prompts"))
