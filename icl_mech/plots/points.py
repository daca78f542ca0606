"""Scatter plots of named points, and values of conditions as dots with intervals."""

import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from icl_mech.plots.style import INK, LOOKS, QUIET, RULE, Look, axis, heading, layout, look, shown
from icl_mech.shapes import Bars, Scatter

SIDES = {
    "top center": (0.0, 1.0),
    "bottom center": (0.0, -1.0),
    "middle right": (1.3, 0.0),
    "middle left": (-1.3, 0.0),
}
"""Allowed positions of a point's name, as steps from the point."""


def scatter(shape: Scatter) -> go.Figure:
    """Points styled by group; some are labelled, all show their names on hover."""
    fig = go.Figure()
    sides = _sides(shape.x.double().tolist(), shape.y.double().tolist(), shape.named)
    groups = list(shape.order or dict.fromkeys(shape.groups))
    # The first group is drawn last, over the others.
    for place, group in reversed(list(enumerate(groups))):
        fig.add_trace(_group(shape, place, group, sides))
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
            y=height,
            line={"color": LOOKS["reference"].light, "dash": "dash", "width": 1},
            layer="below",
            annotation={
                "text": shown(text),
                "font": {"size": 11, "color": QUIET.light},
                "x": 1,
                "xanchor": "right",
                "yanchor": "bottom",
                "showarrow": False,
            },
        )
    if shape.corner:
        fig.add_annotation(
            x=1,
            y=1,
            xref="x domain",
            yref="y domain",
            text=shown(shape.corner),
            showarrow=False,
            xanchor="right",
            yanchor="top",
            font={"size": 12, "color": QUIET.light},
        )
    return fig


def _group(shape: Scatter, place: int, group: str, sides: dict[int, str]) -> go.Scatter:
    """The points of one group; those of the first group are filled and larger."""
    group_look = look(shape.meanings[place] if shape.meanings else "", place)
    x, y = shape.x.double().tolist(), shape.y.double().tolist()
    first = place == 0
    inside = [i for i, name in enumerate(shape.groups) if name == group]
    return go.Scatter(
        x=[round(x[i], 5) for i in inside],
        y=[round(y[i], 5) for i in inside],
        text=[f"<b>{shown(shape.names[i])}</b>" if i in shape.named else "" for i in inside],
        customdata=[shown(shape.names[i]) for i in inside],
        textposition=[sides.get(i, "top center") for i in inside],
        textfont={"color": group_look.light, "size": 12},
        name=group,
        showlegend=True,
        mode="markers+text",
        marker={
            "color": group_look.light,
            "symbol": group_look.marker if first else f"{group_look.marker}-open",
            "size": 10 if first else 7,
        },
        hovertemplate=f"<b>%{{customdata}}</b> ({shown(group)})<br>{shape.x_title} %{{x:.3f}}"
        f"<br>{shape.y_title} %{{y:.3f}}<extra></extra>",
    )


def _sides(x: list[float], y: list[float], named: Sequence[int]) -> dict[int, str]:
    """Side of each written name: the one with the most room."""
    finite = [i for i in range(len(x)) if math.isfinite(x[i]) and math.isfinite(y[i])]
    if not finite:
        return {}
    wide = (max(x[i] for i in finite) - min(x[i] for i in finite)) / 24 or 1.0
    tall = (max(y[i] for i in finite) - min(y[i] for i in finite)) / 18 or 1.0
    taken = [(x[i] / wide, y[i] / tall) for i in finite]
    sides = {}
    for i in named:
        if i not in finite:
            continue
        here = (x[i] / wide, y[i] / tall)
        others = [point for point in taken if point != here]

        def room(
            side: str, here: tuple[float, float] = here, others: list[tuple[float, float]] = others
        ) -> float:
            right, up = SIDES[side]
            at = (here[0] + right, here[1] + up)
            return min((math.dist(at, point) for point in others), default=9.0)

        best = max(SIDES, key=lambda side: min(room(side), 1.5))
        sides[i] = best
        right, up = SIDES[best]
        taken.append((here[0] + right, here[1] + up))
    return sides


def legend() -> dict[str, object]:
    """A legend above the axes, in one line."""
    return {
        "orientation": "h",
        "x": 0,
        "y": 1.0,
        "yanchor": "bottom",
        "xanchor": "left",
        "traceorder": "reversed",
    }


LINE = 46
"""Height of a line of dots in pixels; each dot beyond the second adds to it."""

APART = 0.36
"""Fraction of a line over which the dots of a group are spread."""

SHARES = (-0.03, 1.03)
"""Range of the axis if all values lie between 0 and 1."""


BETWEEN = 100
"""Vertical gap between axes, in pixels."""


def bars(shape: Bars) -> go.Figure:
    """Dots with intervals, one line for each group, the first on top.

    Dots that are different measures have separate axes, side by side or, with `columns=1`, one
    below the other.
    """
    panels = len(shape.apart) or 1
    columns = min(panels, shape.columns)
    rows = -(-panels // columns)
    count, lines = len(shape.names), len(shape.groups)
    inside = count if panels == 1 else 1
    tall = (LINE + 14 * max(0, inside - 2)) * lines
    total = rows * (tall + BETWEEN) - BETWEEN
    fig = make_subplots(
        rows=rows,
        cols=columns,
        horizontal_spacing=0.06 if columns > 1 else 0,
        vertical_spacing=BETWEEN / total if rows > 1 else 0,
    )
    looks = [look(shape.meanings[i] if shape.meanings else "", i) for i in range(count)]
    heights = [_height(i, inside) if panels == 1 else 0.0 for i in range(count)]
    places = [
        {"row": i // columns + 1, "col": i % columns + 1} if panels > 1 else {"row": 1, "col": 1}
        for i in range(count)
    ]
    for group, dot, drawn in shape.spread:
        _spread(fig, shape, group, dot, drawn, looks[dot], heights[dot], places[dot])
    for i in range(count):
        _dots(fig, shape, i, looks[i], heights[i], places[i])
    for group, dot, value in shape.published:
        fig.add_trace(_published(shape.source, value, group + heights[dot]), **places[dot])
    ends = _ends(shape)
    levelled = _levels(fig, shape, ends)
    if shape.sides:
        _both_sides(fig, shape.sides, 18 * levelled)
        levelled += 1
    _axes(fig, shape, ends, columns)
    many = panels == 1 and count > 1
    # A legend names the dots.
    above = 8 + 30 * many + 18 * levelled
    top = heading(shape.note) + above
    fig.update_layout(**layout(shape.title, shape.note))
    fig.update_layout(
        height=total + top + 60,
        margin={"l": 20, "r": 30, "t": top, "b": 60},
        showlegend=many,
        legend={**legend(), "y": 1 + (4 + 18 * levelled) / total},
        meta={"above": above},
    )
    return fig


def _axes(fig: go.Figure, shape: Bars, ends: list[float] | None, columns: int) -> None:
    """Label groups at the left of each row of axes, and the quantity below each."""
    lines = len(shape.groups)
    fig.update_xaxes(axis("", zeroline=False, range=ends))
    fig.update_yaxes(
        axis(
            tickvals=list(range(lines)),
            ticktext=[shown(name) for name in shape.groups],
            ticks="",
            range=[lines - 0.5, -0.5],
            showgrid=False,
            automargin=True,
            showline=False,
        )
    )
    for panel, text in enumerate(shape.apart or (shape.y_title,)):
        where = {"row": panel // columns + 1, "col": panel % columns + 1}
        fig.update_xaxes(title_text=shown(text), **where)
        if panel % columns:
            fig.update_yaxes(showticklabels=False, **where)


def _published(source: str, value: float, height: float) -> go.Scatter:
    """A paper's value as a hollow triangle."""
    return go.Scatter(
        x=[value],
        y=[height],
        mode="markers",
        name=source,
        marker={
            "symbol": "triangle-up-open",
            "size": 10,
            "color": LOOKS["reference"].light,
            "line": {"width": 1.5},
        },
        hovertemplate=f"<b>{shown(source)}</b><br>%{{x:.3f}}<extra></extra>",
    )


def _ends(shape: Bars) -> list[float] | None:
    """Full range of the axis of fractions, so that no figure magnifies a part of it; None: by the values."""
    if shape.sides:
        return None
    values = [*shape.values.flatten().tolist(), *shape.low.flatten().tolist()]
    values += [*shape.high.flatten().tolist(), *(value for value, _ in shape.levels)]
    values += [value for *_, value in shape.published]
    values += [value for *_, drawn in shape.spread for value in drawn]
    known = [value for value in values if math.isfinite(value)]
    return list(SHARES) if all(0 <= value <= 1 for value in known) else None


def _levels(fig: go.Figure, shape: Bars, ends: list[float] | None) -> int:
    """Draw dashed lines behind the dots, named above the axes; return the number of rows of names."""
    texts: dict[float, list[str]] = {}
    for value, text in shape.levels:
        texts.setdefault(round(value, 6), []).append(text)
    span = (ends[1] - ends[0]) if ends else _span(shape)
    taken: list[float] = []  # right end of the names of each row
    across = 640 / max(1, min(len(shape.apart) or 1, shape.columns))
    for value in sorted(texts):
        text = shown(", ".join(dict.fromkeys(texts[value])))
        half = 3.3 * len(text) / across * span
        at = value
        if ends:
            at = min(max(value, ends[0] + half), ends[1] - half)
        row = next((i for i, right in enumerate(taken) if right < at - half), len(taken))
        taken[row : row + 1] = [at + half + 0.02 * span]
        fig.add_shape(
            type="line",
            x0=value,
            x1=value,
            xref="x",
            y0=0,
            y1=1,
            yref="y domain",
            layer="below",
            line={"color": LOOKS["reference"].light, "dash": "dash", "width": 1},
        )
        fig.add_annotation(
            x=at,
            y=1,
            xref="x",
            yref="y domain",
            text=text,
            showarrow=False,
            yanchor="bottom",
            yshift=18 * row,
            font={"size": 11, "color": QUIET.light},
        )
    return len(taken)


def _span(shape: Bars) -> float:
    known = [v for end in (shape.low, shape.high, shape.values) for v in end.flatten().tolist()]
    known = [v for v in known if math.isfinite(v)] + [value for value, _ in shape.levels]
    return max(known, default=1.0) - min(known, default=0.0) or 1.0


def _both_sides(fig: go.Figure, sides: tuple[str, str], above: int) -> None:
    """Draw a line at 0, and above it the meaning of either side."""
    fig.add_vline(x=0, line={"color": INK.light, "width": 1.5}, layer="below")
    for text, anchor, shift in ((f"← {sides[0]}", "right", -6), (f"{sides[1]} →", "left", 6)):
        fig.add_annotation(
            x=0,
            y=1,
            xref="x",
            yref="y domain",
            text=shown(text),
            showarrow=False,
            yanchor="bottom",
            xanchor=anchor,
            xshift=shift,
            yshift=above,
            font={"size": 12, "color": QUIET.light},
        )


def _height(place: int, count: int) -> float:
    """Vertical offset of a dot from the middle of its line."""
    return (place - (count - 1) / 2) * APART / max(1, count - 1) if count > 1 else 0.0


def _dots(
    fig: go.Figure, shape: Bars, i: int, dot_look: Look, height: float, place: Mapping[str, int]
) -> None:
    values, name = shape.values[:, i], shape.names[i]
    low, high = shape.low[:, i], shape.high[:, i]
    finite = bool(low.isfinite().any())
    fig.add_scatter(
        x=values.tolist(),
        y=[group + height for group in range(len(shape.groups))],
        name=name,
        showlegend=True,
        mode="markers",
        marker={"color": dot_look.light, "symbol": dot_look.marker, "size": 10},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": (high - values).tolist(),
            "arrayminus": (values - low).tolist(),
            "width": 0,
            "thickness": 2,
            "color": dot_look.light,
        }
        if finite
        else None,
        customdata=[
            [low_end, high_end, shown(group)]
            for low_end, high_end, group in zip(
                low.tolist(), high.tolist(), shape.groups, strict=True
            )
        ],
        hovertemplate=f"<b>%{{customdata[2]}}, {shown(name)}</b><br>%{{x:.3f}}"
        + " [%{customdata[0]:.3f}, %{customdata[1]:.3f}]" * finite
        + "<extra></extra>",
        **place,
    )


def _spread(
    fig: go.Figure,
    shape: Bars,
    group: int,
    dot: int,
    drawn: Sequence[float],
    dot_look: Look,
    height: float,
    place: Mapping[str, int],
) -> None:
    """Draw single values as small hollow marks behind their dot; the first ones carry the legend entry."""
    fig.add_scatter(
        x=list(drawn),
        y=[group + height] * len(drawn),
        mode="markers",
        name=f"{shape.groups[group]}, "
        * (len({spread_group for spread_group, *_ in shape.spread}) == 1)
        + f"single {shape.single}s",
        legendgroup="single",
        showlegend=(group, dot) == shape.spread[0][:2],
        marker={
            "symbol": f"{dot_look.marker}-open",
            "size": 6,
            "color": LOOKS["other"].light,
            "opacity": 0.7,
        },
        hovertemplate=f"<b>{shown(shape.groups[group])}, one {shape.single}</b><br>%{{x:.3f}}<extra></extra>",
        **place,
    )
