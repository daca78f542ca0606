"""Kinds of edges that are cut, and what comes out: `EdgeCutsResult`. See `edge_cuts`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import ClassVar, Literal

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.interventions import Cut
from icl_mech.measurements.isolation.agreement import with_draws
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS, jointly, judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, layers_named, listed, said
from icl_mech.shapes import LayerCurves, Panel

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
SHOWN = {
    "contextualise": "between demonstrations",
    EXCHANGE: "between demonstrations, labels exchanged",
    "aggregate": "demonstrations to the target",
    "anchors": "label words to the target",
    "collect": "into label words",
}
EXCHANGED = (
    " *Labels exchanged*: nothing is cut; the attention of each demonstration after the first adds what it adds where the "
    "demonstrations before it display other labels."
)
CONTROLLED = tuple(edges for edges, control in CONTROLS.items() if control is not None)
"""Edges beside which random ones are cut."""
WINDOWS: dict[str, tuple[str, ...]] = {
    "thirds": ("early", "middle", "late", "all"),
    "cumulative": ("early", "up to the middle", "all"),
    "after": ("last ¾", "last ½", "last ¼"),
}

EFFECT = Definition(
    "effect of cut edges",
    r"\Delta_\Lambda = d(A_l[i,j] \leftarrow 0,\ (i,j) \in E,\ l \in \Lambda) - d, \quad "
    r"d = z_y - \tfrac{1}{C-1} \sum_{c \neq y} z_c",
    "Change of the right answer's logit z above the mean of the other answers when the edges E are masked "
    "before the softmax in the layers Λ; beside it, where there is a control, the same for as many random edges "
    "into the same rows, or into as many random tokens of the demonstrations.",
    SOURCE,
)
LOST = Definition(
    "lost log-probability",
    r"\tfrac{1}{N} \sum_{n=1}^{N} \log p_n(y_n) - \log p_n^{E,\Lambda}(y_n), \quad "
    r"p(y) = e^{z_y} / \textstyle\sum_c e^{z_c}",
    "By how much the log-probability of the right answer y falls, in nats, when the edges E are masked in the "
    "layers Λ: among label words or choices, of texts over the vocabulary. Positive: the answer suffers.",
    SOURCE,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeCutsResult(Result):
    """Answers without some edges, by edges and window of layers.

    What belongs to random edges is not-a-number beside edges that have no control.

    Attributes:
        difference: Logit of the right answer above the mean of the others.
        probability: Of the right answer, over the whole vocabulary.
        log_prob: Of the right answer among label words or choices, of texts over the vocabulary, in nats; None in
            results saved before this was kept.
        kept: The prediction is the plain one.
        right: The prediction is the right one; None likewise.
        random_difference: The same with random edges cut.
        random_probability: Likewise.
        random_log_prob: Likewise; None as `log_prob` is.
        random_kept: Likewise.
        plain_difference: Without a cut.
        plain_probability: Without a cut.
        plain_log_prob: Without a cut; None as `log_prob` is.
        plain_right: Without a cut; None as `right` is.
        edges: What was cut.
        windows: In which layers, by name.
        layers: First and last layer of each window.
        rows: Of edges to the target: of `query` and target, or of the `target` alone.
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

    title: ClassVar[str] = "Cutting edges between demonstrations and to the target"
    definitions: ClassVar[tuple[Definition, ...]] = (EFFECT, LOST)
    axis_labels: ClassVar[Mapping[str, str]] = {"edges": "edges", "window": "windows"}

    @property
    def changes(self) -> Float[Tensor, "batch edges window"]:
        """Of the logit difference."""
        return self.difference - self.plain_difference[:, None, None]

    @property
    def random_changes(self) -> Float[Tensor, "batch edges window draw"]:
        """The same with random edges cut."""
        return self.random_difference - self.plain_difference[:, None, None, None]

    @property
    def losses(self) -> Float[Tensor, "batch edges window"] | None:
        """By how much the log-probability of the right answer falls, in nats."""
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
        """True if random edges were cut beside these."""
        drawn = self.random_difference[:, self.edges.index(edges)]
        return edges in CONTROLLED and drawn.numel() > 0 and not bool(drawn.isnan().any())

    def quantities(self) -> dict[str, Quantity]:
        """Changes of logit difference, probability, log-probability and right answers, and loyalty; most with random edges too.

        `beside_random` is the change minus that with random edges; its intervals take draws in. There is no
        `accuracy_change` where right answers were not kept, no `log_prob_change` where log-probabilities were not.
        """
        dims, logits = ("edges", "window"), "change of the logit difference"
        more = self.probability - self.plain_probability[:, None, None]
        random_more = self.random_probability.mean(-1) - self.plain_probability[:, None, None]
        beside = self.changes - self.random_changes.mean(-1)
        none = Interval(nan, nan, nan)
        gaps = [[self.beside(edges, own) or none for own in self.windows] for edges in self.edges]
        low, high = torch.tensor(gaps, dtype=torch.float64)[..., 1:].unbind(-1)
        share, nats = "share of unchanged predictions", "change of the log-probability (nats)"
        found = {
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
            unit = "change of the share of right answers"
            found["accuracy_change"] = Quantity(dims, lost, unit=unit, kind="change")
        if self.losses is not None and self.random_losses is not None:
            found["log_prob_change"] = Quantity(dims, -self.losses, unit=nats)
            random = -self.random_losses.mean(-1)
            found["random_log_prob_change"] = Quantity(dims, random, unit=nats)
        return found

    def _place(self, edges: str, window: str) -> tuple[slice, int, int]:
        if edges not in self.edges or window not in self.windows:
            raise ResultError(
                f"Nothing was cut for edges={edges!r} and window={window!r}; there are "
                f"{listed(self.edges)}, {listed(self.windows)}."
            )
        return slice(None), self.edges.index(edges), self.windows.index(window)

    def change(self, edges: str, window: str) -> Interval:
        """Change of the logit difference with these edges cut.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        return mean_interval(self.changes[self._place(edges, window)])

    def beside(self, edges: str, window: str) -> Interval | None:
        """The same minus that with random edges, with the spread of the draws; None without a control.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        place = self._place(edges, window)
        return self._beyond(edges, self.changes[place], self.random_changes[place])

    def step(self, edges: str, before: str, after: str, *, beside: bool) -> Interval | None:
        """Change in one window minus that in another, plainly or each minus that with random edges.

        None for these where there is no control.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        one, two = (self._place(edges, window) for window in (before, after))
        step = self.changes[two] - self.changes[one]
        if not beside:
            return mean_interval(step)
        return self._beyond(edges, step, self.random_changes[two] - self.random_changes[one])

    def lost(self, edges: str, window: str, before: str | None = None) -> Interval:
        """By how much the log-probability of the right answer falls with these edges cut, in nats.

        Mean over prompts of log p(right) plainly minus that with the cut, or of what another window costs less
        (`before`). Positive: the answer suffers. Not-a-number where log-probabilities were not kept.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        own = self._lost(self.losses, edges, window, before)
        return Interval(nan, nan, nan) if own is None else mean_interval(own)

    def lost_beside(self, edges: str, window: str, before: str | None = None) -> Interval | None:
        """The same minus what random edges cost, with the spread of the draws; None without a control.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        own = self._lost(self.losses, edges, window, before)
        random = self._lost(self.random_losses, edges, window, before)
        return None if own is None or random is None else self._beyond(edges, own, random)

    def _lost(
        self, losses: Tensor | None, edges: str, window: str, before: str | None
    ) -> Float[Tensor, " batch *draw"] | None:
        place, base = (self._place(edges, own) for own in (window, before or window))
        if losses is None:
            return None
        return losses[place] if before is None else losses[place] - losses[base]

    def _beyond(
        self, edges: str, own: Float[Tensor, " batch"], random: Float[Tensor, "batch draw"]
    ) -> Interval | None:
        """Values minus those of random edges, with the spread of the draws; None without a control."""
        if not self.has_control(edges):
            return None
        gaps = own[:, None] - random
        return with_draws(mean_interval(gaps.mean(1)), gaps.mean(0))

    def right_answers(self, edges: str, window: str, before: str | None = None) -> Interval | None:
        """Change of the share of right answers with these edges cut, since the plain run or another window.

        None where they were not kept.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        if self.right is None or self.plain_right is None:
            return None
        base = self.plain_right if before is None else self.right[self._place(edges, before)]
        own = self.right[self._place(edges, window)]
        return mean_interval(own.double() - base.double(), "change")

    @property
    def _slides(self) -> bool:
        """True of windows that slide over the layers: they are named by them."""
        return self.windows == tuple(window_of(*own) for own in self.layers)

    def _shown(self, edges: str) -> str:
        """How figures call these edges."""
        alone = edges in TO_TARGET and self.rows == "target"
        return f"{SHOWN[edges]}{' alone' * alone}"

    def drawing(self) -> LayerCurves:
        """Changes of the right answer's log-probability by window, with the cut and with random edges.

        Of the logit difference where log-probabilities were not kept.
        """
        what = "change" if self.losses is None else "log_prob_change"
        plain, random = self.sel(what), self.sel(f"random_{what}")
        curves = [
            (own, number, name)
            for number, edges in enumerate(self.edges)
            for own, name in ((plain, "these edges"), (random, "random edges"))
            if own is plain or self.has_control(edges)
        ]

        def laid(end: str) -> Tensor:
            return torch.stack([getattr(own, end)[number] for own, number, _ in curves]).double()

        def panel(number: int, edges: str) -> Panel:
            places = tuple(at for at, (_, of, _) in enumerate(curves) if of == number)
            title = self._shown(edges).capitalize()
            return Panel(title, places, levels=((0.0, "changes nothing"),))

        first, last = self.layers[0]
        x: Sequence[int] = range(1, len(self.windows) + 1)
        x_title = f"layers of the cut: {', '.join(self.windows)}"
        if self._slides:
            x, x_title = (
                [own for own, _ in self.layers],
                f"first of {last - first + 1} layers of the cut",
            )
        return LayerCurves(
            title="What cut edges change",
            names=tuple(name for *_, name in curves),
            values=laid("values"),
            low=laid("low"),
            high=laid("high"),
            y_title=self.quantities()[what].unit,
            note=basis(self),
            x=tuple(map(float, x)),
            x_title=x_title,
            meanings=tuple("label" if own is plain else "reference" for own, *_ in curves),
            panels=tuple(panel(*one) for one in enumerate(self.edges)),
            apart=0.03,
        )

    def figures(self) -> list[Figure]:
        """Which edges the right answer needs, and where."""
        spans = zip(self.windows, self.layers, strict=True)
        where = "; ".join(f"{name}: {layers_named(*own)}" for name, own in spans)
        if self._slides:
            number = counted(len(self.windows), "window")
            where = f"{number} of layers, {self.windows[0]} to {self.windows[-1]}"
        what = "log-probability" if self.losses is not None else "logit above the others"
        return [
            Figure(
                question="Which edges does the right answer need, and in which layers?",
                answer=self._answer(),
                caption=f"**Change of the right answer's {what} when edges are cut in some layers** ({where})"
                f"{self._said_rows()}{EXCHANGED * (EXCHANGE in self.edges)}{self._said_control()} Bars: 95 % intervals over "
                f"{counted(len(self.kept), 'prompt')}{given(self)}.",
                establishes="What the model loses without these edges.",
                limits="what flows along them: a model that never meets such cuts in training may also fail "
                "for want of any input there. Edges between demonstrations, and from all of them to the target, "
                "have no random control, as their rows keep too few others: there right answers must be lost, too.",
                short="Cut edges",
            )
        ]

    def _said_rows(self) -> str:
        """Which rows lose edges to the target, for the caption, up to its full stop."""
        rows = "the target's row alone" if self.rows == "target" else "the rows of query and target"
        return (
            f"; edges to the target are those of {rows}." if {*TO_TARGET} & {*self.edges} else "."
        )

    def _said_control(self) -> str:
        """What was cut in the place of edges that have a control, for the caption."""
        known = [edges for edges in self.edges if self.has_control(edges)]
        kinds = {
            "anchors": "as many random edges into the same rows"
            if self.losses is not None
            else "as many random edges with the same distances",
            "collect": "as many random tokens of the demonstrations, cut off likewise",
        }
        draws = counted(self.random_difference.shape[-1], "draw")
        parts = [f"of those {SHOWN[edges]} {kinds[edges]}" for edges in known]
        return f" Control {listed(parts)} (mean of {draws})." if parts else ""

    def _fallen(self, edges: str, window: str) -> tuple[Interval, Interval | None]:
        """How far the right answer falls, and beyond random edges: in nats, or in logits where that is all there is."""
        if self.losses is not None:
            return self.lost(edges, window), self.lost_beside(edges, window)
        own, beyond = self.change(edges, window), self.beside(edges, window)
        return _turned(own), None if beyond is None else _turned(beyond)

    @property
    def _unit(self) -> str:
        return "logits" if self.losses is None else "nats"

    def _answer(self) -> str:
        prompts, parts = len(self.kept), []
        for edges in self.edges:
            for window in self.windows:
                lost, beyond = self._fallen(edges, window)
                second = judged(beyond, prompts=prompts)
                if not self.has_control(edges):
                    right = self.right_answers(edges, window)
                    second = judged(right, rising=False, prompts=prompts)
                if jointly(judged(lost, prompts=prompts), second) == "supported":
                    span = self.layers[self.windows.index(window)]
                    layers = layers_named(*span) if self._slides else f"{window} layers"
                    parts.append(f"{self._shown(edges)} in {layers} ({said(lost)} {self._unit})")
        if prompts < FEWEST_PROMPTS:
            return f"{opening('cannot be judged', counted(prompts, 'prompt'))} too few for an interval."
        if not parts:
            return (
                f"{opening('not shown')} no cut lowers the right answer beyond random edges or, where there are "
                "none, with right answers lost."
            )
        return (
            f"Edges {listed(parts)}; each looked at alone. In brackets what the right answer loses."
        )

    def summary(self) -> str:
        """What the right answer loses; beyond random edges where these are a control."""
        parts = []
        for edges in self.edges:
            beyond = self.has_control(edges)
            fallen = ((window, self._fallen(edges, window)[beyond]) for window in self.windows)
            numbers = ", ".join(f"{window} {own}" for window, own in fallen)
            parts.append(f"{edges}{' beyond random edges' * beyond}: {numbers}")
        return f"{self._unit} the right answer loses – {'; '.join(parts)}"


def window_of(first: int, last: int) -> str:
    """Name of a window of layers, `0–3`."""
    return str(first) if first == last else f"{first}–{last}"


def _turned(own: Interval) -> Interval:
    return Interval(-own.value, -own.high, -own.low)
