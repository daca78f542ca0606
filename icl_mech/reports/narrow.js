"use strict";
/* Figures of any page, study's or documentation's, at the width that it has. */
const NARROW = 560, USUAL = 860, HIGHEST_PRINTED = 440;

const axesOf = layout => Object.keys(layout).filter(key => /^[xy]axis\d*$/.test(key)).map(key => layout[key]);

/* Changes to a figure on a phone: narrower margins, fewer ticks, names in a legend above. */
function narrowed(figure, keys, across) {
  const layout = figure.layout, margin = layout.margin || {};
  layout.margin = {...margin, l: Math.min(margin.l ?? 60, 52), r: Math.min(margin.r ?? 40, 12)};
  const before = (layout.annotations || []).length;
  layout.annotations = (layout.annotations || []).filter(own => !/^(curve|name|end)/.test(own.name || ""));
  for (const axis of axesOf(layout)) {
    axis.title = {...axis.title, standoff: 3};
    const ticks = axis.tickvals;
    if (Array.isArray(ticks) && ticks.length > 6 && !axis.ticktext) {
      const step = Math.ceil((ticks.length - 1) / 4);
      axis.tickvals = ticks.filter((_, i) => i === ticks.length - 1
        || (i % step === 0 && ticks.length - 1 - i >= step / 2));
    } else axis.nticks ??= 5;
  }
  thinned(layout, across);
  for (const trace of figure.data) {
    if (trace.type === "heatmap" && trace.showscale !== false) {
      trace.colorbar = {...trace.colorbar, thickness: 8, title: {text: ""}, tickfont: {size: 10}};
      layout.margin.r = 48;
    }
  }
  fill(keys, before > layout.annotations.length ? figure.data : []);
}

/* As many names below a figure as fit without overlap: one per 14 pixels. */
function thinned(layout, across) {
  const named = Math.max(0, ...(layout.yaxis?.ticktext || []).map(text => text.length));
  const room = across - Math.max(layout.margin.l, 7 * named + 8) - 48;
  for (const key of Object.keys(layout).filter(key => /^xaxis/.test(key))) {
    const axis = layout[key], [start, stop] = axis.domain || [0, 1], names = axis.ticktext;
    if (!names) continue;
    const step = Math.ceil(14 * names.length / (room * (stop - start)));
    const kept = own => own.filter((_, i) => i % step === 0);
    Object.assign(axis, {tickvals: kept(axis.tickvals), ticktext: kept(names)});
  }
}

/* Samples of lines with markers, and their names. */
function fill(keys, traces) {
  if (!keys) return;
  const named = new Map();
  for (const trace of traces) {
    if (trace.name && trace.hoverinfo !== "skip" && trace.mode) named.set(trace.name, trace);
  }
  keys.hidden = !named.size;
  keys.replaceChildren(...[...named].map(([name, trace]) => {
    const row = document.createElement("span"), colour = trace.line?.color || trace.marker?.color;
    const dash = {dash: "6 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "10 4"}[trace.line?.dash] || "";
    const lined = trace.mode.includes("lines");
    const [symbol, open] = (trace.marker?.symbol || "circle").split("-open");
    const signs = {
      square: `<rect x="13" y="3" width="8" height="8"/>`, diamond: `<path d="M17 2l5 5-5 5-5-5z"/>`,
      circle: `<circle cx="17" cy="7" r="4"/>`, "triangle-up": `<path d="M17 2l5 9h-10z"/>`,
      star: `<path d="M17 1l2 4 4 1-3 3 1 4-4-2-4 2 1-4-3-3 4-1z"/>`,
    };
    row.innerHTML = `<svg width="34" height="14" aria-hidden="true">`
      + (lined ? `<path d="M0 7h34" stroke-width="${trace.line?.width ?? 2}" stroke-dasharray="${dash}"/>` : "")
      + (trace.mode.includes("markers") ? signs[symbol] || signs.circle : "") + "</svg>";
    const svg = row.firstChild;
    svg.style.stroke = svg.style.fill = typeof colour === "string" ? colour : "currentColor";
    if (open !== undefined) svg.style.fill = "none";
    row.append(name);
    return row;
  }));
}

/* Square cells grow and shrink with the width, so the height follows. */
function fitted(layout, across, sized, printed) {
  const margin = {l: 80, r: 80, t: 100, b: 80, ...layout.margin};
  const squares = !sized && axesOf(layout).some(axis => axis.scaleanchor);
  let height = layout.height || 450;
  if (squares) {
    const inside = height - margin.t - margin.b;
    height = inside * Math.min(1, (across - margin.l - margin.r) / (USUAL - 150)) + margin.t + margin.b;
    if (printed) height = Math.min(height, HIGHEST_PRINTED);
  } else if (printed) height = Math.min(0.75 * height, HIGHEST_PRINTED);
  return {...layout, width: Math.round(across), height: Math.round(height)};
}

/* Centred names are moved just far enough that the frame does not cut them. */
function inside(layout) {
  const margin = {l: 80, r: 80, ...layout.margin};
  const named = layout.yaxis?.automargin ? Math.max(0, ...(layout.yaxis.ticktext || []).map(text => text.length)) : 0;
  const room = layout.width - Math.max(margin.l, 7 * named + 8) - margin.r;
  for (const note of layout.annotations || []) {
    const axis = /^x\d*$/.test(note.xref || "") && layout[`xaxis${note.xref.slice(1)}`];
    if (!axis?.range || note.name || note.showarrow || note.textangle || typeof note.x !== "number"
      || (note.xanchor && note.xanchor !== "auto" && note.xanchor !== "center")) continue;
    const [low, high] = axis.range, [start, stop] = axis.domain || [0, 1];
    const half = 0.5 * 5.8 * String(note.text).replace(/<[^>]*>|&\w+;/g, "x").length
      / (room * (stop - start)) * (high - low);
    note.x = 2 * half > high - low ? (low + high) / 2 : Math.min(Math.max(note.x, low + half), high - half);
  }
}
