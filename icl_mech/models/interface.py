"""The interface of a model to the rest of the package, and the only list of sites.

A *site* is a hook point of the forward pass, which can be read or edited. Everything
above `models/` uses sites, never the hook names of a library.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch.nn.functional import pad

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ModelError
from icl_mech.models.norms import FrozenNorm
from icl_mech.models.undo import Undo
from icl_mech.models.watching import Watch
from icl_mech.models.windows import windows_of


@dataclass(frozen=True)
class KeyValues:
    """Keys and values of a prefix, one pair per layer, as the model caches them.

    `batch kv_head pos d_head`; heads may differ between layers, and between keys and values.
    """

    keys: tuple[Float[Tensor, "batch _ _ _"], ...]
    values: tuple[Float[Tensor, "batch _ _ _"], ...]

    @property
    def length(self) -> int:
        """Number of cached positions."""
        return int(self.keys[-1].shape[2])

    @cached_property
    def nbytes(self) -> int:
        """Total bytes, with tensors that prompts share counted for each prompt."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def expand(self, batch: int) -> "KeyValues":
        """The cache of one prompt repeated for `batch` prompts (views, no copy)."""
        return KeyValues(
            tuple(key.expand(batch, -1, -1, -1) for key in self.keys),
            tuple(value.expand(batch, -1, -1, -1) for value in self.values),
        )

    def rows(self, part: slice) -> "KeyValues":
        """The cache of some of the prompts."""
        return KeyValues(
            tuple(key[part] for key in self.keys), tuple(value[part] for value in self.values)
        )

    def padded(self, width: int) -> "KeyValues":
        """The cache padded with zeros on the left to `width` positions."""
        missing = (0, 0, width - self.length, 0)
        return KeyValues(
            tuple(pad(key, missing) for key in self.keys),
            tuple(pad(value, missing) for value in self.values),
        )

    @classmethod
    def stacked(cls, parts: "Sequence[KeyValues]") -> "KeyValues":
        """The caches of several batches of prompts, all of equal length, as one."""
        return cls(
            tuple(torch.cat(keys) for keys in zip(*(part.keys for part in parts), strict=True)),
            tuple(torch.cat(values) for values in zip(*(p.values for p in parts), strict=True)),
        )

    def select(self, index: Int[Tensor, " kept"]) -> "KeyValues":
        """The cache reduced to the positions `index`, in that order."""
        return KeyValues(
            tuple(key[:, :, index.to(key.device)] for key in self.keys),
            tuple(value[:, :, index.to(value.device)] for value in self.values),
        )


SiteName = Literal[
    "resid_pre",  # residual entering the block, batch pos d_model
    "q",  # query projection (before rotary),    batch pos head d_head
    "k",  # key projection (before rotary),      batch pos kv_head d_head
    "v",  # value projection,                    batch pos kv_head d_head
    "scores",  # attention before softmax,       batch head dest src
    "pattern",  # attention after softmax,       batch head dest src
    "z",  # per-head output before W_O,          batch pos head d_head
    "attn_out",  # what attention adds,          batch pos d_model
    "mlp_post",  # MLP activation,               batch pos d_mlp
    "mlp_out",  # what the MLP adds,             batch pos d_model
    "resid_post",  # residual leaving the block, batch pos d_model
]
"""Hook points of a block, in the order of the forward pass."""


class Site(NamedTuple):
    """One hook point of the forward pass: a name and a block index."""

    name: SiteName
    layer: int


HookFunction = Callable[[Tensor], Tensor | None]
"""Takes the activation; returns its replacement, or None to leave it unchanged."""

Hook = tuple[Site, HookFunction]

NormFunction = Callable[[Tensor], Tensor]
"""A norm layer, which maps `[batch, pos, d_model]`."""


OTHER_MIXING = "positions are mixed by more than attention"
"""Beginning of the notes of hybrids, with state-space, convolution or linear-attention layers."""


@dataclass(frozen=True)
class ModelInfo:
    """Facts about a loaded model that results record and methods need."""

    name: str
    architecture: str
    library: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_vocab: int
    n_ctx: int
    dtype: str
    device: str
    processed_weights: bool = False
    """True if norms or biases were folded or weights centred (TransformerLens processing)."""
    revision: str | None = None
    notes: tuple[str, ...] = ()
    weights_format: str = ""
    """Number format the weights were stored in (`Q4_1`, `BF16`, `F32`, ...); "" if unknown."""

    @property
    def is_hybrid(self) -> bool:
        """True if more than attention carries information from one position to another."""
        return any(note.startswith(OTHER_MIXING) for note in self.notes)

    def summary(self) -> str:
        """One line with name, layers, heads, the format of stored weights and the dtype of computation."""
        stored = f"weights stored as {self.weights_format}, " if self.weights_format else ""
        return (
            f"{self.name}: {self.n_layers} layers, {self.n_heads} heads, {stored}computed in "
            f"{self.dtype} on {self.device}"
        )


class Resume(NamedTuple):
    """The residual stream entering a block, to resume a pass from there."""

    layer: int
    residual: Float[Tensor, "batch pos d_model"]


class ForwardInput(NamedTuple):
    """One pass as requested: the arguments of `LanguageModel.forward`."""

    tokens: Int[Tensor, "batch pos"]
    mask: Bool[Tensor, "batch src"]
    positions: Int[Tensor, "batch pos"]
    hooks: Sequence[Hook]
    cache: KeyValues | None
    keep_cache: bool
    start: Resume | None
    stop: int

    @property
    def caches(self) -> bool:
        """True if keys and values are given or kept."""
        return self.cache is not None or self.keep_cache


@dataclass(frozen=True)
class ForwardOutput:
    """The residual stream after the last block that ran, and the cache if it was requested."""

    residual: Float[Tensor, "batch pos d_model"]
    cache: KeyValues | None = None


@dataclass(repr=False)
class LanguageModel(ABC):
    """A decoder model as the engine sees it; the adapters in this folder implement it."""

    wrapped: Any
    info: ModelInfo
    tokenizer: Any = field(repr=False)

    def __repr__(self) -> str:
        """Name, size and number formats."""
        return f"<{type(self).__name__} {self.info.summary()}>"

    @property
    def module(self) -> torch.nn.Module:
        """The module that holds the weights."""
        module: torch.nn.Module = self.wrapped
        return module

    def own_logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits of the original model, for checks."""
        logits: Tensor = self.module(tokens)
        return logits

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch src"],
        positions: Int[Tensor, "batch pos"],
        *,
        hooks: Sequence[Hook] = (),
        cache: KeyValues | None = None,
        keep_cache: bool = False,
        start: Resume | None = None,
        stop: int | None = None,
    ) -> ForwardOutput:
        """Run all blocks.

        Args:
            tokens: Ids of the positions to compute.
            mask: True at real tokens, over cached and new positions together.
            positions: Position index of each new token (padding: any valid index).
            hooks: Hooks for this pass only, see `installed`.
            cache: Keys and values of the positions before `tokens`; never changed.
            keep_cache: Also return the keys and values of all positions.
            start: Enter at a later block with the residual given there; earlier blocks are
                not run, and their part of a kept cache is that of `cache`.
            stop: Stop before this block: the residual entering it is returned, and later blocks are
                not run.
        """
        stop = self.info.n_layers if stop is None else stop
        self.watch.passes += 1
        return self._forward(
            ForwardInput(tokens, mask, positions, hooks, cache, keep_cache, start, stop)
        )

    @abstractmethod
    def _forward(self, asked: ForwardInput) -> ForwardOutput:
        """Implement `forward` with the library of the adapter."""

    @abstractmethod
    def installed(self, hooks: Sequence[Hook]) -> AbstractContextManager[None]:
        """Context with these hooks installed; they are removed afterwards, also on errors."""

    def logits(self, residual: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_vocab"]:
        """Vocabulary logits of residuals: final norm, unembedding, scaling and soft-cap."""
        return self.unembed(self.final_norm(residual))

    def label_logits(
        self, residual: Float[Tensor, "batch *rows d_model"], labels: Int[Tensor, "batch label"]
    ) -> Float[Tensor, "batch *rows label"]:
        """The columns `labels` of `logits`, without computing the others."""
        return self.unembed_labels(self.final_norm(residual), labels)

    @abstractmethod
    def final_norm(
        self, residual: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """The norm before the unembedding."""

    @abstractmethod
    def unembed(
        self, normed: Float[Tensor, "*rows d_model"], *, bias: bool = True
    ) -> Float[Tensor, "*rows d_vocab"]:
        """Logits by unembedding (with or without its bias), scaling and soft-cap."""

    def unembed_labels(
        self,
        normed: Float[Tensor, "batch *rows d_model"],
        labels: Int[Tensor, "batch label"],
        *,
        bias: bool = True,
    ) -> Float[Tensor, "batch *rows label"]:
        """The columns `labels` of `unembed`, from the needed rows of the unembedding only."""
        weight, biases = self.readout(labels)
        logits = torch.einsum("bld,b...d->b...l", weight, normed)
        if bias and biases is not None:
            logits = logits + biases.reshape(len(biases), *[1] * (normed.ndim - 2), -1)
        return self._scaled(logits)

    @abstractmethod
    def _scaled(self, logits: Tensor) -> Tensor:
        """Scaling and soft-cap of logits."""

    @abstractmethod
    def readout(
        self, labels: Int[Tensor, "batch label"]
    ) -> tuple[Float[Tensor, "batch label d_model"], Float[Tensor, "batch label"] | None]:
        """Rows of the unembedding for these labels, and its biases if it has any."""

    @property
    @abstractmethod
    def final_norm_parts(self) -> FrozenNorm:
        """The final norm with its scale held fixed."""

    @abstractmethod
    def attention_norm(self, layer: int) -> tuple[FrozenNorm, NormFunction] | None:
        """The norm between attention and residual stream, in blocks that have one."""

    @abstractmethod
    def head_weights(
        self, layer: int
    ) -> tuple[Float[Tensor, "head d_head d_model"], Float[Tensor, " d_model"] | None]:
        """`W_O` by head, and the bias of the attention output."""

    def projected(
        self, site: Site, residual: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows head d_head"] | None:
        """Queries, keys or values that a block would compute from other residuals, by its norm and projection.

        None if the norm or the projection is not a separate module. Whether the block computes nothing else between them
        is for the caller to check: projections of the residual itself must equal what the site holds.
        """
        return None

    @abstractmethod
    def gradients(self) -> AbstractContextManager[None]:
        """Context in which activations carry gradients and parameters do not."""

    @abstractmethod
    def checkpointed(self) -> AbstractContextManager[None]:
        """Context in which the backward pass recomputes each block instead of keeping it."""

    @property
    @abstractmethod
    def has_own_hooks(self) -> bool:
        """True while hooks added by the caller are installed; they may look at positions."""

    @property
    def splits(self) -> bool:
        """True if the prefix of a prompt may be run separately without changing the result."""
        return not self.has_own_hooks

    @abstractmethod
    def has_site(self, name: SiteName) -> bool:
        """True if the site exists in every block and can be read there."""

    @property
    def without_pattern(self) -> tuple[int, ...]:
        """Blocks without an attention pattern, which mix positions in another way."""
        return ()

    def refuse_missing(self, sites: Sequence[Site]) -> None:
        """Reject sites the model does not have, before anything runs.

        Raises:
            ModelError: names the first one, and the blocks without an attention pattern.
        """
        for site in sites:
            if not self.has_site(site.name):
                raise ModelError(f"{self.info.name!r} has no {site.name!r} in every block.")

    @property
    def beside_attention(self) -> tuple[str, ...]:
        """Names of other layers in its blocks that are known to mix positions."""
        return ()

    @property
    def takes_cache(self) -> bool:
        """False if it cannot resume from keys and values; then prompts share nothing."""
        return True

    @cached_property
    def windows(self) -> tuple[int | None, ...]:
        """Number of tokens that a row of attention sees, itself included, by layer; None: all before it."""
        return windows_of(self.module, self.info.n_layers)

    @cached_property
    def undo(self) -> Undo:
        """The registry of temporary changes of the model, which reverts them."""
        return Undo()

    @cached_property
    def takes_positions(self) -> bool:
        """False if it counts positions itself and ignores position ids."""
        # The same tokens at other positions: equal residuals mean that the ids are ignored.
        ids = torch.tensor([[1, 2]], device=self.device)
        residuals = []
        with torch.no_grad():
            for second in (1, 3):
                places = torch.tensor([[0, second]], device=self.device)
                residuals.append(self.forward(ids, ids.bool(), places).residual)
        return not torch.equal(*residuals)

    def fingerprint(self, *, exact: bool = False) -> str:
        """Digest of the weights, over every parameter and buffer; see `Watch.weights`.

        Args:
            exact: Read every byte, regardless of version counters.
        """
        return self.watch.weights(exact=exact)

    @property
    def settings(self) -> str:
        """Digest of everything else that determines outputs: factors, switches, the configuration."""
        return self.watch.settings()

    @cached_property
    def watch(self) -> Watch:
        """The cache of digests, which makes repeated fingerprints cheap."""
        return Watch(self.module)

    def refresh(self) -> None:
        """Drop cached values derived from the weights if the weights have changed since."""
        if self.fingerprint() != self.__dict__.get("_made_of"):
            self.renew()
            self.__dict__["_made_of"] = self.fingerprint()

    def renew(self) -> None:
        """Drop cached values derived from the weights."""
        for name in ("final_norm_parts", "_attention_norms", "_readout"):
            self.__dict__.pop(name, None)

    @property
    def device(self) -> torch.device:
        """The device of input tokens."""
        return torch.device(self.info.device)
