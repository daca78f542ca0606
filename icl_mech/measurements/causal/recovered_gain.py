"""How much of the gain from demonstrations a vector recovers on held-out bare queries, compared with its controls.

Let a context be the bare query with one change: the demonstrations as text, a vector at the last token, an offset of the
label logits. Its share is the mean change of the log-probability of the right answer that it causes, divided by the gain
from the demonstrations as text, over the same held-out prompts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import ClassVar, Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.accuracy.gain import Gained
from icl_mech.measurements.causal.side_effects import STATES
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import Kind, beyond_draws, mean_ends
from icl_mech.metrics.ratios import ratio_interval
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, jointly, judged
from icl_mech.results.quantities import function_of_means
from icl_mech.results.wording import listed

LOG_PROB = "log-probability of the right answer (nats)"

OPTIONAL = ("shuffled", "offset", "random")
"""Contexts that some prompts do not have."""

Claim = Literal["vector", "labels"]

VECTOR = Definition(
    "vector of the demonstrations",
    r"v_l = \frac{1}{|T|} \sum_{n \in T} h_{l+1}[q \mid D_n, x_n] - h_{l+1}[q \mid x_n]",
    "Mean over training prompts T of the output of block l at the last token q: with the demonstrations D, "
    "minus that of the query x alone.",
    "Turner et al. 2023, Steering language models with activation engineering",
)

RECOVERED = Definition(
    "recovered fraction of the gain",
    r"\frac{\sum_n \log P(y_n \mid x_n,\ h_{l+1}[q] \leftarrow h_{l+1}[q] + s\,v_l) - \log P(y_n \mid x_n)}"
    r"{\sum_n \log P(y_n \mid D_n, x_n) - \log P(y_n \mid x_n)}",
    "Over held-out queries: how much adding the vector, at the block l and the strength s chosen on the training "
    "prompts, raises the log-probability of the right answer among the label words, divided by how much the "
    "demonstrations as text raise it.",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class DemonstrationSteeringResult(Result):
    """Right answers with the demonstrations as text, as a vector, and under its controls.

    Values are not-a-number for prompts that a context was not run on: the training half in `log_prob`, `right` and `random`,
    the held-out half in `searched`.

    Attributes:
        log_prob: Log-probability of the right answer among the candidates (nats). Random directions: mean over draws.
        right: 1 where the right answer is the top candidate; of random directions the fraction of draws.
        random: The log-probability for each random direction.
        searched: Change of the log-probability with the vector, by block and strength; the vector of each prompt comes from
            the quarter of the prompts that it is not in.
        contexts: `demonstrations`, `bare`, `vector`, and of `shuffled` (labels), `offset` (of the label logits) and `random`
            those that are defined.
        vectors: The vector of each block, as `steer` takes it.
        layers, strengths: Blocks and strengths that were tried.
        layer, strength: Block and strength chosen for the vector.
        answers, labels: Right answer of each prompt, and names of the candidates.
        tasks: Names of the other tasks.
        task_right: Whether their answers are right without a vector, with it and with random directions.
        text_loss: Next-token loss of each text in nats per token, in the same states.
        notes: Reasons why a context is missing.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (VECTOR, RECOVERED)
    shows: ClassVar[tuple[str, ...]] = ("recovered", "search", "side_effects")
    axis_labels: ClassVar[Mapping[str, str]] = {
        "context": "contexts",
        "layer": "layers",
        "strength": "strengths",
    }

    log_prob: Float[Tensor, "batch context"]
    right: Float[Tensor, "batch context"]
    random: Float[Tensor, "batch draw"]
    searched: Float[Tensor, "batch layer strength"]
    contexts: tuple[str, ...]
    vectors: Float[Tensor, "block d_model"]
    layers: tuple[int, ...]
    strengths: tuple[float, ...]
    layer: int
    strength: float
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    task_right: Float[Tensor, "query task state"] | None = None
    text_loss: Float[Tensor, "text state"] | None = None
    notes: tuple[str, ...] = ()

    @property
    def held_out(self) -> list[int]:
        """Prompts that neither the vector nor its block and strength were chosen on."""
        prompts: list[int] = self.log_prob[:, 0].isfinite().nonzero()[:, 0].tolist()
        return prompts

    @property
    def count(self) -> int:
        """Number of held-out prompts."""
        return len(self.held_out)

    def _column(self, context: str, values: Tensor | None = None) -> Tensor:
        """Values of the held-out prompts in a context: of the log-probability by default.

        Raises:
            ResultError: no such context.
        """
        if context not in self.contexts:
            raise ResultError(f"context={context!r}; there are {listed(self.contexts)}.")
        values = self.log_prob if values is None else values
        return values[self.held_out, self.contexts.index(context)].double()

    def change(self, context: str) -> Gained:
        """Log-probability (nats) and accuracy in a context minus those of the bare query, paired.

        Raises:
            ResultError: no such context.
        """
        nats = mean_interval(self._column(context) - self._column("bare"))
        right = self._column(context, self.right) - self._column("bare", self.right)
        return Gained(*nats, mean_interval(right, "change"))

    @property
    def gain(self) -> Gained:
        """Gain from the demonstrations as text over the bare queries."""
        return self.change("demonstrations")

    @property
    def recovered(self) -> Gained:
        """Gain from the vector over the bare queries."""
        return self.change("vector")

    def share(self, context: str = "vector") -> Interval:
        """Fraction of the gain from demonstrations that a context recovers; not-a-number where the gain is not clear.

        Raises:
            ResultError: no such context.
        """
        bare = self._column("bare")
        change, gain = self._column(context) - bare, self._column("demonstrations") - bare
        return ratio_interval(change, gain) if float(gain.mean()) > 0 else Interval(nan, nan, nan)

    def beyond(self, control: str) -> Interval | None:
        """Log-probability with the vector minus that under a control (nats); None where it is not defined.

        For random directions, at least as wide as the prediction interval of one more of them.

        Raises:
            ResultError: no such context.
        """
        if control in OPTIONAL and control not in self.contexts:
            return None
        if control == "random":
            return beyond_draws(self._column("vector"), self.random[self.held_out])
        return mean_interval(self._column("vector") - self._column(control))

    def status_of(self, claim: Claim) -> Status:
        """Status of a claim about the vector.

        * `vector`: it recovers part of the gain, beyond random directions and, for classes, beyond a constant offset of
          the label logits. Cannot be judged where demonstrations have no clear gain.
        * `labels`: that, and beyond the vector of the same demonstrations with shuffled labels.
        """
        if judged(self.gain.nats, prompts=self.count) != "supported":
            return "cannot be judged"
        controls = [self.beyond("random")]
        controls += [self.beyond("offset")] if "offset" in self.contexts else []
        controls += [self.beyond("shuffled")] if claim == "labels" else []
        return jointly(
            *(judged(effect, prompts=self.count) for effect in (self.recovered.nats, *controls))
        )

    @property
    def status(self) -> Status:
        """Status of the claim that one vector recovers part of the gain."""
        return self.status_of("vector")

    # --- side effects ---

    def task_accuracy(self, task: str, state: str = "vector") -> Interval:
        """Accuracy on another task without a vector (`plain`); its paired change with the `vector`, or `random` directions.

        Raises:
            ResultError: no such task.
        """
        if self.task_right is None or task not in self.tasks:
            raise ResultError(f"task={task!r}. {near_matches(task, self.tasks)}")
        values = self.task_right[:, self.tasks.index(task)]
        values = values[values[:, 0].isfinite()]
        if state == "plain":
            return mean_interval(values[:, 0], "outcome")
        return mean_interval(values[:, STATES.index(state)] - values[:, 0], "change")

    def added_loss(self, state: str = "vector") -> Interval | None:
        """Change of the next-token loss on the texts (nats per token), paired; None without texts."""
        if self.text_loss is None:
            return None
        return mean_interval(self.text_loss[:, STATES.index(state)] - self.text_loss[:, 0])

    def quantities(self) -> dict[str, Quantity]:
        """Log-probability and accuracy of the held-out prompts by context, and the search on the others."""
        right = "fraction of right answers"
        return {
            "log_prob": _of_part(self.log_prob, ("context",), LOG_PROB),
            "accuracy": _of_part(self.right, ("context",), right, "outcome"),
            "searched": _of_part(self.searched, ("layer", "strength"), f"change of the {LOG_PROB}"),
        }

    def on_page(self) -> tuple[str, ...]:
        """The held-out test, the search, and side effects."""
        return self.shows

    def is_drawn(self, show: str) -> bool:
        """False for side effects where none were measured."""
        return show != "side_effects" or bool(self.tasks) or self.text_loss is not None


def _of_part(values: Tensor, dims: tuple[str, ...], unit: str, kind: Kind = "value") -> Quantity:
    """The mean over the prompts that have values."""
    there = values.flatten(1)[:, 0].isfinite()
    counted = torch.stack([values.nan_to_num(), values.isfinite().double()], 1)
    mean = function_of_means(counted, lambda means: means[:, 0] / means[:, 1])
    return Quantity(dims, values, mean, unit, mean_ends(values[there], kind))
