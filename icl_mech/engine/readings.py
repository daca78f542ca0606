"""Base classes of readings: the sites they need, how each activation is reduced, and the loss of gradients."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Generic, Literal, TypeVar

import torch
from torch.nn.functional import cross_entropy

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError, RunError
from icl_mech.models import ModelInfo, Site, at_least_float32, to_device, to_host
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

Loss = Literal["label", "prediction", "vocab", "next", "rest"]

OF_CLASSES: tuple[Loss, ...] = ("label", "prediction", "vocab")
"""Losses that need label words."""


def check_loss_of(prompts: PromptBatch, loss: Loss) -> None:
    """Raise if a loss is not defined for these prompts.

    Raises:
        PromptError: no label words, no answers, or no tokens after a target.
    """
    if loss in OF_CLASSES and prompts.n_labels < 2:
        raise PromptError(
            f"loss={loss!r} is computed over label words, but these prompts are texts without "
            "classes. Use 'next' (the token after the target) or 'rest' (all tokens after it)."
        )
    if loss in ("label", "vocab"):
        _ = prompts.answers
    without = [i for i, prompt in enumerate(prompts) if prompt.target + 1 == len(prompt)]
    if loss == "rest" and without:
        raise PromptError(
            f"loss='rest' needs tokens after the target; prompt {without[0]} ends with its "
            "target. Build the prompts with continuation= or an earlier target=, or use "
            "loss='next'."
        )


def target_loss(
    residual: Float[Tensor, "batch dest d_model"], segment: Segment, loss: Loss
) -> Float[Tensor, " batch"]:
    """Cross-entropy of each prompt at its target, from the residuals of all rows.

    * `label`: over the label logits, true class; classes that begin with the same token are one;
    * `prediction`: the same, predicted class;
    * `vocab`: over the whole vocabulary, first token of the true class;
    * `next`: over the whole vocabulary, the token after the target; where there is none, the
      model's top token;
    * `rest`: the same, summed over all tokens after the target.
    """
    if loss == "rest":
        return torch.stack([_rest(residual, segment, row) for row in range(len(residual))])
    at_target = segment.at_target(residual)
    if loss == "next":
        logits = at_least_float32(segment.model.logits(at_target))
        follow = [
            prompt.tokens[prompt.target + 1 : prompt.target + 2] for prompt in segment.prompts
        ]
        known = torch.tensor([following[0] if following else -1 for following in follow])
        known = to_device(known, logits.device)
        tokens = torch.where(known >= 0, known, logits.detach().argmax(-1))
        return cross_entropy(logits, tokens, reduction="none")
    if loss == "vocab":
        answers = to_device(segment.prompts.answers, residual.device)
        tokens = segment.label_tokens.gather(1, answers[:, None])[:, 0]
        return cross_entropy(
            at_least_float32(segment.model.logits(at_target)), tokens, reduction="none"
        )
    logits = at_least_float32(segment.model.label_logits(at_target, segment.label_tokens))
    if loss == "prediction":
        answers = logits.argmax(-1)
    else:
        answers = to_device(segment.prompts.answers, residual.device)
    if segment.prompts.score != "first":
        logits, answers = _by_first_token(logits, answers, segment.label_tokens)
    return cross_entropy(logits, answers, reduction="none")


def _by_first_token(
    logits: Float[Tensor, "batch label"],
    answers: Int[Tensor, " batch"],
    tokens: Int[Tensor, "batch label"],
) -> tuple[Float[Tensor, "batch label"], Int[Tensor, " batch"]]:
    """Logits and answers in which the first of several classes with the same token represents all of them."""
    first = (tokens[:, :, None] == tokens[:, None, :]).int().argmax(-1)
    again = first != torch.arange(tokens.shape[1], device=tokens.device)
    return logits.masked_fill(again, -torch.inf), first.gather(1, answers[:, None])[:, 0]


def _rest(residual: Float[Tensor, "batch dest d_model"], segment: Segment, row: int) -> Tensor:
    prompt = segment.prompts[row]
    first = segment.column(row, prompt.target) or 0
    behind = to_device(torch.tensor(prompt.tokens[prompt.target + 1 :]), residual.device)
    logits = at_least_float32(segment.model.logits(residual[row, first : first + len(behind)]))
    return cross_entropy(logits, behind, reduction="sum")


Value = TypeVar("Value")

ON_DEVICE = 2**28
"""Bytes that all readings of a run together may keep on the device until its end."""


class Kept:
    """The reductions of one reading over a whole run, in input order.

    Reductions are copied into a buffer allocated once per site. Left where they were allocated,
    among the activations of their batch, these small tensors would fragment memory, and a run
    would take more of it with every batch.

    Buffers are on the device and are copied to the host in one transfer (`landed`); those that are
    `ragged`, or too large, are in host memory.
    """

    def __init__(self, count: int, *, ragged: bool = False, share: int = 1) -> None:
        """Make a store for `count` prompts; `ragged` if the shape of reductions differs between batches.

        `share` is the number of readings of the run that share the space on the device.
        """
        self.count, self.most = count, ON_DEVICE // share
        self.ragged = ragged
        self._buffers: dict[Site, Tensor] = {}
        self._rows: list[list[Tensor]] = [[] for _ in range(count)]

    def add(self, prompts: Sequence[int], values: Mapping[Site, Tensor]) -> None:
        """Keep the reductions of one batch, which holds these prompts."""
        if self.ragged:
            for value in to_host(list(values.values())):
                for prompt, row in zip(prompts, value, strict=True):
                    # A clone: a view would keep the values of the whole batch in memory.
                    self._rows[prompt].append(row.clone())
            return
        if not self._buffers:
            size = sum(value[:1].nbytes for value in values.values()) * self.count
            device = None if size <= self.most else torch.device("cpu")
            for site, value in values.items():
                shape = (self.count, *value.shape[1:])
                self._buffers[site] = torch.empty(
                    shape, dtype=value.dtype, device=device or value.device
                )
        for site, value in values.items():
            buffer = self._buffers[site]
            if value.shape[1:] != buffer.shape[1:]:
                raise RunError(
                    f"A reading of {site.name!r} of block {site.layer} returned rows of shape "
                    f"{list(value.shape[1:])} after rows of shape {list(buffer.shape[1:])}; if "
                    "shapes depend on the lengths of prompts, set ragged = True in the reading."
                )
        numbers = torch.tensor(list(prompts))
        on_cpu = [site for site in values if self._buffers[site].device.type == "cpu"]
        given = {**values, **dict(zip(on_cpu, to_host([values[s] for s in on_cpu]), strict=True))}
        places = {
            device: to_device(numbers, device) for device in {v.device for v in given.values()}
        }
        for site, value in given.items():
            self._buffers[site].index_copy_(0, places[value.device], value.detach())

    @staticmethod
    def landed(
        stores: "Iterable[Kept]", moved: Callable[[list[Tensor]], list[Tensor]] = to_host
    ) -> None:
        """Copy all buffers of some readings to host memory, in one transfer."""
        places = [(store._buffers, site) for store in stores for site in store._buffers]
        landed = moved([buffers[site] for buffers, site in places])
        for (buffers, site), tensor in zip(places, landed, strict=True):
            buffers[site] = tensor

    def stacked(self) -> Tensor:
        """Reductions `[prompt, site, ...]`, if all sites have the same shape."""
        return torch.stack(list(self._buffers.values()), dim=1)

    def by_site(self) -> dict[Site, Tensor]:
        """Reductions `[prompt, ...]` of each site, if shapes differ by site."""
        return dict(self._buffers)

    def per_prompt(self) -> list[Tensor]:
        """Reductions `[site, ...]` for every prompt, if they are ragged."""
        return [torch.stack(rows) for rows in self._rows]


class Reading(ABC, Generic[Value]):
    """A quantity read from forward passes.

    `reduce` is called inside the hook, once per site and batch, and returns a small tensor
    with the batch axis first; the activation itself is never kept.
    """

    target_only: ClassVar[bool] = False
    """True if nothing but the target's row is read: then earlier rows need not be computed
    for every prompt."""

    ragged: ClassVar[bool] = False
    """True if the shape of what `reduce` returns differs between batches."""

    finite: ClassVar[bool] = True
    """False if what `reduce` returns may be NaN or infinite; otherwise a run rejects such values."""

    @abstractmethod
    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """Sites this reading needs, in the order of its results."""

    @abstractmethod
    def reduce(
        self, site: Site, activation: Float[Tensor, " batch *rest"], segment: Segment
    ) -> Tensor:
        """What is kept of one activation, batch axis first."""

    @abstractmethod
    def collect(self, kept: Kept) -> Value:
        """The value over all prompts, in input order."""


class GradientReading(ABC, Generic[Value]):
    """A quantity read from an activation and the gradient of the loss with respect to it.

    `reduce` is called in the backward pass, once per site and batch; for an additive reading
    also under `torch.vmap`, so it must not write in place into tensors it made.
    """

    additive: ClassVar[bool] = False
    """True if the reductions over disjoint sets of rows add up to the reduction over all: then the
    common prefix of prompts can be computed separately."""

    ragged: ClassVar[bool] = False
    """True if the shape of what `reduce` returns differs between batches."""

    finite: ClassVar[bool] = True
    """False if what `reduce` returns may be NaN or infinite; otherwise a run rejects such values."""

    loss: Loss

    @abstractmethod
    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """Sites this reading needs, in the order of its results."""

    @abstractmethod
    def shape(self, segment: Segment) -> tuple[int, ...]:
        """Shape of what `reduce` returns, batch axis first."""

    @abstractmethod
    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """What is kept of one activation and its gradient, batch axis first."""

    def edges(self, segment: Segment) -> tuple[str, Float[Tensor, "batch kind dest src"]] | None:
        """How heads are reduced, and the edges, if `reduce` sums saliency of patterns over edges.

        Such sums can be computed on a server; None, the default, is always valid.
        """
        return None

    @abstractmethod
    def collect(self, kept: Kept) -> Value:
        """The value over all prompts, in input order."""


class Stacked:
    """Collects the reductions of all sites, `[prompt, site, ...]`."""

    def collect(self, kept: Kept) -> Tensor:
        """Reductions `[prompt, site, ...]`."""
        return kept.stacked()


class OfPatterns(Stacked):
    """Reads the pattern of every layer."""

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]


class OfEntries(Stacked):
    """Reads the residual before and after the blocks."""

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The L + 1 residual-stream layers."""
        return [Site("resid_pre", 0), *(Site("resid_post", i) for i in range(info.n_layers))]


class AtLast:
    """Reads the residual entering the final norm."""

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The residual after the last block."""
        return [Site("resid_post", info.n_layers - 1)]


class OfLast(AtLast):
    """Reads the residual entering the final norm and collects its reduction, `[prompt, ...]`."""

    def collect(self, kept: Kept) -> Tensor:
        """Reductions `[prompt, ...]`."""
        return kept.stacked()[:, 0]
