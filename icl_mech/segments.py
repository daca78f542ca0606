"""`Segment`: the rows of prompts that one forward pass computes, padded, with their prompt positions.

Readings and interventions work on segments only. A segment need not hold whole prompts:
`dest` names the prompt position of every computed row and `src` that of every attended
column, so the same code serves full passes, passes after a cached prefix and
single-token passes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.models import KeyValues, LanguageModel, Resume, to_device
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.identity import tokenizer_identity

PADDING = -1


@dataclass(frozen=True, eq=False)
class Segment:
    """Rows of a batch of prompts, ready for one forward pass.

    Attributes:
        model: The model that runs it.
        prompts: The prompts, one per batch row.
        indices: Their numbers in the run.
        spans: Computed positions of each prompt, half-open.
        left: Padding is on the left (else on the right).
        tokens: Ids of the computed rows.
        dest: Prompt position of each computed row, -1 at padding.
        src: Prompt position of each attended column (cached ones first), -1 at padding.
        cache: Keys and values of the positions before `tokens`.
    """

    model: LanguageModel
    prompts: PromptBatch
    indices: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    left: bool
    tokens: Int[Tensor, "batch dest"]
    dest: Int[Tensor, "batch dest"]
    src: Int[Tensor, "batch src"]
    cache: KeyValues | None = None
    start: Resume | None = None
    """The block at which to enter, with the residual of the computed rows there."""
    shift: int = 0
    """Added to prompt positions to get the position ids of the computed rows."""
    axes: tuple[Int[Tensor, "batch dest"], Int[Tensor, "batch src"]] | None = None
    """Copies of `dest` and `src` in host memory, if known."""

    @classmethod
    def build(
        cls,
        model: LanguageModel,
        prompts: PromptBatch,
        indices: Sequence[int],
        *,
        spans: Sequence[tuple[int, int]] | None = None,
        left: bool = True,
        cache: KeyValues | None = None,
        cached: Int[Tensor, "batch cached"] | None = None,
        shift: int = 0,
    ) -> "Segment":
        """Lay out the rows `spans` of each prompt (default: all of it).

        Args:
            model: The model that will run them.
            prompts: The prompts.
            indices: Their numbers in the run.
            spans: Positions to compute, half-open, one pair per prompt.
            left: Pad on the left.
            cache: Keys and values of earlier positions.
            cached: Prompt position of each cached column, -1 at padding; in host memory.
            shift: Position ids of the computed rows minus their prompt positions.

        Raises:
            PromptError: token ids outside the vocabulary, or a prompt longer than the context.
        """
        check_fits(model, prompts)
        parts = tuple(spans) if spans is not None else tuple((0, len(p)) for p in prompts)
        width = max(stop - start for start, stop in parts)
        tokens = torch.zeros(len(prompts), width, dtype=torch.long)
        dest = torch.full((len(prompts), width), PADDING)
        for row, (prompt, (start, stop)) in enumerate(zip(prompts, parts, strict=True)):
            place = slice(width - (stop - start), width) if left else slice(0, stop - start)
            tokens[row, place] = torch.tensor(prompt.tokens[start:stop])
            dest[row, place] = torch.arange(start, stop)
        src = dest if cached is None else torch.cat([cached.cpu(), dest], dim=1)
        return cls(
            model,
            prompts,
            tuple(indices),
            parts,
            left,
            to_device(tokens, model.device),
            to_device(dest, model.device),
            to_device(src, model.device),
            cache,
            shift=shift,
            axes=(dest, src),
        )

    @property
    def blocks(self) -> int:
        """Number of blocks that its rows go through."""
        return self.model.info.n_layers - (0 if self.start is None else self.start.layer)

    @property
    def form(self) -> tuple[object, ...]:
        """The properties segments must share to be joined."""
        entered = None if self.start is None else self.start.layer
        cached = None if self.cache is None else [key.shape[1:] for key in self.cache.keys]
        widths = self.dest.shape[1], self.src.shape[1]
        return *widths, self.left, self.shift, entered, cached, id(self.model)

    @classmethod
    def joined(cls, parts: Sequence["Segment"]) -> "Segment":
        """The rows of segments with the same `form` as one segment, part after part."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        caches = [part.cache for part in parts if part.cache is not None]
        starts = [part.start.residual for part in parts if part.start is not None]
        axes = tuple(
            torch.cat(tensors) for tensors in zip(*(p.on_host for p in parts), strict=True)
        )
        dest = torch.cat([part.dest for part in parts])
        return cls(
            first.model,
            PromptBatch(tuple(p for part in parts for p in part.prompts), first.prompts.source),
            tuple(index for part in parts for index in part.indices),
            tuple(span for part in parts for span in part.spans),
            first.left,
            torch.cat([part.tokens for part in parts]),
            dest,
            dest if first.cache is None else torch.cat([part.src for part in parts]),
            KeyValues.stacked(caches) if caches else None,
            Resume(first.start.layer, torch.cat(starts)) if first.start is not None else None,
            first.shift,
            (axes[0], axes[1]),
        )

    @property
    def on_host(self) -> tuple[Int[Tensor, "batch dest"], Int[Tensor, "batch src"]]:
        """`dest` and `src` in host memory."""
        return (self.dest.cpu(), self.src.cpu()) if self.axes is None else self.axes

    @classmethod
    def whole(cls, model: LanguageModel, prompts: PromptBatch) -> "Segment":
        """Whole prompts, padded on the left."""
        return cls.build(model, prompts, range(len(prompts)))

    @cached_property
    def mask(self) -> Bool[Tensor, "batch src"]:
        """True at real columns."""
        return self.src != PADDING

    @cached_property
    def positions(self) -> Int[Tensor, "batch dest"]:
        """Position ids the model gets (0 at padding)."""
        return (self.dest + self.shift).clamp(min=0)

    @cached_property
    def rows(self) -> Int[Tensor, " batch"]:
        """Batch indices 0 ... batch-1, for indexing."""
        return torch.arange(len(self.prompts), device=self.tokens.device)

    def column(self, row: int, position: int) -> int | None:
        """Index along `dest` of a position of one prompt; None if it is not computed here."""
        start, stop = self.spans[row]
        if not start <= position < stop:
            return None
        return self.tokens.shape[1] - (stop - position) if self.left else position - start

    def columns(self, positions: Int[Tensor, "batch n"]) -> Int[Tensor, "batch n"]:
        """Indices along `dest` of positions that are all computed here."""
        dest = self.on_host[0]
        start = torch.tensor([start for start, _ in self.spans])
        padding = (dest == PADDING).sum(1) if self.left else torch.zeros_like(start)
        device = self.tokens.device
        return to_device(positions, device) - to_device(start - padding, device)[:, None]

    @cached_property
    def targets_inside(self) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
        """Indices (batch, dest) of the targets computed in this segment."""
        columns = [self.column(row, prompt.target) for row, prompt in enumerate(self.prompts)]
        pairs = [(row, column) for row, column in enumerate(columns) if column is not None]
        table = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
        rows, columns = to_device(table, self.tokens.device)
        return rows, columns

    @cached_property
    def is_target(self) -> Bool[Tensor, "batch dest"]:
        """True at the targets computed in this segment."""
        flags = torch.zeros_like(self.dest, dtype=torch.bool)
        flags[self.targets_inside] = True
        return flags

    @property
    def target_row(self) -> Int[Tensor, " batch"]:
        """Index along `dest` of each prompt's target; all targets must be in the segment."""
        return self.targets_inside[1]

    @cached_property
    def label_tokens(self) -> Int[Tensor, "batch label"]:
        """First token ids of the label words, or of the choices, of each prompt."""
        return to_device(self.prompts.choice_tokens, self.tokens.device)

    @cached_property
    def dest_classes(self) -> Int[Tensor, "batch dest"]:
        """Displayed class where a computed row is a first label token, else -1."""
        return self.along(self.prompts.position_classes, self.dest)

    @cached_property
    def src_classes(self) -> Int[Tensor, "batch src"]:
        """Displayed class where a column is a first label token, else -1."""
        return self.along(self.prompts.position_classes, self.src)

    @cached_property
    def dest_roles(self) -> Int[Tensor, "batch dest"]:
        """Index in `ROLES` of each computed row's role, -1 at padding."""
        return self.along(self.prompts.position_roles, self.dest)

    @cached_property
    def src_roles(self) -> Int[Tensor, "batch src"]:
        """Index in `ROLES` of each column's role, -1 at padding."""
        return self.along(self.prompts.position_roles, self.src)

    def along(self, values: Int[Tensor, "batch pos"], axis: Int[Tensor, "batch n"]) -> Tensor:
        """Per-position values of the prompts, arranged along `dest` or `src`; -1 at padding."""
        values = to_device(values, axis.device)
        inside = axis.clamp(min=0, max=values.shape[1] - 1)
        laid = values.gather(1, inside)
        return torch.where((axis >= 0) & (axis < values.shape[1]), laid, PADDING)

    def at_target(self, activation: Float[Tensor, "batch dest *rest"]) -> Tensor:
        """The rows of an activation at the prompts' targets."""
        return activation[self.rows, self.target_row]

    def halves(self) -> "Iterator[Segment]":
        """The same rows in two segments, for a segment that does not fit into memory."""
        count = len(self.prompts)
        src = self.on_host[1]
        cached = src.shape[1] - self.dest.shape[1]
        for part in (slice(0, count // 2), slice(count // 2, count)):
            half = Segment.build(
                self.model,
                self.prompts[part],
                self.indices[part],
                spans=self.spans[part],
                left=self.left,
                cache=None if self.cache is None else self.cache.rows(part),
                cached=src[part, :cached] if cached else None,
                shift=self.shift,
            )
            if self.start is not None:
                # The half may be narrower: columns that only padded its prompts are dropped.
                width = half.tokens.shape[1]
                columns = slice(-width, None) if self.left else slice(0, width)
                residual = self.start.residual[part, columns]
                half = replace(half, start=Resume(self.start.layer, residual))
            yield half


def check_fits(model: LanguageModel, prompts: PromptBatch) -> None:
    """Reject prompts this model cannot run.

    Raises:
        PromptError: prompts of another tokenizer, token ids outside the vocabulary, or a prompt
            longer than the context.
    """
    made_by = prompts.source.get("tokenizer")
    identity = tokenizer_identity(model.tokenizer) if made_by else None
    if made_by and identity and identity["fingerprint"] != made_by["fingerprint"]:
        raise PromptError(
            f"The prompts were built with the tokenizer {made_by['name']!r} (fingerprint "
            f"{made_by['fingerprint']}), but {model.info.name!r} has {identity['name']!r} "
            f"({identity['fingerprint']}), in which their ids stand for other texts. Build them "
            "with this model: build_prompts(task, model)."
        )
    longest = int(prompts.lengths.max())
    if longest > model.info.n_ctx:
        raise PromptError(
            f"A prompt has {longest} tokens, {longest - model.info.n_ctx} more than the context of "
            f"{model.info.name!r} ({model.info.n_ctx}). Use fewer shots or shorter texts."
        )
    largest = max(max(prompt.tokens) for prompt in prompts)
    if largest >= model.info.d_vocab:
        raise PromptError(
            f"A prompt contains token id {largest}, but the vocabulary of {model.info.name!r} has "
            f"{model.info.d_vocab} entries; the prompts were built with another model's tokenizer."
        )


def by_length(
    lengths: Sequence[int], *, tokens: int, size: int | None, padded: bool = True
) -> list[list[int]]:
    """Indices of prompts in batches of similar length, longest first.

    Args:
        lengths: Length of each prompt.
        tokens: Largest number of padded tokens of a batch (one prompt always fits).
        size: Largest number of prompts of a batch.
        padded: False: a batch holds prompts of one length, so that none is padded.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in order:
        full = batches and (
            (len(batches[-1]) + 1) * lengths[batches[-1][0]] > tokens
            or (size is not None and len(batches[-1]) >= size)
            or (not padded and lengths[batches[-1][0]] != lengths[index])
        )
        if full or not batches:
            batches.append([])
        batches[-1].append(index)
    return batches
