"""Steering by demonstrations: their effect on the last token as one vector, added to bare queries.

`v_l` is the mean over prompts of the output of block `l` at the last token with demonstrations, minus that of the same
queries without them. Half of the prompts give the vector and choose the block and the strength at which it is added;
the other half test how much of the gain from the demonstrations it then gives to bare queries.

Controls have the same norm, and each is added at the block and the strength that the first half chooses for it: random
directions, and the vector of the same demonstrations with shuffled labels. A constant offset of the label logits, the
mean change that demonstrations cause, is the counterpart at the output: a vector that only shifts the preference among
labels does no more.

Sources: the difference of mean activations is activation addition (Turner et al. 2023, *Steering language models with
activation engineering*); Liu et al. 2024, *In-context vectors*, take a principal direction instead, and task vectors (Hendel
et al. 2023) replace the output. The controls and the ratio are ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.functional import normalize

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import RunError
from icl_mech.interventions import AddVector
from icl_mech.interventions.base import check_layers
from icl_mech.measurements.accuracy.early_exit import task_name
from icl_mech.measurements.accuracy.gain import answer_scores
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import check_answers
from icl_mech.measurements.causal.held_out_contexts import in_contexts
from icl_mech.measurements.causal.recovered_gain import DemonstrationSteeringResult
from icl_mech.measurements.causal.side_effects import SideEffects
from icl_mech.measurements.causal.task_vector import TaskVector
from icl_mech.measurements.demonstrations import check_demonstrations, check_several_classes
from icl_mech.measurements.doors import door
from icl_mech.measurements.reading import PredictionReading
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch, build_prompts
from icl_mech.prompts.passages import passages
from icl_mech.tasks import as_task


class _Effect(NamedTuple):
    """Effect of demonstrations on some prompts.

    Attributes:
        vectors: Of each block: the vector; with shuffled labels too, where these can be built.
        offset: Mean change of the candidates' logits.
        size: Number of prompts.
    """

    vectors: Float[Tensor, "vector block d_model"]
    offset: Float[Tensor, " label"]
    size: int


@dataclass(frozen=True)
class DemonstrationSteering(Measurement[DemonstrationSteeringResult]):
    """How much of the gain from demonstrations one vector recovers on held-out bare queries, and its side effects.

    Costs one pass over half of the prompts with demonstrations, with shuffled ones and without; of these bare queries the
    target's row for each vector, block and strength; and one pass over the other half with demonstrations and for each vector.

    Attributes:
        strengths: Factors of the vector.
        layers: Blocks after which it is added, one at a time; None: all.
        draws: Number of random directions.
        tasks: Other tasks, by name or as prompts, on which accuracy with the vector is measured.
        texts: Texts on which the next-token loss is measured with the vector at every position; None: eight passages
            of plain English, if the tokenizer knows their words.
        seed: Seed of the halves, the random directions, the order of shuffled labels and the prompts of named tasks.

    Raises:
        PromptError: prompts without answers or demonstrations, whose queries cannot be separated from them, or
            fewer than four of them; a repeated query, or queries of one class.
        RunError: no strength or one that is not positive, or layers the model does not have.
    """

    strengths: Sequence[float] = (0.5, 1.0, 2.0)
    layers: Sequence[Natural] | None = None
    draws: Count = 5
    tasks: Sequence[PromptBatch | str] = ()
    texts: Sequence[str] | None = None
    seed: Natural = 0

    takes = ("classes", "choices")
    why_not = "it compares demonstrations that display answers with the query alone"

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def _layers(self, model: LanguageModel) -> tuple[int, ...]:
        return tuple(range(model.info.n_layers) if self.layers is None else self.layers)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts that cannot be split or stripped of their demonstrations, and meaningless blocks or strengths.

        Raises:
            PromptError: says which prompts, and why.
            RunError: says which argument is invalid.
        """
        check_answers(data, "demonstration_steering")
        check_demonstrations(data, "demonstration_steering")
        layers = self._layers(model)
        if not layers or len(set(layers)) < len(layers):
            raise RunError(f"layers={list(layers)}; name at least one block, without duplicates.")
        check_layers(layers, model.info, "demonstration_steering")
        if not self.strengths or min(self.strengths) <= 0:
            raise RunError(
                f"strengths={list(self.strengths)}; give at least one factor, all above 0."
            )
        check_several_classes(data)
        in_contexts(model, data, self.seed)
        for prompts in self._side_effects(model, data).tasks:
            check_answers(prompts, "demonstration_steering")

    def _side_effects(self, model: LanguageModel, data: PromptBatch) -> SideEffects:
        tasks = [
            task
            if isinstance(task, PromptBatch)
            else build_prompts(as_task(task), model, shots=1, n=len(data), seed=self.seed)
            for task in self.tasks
        ]
        return SideEffects(tasks, passages(model.tokenizer, self.texts))

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Outputs of all blocks at the target, for both quarters of the training half in each context."""
        split = in_contexts(model, data, self.seed)
        return [
            Pass(
                prompts[rows],
                [*TaskVector().passes(model, prompts[rows])[0].readings, PredictionReading(1)],
                title="outputs at the target",
            )
            for rows in split.quarters
            for prompts in (split.bare, split.full, split.shuffled)
            if prompts is not None
        ]

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[DemonstrationSteeringResult]:
        """The vectors, their effect by block and strength on the training half, then the test on the other half."""
        split, side = in_contexts(model, data, self.seed), self._side_effects(model, data)
        cells = [(layer, s) for layer in self._layers(model) for s in self.strengths]
        read = yield self.passes(model, data)
        effects = [
            _effect(model, data, runs, rows)
            for runs, rows in zip(
                (read[: len(read) // 2], read[len(read) // 2 :]), split.quarters, strict=True
            )
        ]
        # Each quarter is steered by the vectors of the opposite one.
        tried = yield [
            self._steered(
                split.bare[rows],
                [(vectors, *cell) for vectors in self._directions(effect) for cell in cells],
            )
            for rows, effect in zip(split.quarters, effects[::-1], strict=True)
        ]
        searched = torch.cat(
            [
                _changes(runs, split.bare[rows])
                for runs, rows in zip(tried, split.quarters, strict=True)
            ]
        ).unflatten(1, (-1, len(cells)))
        chosen = [cells[place] for place in searched.mean(0).argmax(-1).tolist()]
        layer, strength = chosen[0]
        # A control that helps nowhere on the training half is not added at all, so that it cannot harm.
        helps = [True, *(searched.mean(0).amax(-1) > 0).tolist()[1:]]
        chosen = [(cell[0], cell[1] * helped) for cell, helped in zip(chosen, helps, strict=True)]
        effect = _over_all(effects)
        directions = self._directions(effect)
        # Random directions at the block and strength of the vector: what any push of this size costs.
        pushes = [vectors[layer] for vectors in (directions[0], *directions[-self.draws :])]
        tested = yield [
            Pass(split.full[split.test], [PredictionReading(1)], title="test"),
            self._steered(
                split.bare[split.test],
                [(vectors, *cell) for vectors, cell in zip(directions, chosen, strict=True)],
            ),
            *side.passes(pushes, layer, strength),
        ]
        return self.result(model, data, [effect, searched, chosen[0], *tested])

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> DemonstrationSteeringResult:
        """Scores in every context, from the effect, the search, the chosen block and strength, and the test."""
        effect, searched, cell, (with_text,), runs, *sides = read
        split, side = in_contexts(model, data, self.seed), self._side_effects(model, data)
        full, bare = split.full[split.test], split.bare[split.test]
        alone, *with_vectors = [answer_scores(run, bare) for (run,) in runs]
        scores = {
            "demonstrations": answer_scores(with_text, full),
            "bare": alone,
            "vector": with_vectors[0],
        }
        if split.shuffled is not None:
            scores["shuffled"] = with_vectors[1]
        if data.has_classes:
            logits, *rest = runs[0][0]
            scores["offset"] = answer_scores((logits + effect.offset, *rest), bare)
        log_probs, right = (
            torch.stack(drawn, 1) for drawn in zip(*with_vectors[-self.draws :], strict=True)
        )
        scores["random"] = (log_probs.mean(1), right.mean(1))
        test, training = split.test, [row for rows in split.quarters for row in rows]
        columns = [torch.stack(column, 1) for column in zip(*scores.values(), strict=True)]
        by_cell = searched[:, 0].unflatten(1, (-1, len(self.strengths)))
        return DemonstrationSteeringResult(
            log_prob=_placed(columns[0], test, len(data)),
            right=_placed(columns[1], test, len(data)),
            random=_placed(log_probs, test, len(data)),
            searched=_placed(by_cell, training, len(data)),
            contexts=tuple(scores),
            vectors=effect.vectors[0].float(),
            layers=self._layers(model),
            strengths=tuple(self.strengths),
            layer=cell[0],
            strength=cell[1],
            answers=data.answers,
            labels=data.labels,
            tasks=tuple(task_name(prompts.source) for prompts in side.tasks),
            task_right=side.right(sides),
            text_loss=side.loss(sides),
            notes=split.notes,
        )

    def _directions(self, effect: _Effect) -> list[Float[Tensor, "block d_model"]]:
        """The vector, that of shuffled labels, and random directions, all with the norm of the first."""
        vector, *controls = effect.vectors
        generator = torch.Generator().manual_seed(self.seed)
        controls += torch.randn(self.draws, 1, vector.shape[1], generator=generator).double()
        norm = vector.norm(dim=-1, keepdim=True)
        return [vector, *(norm * normalize(control, dim=-1) for control in controls)]

    def _steered(
        self, prompts: PromptBatch, vectors: Sequence[tuple[Tensor, int, float]]
    ) -> Variants:
        """Answers without a vector, and with the vector of a block added there in this strength."""
        added = [[AddVector(v[layer].float(), layer, strength)] for v, layer, strength in vectors]
        return Variants(prompts, [PredictionReading(1)], title="vectors", variants=[[], *added])


def _effect(model: LanguageModel, data: PromptBatch, runs: list[Any], rows: list[int]) -> _Effect:
    """The effect of demonstrations, with correct and with shuffled labels, on some bare queries."""
    states, reads = zip(*runs, strict=True)
    bare, *means = [
        TaskVector().result(model, data, [[outputs]]).vectors.double() for outputs in states
    ]
    offset = (reads[1][0] - reads[0][0]).double().mean(0)
    return _Effect(torch.stack([mean - bare for mean in means]), offset, len(rows))


def _over_all(effects: Sequence[_Effect]) -> _Effect:
    """The mean effect over the prompts of all parts."""
    size = sum(effect.size for effect in effects)
    shares = [effect.size / size for effect in effects]
    parts = [
        (effect.vectors * w, effect.offset * w) for effect, w in zip(effects, shares, strict=True)
    ]
    vectors, offset = (torch.stack(part).sum(0) for part in zip(*parts, strict=True))
    return _Effect(vectors, offset, size)


def _changes(runs: list[Any], bare: PromptBatch) -> Float[Tensor, "batch run"]:
    """Log-probability of the right answer in each run but the first, minus the first."""
    plain, *steered = [answer_scores(run, bare)[0] for (run,) in runs]
    return torch.stack(steered, 1) - plain[:, None]


def _placed(values: Tensor, rows: list[int], count: int) -> Tensor:
    """The values of some of the prompts, not-a-number for the others."""
    placed = torch.full((count, *values.shape[1:]), torch.nan, dtype=torch.float64)
    placed[rows] = values.double()
    return placed


demonstration_steering = door(
    DemonstrationSteering,
    "demonstration_steering",
    prompts="With demonstrations and answers; at least four, each query only once.",
)
