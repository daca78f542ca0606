"""`LeftOut`: the result of `icl_mech.measurements.by_demonstration.left_out`."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.by_demonstration.definitions import LEFT_OUT
from icl_mech.measurements.by_demonstration.texts import left_out
from icl_mech.metrics import Interval, mean_ends, mean_interval
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.shapes import LayerCurves


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOut(Result):
    """What leaving out single demonstrations changes, in prompt order.

    Attributes:
        change: Log-probability of the true label, among the label words, with a demonstration minus
            without it (nats).
        log_prob: The same with all of them.
        classes: Class each demonstration displays.
        answers: True class of each query.
        labels: Names of the classes.
    """

    change: Float[Tensor, "batch demo"]
    log_prob: Float[Tensor, " batch"]
    classes: Int[Tensor, "batch demo"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()

    title: ClassVar[str] = "Leaving one demonstration out"
    definitions: ClassVar[tuple[Definition, ...]] = LEFT_OUT

    def quantities(self) -> dict[str, Quantity]:
        """`change` by demonstration, and the log-probability with all of them."""
        return {
            "change": Quantity(("demo",), self.change, unit="log-probability (nats)"),
            "log_prob": Quantity((), self.log_prob, unit="log-probability (nats)"),
        }

    def same_class(self) -> Interval | None:
        """Effect of demonstrations of the query's class minus that of the others, mean over prompts.

        Prompts that have one kind only are left out; None if there are no others.
        """
        same = self.classes == self.answers[:, None]
        both = same.any(1) & (~same).any(1)
        if not bool(both.any()):
            return None
        own, change = same[both].double(), self.change[both].double()
        means = [(change * part).sum(1) / part.sum(1) for part in (own, 1 - own)]
        return mean_interval(means[0] - means[1])

    def drawing(self) -> LayerCurves:
        """Mean effects, counted back from the query: of all, and of the query's own class.

        The latter where enough prompts have such a demonstration there.
        """
        count = self.change.shape[1]
        same = self.classes == self.answers[:, None]
        rows = [torch.stack([self.change.double().mean(0), *mean_ends(self.change)])]
        for part in (same, ~same):
            row = torch.full((3, count), torch.nan, dtype=torch.float64)
            for demo in range(count):
                own = self.change[part[:, demo], demo]
                if len(own) >= FEWEST_PROMPTS:
                    low, high = mean_ends(own)
                    row[:, demo] = torch.stack([own.double().mean(), low, high])
            rows.append(row)
        value, low, high = torch.stack(rows, dim=1).flip(-1)
        return LayerCurves(
            "What a demonstration changes",
            ("all", "of the query's class", "of other classes"), value, low, high,
            "log-probability of the true label (nats)", basis(self),
            x=tuple(float(place) for place in range(1, count + 1)),
            x_title="demonstrations back from the query",
            meanings=("other", "label", "text"), levels=((0.0, "changes nothing"),),
        )  # fmt: skip

    def figures(self) -> list[Figure]:
        """Which demonstrations help."""
        mean = self.change.double().mean(0)
        place = int(mean.argmax())
        effect, back = self.interval("change", demo=place), len(mean) - place
        return left_out(
            self.same_class(), effect, back, prompts=len(self.change), given=given(self)
        )

    def summary(self) -> str:
        """Own class against others."""
        same = self.same_class()
        return (
            f"effect of the query's class minus that of others: {same} nats, {len(self.change)} prompts"
            if same is not None
            else f"{self.change.shape[1]} demonstrations, {len(self.change)} prompts"
        )
