"""`Change`: an intervention made by the user, in a range of layers, at places that survive moved tokens.

A place is named by demonstration and offset, not by position: token 5 of demonstration 2 stays what it is when
another demonstration is dropped.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from icl_mech.errors import RunError
from icl_mech.interventions import Cut, Intervention, Isolate, Patch, Reweight, ZeroHeads
from icl_mech.interventions.token_sets import TokenSet
from icl_mech.models import ModelInfo
from icl_mech.prompts import Prompt, PromptBatch

Needs = Literal["", "token", "demo", "factor"]
"""What has to be chosen besides layers."""


@dataclass(frozen=True)
class Change:
    """One intervention.

    Attributes:
        what: Its kind, see `KINDS`.
        layers: First and last layer.
        demo: The demonstration it concerns, from 0; for a token, None is the query.
        token: Offset of the token in its demonstration, or after the last one.
        heads: (layer, head) pairs.
        factor: Factor by which attention is multiplied.
    """

    what: str
    layers: tuple[int, int] = (0, 0)
    demo: int | None = None
    token: int | None = None
    heads: tuple[tuple[int, int], ...] = ()
    factor: float = 1.0

    @property
    def of_query(self) -> bool:
        """True if it concerns a token or span of the query."""
        return self.what == "span" or (self.token is not None and self.demo is None)

    @property
    def place(self) -> tuple[object, ...]:
        """The key another change must share to replace this one."""
        return self.what, self.demo, self.token

    def words(self, *, of_answers: bool = False) -> str:
        """Description such as `label words isolated · layers 0–4`; `of_answers` words it for free-form answers."""
        if self.what == "heads":
            return f"{len(self.heads)} head{'s' * (len(self.heads) != 1)} set to zero at the target"
        first, last = self.layers
        text = spoken(KINDS[self.what].words, of_answers=of_answers).format(
            demo="the query" if self.demo is None else f"demonstration {self.demo + 1}",
            span=(self.demo or 0) + 1,
            token=(self.token or 0) + 1,
            factor=f"{self.factor:g}",
        )
        return f"{text} · layer{f' {first}' if first == last else f's {first}–{last}'}"

    def position(self, prompt: Prompt) -> int:
        """Position of its token in the prompt.

        Raises:
            RunError: the prompt has no such token.
        """
        tokens = extents(prompt)[-1 if self.demo is None else self.demo]
        if (self.token or 0) >= len(tokens):
            of = "the query" if self.demo is None else f"demonstration {self.demo}"
            raise RunError(
                f"A change names token {self.token} of {of}, which has only {len(tokens)} tokens."
            )
        return tokens[self.token or 0]


def spoken(text: str, *, of_answers: bool) -> str:
    """The text, with label words called answers if answers are free-form."""
    return re.sub(r"\blabel( word)?", "answer", text) if of_answers else text


def extents(prompt: Prompt) -> list[range]:
    """The tokens of each demonstration, then those of the query up to the target; a free text is all query."""
    if prompt.kind == "vocabulary":
        return [range(prompt.target + 1)]
    ranges: dict[int, range] = {}
    for span in prompt.spans:
        if span.demo is not None:
            begun = ranges.get(span.demo, range(span.start, span.stop))
            ranges[span.demo] = range(begun.start, span.stop)
    end = max((extent.stop for extent in ranges.values()), default=0)
    return [*(ranges[demo] for demo in sorted(ranges)), range(end, prompt.target + 1)]


Others = Callable[[], PromptBatch]
"""The same prompts with the opposite labels."""


@dataclass(frozen=True)
class Kind:
    """A kind of change in a range of layers.

    Attributes:
        short: Text of the control that selects it.
        words: Description of a change, with `{demo}`, `{span}`, `{token}` and `{factor}`.
        make: Builds the intervention.
        needs: What has to be chosen first.
    """

    short: str
    words: str
    make: Callable[[Change, list[int], PromptBatch, ModelInfo, Others], Intervention]
    needs: Needs = ""


def _token(change: Change, layers: list[int], prompts: PromptBatch, *_: object) -> Intervention:
    positions = [[change.position(prompt)] for prompt in prompts]
    return Isolate(layers, positions=positions)


def _hide(change: Change, layers: list[int], *_: object) -> Intervention:
    return Cut(TokenSet("units", units=[change.demo or 0]), "after", layers=layers)


def _reweight(
    change: Change, layers: list[int], prompts: PromptBatch, info: ModelInfo, *_: object
) -> Intervention:
    beta = torch.zeros(info.n_layers, info.n_heads, prompts.n_labels)
    beta[layers] = math.log(change.factor)
    return Reweight(beta)


KINDS: dict[str, Kind] = {
    "isolate": Kind(
        "isolate label words", "label words isolated", lambda c, layers, *_: Isolate(layers)
    ),
    "to_target": Kind(
        "cut label words → target",
        "target cannot read label words",
        lambda c, layers, *_: Cut("label_word", "target", layers=layers),
    ),
    "between": Kind(
        "cut between demonstrations",
        "demonstrations cannot read each other",
        lambda c, layers, *_: Cut("units", "units", relation="others", layers=layers),
    ),
    "patch": Kind(
        "patch from opposite labels",
        "label words’ states from the opposite labels",
        lambda c, layers, prompts, info, others: Patch(
            "resid_post", layers=layers, at="label_word", source=others()
        ),
    ),
    "reweight": Kind("re-weight", "target reads label words × {factor}", _reweight, "factor"),
    "hide": Kind("hide demonstration", "{demo} hidden from later tokens", _hide, "demo"),
    "token": Kind("isolate token", "token {token} of {demo} isolated", _token, "token"),
    "span": Kind("hide span", "span {span} hidden from later tokens", _hide, "demo"),
    "position": Kind("isolate token", "token {token} isolated", _token, "token"),
    "heads": Kind("zero heads", "", lambda c, *_: ZeroHeads([*c.heads])),
}
"""Kinds by name. Heads are chosen one by one, not by a range of layers."""

OF_TEXTS = ("span", "position")
"""Kinds for free texts, which have no demonstrations; the first is the default of a drag."""

OF_PROMPTS = tuple(name for name in KINDS if name not in (*OF_TEXTS, "heads"))
"""Kinds for prompts with demonstrations and a query; the first is the default of a drag."""

OF_DEMONSTRATIONS = tuple(name for name in OF_PROMPTS if name != "token")
"""Kinds that need a demonstration."""


def interventions(
    changes: Sequence[Change], prompts: PromptBatch, info: ModelInfo, others: Others
) -> list[Any]:
    """The changes as interventions on these prompts, in order.

    Args:
        changes: The changes.
        prompts: The prompts they act on.
        info: Facts about the model.
        others: Returns the same prompts with the opposite labels.

    Raises:
        RunError: a prompt does not have the token of a change.
    """
    return [
        KINDS[change.what].make(
            change, [*range(change.layers[0], change.layers[1] + 1)], prompts, info, others
        )
        for change in changes
    ]
