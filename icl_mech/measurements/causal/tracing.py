"""Attribution of nodes and edges from one backward pass over a pair of runs.

Nodes are everything written into the residual stream: the embedding, the output of every head and of every
MLP, at every position. An edge leads from a node to the input of a later one at the same position: the
query, key or value of a head, an MLP, or the logits. The gradient at such an input is the gradient at the
query (key, value, MLP output), propagated back through that block's norm and projection only.

Source: Nanda 2023, *Attribution patching*; Syed et al. 2023, *Attribution patching outperforms automated
circuit discovery*; Hanna et al. 2024, *Have faith in faithfulness* (gradients along the path of
embeddings).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.engine import Progress, Work, cost, fill_means, plan
from icl_mech.errors import RunError
from icl_mech.measurements.base import Options, Pair
from icl_mech.measurements.causal.answers import contrast
from icl_mech.models import Hook, LanguageModel, ModelInfo, Site, SiteName, at_least_float32
from icl_mech.results import Definition
from icl_mech.segments import Segment, by_length

ATTRIBUTION = Definition(
    "attribution",
    r"s_a = \left(a_{\text{true}} - a_{\text{false}}\right) \cdot \frac{\partial m}{\partial a}"
    r"\bigg|_{\text{false}}",
    "First-order estimate of the effect of patching node a (embedding, head or MLP, at one "
    "position) from the run with true demonstrations into the run with false ones; m is the logit "
    "of the right label word minus that of the wrong one. With `steps`, the gradient is averaged "
    "along the straight path between the two embeddings; the scores of the embeddings then sum to "
    "the gap in m.",
    "Nanda 2023, Attribution patching; Hanna et al. 2024, EAP-IG",
)

EDGE = Definition(
    "attribution of an edge",
    r"s_{a \to b} = \left(a_{\text{true}} - a_{\text{false}}\right) \cdot "
    r"\frac{\partial m}{\partial x_b}\bigg|_{\text{false}}",
    "The same for what node a writes into the input x of a later node b (query, key or value of a "
    "head, MLP, logits). The scores of a writer's edges sum to the score of its node.",
    "Syed et al. 2023, Attribution patching outperforms automated circuit discovery",
)

Metric = Callable[[Tensor, Segment], Tensor]
"""Function from the residuals at the targets to one number for each prompt."""

Places = dict[Site, Tensor]

EMBED = Site("resid_pre", 0)

NODES: tuple[SiteName, ...] = ("z", "mlp_out")
INPUTS: tuple[SiteName, ...] = ("q", "k", "v")


@dataclass(frozen=True, eq=False)
class BatchScores:
    """Attribution in one batch of pairs.

    Attributes:
        nodes: Score of every node at every column of the batch.
        edges: Scores from writers to readers, at every column; None if not asked for.
        clean: The metric of the clean run.
        corrupt: The metric of the corrupt run.
    """

    nodes: Float[Tensor, "batch node dest"]
    edges: Float[Tensor, "batch dest writer reader"] | None
    clean: Float[Tensor, " batch"]
    corrupt: Float[Tensor, " batch"]


def writer_names(info: ModelInfo) -> tuple[str, ...]:
    """Names of the writers: `embed`, then heads (`layer.head`) and MLP (`mlp layer`) of every layer."""
    names = ["embed"]
    for layer in range(info.n_layers):
        names += [f"{layer}.{head}" for head in range(info.n_heads)]
        names.append(f"mlp {layer}")
    return tuple(names)


def reader_names(info: ModelInfo, *, grouped: bool = True) -> tuple[str, ...]:
    """Queries, keys and values of every layer (`layer.head q`), its MLP, and at last the logits.

    Args:
        info: The model.
        grouped: Keys and values by key-value head; else by query head.
    """
    names = []
    for layer in range(info.n_layers):
        for name, count in zip(INPUTS, counts(info, grouped), strict=True):
            names += [f"{layer}.{head} {name}" for head in range(count)]
        names.append(f"mlp {layer}")
    return (*names, "logits")


def counts(info: ModelInfo, grouped: bool = True) -> tuple[int, int, int]:
    """Number of inputs of queries, keys and values of a block."""
    shared = info.n_kv_heads if grouped else info.n_heads
    return info.n_heads, shared, shared


def node_sites(info: ModelInfo) -> list[Site]:
    """Hook points of the nodes."""
    layers = range(info.n_layers)
    sites = [Site(name, layer) for layer in layers for name in NODES]
    return [Site("resid_pre", 0), *sites]


def batch_scores(
    work: Work, clean: Segment, corrupt: Segment, metric: Metric, *, steps: int, edges: bool
) -> BatchScores:
    """Scores of a batch of aligned pairs.

    Args:
        work: The run whose interventions are applied in all runs.
        clean: The runs that values are taken from.
        corrupt: The same pairs' runs in which gradients are taken.
        metric: The metric that is differentiated.
        steps: Gradients are averaged over this many points of the straight path between the embeddings
            (Gauss-Legendre); 0: gradients of the corrupt run.
        edges: Score edges too.
    """
    info = corrupt.model.info
    values, ends = [], []
    for segment in (clean, corrupt):
        held, end = node_values(work, segment, metric)
        values.append(held)
        ends.append(end)
    change = {site: values[0][site] - values[1][site] for site in values[0]}
    points, weights = _points(steps)
    nodes, scores = torch.zeros(()), None
    written = written_by(corrupt, change) if edges else None
    if written is not None:
        readers = len(reader_names(info))
        scores = written.new_zeros(*written.shape[:3], readers)
    for point, weight in zip(points, weights, strict=True):
        start = None if not steps else values[1][EMBED] + point * change[EMBED]

        def take(first: int, inputs: Tensor, weight: float = weight) -> None:
            assert scores is not None
            assert written is not None
            into = torch.einsum("btwd,btrd->btwr", written, inputs)
            scores[..., first : first + inputs.shape[2]] += weight * into

        gradient = gradients(work, corrupt, metric, start, take if edges else None)
        nodes = nodes + weight * node_scores(info, change, gradient)
    if scores is not None:
        scores = scores * edges_of(info, parallel=is_parallel(corrupt)).to(scores)
    return BatchScores(nodes, scores, *ends)


def node_values(work: Work, segment: Segment, metric: Metric) -> tuple[Places, Tensor]:
    """What every node writes in a run without gradients, and the metric of each prompt."""
    held: Places = {}
    with torch.no_grad():
        residual = work.traced(
            segment, [_keep(site, held) for site in node_sites(segment.model.info)]
        )
        return held, metric(segment.at_target(residual), segment).double()


@dataclass(frozen=True, eq=False)
class PairScores:
    """Attribution in all pairs, prompt by prompt.

    Attributes:
        nodes: Score of every node at every position.
        edges: Scores from writers to readers, summed over positions; None if not asked for.
        clean: The metric of the clean runs.
        corrupt: The metric of the corrupt runs.
    """

    nodes: Sequence[Float[Tensor, "node _"]]
    edges: Sequence[Float[Tensor, "writer reader"]] | None
    clean: Float[Tensor, " batch"]
    corrupt: Float[Tensor, " batch"]


def pair_scores(
    model: LanguageModel, data: Pair, options: Options, *, steps: int, edges: bool
) -> PairScores:
    """Scores of aligned pairs, batch by batch; the metric is `contrast`.

    Args:
        model: The model whose nodes are scored.
        data: Prompts that values are taken from, and those in which gradients are taken.
        options: Interventions, batches and memory.
        steps: As in `batch_scores`.
        edges: As in `batch_scores`.
    """
    false = data[1]
    interventions = fill_means(model, false, [options.interventions])[0]
    work = Work([], interventions, checkpoint=False)
    lengths = false.lengths.tolist()
    tokens, _ = plan(model, lengths, gradient=True, memory=options.memory)
    nodes, joined = ([torch.empty(0)] * len(false) for _ in range(2))
    ends = torch.zeros(2, len(false), dtype=torch.float64)

    def metric(residual: Tensor, segment: Segment) -> Tensor:
        logits = model.label_logits(residual, segment.label_tokens)
        return contrast(logits, false[list(segment.indices)])

    each, padded = cost(lengths, gradient=True, variants=max(steps, 1)), not model.has_own_hooks
    with Progress("attribution", len(false), options.progress, cost=each) as bar:
        for rows in by_length(lengths, tokens=tokens, size=options.batch_size, padded=padded):
            clean, corrupt = (Segment.build(model, side[rows], rows) for side in data)
            scores = batch_scores(work, clean, corrupt, metric, steps=steps, edges=edges)
            ends[:, rows] = torch.stack([scores.clean, scores.corrupt]).cpu()
            for place, row in enumerate(rows):
                # Padding is on the left.
                nodes[row] = scores.nodes[place, :, -lengths[row] :].cpu()
                if scores.edges is not None:
                    joined[row] = scores.edges[place, -lengths[row] :].sum(0).cpu()
            bar.advance(len(rows))
    work.check_acted()
    return PairScores(nodes, joined if edges else None, *ends)


def _points(steps: int) -> tuple[list[float], list[float]]:
    """Points of the path from corrupt (0) to clean (1), and their weights."""
    if not steps:
        return [0.0], [1.0]
    points, weights = np.polynomial.legendre.leggauss(steps)
    return ((points + 1) / 2).tolist(), (weights / 2).tolist()


def _keep(site: Site, held: Places, start: Tensor | None = None) -> Hook:
    """Hook that keeps an activation in the graph, or `start` in its place."""

    def hook(activation: Tensor) -> Tensor:
        # A separate tensor, so that the graph runs through it and not past it.
        tensor = (activation if start is None else start).clone()
        if torch.is_grad_enabled() and not tensor.requires_grad:
            tensor.requires_grad_()
        held[site] = tensor
        return tensor

    return site, hook


Take = Callable[[int, Float[Tensor, "batch dest reader d_model"]], None]
"""Receives the gradients at the inputs of some readers, from this one on; called once for each block."""


def gradients(
    work: Work,
    segment: Segment,
    metric: Metric,
    start: Tensor | None,
    take: Take | None = None,
    *,
    grouped: bool = True,
) -> Places:
    """Gradients of the metric at the nodes.

    Args:
        work: The run whose interventions are applied.
        segment: The run.
        metric: The metric that is differentiated.
        start: Embeddings that replace those of the run.
        take: Receives the gradients at the inputs of readers, block by block, so that all of them are never held.
        grouped: Query heads that share keys and values have one edge to them; else each query head has its own.
    """
    model, info = segment.model, segment.model.info
    held: Places = {}
    wanted = node_sites(info)
    more = list(wanted)
    if take is not None:
        for layer in range(info.n_layers):
            names = ("resid_pre", *INPUTS, *(() if grouped else ("pattern",)), "attn_out")
            more += [Site(name, layer) for name in names if Site(name, layer) not in more]
        more.append(Site("resid_post", info.n_layers - 1))
    with model.gradients():
        hooks = [_keep(site, held, start if site == EMBED else None) for site in more]
        residual = work.traced(segment, hooks)
        total = at_least_float32(metric(segment.at_target(residual), segment)).sum()
        found = torch.autograd.grad(
            total, [held[site] for site in more], retain_graph=take is not None, allow_unused=True
        )
        gradient: Places = {}
        for site, grad in zip(more, found, strict=True):
            if grad is None:
                raise RunError(
                    f"The metric does not depend on {site.name!r} of block {site.layer}: a hook or "
                    "an intervention has cut the graph (detach, no_grad)."
                )
            gradient[site] = grad
        if take is not None:
            first = 0
            for layer in range(info.n_layers):
                inputs = torch.stack(_inputs(info, layer, held, gradient, grouped), dim=2).detach()
                take(first, inputs)
                first += inputs.shape[2]
            take(first, gradient[Site("resid_post", info.n_layers - 1)][:, :, None].detach())
    return {site: gradient[site].detach() for site in wanted}


def _inputs(
    info: ModelInfo, layer: int, held: Places, gradient: Places, grouped: bool
) -> list[Float[Tensor, "batch dest d_model"]]:
    """Gradients at the inputs of a block's queries, keys, values and MLP, through the direct path of each only."""
    entering = held[Site("resid_pre", layer)]
    inputs = []
    for name, count in zip(INPUTS, counts(info, grouped), strict=True):
        site = Site(name, layer)
        for head in range(count):
            if count == held[site].shape[2]:
                vector = _only(gradient[site], 2, head)
            else:
                # Through this query head alone: the pattern depends on keys, the output on values.
                through = Site("pattern" if name == "k" else "z", layer)
                axis = 1 if name == "k" else 2
                vector = _back(
                    held[through], _only(gradient[through], axis, head), held[site], through
                )
            inputs.append(_back(held[site], vector, entering, site))
    site = Site("mlp_out", layer)
    middle: Sequence[Tensor | None] = torch.autograd.grad(
        held[site],
        held[Site("attn_out", layer)],
        gradient[site],
        retain_graph=True,
        allow_unused=True,
    )
    # None in blocks with parallel attention and MLP.
    at_attention = middle[0]
    inputs.append(
        _back(held[site], gradient[site], entering, site) if at_attention is None else at_attention
    )
    return inputs


def _only(tensor: Tensor, axis: int, place: int) -> Tensor:
    """The tensor with everything but one entry of an axis set to 0."""
    alone = torch.zeros_like(tensor)
    alone.select(axis, place).copy_(tensor.select(axis, place))
    return alone


def _back(output: Tensor, vector: Tensor, entering: Tensor, site: Site) -> Tensor:
    (gradient,) = torch.autograd.grad(
        output, entering, vector, retain_graph=True, allow_unused=True
    )
    if gradient is None:
        raise RunError(
            f"{site.name!r} of block {site.layer} is not connected to the block's input in the "
            "graph, so its edges cannot be scored. Score nodes only."
        )
    return gradient


def node_scores(
    info: ModelInfo, change: Places, gradient: Places
) -> Float[Tensor, "batch node dest"]:
    """Change times gradient, by node."""
    change = {site: at_least_float32(tensor) for site, tensor in change.items()}
    parts = [(change[EMBED] * gradient[EMBED]).sum(-1)[:, None]]
    for layer in range(info.n_layers):
        heads, mlp = Site("z", layer), Site("mlp_out", layer)
        parts.append((change[heads] * gradient[heads]).sum(-1).transpose(1, 2))
        parts.append((change[mlp] * gradient[mlp]).sum(-1)[:, None])
    return torch.cat(parts, dim=1).double()


def written_by(segment: Segment, change: Places) -> Float[Tensor, "batch dest writer d_model"]:
    """Change of each node's contribution to the residual stream."""
    parts = [change[EMBED][:, :, None]]
    for layer in range(segment.model.info.n_layers):
        weight, _ = segment.model.head_weights(layer)
        heads = torch.einsum("bthk,hkd->bthd", change[Site("z", layer)], weight.detach())
        parts += [heads, change[Site("mlp_out", layer)][:, :, None]]
    return torch.cat(parts, dim=2)


def edges_of(
    info: ModelInfo, *, parallel: bool, grouped: bool = True
) -> Bool[Tensor, "writer reader"]:
    """True where a reader comes after a writer.

    Args:
        info: The model.
        parallel: The MLP of a block does not see the output of its attention.
        grouped: As in `gradients`.
    """
    width = info.n_heads + 1
    n_writers = 1 + info.n_layers * width
    columns = []
    for layer in range(info.n_layers):
        before = torch.arange(n_writers) < 1 + layer * width
        columns += [before] * sum(counts(info, grouped))
        with_heads = before if parallel else torch.arange(n_writers) < (layer + 1) * width
        columns.append(with_heads)
    columns.append(torch.ones(n_writers, dtype=torch.bool))
    return torch.stack(columns, dim=1)


def is_parallel(segment: Segment) -> bool:
    """True if the MLP of a block does not see the output of its attention."""
    held: Places = {}
    work = Work([], (), checkpoint=False)
    sites: Sequence[Site] = (Site("attn_out", 0), Site("mlp_out", 0))
    with segment.model.gradients():
        work.traced(segment, [_keep(site, held) for site in sites])
        gradients = torch.autograd.grad(held[sites[1]].sum(), held[sites[0]], allow_unused=True)
    return gradients[0] is None
