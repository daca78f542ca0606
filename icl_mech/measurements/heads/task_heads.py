"""Task recognition and task learning heads: heads that point into the label words' span, and to the right label in it.

Heads are scored by their output at the target (see `label_span`). On half of the prompts we choose the `top` heads by
learning above its control, then the `top` of the others by recognition above its control: an output that points to the
right label lies in the span as well, so a head that is among the first by both goes to learning. On the other half each
set is ablated at the target; the claims are in `task_claims`.

Source: Yang, Cho and Inoue 2025, arXiv 2509.24164; controls, baselines and the test on other prompts are ours.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from icl_mech.checking import Count, Natural
from icl_mech.errors import RunError
from icl_mech.interventions import ZeroHeads
from icl_mech.interventions.zeroing import Kind
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers
from icl_mech.measurements.causal.compare_heads import Sets
from icl_mech.measurements.demonstrations import check_demonstrations, two_parts
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.contexts import Contexts, contexts_of
from icl_mech.measurements.heads.label_span import LabelSpanReading, Null, SpanScores, SpanVariant
from icl_mech.measurements.heads.task_claims import TaskHeadsResult
from icl_mech.measurements.heads.task_sets import TaskSets, choose, drawn_beside, right_and_blind
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch

TOP = 5
"""Largest number of heads in a set, unless another is asked for."""


@dataclass(frozen=True)
class TaskHeads(Measurement[TaskHeadsResult]):
    """Heads that recognise the task and heads that learn it, chosen on half of the prompts and ablated on the other.

    Costs one pass over the prompts and, for each half-size context, one token per prompt for every ablation: both sets in
    three contexts, and `draws` of random heads for each set.

    Attributes:
        top: Number of heads in each set; None: five, or a quarter of the heads if that is less.
        kind: What replaces an ablated head's output, see `ZeroHeads`.
        draws: Number of random draws of heads for each set.
        directions: Number of random draws of directions; at least 39 to name heads beyond them.
        null: Random directions: those of random `tokens`, or `gaussian` vectors.
        variant: `sound`: relative to the head's size, through the final norm; `reference`: the published scores.
        beside: Other sets of heads by name, with which the two are compared.
        seed: Seed of the halves, the draws and the shuffled labels.

    Raises:
        PromptError: prompts without demonstrations or answers, repeated queries, or queries of one class.
        RunError: processed weights, too few heads, as many classes as the residual stream is wide, heads that do not exist.

    Source: Yang, Cho and Inoue 2025.
    """

    top: Count | None = None
    kind: Kind = "zero_output"
    draws: Count = 20
    directions: Count = 99
    null: Null = "tokens"
    variant: SpanVariant = "sound"
    beside: Sets = field(default_factory=dict)
    seed: Natural = 0

    why_not = "the label words of all prompts must span one subspace"

    def filled(self, model: LanguageModel, data: PromptBatch) -> "TaskHeads":
        """With the number of heads filled in."""
        total = model.info.n_layers * model.info.n_heads
        return self if self.top else replace(self, top=max(1, min(TOP, total // 4)))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts and models for which the scores are not defined, and sets without a control.

        Raises:
            PromptError: prompts without demonstrations or answers, repeated queries, or queries of one class.
            RunError: see the class.
        """
        check_answers(data, "task_heads")
        check_demonstrations(data, "task_heads")
        check_own_weights(model, "task_heads")
        two_parts(data, self.seed)
        info, top = model.info, self._top(model, data)
        if data.n_labels >= info.d_model:
            raise RunError(
                f"The {data.n_labels} label words span the whole residual stream of {info.name!r} "
                f"(width {info.d_model}), so every head would recognise the task; use fewer classes."
            )
        if 3 * top > info.n_layers * info.n_heads:
            raise RunError(
                f"Two sets of top={top} heads and as many random heads do not fit into the "
                f"{info.n_layers * info.n_heads} heads of {info.name!r}; use a smaller top."
            )
        if self.variant == "reference" and any(
            model.attention_norm(layer) is not None for layer in range(info.n_layers)
        ):
            raise RunError(
                f"The published scores depend on the size of each head's output, but {info.name!r} "
                "normalises the sum of all heads; use variant='sound'."
            )
        for heads in self.beside.values():
            ZeroHeads(heads).check(info)

    def _top(self, model: LanguageModel, data: PromptBatch) -> int:
        top = self.filled(model, data).top
        assert top is not None
        return top

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Scores on both halves; the ablations follow from those of the first."""
        reading = LabelSpanReading(self.directions, self.seed, self.null, self.variant)
        titles = ("choose heads", "scores of heads")
        parts = two_parts(data, self.seed)
        return [
            Pass(data[part], [reading], title=title)
            for part, title in zip(parts, titles, strict=True)
        ]

    def _contexts(self, model: LanguageModel, testing: PromptBatch) -> Contexts:
        return contexts_of(testing, model.tokenizer, self.seed)

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[TaskHeadsResult]:
        """Scores on both halves, then ablations of the heads that the first half chose."""
        scores = yield self.passes(model, data)
        choosing, testing = (data[part] for part in two_parts(data, self.seed))
        ((chosen_by,), _) = scores
        sets = self._sets(model, choosing, chosen_by)
        random = drawn_beside(sets, model.info, self.draws, self.seed)
        ablated = yield [
            Variants(
                prompts,
                [AnswerReading()],
                title="ablations",
                variants=[
                    [ZeroHeads(heads, kind=self.kind)] if heads else []
                    for heads in ((), *sets.both, *(random if name == "demonstrations" else ()))
                ],
            )
            for name, prompts in self._contexts(model, testing).prompts.items()
        ]
        return self.result(model, data, [*scores, ablated])

    def _sets(self, model: LanguageModel, data: PromptBatch, scores: SpanScores) -> TaskSets:
        return choose(scores, data.answers, self._top(model, data))

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> TaskHeadsResult:
        """Scores, and both measures in every context under every ablation."""
        ((chosen_by,), (scores,), ablated) = read
        choosing, testing = (data[part] for part in two_parts(data, self.seed))
        sets = self._sets(model, choosing, chosen_by)
        learning, blind = right_and_blind(scores.towards, testing.answers)
        contexts = self._contexts(model, testing)
        answers = testing.answers
        right = [torch.stack([run.right(answers) for (run,) in runs], 1) for runs in ablated]
        outside = [torch.stack([run.outside for (run,) in runs], 1) for runs in ablated]
        log_right = [
            torch.stack([run.log_right(answers) for (run,) in runs], 1) for runs in ablated
        ]
        log_inside = [torch.stack([run.log_inside for (run,) in runs], 1) for runs in ablated]
        plain = 1 + len(sets.both)
        return TaskHeadsResult(
            recognition=scores.recognition,
            random_recognition=scores.random.mean(-1),
            learning=learning,
            blind_learning=blind,
            random_draws=scores.random.double().mean(0).movedim(-1, 0),
            right=torch.stack([runs[:, :plain] for runs in right], dim=1),
            outside=torch.stack([runs[:, :plain] for runs in outside], dim=1),
            log_right=torch.stack([runs[:, :plain] for runs in log_right], dim=1),
            log_inside=torch.stack([runs[:, :plain] for runs in log_inside], dim=1),
            random_right=right[0][:, plain:].unflatten(1, (-1, self.draws)),
            random_outside=outside[0][:, plain:].unflatten(1, (-1, self.draws)),
            contexts=tuple(contexts.prompts),
            heads=sets.both,
            shared=sets.shared,
            chosen_on=len(choosing),
            answers=testing.answers,
            labels=testing.labels,
            other_names=tuple(self.beside),
            others=tuple(map(tuple, self.beside.values())),
            random_tokens=self.null == "tokens",
            notes=contexts.notes,
        )


task_heads = door(
    TaskHeads,
    "task_heads",
    prompts="With demonstrations and answers: half of them choose heads, the others test them.",
)
