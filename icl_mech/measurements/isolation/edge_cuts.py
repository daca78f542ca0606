"""Which edges does the answer need, and in which layers: between demonstrations, or from them to the target?

Attention is cut (`Cut`, masked before the softmax) in one window of layers at a time:

* *contextualise*: from every demonstration to the ones after it;
* *aggregate*: from the demonstrations to the query and the target;
* *anchors*: from their anchors (label words) alone to the query and the target.

The control cuts as many random edges with the same distances, in several draws. Those beside *contextualise* are
for the most part edges of the cut itself, and show nothing of it.

Source: *Contextualize-then-aggregate* (arXiv 2504.00132); the measures are our own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Cut
from icl_mech.interventions.cut import Mode
from icl_mech.measurements.base import Measurement, Variants
from icl_mech.measurements.causal.answers import above_others, check_answers
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation.agreement import with_draws
from icl_mech.measurements.reading import PredictionReading, Read, predicted, same_answer
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS, jointly, judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, layers_named, listed, said
from icl_mech.shapes import LayerCurves, Panel

SOURCE = "Contextualize-then-aggregate, arXiv 2504.00132"

Edges = Literal["contextualise", "aggregate", "anchors"]
Windows = Literal["thirds", "cumulative"]

CUTS: dict[str, Cut] = {
    "contextualise": Cut("units", "units", relation="others"),
    "aggregate": Cut("units", ["query", "target"]),
    "anchors": Cut("anchors", ["query", "target"]),
}
SHOWN = {
    "contextualise": "between demonstrations",
    "aggregate": "demonstrations to the target",
    "anchors": "label words to the target",
}
CONTROLLED = ("aggregate", "anchors")
"""Edges that leave as many others of their distances which are no part of the claim, to be cut at random."""
WINDOWS: dict[str, tuple[str, str, str]] = {
    "thirds": ("early", "middle", "late"),
    "cumulative": ("early", "up to the middle", "all"),
}

EFFECT = Definition(
    "effect of cut edges",
    r"\Delta_\Lambda = d(A_l[i,j] \leftarrow 0,\ (i,j) \in E,\ l \in \Lambda) - d, \quad "
    r"d = z_y - \tfrac{1}{C-1} \sum_{c \neq y} z_c",
    "Change of the right answer's logit z above the mean of the other answers when the edges E are masked "
    "before the softmax in the layers Λ; beside it the same for as many random edges with the same distances.",
    SOURCE,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeCutsResult(Result):
    """Answers without some edges, by edges and window of layers.

    Attributes:
        difference: Logit of the right answer above the mean of the others.
        probability: Of the right answer, over the whole vocabulary.
        kept: The prediction is the plain one.
        right: The prediction is the right one; None in results saved before this was kept.
        random_difference: The same with random edges cut.
        random_probability: Likewise.
        random_kept: Likewise.
        plain_difference: Without a cut.
        plain_probability: Without a cut.
        plain_right: Without a cut; None likewise.
        edges: What was cut.
        windows: In which layers, by name.
        layers: First and last layer of each window.
    """

    difference: Float[Tensor, "batch edges window"]
    probability: Float[Tensor, "batch edges window"]
    kept: Bool[Tensor, "batch edges window"]
    right: Bool[Tensor, "batch edges window"] | None = None
    random_difference: Float[Tensor, "batch edges window draw"]
    random_probability: Float[Tensor, "batch edges window draw"]
    random_kept: Float[Tensor, "batch edges window draw"]
    plain_difference: Float[Tensor, " batch"]
    plain_probability: Float[Tensor, " batch"]
    plain_right: Bool[Tensor, " batch"] | None = None
    edges: tuple[str, ...]
    windows: tuple[str, ...]
    layers: tuple[tuple[int, int], ...]

    title: ClassVar[str] = "Cutting edges between demonstrations and to the target"
    definitions: ClassVar[tuple[Definition, ...]] = (EFFECT,)
    axis_labels: ClassVar[Mapping[str, str]] = {"edges": "edges", "window": "windows"}

    @property
    def changes(self) -> Float[Tensor, "batch edges window"]:
        """Of the logit difference."""
        return self.difference - self.plain_difference[:, None, None]

    @property
    def random_changes(self) -> Float[Tensor, "batch edges window draw"]:
        """The same with random edges cut."""
        return self.random_difference - self.plain_difference[:, None, None, None]

    def quantities(self) -> dict[str, Quantity]:
        """Changes of logit difference, probability and right answers, and loyalty; most with random edges too.

        `beside_random` is the change minus that with random edges; its intervals take draws in. There is no
        `accuracy_change` where right answers were not kept.
        """
        dims, logits = ("edges", "window"), "change of the logit difference"
        more = self.probability - self.plain_probability[:, None, None]
        random_more = self.random_probability.mean(-1) - self.plain_probability[:, None, None]
        beside = self.changes - self.random_changes.mean(-1)
        ends = [[self.beside(edges, window)[1:] for window in self.windows] for edges in self.edges]
        low, high = torch.tensor(ends, dtype=torch.float64).unbind(-1)
        share = "share of unchanged predictions"
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

    def beside(self, edges: str, window: str) -> Interval:
        """The same minus that with random edges, with the spread of the draws.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        place = self._place(edges, window)
        gaps = self.changes[place][:, None] - self.random_changes[place]
        return with_draws(mean_interval(gaps.mean(1)), gaps.mean(0))

    def step(self, edges: str, before: str, after: str, *, beside: bool) -> Interval:
        """Change in one window minus that in another, plainly or each minus that with random edges.

        Raises:
            ResultError: edges or a window that was not cut.
        """
        one, two = (self._place(edges, window) for window in (before, after))
        step = self.changes[two] - self.changes[one]
        if not beside:
            return mean_interval(step)
        gaps = step[:, None] - (self.random_changes[two] - self.random_changes[one])
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

    def drawing(self) -> LayerCurves:
        """Changes of the logit difference by window, with the cut and with random edges."""
        plain, random = self.sel("change"), self.sel("random_change")
        curves = [
            (own, number, name)
            for number, edges in enumerate(self.edges)
            for own, name in ((plain, "these edges"), (random, "random edges"))
            if own is plain or edges in CONTROLLED
        ]

        def laid(end: str) -> Tensor:
            return torch.stack([getattr(own, end)[number] for own, number, _ in curves]).double()

        def panel(number: int, edges: str) -> Panel:
            places = tuple(at for at, (_, of, _) in enumerate(curves) if of == number)
            return Panel(SHOWN[edges].capitalize(), places, levels=((0.0, "changes nothing"),))

        return LayerCurves(
            title="What cut edges change",
            names=tuple(name for *_, name in curves),
            values=laid("values"),
            low=laid("low"),
            high=laid("high"),
            y_title="change of the logit difference",
            note=basis(self),
            x=tuple(map(float, range(1, len(self.windows) + 1))),
            x_title=f"layers of the cut: {', '.join(self.windows)}",
            meanings=tuple("label" if own is plain else "reference" for own, *_ in curves),
            panels=tuple(panel(*one) for one in enumerate(self.edges)),
            apart=0.03,
        )

    def figures(self) -> list[Figure]:
        """Which edges the right answer needs, and where."""
        count = len(self.kept)
        random, spans = self.random_changes.shape[-1], zip(self.windows, self.layers, strict=True)
        where = "; ".join(f"{name}: {layers_named(*own)}" for name, own in spans)
        return [
            Figure(
                question="Which edges does the right answer need, and in which layers?",
                answer=self._answer(),
                caption="**Change of the right answer's logit above the others when edges are cut in some "
                f"layers** ({where}), where they lead to the target beside as many random edges with the same "
                f"distances (mean of {counted(random, 'draw')}). Bars: 95 % intervals over {counted(count, 'prompt')}"
                f"{given(self)}.",
                establishes="What the model loses without these edges.",
                limits="what flows along them: a model that never meets such cuts in training may also fail "
                "for want of any input there. Random edges have the same distances, not the same rows: beside "
                "edges to the target they are in other rows, and late in the model they then do little by "
                "construction; beside edges between demonstrations most are such edges, or needed whatever "
                "is read, so that of those answers must be lost, too.",
                short="Cut edges",
            )
        ]

    def _answer(self) -> str:
        prompts, parts = len(self.kept), []
        for edges in self.edges:
            for window in self.windows:
                change = self.change(edges, window)
                found_in = self.beside if edges in CONTROLLED else self.right_answers
                both = (change, found_in(edges, window))
                found = jointly(*(judged(own, rising=False, prompts=prompts) for own in both))
                if found == "supported":
                    parts.append(f"{SHOWN[edges]} in {window} layers ({said(change, sign=True)})")
        if prompts < FEWEST_PROMPTS:
            return f"{opening('cannot be judged', counted(prompts, 'prompt'))} too few for an interval."
        if not parts:
            return f"{opening('not shown')} no cut lowers the right answer, those to the target beyond random edges."
        return f"Edges {listed(parts)}; each looked at alone."

    def summary(self) -> str:
        """Changes; beyond random edges where these are a control."""
        parts = []
        for edges in self.edges:
            beyond = edges in CONTROLLED
            found = self.beside if beyond else self.change
            numbers = (f"{window} {found(edges, window)}" for window in self.windows)
            parts.append(f"{edges}{' beyond random edges' * beyond}: {', '.join(numbers)}")
        return f"change of the logit difference – {'; '.join(parts)}"


@dataclass(frozen=True)
class EdgeCuts(Measurement[EdgeCutsResult]):
    """Right answers with edges between demonstrations, or from them to the target, cut.

    Costs one forward pass for each kind of edges and window, and as many more for each draw.

    Attributes:
        edges: `contextualise`, `aggregate` or `anchors`, or several.
        windows: `thirds` of the layers, or `cumulative` ones from the first layer on.
        mode: `mask` (before softmax) or `zero` (after).
        draws: Of random edges.
        seed: Of the first draw.

    Raises:
        PromptError: prompts without answers or demonstrations, or without such edges.
        RunError: a model with fewer than three layers.
    """

    name: ClassVar[str] = "edge_cuts"
    takes = ANSWER_KINDS

    edges: Edges | Sequence[Edges] = ("contextualise", "aggregate", "anchors")
    windows: Windows = "thirds"
    mode: Mode = "mask"
    draws: Count = 3
    seed: Natural = 0

    def reads_first_tokens(self) -> bool:
        """No: whole words are scored where the prompts say so."""
        return False

    def _edges(self) -> tuple[str, ...]:
        return (self.edges,) if isinstance(self.edges, str) else tuple(dict.fromkeys(self.edges))

    def _layers(self, n_layers: int) -> list[range]:
        ends = [round(n_layers * part / 3) for part in range(4)]
        starts = ends[:3] if self.windows == "thirds" else [0, 0, 0]
        return [range(*own) for own in zip(starts, ends[1:], strict=True)]

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts without such edges or answers, and models of too few layers.

        Raises:
            PromptError: says what is missing.
            RunError: fewer than three layers.
        """
        check_answers(data, "edge_cuts")
        check_demonstrations(data, "edge_cuts")
        for edges in self._edges():
            CUTS[edges].check_prompts(data)
        if model.info.n_layers < 3:
            raise RunError(
                f"{model.info.name!r} has {counted(model.info.n_layers, 'layer')}; edges are cut in an early, a "
                "middle and a late part, which takes three."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Variants]:
        """The plain run, and each cut with its random edges, on one path."""
        variants: list[Sequence[Cut]] = [()]
        for edges in self._edges():
            for layers in self._layers(model.info.n_layers):
                cut = replace(CUTS[edges], layers=tuple(layers), mode=self.mode)
                draws = range(self.seed, self.seed + self.draws)
                variants += [[cut], *([replace(cut, control=True, seed=own)] for own in draws)]
        return [Variants(data, [PredictionReading(1)], variants=variants, title="cut edges")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> EdgeCutsResult:
        """Answers of every run."""
        found: list[Read] = [values for (values,) in read[0]]
        answers, edges, layers = data.answers, self._edges(), self._layers(model.info.n_layers)
        difference = torch.stack([above_others(own[0].double(), answers) for own in found], dim=1)
        sure = torch.stack(
            [own[1].double().gather(1, answers[:, None])[:, 0].exp() for own in found], dim=1
        )
        kept = torch.stack([same_answer(own, found[0], data) for own in found], dim=1)
        right = torch.stack([predicted(own[0], own[2], data) == answers for own in found], dim=1)

        def laid(values: Tensor) -> tuple[Tensor, Tensor]:
            own = values[:, 1:].unflatten(1, (len(edges), len(layers), 1 + self.draws))
            return own[..., 0].contiguous(), own[..., 1:].contiguous()

        (cut, random), (likely, random_likely) = laid(difference), laid(sure)
        same, random_same = laid(kept)
        return EdgeCutsResult(
            difference=cut,
            probability=likely,
            kept=same,
            right=laid(right)[0],
            random_difference=random,
            random_probability=random_likely,
            random_kept=random_same.double(),
            plain_difference=difference[:, 0].contiguous(),
            plain_probability=sure[:, 0].contiguous(),
            plain_right=right[:, 0].contiguous(),
            edges=edges,
            windows=WINDOWS[self.windows],
            layers=tuple((own[0], own[-1]) for own in layers),
        )


edge_cuts = door(EdgeCuts, "edge_cuts", prompts="With demonstrations and answers.")
