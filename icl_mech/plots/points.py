"""Points over two quantities."""

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from icl_mech.plots.style import LOOKS, QUIET, RULE, axis, layout, look, shown
from icl_mech.shapes import Scatter

SIDES = {
    "top center": (0.0, 1.0),
    "bottom center": (0.0, -1.0),
    "middle right": (1.3, 0.0),
    "middle left": (-1.3, 0.0),
}
"""Where a point's name may stand, in steps from the point."""


def scatter(shape: Scatter) -> go.Figure:
    """Points with the look of their group; some carry their names, all on hovering."""
    fig = go.Figure()
    x, y = shape.x.double().tolist(), shape.y.double().tolist()
    sides = _sides(x, y, shape.named)
    groups = list(shape.order or dict.fromkeys(shape.groups))
    # The first group is drawn last, over the others.
    for place, group in reversed(list(enumerate(groups))):
        own = look(shape.meanings[place] if shape.meanings else "", place)
        first = place == 0
        inside = [i for i, name in enumerate(shape.groups) if name == group]
        fig.add_scatter(
            x=[round(x[i], 5) for i in inside],
            y=[round(y[i], 5) for i in inside],
            text=[f"<b>{shown(shape.names[i])}</b>" if i in shape.named else "" for i in inside],
            customdata=[shown(shape.names[i]) for i in inside],
            textposition=[sides.get(i, "top center") for i in inside],
            textfont={"color": own.light, "size": 12},
            name=group,
            showlegend=True,
            mode="markers+text",
            marker={
                "color": own.light,
                "symbol": own.marker if first else f"{own.marker}-open",
                "size": 10 if first else 7,
            },
            hovertemplate=f"<b>%{{customdata}}</b> ({shown(group)})<br>{shape.x_title} %{{x:.3f}}"
            f"<br>{shape.y_title} %{{y:.3f}}<extra></extra>",
        )
    zero = {"zeroline": True, "zerolinecolor": RULE.light, "zerolinewidth": 1}
    fig.update_layout(
        **layout(shape.title, shape.note, height=520),
        xaxis=axis(shape.x_title, **zero),
        yaxis=axis(shape.y_title, **zero),
        legend=legend(),
    )
    fig.update_layout(showlegend=len(groups) > 1, margin={"l": 70, "r": 30, "b": 60})
    for height, text in shape.levels:
        fig.add_hline(
            y=height, line={"color": LOOKS["reference"].light, "dash": "dash", "width": 1},
            layer="below", annotation={
                "text": shown(text), "font": {"size": 11, "color": QUIET.light}, "x": 1,
                "xanchor": "right", "yanchor": "bottom", "showarrow": False,
            },
        )  # fmt: skip
    if shape.corner:
        fig.add_annotation(
            x=1, y=1, xref="x domain", yref="y domain", text=shown(shape.corner), showarrow=False,
            xanchor="right", yanchor="top", font={"size": 12, "color": QUIET.light},
        )  # fmt: skip
    return fig


def _sides(x: list[float], y: list[float], named: Sequence[int]) -> dict[int, str]:
    """Where the names stand that are written: on the side with most room."""
    finite = [i for i in range(len(x)) if math.isfinite(x[i]) and math.isfinite(y[i])]
    if not finite:
        return {}
    wide = (max(x[i] for i in finite) - min(x[i] for i in finite)) / 24 or 1.0
    tall = (max(y[i] for i in finite) - min(y[i] for i in finite)) / 18 or 1.0
    taken = [(x[i] / wide, y[i] / tall) for i in finite]
    found = {}
    for i in named:
        if i not in finite:
            continue
        here = (x[i] / wide, y[i] / tall)
        others = [point for point in taken if point != here]

        def room(side: str, here: tuple[float, float] = here, others: list[tuple[float, float]] = others) -> float:  # fmt: skip
            right, up = SIDES[side]
            at = (here[0] + right, here[1] + up)
            return min((math.dist(at, other) for other in others), default=9.0)

        best = max(SIDES, key=lambda side: min(room(side), 1.5))
        found[i] = best
        right, up = SIDES[best]
        taken.append((here[0] + right, here[1] + up))
    return found


def legend() -> dict[str, object]:
    """Above the axes, in one line."""
    return {
        "orientation": "h",
        "x": 0,
        "y": 1.0,
        "yanchor": "bottom",
        "xanchor": "left",
        "traceorder": "reversed",
    }
