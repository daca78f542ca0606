"""Over-trust with a model: rows of candidates on kept keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import pad

from icl_mech._typing import Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.engine.writing import Writer, following
from icl_mech.interventions import Intervention
from icl_mech.measurements.generation.choosing import Known
from icl_mech.measurements.generation.loop import Loop
from icl_mech.measurements.generation.over_trust import Beams, OverTrust, Search
from icl_mech.metrics import head_maximum
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment


@dataclass
class LastPattern(Reading[list[Tensor]]):
    """Attention of the target's row in the last layer, `head_maximum`."""

    target_only: ClassVar[bool] = True
    ragged: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of the last layer."""
        return [Site("pattern", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, src]`."""
        rows = activation[segment.rows, :, segment.target_row]
        return head_maximum(rows[:, :, None])[:, 0]

    def collect(self, kept: Kept) -> list[Tensor]:
        """`[site, src]` of each prompt."""
        return kept.per_prompt()


class ModelStepper:
    """Rows behind one prompt."""

    def __init__(
        self,
        model: LanguageModel,
        prompts: PromptBatch,
        index: int,
        interventions: Sequence[Intervention],
    ) -> None:
        """Of prompt number `index` of the run, under these interventions."""
        self.model, self.prompts, self.index = model, prompts, index
        self.writer = Writer([LastPattern()], interventions)
        self.given = torch.tensor(given_tokens(prompts[index]), dtype=torch.long)

    def begin(self, beams: int) -> Beams:
        """So many times the prompt, nothing written."""
        rows = [self.index] * beams
        written = self.writer.begin_writing(Segment.build(self.model, self.prompts[rows], rows))
        return Beams(
            ((),) * beams,
            self.model.logits(written.residual).float(),
            torch.zeros(beams, 0, 0, dtype=torch.float64),
            torch.zeros(beams, dtype=torch.float64),
            written,
        )

    def extend(self, beams: Beams, parents: Sequence[int], tokens: Sequence[int]) -> Beams:
        """Each token behind its parent."""
        texts = tuple((*beams.texts[p], token) for p, token in zip(parents, tokens, strict=True))
        behind = following(beams.inner.kept(parents), tokens)
        written = self.writer.go_on(behind, texts)
        (values,) = written.values
        (row,) = values.values()
        row = row.cpu()
        before = pad(beams.rows[list(parents)], (0, 1))
        rows = torch.cat([before, row[:, None, -len(texts[0]) :]], dim=1)
        logits = self.model.logits(written.residual).float()
        return Beams(texts, logits, rows, row[:, self.given].sum(1), written)

    def picked(self, beams: Beams, rows: Sequence[int]) -> Beams:
        """Some of the beams, in this order."""
        own = list(rows)
        texts = tuple(beams.texts[row] for row in own)
        kept = beams.inner.kept(own)
        return Beams(texts, beams.logits[own], beams.rows[own], beams.mass[own], kept)


def given_tokens(prompt: Prompt) -> list[int]:
    """Positions of the demonstrations, or of everything in a prompt without any."""
    shown = [
        place
        for span in prompt.spans
        if span.demo is not None
        for place in range(span.start, span.stop)
    ]
    return shown or list(range(len(prompt)))


def trusting(
    model: LanguageModel,
    prompts: PromptBatch,
    interventions: Sequence[Intervention],
    loop: Loop,
    how: OverTrust,
) -> Known:
    """The texts a search with over-trust writes, prompt by prompt."""
    ends = loop.stops.ends | loop.stops.ids
    steppers = (ModelStepper(model, prompts, index, interventions) for index in range(len(prompts)))
    return Known(tuple(Search(stepper, how).write(loop.longest, ends) for stepper in steppers))
