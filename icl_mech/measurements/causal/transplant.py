"""Where an answer is carried: residuals of another run put in at label words, target, query or template.

The residuals entering block l at all tokens of a place are taken from the run of the same queries with
false demonstrations into the run with true ones, and back, layer by layer. What then becomes of the
answer tells where, at this depth, the demonstrations' lesson stands. At layer 0 the words themselves are
swapped; at the entrance of the last block little but the target can still act.

Beside each place stand random tokens of the same demonstrations (or of the query), as many.

Source: arXiv 2605.04061 (all output tokens at once); arXiv 2504.00132 (contextualise, then aggregate).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.checking import Count, Natural
from icl_mech.engine import Layout
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.interventions.base import check_layers
from icl_mech.measurements.base import Options, Pair, PairMeasurement, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers, check_label_words
from icl_mech.measurements.causal.grafted_runs import Begun, Entered, Rows, shared_beginning
from icl_mech.measurements.causal.grafts import (
    Graft,
    Matched,
    Role,
    check_places,
    drawn,
    matched,
    of_word,
    read_rows,
    table,
    words,
)
from icl_mech.measurements.causal.moved_answers import TransplantResult
from icl_mech.measurements.demonstrations import check_pairs, taught_classes
from icl_mech.measurements.doors import door
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import ANSWER_KINDS, PromptBatch


@dataclass(frozen=True)
class Transplant(PairMeasurement[TransplantResult]):
    """Answers after the residuals entering a block were taken from the run with other demonstrations.

    Both directions. Costs one pass over each side for all residuals, and for each layer, place and draw the
    blocks from that layer on, on both sides.

    Attributes:
        at: Places, each for itself: `anchors` (all label words), `target`, `query` (its text) or `template`
            (all tokens of the format).
        layers: Blocks whose entrance is changed, one at a time; None: all.
        draws: Random draws of tokens beside each place.
        single: Each label word alone, too.
        seed: Of the draws.

    Raises:
        PromptError: sets that are no pairs, a pair with other numbers of demonstrations, query or template
            of other numbers of tokens, or prompts without such tokens.
        RunError: no place, one named twice, or layers the model does not have.

    Source: arXiv 2605.04061.
    """

    at: Role | Sequence[Role] = ("anchors", "target")
    layers: Sequence[Natural] | None = None
    draws: Count = 5
    single: bool = False
    seed: Natural = 0

    takes = ANSWER_KINDS

    @property
    def places(self) -> tuple[Role, ...]:
        """The places, also of a single one."""
        return (self.at,) if isinstance(self.at, str) else tuple(self.at)

    def _layers(self, model: LanguageModel) -> tuple[int, ...]:
        return tuple(range(model.info.n_layers) if self.layers is None else self.layers)

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse prompts that are no pairs or do not align, and layers the model does not have.

        Raises:
            PromptError: says which prompts, and why.
            RunError: says what was named.
        """
        check_pairs(*data)
        check_label_words(*data)
        check_answers(data[1], "transplant")
        if len(set(self.places)) < len(self.places):
            raise RunError(f"at={list(self.places)}; name places, each once.")
        layers = self._layers(model)
        if not layers or len(set(layers)) < len(layers):
            raise RunError(f"layers={list(layers)}; name blocks, each once.")
        check_layers(layers, model.info, "transplant")
        check_places(*data, at=self.places)

    def passes(self, model: LanguageModel, data: Pair) -> list[Variants]:
        """The residuals of both runs at every token that is taken; the transplants follow from them."""
        return self._sources(model, data, Options())

    def _sources(self, model: LanguageModel, data: Pair, options: Options) -> list[Variants]:
        sites = [Site("resid_pre", layer) for layer in self._layers(model)]
        return [
            Variants(
                source,
                [Rows(sites, read_rows(self._sets(run, source)))],
                title="residuals",
                layout=self._layout(model, (run, source), 1, options),
            )
            for run, source in zip(data, data[::-1], strict=True)
        ]

    def steps(self, model: LanguageModel, data: Pair, options: Options) -> Steps[TransplantResult]:
        """Residuals of both runs, then every transplant into both."""
        sources = yield self._sources(model, data, options)
        found = yield [
            Variants(
                run,
                [AnswerReading()],
                title="transplants",
                variants=[[], *self._grafts(model, self._sets(run, source), values)],
                layout=self._layout(model, (run, source), 0, options),
            )
            for run, source, ((values,),) in zip(data, data[::-1], sources, strict=True)
        ]
        return self.result(model, data, found)

    def _layout(self, model: LanguageModel, both: Pair, which: int, options: Options) -> Layout:
        """Of run and source alike, so that equal prompts have equal residuals."""
        sets, made = self._sets(*both), options.interventions
        lengths = [
            shared_beginning(model, side, [table(own, place) for own in sets], made)
            for place, side in enumerate(both)
        ]
        if not all(lengths):
            return Entered(model, both[which])
        return Begun(model, both[which], beginning=lengths[which], read=which == 1)

    def _sets(self, run: PromptBatch, source: PromptBatch) -> list[list[Matched]]:
        """Of every set of tokens the matches of every prompt: places, their draws, single label words."""
        places = [
            [matched(own, other, at)[0] for own, other in zip(run, source, strict=True)]
            for at in self.places
        ]
        return [*places, *self._drawn(run, source), *self._singles(run, source)]

    def _drawn(self, run: PromptBatch, source: PromptBatch) -> list[list[Matched]]:
        """The same tokens in both directions, where label words have as many on both sides."""
        found = []
        for at in self.places:
            each = [
                drawn(own, other, at, self.draws, self.seed)
                for own, other in zip(run, source, strict=True)
            ]
            found += [list(own) for own in zip(*each, strict=True)]
        return found

    def _singles(self, run: PromptBatch, source: PromptBatch) -> list[list[Matched]]:
        if not self.single:
            return []
        each = [
            [of_word(*pair) for pair in zip(words(own), words(other), strict=True)]
            for own, other in zip(run, source, strict=True)
        ]
        return [
            [own[i] if i < len(own) else () for own in each] for i in range(max(map(len, each)))
        ]

    def _grafts(
        self, model: LanguageModel, sets: Sequence[Sequence[Matched]], values: Mapping[Site, Tensor]
    ) -> list[list[Intervention]]:
        """By layer, one for each set that has tokens."""
        read = read_rows(sets)
        return [
            [Graft.of(layer, own, read, values[Site("resid_pre", layer)])]
            for layer in self._layers(model)
            for own in sets
            if any(own)
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> TransplantResult:
        """Log-probabilities of label words after every transplant."""
        layers, count = self._layers(model), len(self.places)
        plain, after = [], []
        for side, run, source in zip(read, data, data[::-1], strict=True):
            own, *changed = [
                one.label_logits.double() - one.log_sum.double()[:, None] for (one,) in side
            ]
            sets = self._sets(run, source)
            there = torch.tensor([[bool(match) for match in prompts] for prompts in sets]).T
            values = own.new_full((len(run), len(sets), len(layers), own.shape[1]), torch.nan)
            # Sets without a token were not run.
            ran = there.any(0)
            laid = torch.stack(changed, 1).unflatten(1, (len(layers), int(ran.sum())))
            values[:, ran] = laid.transpose(1, 2)
            there[:, : count * (1 + self.draws)] = True
            after.append(values.where(there[..., None, None], torch.nan))
            plain.append(own)
        found = torch.stack(after, dim=1)
        random = found[:, :, count : count * (1 + self.draws)].unflatten(2, (count, self.draws))
        taught = taught_classes(data[1])
        return TransplantResult(
            log_probs=found[:, :, :count],
            random=random.transpose(3, 4),
            single=found[:, :, count * (1 + self.draws) :] if self.single else None,
            plain=torch.stack(plain, dim=1),
            answers=data[0].answers,
            taught=torch.full_like(data[0].answers, -1) if taught is None else taught,
            at=self.places,
            layers=layers,
            n_layers=model.info.n_layers,
            unlike=sum(
                matched(own, other, "anchors")[1]
                for own, other in zip(*data, strict=True)
                if "anchors" in self.places
            ),
        )


transplant = door(
    Transplant,
    "transplant",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
