"""Attention knockouts: which edges between demonstrations or into the target does the answer need, and where?

Attention is knocked out (`Cut`, masked before the softmax) in one window of layers at a time:

* *contextualise*: from every demonstration to the ones after it;
* *exchange*: the same edges stay, but lead to demonstrations of other labels: each demonstration after the first keeps
  its tokens, and its attention output is replaced by that with the label words before it exchanged (`Patch` of `attn_out`);
* *aggregate*: from the demonstrations to the query and the target, or to the target alone;
* *anchors*: from their anchors (label words) alone, likewise;
* *collect*: from everything before the anchors into them.

Controls, in several draws: for *anchors* the same number of other edges into every row, of about the same lengths; for
*collect* the same number of random other tokens of the demonstrations, cut off from everything before them.
*Contextualise* and *aggregate* leave their rows too few other edges for a control.

Source: *Contextualize-then-aggregate* (arXiv 2504.00132); *collect* is Wang et al. 2023, *Label Words are Anchors*,
§2.2; the measures are ours.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Cut, Intervention, Patch
from icl_mech.interventions.cut import Mode
from icl_mech.measurements.base import Measurement, Options, Variants
from icl_mech.measurements.causal.answers import above_others, check_answers
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation.agreement import with_draws
from icl_mech.measurements.reading import PredictionReading, Read, predicted, same_answer
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.prompts.rewriting import relabelled_before
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import FEWEST_PROMPTS, Status, jointly, judged
from icl_mech.results.wording import counted, listed

SOURCE = "Contextualize-then-aggregate, arXiv 2504.00132"

Edges = Literal["contextualise", "exchange", "aggregate", "anchors", "collect"]
Windows = Literal["thirds", "cumulative", "after", "sliding"]
Rows = Literal["query", "target"]

CUTS: dict[str, Cut] = {
    "contextualise": Cut("units", "units", relation="others"),
    "aggregate": Cut("units", ["query", "target"]),
    "anchors": Cut("anchors", ["query", "target"]),
    "collect": Cut("before", "anchors"),
}
EXCHANGE = "exchange"
"""Not cut: later demonstrations read earlier ones that display other labels."""
TO_TARGET = ("aggregate", "anchors")
"""Edges whose rows may be the target alone."""
CONTROLS: dict[str, Cut | None] = {
    "contextualise": None,
    EXCHANGE: None,
    "aggregate": None,
    "anchors": replace(CUTS["anchors"], control=True),
    "collect": Cut("before", "random"),
}
CONTROLLED = tuple(edges for edges, control in CONTROLS.items() if control is not None)
"""Edges that have random edges as a control."""
WINDOWS: dict[str, tuple[str, ...]] = {
    "thirds": ("early", "middle", "late", "all"),
    "cumulative": ("early", "up to the middle", "all"),
    "after": ("last ¾", "last ½", "last ¼"),
}

EFFECT = Definition(
    "effect of cut edges",
    r"\Delta_\Lambda = d(A_l[i,j] \leftarrow 0,\ (i,j) \in E,\ l \in \Lambda) - d, \quad "
    r"d = z_y - \tfrac{1}{C-1} \sum_{c \neq y} z_c",
    "Change of the right answer's logit z above the mean of the other answers when the edges E "
    "are masked before the softmax in the layers Λ. The control, where there is one, masks as "
    "many random edges into the same rows, or the edges into as many random tokens of the "
    "demonstrations.",
    SOURCE,
)
LOST = Definition(
    "lost log-probability",
    r"\tfrac{1}{N} \sum_{n=1}^{N} \log p_n(y_n) - \log p_n^{E,\Lambda}(y_n), \quad "
    r"p(y) = e^{z_y} / \textstyle\sum_c e^{z_c}",
    "Drop of the log-probability of the right answer y, in nats, when the edges E are masked in "
    "the layers Λ; normalised over label words or choices, for texts over the vocabulary. "
    "Positive if the cut harms the answer.",
    SOURCE,
)


class Needed(NamedTuple):
    """Edges that the correct answer needs in one window of layers.

    Attributes:
        edges: The edges that were cut.
        window: Name of the window.
        layers: First and last layer of the window.
        fallen: Loss of the correct answer.
    """

    edges: str
    window: str
    layers: tuple[int, int]
    fallen: Interval


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeCutsResult(Result):
    """Answers without some edges, by edges and window of layers.

    Values for random edges are not-a-number for edges that have no control.

    Attributes:
        difference: Logit of the correct answer above the mean of the others.
        probability: Probability of the correct answer, over the whole vocabulary.
        log_prob: Log-probability of the correct answer among label words or choices, for texts over the vocabulary, in
            nats; None in results saved before this was kept.
        kept: Whether the prediction is that of the plain run.
        right: Whether the prediction is the correct answer; None likewise.
        random_difference: The same with random edges cut.
        random_probability: Likewise.
        random_log_prob: Likewise; None as `log_prob` is.
        random_kept: Likewise.
        plain_difference: The value without a cut.
        plain_probability: The value without a cut.
        plain_log_prob: The value without a cut; None as `log_prob` is.
        plain_right: The value without a cut; None as `right` is.
        edges: The edges that were cut.
        windows: Names of the windows of layers.
        layers: First and last layer of each window.
        rows: Destination of edges to the target: `query` and target, or the `target` alone.
    """

    difference: Float[Tensor, "batch edges window"]
    probability: Float[Tensor, "batch edges window"]
    log_prob: Float[Tensor, "batch edges window"] | None = None
    kept: Bool[Tensor, "batch edges window"]
    right: Bool[Tensor, "batch edges window"] | None = None
    random_difference: Float[Tensor, "batch edges window draw"]
    random_probability: Float[Tensor, "batch edges window draw"]
    random_log_prob: Float[Tensor, "batch edges window draw"] | None = None
    random_kept: Float[Tensor, "batch edges window draw"]
    plain_difference: Float[Tensor, " batch"]
    plain_probability: Float[Tensor, " batch"]
    plain_log_prob: Float[Tensor, " batch"] | None = None
    plain_right: Bool[Tensor, " batch"] | None = None
    edges: tuple[str, ...]
    windows: tuple[str, ...]
    layers: tuple[tuple[int, int], ...]
    rows: Rows = "query"

    definitions: ClassVar[tuple[Definition, ...]] = (EFFECT, LOST)
    axis_labels: ClassVar[Mapping[str, str]] = {"edges": "edges", "window": "windows"}

    @property
    def changes(self) -> Float[Tensor, "batch edges window"]:
        """Changes of the logit difference."""
        return self.difference - self.plain_difference[:, None, None]

    @property
    def random_changes(self) -> Float[Tensor, "batch edges window draw"]:
        """The same with random edges cut."""
        return self.random_difference - self.plain_difference[:, None, None, None]

    @property
    def losses(self) -> Float[Tensor, "batch edges window"] | None:
        """Decrease of the log-probability of the correct answer, in nats."""
        if self.log_prob is None or self.plain_log_prob is None:
            return None
        return self.plain_log_prob[:, None, None] - self.log_prob

    @property
    def random_losses(self) -> Float[Tensor, "batch edges window draw"] | None:
        """The same with random edges cut."""
        if self.random_log_prob is None or self.plain_log_prob is None:
            return None
        return self.plain_log_prob[:, None, None, None] - self.random_log_prob

    def has_control(self, edges: str) -> bool:
        """True if random edges were cut as a control of these."""
        drawn = self.random_difference[:, self.edges.index(edges)]
        return edges in CONTROLLED and drawn.numel() > 0 and not bool(drawn.isnan().any())

    def quantities(self) -> dict[str, Quantity]:
        """Changes of logit difference, (log-)probability and correct answers, and loyalty; most with random edges too.

        `beside_random` is the change minus that with random edges; its intervals include the spread of the draws. There is no
        `accuracy_change` where correct answers were not kept, no `log_prob_change` where log-probabilities were not.
        """
        dims, logits = ("edges", "window"), "change of the logit difference"
        more = self.probability - self.plain_probability[:, None, None]
        random_more = self.random_probability.mean(-1) - self.plain_probability[:, None, None]
        beside = self.changes - self.random_changes.mean(-1)
        none = Interval(nan, nan, nan)
        gaps = [
            [self.beside(edges, window) or none for window in self.windows] for edges in self.edges
        ]
        low, high = torch.tensor(gaps, dtype=torch.float64)[..., 1:].unbind(-1)
        share, nats = "fraction of unchanged predictions", "change of the log-probability (nats)"
        quantities = {
            "change": Quantity(dims, self.changes, unit=logits),
            "random_change": Quantity(dims, self.random_changes.mean(-1), unit=logits),
            "beside_random": Quantity(dims, beside, unit=logits, known=(low, high)),
            "probability_change": Quantity(dims, more, unit="change of probability"),
            "random_probability_change": Quantity(dims, random_more, unit="change of probability"),
            "loyalty": Quantity(dims, self.kept, unit=share),
            "random_loyalty": Quantity(dims, self.random_kept.mean(-1), unit=share, kind="outcome"),
        }
        if self.right is not None and self.plain_right is not None:
            lost = self.right.double() - self.plain_right.double()[:, None, None]
            unit = "change of the fraction of right answers"
            quantities["accuracy_change"] = Quantity(dims, lost, unit=unit, kind="change")
        if self.losses is not None and self.random_losses is not None:
            quantities["log_prob_change"] = Quantity(dims, -self.losses, unit=nats)
            random = -self.random_losses.mean(-1)
            quantities["random_log_prob_change"] = Quantity(dims, random, unit=nats)
        return quantities

    def _place(self, edges: str, window: str) -> tuple[slice, int, int]:
        if edges not in self.edges or window not in self.windows:
            raise ResultError(
                f"Nothing was cut for edges={edges!r} and window={window!r}; available are the "
                f"edges {listed(self.edges)} and the windows {listed(self.windows)}."
            )
        return slice(None), self.edges.index(edges), self.windows.index(window)

    def change(self, edges: str, window: str) -> Interval:
        """Change of the logit difference with these edges cut.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        return mean_interval(self.changes[self._place(edges, window)])

    def beside(self, edges: str, window: str) -> Interval | None:
        """The same change minus that with random edges, including the spread of the draws; None without a control.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        place = self._place(edges, window)
        return self._beyond(edges, self.changes[place], self.random_changes[place])

    def step(self, edges: str, before: str, after: str, *, beside: bool) -> Interval | None:
        """Change in one window minus that in another, plainly or each minus that with random edges.

        None for the latter if there is no control.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        start, end = (self._place(edges, window) for window in (before, after))
        step = self.changes[end] - self.changes[start]
        if not beside:
            return mean_interval(step)
        return self._beyond(edges, step, self.random_changes[end] - self.random_changes[start])

    def lost(self, edges: str, window: str, before: str | None = None) -> Interval:
        """Decrease of the log-probability of the correct answer with these edges cut, in nats.

        Mean over prompts of log p(right) without the cut minus that with the cut, or minus that in another window
        (`before`). Positive if the cut costs probability. Not-a-number where log-probabilities were not kept.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        lost = self._lost(self.losses, edges, window, before)
        return Interval(nan, nan, nan) if lost is None else mean_interval(lost)

    def lost_beside(self, edges: str, window: str, before: str | None = None) -> Interval | None:
        """The same loss minus that with random edges, including the spread of the draws; None without a control.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        lost = self._lost(self.losses, edges, window, before)
        random = self._lost(self.random_losses, edges, window, before)
        return None if lost is None or random is None else self._beyond(edges, lost, random)

    def _lost(
        self, losses: Tensor | None, edges: str, window: str, before: str | None
    ) -> Float[Tensor, " batch *draw"] | None:
        place, base = (self._place(edges, name) for name in (window, before or window))
        if losses is None:
            return None
        return losses[place] if before is None else losses[place] - losses[base]

    def _beyond(
        self, edges: str, values: Float[Tensor, " batch"], random: Float[Tensor, "batch draw"]
    ) -> Interval | None:
        """Values minus those of random edges, including the spread of the draws; None without a control."""
        if not self.has_control(edges):
            return None
        gaps = values[:, None] - random
        return with_draws(mean_interval(gaps.mean(1)), gaps.mean(0))

    def right_answers(self, edges: str, window: str, before: str | None = None) -> Interval | None:
        """Change of the fraction of correct answers with these edges cut, compared with the plain run or another window.

        None where correct answers were not kept.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        if self.right is None or self.plain_right is None:
            return None
        base = self.plain_right if before is None else self.right[self._place(edges, before)]
        right = self.right[self._place(edges, window)]
        return mean_interval(right.double() - base.double(), "change")

    # --- facts for the summary ---

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.kept)

    @property
    def too_few(self) -> bool:
        """True if there are too few prompts for an interval."""
        return self.count < FEWEST_PROMPTS

    @property
    def slides(self) -> bool:
        """True if windows slide over the layers; they are then named by their layers."""
        return self.windows == tuple(window_of(*ends) for ends in self.layers)

    def into_target_alone(self, edges: str) -> bool:
        """True for edges whose cut leaves the query's rows unchanged."""
        return edges in TO_TARGET and self.rows == "target"

    @property
    def draws(self) -> int:
        """Number of draws of random edges."""
        return self.random_difference.shape[-1]

    @property
    def controlled(self) -> tuple[str, ...]:
        """Edges that have a control."""
        return tuple(edges for edges in self.edges if self.has_control(edges))

    @property
    def unit(self) -> str:
        """Unit of the loss of the correct answer: nats, or logits where log-probabilities were not kept."""
        return "logits" if self.losses is None else "nats"

    def fallen(self, edges: str, window: str) -> Interval:
        """Loss of the correct answer, in that unit.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        if self.losses is not None:
            return self.lost(edges, window)
        return _turned(self.change(edges, window))

    def fallen_beside(self, edges: str, window: str) -> Interval | None:
        """The same loss beyond random edges; None without a control.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        if self.losses is not None:
            return self.lost_beside(edges, window)
        change = self.beside(edges, window)
        return None if change is None else _turned(change)

    @property
    def needed(self) -> list[Needed]:
        """Every cut that lowers the correct answer, beyond random edges or, if these are missing, with answers lost."""
        return [
            Needed(edges, window, layers, fallen)
            for edges in self.edges
            for window, layers in zip(self.windows, self.layers, strict=True)
            if self._lowers(edges, window, fallen := self.fallen(edges, window)) == "supported"
        ]

    def _lowers(self, edges: str, window: str, fallen: Interval) -> Status:
        if self.has_control(edges):
            second = judged(self.fallen_beside(edges, window), prompts=self.count)
        else:
            right = self.right_answers(edges, window)
            second = judged(right, rising=False, prompts=self.count)
        return jointly(judged(fallen, prompts=self.count), second)


def window_of(first: int, last: int) -> str:
    """Name of a window of layers, `0–3`."""
    return str(first) if first == last else f"{first}–{last}"


def _turned(interval: Interval) -> Interval:
    return Interval(-interval.value, -interval.high, -interval.low)


Place = tuple[int, int, int]
"""Indices of edges, window and draw; draws count from 1, 0 is the cut itself."""

Placed = tuple[Place, tuple[Intervention, ...]]
"""Place of the answers of one run, and its interventions."""


def exchanged_before(prompts: PromptBatch, tokenizer: object | None) -> tuple[PromptBatch, ...]:
    """The prompts with other labels in the preceding demonstrations, for each demonstration after the first.

    Raises:
        PromptError: gives the reason why there are none: prompts with one demonstration, or with different numbers of
            them; all labels equal; an unknown text.
    """
    counts = {len(prompt.label_classes) for prompt in prompts}
    if len(counts) != 1 or max(counts) < 2:
        raise PromptError(
            "Earlier demonstrations can be exchanged only if all prompts have the same number of "
            f"them, at least two; these have {', '.join(map(str, sorted(counts)))}. Leave "
            "edges='exchange' out."
        )
    exchanged = []
    for demo in range(1, max(counts)):
        made = relabelled_before(prompts, tokenizer, demo)
        if made.prompts is None:
            raise PromptError(
                f"The labels of earlier demonstrations cannot be exchanged ({made.why_not}). Leave "
                "edges='exchange' out."
            )
        exchanged.append(made.prompts)
    return tuple(exchanged)


def _log_prob(read: Read, prompts: PromptBatch) -> Float[Tensor, " batch"]:
    """Log-probability of the correct answer, in nats: among label words or choices, for texts over the vocabulary."""
    scores, log_probs = read[0].double(), read[1].double()
    among = log_probs if prompts.answer_kind == "vocabulary" else scores.log_softmax(-1)
    return among.gather(1, prompts.answers[:, None])[:, 0]


@dataclass(frozen=True)
class EdgeCuts(Measurement[EdgeCutsResult]):
    """Correct answers with edges between demonstrations, to the target, or into label words cut.

    Costs one forward pass for each type of edges and window, and as many more for each draw of those that have
    a control; *exchange* one more for each demonstration after the first. With `rows="target"` the runs for edges to the
    target compute one row of each prompt.

    Attributes:
        edges: `contextualise`, `exchange`, `aggregate`, `anchors` or `collect`, or several.
        windows: `thirds` of the layers and all of them; `cumulative` ones from the first layer on; `after`
            a quarter, half and three quarters of them, to the last; or `sliding`
            ones of a sixth of the layers, starting at every layer.
        mode: `mask` (before softmax) or `zero` (after).
        draws: Number of draws of random edges; 0: none.
        seed: Seed of the first draw.
        rows: Edges to the target are those into `query` and target, or into the `target` alone.

    Raises:
        PromptError: prompts without answers or demonstrations, or without such edges; label words and queries so
            short that there is no control, unless `draws=0`.
        RunError: a model with fewer than three layers, unless windows slide; `exchange` with interventions.
    """

    name: ClassVar[str] = "edge_cuts"
    takes = ANSWER_KINDS

    controls: ClassVar[Mapping[str, Cut | None]] = CONTROLS
    """The control of each type of edges, if its rows leave other edges: `contextualise` and `aggregate` cut nearly
    everything before a row, and have none."""

    edges: Edges | Sequence[Edges] = ("contextualise", "aggregate", "anchors")
    windows: Windows = "thirds"
    mode: Mode = "mask"
    draws: Natural = 3
    seed: Natural = 0
    rows: Rows = "query"

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def _edges(self) -> tuple[str, ...]:
        return (self.edges,) if isinstance(self.edges, str) else tuple(dict.fromkeys(self.edges))

    def _windows(self, n_layers: int) -> dict[str, range]:
        """Layers of each window, by name."""
        if self.windows == "sliding":
            width = max(1, n_layers // 6)
            spans = [range(first, first + width) for first in range(n_layers - width + 1)]
            return {window_of(layers[0], layers[-1]): layers for layers in spans}
        if self.windows == "after":
            spans = [range(n_layers * part // 4, n_layers) for part in (1, 2, 3)]
            return dict(zip(WINDOWS[self.windows], spans, strict=True))
        ends = [round(n_layers * part / 3) for part in range(4)]
        starts = ends[:3] if self.windows == "thirds" else [0, 0, 0]
        spans = [*(range(*span) for span in zip(starts, ends[1:], strict=True)), range(n_layers)]
        return dict(zip(WINDOWS[self.windows], spans, strict=False))

    def _cuts(self, edges: str) -> tuple[Cut, Cut | None]:
        """The cut of these edges, in all layers, and its control."""
        how: dict[str, Any] = {"mode": self.mode}
        if self._of_targets(edges):
            how["dst"] = "target"
        control = self.controls[edges] if self.draws else None
        return replace(CUTS[edges], **how), control and replace(control, **how)

    def _of_targets(self, edges: str) -> bool:
        """True for edges into the target alone, whose runs compute one row of each prompt."""
        return self.rows == "target" and edges in TO_TARGET

    def _variants(
        self, edges: str, layers: range, exchanged: Sequence[PromptBatch]
    ) -> Iterator[tuple[Intervention, ...]]:
        """The interventions on these edges in these layers, then each draw of its control."""
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

        Edges into targets alone compute one row of each prompt, other cuts the tokens that prompts do not share, patched
        demonstrations whole prompts: run together, all would cost as much as the most expensive.
        """
        groups: dict[str, list[Placed]] = {}
        for number, edges in enumerate(self._edges()):
            cost = "row" if self._of_targets(edges) else "whole" if edges == EXCHANGE else "rest"
            group = groups.setdefault(cost, [])
            for window, layers in enumerate(self._windows(n_layers).values()):
                made = self._variants(edges, layers, exchanged)
                group += [((number, window, draw), changes) for draw, changes in enumerate(made)]
        return [*groups.values()]

    def _exchanged(self, model: LanguageModel, data: PromptBatch) -> tuple[PromptBatch, ...]:
        return exchanged_before(data, model.tokenizer) if EXCHANGE in self._edges() else ()

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without such edges or answers, or without a control, and models of too few layers.

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
                    f"{edges!r} has no random control: {error} With draws=0 these edges are cut "
                    "without a control."
                ) from None
        if model.info.n_layers < 3 and self.windows != "sliding":
            raise RunError(
                f"{model.info.name!r} has {counted(model.info.n_layers, 'layer')}, but edges are "
                "cut in an early, a middle and a late part, which needs at least three. Use "
                "windows='sliding', which needs fewer."
            )

    def check_options(self, model: LanguageModel, data: PromptBatch, options: Options) -> None:
        """Reject interventions combined with exchanged labels, whose states are those of the unchanged model.

        Raises:
            RunError: says which to leave out.
        """
        if options.interventions and EXCHANGE in self._edges():
            raise RunError(
                "edges='exchange' patches in attention outputs of the unchanged model, which "
                "would undo interventions= there. Leave one of the two out."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Variants]:
        """The plain run and the interventions on the edges, on one path; another path for each cost of a run."""
        plain: Sequence[Intervention] = ()
        exchanged = self._exchanged(model, data)
        return [
            Variants(
                data,
                [PredictionReading(1)],
                variants=[plain, *(changes for _, changes in group)],
                title="cut edges",
            )
            for group in self._runs(model.info.n_layers, exchanged)
        ]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> EdgeCutsResult:
        """Answers of every run."""
        answers, windows = data.answers, self._windows(model.info.n_layers)
        groups = self._runs(model.info.n_layers)
        runs: list[tuple[Place, Read, Read]] = [
            (place, cut, values[0][0])
            for group, values in zip(groups, read, strict=True)
            for (place, _), (cut,) in zip(group, values[1:], strict=True)
        ]
        plain: Read = read[0][0][0]
        shape = (len(data), len(self._edges()), len(windows), 1 + self.draws)

        def laid(value: Callable[[Read, Read], Tensor]) -> tuple[Tensor, Tensor]:
            """Values for the cuts and for random edges; not-a-number where there are none."""
            table = torch.full(shape, nan, dtype=torch.float64)
            for (edges, window, draw), cut, beside in runs:
                table[:, edges, window, draw] = value(cut, beside).double()
            return table[..., 0].contiguous(), table[..., 1:].contiguous()

        def changed(value: Callable[[Read], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
            """Values of the plain run, too; changes are relative to the plain run on the same path."""
            base = value(plain)
            return base, *laid(lambda cut, beside: base + (value(cut) - value(beside)))

        def right(run: Read) -> Tensor:
            return predicted(run[0], run[2], data) == answers

        logits = changed(lambda run: above_others(run[0].double(), answers))
        sure = changed(lambda run: run[1].double().gather(1, answers[:, None])[:, 0].exp())
        nats = changed(lambda run: _log_prob(run, data))
        kept, random_kept = laid(lambda cut, beside: same_answer(cut, beside, data))
        return EdgeCutsResult(
            difference=logits[1],
            probability=sure[1],
            log_prob=nats[1],
            kept=kept.bool(),
            right=laid(lambda cut, _: right(cut))[0].bool(),
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
            layers=tuple((layers[0], layers[-1]) for layers in windows.values()),
            rows=self.rows,
        )


edge_cuts = door(EdgeCuts, "edge_cuts", prompts="With demonstrations and answers.")
