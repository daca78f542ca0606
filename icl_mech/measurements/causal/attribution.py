"""Attribution patching: which nodes carry the difference between true and false demonstrations.

A first-order estimate of patching every node from the run with true into the run with false
demonstrations, from one backward pass, see `icl_mech.measurements.causal.attribution_scores`. It is an
estimate: how far its ranks agree with exact patching is measured beside it.

Source: Nanda 2023, *Attribution patching*; Syed et al. 2023; Hanna et al. 2024 (integrated gradients).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Natural
from icl_mech.engine import Progress, Work, cost, fill_means, plan
from icl_mech.errors import RunError
from icl_mech.interventions import Patch, Place
from icl_mech.measurements.accuracy.pairs import check_pairs
from icl_mech.measurements.base import Options, Pair, PairMeasurement, Pass, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, above_others, check_answers
from icl_mech.measurements.causal.attribution_scores import Attribution
from icl_mech.measurements.causal.mediation import check_own_weights, heads_of
from icl_mech.measurements.causal.tracing import batch_scores, reader_names, writer_names
from icl_mech.measurements.doors import door
from icl_mech.models import LanguageModel
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment, by_length

EVERYWHERE = Place("all")


@dataclass(frozen=True)
class AttributePatching(PairMeasurement[Attribution]):
    """Attribution of every node to the difference of true and false demonstrations.

    Attributes:
        points: Gradients are the mean over so many points between the embeddings of the two runs;
            0: those of the run with false demonstrations.
        edges: Score edges between nodes too.
        exact: Also patch every head in turn, and say how far the ranks agree.

    Raises:
        PromptError: sets that are not pairs, or whose tokens do not stand beside each other.
        RunError: processed weights, edges of a model that norms what its heads add, interventions that
            go by the number of a prompt.

    Source: Nanda 2023; Syed et al. 2023; Hanna et al. 2024.
    """

    name: ClassVar[str] = "attribution_patching"

    points: Natural = 0
    edges: bool = False
    exact: bool = True

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs or do not align, and models it is not defined for.

        Raises:
            PromptError: which prompts do not align, and why.
            RunError: processed weights, or edges of a model that norms what its heads add.
        """
        true, false = data
        check_pairs(true, false)
        check_answers(false, "attribution_patching")
        EVERYWHERE.check_aligned(false, true, every=False)
        check_own_weights(model, "attribution_patching")
        if self.edges and model.attention_norm(0) is not None:
            raise RunError(
                f"{model.info.name!r} norms the sum of its heads before adding it to the residual stream, so "
                "heads have no edges of their own; leave edges=False."
            )

    def check_options(self, model: LanguageModel, data: Pair, options: Options) -> None:
        """Refuse interventions that belong to single prompts or other runs.

        Raises:
            RunError: names the intervention.
        """
        for own in options.interventions:
            if own.by_number or own.taken_from() is not None:
                raise RunError(
                    f"{own!r} goes by the number of a prompt or takes its values from another run; "
                    "attribution_patching runs both sides in batches of their own. Leave it out."
                )

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Exact patching of every head at all positions, if asked for."""
        if not self.exact:
            return []
        true, false = data
        heads = heads_of((model.info.n_layers, model.info.n_heads))
        patches = [[Patch("z", [head], at="all", source=true)] for head in heads]
        reading = AnswerReading()
        return [Variants(false, [reading], title="exact patching", variants=[[], *patches])]

    def steps(self, model: LanguageModel, data: Pair, options: Options) -> Steps[Attribution]:
        """Attribution first, then exact patching where it is asked for."""
        scored = self.scored(model, data, options)
        jobs = self.passes(model, data)
        patched = None
        if jobs:
            (patched,) = yield jobs
        return self.result(model, data, [scored, patched])

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> Attribution:
        """From the scores of all prompts, and the answers under exact patches."""
        (nodes, edges, ends), patched = read
        exact, info = None, model.info
        if patched is not None:
            found = torch.stack(
                [contrast(own.label_logits.double(), data[1]) for (own,) in patched], dim=1
            )
            exact = (found[:, 1:] - found[:, :1]).reshape(-1, info.n_layers, info.n_heads)
        return Attribution(
            nodes=torch.stack([own.sum(-1) for own in nodes]),
            by_position=tuple(own.float() for own in nodes),
            edges=None if edges is None else torch.stack(edges).float(),
            clean=ends[0],
            corrupt=ends[1],
            exact=exact,
            shape=(info.n_layers, info.n_heads),
            writers=writer_names(info),
            readers=reader_names(info) if edges is not None else (),
            points=self.points,
            roles=tuple(tuple(_roles(prompt)) for prompt in data[1]),
        )

    def scored(self, model: LanguageModel, data: Pair, options: Options) -> list[Any]:
        """Nodes and edges of every prompt, and the metric of both runs."""
        _, false = data
        interventions = fill_means(model, false, [options.interventions])[0]
        work = Work([], interventions, checkpoint=False)
        tokens, _ = plan(model, false.lengths.tolist(), gradient=True, memory=options.memory)
        nodes: list[Tensor] = [torch.empty(0)] * len(false)
        edges: list[Tensor] = [torch.empty(0)] * len(false)
        ends = torch.zeros(2, len(false), dtype=torch.float64)

        def metric(residual: Tensor, segment: Segment) -> Tensor:
            logits = model.label_logits(residual, segment.label_tokens)
            return contrast(logits, false[list(segment.indices)])

        each = cost(gradient=True, variants=max(self.points, 1))
        with Progress("attribution", len(false), options.progress, cost=each) as bar:
            lengths, padded = false.lengths.tolist(), not model.has_own_hooks
            for rows in by_length(lengths, tokens=tokens, size=options.batch_size, padded=padded):
                clean, corrupt = (Segment.build(model, side[rows], rows) for side in data)
                found = batch_scores(
                    work, clean, corrupt, metric, steps=self.points, edges=self.edges
                )
                ends[:, rows] = torch.stack([found.clean, found.corrupt]).cpu()
                for place, row in enumerate(rows):
                    length = len(false[row])
                    # Padding stands on the left.
                    nodes[row] = found.nodes[place, :, -length:].cpu()
                    if found.edges is not None:
                        edges[row] = found.edges[place, -length:].sum(0).cpu()
                bar.advance(len(rows))
        work.check_acted()
        return [nodes, edges if self.edges else None, ends]


def contrast(logits: Float[Tensor, "batch label"], prompts: PromptBatch) -> Float[Tensor, " batch"]:
    """Logit of the right minus that of the taught false label; of the mean of the others if none is."""
    answers = prompts.answers.to(logits.device)
    taught = [prompt.false_answer for prompt in prompts]
    if any(own is None for own in taught):
        return above_others(logits, answers)
    wrong = torch.tensor([int(own or 0) for own in taught], device=logits.device)
    return (logits.gather(1, answers[:, None]) - logits.gather(1, wrong[:, None]))[:, 0]


def _roles(prompt: Prompt) -> list[str]:
    return [span.role for span in prompt.spans for _ in range(span.start, span.stop)]


attribution_patching = door(
    AttributePatching,
    "attribution_patching",
    called={"points": "steps"},
    clean="Prompts with true demonstrations, which values are taken from.",
    corrupt="The same prompts with false ones, token beside token, in which gradients are taken.",
)
