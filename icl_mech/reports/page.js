"use strict";
const find = (query, inside = document) => inside.querySelector(query);
const findAll = (query, inside = document) => [...inside.querySelectorAll(query)];
const DATA = JSON.parse(find("#page-data").textContent);
const SCREEN_DARK = matchMedia("(prefers-color-scheme: dark)");
const CONFIG = {
  displayModeBar: false, displaylogo: false, scrollZoom: false, doubleClick: false, showTips: false,
  responsive: false,
};
const NARROW = 560, PRINTED = 655, USUAL = 860;
const state = {printing: false, layer: 0, listeners: [], drawers: {}};

/* Colours: figures use the light ones; for the dark theme each hex code is replaced. */
const dark = () => SCREEN_DARK.matches && !state.printing;
const themed = text => dark()
  ? text.replace(/#[0-9a-f]{6}\b/gi, hex => DATA.colours.dark[hex.toLowerCase()] || hex) : text;

/* Texts: plotly interprets some tags in labels, so all labels are escaped. */
const escaped = text => text.replace(/[&<>]/g, sign => ({"&": "&amp;", "<": "&lt;", ">": "&gt;"}[sign]));
const percent = share => `${Math.round(100 * share)} %`;
const amount = value => {
  if (value == null) return "–";
  if (value >= 0.1) return value.toFixed(2);
  if (value >= 0.001) return value.toFixed(4);
  const [digits, power] = value.toExponential(1).split("e");
  return `${digits} × 10${power.replace(/./g, sign => "⁰¹²³⁴⁵⁶⁷⁸⁹"["0123456789".indexOf(sign)] || (sign === "-" ? "⁻" : ""))}`;
};

/* A line of text made of strings; one-element lists are bold. */
function tell(element, ...parts) {
  element.replaceChildren(...parts.map(part => {
    if (!Array.isArray(part)) return part;
    const bold = document.createElement("b"), own = document.createElement("bdi");
    own.textContent = part[0];
    bold.append(own);
    return bold;
  }));
}

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
    const lined = trace.mode.includes("lines"), symbol = trace.marker?.symbol || "";
    const signs = {
      square: `<rect x="13" y="3" width="8" height="8"/>`, diamond: `<path d="M17 2l5 5-5 5-5-5z"/>`,
      circle: `<circle cx="17" cy="7" r="4"/>`, "triangle-up": `<path d="M17 2l5 9h-10z"/>`,
      star: `<path d="M17 1l2 4 4 1-3 3 1 4-4-2-4 2 1-4-3-3 4-1z"/>`,
    };
    row.innerHTML = `<svg width="34" height="14" aria-hidden="true">`
      + (lined ? `<path d="M0 7h34" stroke-width="${trace.line?.width ?? 2}" stroke-dasharray="${dash}"/>` : "")
      + (trace.mode.includes("markers") ? signs[symbol.replace("-open", "")] || signs.circle : "") + "</svg>";
    const svg = row.firstChild;
    svg.style.stroke = typeof colour === "string" ? colour : "currentColor";
    svg.style.fill = symbol.endsWith("-open") ? "none" : svg.style.stroke;
    row.append(name);
    return row;
  }));
}

/* Content of a closed fold has no width; it is drawn when the fold opens. */
const inSight = element => !element.closest("details:not([open])");

function width(element) {
  return state.printing ? PRINTED : element.clientWidth;
}

/* Square cells grow and shrink with the width, so the height follows. */
function fitted(layout, across, sized) {
  const margin = {l: 80, r: 80, t: 100, b: 80, ...layout.margin};
  const squares = !sized && axesOf(layout).some(axis => axis.scaleanchor);
  let height = layout.height || 450;
  if (squares) {
    const inside = height - margin.t - margin.b;
    height = inside * Math.min(1, (across - margin.l - margin.r) / (USUAL - 150)) + margin.t + margin.b;
  } else if (state.printing) height *= 0.82;
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

function figureOf(id, across) {
  const own = DATA.figures[id], small = across < NARROW;
  const figure = JSON.parse(themed(JSON.stringify((small && own.narrow) || own.wide)));
  const keys = find(`[data-keys="${CSS.escape(id)}"]`);
  if (small) narrowed(figure, keys, across); else fill(keys, []);
  if (own.layered && find("input.layer")) {
    const panels = Object.keys(figure.layout).filter(key => /^xaxis/.test(key)).map(key => key.slice(5));
    figure.layout.shapes = [...(figure.layout.shapes || []), ...panels.map(panel => ({
      type: "line", name: "layer", xref: `x${panel}`, yref: `y${panel} domain`, x0: state.layer, x1: state.layer,
      y0: 0, y1: 1, layer: "below", line: {color: themed(DATA.colours.quiet), width: 1.5, dash: "dot"},
    }))];
  }
  figure.layout = fitted(figure.layout, across, small && own.narrow);
  inside(figure.layout);
  return figure;
}

function drawFigure(id) {
  const element = document.getElementById(`${id}-plot`);
  if (!inSight(element)) return;
  const figure = figureOf(id, width(element));
  element.style.height = `${figure.layout.height}px`;
  Plotly.react(element, figure.data, figure.layout, CONFIG);
  if (element.dataset.listens) return;
  element.dataset.listens = "yes";
  element.on("plotly_click", event => clicked(id, element, event.points[0]));
}

/* A point of a curve over layers sets the layer; a cell of a layer x head map its head. */
function clicked(id, element, point) {
  if (DATA.figures[id].layered && find("input.layer")) return setLayer(Math.round(point.x));
  if (point.data.type !== "heatmap") return undefined;
  const titles = ["x", "y"].map(axis => {
    const all = Object.keys(element.layout).filter(key => key.startsWith(`${axis}axis`));
    return all.map(key => element.layout[key].title?.text || "").find(text => text) || "";
  });
  if (!/^layer/.test(titles[0]) || !/^head/.test(titles[1])) return undefined;
  return showHead(id, Number(point.x), Number(point.y));
}

function showHead(id, layer, head) {
  const status = document.getElementById(`${id}-status`);
  const found = state.listeners.map(own => own.head?.(layer, head)).filter(Boolean).pop();
  status.hidden = false;
  if (!found) {
    const kept = Object.values(DATA.prompts).find(own => own.heads.length);
    const names = kept ? kept.heads.map(own => own.join(".")).join(", ") : "";
    tell(status, "Head ", [`${layer}.${head}`], names ? `: the run saved attention only for ${names}.`
      : ": the run saved no attention of individual heads.");
    return;
  }
  const link = document.createElement("a");
  link.href = `#${found.anchor}`;
  link.textContent = "show the prompt";
  tell(status, "Head ", [`${layer}.${head}`], ` attends from ${found.from} most to ${found.most}: `, link);
}

function setLayer(layer) {
  state.layer = layer;
  for (const [id, own] of Object.entries(DATA.figures)) if (own.layered) drawFigure(id);
  tellLayer();
}

function tellLayer() {
  findAll("input.layer").forEach(own => { own.value = state.layer; });
  findAll(".layer-out").forEach(own => { own.textContent = `layer ${state.layer}`; });
  state.listeners.forEach(own => own.layer?.(state.layer));
  for (const own of findAll("[data-at-layer]")) tellAt(own, DATA.figures[own.dataset.atLayer].wide);
}

/* The values of all curves at the layer, panel by panel, if no map shows them. */
function tellAt(status, figure) {
  const heads = new Map(), said = value => value.toFixed(2).replace("-", "−");
  for (const note of figure.layout.annotations || []) {
    const panel = /^(x\d*) domain$/.exec(note.xref || "");
    if (panel && note.font?.weight) heads.set(panel[1], [note.text, []]);
  }
  for (const trace of figure.data) {
    if (!trace.name || !trace.mode?.includes("lines") || trace.hoverinfo === "skip") continue;
    const panel = trace.xaxis || "x", at = (trace.x || []).findIndex(x => Math.round(x) === state.layer);
    if (!heads.has(panel)) heads.set(panel, ["", []]);
    if (typeof trace.y?.[at] === "number") heads.get(panel)[1].push(`${trace.name} ${said(trace.y[at])}`);
  }
  const found = [...heads.values()].filter(([, values]) => values.length);
  tell(status, `Layer ${state.layer}. `, ...found.flatMap(([head, values]) => [[head], ` ${values.join(", ")}. `]));
}

/* Draw figures on the screen at once, the others one by one when the browser is idle. */
function drawFirst() {
  const below = Object.keys(DATA.figures).filter(id => {
    const element = document.getElementById(`${id}-plot`);
    element.style.height ||= `${DATA.figures[id].wide.layout.height || 450}px`;
    if (element.getBoundingClientRect().top > 1.5 * innerHeight) return true;
    drawFigure(id);
    return false;
  });
  const idle = () => new Promise(go => (window.requestIdleCallback || setTimeout)(go));
  return async () => {
    for (const id of below) {
      await idle();
      if (!document.getElementById(`${id}-plot`).dataset.listens) drawFigure(id);
    }
  };
}

/* Opens the fold in the target of a URL fragment, and all folds around it. */
function openAt(hash) {
  let target = null;
  try { target = document.getElementById(decodeURIComponent(hash.slice(1))); } catch { /* no address */ }
  if (!target || target === find("main")) return;
  const folds = [find(":scope > .fold", target)];
  for (let own = target.closest("details"); own; own = own.parentElement.closest("details")) folds.push(own);
  if (!folds.some(own => own && !own.open)) return;
  for (const own of folds) if (own) own.open = true;
  target.scrollIntoView();
}

/* Folds: their figures are drawn when they open, one button opens all. */
function folds() {
  document.addEventListener("toggle", event => { if (event.target.open) drawIn(event.target); }, true);
  addEventListener("hashchange", () => openAt(location.hash));
  document.addEventListener("click", event => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link) openAt(link.hash);
  });
  const button = find("[data-open-all]"), all = findAll(".fold");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const open = all.some(own => !own.open);
    all.forEach(own => { own.open = open; });
    button.textContent = open ? "Close all" : "Open all";
  });
}

function drawIn(fold) {
  for (const plot of findAll(".plot", fold)) {
    const id = plot.id.slice(0, -"-plot".length);
    if (DATA.figures[id]) drawFigure(id); else if (inSight(plot)) state.listeners.forEach(own => own.draw?.());
  }
}

function drawAll() {
  Object.keys(DATA.figures).forEach(drawFigure);
  state.listeners.forEach(own => own.draw?.());
}

/* An image for a paper: light theme, page background, the width shown on screen. */
async function picture(id) {
  const element = document.getElementById(`${id}-plot`), was = state.printing, across = element.clientWidth;
  state.printing = true;
  const figure = state.drawers[id] ? state.drawers[id](across) : figureOf(id, across);
  state.printing = was;
  await Plotly.downloadImage(
    {data: figure.data, layout: {...figure.layout, paper_bgcolor: DATA.colours.page}, config: CONFIG},
    {format: "png", scale: 2, width: figure.layout.width, height: figure.layout.height, filename: id},
  );
}
