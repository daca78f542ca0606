"""Tables, as papers print their results."""

import plotly.graph_objects as go

from icl_mech.plots.style import TEMPLATE, shown, title
from icl_mech.shapes import Table


def table(shape: Table) -> go.Figure:
    """A table with a head row."""
    cells = [[shown(row[i]) for row in shape.rows] for i in range(len(shape.columns))]
    fig = go.Figure(
        go.Table(
            header={"values": list(shape.columns), "align": "left", "fill": {"color": "#dde6f0"}},
            cells={"values": cells, "align": "left", "height": 26},
        )
    )
    fig.update_layout(
        template=TEMPLATE,
        title=title(shape.title, shape.note),
        margin={"b": 10},
        height=160 + 27 * len(shape.rows),
    )
    return fig
