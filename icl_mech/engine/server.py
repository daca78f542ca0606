"""Readings of a segment from a model on a server: edits and rows instead of functions.

Functions are not sent. The entries an intervention sets are determined by running its hooks here
on random activations; a reading reduces, here, the rows at the targets that the server returns.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from icl_mech._typing import Tensor
from icl_mech.engine.readings import OF_CLASSES, GradientReading, Reading
from icl_mech.errors import RunError
from icl_mech.models import Hook, HookFunction, ModelInfo, SaliencySums, ServerModel, Site
from icl_mech.segments import Segment

Values = list[dict[Site, Tensor]]


def on_server(
    segment: Segment, readings: Sequence[Reading[Any] | GradientReading[Any]], hooks: Sequence[Hook]
) -> Values:
    """The reduction at each of its sites, for each reading.

    Args:
        segment: Whole prompts.
        readings: Readings of the target's row only, or of sums over edges.
        hooks: Hooks of the interventions.

    Raises:
        RunError: a reading that needs more, or a hook that does more than set entries.
        ModelError: the server rejects the request.
    """
    model, info = segment.model, segment.model.info
    assert isinstance(model, ServerModel)
    edits: dict[Site, list[tuple[Tensor, Tensor]]] = {}
    for site, hook in hooks:
        edits.setdefault(site, []).append(_edit(site, hook, segment))
    sums = [(reading, _sums(reading, segment)) for reading in readings]
    forward = [reading for reading in readings if isinstance(reading, Reading)]
    rows, total = model.at_target(
        segment.tokens,
        segment.mask,
        segment.positions,
        segment.target_row,
        reads=list({site: None for reading in forward for site in reading.sites(info)}),
        edits=edits,
        sums=_together([saliency for _, saliency in sums if saliency is not None]),
    )
    at_target, first = _at_target(segment), 0
    values: Values = []
    for reading, saliency in sums:
        if isinstance(reading, Reading):
            reduced = {
                site: reading.reduce(site, _row(site, rows[site]), at_target)
                for site in reading.sites(info)
            }
            values.append(reduced)
        elif saliency is not None and total is not None:
            last = first + saliency.edges.shape[1]
            edge_sums = total[:, :, first:last]
            values.append({site: edge_sums[:, site.layer] for site in reading.sites(info)})
            first = last
    return values


def _together(asked: Sequence[SaliencySums]) -> SaliencySums | None:
    """One request for the sums over the edges of all requests, concatenated along the kind axis."""
    if len(asked) < 2:
        return asked[0] if asked else None
    if len({sums.reduction for sums in asked}) > 1:
        raise RunError(
            "One pass on a server supports a single reduction over heads; run these measurements "
            "separately."
        )
    kinds = torch.cat([sums.edges for sums in asked], dim=1)
    return SaliencySums(asked[0].columns, asked[0].classes, asked[0].reduction, kinds)


def _sums(reading: Reading[Any] | GradientReading[Any], segment: Segment) -> SaliencySums | None:
    """The saliency sums of a gradient reading; None for a reading of rows.

    Raises:
        RunError: the reading needs neither.
    """
    edges = None if isinstance(reading, Reading) else reading.edges(segment)
    if isinstance(reading, Reading) and reading.target_only:
        return None
    if isinstance(reading, Reading) or edges is None:
        raise RunError(
            f"{type(reading).__name__} needs more than the target's row, which is all that a "
            f"server returns. Load {segment.model.info.name!r} here, or measure something else."
        )
    if reading.loss not in OF_CLASSES:
        raise RunError(
            f"loss={reading.loss!r} is not computed on a server. Load {segment.model.info.name!r} "
            f"here, or use one of {', '.join(OF_CLASSES)}."
        )
    if segment.prompts.score != "first" and reading.loss != "vocab":
        raise RunError(
            f"loss={reading.loss!r} over whole label words is not computed on a server. Load "
            f"{segment.model.info.name!r} here, or use loss='vocab'."
        )
    tokens, classes = segment.label_tokens, None
    if reading.loss == "vocab":
        answers = segment.prompts.answers.to(tokens.device)
        return SaliencySums(None, tokens.gather(1, answers[:, None])[:, 0], *edges)
    if reading.loss == "label":
        classes = segment.prompts.answers.to(tokens.device)
    return SaliencySums(tokens, classes, *edges)


def _at_target(segment: Segment) -> Segment:
    """The target rows of the segment, which attend to all its columns."""
    targets = segment.prompts.targets.to(segment.dest.device)[:, None]
    return Segment(
        segment.model,
        segment.prompts,
        segment.indices,
        tuple((prompt.target, prompt.target + 1) for prompt in segment.prompts),
        segment.left,
        segment.tokens[segment.rows, segment.target_row][:, None],
        targets,
        segment.src,
    )


def _row(site: Site, row: Tensor) -> Tensor:
    """The row with an axis of length one for the position, after the heads for scores and patterns."""
    return row.unsqueeze(2 if site.name in ("scores", "pattern") else 1)


def _edit(site: Site, hook: HookFunction, segment: Segment) -> tuple[Tensor, Tensor]:
    """The entries a hook sets regardless of their old values, and their new values.

    Raises:
        RunError: its changes depend on the activation, or there are none.
    """
    generator = torch.Generator().manual_seed(0)
    shape = _shape(site, segment)
    # Of very different magnitudes, so that a rule such as clamping is detected.
    probes = [size * torch.randn(shape, generator=generator) for size in (1.0, 1e4)]
    with torch.no_grad():
        first, second = (hook(probe.clone()) for probe in probes)
    where = None if first is None else first != probes[0]
    if (
        first is None
        or second is None
        or where is None
        or not where.any()
        or not torch.equal(torch.where(where, first, probes[1]), second)
    ):
        raise RunError(
            f"An intervention at {site.name!r} of block {site.layer} does more than set entries "
            "to values known beforehand, so it cannot be sent to a server. Use Isolate or "
            "ZeroHeads, which can."
        )
    new = torch.where(where, first, first[where][0])
    return _narrowed(where), _narrowed(new)


def _narrowed(values: Tensor) -> Tensor:
    """The values reduced to length one along every axis on which they are constant."""
    for axis in range(values.ndim):
        first = values.narrow(axis, 0, 1)
        if bool((values == first).all()):
            values = first
    return values.clone()


def _shape(site: Site, segment: Segment) -> tuple[int, ...]:
    info: ModelInfo = segment.model.info
    batch, dest = segment.tokens.shape
    kind: Literal["edges", "heads", "stream"] = "stream"
    if site.name in ("scores", "pattern"):
        kind = "edges"
    elif site.name == "z":
        kind = "heads"
    return {
        "edges": (batch, info.n_heads, dest, segment.src.shape[1]),
        "heads": (batch, dest, info.n_heads, info.d_head),
        "stream": (batch, dest, info.d_model),
    }[kind]
