"""Figure of false induction heads: a table of the top-ranked heads."""

from icl_mech.checking import Count
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.heads.false_induction import FalseInductionResult
from icl_mech.metrics import Interval
from icl_mech.results import basis
from icl_mech.results.wording import said
from icl_mech.shapes import Table


def drawing(result: FalseInductionResult, rows: Count = 10) -> Table:
    """A table of the top-ranked heads.

    Args:
        result: The result to draw.
        rows: Number of heads.
    """
    matching = (result.prefix_matching, result.matching_low, result.matching_high)
    promoting = (result.promoting, result.promoting_low, result.promoting_high)
    return Table(
        title=f"Heads by prefix matching on {result.task}",
        columns=("head", "prefix matching", "class-sensitive", "label promoting (logits)"),
        rows=tuple(
            (
                head_name(head) + (" (chosen)" if rank < result.chosen else ""),
                said(Interval(*(float(end[rank]) for end in matching))),
                "yes" if result.class_sensitive[rank] else "no",
                said(Interval(*(float(end[rank]) for end in promoting)), sign=True),
            )
            for rank, head in enumerate(result.heads[:rows])
        ),
        note=f"{basis(result)}; class-sensitive: above the score with labels shuffled",
    )
