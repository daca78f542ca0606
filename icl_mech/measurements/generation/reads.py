"""Readings of the row of each written token: its attention, and the spans of the prompt it falls on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech._typing import Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import Prompt, Role
from icl_mech.segments import Segment

LABEL_WORD = "label word"
"""Beginning of the names of label-word spans."""

OF_DEMONSTRATIONS: dict[Role, str] = {
    "demo_text": "text {}",
    "rationale": "rationale {}",
    "label_word": f"{LABEL_WORD} {{}}",
}
"""Roles with a separate span for each demonstration."""

FIRST = "first token"
"""A separate span whatever its role: in most models it is an attention sink."""

NAMES: dict[Role, str] = {
    "bos": FIRST,
    "narrative": "narrative",
    "format": "template",
    "query_text": "query",
    "target": "query",
    "unknown": "other tokens",
}

WRITTEN = "written"
"""The span of the tokens written so far."""


@dataclass
class AttentionRow(Reading[Tensor]):
    """Attention of the target's row to every column, averaged over heads."""

    target_only: ClassVar[bool] = True
    ragged: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Attention `[batch, src]`."""
        return activation[segment.rows, :, segment.target_row].float().mean(1)

    def collect(self, kept: Kept) -> Tensor:
        """Attention `[row, layer, src]`."""
        return torch.stack(kept.per_prompt())


def span_names(prompts: Sequence[Prompt]) -> tuple[str, ...]:
    """Names of all spans of some prompts, those of demonstrations in their order, then `WRITTEN`."""
    names: dict[str, None] = {}
    for prompt in prompts:
        names |= dict.fromkeys(span_of(prompt))
    order = list(names)
    numbered = sorted(
        (name for name in order if name[-1:].isdigit()),
        key=lambda name: (int(name.rpartition(" ")[2]), order.index(name)),
    )
    first = [name for name in (FIRST, "narrative") if name in names]
    rest = [name for name in order if name not in numbered and name not in first]
    return (*first, *numbered, *rest, WRITTEN)


def span_of(prompt: Prompt) -> list[str]:
    """Span that each token of a prompt belongs to; the first token is a separate span."""
    names: list[str] = []
    for span in prompt.spans:
        numbered = OF_DEMONSTRATIONS.get(span.role)
        name = NAMES.get(span.role, span.role)
        if numbered is not None and span.demo is not None:
            name = numbered.format(span.demo + 1)
        names += [name] * (span.stop - span.start)
    return [FIRST, *names[1:]]


def late(n_layers: int) -> slice:
    """The last third of the layers."""
    return slice(n_layers - max(1, n_layers // 3), n_layers)
