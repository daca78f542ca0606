"""Transplants (activation patching): residuals of another run patched in at some of the tokens.

The residuals entering block l at all tokens of a place are taken from the run of the same queries with
false demonstrations into the run with true ones, and back, layer by layer. The change of the answer shows
which tokens, at this depth, carry what the demonstrations teach. At layer 0 the words themselves are
swapped; at the entrance of the last block little but the target can still have an effect.

The control for each place is the same number of random tokens of the same demonstrations (or of the query).

Source: arXiv 2605.04061 (all output tokens at once); arXiv 2504.00132 (contextualise, then aggregate).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.engine import Layout
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Intervention
from icl_mech.interventions.base import check_layers
from icl_mech.measurements.base import Options, Pair, PairMeasurement, Steps, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers, check_label_words
from icl_mech.measurements.causal.grafted_runs import Begun, Entered, Rows, shared_beginning
from icl_mech.measurements.causal.grafts import (
    Graft,
    Matched,
    Role,
    check_places,
    drawn,
    matched,
    of_word,
    read_rows,
    table,
    words,
)
from icl_mech.measurements.demonstrations import check_pairs, taught_classes
from icl_mech.measurements.doors import door
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import Kind, beyond_draws, mean_ends
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, jointly, judged
from icl_mech.results.quantities import function_of_means
from icl_mech.results.wording import listed

DIRECTIONS = ("false to true", "true to false")
"""Directions of transplants between the runs."""

NEAR = 8
"""A layer is near a depth if it is within an eighth of all layers of it."""

MOST = 0.5
"""Fraction of answers that a place must move, beyond its control, to count as carrying the answer."""

PAPER = "arXiv 2605.04061"

FLIPS = Definition(
    "transplant",
    r"\mathrm{flips}_l(A) = \frac{1}{|D|} \sum_{n \in D} \mathbb{1}\left[\hat y\!\left(Y_n \mid h_l[A] "
    r"\leftarrow h^{X}_l[A]\right) = \hat y(X_n)\right], \quad D = \{n : \hat y(X_n) \ne \hat y(Y_n)\}",
    "The residuals h entering block l at the tokens A are taken from run X, everything else from run "
    "Y. Fraction of prompts whose top label word becomes that of run X, among those where the runs "
    "differ.",
    PAPER,
)

SHIFT = Definition(
    "shift of the log-probability",
    r"\Delta_l(A) = \log P\!\left(\hat y(X_n) \mid Y_n, h_l[A] \leftarrow h^{X}_l[A]\right) - \log "
    r"P\!\left(\hat y(X_n) \mid Y_n\right)",
    "Change of the log-probability, over the vocabulary, of the first token of the other run's "
    "answer, where the runs differ.",
)

FOLLOWED = Definition(
    "answers that follow the transplant",
    r"\mathbb{1}\left[\hat y(Y_n \mid h_l[A] \leftarrow h^{X}_l[A]) = y^{X}_n\right] - \mathbb{1}\left[\hat "
    r"y(Y_n) = y^{X}_n\right]",
    "y^X is the label that the demonstrations of X teach for the query: the right one, or the "
    "demonstrated false one (any wrong one, where none is defined). Defined for every prompt, and "
    "0 on average if answers are independent of the demonstrations, however they differ.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class TransplantResult(Result):
    """Label words' log-probabilities after every transplant.

    Attributes:
        log_probs: Log-probabilities of label words over the vocabulary, with the residuals of the other run at a place.
        random: The same for an equal number of random tokens, or as many as exist; not-a-number where there are
            none.
        single: The same for each label word alone, if requested; not-a-number where a prompt has fewer.
        plain: Log-probabilities of the unpatched runs: with true, then with false demonstrations.
        answers, taught: True class of each query, and the class that false demonstrations teach, or -1.
        at, layers, n_layers: The places, blocks whose entrances were changed, and the number of blocks.
        unlike: Number of label words whose length in tokens differs between the runs; they are aligned from
            both ends.
    """

    shows: ClassVar[tuple[str, ...]] = ("map", "flips", "log_prob", "followed")
    definitions: ClassVar[tuple[Definition, ...]] = (FLIPS, SHIFT, FOLLOWED)
    axis_labels: ClassVar[Mapping[str, str | Sequence[str]]] = {
        "direction": DIRECTIONS,
        "at": "at",
        "layer": "layers",
    }

    log_probs: Float[Tensor, "batch direction at layer label"]
    random: Float[Tensor, "batch direction at layer draw label"]
    single: Float[Tensor, "batch direction demonstration layer label"] | None = None
    plain: Float[Tensor, "batch side label"]
    answers: Int[Tensor, " batch"]
    taught: Int[Tensor, " batch"]
    at: tuple[str, ...]
    layers: tuple[int, ...]
    n_layers: int
    unlike: int

    @property
    def predicted(self) -> Int[Tensor, "batch side"]:
        """Predicted class in both runs without a transplant."""
        return self.plain.argmax(-1)

    @property
    def differ(self) -> Bool[Tensor, " batch"]:
        """True for prompts that the two runs answer differently."""
        return self.predicted[:, 0] != self.predicted[:, 1]

    @property
    def flips(self) -> Float[Tensor, "batch layer"]:
        """False into true, at the first place: 1 where the answer becomes the false run's, NaN where both agree."""
        return self._flips(self.log_probs)[:, 0, 0]

    def _of_source(self, values: Tensor) -> Tensor:
        """Answer of the other run, broadcast to as many axes as the values have without labels."""
        answers = self.predicted.flip(1)
        return answers.reshape(*answers.shape, *[1] * (values.ndim - 3)).expand(values.shape[:-1])

    def _where_different(self, values: Tensor) -> Tensor:
        differ = self.differ.reshape(-1, *[1] * (values.ndim - 1))
        return values.double().where(differ, torch.nan)

    def _flips(self, values: Tensor) -> Tensor:
        flipped = (values.argmax(-1) == self._of_source(values)).double()
        return self._where_different(flipped.where(~values.isnan().any(-1), torch.nan))

    def _shift(self, values: Tensor) -> Tensor:
        wanted = self._of_source(values)[..., None]
        plain = self.plain.reshape(*self.plain.shape[:2], *[1] * (values.ndim - 3), -1)
        return self._where_different((values - plain).gather(-1, wanted)[..., 0])

    def _followed(self, values: Tensor) -> Tensor:
        """1 where the answer becomes the one the other demonstrations teach, -1 where it was that before."""

        def follows(predicted: Tensor) -> Tensor:
            right = self.answers.reshape(-1, *[1] * (predicted.ndim - 2))
            taught = self.taught.reshape(right.shape)
            false = predicted[:, 0] == taught
            false = torch.where(taught < 0, predicted[:, 0] != right, false)
            return torch.stack([false, predicted[:, 1] == right], dim=1).double()

        plain = self.predicted.reshape(*self.predicted.shape, *[1] * (values.ndim - 3))
        change = follows(values.argmax(-1)) - follows(plain)
        return change.where(~values.isnan().any(-1), torch.nan)

    def quantities(self) -> dict[str, Quantity]:
        """Flips and shifts where the runs differ, answers that follow, and the same for random tokens."""
        dims: tuple[str, ...] = ("direction", "at", "layer")
        quantities: dict[str, Quantity] = {}
        for prefix, values in (("", self.log_probs), ("random_", self.random)):
            flips, shift, followed = (
                measure.mean(-1) if prefix else measure
                for measure in (self._flips(values), self._shift(values), self._followed(values))
            )
            quantities |= {
                f"{prefix}flips": self._of_differing(
                    dims, flips, "fraction of answers that become the other run's", "outcome"
                ),
                f"{prefix}log_prob": self._of_differing(
                    dims, shift, "log-probability of the other run's answer (change, nats)"
                ),
                f"{prefix}followed": Quantity(
                    dims,
                    followed,
                    unit="answers that follow the transplant (change)",
                    kind="change",
                ),
            }
        if self.single is not None:
            alone = self._flips(self.single).nanmean(2)
            unit = "fraction of answers that become the other run's, one label word alone"
            dims = ("direction", "layer")
            quantities["single_flips"] = self._of_differing(dims, alone, unit, "outcome")
        return quantities

    def _of_differing(
        self, dims: tuple[str, ...], values: Tensor, unit: str, kind: Kind = "value"
    ) -> Quantity:
        """Mean over the prompts that both runs answer differently."""
        differ = self.differ
        ends = (torch.full(values.shape[1:], torch.nan, dtype=torch.float64),) * 2
        if bool(differ.any()):
            ends = mean_ends(values[differ], kind)
        inside = differ.double().reshape(-1, *[1] * (values.ndim - 1)).expand(values.shape)
        parts = torch.stack([values.where(inside > 0, 0.0), inside], dim=1)
        ratio = function_of_means(parts, lambda means: means[:, 0] / means[:, 1])
        return Quantity(dims, values, ratio, unit, ends)

    # --- early and late ---

    @property
    def early(self) -> int | None:
        """The patched layer nearest to a third of the depth; None if none is near it."""
        return self._nearest(1 / 3)

    @property
    def late(self) -> int | None:
        """The patched layer nearest to five sixths of the depth; None if none is near it."""
        return self._nearest(5 / 6)

    def _nearest(self, depth: float) -> int | None:
        wanted = depth * self.n_layers
        layer = min(self.layers, key=lambda layer: abs(layer - wanted))
        # At the input of the first block the words themselves are swapped, which moves answers in any network.
        near = layer > 0 and abs(layer - wanted) <= max(self.n_layers / NEAR, 0.5)
        return layer if near else None

    def beside_random(self, at: str, layer: int | None) -> Interval | None:
        """Flips by a transplant at a place minus those at random tokens, over both directions.

        The mean is over the prompts that the runs answer differently, paired; the interval is at least as wide
        as the prediction interval of one more draw. None without such prompts, place or layer, random token, or second draw.

        Raises:
            ResultError: a layer that was not changed.
        """
        flips, random = (self._both(values, at, layer) for values in (self.log_probs, self.random))
        return None if flips is None or random is None else beyond_draws(flips, random, "change")

    def beside(self, at: str, other: str, layer: int | None) -> Interval | None:
        """Flips by a transplant at one place minus those at another, over both directions.

        The mean is over the prompts that the runs answer differently, paired; None without such prompts or places.

        Raises:
            ResultError: a layer that was not changed.
        """
        here, there = (self._both(self.log_probs, name, layer) for name in (at, other))
        return None if here is None or there is None else mean_interval(here - there, "change")

    def _both(self, values: Tensor, at: str, layer: int | None) -> Tensor | None:
        """Flips at a place and layer, the mean of both directions, where the runs differ."""
        if layer is None:
            return None
        column = self._column(layer)
        if at not in self.at or not bool(self.differ.any()):
            return None
        return self._flips(values)[self.differ, :, self.at.index(at), column].mean(1)

    def _column(self, layer: int) -> int:
        if layer not in self.layers:
            raise ResultError(
                f"Layer {layer} was not patched; available layers are "
                f"{listed(map(str, self.layers))}."
            )
        return self.layers.index(layer)

    # --- summary ---

    @property
    def count(self) -> int:
        """Number of pairs of prompts."""
        return len(self.answers)

    @property
    def differing(self) -> int:
        """Number of pairs that the two runs answer differently."""
        return int(self.differ.sum())

    @property
    def draws(self) -> int:
        """Number of draws of random tokens."""
        return self.random.shape[4]

    @property
    def status(self) -> Status:
        """Status of the claim that label words move most answers early, and the target does late."""
        effects = [
            self.beside_random(at, layer)
            for at, layer in (("anchors", self.early), ("target", self.late))
        ]
        known = [effect for effect in effects if effect is not None]
        return jointly(*(judged(effect, null=MOST, prompts=self.differing) for effect in known))

    def into_true(self, quantity: str) -> dict[int, dict[str, Interval]]:
        """A quantity of transplants from the false run into the true one, by entrance and place.

        Entrances are the early and the late one or, where neither was changed, the first.
        """
        layers = [layer for layer in (self.early, self.late) if layer is not None]
        return {
            layer: {
                at: self.interval(quantity, direction=DIRECTIONS[0], at=at, layer=layer)
                for at in self.at
            }
            for layer in layers or self.layers[:1]
        }

    def on_page(self) -> tuple[str, ...]:
        """The map and log-probabilities."""
        return ("map", "log_prob")

    def is_drawn(self, show: str) -> bool:
        """False for log-probabilities where no answer differs."""
        return show != "log_prob" or self.differing > 0


@dataclass(frozen=True)
class Transplant(PairMeasurement[TransplantResult]):
    """Answers after the residuals entering a block were taken from the run with other demonstrations.

    Both directions are run. Costs one pass over each side for all residuals, and for each layer, place and draw
    the blocks from that layer on, on both sides.

    Attributes:
        at: Sets of tokens, each set patched separately: `anchors` (all label words), `target`, `query` (its text) or
            `template` (all tokens of the format).
        layers: Blocks whose input is patched, one at a time; None: all.
        draws: Number of random draws of tokens for each place.
        single: Each label word alone, too.
        seed: Seed of the draws.

    Raises:
        PromptError: sets that are not pairs, a pair with different numbers of demonstrations, query or template
            with different numbers of tokens, or prompts without such tokens.
        RunError: no place, one named twice, or layers the model does not have.

    Source: arXiv 2605.04061.
    """

    at: Role | Sequence[Role] = ("anchors", "target")
    layers: Sequence[Natural] | None = None
    draws: Count = 5
    single: bool = False
    seed: Natural = 0

    takes = ANSWER_KINDS

    @property
    def places(self) -> tuple[Role, ...]:
        """The places as a tuple, also for a single one."""
        return (self.at,) if isinstance(self.at, str) else tuple(self.at)

    def _layers(self, model: LanguageModel) -> tuple[int, ...]:
        return tuple(range(model.info.n_layers) if self.layers is None else self.layers)

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject prompts that are not pairs or do not align, and layers the model does not have.

        Raises:
            PromptError: says which prompts, and why.
            RunError: says which argument is invalid.
        """
        check_pairs(*data)
        check_label_words(*data)
        check_answers(data[1], "transplant")
        if len(set(self.places)) < len(self.places):
            raise RunError(f"at={list(self.places)} contains duplicates; name each place once.")
        layers = self._layers(model)
        if not layers or len(set(layers)) < len(layers):
            raise RunError(f"layers={list(layers)}; name at least one block, without duplicates.")
        check_layers(layers, model.info, "transplant")
        check_places(*data, at=self.places)

    def passes(self, model: LanguageModel, data: Pair) -> list[Variants]:
        """The residuals of both runs at every token that is taken; the transplants follow from them."""
        return self._sources(model, data, Options())

    def _sources(self, model: LanguageModel, data: Pair, options: Options) -> list[Variants]:
        sites = [Site("resid_pre", layer) for layer in self._layers(model)]
        return [
            Variants(
                source,
                [Rows(sites, read_rows(self._sets(run, source)))],
                title="residuals",
                layout=self._layout(model, (run, source), 1, options),
            )
            for run, source in zip(data, data[::-1], strict=True)
        ]

    def steps(self, model: LanguageModel, data: Pair, options: Options) -> Steps[TransplantResult]:
        """Residuals of both runs, then every transplant into both."""
        sources = yield self._sources(model, data, options)
        runs = yield [
            Variants(
                run,
                [AnswerReading()],
                title="transplants",
                variants=[[], *self._grafts(model, self._sets(run, source), values)],
                layout=self._layout(model, (run, source), 0, options),
            )
            for run, source, ((values,),) in zip(data, data[::-1], sources, strict=True)
        ]
        return self.result(model, data, runs)

    def _layout(self, model: LanguageModel, both: Pair, which: int, options: Options) -> Layout:
        """Layout of run and source alike, so that equal prompts have equal residuals."""
        sets, made = self._sets(*both), options.interventions
        lengths = [
            shared_beginning(model, side, [table(matches, place) for matches in sets], made)
            for place, side in enumerate(both)
        ]
        if not all(lengths):
            return Entered(model, both[which])
        return Begun(model, both[which], beginning=lengths[which], read=which == 1)

    def _sets(self, run: PromptBatch, source: PromptBatch) -> list[list[Matched]]:
        """Matches of every prompt for every set of tokens: places, their draws, single label words."""
        places = [
            [
                matched(run_prompt, source_prompt, at)[0]
                for run_prompt, source_prompt in zip(run, source, strict=True)
            ]
            for at in self.places
        ]
        return [*places, *self._drawn(run, source), *self._singles(run, source)]

    def _drawn(self, run: PromptBatch, source: PromptBatch) -> list[list[Matched]]:
        """The same tokens in both directions, where label words have as many on both sides."""
        sets = []
        for at in self.places:
            each = [
                drawn(run_prompt, source_prompt, at, self.draws, self.seed)
                for run_prompt, source_prompt in zip(run, source, strict=True)
            ]
            sets += [list(matches) for matches in zip(*each, strict=True)]
        return sets

    def _singles(self, run: PromptBatch, source: PromptBatch) -> list[list[Matched]]:
        if not self.single:
            return []
        each = [
            [of_word(*pair) for pair in zip(words(run_prompt), words(source_prompt), strict=True)]
            for run_prompt, source_prompt in zip(run, source, strict=True)
        ]
        return [
            [by_word[i] if i < len(by_word) else () for by_word in each]
            for i in range(max(map(len, each)))
        ]

    def _grafts(
        self, model: LanguageModel, sets: Sequence[Sequence[Matched]], values: Mapping[Site, Tensor]
    ) -> list[list[Intervention]]:
        """Grafts by layer, one for each set that has tokens."""
        read = read_rows(sets)
        return [
            [Graft.of(layer, matches, read, values[Site("resid_pre", layer)])]
            for layer in self._layers(model)
            for matches in sets
            if any(matches)
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> TransplantResult:
        """Log-probabilities of label words after every transplant."""
        layers, count = self._layers(model), len(self.places)
        plain, after = [], []
        for side, run, source in zip(read, data, data[::-1], strict=True):
            unpatched, *changed = [
                answers.label_logits.double() - answers.log_sum.double()[:, None]
                for (answers,) in side
            ]
            sets = self._sets(run, source)
            there = torch.tensor([[bool(match) for match in prompts] for prompts in sets]).T
            values = unpatched.new_full(
                (len(run), len(sets), len(layers), unpatched.shape[1]), torch.nan
            )
            # Sets without a token were not run.
            ran = there.any(0)
            laid = torch.stack(changed, 1).unflatten(1, (len(layers), int(ran.sum())))
            values[:, ran] = laid.transpose(1, 2)
            there[:, : count * (1 + self.draws)] = True
            after.append(values.where(there[..., None, None], torch.nan))
            plain.append(unpatched)
        log_probs = torch.stack(after, dim=1)
        random = log_probs[:, :, count : count * (1 + self.draws)].unflatten(2, (count, self.draws))
        taught = taught_classes(data[1])
        return TransplantResult(
            log_probs=log_probs[:, :, :count],
            random=random.transpose(3, 4),
            single=log_probs[:, :, count * (1 + self.draws) :] if self.single else None,
            plain=torch.stack(plain, dim=1),
            answers=data[0].answers,
            taught=torch.full_like(data[0].answers, -1) if taught is None else taught,
            at=self.places,
            layers=layers,
            n_layers=model.info.n_layers,
            unlike=sum(
                matched(true_prompt, false_prompt, "anchors")[1]
                for true_prompt, false_prompt in zip(*data, strict=True)
                if "anchors" in self.places
            ),
        )


transplant = door(
    Transplant,
    "transplant",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
