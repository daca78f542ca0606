"""Maps of one number per head: the largest heads, and those significant after correction over all heads."""

from collections.abc import Sequence

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.metrics import Interval, above_together
from icl_mech.metrics.intervals import ONE_SIDED
from icl_mech.results import Definition, Samples
from icl_mech.results.judging import FEWEST_PROMPTS, Status

Head = tuple[int, int]
"""Layer and head."""

FRAMED = 5
"""Maximum number of heads framed in maps, and named in sentences."""

FAMILY = Definition(
    "clear among all heads",
    r"\frac{\bar e_h}{\operatorname{se}(e_h)} > Q_{0.975}\left(\max_{h'} t^*_{h'}\right)",
    "A head counts as clear if its mean effect divided by its standard error exceeds the largest "
    "such ratio t* over all heads in 97.5 % of the resamples drawn under the null hypothesis that "
    "no head has an effect; likewise for effects below 0.",
)


def heads_of(shape: Sequence[int]) -> list[Head]:
    """All (layer, head) pairs."""
    return [(layer, head) for layer in range(shape[0]) for head in range(shape[1])]


def ordered(values: Float[Tensor, "layer head"], k: int) -> tuple[Head, ...]:
    """The k heads with the largest values, largest first."""
    order = values.flatten().argsort(descending=True, stable=True)[:k].tolist()
    return tuple(divmod(int(place), values.shape[1]) for place in order)


def clear_heads(
    per_prompt: Float[Tensor, "batch layer head"], *, below: bool = False
) -> tuple[Head, ...]:
    """Heads whose mean lies above 0 (or below), largest first; a joint statement about all heads.

    If no head's mean does, at least one is named in 2.5 % of the cases.
    """
    signed = -per_prompt if below else per_prompt
    above = above_together(signed, level=ONE_SIDED)
    order = ordered(signed.double().mean(0), above.numel())
    return tuple(head for head in order if bool(above[head]))


def any_clear(clear: bool | Sequence[Head], prompts: int) -> Status:
    """Status of the claim that some head (or block) is clear, corrected for multiple testing over all."""
    if prompts < FEWEST_PROMPTS:
        return "cannot be judged"
    return "supported" if clear else "not shown"


def intervals_of(samples: Samples, heads: Sequence[Head]) -> dict[str, Interval]:
    """Intervals of these heads, by name."""
    ends = (samples.values, samples.low, samples.high)
    return {head_name(head): Interval(*(float(end[head]) for end in ends)) for head in heads}
