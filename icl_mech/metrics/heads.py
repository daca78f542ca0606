"""Scores of attention heads: how much they attend to matching labels or to earlier occurrences of a token.

Sources: Halawi et al. 2023, *Overthinking the Truth*, §5; Olsson et al. 2022, *In-context learning and
induction heads*; TransformerLens 4.3, `head_detector`.
"""

from typing import Literal

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError


@checked(ResultError)
def same_share(
    demo_classes: Int[Tensor, "batch demo"],
    row_classes: Int[Tensor, " batch"],
    sizes: Int[Tensor, "batch demo"],
) -> Float[Tensor, " batch"]:
    """Fraction of the earlier label tokens that carry the row's label (0 without any)."""
    same = (sizes * (demo_classes == row_classes[:, None])).sum(1).double()
    return same / sizes.sum(1).clamp(min=1)


@checked(ResultError)
def attention_to_same(
    attention: Float[Tensor, "batch *head demo"],
    demo_classes: Int[Tensor, "batch demo"],
    row_classes: Int[Tensor, " batch"],
) -> Float[Tensor, " batch *head"]:
    """Attention to the labels that equal the row's."""
    same = (demo_classes == row_classes[:, None]).to(attention.dtype)
    return torch.einsum("b...d,bd->b...", attention, same)


@checked(ResultError)
def prefix_matching(
    same: Float[Tensor, " batch *head"], total: Float[Tensor, " batch *head"], n_labels: Count
) -> Float[Tensor, " batch *head"]:
    """`same - (all - same) / (C - 1)`, in [-1/(C-1), 1]."""
    return same - (total - same) / (n_labels - 1)


@checked(ResultError)
def shuffled_prefix_matching(
    attention: Float[Tensor, "batch *head demo"],
    demo_classes: Int[Tensor, "batch demo"],
    row_classes: Int[Tensor, " batch"],
    n_labels: Count,
    *,
    permutations: Count = 20,
    seed: Natural = 0,
) -> Float[Tensor, " batch *head"]:
    """Mean prefix matching with the demonstrations' labels permuted in the score only.

    The score of a head that does not see the labels (from recency alone): the model is not rerun
    and the row's label is kept. Class -1 marks a missing demonstration; it stays
    where it is.
    """
    generator = np.random.default_rng(seed)
    absent = (demo_classes < 0).numpy()
    places = torch.from_numpy(np.argsort(absent, axis=1, kind="stable"))
    same = torch.zeros_like(demo_classes, dtype=attention.dtype)
    for _ in range(permutations):
        order = torch.from_numpy(np.argsort(generator.random(absent.shape) + absent, axis=1))
        shuffled = demo_classes.scatter(1, places, demo_classes.gather(1, order))
        same += (shuffled == row_classes[:, None]).to(attention.dtype) / permutations
    # The score is linear in the matches: one product with their mean.
    matched = torch.einsum("b...d,bd->b...", attention, same)
    return prefix_matching(matched, attention.sum(-1), n_labels)


Pattern = Literal["induction", "duplicate", "previous"]
"""The token after an earlier occurrence, the occurrence itself, the token before."""


@checked(ResultError)
def matched_columns(tokens: Int[Tensor, "batch pos"], pattern: Pattern) -> Int[Tensor, "batch pos"]:
    """The column each row should attend to, given its last earlier occurrence; -1 where there is none."""
    length = tokens.shape[1]
    places = torch.arange(length, device=tokens.device)
    if pattern == "previous":
        return (places - 1).expand(len(tokens), -1)
    same = (tokens[:, :, None] == tokens[:, None, :]) & (places[:, None] > places)
    last = torch.where(same, places, -1).amax(-1)
    return torch.where(last >= 0, last + int(pattern == "induction"), -1)


@checked(ResultError)
def pattern_map(
    tokens: Int[Tensor, "batch pos"], pattern: Pattern
) -> Bool[Tensor, "batch pos pos"]:
    """True where a row should attend: at (or after) every earlier occurrence, or before the row."""
    length = tokens.shape[1]
    places = torch.arange(length, device=tokens.device)
    if pattern == "previous":
        return (places[:, None] - 1 == places).expand(len(tokens), -1, -1)
    same = (tokens[:, :, None] == tokens[:, None, :]) & (places[:, None] > places)
    if pattern == "duplicate":
        return same
    return torch.cat([torch.zeros_like(same[..., :1]), same[..., :-1]], dim=-1)


@checked(ResultError)
def attention_to_match(
    attention: Float[Tensor, "batch head pos pos"], columns: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch head"]:
    """Mean attention to each row's column, over rows that have one; NaN where none has."""
    there = columns >= 0
    index = columns.clamp(min=0)[:, None, :, None].expand(-1, attention.shape[1], -1, -1)
    matched = attention.gather(3, index)[..., 0].double() * there[:, None]
    return matched.sum(-1) / there.sum(-1)[:, None]


@checked(ResultError)
def attention_elsewhere(
    attention: Float[Tensor, "batch head pos pos"], columns: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch head"]:
    """Mean attention of the same rows to one of the other columns that rows are matched with.

    The attention per token of a head that looks back without matching. Columns up to the row itself count.
    """
    places = torch.arange(attention.shape[-1], device=attention.device)
    there = columns >= 0
    named = torch.zeros(columns.shape, dtype=torch.bool, device=columns.device)
    named.scatter_(1, columns.clamp(min=0), there)
    others = named[:, None, :] & (places[:, None] >= places) & (columns[..., None] != places)
    others &= there[..., None]
    counts = others.sum(-1)
    rows = (attention.double() * others[:, None]).sum(-1) / counts.clamp(min=1)[:, None]
    some = counts > 0
    return (rows * some[:, None]).sum(-1) / some.sum(-1)[:, None]


@checked(ResultError)
def detection_score(
    attention: Float[Tensor, "batch head pos pos"],
    pattern: Bool[Tensor, "batch pos pos"],
    kind: Literal["mul", "abs"],
    *,
    exclude_bos: bool = False,
    exclude_current: bool = False,
) -> Float[Tensor, "batch head"]:
    """Match between whole attention maps and a pattern, as in the head detector of TransformerLens.

    * `mul`: fraction of all attention that lies on the pattern;
    * `abs`: one minus the distance of map and pattern, over the number of rows.
    """
    maps, wanted = attention.double().clone(), pattern[:, None].double()
    if exclude_bos:
        maps[..., 0] = 0.0
    if exclude_current:
        maps = maps - torch.diag_embed(maps.diagonal(dim1=-2, dim2=-1))
    if kind == "mul":
        return (maps * wanted).sum((-2, -1)) / maps.sum((-2, -1))
    return 1 - (maps - wanted).abs().sum((-2, -1)) / maps.shape[-1]
