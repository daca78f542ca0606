"""Which interval a mean over prompts gets: one place for all of them.

Yes or no, and values that stand for it (calibrated scores, means over draws), have score
intervals, which are never of zero width; other values the farther end of the studentised bootstrap
and of Student's t.
"""

from typing import Literal

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import Interval
from icl_mech.metrics.means import student_ends
from icl_mech.metrics.outcomes import paired_ends, share_ends

Kind = Literal["value", "outcome", "change", "contrast", "correlation"]
"""Of per-prompt values: any number; an outcome in [0, 1]; a difference of two; of two changes; a
correlation."""


@checked(ResultError)
def mean_ends(
    per_prompt: Float[Tensor, " batch *cell"] | Bool[Tensor, " batch *cell"],
    kind: Kind = "value",
    *,
    seed: Natural = 0,
) -> tuple[Float[Tensor, " *cell"], Float[Tensor, " *cell"]]:
    """Ends of the 95 % intervals of means over prompts, for many cells at once.

    Args:
        per_prompt: Values, prompt axis first; True and False are outcomes.
        kind: `outcome`: in [0, 1], Wilson's interval with an effective n; `change`: differences
            of two outcomes, Tango's; `contrast`: of two changes, likewise; `value`: the
            studentised bootstrap or Student's t, whichever reaches farther (`student_ends`), of a
            `correlation` never beyond -1 and 1.
        seed: Of the bootstrap.
    """
    if kind == "change":
        return paired_ends(per_prompt.double())
    if kind == "contrast":
        low, high = paired_ends(per_prompt.double() / 2)
        return 2 * low, 2 * high
    if kind == "outcome" or per_prompt.dtype == torch.bool:
        return share_ends(per_prompt.double())
    low, high = student_ends(per_prompt, seed=seed)
    if kind == "correlation":
        return low.clamp(-1.0, 1.0), high.clamp(-1.0, 1.0)
    return low, high


@checked(ResultError)
def mean_interval(
    per_prompt: Float[Tensor, " batch"] | Bool[Tensor, " batch"],
    kind: Kind = "value",
    *,
    seed: Natural = 0,
) -> Interval:
    """Mean over prompts with its interval, see `mean_ends`."""
    low, high = mean_ends(per_prompt, kind, seed=seed)
    return Interval(float(per_prompt.double().mean()), float(low), float(high))
