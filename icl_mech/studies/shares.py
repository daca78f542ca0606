"""How much of the answer goes through a path: the cost of cutting it, as a fraction of what demonstrations add.

Let a be the log-probability of the right answer, c the same with the path cut, and z the same zero-shot. The fraction
is the mean of a − c divided by the mean of a − z, over the same prompts, with the interval of a ratio of paired means.
"""

from collections.abc import Callable
from typing import Any

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.accuracy.gain import GainResult
from icl_mech.measurements.isolation.edge_cuts import EdgeCutsResult
from icl_mech.metrics import Interval
from icl_mech.metrics.ratios import ratio_interval
from icl_mech.studies.claim import Effect, Run

LOSS = "the loss of the right answer's log-probability"
"""The measure that all effects of cut edges share."""


Parts = tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]


def lost_and_added(run: Run, edges: str, window: str) -> Parts | None:
    """Loss of each prompt with these edges cut, and its gain from demonstrations; None if either is not known."""
    cuts: EdgeCutsResult = run[EdgeCutsResult]
    gain: GainResult = run[GainResult]
    added = gain.added("zero_shot")
    if edges not in cuts.edges or window not in cuts.windows or cuts.plain_log_prob is None:
        return None
    if cuts.log_prob is None or added is None or len(added) != len(cuts.kept):
        return None
    place = (slice(None), cuts.edges.index(edges), cuts.windows.index(window))
    return (cuts.plain_log_prob - cuts.log_prob[place]).double(), added.double()


def share_of_gain(run: Run, edges: str, window: str) -> Interval | None:
    """Fraction of the gain over zero-shot that is lost with these edges cut; None if it was not measured.

    Not-a-number if the gain is not clear.
    """
    parts = lost_and_added(run, edges, window)
    return None if parts is None else ratio_interval(*parts)


def ratio(name: str, parts: Callable[[Run], Parts | None], **more: Any) -> Effect:
    """A ratio of means over prompts as an effect of a claim."""

    def interval(run: Run) -> Interval | None:
        known = parts(run)
        return None if known is None else ratio_interval(*known)

    return Effect(name, interval, parts=parts, **more)


def carried(name: str, edges: str, window: str) -> Effect:
    """The fraction of the gain that is lost with edges cut, as an effect of a claim.

    Args:
        name: Name of the effect, in words.
        edges: The edges that are cut, see `EdgeCuts`.
        window: The layers in which they are cut.
    """
    return ratio(name, lambda run: lost_and_added(run, edges, window))


def lost(name: str, edges: str, window: str) -> tuple[Effect, ...]:
    """Loss of the right answer's log-probability with edges cut, also beyond the same number of matched random edges.

    None if these edges were not cut in this window.
    """

    def effect(suffix: str, estimate: Callable[[EdgeCutsResult], Interval | None]) -> Effect:
        def read(run: Run) -> Interval | None:
            cuts: EdgeCutsResult = run[EdgeCutsResult]
            known = edges in cuts.edges and window in cuts.windows and cuts.log_prob is not None
            return estimate(cuts) if known else None

        return Effect(f"{name}{suffix}, nats", read, measure=LOSS)

    return (
        effect("", lambda cuts: cuts.lost(edges, window)),
        effect(" beyond random ones", lambda cuts: cuts.lost_beside(edges, window)),
    )


def by_windows(run: Run, edges: str) -> dict[str, Interval]:
    """This fraction in every window that was cut."""
    cuts: EdgeCutsResult = run[EdgeCutsResult]
    shares = {window: share_of_gain(run, edges, window) for window in cuts.windows}
    return {window: share for window, share in shares.items() if share is not None}
