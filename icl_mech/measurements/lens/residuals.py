"""Readouts of the logit lens: residuals and components, unembedded to the label words.

No tensor of vocabulary size is kept, and with `vocabulary=False` none is
computed: only the label words' columns of the unembedding are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading, common_prefix
from icl_mech.engine.readings import AtLast, OfEntries
from icl_mech.errors import PromptError
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.models import LanguageModel, ModelInfo, Site, at_least_float32
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition
from icl_mech.segments import Segment

LENS = Definition(
    "logit lens",
    r"\operatorname{logits}_\ell = W_U\,\operatorname{LN}_f(h_\ell) + b_U, \quad \ell = 0 \dots L",
    "The residual stream at the last token of the prompt, decoded as if the model ended there: "
    "h_0 is the embedding, h_l the output of layer l. After the last layer, this is the model's "
    "actual output.",
    "Halawi et al. 2023, Overthinking the Truth, §4",
)

LensVariant = Literal["sound", "reference"]
Positions = Literal["target", "demonstrations"]
"""Rows that are read: the target, or the token before each demonstration's label."""

_ROWS = 64
"""Residuals unembedded to the whole vocabulary at a time."""


@dataclass
class LensRows:
    """Result of `LayerLensReading`.

    Attributes:
        label_logits: Logits by row (target, or each demonstration), entry and label.
        log_sum: Log-sum-exp over the vocabulary, or None.
        top_tokens: Ids of the C top tokens, or None.
        top_logits: Their logits, or None.
    """

    label_logits: Float[Tensor, "batch row entry label"]
    log_sum: Float[Tensor, "batch row entry"] | None
    top_tokens: Int[Tensor, "batch row entry label"] | None
    top_logits: Float[Tensor, "batch row entry label"] | None = None

    def probs(self) -> Float[Tensor, "batch row entry label"]:
        """Probabilities of the label words over the vocabulary."""
        return self._over_vocabulary(self.label_logits)

    def top_probs(self) -> Float[Tensor, "batch row entry label"]:
        """Probabilities of the top tokens."""
        return self._over_vocabulary(self.top_logits)

    def _over_vocabulary(self, logits: Tensor | None) -> Tensor:
        if logits is None or self.log_sum is None:
            raise ValueError("probabilities need the vocabulary")
        return (logits.double() - self.log_sum.double()[..., None]).exp()


@dataclass
class LayerLensReading(Reading[LensRows]):
    """Readout of the residual entering every block, and of the one leaving the last block.

    `sound`: the final norm once and the complete readout of the model. `reference`: the
    norm twice at the last entry, and no bias of the unembedding (the paper's code). `lens`: the map
    of every entry but the last before it is read; None: no map, the logit lens.
    """

    variant: LensVariant = "sound"
    at: Positions = "target"
    vocabulary: bool = True
    lens: FittedLens | None = None

    @property
    def target_only(self) -> bool:  # type: ignore[override]
        """True for the target; the rows before labels are earlier."""
        return self.at == "target"

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """Hook points of the L + 1 entries."""
        return [Site("resid_pre", 0), *(Site("resid_post", i) for i in range(info.n_layers))]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Logits packed as `[batch, row, label | log-sum | top C ids | their logits]`."""
        model, sound = segment.model, self.variant == "sound"
        entry, rows = site.layer + (site.name == "resid_post"), self._rows(activation, segment)
        normed = self.as_read(model, entry, rows)
        labels = at_least_float32(model.unembed_labels(normed, segment.label_tokens, bias=sound))
        if not self.vocabulary:
            return labels
        flat = normed.flatten(0, 1)
        packed = [
            _of_vocabulary(at_least_float32(model.unembed(rows, bias=sound)), labels.shape[-1])
            for rows in flat.split(_ROWS)
        ]
        rest = torch.cat(packed).reshape(*normed.shape[:2], -1)
        return torch.cat([labels, rest], dim=-1)

    def as_read(self, model: LanguageModel, entry: int, rows: Tensor) -> Tensor:
        """Input of the unembedding for residuals of an entry."""
        normed = model.final_norm(rows if self.lens is None else self.lens.mapped(entry, rows))
        twice = entry == model.info.n_layers and self.variant == "reference"
        return model.final_norm(normed) if twice else normed

    def _rows(self, activation: Tensor, segment: Segment) -> Tensor:
        if self.at == "target":
            return segment.at_target(activation)[:, None]
        columns = segment.columns(segment.prompts.label_positions - 1)
        return activation[segment.rows[:, None], columns]

    def collect(self, kept: Kept) -> LensRows:
        """Unpack the parts, with the entries on a separate axis."""
        packed = kept.stacked().transpose(1, 2)
        if not self.vocabulary:
            return LensRows(packed, None, None)
        # label logits, log-sum-exp, C token ids, C logits: 3 C + 1 columns.
        n_labels = (packed.shape[-1] - 1) // 3
        labels, log_sum, top, best = packed.split([n_labels, 1, n_labels, n_labels], dim=-1)
        return LensRows(
            labels.contiguous(), log_sum[..., 0].contiguous(), top.long(), best.contiguous()
        )


@dataclass
class LastEntryReading(AtLast, LayerLensReading):
    """The last entry alone: the model's label logits (`reference`: those of the paper's code)."""


def _of_vocabulary(logits: Float[Tensor, "row vocab"], n_labels: int) -> Tensor:
    """Log-sum-exp, the ids of the largest logits (exact in float32 below 2^24), and these logits."""
    best, ids = logits.topk(n_labels, dim=-1)
    return torch.cat([logits.logsumexp(-1, keepdim=True), ids.float(), best], dim=-1)


def check_demonstrations(prompts: PromptBatch) -> None:
    """Reject prompts that cannot be read demonstration by demonstration.

    Raises:
        PromptError: unequal numbers of demonstrations, none, or a label at position 0.
    """
    counts = {len(prompt.label_classes) for prompt in prompts}
    first = min((min(prompt.label_positions, default=0) for prompt in prompts), default=0)
    if len(counts) != 1 or not first:
        raise PromptError(
            "Reading at demonstrations needs the same number of demonstrations in every prompt, "
            f"each with a token before its label; found {sorted(counts)} demonstrations."
        )


@dataclass(eq=False)
class ResidualReading(OfEntries, Reading[Tensor]):
    """Residuals of every entry at given positions of each prompt, `[prompt, entry, place, d_model]`."""

    positions: Int[Tensor, "batch place"]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Residuals `[batch, place, d_model]`."""
        columns = segment.columns(self.positions[list(segment.indices)])
        return activation[segment.rows[:, None], columns]


class Split(NamedTuple):
    """Numbers of the prompts a lens is fitted on, and of the held-out prompts."""

    fitted: tuple[int, ...]
    held_out: tuple[int, ...]


def split_prompts(prompts: PromptBatch, share: float, seed: int) -> Split:
    """Split prompts at random into two parts; equal prompts stay together.

    Raises:
        PromptError: fewer than two different prompts.
    """
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, prompt in enumerate(prompts):
        alike.setdefault(prompt.tokens, []).append(number)
    groups = list(alike.values())
    if len(groups) < 2:
        raise PromptError(
            f"Only {len(groups)} of the {len(prompts)} prompts are distinct, but a lens needs some "
            "to be fitted on and others to be evaluated on. Give more prompts."
        )
    order = np.random.default_rng(seed).permutation(len(groups))
    count = min(max(1, round(share * len(groups))), len(groups) - 1)
    parts = [
        sorted(n for g in numbers for n in groups[g]) for numbers in (order[count:], order[:count])
    ]
    return Split(tuple(parts[0]), tuple(parts[1]))


def draw_positions(
    prompts: PromptBatch, count: int, skip_first: int, seed: int
) -> Int[Tensor, "batch place"]:
    """The same number of positions of each prompt, drawn without replacement.

    The first positions, and those of a beginning that all prompts share, are left out: every prompt would
    contribute the same row, both to the fitted and to the held-out ones.

    Raises:
        PromptError: a prompt has no other position.
    """
    first = max(skip_first, common_prefix(prompts) if len(prompts) > 1 else 0)
    left = [len(prompt) - first for prompt in prompts]
    if min(left) < 1:
        raise PromptError(
            f"The shortest prompt has {min(map(len, prompts))} tokens, and the first {first} are "
            "left out (skip_first, or a beginning that all prompts share), so no position "
            "remains. Use longer prompts."
        )
    generator = np.random.default_rng([seed, 1])
    wanted = min(count, *left)
    rows = [np.sort(generator.permutation(available)[:wanted]) + first for available in left]
    return torch.from_numpy(np.stack(rows))


def flat(
    residuals: Float[Tensor, "batch entry place d_model"],
) -> Float[Tensor, "entry row d_model"]:
    """All rows of an entry, flattened over prompts and places."""
    return residuals.transpose(0, 1).flatten(1, 2)
