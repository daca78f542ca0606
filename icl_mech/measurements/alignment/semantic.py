"""What answers follow behind true and behind false demonstrations.

An answer may be the true label of the query (truth), the label that the demonstrations teach for it
(prompt), or what the model answers without demonstrations (prior). The *semantic override* is
the share of prompts answered as false demonstrations teach although the zero-shot answer is another.

Source: after Krishna Kumar 2025, *Semantic Anchors in In-Context Learning: Why Small LLMs Cannot
Flip Their Labels*, which names these quantities; the formulas are those above.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech.errors import PromptError
from icl_mech.measurements.accuracy.pairs import check_pairs, taught_classes
from icl_mech.measurements.alignment.result import AlignmentResult
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.side_by_side import without_demonstrations
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reweighting.learnable import query
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch


@dataclass(frozen=True)
class Alignment(PairMeasurement[AlignmentResult]):
    """Shares of answers that follow the truth, the demonstrations or the zero-shot prior.

    Attributes:
        zero_shot: The same queries without demonstrations; None: cut out of the true prompts.

    Raises:
        PromptError: sets that are not pairs, false labels that teach no one label, or `zero_shot`
            with other queries.

    Source: after Krishna Kumar 2025, arXiv 2511.21038.
    """

    name: ClassVar[str] = "alignment"

    zero_shot: PromptBatch | None = None

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs, false labels that teach no one label, other queries.

        Raises:
            PromptError: says which.
        """
        true, false = data
        check_pairs(true, false)
        if taught_classes(false) is None:
            raise PromptError(
                "The false demonstrations teach no one label for each query, so nothing can be said to "
                "follow them; build them with false_labels='permuted' or 'half_permuted'."
            )
        self._bare(true)

    def _bare(self, true: PromptBatch) -> PromptBatch:
        if self.zero_shot is None:
            bare = without_demonstrations(true)
            if bare is None:
                raise PromptError(
                    "The queries cannot be cut out of these prompts (made from bare positions, read at "
                    "the last demonstration, or without any); give them as zero_shot=."
                )
            return bare
        own = self.zero_shot
        same = [p.answer for p in own] == [p.answer for p in true]
        same = same and [p.label_words for p in own] == [p.label_words for p in true]
        if same and all(p.has_text_roles for batch in (own, true) for p in batch):
            same = [query(prompt) for prompt in own] == [query(prompt) for prompt in true]
        if not same:
            raise PromptError(
                "zero_shot must hold the queries of the pair in the same order; build it with the same "
                "task, n and seed, and shots=0."
            )
        shown = sum(bool(prompt.label_positions) for prompt in own)
        if shown:
            raise PromptError(
                f"{shown} of {len(own)} zero_shot prompts hold demonstrations; build them with shots=0."
            )
        return own

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Both sides and the bare queries."""
        sides = zip((*data, self._bare(data[0])), ("true", "false", "no"), strict=True)
        return [
            Pass(own, [PredictionReading()], title=f"{side} demonstrations") for own, side in sides
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> AlignmentResult:
        """Answers of all three."""
        true, false = data
        found = [logits.argmax(-1) for ((logits, *_),) in read]
        taught = taught_classes(false)
        assert taught is not None
        return AlignmentResult(
            predicted=torch.stack(found[:2], dim=1),
            zero_shot=found[2],
            answers=true.answers,
            taught=taught,
            labels=true.labels,
            provenance={"zero_shot": prompt_source(self._bare(true))},
        )


alignment = door(
    Alignment,
    "alignment",
    then=("zero_shot",),
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
