"""Label promoting: the contribution of a head's output to the logit of the false label, above the true one.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from typing import NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import AnyReading
from icl_mech.measurements.heads.label_attention import PAPER
from icl_mech.measurements.lens.components import (
    Components,
    FrozenComponentReading,
    Norm,
    OwnComponentReading,
    check_sum,
)
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition

PROMOTING = Definition(
    "label promoting",
    r"\operatorname{lens}(z_h W_{O,h})[\tilde y] - \operatorname{lens}(z_h W_{O,h})[y]",
    "How much the head's own output raises the logit of the false label ỹ above that of the true "
    "label y. “frozen” uses the final norm's scale from the run, so that all parts of the model "
    "sum to the logits before any soft-capping; “own” normalises the output by itself.",
    PAPER,
)


class Pushing(NamedTuple):
    """Labels that some heads promote.

    Attributes:
        promoting: Label promoting by name, in the order of the heads.
        towards: Heads that promote the false label, corrected for multiple testing over all of these.
        away: Heads that suppress it.
    """

    promoting: dict[str, Interval]
    towards: tuple[str, ...]
    away: tuple[str, ...]

    @property
    def unclear(self) -> tuple[str, ...]:
        """Heads that clearly do neither."""
        clear = {*self.towards, *self.away}
        return tuple(name for name in self.promoting if name not in clear)

    @property
    def highest(self) -> str:
        """The head that promotes most."""
        return max(self.promoting, key=lambda name: self.promoting[name].value)


def promoting_readings(prompts: PromptBatch, norm: Norm) -> list[AnyReading]:
    """The heads' lens; none if the prompts teach no false class."""
    if not prompts.has_answers or any(prompt.false_answer is None for prompt in prompts):
        return []
    return [FrozenComponentReading() if norm == "frozen" else OwnComponentReading()]


def promoting_scores(
    lens: Components | tuple[Tensor, ...],
    model: LanguageModel,
    classes: Int[Tensor, " batch"],
    answers: Int[Tensor, " batch"],
) -> Float[Tensor, "batch layer head"]:
    """Logit of the class each head would match above that of the true one.

    Args:
        lens: Readout of the heads' lens.
        model: The model it was read from.
        classes: The class each target would match.
        answers: The true class.

    Raises:
        RunError: components that do not add up.
    """
    if isinstance(lens, Components):
        check_sum(lens, model)
    heads = (lens.heads if isinstance(lens, Components) else lens[0]).movedim(-1, 1)
    each = torch.arange(len(answers))
    return heads[each, classes] - heads[each, answers]
