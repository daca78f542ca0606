"""`Writer`: autoregressive generation, one token at a time, on the keys and values of the text so far.

A pass computes the rows it is given and keeps their keys and values; a step computes one more row
for each prompt. Interventions supply hooks for the rows of a step as for any others. Those that act
on positions or roles of the prompt affect only rows of the prompt; those that act at all rows affect
new ones too.

Readings are taken at the last row of each prompt, as if it were the target of the text so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine.finite import explained
from icl_mech.engine.hooks import Values, taps_of
from icl_mech.engine.readings import Reading
from icl_mech.engine.work import Stack, Work
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import KeyValues, to_device
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.segments import Segment


@dataclass(frozen=True, eq=False)
class Written:
    """The state after a pass.

    Attributes:
        segment: The rows it computed; their keys and values are in `cache`.
        cache: Keys and values of all columns so far; empty for a model that takes no cache.
        residual: Residual after the last block in the last row of each prompt.
        values: Reductions of each reading there.
    """

    segment: Segment
    cache: KeyValues
    residual: Float[Tensor, "batch d_model"]
    values: Values

    def kept(self, rows: Sequence[int]) -> "Written":
        """Some of the rows, in this order; a row may be repeated."""
        if list(rows) == list(range(len(self.segment.prompts))):
            return self
        rows, old = list(rows), self.segment
        index = to_device(torch.tensor(rows), self.residual.device)
        segment = replace(
            old,
            prompts=old.prompts[rows],
            indices=tuple(old.indices[row] for row in rows),
            spans=tuple(old.spans[row] for row in rows),
            tokens=old.tokens[index],
            dest=old.dest[index],
            src=old.src[index],
            axes=None if old.axes is None else (old.axes[0][rows], old.axes[1][rows]),
        )
        cache = KeyValues(
            tuple(key[index] for key in self.cache.keys),
            tuple(value[index] for value in self.cache.values),
        )
        return Written(segment, cache, self.residual[index], self.values)


class Writer(Work):
    """Passes over prompts and the steps that follow, under the same interventions."""

    def __init__(
        self, readings: Sequence[Reading[Any]], interventions: Sequence[Intervention]
    ) -> None:
        """Set up a writer with these readings, which may need the target's row only.

        Raises:
            RunError: a reading of other rows, or of gradients.
        """
        for reading in readings:
            if not getattr(reading, "target_only", False):
                raise RunError(
                    f"{type(reading).__name__} reads more than the target's row, but during "
                    "generation only the row of the last token is available."
                )
        super().__init__(readings, interventions, checkpoint=False)

    @explained
    def begin_writing(self, segment: Segment) -> Written:
        """Compute the rows of a segment, which end with the last token of each prompt."""
        return self._run(segment, _ending(segment, None))

    @explained
    def go_on(self, segment: Segment, texts: Sequence[Sequence[int]]) -> Written:
        """Compute one more row for each prompt.

        Args:
            segment: The result of `following`.
            texts: Tokens written so far; the last one is computed here.
        """
        return self._run(segment, _ending(segment, texts) if self.readings else segment)

    def _run(self, segment: Segment, read: Segment) -> Written:
        values: Values = [{} for _ in self.readings]
        taps, _ = taps_of(self.readings, read, values)
        hooks, check = self._hooks(segment, taps)
        with torch.no_grad():
            output = segment.model.forward(
                segment.tokens,
                segment.mask,
                segment.positions,
                hooks=hooks,
                cache=segment.cache,
                keep_cache=segment.model.takes_cache,
            )
        check()
        self.finite.rows(output.residual, segment, [self.part(segment)])
        # Padding has position -1, so the largest position is that of the last token.
        last = segment.dest.argmax(1)
        residual = output.residual[segment.rows, last]
        cache = output.cache or KeyValues((), ())
        return Written(segment, cache, residual, Stack([self], [segment]).in_order(values))


def following(written: Written, tokens: Sequence[int]) -> Segment:
    """The rows of one more token for each prompt, after all earlier ones."""
    old = written.segment
    new = to_device(torch.tensor(tokens), old.tokens.device)[:, None]
    dest, src = old.on_host
    dest = dest.amax(1, keepdim=True) + 1
    src = torch.cat([src, dest], dim=1)
    starts = dest[:, 0].tolist()
    return Segment(
        old.model,
        old.prompts,
        old.indices,
        tuple((start, start + 1) for start in starts),
        True,
        new,
        to_device(dest, new.device),
        to_device(src, new.device),
        written.cache,
        shift=old.shift,
        axes=(dest, src),
    )


def whole(segment: Segment, texts: Sequence[Sequence[int]]) -> Segment:
    """All rows of one prompt with the text written after it, without a cache.

    The reference computation, which steps on cached keys and values must equal.
    """
    (prompt,), (text,) = segment.prompts, texts
    tokens = to_device(torch.tensor([[*prompt.tokens, *text]]), segment.tokens.device)
    dest = torch.arange(tokens.shape[1], device=tokens.device)[None]
    return replace(
        segment,
        tokens=tokens,
        dest=dest,
        src=dest,
        spans=((0, tokens.shape[1]),),
        cache=None,
        axes=None,
    )


def _ending(segment: Segment, texts: Sequence[Sequence[int]] | None) -> Segment:
    """The segment for readings: each prompt with the text written after it, its last token the target."""
    written: Sequence[Sequence[int]] = [()] * len(segment.prompts) if texts is None else texts
    prompts = tuple(map(continued, segment.prompts, written))
    return replace(segment, prompts=PromptBatch(prompts, segment.prompts.source))


def continued(prompt: Prompt, tokens: Sequence[int]) -> Prompt:
    """A prompt extended by tokens, with the last token as its target.

    The former target and the tokens after it, except the last, get the role `format`.
    """
    end = len(prompt) + len(tokens)
    if prompt.target == end - 1:
        return prompt
    before = [
        replace(span, role="format") if span.role == "target" else span for span in prompt.spans
    ]
    new = [Span("format", None, len(prompt), end)] if tokens else []
    *inside, last = [*before, *new]
    cut = [replace(last, stop=end - 1)] if last.stop - last.start > 1 else []
    target = Span("target", None, end - 1, end)
    spans = (*inside, *cut, target)
    kept = sum(span.role == "label_word" for span in spans)
    return replace(
        prompt,
        tokens=(*prompt.tokens, *tokens),
        spans=spans,
        label_classes=prompt.label_classes[:kept],
        pieces=(),
    )
