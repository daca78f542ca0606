r"""Outputs of heads at the target, relative to the span of the label words' directions.

Label word c with unembedding row `u_c` reads the residual stream along `d_c`, the gradient of its logit with the scale of
the final norm held fixed: `u_c` times the norm's gain, centred where the norm centres. `P` projects onto the span of
`d_1 ... d_C` (orthonormal basis by singular values; those below `max(C, d_model) * eps` of the largest, in float32, count
as 0). The norm's scale is one positive number per prompt and cancels. For the output `a_h = z_h W_O,h` of head h, value
bias included,

* recognition is `|P a_h| / |a_h|`, in [0, 1]; the control is the same with directions of random tokens;
* learning towards class c is the cosine of `P a_h` and `w_c = d_c - mean of the other d`, in [-1, 1]; 0 where `P a_h` is 0.

The unembedding is not centred over the vocabulary: a direction shared by all tokens counts as recognition, and as much
for random tokens. The published scores (`variant="reference"`) are not relative to the head's size and use `u_c` itself:
`|P a_h|^2`, and `a_h w_c / |P a_h|^2`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.errors import RunError
from icl_mech.measurements.lens.components import head_outputs
from icl_mech.models import LanguageModel, ModelInfo, Site, to_device
from icl_mech.results import Definition
from icl_mech.segments import Segment

Null = Literal["tokens", "gaussian"]
SpanVariant = Literal["sound", "reference"]

NOTHING = 1e-5
"""A projection below this fraction of the head's output is rounding error, and points nowhere."""

PAPER = (
    "Yang, Cho and Inoue 2025, Localizing Task Recognition and Task Learning in In-Context Learning "
    "via Attention Head Analysis"
)

RECOGNITION = Definition(
    "task recognition",
    r"\frac{\lVert P a_h \rVert}{\lVert a_h \rVert}, \quad "
    r"P \text{ onto } \operatorname{span}\{d_1, \dots, d_C\}, \quad d_c = \gamma \odot u_c",
    "How much of the output a of a head at the last token lies in the span of the directions along "
    "which the C label words read the residual stream (unembedding through the final norm with "
    "fixed scale, centred where the norm centres). The control is the mean over spans of C random "
    "directions. The paper's score is the square of the numerator.",
    PAPER,
)

LEARNING = Definition(
    "task learning",
    r"\cos\left(P a_h,\; d_y - \tfrac{1}{C-1} \sum_{c \neq y} d_c\right)",
    "Direction of the projected output: towards the label word of the true class y (1) or away "
    "from it (−1), compared with the other label words. The control is its mean over the classes of "
    "all queries: what a head gives whose output does not depend on the class. The paper divides "
    "the head's logit difference by its squared projection instead.",
    PAPER,
)


class SpanScores(NamedTuple):
    """Outputs of heads relative to the span of the label words.

    Attributes:
        recognition: Fraction of the output inside the span.
        random: The same for spans of random directions.
        towards: Learning towards each class.
    """

    recognition: Float[Tensor, "batch layer head"]
    random: Float[Tensor, "batch layer head draw"]
    towards: Float[Tensor, "batch layer head label"]


class LabelSpan(NamedTuple):
    """The span of the label words, those of random directions, and the directions of classes.

    Attributes:
        rows: Orthonormal rows that span the label words' directions, padded by zeros.
        random: The same for each draw of random directions.
        towards: Each class's direction minus the mean of the others; unit length unless `reference`.
        rank: Dimension of the span.
    """

    rows: Float[Tensor, "label d_model"]
    random: Float[Tensor, "draw label d_model"]
    towards: Float[Tensor, "label d_model"]
    rank: int


def orthonormal(
    directions: Float[Tensor, "*draw label d_model"],
) -> Float[Tensor, "*draw label d_model"]:
    """Orthonormal rows with the same span; rows beyond its numerical rank are 0."""
    _, sizes, rows = torch.linalg.svd(directions, full_matrices=False)
    least = sizes[..., :1] * max(directions.shape[-2:]) * torch.finfo(torch.float32).eps
    basis: Tensor = rows * (sizes > least)[..., None]
    return basis


def label_span(
    model: LanguageModel,
    labels: Int[Tensor, " label"],
    *,
    draws: int,
    seed: int,
    null: Null = "tokens",
    variant: SpanVariant = "sound",
) -> LabelSpan:
    """The span of some label words, and as large spans of random directions.

    Args:
        model: The model whose unembedding is read.
        labels: The label words' tokens.
        draws: Number of draws of random directions.
        seed: Seed of the draws.
        null: Random directions: those of random `tokens` other than label words and special tokens, or `gaussian`
            vectors.
        variant: `sound`: through the final norm; `reference`: rows of the unembedding.

    Raises:
        RunError: a vocabulary with too few other tokens.
    """

    def directions(tokens: Int[Tensor, " token"]) -> Tensor:
        rows: Tensor = model.readout(to_device(tokens, model.device)[None])[0][0]
        if variant == "sound":
            rows = model.final_norm_parts.pulled_back(rows)
        return rows.detach().double().cpu()

    of_labels, count = directions(labels), len(labels)
    generator = np.random.default_rng(seed)
    if null == "gaussian":
        drawn = torch.from_numpy(generator.standard_normal((draws, *of_labels.shape)))
    else:
        tokens = _random_tokens(model, labels.tolist(), draws, generator)
        drawn = directions(tokens.flatten()).unflatten(0, (draws, count))
    others = (of_labels.sum(0) - of_labels) / (count - 1)
    towards, rows = of_labels - others, orthonormal(of_labels)
    if variant == "sound":
        towards = torch.nn.functional.normalize(towards, dim=-1)
    placed = [part.float().to(model.device) for part in (rows, orthonormal(drawn), towards)]
    return LabelSpan(placed[0], placed[1], placed[2], rank=int(rows.any(-1).sum()))


def _random_tokens(
    model: LanguageModel, labels: Sequence[int], draws: int, generator: np.random.Generator
) -> Int[Tensor, "draw label"]:
    """Tokens of each draw, all different."""
    tokenizer, size = model.tokenizer, model.info.d_vocab
    special = set(getattr(tokenizer, "all_special_ids", None) or ())
    most = min(len(tokenizer), size) if tokenizer else size
    usable = np.array([token for token in range(most) if token not in {*special, *labels}])
    if len(usable) < len(labels):
        raise RunError(
            f"{model.info.name!r} has {len(usable)} tokens besides its {len(labels)} label words, too "
            "few for as many random directions; use null='gaussian'."
        )
    drawn = [generator.choice(usable, len(labels), replace=False) for _ in range(draws)]
    return torch.from_numpy(np.stack(drawn))


@dataclass
class LabelSpanReading(Reading[SpanScores]):
    """Recognition, the same with random directions, and learning towards each class, of every head at the target.

    Attributes:
        draws, seed, null, variant: See `label_span`.
    """

    draws: int
    seed: int
    null: Null = "tokens"
    variant: SpanVariant = "sound"

    target_only = True

    # Not part of the reading's identity: readings are equal whatever they have cached.
    _spans: dict[tuple[int, ...], LabelSpan] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """`z` of every block."""
        return [Site("z", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Scores `[batch, head, recognition | random draws | classes]`."""
        z = segment.at_target(activation)
        outputs, span = head_outputs(segment.model, site.layer, z).float(), self._span(segment)
        inside = (outputs @ span.rows.T).norm(dim=-1, keepdim=True)
        spans = outputs @ span.random.flatten(0, 1).T
        random = spans.unflatten(-1, span.random.shape[:2]).norm(dim=-1)
        towards = outputs @ span.towards.T
        size = outputs.norm(dim=-1, keepdim=True)
        points = inside > NOTHING * size
        if self.variant == "reference":
            towards = (towards / inside.square()).where(points, 0.0)
            return torch.cat([inside.square(), random.square(), towards], dim=-1)
        sizes = torch.cat([inside, random], dim=-1) / size
        # Rounding may leave a ratio of norms, or a cosine, just outside its range.
        sizes, towards = sizes.where(size > 0, 0.0), (towards / inside).where(points, 0.0)
        return torch.cat([sizes.clamp(max=1.0), towards.clamp(-1.0, 1.0)], dim=-1)

    def _span(self, segment: Segment) -> LabelSpan:
        """The span of the segment's label words, computed once per run."""
        labels = segment.prompts.choice_tokens[0]
        tokens = tuple(labels.tolist())
        if tokens not in self._spans:
            self._spans[tokens] = label_span(
                segment.model,
                labels,
                draws=self.draws,
                seed=self.seed,
                null=self.null,
                variant=self.variant,
            )
        return self._spans[tokens]

    def collect(self, kept: Kept) -> SpanScores:
        """Scores by prompt, layer and head."""
        stacked = kept.stacked()
        sizes = [1, self.draws, stacked.shape[-1] - 1 - self.draws]
        recognition, random, towards = stacked.split_with_sizes(sizes, dim=-1)
        return SpanScores(recognition[..., 0].contiguous(), random.contiguous(), towards)
