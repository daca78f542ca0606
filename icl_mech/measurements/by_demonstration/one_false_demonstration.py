"""One false demonstration, by place: *Overthinking the Truth* in its smallest dose.

Exactly one displayed label is false, at place i of N; texts, order, query and all other labels are unchanged. Every
prompt is run N times, once with each place false, and compared, paired, with two prompts:

* *true*: all labels are correct;
* *exchanged*: the demonstration at this place is replaced by a correct one of the displayed class (the query of
  another prompt with its label), so that all label words are those of the false prompt, place by place. What remains
  is the effect of the label being false, beyond that of one correct demonstration of the former class less.

The false label is drawn among the classes that demonstrations display, equally often (±1) for each pair of query
class and true class of the demonstration. With balanced classes as many prompts gain a label of the query's class as
lose one, at every place: a network that counts label words, or copies the last, is not harmed on average.

Source: Jiao, Wang and Hu 2026, *Understanding the Dynamics of Demonstration Conflict in In-Context Learning*,
arXiv 2603.04464, for rule inference; its vulnerability heads attend to a corrupted demonstration by place. The control
by exchange, and classes in place of rules, are ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Natural, checked
from icl_mech.engine import common_prefix
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.by_demonstration.flow_by_demonstration import FlowByDemonstrationResult
from icl_mech.measurements.causal.head_maps import clear_heads
from icl_mech.measurements.demonstrations import check_halves, check_same_count
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.label_attention import LabelAttentionReading
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.residuals import LENS, LayerLensReading
from icl_mech.measurements.saliency.reduction import third_of
from icl_mech.metrics import (
    Interval,
    early_exit_layer,
    mean_interval,
    prefix_matching,
    rank_agreement,
)
from icl_mech.metrics.heads import attention_to_same
from icl_mech.metrics.layers import stratified_halves
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.one_false import OneFalse, one_false
from icl_mech.results import Definition, Quantity, Result, function_of_means
from icl_mech.results.judging import FEWEST_PROMPTS, Status, judged, together
from icl_mech.results.quantities import kept
from icl_mech.results.wording import listed

PAPER = "arXiv 2603.04464"

SIDES = ("true", "false", "exchanged")
"""All labels correct; one false; a correct demonstration of the displayed class in its place."""

LEAST = 0.01
"""Probability of the right answer that a false demonstration must cost, to count as harm."""

HARM = Definition(
    "harm of one false demonstration",
    r"H_i = \frac{1}{n} \sum_{k=1}^{n} P(y_k \mid D_k, x_k) - P(y_k \mid D_k^{(i)}, x_k)",
    "Probability, among the label words, of the right answer y to the query x with the "
    "demonstrations D, minus that with the label of demonstration i false. Also with D replaced by "
    "the prompt whose demonstration i is a correct one of the displayed class: the harm beyond that "
    "of the label words alone.",
    PAPER,
)

RECENCY = Definition(
    "recency of the harm",
    r"b = \frac{\sum_i (t_i - \bar t)\, H_i}{\sum_i (t_i - \bar t)^2}, \quad t_i = \frac{i - 1}{N - 1}",
    "Slope of the harm over place, from 0 (first demonstration) to 1 (last): positive if a false "
    "label harms more the closer it is to the query. Computed by prompt, then averaged.",
)

MARGIN = Definition(
    "margin over the false label",
    r"\log P_\ell(y) - \log P_\ell(f)",
    "Lens after layer l: log-probability of the right answer y minus that of the false label f that "
    "is displayed, where they differ.",
    PAPER,
)

TOWARDS = Definition(
    "attention to the false label word",
    r"A_h[q, p_i]^{\text{false}} - A_h[q, p_i]^{\text{exchanged}}",
    "Attention of head h from the last token q to the label word p of demonstration i where it is "
    "false, minus that to the same word in the same place where it is correct. Prefix matching "
    "towards the false label is compared in the same way.",
    PAPER,
)


class Exit(NamedTuple):
    """An early exit under one false demonstration, on prompts it was not chosen on.

    Attributes:
        layer: The entry (0: embedding) at which accuracy exceeds that of the last one most, on the other half.
        gain: Accuracy there minus at the last entry, with one false demonstration.
        beyond: The same minus that with true demonstrations.
        accuracy: Accuracy there with one false demonstration.
        prompts: Number of prompts reported on.
        chance: Accuracy of a guess, or of the best constant answer on these prompts if that is larger.
    """

    layer: int
    gain: Interval
    beyond: Interval
    accuracy: Interval
    prompts: int
    chance: float


@dataclass(frozen=True, eq=False, kw_only=True)
class OneFalseDemonstrationResult(Result):
    """Lens and attention with true, one false, and one exchanged demonstration, place by place.

    Attributes:
        logits: Label logits of the lens; the last layer's are the model's. With true demonstrations the same for
            every place.
        attention: Attention from the target to the label word of this place.
        matching: Prefix matching towards the class that this place displays in the false prompt.
        displayed: Class that the false demonstration displays.
        classes: Its true class.
        answers: True class of each query.
        places: Places of the false demonstration, from 0, in prompt order.
        sides: `true`, `false` and, where it could be written, `exchanged`.
        labels: Names of the classes.
        count_of_demonstrations: Number of demonstrations of a prompt.
        shared: True if all prompts display the same demonstrations, whose order cannot be told from their texts.
        seed: Seed of false labels, exchanged texts and halves.
        notes: Why a side is missing.
    """

    shows: ClassVar[tuple[str, ...]] = ("places", "layers", "heads")
    definitions: ClassVar[tuple[Definition, ...]] = (HARM, RECENCY, LENS, MARGIN, TOWARDS)
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"side": "sides", "place": "places"}

    logits: Float[Tensor, "batch side place layer label"]
    attention: Float[Tensor, "batch side place block head"]
    matching: Float[Tensor, "batch side place block head"]
    displayed: Int[Tensor, "batch place"]
    classes: Int[Tensor, "batch place"]
    answers: Int[Tensor, " batch"]
    places: tuple[int, ...]
    sides: tuple[str, ...]
    labels: tuple[str, ...]
    count_of_demonstrations: int
    shared: bool
    seed: int = 0
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.answers)

    @property
    def too_few(self) -> bool:
        """True if there are too few prompts for a conclusion."""
        return self.count < FEWEST_PROMPTS

    @property
    def has_control(self) -> bool:
        """True if the exchanged prompts could be written."""
        return "exchanged" in self.sides

    # --- values of each prompt ---

    def log_probs(self) -> Float[Tensor, "batch side place layer label"]:
        """Log-probabilities among the label words."""
        return self.logits.double().log_softmax(-1)

    def _of(self, classes: Int[Tensor, "batch place"]) -> Float[Tensor, "batch side place layer"]:
        """Log-probabilities of one class for each prompt and place."""
        index = classes[:, None, :, None, None].expand(*self.logits.shape[:-1], 1)
        return self.log_probs().gather(-1, index)[..., 0]

    @property
    def right(self) -> Float[Tensor, "batch side place layer"]:
        """Log-probability of the right answer."""
        return self._of(self.answers[:, None].expand_as(self.displayed))

    @property
    def correct(self) -> Float[Tensor, "batch side place layer"]:
        """1 where the right answer is on top."""
        return (self.logits.argmax(-1) == self.answers[:, None, None, None]).double()

    def harms(self, side: str = "true") -> Float[Tensor, "batch place"]:
        """Probability of the right answer on a side minus that with one false demonstration.

        Raises:
            ResultError: no such side.
        """
        if side not in self.sides:
            notes = "".join(f" {note}" for note in self.notes)
            raise ResultError(f"There is no side {side!r} here, only {listed(self.sides)}.{notes}")
        probs = self.right[..., -1].exp()
        return probs[:, self.sides.index(side)] - probs[:, self.sides.index("false")]

    def quantities(self) -> dict[str, Quantity]:
        """Harm and accuracy by place, lens by layer, and attention to the false label word by head."""
        probability, right = "probability of the right answer", self.right
        apart = self.displayed != self.answers[:, None]
        parts = [
            torch.einsum("bspl,bp->bsl", right - self._of(self.displayed), apart.double()),
            apart.sum(1).double()[:, None, None].expand_as(right[:, :, 0]),
        ]
        margin = torch.stack(parts, dim=1)
        quantities = {
            "harm": Quantity(("place",), self.harms(), unit=f"{probability} lost", kind="change"),
            "accuracy": Quantity(
                ("side", "place"),
                self.correct[..., -1],
                unit="fraction of right answers",
                kind="outcome",
            ),
            "nats": Quantity(
                ("place",), right[:, 0, :, -1] - right[:, 1, :, -1], unit=f"log-{probability} lost"
            ),
            "lens": Quantity(
                ("side", "layer"), right.exp().mean(2), unit=probability, kind="outcome"
            ),
            "lens_accuracy": Quantity(
                ("side", "layer"),
                self.correct.mean(2),
                unit="fraction of right answers",
                kind="outcome",
            ),
            "margin": Quantity(
                ("side", "layer"),
                margin,
                function_of_means(margin, lambda means: means[:, 0] / means[:, 1]),
                "log-probability of the right answer minus the false label's (nats)",
            ),
        }
        if self.has_control:
            beyond, dims = self.harms("exchanged"), ("place", "block", "head")
            quantities["harm_beyond"] = Quantity(
                ("place",), beyond, unit=f"{probability} lost beyond the control", kind="change"
            )
            for name, unit in (
                ("attention", "attention to the false label word minus the control's"),
                ("matching", "prefix matching towards the false label minus the control's"),
            ):
                change = getattr(self, name)[:, 1] - getattr(self, name)[:, 2]
                quantities[name] = Quantity(dims, change, unit=unit)
        return quantities

    # --- claims ---

    @checked(ResultError)
    @kept
    def harm(self, side: str = "true") -> Interval:
        """Mean harm over all places, against `true` demonstrations or `exchanged` ones.

        Raises:
            ResultError: no such side.
        """
        return mean_interval(self.harms(side).mean(1), "change")

    @property
    def status(self) -> Status:
        """Status of the claim that one false demonstration lowers the right answer's probability by more than 0.01.

        `present, not used`: the loss is clear, but not above 0.01.
        """
        return self._costs(self.harm())

    @property
    def beyond_status(self) -> Status:
        """Status of the claim that it does so beyond its label words: more than a correct one of the displayed class."""
        return self._costs(self.harm("exchanged") if self.has_control else None)

    def _costs(self, harm: Interval | None) -> Status:
        enough = judged(harm, null=LEAST, opposite=0.0, prompts=self.count)
        there = judged(harm, prompts=self.count)
        return "present, not used" if (enough, there) == ("not shown", "supported") else enough

    @kept
    def same_class(self) -> Interval | None:
        """Harm where the demonstration's class is the query's, minus that elsewhere; None if prompts have only one kind.

        Mean over prompts that have both, against true demonstrations.
        """
        same = (self.classes == self.answers[:, None]).double()
        both = (same.sum(1) > 0) & ((1 - same).sum(1) > 0)
        if not bool(both.any()):
            return None
        harms = self.harms()[both]
        means = [(harms * part).sum(1) / part.sum(1) for part in (same[both], 1 - same[both])]
        return mean_interval(means[0] - means[1], "contrast")

    @property
    @kept
    def recency(self) -> Interval | None:
        """Slope of the harm from the first place to the last; None with a single place."""
        if len(self.places) < 2:
            return None
        t = torch.tensor(self.places, dtype=torch.float64) / (self.count_of_demonstrations - 1)
        centred = t - t.mean()
        return mean_interval(self.harms() @ centred / centred.square().sum())

    @property
    def recency_status(self) -> Status:
        """Status of the claim that a false demonstration harms more the later it comes, by more than 0.01 in all.

        It cannot be judged for shared demonstrations, whose order is one of many.
        """
        if self.shared:
            return "cannot be judged"
        return judged(self.recency, null=LEAST, opposite=-LEAST, prompts=self.count)

    @property
    @kept
    def exit(self) -> Exit | None:
        """The early exit that helps most under one false demonstration; None with too few prompts."""
        first, second = stratified_halves(self.answers, self.seed)
        if not len(second):
            return None
        correct = self.correct.mean(2)
        layer = early_exit_layer(correct[first, 1].mean(0)[None])
        change = correct[second, :, layer] - correct[second, :, -1]
        return Exit(
            layer,
            mean_interval(change[:, 1], "change"),
            mean_interval(change[:, 1] - change[:, 0], "contrast"),
            mean_interval(correct[second, 1, layer], "outcome"),
            len(second),
            max(1 / len(self.labels), int(self.answers[second].bincount().max()) / len(second)),
        )

    @property
    def overthinking_status(self) -> Status:
        """Status of the claim that an earlier layer answers better than the last, because of the false demonstration.

        The exit is chosen on one half and tested on the other: accuracy rises, more so than with true
        demonstrations, and is above chance there, which is that of the best constant answer.
        """
        early = self.exit
        if early is None:
            return "cannot be judged"
        effects = ((early.gain, 0.0), (early.beyond, 0.0), (early.accuracy, early.chance))
        status = together(
            *(judged(effect, null=null, prompts=early.prompts) for effect, null in effects)
        )
        return "not shown" if status == "mixed" or early.layer == 0 else status

    # --- heads ---

    @kept
    def misfit_heads(self) -> tuple[tuple[int, int], ...]:
        """Heads that attend more to a label word where it is false, most first; empty without the control or with too few prompts.

        More than to the correct label word of the same text, and more than to the same label word after a text that it
        fits; each a joint statement about all heads (see `clear_heads`), over the mean of all places.
        """
        if self.too_few or not self.has_control:
            return ()
        true, false, exchanged = self.attention.double().mean(2).unbind(1)
        above_true = clear_heads(false - true)
        return tuple(head for head in clear_heads(false - exchanged) if head in above_true)

    @checked(ResultError)
    def agreement(self, flow: FlowByDemonstrationResult, third: str = "last") -> Interval:
        """Rank correlation over places between the saliency of label words and the harm, mean over prompts.

        Args:
            flow: Flow by demonstration of the same prompts.
            third: Layers whose `S_pq` is averaged: the `first` or `last` third.

        Raises:
            ResultError: another prompt set, fewer than three places, or an unknown third.
        """
        digests = [result.provenance.get("prompts", {}).get("digest") for result in (self, flow)]
        if digests[0] != digests[1] or len(flow.pq) != self.count:
            raise ResultError(
                "The two results are from different prompts; measure both on the same prompts."
            )
        if len(self.places) < 3:
            raise ResultError(
                f"A rank correlation needs at least three places, but there are {len(self.places)}."
            )
        read = flow.pq[:, list(self.places)][..., third_of(flow.pq.shape[2], third)].mean(-1)
        return mean_interval(rank_agreement(read, self.harms().abs()), "correlation")

    def on_page(self) -> tuple[str, ...]:
        """Harm by place, the lens and, with the control, heads."""
        return tuple(show for show in self.shows if self.is_drawn(show))

    def is_drawn(self, show: str) -> bool:
        """False for the map of heads without the control."""
        return show != "heads" or self.has_control


@dataclass(frozen=True)
class OneFalseDemonstration(Measurement[OneFalseDemonstrationResult]):
    """Answer, lens and attention with exactly one false demonstration, at each place.

    Costs one pass over the prompts and, for each place, two more over whole prompts.

    Attributes:
        places: Places of the false demonstration, from 0, in prompt order; None: all.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
        seed: Seed of the false labels, of the exchanged texts, and of the halves of the early exit.

    Raises:
        PromptError: prompts without answers, with different numbers of demonstrations, with false labels already, or
            that cannot be written anew; a repeated query, or queries of one class.
        RunError: a place that prompts do not have, or a lens of another model.

    Source: arXiv 2603.04464.
    """

    places: Sequence[Natural] | None = None
    lens: FittedLens | None = None
    seed: Natural = 0

    takes = ("classes",)
    why_not = "a false label is the label word of another class"

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts of which no false ones can be written.

        Raises:
            PromptError: says why.
            RunError: a place that does not exist, or a lens of another model.
        """
        check_lens(self.lens, model, "sound")
        check_same_count(data, "one false demonstration")
        labels = data.source.get("labels", "correct")
        if labels != "correct":
            raise PromptError(
                f"The prompts were built with labels={labels!r}, but one false demonstration is "
                "compared with true ones. Build them with labels='correct'."
            )
        places = self._places(data)
        if not places or max(places) >= data.n_demos or len(set(places)) < len(places):
            raise RunError(
                f"places={list(places)} must be different numbers from 0 to {data.n_demos - 1}, the "
                "demonstrations of each prompt."
            )
        if len(set(data.label_classes.flatten().tolist())) == 1:
            raise PromptError(
                "All demonstrations display the same label, so there is no false one to display. "
                "Build the prompts with demonstrations of several classes (shots >= 1)."
            )
        for false in self._design(data).false(model.tokenizer):
            if false.prompts is None:
                raise PromptError(
                    f"A false demonstration cannot be written ({false.why_not}). Build the prompts "
                    "with build_prompts or prompts_from_text, and load the model with its tokenizer."
                )
        could = "the early exit could be tested on queries it was chosen on"
        check_halves(data, "one false demonstration", could)

    def _places(self, data: PromptBatch) -> tuple[int, ...]:
        return tuple(range(data.n_demos)) if self.places is None else tuple(self.places)

    def _design(self, data: PromptBatch) -> OneFalse:
        return one_false(data, self._places(data), self.seed)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, and for each place those with one false and with one exchanged demonstration."""
        lens = LayerLensReading(vocabulary=False, lens=self.lens)
        readings: list[Any] = [lens, LabelAttentionReading()]
        passes, design = [Pass(data, readings, title="true demonstrations")], self._design(data)
        for title, sets in (
            ("one false demonstration", design.false(model.tokenizer)),
            ("one exchanged demonstration", design.exchanged(model.tokenizer)),
        ):
            passes += [
                Pass(new.prompts, readings, title=title) for new in sets if new.prompts is not None
            ]
        return passes

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> OneFalseDemonstrationResult:
        """Lens and attention on each side, place by place."""
        design = self._design(data)
        count = len(design.places)
        sets = [read[:1] * count, read[1 : 1 + count], read[1 + count :]]
        sets = [values for values in sets if values]
        logits, attention, matching = [], [], []
        for number, values in enumerate(sets):
            logits.append(torch.stack([lens.label_logits[:, 0] for lens, _ in values], dim=1))
            every = torch.stack([to_labels[:, :, 0] for _, to_labels in values], dim=1).double()
            place = torch.tensor(design.places)[None, :, None, None, None]
            attention.append(every.gather(-1, place.expand(*every.shape[:-1], 1))[..., 0])
            matching.append(
                torch.stack(
                    [
                        _towards(every[:, column], design, column, number > 0)
                        for column in range(count)
                    ],
                    dim=1,
                )
            )
        notes: tuple[str, ...] = ()
        if len(sets) < len(SIDES):
            why = design.exchanged(model.tokenizer)[0].why_not
            notes = (f"There is no control with an exchanged demonstration ({why}).",)
        return OneFalseDemonstrationResult(
            logits=torch.stack(logits, dim=1).float(),
            attention=torch.stack(attention, dim=1).float(),
            matching=torch.stack(matching, dim=1).float(),
            displayed=design.shown,
            classes=data.label_classes[:, list(design.places)],
            answers=data.answers,
            places=design.places,
            sides=SIDES[: len(sets)],
            labels=data.labels,
            count_of_demonstrations=data.n_demos,
            shared=_shared(data),
            seed=self.seed,
            notes=notes,
        )


def _towards(
    attention: Float[Tensor, "batch block head demo"], design: OneFalse, column: int, changed: bool
) -> Float[Tensor, "batch block head"]:
    """Prefix matching towards the class that a place displays in the false prompt."""
    labels = design.labels(column) if changed else design.prompts.label_classes
    same = attention_to_same(attention, labels, design.shown[:, column])
    return prefix_matching(same, attention.sum(-1), design.prompts.n_labels)


def _shared(data: PromptBatch) -> bool:
    """True if all prompts display the same demonstrations."""
    return len(data) > 1 and common_prefix(data) > int(data.label_positions.max())


one_false_demonstration = door(
    OneFalseDemonstration,
    "one_false_demonstration",
    prompts="Prompts with answers, true labels and the same number of demonstrations each.",
)
