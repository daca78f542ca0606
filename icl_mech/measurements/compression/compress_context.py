"""`CompressContext`: the demonstrations of some prompts made into a `CompressContextResult`.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import Unpack

from icl_mech.checking import Count, Natural
from icl_mech.engine import Work, fill_means
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.compression.kept import Method, plain_positions
from icl_mech.measurements.compression.methods import (
    Comparison,
    refuse_positions,
    same_demonstrations,
)
from icl_mech.measurements.compression.predict_behind import CompressContextResult
from icl_mech.measurements.compression.stand_in import Position, StandIn, misplaced, treated_alike
from icl_mech.measurements.passes import How
from icl_mech.measurements.same_model import probe
from icl_mech.models import LanguageModel, to_host
from icl_mech.prompts import ANSWER_KINDS, Prompt, PromptBatch


@dataclass(frozen=True)
class CompressContext(Measurement[CompressContextResult]):
    """The demonstrations of these prompts as a small cache for new queries.

    Of one prompt, or several that share their demonstrations; their queries do not enter, except that
    `hidden_random_top` chooses the draw by their label loyalty:

        context = CompressContext()(model, prompts)

    Attributes:
        method: As in `compress_demonstrations`.
        position: As there.
        keep: Positions to keep instead of those the roles give.
        seed: As there.
        draws: As there.

    Raises:
        RunError: as `compress_demonstrations`, a model that counts positions itself, or
            interventions that differ between the prompts.
        PromptError: as there, and for prompts with different demonstrations.

    Source: Wang et al. 2023, §3.2.
    """

    method: Method = "hidden_anchor"
    position: Position = "true"
    keep: Any = None
    seed: Natural = 0
    draws: Count = 20

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """No: whole words are scored where the prompts say so."""
        return False

    def __call__(
        self, model: Any, prompts: PromptBatch | Prompt, **how: Unpack[How]
    ) -> CompressContextResult:
        """Of a single prompt, too; options as in `icl_mech.measure`."""
        batch = PromptBatch((prompts,)) if isinstance(prompts, Prompt) else prompts
        return super().__call__(model, batch, **how)

    @property
    def comparison(self) -> Comparison:
        """Of the draws, by label loyalty."""
        return Comparison([self.method], self.position, self.keep, self.seed, self.draws, 1, False)

    def filled(self, model: LanguageModel, data: PromptBatch) -> "CompressContext":
        """With checked positions."""
        return replace(self, keep=plain_positions(self.keep, data))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts with different demonstrations, and as `Comparison.check`.

        Raises:
            RunError: as there, or a model whose cache cannot be cut.
            PromptError: as there, or different demonstrations.
        """
        self.comparison.check(model, data)
        stand_in = self._stand_in(model, data)
        if len(same_demonstrations(data, self.comparison.chosen(data).queries)) > 1:
            raise PromptError(
                "These prompts have different demonstrations, and a context holds one set. Build them with "
                "demonstrations='shared', or give one prompt."
            )
        if stand_in.hidden:
            raise misplaced(model, stand_in.queries[0], len(stand_in.kept[0]))

    def passes(self, model: LanguageModel, data: PromptBatch) -> Sequence[Pass]:
        """The draws, where there are several."""
        several = len(self.comparison.chosen(data).kept[0]) > 1
        return self.comparison.passes(model, data) if several else []

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> CompressContextResult:
        """That of the plain model."""
        return self._made(model, data, read, ())

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[CompressContextResult]:
        """The draws are compared and the keys and values computed under the same interventions.

        Raises:
            RunError: interventions that differ between prompts.
        """
        refuse_positions([self.method], options.interventions, data)
        for intervention in options.interventions:
            rows = range(len(data))
            if not treated_alike([intervention], self._stand_in(model, data), rows):
                raise RunError(
                    f"{intervention!r} differs between these prompts, and a context holds the keys and "
                    "values of one. Give one prompt, or use compress_demonstrations."
                )
        read = yield self.passes(model, data)
        return self._made(model, data, read, options.interventions)

    def _stand_in(self, model: LanguageModel, data: PromptBatch) -> StandIn:
        return self.comparison.stand_ins(model, data, self.comparison.chosen(data))[0]

    def _made(
        self,
        model: LanguageModel,
        data: PromptBatch,
        read: list[Any],
        interventions: Sequence[Intervention],
    ) -> CompressContextResult:
        chosen, facts = self.comparison.chosen(data), {}
        kept, query, prompt = chosen.first, chosen.queries[0], data[0]
        if read:
            outcome = self.comparison.outcome(model, data, read)
            kept, facts = outcome.methods[0].kept, outcome.facts
        stand_in = StandIn.made(model, data, chosen.queries, kept, self.method, self.position)
        (ready,) = fill_means(model, data, [interventions])
        demonstrations = stand_in.demonstrations(0)
        made = Work([], ready, checkpoint=False).begin(demonstrations)
        cache = stand_in.cut(made, 0)
        tokens = prompt.tokens[:query]
        *held, probed = to_host([*cache.keys, *cache.values, probe(model, tokens)])
        spans = [replace(s, stop=min(s.stop, query)) for s in prompt.spans if s.start < query]
        return CompressContextResult(
            method=self.method,
            kept=kept[0],
            query=query,
            first=0 if stand_in.overlap else stand_in.queries[0],
            tokens=tokens,
            spans=tuple((span.role, span.demo, span.start, span.stop) for span in spans),
            label_classes=prompt.label_classes,
            label_words=prompt.label_words,
            labels=data.labels,
            score=data.score,
            # Queries of a chat cannot be written by the template alone.
            task={} if "chat" in data.source else data.source.get("task", {}),
            keys=tuple(key.contiguous() for key in held[: len(cache.keys)]),
            values=tuple(value.contiguous() for value in held[len(cache.keys) :]),
            probe=probed,
            # With their means: queries are read under the very same.
            provenance={**facts, "made_under": [one.to_dict() for one in ready]},
        )
