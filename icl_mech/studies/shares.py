"""How much of the answer goes through a path: what cutting it costs, as a share of what demonstrations add.

With a the log-probability of the right answer, c the same with the path cut, and z zero-shot, the share is the mean
of a − c over the mean of a − z, over the same prompts, with the interval of a ratio of paired means.
"""

from collections.abc import Callable

from icl_mech.measurements.accuracy.gain import GainResult
from icl_mech.measurements.isolation.edge_cuts import EdgeCutsResult
from icl_mech.metrics import Interval, ratio_interval
from icl_mech.results.wording import listed, said
from icl_mech.studies.claim import Effect, Run


def share_of_gain(run: Run, edges: str, window: str) -> Interval | None:
    """Share of the gain over zero-shot that is lost with these edges cut; None where it was not measured.

    Not-a-number where the gain is not clear.
    """
    cuts: EdgeCutsResult = run[EdgeCutsResult]
    gain: GainResult = run[GainResult]
    if edges not in cuts.edges or window not in cuts.windows or cuts.plain_log_prob is None:
        return None
    if cuts.log_prob is None or gain.over_zero_shot is None or len(gain.log_prob) != len(cuts.kept):
        return None
    place = (slice(None), cuts.edges.index(edges), cuts.windows.index(window))
    lost = cuts.plain_log_prob - cuts.log_prob[place]
    return ratio_interval(lost.double(), gain.added("zero_shot").double())


def carried(name: str, edges: str, window: str) -> Effect:
    """The share as an effect of a claim.

    Args:
        name: In words.
        edges: Which are cut, see `EdgeCuts`.
        window: In which layers.
    """
    return Effect(name, _share(edges, window))


def _share(edges: str, window: str) -> Callable[[Run], Interval | None]:
    return lambda run: share_of_gain(run, edges, window)


def by_windows(run: Run, edges: str) -> str:
    """The share in every window that was cut, in words; empty where none was."""
    cuts: EdgeCutsResult = run[EdgeCutsResult]
    shares = {window: share_of_gain(run, edges, window) for window in cuts.windows}
    return listed(
        f"{said(share)} in {window} layers" for window, share in shares.items() if share is not None
    )
