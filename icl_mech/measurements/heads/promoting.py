"""Label promoting: what the output of a head adds to the logit of the false label, above the true one.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Mapping, Sequence

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import AnyReading
from icl_mech.measurements.heads.chosen import head_name
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
from icl_mech.results import Definition, Figure
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.wording import counted, listed, said, spelled
from icl_mech.shapes import Scatter

PROMOTING = Definition(
    "label promoting",
    r"\operatorname{lens}(z_h W_{O,h})[\tilde y] - \operatorname{lens}(z_h W_{O,h})[y]",
    "What the head's own output adds to the logit of the false label ỹ above the true one y. “frozen” "
    "takes the scale of the run's own final norm, so that all parts of the model add up; “own” norms "
    "the output alone.",
    PAPER,
)


def promoting_readings(prompts: PromptBatch, norm: Norm) -> list[AnyReading]:
    """The heads' lens; none where no false class is taught."""
    if not prompts.has_answers or any(prompt.false_answer is None for prompt in prompts):
        return []
    return [FrozenComponentReading() if norm == "frozen" else OwnComponentReading()]


def promoting_scores(
    found: Components | tuple[Tensor, ...],
    model: LanguageModel,
    classes: Int[Tensor, " batch"],
    answers: Int[Tensor, " batch"],
) -> Float[Tensor, "batch layer head"]:
    """Logit of the class each head would match above that of the true one.

    Args:
        found: What the heads' lens read.
        model: It was read from.
        classes: The class each target would match.
        answers: The true one.

    Raises:
        RunError: components that do not add up.
    """
    if isinstance(found, Components):
        check_sum(found, model)
    heads = (found.heads if isinstance(found, Components) else found[0]).movedim(-1, 1)
    each = torch.arange(len(answers))
    return heads[each, classes] - heads[each, answers]


def against_promoting(
    matching: Float[Tensor, "layer head"],
    promoting: Float[Tensor, "layer head"],
    chosen: tuple[tuple[int, int], ...],
    prompts: int,
) -> Scatter:
    """Prefix matching against label promoting; chosen heads and the extremes carry their names.

    Args:
        matching: Means over prompts.
        promoting: Means over prompts.
        chosen: (layer, head) pairs.
        prompts: Number of prompts.
    """
    n_layers, n_heads = matching.shape
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    pushed = promoting.flatten()
    named = [heads.index(head) for head in chosen]
    group, others = f"{spelled(len(chosen))} heads that match prefixes most", "other heads"
    return Scatter(
        title="Do heads that match prefixes promote the false label?",
        x=matching.flatten(),
        y=pushed,
        names=tuple(map(head_name, heads)),
        groups=tuple(group if head in chosen else others for head in heads),
        x_title="prefix-matching score",
        y_title="logit of false label above true label",
        note=f"means over {counted(prompts, 'prompt')}",
        order=(group, others) if len(chosen) < len(heads) else (group,),
        meanings=("false", "other"),
        named=tuple(dict.fromkeys((*named, int(pushed.argmax()), int(pushed.argmin())))),
        corner="false induction heads would stand here",
    )


def promoted(
    top: Mapping[str, Interval],
    towards: Sequence[str],
    away: Sequence[str],
    prompts: int,
    heads: int,
    given: str,
) -> Figure:
    """Do the heads that match prefixes promote the false label?

    Args:
        top: Label promoting of the heads that match most, by name.
        towards: Those that push to the false label, corrected for looking at all of `top`.
        away: Those that push away from it.
        prompts: Number of prompts.
        heads: Number of heads of the model.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    left = [name for name in top if name not in towards and name not in away]
    best = max(top, key=lambda name: top[name].value)
    highest, parts = said(top[best], sign=True), []
    for own, verb in ((towards, "to"), (away, "away from")):
        if own:
            named = [f"{name} ({said(top[name], sign=True)})" for name in own]
            parts.append(f"{listed(named)} push{'es' * (len(own) == 1)} {verb} the false label")
    if left == list(top):
        parts = [f"none of {listed(left)} is clear of 0 (highest {best}, {highest})"]
        if len(top) == 1:
            parts = [f"{best} is not clear of 0 ({highest})"]
    elif left:
        parts.append(f"{listed(left)} {'is' if len(left) == 1 else 'are'} not clear of 0")
    start = "No" if len(away) == len(top) else "Not shown"
    if prompts < FEWEST_PROMPTS:
        start = f"Cannot be judged from {counted(prompts, 'prompt')}"
        parts = [f"the highest is {best} with {highest}"]
    elif towards:
        start = f"Yes, {len(towards)} of {len(top)}" if len(towards) < len(top) else "Yes"
    return Figure(
        "both",
        "Do the heads that match prefixes promote the false label?",
        f"{start}: {'; '.join(parts)}.",
        f"**Prefix matching against label promoting of all {heads} heads**, means over "
        f"{counted(prompts, 'prompt')}. Filled squares: the {spelled(len(top))} heads that match prefixes "
        "most, named; also named: the extremes of label promoting. In brackets: 95 % bootstrap intervals "
        f"over prompts{given}.",
        "",
        "what else a head does: label promoting is its direct effect on the logits only. The sentence is "
        f"corrected for looking at {counted(len(top), 'head')}; the intervals are of each head alone.",
        "Matching and promoting",
    )
