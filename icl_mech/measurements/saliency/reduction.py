"""Saliency: attention times its gradient, reduced over heads, and summed over three types of edges.

Sums are taken in the backward pass. The options of all saliency measurements are defined here, too.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1, eq. 1.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import GradientReading, Loss, check_loss_of
from icl_mech.engine.readings import OfPatterns
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.base import Measurement
from icl_mech.metrics import flow_sums
from icl_mech.models import LanguageModel, Site, to_device
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.prompts.spans import ROLES
from icl_mech.results import Definition, Result
from icl_mech.segments import Segment

SECTION = "Wang et al. 2023, Label Words are Anchors, §2.1"


SALIENCY = Definition(
    "saliency",
    r"I_l = \left| \sum_h A_{l,h} \odot \frac{\partial \mathcal{L}}{\partial A_{l,h}} \right|",
    "First-order estimate of how much an attention edge changes the loss: the attention of layer "
    "l and head h times the gradient of the loss with respect to it, summed over heads, then the "
    "absolute value (sum_then_abs; abs_then_sum takes the absolute value of each head first). The "
    "loss is the cross-entropy at the target over the label words.",
    SECTION,
)


R = TypeVar("R", bound=Result)


Reduction = Literal["sum_then_abs", "abs_then_sum"]


_CHUNK = 256
"""Rows of the pattern reduced at a time: bounds the temporary to heads x rows x columns."""


def head_sum(
    activation: Float[Tensor, "batch head dest src"],
    gradient: Float[Tensor, "batch head dest src"],
    reduction: Reduction,
) -> Float[Tensor, "batch dest src"]:
    """Saliency of one layer's pattern, reduced in chunks of rows."""
    dtype = torch.float64 if activation.dtype == torch.float64 else torch.float32
    chunks = []
    for value, slope in zip(activation.split(_CHUNK, 2), gradient.split(_CHUNK, 2), strict=True):
        product = value.to(dtype) * slope.to(dtype)
        chunks.append(product.sum(1).abs() if reduction == "sum_then_abs" else product.abs().sum(1))
    return torch.cat(chunks, dim=1)


@dataclass(frozen=True)
class OfSaliency(Measurement[R]):
    """Options shared by all measurements of saliency.

    Attributes:
        loss: `label`, `prediction` or `vocab`, for texts `next` or `rest`; None: `label` if the
            prompts have answers, else `prediction`, for texts `next`.
        reduction: Absolute value after (`sum_then_abs`) or before the sum over heads.
    """

    loss: Loss | None = None
    reduction: Reduction = "sum_then_abs"

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: in the loss, classes that begin with the same token are the same."""
        return False

    def filled(self, model: LanguageModel, data: PromptBatch) -> "OfSaliency[R]":
        """Fill in the loss these prompts can have."""
        return self if self.loss else replace(self, loss=default_loss(data))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject losses without the answers or label words they need.

        Raises:
            PromptError: prompts without answers, without classes or with nothing to predict.
        """
        assert self.loss is not None
        check_loss_of(data, self.loss)
        warn_if_processed(model)


def warn_if_processed(model: LanguageModel) -> None:
    """Warn that folded or centred weights change saliency, though they keep the logits.

    Moving value biases into the output bias changes the gradient at the pattern: on a tiny
    GPT-2 flow scores move by up to 40 %.
    """
    if model.info.processed_weights:
        warnings.warn(
            f"The weights of {model.info.name!r} are processed (norms folded or weights centred): "
            "its saliency differs from that of the checkpoint's own weights, though its logits do "
            "not. Load it with icl_mech.load_model, or with from_pretrained_no_processing.",
            stacklevel=3,
        )


def default_loss(prompts: PromptBatch) -> Loss:
    """Default loss: `label` where answers are known, else `prediction`; for texts `next`."""
    if prompts.answer_kind == "vocabulary":
        return "next"
    return "label" if prompts.has_answers else "prediction"


SCORES = ("wp", "pq", "ww")


KINDS = (
    Definition(
        "texts to label words",
        r"S_{wp} = \frac{1}{\sum_p p} \sum_p \sum_{j<p} I_l[p, j]",
        "Mean saliency of the edges into the first tokens p of the demonstrations' label words, "
        "from all tokens j before them.",
        SECTION,
    ),
    Definition(
        "label words to target",
        r"S_{pq} = \frac{1}{|P|} \sum_{p \in P} I_l[q, p]",
        "Mean saliency of the edges from the label words P to the target q, the token at which "
        "the answer is predicted.",
        SECTION,
    ),
    Definition(
        "everything else",
        r"S_{ww} = \frac{\sum_{j<i} I_l[i, j] - \sum_p \sum_{j<p} I_l[p, j] - \sum_p I_l[q, p]}"
        r"{q(q+1)/2 - \sum_p p - |P|}",
        "Mean saliency of all other edges below the diagonal.",
        SECTION,
    ),
    Definition(
        "fraction per edge",
        r"\frac{\bar S_k}{\bar S_{wp} + \bar S_{pq} + \bar S_{ww}}",
        "Fraction of each kind k, computed from means over prompts. A mean per edge does not grow "
        "with the number of edges, so a few strong edges can outweigh many weak ones.",
        SECTION,
    ),
)


def third_of(n_layers: int, third: str) -> slice:
    """The layers of the first or last third, at least one.

    Raises:
        ResultError: an unknown third.
    """
    size = max(1, n_layers // 3)
    if third not in ("first", "last"):
        raise ResultError(f"third={third!r}. {near_matches(third, ('first', 'last'))}")
    return slice(0, size) if third == "first" else slice(n_layers - size, n_layers)


def ends_of_third(n_layers: int, third: str) -> tuple[int, int]:
    """The first and last layer of a third.

    Raises:
        ResultError: an unknown third.
    """
    layers = third_of(n_layers, third)
    return layers.start, layers.stop - 1


def score_index(score: str) -> int:
    """Index of a score.

    Raises:
        ResultError: an unknown score.
    """
    if score not in SCORES:
        raise ResultError(f"Unknown score {score!r}. {near_matches(score, SCORES)}")
    return SCORES.index(score)


@dataclass
class FlowReading(OfPatterns, GradientReading[Tensor]):
    """Sums of saliency by type of edge, `[prompt, layer, kind]`."""

    additive = True

    loss: Loss = "label"
    reduction: Reduction = "sum_then_abs"

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """Three sums per prompt."""
        return (len(segment.prompts), 3)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The three sums of one layer."""
        return self.sums(head_sum(activation, gradient, self.reduction), segment)

    def sums(self, saliency: Float[Tensor, "batch dest src"], segment: Segment) -> Tensor:
        """The three sums of a map."""
        return flow_sums(
            saliency, segment.dest_classes >= 0, segment.src_classes >= 0, segment.is_target
        )

    def edges(self, segment: Segment) -> tuple[str, Float[Tensor, "batch kind dest src"]] | None:
        """The edges that `flow_sums` sums over."""
        dest, src = segment.dest.shape[1], segment.src.shape[1]
        before = (
            torch.ones(dest, src, dtype=torch.bool).tril(src - dest - 1).to(segment.dest.device)
        )
        to_labels = before & (segment.dest_classes >= 0)[:, :, None]
        to_target = before & (segment.src_classes >= 0)[:, None] & segment.is_target[:, :, None]
        # A target that is itself a label word has edges of both types.
        kinds = torch.stack([to_labels, to_target], dim=1).float()
        rest = before.float() - kinds.sum(1)
        return self.reduction, torch.cat([kinds, rest[:, None]], dim=1)


@dataclass
class RoleFlowReading(FlowReading):
    """The same sums, those between roles, into every token, and out of every token to the target.

    Values `[prompt, layer, ...]`: 3 sums by type, R x R by role of destination and source, and twice
    one per position: saliency into a token from all earlier ones, and from it into the target.
    The diagonal is left out.

    Attributes:
        roles: Indices of the roles in `ROLES`.
        width: Number of positions.
    """

    roles: tuple[int, ...] = ()
    width: int = 0

    @classmethod
    def of(cls, prompts: PromptBatch, loss: Loss, reduction: Reduction) -> "RoleFlowReading":
        """Reading for these prompts: their roles, in the order of `ROLES`, and their maximum length."""
        known = prompts.position_roles.unique().tolist()
        roles = tuple(place for place in range(len(ROLES)) if place in known)
        return cls(loss, reduction, roles, int(prompts.targets.max()) + 1)

    @property
    def size(self) -> int:
        """Numbers per prompt and layer."""
        return 3 + len(self.roles) ** 2 + 2 * self.width

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """All sums of one prompt in a row."""
        return (len(segment.prompts), self.size)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """All sums of one layer."""
        saliency = head_sum(activation, gradient, self.reduction)
        strict = saliency.tril(saliency.shape[2] - saliency.shape[1] - 1)
        dest, src = (
            _one_hot(roles, torch.tensor(self.roles), strict)
            for roles in (segment.dest_roles, segment.src_roles)
        )
        by_source = torch.einsum("bij,bjr->bir", strict, src)
        by_role = torch.einsum("bir,bit->btr", by_source, dest)
        row = torch.einsum("bij,bi->bj", strict, segment.is_target.to(strict.dtype))
        into = _placed(strict.sum(-1), segment.dest, self.width)
        out_of = _placed(row, segment.src, self.width)
        return torch.cat([self.sums(saliency, segment), by_role.flatten(1), into, out_of], dim=1)

    def edges(self, segment: Segment) -> None:
        """None: too many types of edges for a server."""
        return

    def parted(self, sums: Float[Tensor, "batch layer sum"]) -> tuple[Tensor, ...]:
        """Split the collected sums: by type, by role `[prompt, layer, dest, src]`, into and out of tokens."""
        count = len(self.roles)
        kinds, roles, into, out_of = sums.split([3, count**2, self.width, self.width], dim=2)
        return kinds, roles.unflatten(2, (count, count)), into, out_of


def _one_hot(
    values: Int[Tensor, "batch n"], known: Int[Tensor, " k"], like: Tensor
) -> Float[Tensor, "batch n k"]:
    return (values[..., None] == to_device(known, values.device)).to(like.dtype)


def _placed(
    sums: Float[Tensor, "batch n"], positions: Int[Tensor, "batch n"], width: int
) -> Float[Tensor, "batch pos"]:
    """Sums at the positions they belong to; everything else, such as padding, is left out."""
    positions = positions.to(sums.device)
    known = (positions >= 0) & (positions < width)
    place = positions.clamp(0, width - 1)
    return sums.new_zeros(len(sums), width).scatter_add(1, place, sums * known)
