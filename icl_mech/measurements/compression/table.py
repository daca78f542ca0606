"""The compression methods side by side on the same prompts, as in the paper's table 2.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech.checking import Count, Natural
from icl_mech.errors import RunError
from icl_mech.measurements.compression.kept import Method
from icl_mech.measurements.compression.methods import METHODS, Comparison, Compression
from icl_mech.measurements.compression.outcome import Outcome
from icl_mech.measurements.compression.stand_in import Position
from icl_mech.measurements.compression.table_result import CompressionTable
from icl_mech.measurements.doors import door
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch


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
