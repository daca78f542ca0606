"""Extraction over several tasks: AUC is averaged first, then summed to R.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.extraction.curves import AucCurves
from icl_mech.measurements.extraction.label_words import ExtractionResult
from icl_mech.measurements.extraction.statistics import curve_fields, resampled, share_note
from icl_mech.results.wording import listed


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragedExtraction(AucCurves):
    """AUC averaged over tasks, and R of the average.

    Attributes:
        per_task: AUC of each task.
        tasks: Their names.
    """

    per_task: Float[Tensor, "task layer"]
    tasks: tuple[str, ...]

    def note(self) -> str:
        """The tasks."""
        return f"mean of {', '.join(self.tasks)}; 95 % intervals over the prompts of each"

    def basis_words(self) -> str:
        """The tasks."""
        return f"the prompts of each task; mean of {listed(self.tasks)}"


@checked(ResultError)
def averaged_extraction(results: Sequence[ExtractionResult]) -> AveragedExtraction:
    """AUC averaged over tasks, and R of the averaged AUC.

    Prompts are resampled within each task, independently of the others; every resample gives
    one averaged curve and one R. Tasks with fewer than two classes are left out and noted.

    Raises:
        ResultError: nothing to average, or results of different depth.

    Source: Wang et al. 2023, §2.3.
    """
    names = [_task_name(result, number) for number, result in enumerate(results)]
    used = [(name, result) for name, result in zip(names, results, strict=True) if result.defined]
    if not used:
        raise ResultError(
            f"None of the {len(results)} results has a defined AUC (two classes or more), so there "
            "is nothing to average."
        )
    depths = sorted({len(result.auc) for _, result in used})
    if len(depths) > 1:
        raise ResultError(
            f"Results of models with {' and '.join(map(str, depths))} layers; average one depth only."
        )
    drawn = [
        resampled(result.attention, result.truth_classes, result.two_classes, seed=seed)[1]
        for seed, (_, result) in enumerate(used)
    ]
    whole = [values for values in drawn if values is not None]
    per_task = torch.stack([result.auc for _, result in used])
    mean = torch.stack(whole).mean(0) if len(whole) == len(used) else None
    fields = curve_fields(
        per_task.mean(0), mean, sum(len(result.truth_classes) for _, result in used)
    )
    left_out = [name for name, result in zip(names, results, strict=True) if not result.defined]
    notes = (f"left out, one class only: {', '.join(left_out)}",) if left_out else ()
    return AveragedExtraction(
        **fields,
        notes=notes + share_note(fields),
        per_task=per_task,
        tasks=tuple(name for name, _ in used),
        provenance={"averaged": [result.provenance for _, result in used]},
    )


def _task_name(result: ExtractionResult, number: int) -> str:
    task = result.provenance.get("prompts", {}).get("task", {})
    return str(task.get("name", f"task {number}"))
