"""Which edges does the answer need, and in which layers: between demonstrations, or from them to the target?

Attention is cut (`Cut`, masked before the softmax) in one window of layers at a time:

* *contextualise*: from every demonstration to the ones after it;
* *exchange*: the same edges stay, and lead to demonstrations of other labels: each demonstration after the first keeps
  its tokens, and its attention adds what it adds where the label words before it are exchanged (`Patch` of `attn_out`);
* *aggregate*: from the demonstrations to the query and the target, or to the target alone;
* *anchors*: from their anchors (label words) alone, likewise;
* *collect*: from everything before the anchors into them.

Controls, in several draws: beside *anchors* as many other edges into every row, of about the same lengths; beside
*collect* as many random other tokens of the demonstrations, cut off from everything before them. *Contextualise* and
*aggregate* leave their rows too few other edges for a control.

Source: *Contextualize-then-aggregate* (arXiv 2504.00132); *collect* is Wang et al. 2023, *Label Words are Anchors*,
§2.2; the measures are our own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import Cut, Intervention, Patch
from icl_mech.interventions.cut import Mode
from icl_mech.measurements.base import Measurement, Options, Variants
from icl_mech.measurements.causal.answers import above_others, check_answers
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation.edge_cuts_result import (
    CONTROLLED,
    CONTROLS,
    CUTS,
    EXCHANGE,
    TO_TARGET,
    WINDOWS,
    EdgeCutsResult,
    Edges,
    Rows,
    Windows,
    window_of,
)
from icl_mech.measurements.reading import PredictionReading, Read, predicted, same_answer
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.prompts.rewriting import relabelled_before
from icl_mech.results.wording import counted

__all__ = ["CONTROLLED", "CUTS", "EdgeCuts", "EdgeCutsResult", "edge_cuts"]

Place = tuple[int, int, int]
"""Numbers of edges, window and draw, which count from 1; 0 is the cut itself."""

Placed = tuple[Place, tuple[Intervention, ...]]
"""What is done in one run, and where its answers stand."""


def exchanged_before(prompts: PromptBatch, tokenizer: object | None) -> tuple[PromptBatch, ...]:
    """For each demonstration after the first: the prompts with other labels in the demonstrations before it.

    Raises:
        PromptError: says why there are none: prompts with one demonstration, or not all with as many; all labels
            alike; a text that is not known.
    """
    counts = {len(own.label_classes) for own in prompts}
    if len(counts) != 1 or max(counts) < 2:
        raise PromptError(
            "Earlier demonstrations can be exchanged where all prompts have as many demonstrations, two at "
            f"least; these have {', '.join(map(str, sorted(counts)))}. Leave edges='exchange' out."
        )
    found = []
    for demo in range(1, max(counts)):
        made = relabelled_before(prompts, tokenizer, demo)
        if made.prompts is None:
            raise PromptError(
                f"The labels of earlier demonstrations cannot be exchanged ({made.why_not}). Leave "
                "edges='exchange' out."
            )
        found.append(made.prompts)
    return tuple(found)


def _log_prob(read: Read, prompts: PromptBatch) -> Float[Tensor, " batch"]:
    """Of the right answer, in nats: among label words or choices, of texts over the vocabulary."""
    scores, log_probs = read[0].double(), read[1].double()
    own = log_probs if prompts.answer_kind == "vocabulary" else scores.log_softmax(-1)
    return own.gather(1, prompts.answers[:, None])[:, 0]


@dataclass(frozen=True)
class EdgeCuts(Measurement[EdgeCutsResult]):
    """Right answers with edges between demonstrations, to the target, or into label words cut.

    Costs one forward pass for each kind of edges and window, and as many more for each draw of those that have
    a control; *exchange* one more for each demonstration after the first. With `rows="target"` those of edges to the
    target compute one row of each prompt.

    Attributes:
        edges: `contextualise`, `exchange`, `aggregate`, `anchors` or `collect`, or several.
        windows: `thirds` of the layers and all of them; `cumulative` ones from the first layer on; `after`
            a quarter, half and three quarters of them, to the last; or `sliding`
            ones of a sixth of the layers, from every layer on.
        mode: `mask` (before softmax) or `zero` (after).
        draws: Of random edges; 0: none.
        seed: Of the first draw.
        rows: Edges to the target are those into `query` and target, or into the `target` alone.

    Raises:
        PromptError: prompts without answers or demonstrations, or without such edges; label words and queries so
            short that there is no control, unless `draws=0`.
        RunError: a model with fewer than three layers, unless windows slide; `exchange` with interventions.
    """

    name: ClassVar[str] = "edge_cuts"
    takes = ANSWER_KINDS

    controls: ClassVar[Mapping[str, Cut | None]] = CONTROLS
    """What is cut beside each kind of edges, if its rows leave anything: `contextualise` and `aggregate` cut all but
    all of what stands before a row, and have none."""

    edges: Edges | Sequence[Edges] = ("contextualise", "aggregate", "anchors")
    windows: Windows = "thirds"
    mode: Mode = "mask"
    draws: Natural = 3
    seed: Natural = 0
    rows: Rows = "query"

    def reads_first_tokens(self) -> bool:
        """No: whole words are scored where the prompts say so."""
        return False

    def _edges(self) -> tuple[str, ...]:
        return (self.edges,) if isinstance(self.edges, str) else tuple(dict.fromkeys(self.edges))

    def _windows(self, n_layers: int) -> dict[str, range]:
        """Layers of each window, by name."""
        if self.windows == "sliding":
            width = max(1, n_layers // 6)
            spans = [range(own, own + width) for own in range(n_layers - width + 1)]
            return {window_of(own[0], own[-1]): own for own in spans}
        if self.windows == "after":
            spans = [range(n_layers * part // 4, n_layers) for part in (1, 2, 3)]
            return dict(zip(WINDOWS[self.windows], spans, strict=True))
        ends = [round(n_layers * part / 3) for part in range(4)]
        starts = ends[:3] if self.windows == "thirds" else [0, 0, 0]
        spans = [*(range(*own) for own in zip(starts, ends[1:], strict=True)), range(n_layers)]
        return dict(zip(WINDOWS[self.windows], spans, strict=False))

    def _cuts(self, edges: str) -> tuple[Cut, Cut | None]:
        """The cut of these edges, in all layers, and its control."""
        how: dict[str, Any] = {"mode": self.mode}
        if self._of_targets(edges):
            how["dst"] = "target"
        control = self.controls[edges] if self.draws else None
        return replace(CUTS[edges], **how), control and replace(control, **how)

    def _of_targets(self, edges: str) -> bool:
        """True of edges into the target alone, whose runs compute one row of each prompt."""
        return self.rows == "target" and edges in TO_TARGET

    def _variants(
        self, edges: str, layers: range, exchanged: Sequence[PromptBatch]
    ) -> Iterator[tuple[Intervention, ...]]:
        """What is done to these edges in these layers, then each draw of its control."""
        if edges == EXCHANGE:
            yield tuple(
                Patch("attn_out", layers=tuple(layers), at="all", demo=1 + number, source=source)
                for number, source in enumerate(exchanged)
            )
            return
        cut, control = self._cuts(edges)
        yield (replace(cut, layers=tuple(layers)),)
        for draw in range(self.draws if control else 0):
            yield (replace(control or cut, layers=tuple(layers), seed=self.seed + draw),)

    def _runs(self, n_layers: int, exchanged: Sequence[PromptBatch] = ()) -> list[list[Placed]]:
        """Every run with its place, in groups that are run together.

        Edges into targets alone compute one row of each prompt, other cuts what prompts do not share, patched demonstrations
        whole prompts: together all would cost what the dearest does.
        """
        groups: dict[str, list[Placed]] = {}
        for number, edges in enumerate(self._edges()):
            cost = "row" if self._of_targets(edges) else "whole" if edges == EXCHANGE else "rest"
            group = groups.setdefault(cost, [])
            for window, layers in enumerate(self._windows(n_layers).values()):
                made = self._variants(edges, layers, exchanged)
                group += [((number, window, draw), own) for draw, own in enumerate(made)]
        return [*groups.values()]

    def _exchanged(self, model: LanguageModel, data: PromptBatch) -> tuple[PromptBatch, ...]:
        return exchanged_before(data, model.tokenizer) if EXCHANGE in self._edges() else ()

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts without such edges or answers, or without a control, and models of too few layers.

        Raises:
            PromptError: says what is missing.
            RunError: fewer than three layers.
        """
        check_answers(data, "edge_cuts")
        check_demonstrations(data, "edge_cuts")
        for edges in self._edges():
            if edges == EXCHANGE:
                (patches,) = self._variants(edges, range(1), self._exchanged(model, data))
                for patch in patches:
                    patch.check_prompts(data)
                continue
            cut, control = self._cuts(edges)
            cut.check_prompts(data)
            try:
                if control is not None:
                    control.check_prompts(data)
            except PromptError as error:
                raise PromptError(
                    f"There are no random edges beside {edges!r}: {error} With draws=0 these edges are cut "
                    "without a control."
                ) from None
        if model.info.n_layers < 3 and self.windows != "sliding":
            raise RunError(
                f"{model.info.name!r} has {counted(model.info.n_layers, 'layer')}; edges are cut in an early, a "
                "middle and a late part, which takes three. windows='sliding' takes fewer."
            )

    def check_options(self, model: LanguageModel, data: PromptBatch, options: Options) -> None:
        """Refuse interventions beside exchanged labels, whose states are those of the unchanged model.

        Raises:
            RunError: says which to leave out.
        """
        if options.interventions and EXCHANGE in self._edges():
            raise RunError(
                "With edges='exchange' demonstrations take on what their attention adds in the unchanged model, which "
                "would undo interventions= there. Leave one of the two out."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Variants]:
        """The plain run and what is done to the edges, on one path; another for each cost of a run."""
        plain: Sequence[Intervention] = ()
        exchanged = self._exchanged(model, data)
        return [
            Variants(
                data,
                [PredictionReading(1)],
                variants=[plain, *(own for _, own in group)],
                title="cut edges",
            )
            for group in self._runs(model.info.n_layers, exchanged)
        ]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> EdgeCutsResult:
        """Answers of every run."""
        answers, windows = data.answers, self._windows(model.info.n_layers)
        groups = self._runs(model.info.n_layers)
        runs: list[tuple[Place, Read, Read]] = [
            (place, own, found[0][0])
            for group, found in zip(groups, read, strict=True)
            for (place, _), (own,) in zip(group, found[1:], strict=True)
        ]
        plain: Read = read[0][0][0]
        shape = (len(data), len(self._edges()), len(windows), 1 + self.draws)

        def laid(value: Callable[[Read, Read], Tensor]) -> tuple[Tensor, Tensor]:
            """Of the cuts and of random edges; not-a-number where there are none."""
            table = torch.full(shape, nan, dtype=torch.float64)
            for (edges, window, draw), own, beside in runs:
                table[:, edges, window, draw] = value(own, beside).double()
            return table[..., 0].contiguous(), table[..., 1:].contiguous()

        def changed(value: Callable[[Read], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
            """Of the plain run too; changes are those to the plain run on the same path."""
            base = value(plain)
            return base, *laid(lambda own, beside: base + (value(own) - value(beside)))

        def right(own: Read) -> Tensor:
            return predicted(own[0], own[2], data) == answers

        logits = changed(lambda own: above_others(own[0].double(), answers))
        sure = changed(lambda own: own[1].double().gather(1, answers[:, None])[:, 0].exp())
        nats = changed(lambda own: _log_prob(own, data))
        kept, random_kept = laid(lambda own, beside: same_answer(own, beside, data))
        return EdgeCutsResult(
            difference=logits[1],
            probability=sure[1],
            log_prob=nats[1],
            kept=kept.bool(),
            right=laid(lambda own, _: right(own))[0].bool(),
            random_difference=logits[2],
            random_probability=sure[2],
            random_log_prob=nats[2],
            random_kept=random_kept,
            plain_difference=logits[0],
            plain_probability=sure[0],
            plain_log_prob=nats[0],
            plain_right=right(plain),
            edges=self._edges(),
            windows=tuple(windows),
            layers=tuple((own[0], own[-1]) for own in windows.values()),
            rows=self.rows,
        )


edge_cuts = door(EdgeCuts, "edge_cuts", prompts="With demonstrations and answers.")
