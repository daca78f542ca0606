"""The study of *Label Words are Anchors*, §§2-3, on the user's own model and prompts."""

from dataclasses import dataclass, field
from typing import Any

import torch

from icl_mech.errors import PromptError
from icl_mech.measurements.compression.table import compare_compression
from icl_mech.measurements.confusion.diagnosis import diagnose_confusion
from icl_mech.measurements.extraction.label_words import extraction
from icl_mech.measurements.isolation.map import isolation_map
from icl_mech.measurements.isolation.windows import isolation
from icl_mech.measurements.reweighting.evaluation import evaluate_reweighting
from icl_mech.measurements.reweighting.fit import fit_reweighting
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.studies.bench import Bench
from icl_mech.studies.default import FlowStudy
from icl_mech.studies.published import label_words_numbers

TRAINING_PER_CLASS = 4
"""Prompts per class that anchor re-weighting learns from (the paper's number)."""


@dataclass(frozen=True)
class LabelWords:
    """Everything the paper measures; what prompts cannot give is left out with a note."""

    flow: FlowStudy = field(default_factory=FlowStudy)
    seed: int = 0

    def run(self, bench: Bench, prompts: PromptBatch) -> None:
        """Put everything that these prompts give on the bench."""
        if bench.options.interventions:
            raise PromptError(
                "The label-words study makes its own interventions; give yours to the single analyses."
            )
        adapted = bench.model
        common: dict[str, Any] = {
            "batch_size": bench.options.batch_size,
            "progress": bench.options.progress,
        }
        results, notes = bench.results, bench.notes
        bench.measure(prompts, *self.flow.measurements())
        results["isolation"] = isolation(adapted, prompts, seed=self.seed, **common)
        width = max(1, adapted.info.n_layers // 6)
        results["isolation_map"] = isolation_map(
            adapted, prompts, widths=(width,), step=width, seed=self.seed, **common
        )
        results["extraction"] = extraction(adapted, prompts, **common)
        if all(prompt.has_text_roles for prompt in prompts):
            results["compression"] = compare_compression(adapted, prompts, seed=self.seed, **common)
        else:
            notes.append("Compression left out: prompts made from positions have no text roles.")
        if not prompts.has_answers:
            notes.append("Confusion and re-weighting left out: the prompts have no answers.")
            return
        results["confusion"] = diagnose_confusion(adapted, prompts, **common)
        trained = _reweighting(adapted, prompts, self.seed, common)
        if isinstance(trained, str):
            notes.append(trained)
        else:
            results["reweighting"] = trained
        results["published"] = label_words_numbers(results)
        if prompts.source.get("demonstrations") == "shared":
            notes.append("All prompts share their demonstrations; intervals hold given these.")


def _reweighting(
    model: Any, prompts: PromptBatch, seed: int, common: dict[str, Any]
) -> Result | str:
    """Learned on the first few prompts of each class, tested on all others; or why not."""
    counts = torch.bincount(prompts.answers, minlength=prompts.n_labels)
    if int(counts.min()) < 2 * TRAINING_PER_CLASS:
        return (
            f"Re-weighting left out: it needs at least {2 * TRAINING_PER_CLASS} prompts of every "
            f"class, the rarest has {int(counts.min())}."
        )
    chosen: list[int] = []
    for label in range(prompts.n_labels):
        members = (prompts.answers == label).nonzero()[:, 0]
        chosen += members[:TRAINING_PER_CLASS].tolist()
    others = [i for i in range(len(prompts)) if i not in set(chosen)]
    fitted = fit_reweighting(model, prompts[sorted(chosen)], seed=seed, progress=common["progress"])
    return evaluate_reweighting(model, fitted, prompts[others], **common)
