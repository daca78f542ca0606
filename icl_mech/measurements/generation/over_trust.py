"""`OverTrust`: beam search whose candidates are penalised by over-trust, with roll-back.

At each step the top `candidates` of every beam are computed one token ahead. The penalty of
each (`icl_mech.metrics.over_trust_penalty`) is subtracted from its logit, all other tokens are excluded, and
beams are chosen as in beam search. If the steps of all beams point to one column too often, writing
goes back to just after that column: the tokens chosen there are excluded, and that token is chosen anew from the
whole vocabulary, without penalty.

Scores are kept in float64 (the reference: float16), and tokens that are not candidates are never written (the
reference gives them the logit -999, which penalties above 1000 undercut: it then writes tokens that
were not candidates). After a roll-back, rejected tokens are level with the least likely one, as in the reference.
With one beam and `weight=0` it is greedy writing, as long as nothing is rolled back.

Source: Huang et al. 2024, *OPERA*, §3; released code, `opera_beam_search`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch.nn.functional import pad

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, check_fields
from icl_mech.engine import Kept, Reading
from icl_mech.engine.writing import Writer, following
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.generation.loop import Known, Loop
from icl_mech.metrics import log_over_trust
from icl_mech.metrics.over_trust import head_maximum, over_trust_penalty, points_to
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment

EARLIEST = 10
"""First column that a roll-back may return to."""


@dataclass(frozen=True)
class OverTrust:
    """Settings of the penalty and the roll-back.

    Attributes:
        beams: Number of texts kept at a time.
        candidates: Number of tokens considered for each beam.
        weight: Factor of the penalty.
        threshold: Number of steps that may point to one column; with more, writing goes back.
    """

    beams: Count = 5
    candidates: Count = 5
    weight: float = 1.0
    threshold: Count = 15

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            RunError: names the number that is out of range.
        """
        check_fields(self)
        if not 0 <= self.weight < float("inf"):
            raise RunError(
                f"weight={self.weight}, but the weight of the penalty must be a finite number, 0 or more."
            )


@dataclass(frozen=True, eq=False)
class Beams:
    """Texts of one length, and the model's state after them.

    Attributes:
        texts: Written tokens.
        logits: Logits of the next token.
        rows: Attention among written tokens (`head_maximum`), the row of each and of none before.
        mass: Attention of the last row to the given tokens.
        inner: State from which to continue.
    """

    texts: tuple[tuple[int, ...], ...]
    logits: Float[Tensor, "beam vocab"]
    rows: Float[Tensor, "beam window window"]
    mass: Float[Tensor, " beam"]
    inner: Any = None


@runtime_checkable
class Stepper(Protocol):
    """Computes rows for a search."""

    def begin(self, beams: int) -> Beams:
        """Start this many beams at the prompt, with nothing written."""

    def extend(self, beams: Beams, parents: Sequence[int], tokens: Sequence[int]) -> Beams:
        """Append each token to its parent."""

    def picked(self, beams: Beams, rows: Sequence[int]) -> Beams:
        """Select some of the beams, in this order."""


@dataclass(eq=False)
class Search:
    """Search with over-trust; keeps the history that a roll-back needs.

    Attributes:
        stepper: Computes rows.
        how: Settings.
        windows: Length of the window of each step.
        pointed: The column each step pointed to.
        backs: Step to which each step went back, -1 where it did not.
        texts: Texts after each step, one for each beam.
    """

    stepper: Stepper
    how: OverTrust
    windows: list[int] = field(default_factory=list)
    pointed: list[int] = field(default_factory=list)
    backs: list[int] = field(default_factory=list)
    texts: list[tuple[tuple[int, ...], ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start with nothing written."""
        self._locations: list[Int[Tensor, " beam"]] = []
        self._before: dict[int, tuple[Beams, Tensor]] = {}
        self._chosen: dict[int, list[tuple[int, int]]] = {}
        self._rejected: dict[int, set[tuple[int, int]]] = {}
        self._used: Counter[int] = Counter()

    def write(self, longest: int, ends: frozenset[int] = frozenset()) -> tuple[int, ...]:
        """The best text of at most this many tokens, by mean log-probability.

        The search is over when as many texts have ended as there are beams.
        """
        count = self.how.beams
        beams = self.stepper.begin(count)
        scores = torch.full((count,), -1e9, dtype=torch.float64)
        scores[0] = 0.0
        ended: list[tuple[float, tuple[int, ...]]] = []
        while len(beams.texts[0]) < longest:
            beams, scores, allowed, ahead = self._judged(beams, scores)
            self.texts.append(beams.texts)
            total = allowed.double().log_softmax(-1) + scores[:, None]
            best = total.flatten().topk(min(2 * count, total.numel()))
            vocabulary = total.shape[1]
            chosen: list[tuple[int, int]] = []
            kept: list[float] = []
            ranked = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            for rank, (score, place) in enumerate(ranked):
                parent, token = divmod(place, vocabulary)
                if token in ends:
                    if rank < count and score > -torch.inf:
                        text = (*beams.texts[parent], token)
                        ended.append((score / len(text), text))
                elif len(chosen) < count and score > -torch.inf:
                    chosen.append((parent, token))
                    kept.append(score)
            if not chosen or len(ended) >= count:
                return max(ended)[1]
            missing = count - len(chosen)
            chosen += chosen[-1:] * missing
            kept += [-1e9] * missing
            self._chosen[len(beams.texts[0])] = chosen
            beams = self._next(beams, ahead, chosen)
            scores = torch.tensor(kept, dtype=torch.float64)
        running = zip((scores / longest).tolist(), beams.texts, strict=True)
        return max([*ended, *running])[1]

    def _judged(
        self, beams: Beams, scores: Tensor
    ) -> tuple[Beams, Tensor, Tensor, tuple[Tensor, Beams] | None]:
        """Input of the choice of the next token: beams, their scores, and logits."""
        length, count = len(beams.texts[0]), self.how.candidates
        self._before[length] = (beams, scores)
        tried = beams.logits.topk(min(count, beams.logits.shape[1]), dim=-1).indices
        parents = torch.arange(len(tried)).repeat_interleave(tried.shape[1])
        ahead = self.stepper.extend(beams, parents.tolist(), tried.flatten().tolist())
        trust = log_over_trust(ahead.rows)
        penalty = over_trust_penalty(trust, ahead.mass).reshape(tried.shape)
        locations = torch.stack([_mode(row) for row in points_to(trust).reshape(tried.shape)])
        self._locations.append(locations)
        location = int(_mode(locations))
        back = self._back(location)
        self.windows.append(length + 1)
        self.pointed.append(location)
        self.backs.append(-1 if back is None else back)
        if back is not None:
            return (*self._returned(back), None)
        # A constant of a beam changes nothing; so penalties beyond float64 stay in order.
        penalty = penalty.clamp(max=1e300)
        penalty = penalty - penalty.amin(-1, keepdim=True)
        logits = beams.logits.double()
        allowed = torch.full_like(logits, -torch.inf)
        taken = logits.gather(1, tried) - self.how.weight * penalty.to(logits.device)
        return beams, scores, allowed.scatter(1, tried, taken), (tried, ahead)

    def _back(self, location: int) -> int | None:
        """The step to go back to, if too many steps of every beam point to one column; else None."""
        pointing = (torch.stack(self._locations) == location).sum(0)
        if location < EARLIEST or not bool((pointing > self.how.threshold).all()):
            return None
        for place in (location + 1, location):
            if self._used[place] < self.how.candidates:
                self._used[place] += 1
                return place
        return None

    def _returned(self, back: int) -> tuple[Beams, Tensor, Tensor]:
        """The state before a token was chosen, with the tokens then chosen excluded."""
        beams, scores = self._before[back]
        del self._locations[back + 1 :]
        rejected = self._rejected.setdefault(back, set())
        rejected.update(self._chosen[back])
        allowed = beams.logits.double().clone()
        least = allowed.amin(-1)
        for parent, token in rejected:
            allowed[parent, token] = least[parent]
        return beams, scores, allowed

    def _next(
        self, beams: Beams, ahead: tuple[Tensor, Beams] | None, chosen: list[tuple[int, int]]
    ) -> Beams:
        """The chosen beams; candidates are computed already."""
        if ahead is not None:
            tried, computed = ahead
            places = {
                (parent, token): parent * tried.shape[1] + rank
                for parent, row in enumerate(tried.tolist())
                for rank, token in enumerate(row)
            }
            if all(beam in places for beam in chosen):
                return self.stepper.picked(computed, [places[beam] for beam in chosen])
        parents, tokens = zip(*chosen, strict=True)
        return self.stepper.extend(beams, parents, tokens)


def _mode(values: Int[Tensor, " n"]) -> Tensor:
    """The most frequent value, the smallest on ties."""
    return values.bincount().argmax()


@dataclass
class LastPattern(Reading[list[Tensor]]):
    """Attention of the target's row in the last layer, `head_maximum`."""

    target_only: ClassVar[bool] = True
    ragged: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of the last layer."""
        return [Site("pattern", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Attention `[batch, src]`."""
        rows = activation[segment.rows, :, segment.target_row]
        return head_maximum(rows[:, :, None])[:, 0]

    def collect(self, kept: Kept) -> list[Tensor]:
        """Attention `[site, src]` of each prompt."""
        return kept.per_prompt()


class ModelStepper:
    """Stepper that computes rows after one prompt."""

    def __init__(
        self,
        model: LanguageModel,
        prompts: PromptBatch,
        index: int,
        interventions: Sequence[Intervention],
    ) -> None:
        """Prepare prompt number `index` of the run, under these interventions."""
        self.model, self.prompts, self.index = model, prompts, index
        self.writer = Writer([LastPattern()], interventions)
        self.given = torch.tensor(given_tokens(prompts[index]), dtype=torch.long)

    def begin(self, beams: int) -> Beams:
        """Start this many beams at the prompt, with nothing written."""
        rows = [self.index] * beams
        written = self.writer.begin_writing(Segment.build(self.model, self.prompts[rows], rows))
        return Beams(
            ((),) * beams,
            self.model.logits(written.residual).float(),
            torch.zeros(beams, 0, 0, dtype=torch.float64),
            torch.zeros(beams, dtype=torch.float64),
            written,
        )

    def extend(self, beams: Beams, parents: Sequence[int], tokens: Sequence[int]) -> Beams:
        """Append each token to its parent."""
        texts = tuple((*beams.texts[p], token) for p, token in zip(parents, tokens, strict=True))
        behind = following(beams.inner.kept(parents), tokens)
        written = self.writer.go_on(behind, texts)
        (values,) = written.values
        (row,) = values.values()
        row = row.cpu()
        before = pad(beams.rows[list(parents)], (0, 1))
        rows = torch.cat([before, row[:, None, -len(texts[0]) :]], dim=1)
        logits = self.model.logits(written.residual).float()
        return Beams(texts, logits, rows, row[:, self.given].sum(1), written)

    def picked(self, beams: Beams, rows: Sequence[int]) -> Beams:
        """Select some of the beams, in this order."""
        chosen = list(rows)
        texts = tuple(beams.texts[row] for row in chosen)
        kept = beams.inner.kept(chosen)
        return Beams(texts, beams.logits[chosen], beams.rows[chosen], beams.mass[chosen], kept)


def given_tokens(prompt: Prompt) -> list[int]:
    """Positions of the demonstrations, or of everything in a prompt without any."""
    shown = [
        place
        for span in prompt.spans
        if span.demo is not None
        for place in range(span.start, span.stop)
    ]
    return shown or list(range(len(prompt)))


def trusting(
    model: LanguageModel,
    prompts: PromptBatch,
    interventions: Sequence[Intervention],
    loop: Loop,
    how: OverTrust,
) -> Known:
    """The texts a search with over-trust writes, prompt by prompt."""
    ends = loop.stops.ends | loop.stops.ids
    steppers = (ModelStepper(model, prompts, index, interventions) for index in range(len(prompts)))
    return Known(tuple(Search(stepper, how).write(loop.longest, ends) for stepper in steppers))
