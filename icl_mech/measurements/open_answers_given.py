"""What is answered where every prompt has words of its own: open answers and texts.

No answer is the same in all prompts, so there is no constant answer to beat and no class to confuse.
"""

from collections.abc import Mapping

import torch

from icl_mech._typing import Bool, Int, Tensor
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.results import Figure
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import Bars

RIGHT, ELSE = "right", "another"
WHOLE, FIRST = "whole answer said", "first token likeliest"


def shares(
    predicted: Int[Tensor, " batch"],
    labels: tuple[str, ...],
    exact_match: Bool[Tensor, " batch"] | None,
    rank: Int[Tensor, " batch"] | None,
) -> dict[str, Interval]:
    """Share of prompts with each kind of answer, with Wilson intervals.

    Args:
        predicted: Place of the answer among the words of its prompt, the right one first.
        labels: What these words are.
        exact_match: The greedy continuation is an accepted answer, if known.
        rank: Of the accepted answers' first tokens, if known.
    """
    own = {name: predicted == place for place, name in enumerate(labels) if place < 2}
    known = own if "taught" in labels or "its rival" in labels else {labels[0]: own[labels[0]]}
    known[ELSE] = ~torch.stack([*known.values()]).any(0)
    if rank is not None:
        known[FIRST] = rank == 0
    if exact_match is not None:
        known[WHOLE] = exact_match
    return {name: wilson_interval(value) for name, value in known.items()}


def share_bars(found: Mapping[str, Interval], labels: tuple[str, ...], note: str) -> Bars:
    """The shares as dots, beside chance where answers are choices.

    Args:
        found: By `shares`.
        labels: What the words of a prompt are.
        note: What the intervals rest on.
    """
    value, low, high = torch.tensor([list(own) for own in found.values()]).double().unbind(1)
    chance = 1 / len(labels)
    return Bars(
        "What is answered",
        tuple(found),
        ("share",),
        *(value[:, None], low[:, None], high[:, None]),
        y_title="share of prompts",
        note=note,
        meanings=("target",),
        levels=((chance, f"chance {told(chance)}"),) if labels[0] == RIGHT else (),
    )


def answered(
    found: Mapping[str, Interval],
    labels: tuple[str, ...],
    prompts: int,
    log_prob: Interval | None,
    given: str,
) -> Figure:
    """How often the right answer is given, among the choices and of all the vocabulary.

    Args:
        found: By `shares`.
        labels: What the words of a prompt are.
        prompts: How many there are.
        log_prob: Mean log-probability of the whole answer, if known.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    first, total = labels[0], counted(prompts, "prompt")
    if first == RIGHT:
        text = f"{said(found[first])} of {total} get the right one of {len(labels)} choices (chance {told(1 / len(labels))})"
        if "taught" in found:
            text += f", {said(found['taught'])} the one that the demonstrations teach"
    else:
        text = f"In {said(found[first])} of {total} the likeliest token is the text's next one"
    if WHOLE in found and log_prob is not None:
        text += (
            f". Of all the vocabulary, the first token of an accepted answer is the likeliest in "
            f"{said(found[FIRST])}, and the whole answer is what the model says in {said(found[WHOLE])}; its "
            f"mean log-probability is {said(log_prob)} nats"
        )
    return Figure(
        "accuracy",
        "How often is the right answer given?",
        f"{text}.",
        f"**Share of prompts by what is answered**, {total}. Bars: 95 % Wilson intervals{given}.",
        limits="what the model would answer with other choices: an answer counts among those of its prompt."
        * (first == RIGHT),
        short="Answers",
    )
