"""EAP-IG: attribution of nodes and edges with gradients along the path from the counterfactual embeddings to the clean ones.

Source: Hanna et al. 2024, *Have faith in faithfulness*, arXiv 2403.17806; its released code takes other points of the path
than the paper's formula, see `EdgeScores.variant`.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Progress, Work, cost, fill_means, plan
from icl_mech.errors import RunError
from icl_mech.measurements.base import Options, Pair
from icl_mech.measurements.causal.tracing import (
    EMBED,
    Metric,
    Places,
    edges_of,
    gradients,
    is_parallel,
    node_scores,
    node_values,
    reader_names,
    written_by,
)
from icl_mech.measurements.circuits.alignment import aligned, margin
from icl_mech.models import LanguageModel, to_device
from icl_mech.results import Definition
from icl_mech.segments import Segment, by_length

PAPER = "Hanna et al. 2024, EAP-IG, arXiv 2403.17806"

Variant = Literal["paper", "reference"]

EAP_IG = Definition(
    "EAP-IG score",
    r"s_{u \to v} = \left(z_u - z'_u\right) \cdot \frac{1}{K} \sum_{k=1}^{K} \frac{\partial m}{\partial x_v}"
    r"\bigg|_{e' + \frac{k}{K}(e - e')}",
    "z_u is what node u writes in the clean run, z' in the counterfactual run, x_v the input of v, e the embeddings, m the "
    "logit of the right label word minus that of the demonstrated one. The released code takes k = 0 to K - 1. A node's "
    "score is the sum over its edges.",
    PAPER,
)


@dataclass(frozen=True, eq=False)
class Scored:
    """EAP-IG scores of each pair of prompts, summed over positions.

    Attributes:
        nodes: Of every writer.
        edges: From every writer to every reader; None if only nodes were scored.
    """

    nodes: Float[Tensor, "batch writer"]
    edges: Float[Tensor, "batch writer reader"] | None


def check_edges(model: LanguageModel) -> None:
    """Reject models without edges between single heads.

    Raises:
        RunError: the model normalises the output of its attention.
    """
    if model.attention_norm(0) is not None:
        raise RunError(
            f"{model.info.name!r} normalises the sum of its heads before adding it to the residual stream, so single heads "
            "have no edges. Use granularity='heads' or 'nodes'."
        )


def points(steps: int, variant: Variant) -> list[float]:
    """Points of the path: 0 is the counterfactual, 1 the clean run."""
    first = 1 if variant == "paper" else 0
    return [(first + k) / steps for k in range(steps)]


def eap_ig(
    model: LanguageModel,
    data: Pair,
    options: Options,
    *,
    steps: int,
    variant: Variant = "paper",
    edges: bool = True,
    grouped: bool = True,
) -> Scored:
    """EAP-IG scores of every node and edge, batch by batch.

    Edge scores are added up block by block in the backward pass: gradients at the inputs of readers are never held
    together.

    Args:
        model: The model.
        data: Clean prompts and their counterfactuals.
        options: Interventions, batches and memory.
        steps: Points of the path, K.
        variant: Points of the `paper` (k = 1 to K), or of the `reference` code (k = 0 to K - 1).
        edges: Score edges too.
        grouped: Query heads that share keys and values have one edge to them; else each has its own, as EAP-IG has.

    Raises:
        RunError: edges of a model that normalises the output of its attention.
    """
    clean, counterfactuals = data
    if edges:
        check_edges(model)
    work = Work([], fill_means(model, clean, [options.interventions])[0], checkpoint=False)
    lengths = clean.lengths.tolist()
    tokens, _ = plan(model, lengths, gradient=True, memory=options.memory)
    rows_of = aligned(clean, counterfactuals)
    by_node: list[Tensor] = [torch.empty(0)] * len(clean)
    by_edge: list[Tensor] = [torch.empty(0)] * len(clean)

    def metric(residual: Tensor, segment: Segment) -> Tensor:
        rows = list(segment.indices)
        return margin(
            model.label_logits(residual, segment.label_tokens), clean[rows], counterfactuals[rows]
        )

    each, padded = cost(lengths, gradient=True, variants=steps), not model.has_own_hooks
    with Progress("EAP-IG", len(clean), options.progress, cost=each) as bar:
        for rows in by_length(lengths, tokens=tokens, size=options.batch_size, padded=padded):
            base, source = (Segment.build(model, side[rows], rows) for side in data)
            values, _ = node_values(work, base, metric)
            counter, _ = node_values(work, source, metric)
            counter = _matched(counter, source, base, rows_of[rows])
            change = {site: values[site] - counter[site] for site in values}
            nodes, scores = _along(
                work, base, metric, counter, change, steps, variant, edges, grouped
            )
            for place, row in enumerate(rows):
                by_node[row] = nodes[place].cpu()
                if scores is not None:
                    by_edge[row] = scores[place].cpu()
            bar.advance(len(rows))
    work.check_acted()
    return Scored(torch.stack(by_node), torch.stack(by_edge) if edges else None)


def _along(
    work: Work,
    base: Segment,
    metric: Metric,
    counter: Places,
    change: Places,
    steps: int,
    variant: Variant,
    edges: bool,
    grouped: bool,
) -> tuple[Tensor, Tensor | None]:
    """Scores of one batch of nodes, and of edges if asked for."""
    info = base.model.info
    nodes: Tensor = torch.zeros(())
    written = written_by(base, change) if edges else None
    readers = len(reader_names(info, grouped=grouped))
    scores = None if written is None else written.new_zeros(len(written), written.shape[2], readers)

    def take(first: int, inputs: Tensor) -> None:
        if scores is not None and written is not None:
            last = first + inputs.shape[2]
            scores[:, :, first:last] += torch.einsum("btwd,btrd->bwr", written, inputs) / steps

    for point in points(steps, variant):
        start = counter[EMBED] + point * change[EMBED]
        gradient = gradients(work, base, metric, start, take if edges else None, grouped=grouped)
        nodes = nodes + node_scores(info, change, gradient).sum(-1) / steps
    if scores is not None:
        scores = scores * edges_of(info, parallel=is_parallel(base), grouped=grouped).to(scores)
    return nodes, scores


def _matched(
    values: Places, source: Segment, base: Segment, rows: Int[Tensor, "batch row"]
) -> Places:
    """Values of the counterfactual run at the columns of the clean run; 0 at padding."""
    dest = base.on_host[0]
    there = dest >= 0
    positions = rows.gather(1, dest.clamp(min=0))
    widths = torch.tensor([len(prompt) for prompt in source.prompts])[:, None]
    # Padding is on the left.
    columns = (positions + source.dest.shape[1] - widths).clamp(min=0)
    device = source.tokens.device
    columns, there = to_device(columns, device), to_device(there, device)
    matched = {}
    for site, value in values.items():
        taken = value[source.rows[:, None], columns]
        matched[site] = taken.where(there.reshape(*there.shape, *[1] * (taken.ndim - 2)), 0.0)
    return matched
