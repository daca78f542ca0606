"""Figures of head scores: heatmaps over layers and heads, and prefix matching against label promoting."""

from icl_mech.checking import Count
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.heads.head_scores import LOGIT, SCORES, HeadScoresResult
from icl_mech.results import basis
from icl_mech.results.wording import counted, spelled
from icl_mech.shapes import Grid, Grids, Scatter


def drawing(result: HeadScoresResult, show: str = "maps", top: Count = 5) -> Grids | Grid | Scatter:
    """Heatmaps of scores, with layers as columns and heads as rows, or matching against promoting.

    Args:
        result: The result to draw.
        show: `maps` (prefix matching and label promoting), one score, or `both`.
        top: Number of heads with the highest prefix matching that are framed and named.

    Raises:
        ResultError: the score is not defined for these prompts.
    """
    if show == "both":
        return _against_promoting(result, result.top(top))
    if show != "maps":
        return _map(result, show, top, f"{basis(result)}; ")
    scores = ["prefix_matching", *(["label_promoting"] if result.promoting is not None else [])]
    maps = tuple(_map(result, score, top) for score in scores)
    return Grids("Scores of heads", maps, basis(result))


def _map(result: HeadScoresResult, score: str, top: int, note: str = "") -> Grid:
    quantity = result.score(score)
    low, high = quantity.ends()
    framed = result.top(top)
    return Grid(
        title=SCORES[score][0].upper() + SCORES[score][1:],
        values=quantity.value().T,
        row_title="head",
        column_title="layer",
        quantity="logits" if score == "label_promoting" else "score",
        note=note and f"{note}framed: the {top} heads with the highest prefix matching",
        signed=score == "label_promoting",
        marked=tuple((head, layer) for layer, head in framed),
        names=tuple(map(head_name, framed)),
        low=low.T,
        high=high.T,
    )


def _against_promoting(result: HeadScoresResult, chosen: tuple[tuple[int, int], ...]) -> Scatter:
    """Prefix matching against label promoting; chosen heads and the extremes carry their names."""
    matching, promoting = result.prefix_matching, result.label_promoting.flatten()
    n_layers, n_heads = matching.shape
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    named = [heads.index(head) for head in chosen]
    group, others = f"{spelled(len(chosen))} heads with the highest prefix matching", "other heads"
    return Scatter(
        title="Do heads that match prefixes promote the false label?",
        x=matching.flatten(),
        y=promoting,
        names=tuple(map(head_name, heads)),
        groups=tuple(group if head in chosen else others for head in heads),
        x_title=SCORES["prefix_matching"],
        y_title=LOGIT,
        note=f"means over {counted(result.count, 'prompt')}",
        order=(group, others) if len(chosen) < len(heads) else (group,),
        meanings=("false", "other"),
        named=tuple(dict.fromkeys((*named, int(promoting.argmax()), int(promoting.argmin())))),
        corner="false induction heads would be here",
    )
