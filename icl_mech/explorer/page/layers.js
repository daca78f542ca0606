// -- Layers: tracks over one axis; dragging on any of them chooses a range of layers --

const FLOWS = [
  ["text", "texts → label words", "", "circle", "texts → labels"],
  ["label", "label words → target", "6 3", "square", "labels → target"],
  ["template", "everything else", "1.5 3", "diamond", "else"],
];
/** The baseline of label words → target only: random tokens in the place of the label words. */
const RANDOM = ["label", "random tokens → target", "1 4", "", "random → target"];
const UNIT = [[0, "0"], [0.5, ".5"], [1, "1"]];
const EDGE_DECADES = 3;  // of saliency per edge that the track of the flow spans
const MARKERS = {
  circle: (x, y) => `M${x - 2.5},${y}a2.5,2.5 0 1,0 5,0a2.5,2.5 0 1,0 -5,0`,
  square: (x, y) => `M${x - 2.5},${y - 2.5}h5v5h-5z`,
  diamond: (x, y) => `M${x},${y - 3.2}l3.2,3.2l-3.2,3.2l-3.2,-3.2z`,
};

/** A line through values (gaps where there are none) with one path of markers. */
function curve(values, x, y, [ink, , dash, marker], width = 1.9) {
  let line = "", marks = "", pen = "M";
  values.forEach((value, i) => {
    if (value == null) { pen = "M"; return; }
    const [px, py] = [x(i).toFixed(1), y(value).toFixed(1)];
    line += `${pen}${px},${py}`;
    pen = "L";
    if (marker) marks += MARKERS[marker](Number(px), Number(py));
  });
  return [
    make("path", { d: line, fill: "none", stroke: colour(ink), "stroke-width": width, "stroke-dasharray": dash || null, "stroke-linejoin": "round" }),
    marks && make("path", { d: marks, fill: marker === "diamond" ? colour("page") : colour(ink), stroke: colour(ink), "stroke-width": 1 }),
  ].filter(Boolean);
}

function band(low, high, x, y, ink) {
  // With few prompts, intervals of means may extend beyond [0, 1].
  const place = (value, i) => `${x(i)},${y(clamp(value, 0, 1))}`, there = high.map(place), back = low.map(place).reverse();
  return make("path", { d: `M${[...there, ...back].join("L")}Z`, fill: colour(ink), opacity: 0.14 });
}

/** A sample of a line for the legend. */
function key([ink, words, dash, marker], width = 1.9) {
  const title = words.startsWith("random") ? "label words → target, with random tokens in place of the label words" : null;
  return make("span", { class: "ex-key", title, style: { color: colour(ink === "ref" ? "muted" : ink) } },
    make("svg", { width: 26, height: 10, "aria-hidden": "true" }, curve([5], () => 13, () => 5, [ink, "", "", marker]),
      make("path", { d: "M0,5H26", stroke: colour(ink), "stroke-width": width, "stroke-dasharray": dash || null })), words);
}

/** The sample of the broad pale lines of the reference. */
function pale(words) {
  return make("span", { class: "ex-key" }, make("svg", { width: 26, height: 10, "aria-hidden": "true" },
    make("path", { d: "M0,5H26", stroke: colour("muted"), "stroke-width": 5, opacity: 0.3 })), words);
}

function layersView(app) {
  const { look } = app;
  const kinds = make("span", { class: "ex-kinds" });
  const scope = segmented("What the tracks show", [[true, "all prompts", "Means over the set with 95 % intervals"], [false, "this prompt", "Only the prompt on the left"]],
    all => { look.all = all; app.draw("layers", "header"); });
  const flowControl = segmented("What the flow shows", [["shares", "fractions", "Of one total: where one rises, another falls"], ["edges", "per edge", "Mean saliency of an edge of each type, which the others do not change"]],
    flow => { look.flow = flow; app.draw("layers"); });
  flowControl.node.classList.add("ex-small");
  const svg = make("svg", { class: "ex-svg", "aria-hidden": "true" });
  const groups = Object.fromEntries(["cursor", "grid", "refflow", "flow", "changes", "pair", "ref", "base", "now", "all", "words", "heads", "marks", "brush", "label"]
    .map(name => [name, make("g", { class: `ex-g-${name}` })]));
  svg.append(...Object.values(groups));
  const over = make("div", { class: "ex-over" }), changesOver = make("div", { class: "ex-over" });
  const tracks = make("div", {
    class: "ex-tracks", tabindex: 0, role: "application", "aria-roledescription": "layers",
    "aria-label": "Layers. Left and right move the cursor, with Shift they choose a range, Enter applies the change to it, up and down choose a change or a head.",
  }, svg, over, changesOver);
  const say = make("p", { class: "ex-say ex-reading", role: "status" });
  const heads = headsMap(app, { fill, showsAll: () => showsAll() });
  tracks.append(heads.title);
  const node = make("section", { class: "ex-layers-view", "aria-label": "Layers" },
    make("div", { class: "ex-bar" }, make("h2", {}, "Layers"), kinds, make("span", { class: "ex-space" }), scope.node), tracks, say, heads.node);

  const lens = lensTrack(app), tall = { flow: 19, lens: 45 };  // heights of headings
  let g = null, drag = null, kindsBuilt = "", wordsBuilt = "";

  // The kind of change that a dragged range applies

  function drawKinds(state) {
    const others = app.set ? 390 : 185, compact = node.clientWidth < others + state.kinds.reduce((sum, kind) => sum + 19 + 6.4 * kind.words.length, 0);
    const signature = JSON.stringify([state.kinds, compact]);
    if (signature !== kindsBuilt) {
      kindsBuilt = signature;
      const act = what => {
        look.kind = what;
        if (kindNow()?.needs === "demo") look.demo ??= state.texts || state.demos.length ? 0 : null;
        app.says = {};
        app.draw("layers", "prompt");
      };
      const chosen = compact
        ? make("select", { "data-live": true, "aria-label": "What a dragged range does", onchange: event => act(event.target.value) }, state.kinds.map(kind => make("option", { value: kind.what }, kind.words)))
        : segmented("What a dragged range does", state.kinds.map(kind => [kind.what, kind.words, ""]), act);
      kinds.control = chosen;
      kinds.replaceChildren(make("span", { class: "ex-quiet" }, "drag a range to"), chosen.node ?? chosen);
    }
    if (kinds.control.choose) kinds.control.choose(look.kind);
    else kinds.control.value = look.kind;
  }

  const kindNow = () => app.state.kinds.find(kind => kind.what === look.kind);

  function needWords(state) {
    const needs = kindNow()?.needs;
    if (needs === "token") return look.token == null ? "choose a token in the prompt, then drag" : `drag: ${kindNow().words}, ${quoted(state.tokens[look.token].t)} (${look.token})`;
    if (needs === "demo") return look.demo == null ? (state.texts ? "choose a token of a span, then drag" : "choose a demonstration by its number, then drag") : `drag: ${kindNow().words}, number ${look.demo + 1}`;
    return state.changes.length ? "" : "none – drag across layers on any track, or choose heads below";
  }

  /** What has to be chosen before the change can be applied; empty if nothing. */
  function missing() {
    const needs = kindNow()?.needs;
    if (needs === "token" && look.token == null) return "Choose a token in the prompt first: this change is about one token.";
    if (needs === "demo" && look.demo == null) return app.state.texts ? "Choose a span in the prompt first, by one of its tokens." : "Choose a demonstration in the prompt first: its number, or one of its tokens.";
    return "";
  }

  function apply(from, to) {
    const kind = kindNow(), [a, b] = [Math.min(from, to), Math.max(from, to)];
    if (!kind) return undefined;
    if (missing()) return app.tell("layers", missing(), true);
    const fields = { what: kind.what, from: a, to: b };
    if (kind.needs === "token") fields.token = look.token;
    if (kind.needs === "demo") fields.demo = look.demo;
    return app.act("range", fields, "layers");
  }

  // Geometry: the place of each track, from the width of the cell and the height of the window

  function geometry(state) {
    const width = tracks.clientWidth || 820, narrow = width < 500, left = narrow ? 34 : 44, right = 8;
    const column = (width - left - right) / (state.layers + 1), head = narrow ? 37 : 19;
    const cell = clamp(Math.min(270 / state.heads, column * 0.8), 5, 15.5), rows = changeRows(state, width, left, column);
    const roomy = app.root.clientWidth >= WIDE;
    // The flow keeps its height whatever the number of changes, so that bars stay under the pointer; the lens shrinks instead.
    const fixed = 148 + head + tall.flow + tall.lens + 118 + state.heads * cell + 142, allowed = 25;
    const rest = roomy ? clamp(window.innerHeight - fixed - allowed, 230, 440) : 250;
    const flowHeight = state.texts ? 0 : Math.round(rest * 0.52), lensHeight = roomy ? Math.max(104, rest - flowHeight - Math.max(0, rows.height - allowed)) : rest - flowHeight;
    let y = 0;
    const found = { width, narrow, left, right, column, cell, rows: rows.placed };
    const place = (name, height, title) => {
      found[name] = { head: y, top: y + title, height };
      y += title + height;
    };
    place("flow", flowHeight, state.texts ? 0 : tall.flow + 5);
    y += state.texts ? 0 : 9;
    place("changes", rows.height, 19);
    y += 5;
    place("lens", lensHeight, tall.lens + 5);
    y += 9;
    place("words", 66, 0);
    y += 8;
    place("heads", state.heads * cell, 56);
    found.axis = y + 3;
    found.height = y + 24;
    found.x = layer => left + (layer + 1.5) * column;
    return found;
  }

  /** Bars of changes, each with its description right of it, left of it, or below. */
  function changeRows(state, width, left, column) {
    let y = 0;
    const placed = state.changes.map(change => {
      const [a, b] = changeLayers(change), from = left + (a + 1) * column, to = left + (b + 2) * column;
      const need = Math.min(360, 60 + 6.6 * change.words.length + (change.factor != null ? 70 : 0));
      const side = width - to > need ? "right" : from > need ? "left" : "below";
      const row = { y, side, a, b, left: clamp(from, left, Math.max(left, width - need)) };
      y += side === "below" ? 44 : 25;
      return row;
    });
    return { placed, height: Math.max(y, 4) };
  }

  const rise = (track, value) => track.top + track.height * (1 - value);

  // Tracks

  function draw() {
    const state = app.state;
    drawKinds(state);
    scope.node.hidden = !app.set;
    scope.choose(look.all);
    place(state);
    if (!fits()) place(state);
    drawCursor();
  }

  function place(state) {
    g = geometry(state);
    // Positions of layers and heads, for tests that drive the page.
    svg.dataset.places = JSON.stringify({ first: g.x(0), column: g.column, flow: g.flow.top + g.flow.height / 2, heads: g.heads.top, cell: g.cell });
    svg.setAttribute("viewBox", `0 0 ${g.width} ${g.height}`);
    svg.style.height = over.style.height = `${g.height}px`;
    over.replaceChildren();
    drawGrid(state);
    drawFlow(state);
    drawChanges(state);
    lens.draw(state, g, fill, title);
    drawWords(state);
    heads.draw(state, g);
  }

  function title(track, words, more, keys = [], control = null) {
    track.title = make("div", { class: "ex-track-head", style: { top: `${track.head}px`, left: `${g.left}px`, right: `${g.right}px` } },
      make("h3", {}, words, more && make("span", {}, more)), control, make("span", { class: "ex-keys" }, keys));
    over.append(track.title);
  }

  /** True if each heading has as many lines as its legend needs at this width; else that is now known. */
  function fits() {
    const was = { ...tall };
    for (const name of Object.keys(tall)) tall[name] = g[name].title?.offsetHeight || tall[name];
    return Object.keys(tall).every(name => tall[name] === was[name]);
  }

  /** Old drawings stay, pale, until new ones arrive. */
  function fill(name, parts, ...children) {
    groups[name].replaceChildren(...children.flat(Infinity).filter(Boolean));
    groups[name].classList.toggle("ex-stale", parts.some(part => app.parts[part] && !app.fresh.has(part)));
  }

  function drawGrid(state) {
    const parts = [], chance = state.texts ? -1 : 1 / state.labels.length;
    const text = (x, y, words, more = {}) => parts.push(make("text", { x, y, "font-size": 11.5, "text-anchor": "end", fill: colour("muted"), ...more }, words));
    for (const [track, ticks] of [[g.flow, flowScale().ticks], [g.lens, UNIT]]) {
      for (const [value, words] of track.height ? ticks : []) {
        const y = rise(track, value);
        parts.push(make("line", { x1: g.left, x2: g.width - g.right, y1: y, y2: y, stroke: colour("grid") }));
        if (Math.abs(value - chance) > 0.12 || track === g.flow) text(g.left - 6, y + 4, words);
      }
    }
    if (state.labels.length > 1 && chance > 0) {
      const y = rise(g.lens, chance);
      parts.push(make("line", { x1: g.left, x2: g.width - g.right, y1: y, y2: y, stroke: colour("ref"), "stroke-dasharray": "1 4" }));
      text(g.left - 6, y + 4, g.narrow ? two(chance).slice(1) : "chance", { "font-size": 11 });
    }
    for (let head = 0; head < state.heads; head += state.heads > 12 ? 4 : 2) text(g.left + g.column - 6, g.heads.top + (head + 0.5) * g.cell + 4, String(head));
    text(g.left - 6, g.words.top + 30, "next");
    text(g.left - 6, g.words.top + 44, "word");
    const last = state.layers - 1, step = g.narrow || state.layers > 60 ? 10 : 5;
    for (let layer = 0; layer < state.layers; layer += 1) {
      if (layer === last || (layer % step === 0 && last - layer >= step / 2)) text(g.x(layer), g.axis + 14, String(layer), { "text-anchor": "middle", "font-size": 12 });
    }
    if (!g.narrow) text(g.x(-1), g.axis + 14, "emb", { "text-anchor": "middle", "font-size": 11 });
    fill("grid", [], parts);
  }

  /** Fractions of one total, or saliency per edge in decades below the largest of this state and its reference. */
  function flowScale() {
    const { flow, refflow } = app.parts;
    if (look.flow === "shares" || !flow?.edges?.length) return { of: part => part.values, place: value => value, ticks: UNIT };
    const top = Math.max(1e-30, ...[flow, refflow].filter(Boolean).flatMap(part => part.edges.flat()).filter(Number.isFinite));
    return {
      of: part => part.edges,
      place: value => value == null ? null : clamp(1 + Math.log10(Math.max(value, 1e-30) / top) / EDGE_DECADES, 0, 1),
      ticks: [...Array(EDGE_DECADES + 1).keys()].map(k => [1 - k / EDGE_DECADES, k ? `10⁻${"⁰¹²³"[k]}` : "1"]),
    };
  }

  function drawFlow(state) {
    if (state.texts) return;
    const flow = app.parts.flow?.values.length ? app.parts.flow : null, before = app.parts.refflow?.values.length ? app.parts.refflow : null;
    const scale = flowScale(), shares = look.flow === "shares", y = value => value == null ? null : rise(g.flow, scale.place(value)), { x } = g;
    const compared = before && (isCompared(state));
    const none = !state.demos.length && "needs demonstrations", kind = shares ? "fractions of one total" : "relative to the largest";
    const words = flow ? `${kind}${showsAll() ? ", n = 1" : ""}` : none || (app.busy ? "measuring …" : "");
    flowControl.choose(look.flow);
    const named = ([ink, long, dash, marker, short]) => [ink, spoken(g.width < 620 ? short : long, state), dash, marker];
    const keys = flow ? [...FLOWS.map(style => key(named(style))), shares && flow.random && key(named(RANDOM), 1.4), compared && pale(referenceName(state))].filter(Boolean) : [];
    title(g.flow, "Information flow", words, keys, flow?.edges?.length && flowControl.node);
    fill("refflow", ["refflow"], flow && compared ? scale.of(before).map((values, k) =>
      make("g", { opacity: 0.22 }, curve(values, x, y, [FLOWS[k][0], "", "", ""], 5))) : []);
    fill("flow", ["flow"], flow ? [shares && flow.random && curve(flow.random, x, y, RANDOM, 1.4), scale.of(flow).map((values, k) => curve(values, x, y, FLOWS[k]))] : []);
  }

  const showsAll = () => Boolean(app.set && look.all);

  function drawWords(state) {
    const top = app.parts.now?.top ?? [], { column } = g;
    fill("words", ["now"], top.map(([best], place) => {
      if (!best) return [];
      const [word, share] = best, x = g.x(place - 1), label = labelOf(state, word), shown = cut(visible(word), 11);
      const ink = label < 0 ? "ink" : label === state.query.answer ? "true" : "false", upright = [...shown].length < 3;
      return [
        make("rect", { x: x - column / 2 + 0.5, y: g.words.top, width: Math.max(1, column - 1), height: g.words.height, rx: 2, fill: `color-mix(in oklab, ${colour("s0")} ${100 - Math.round(70 * Math.sqrt(share))}%, ${colour("s2")})` }),
        column > (upright ? 14 : 9) && make("text", upright
          ? { x, y: g.words.top + g.words.height - 8, "text-anchor": "middle", "font-size": 12, fill: colour(label < 0 ? "muted" : ink), "font-weight": label < 0 ? 400 : 700 }
          : { transform: `translate(${x + 4},${g.words.top + g.words.height - 5}) rotate(-90)`, "font-size": Math.min(12, 98 / [...shown].length, column), fill: colour(ink), "font-weight": label < 0 ? 400 : 700, "text-decoration": label >= 0 && label === state.query.answer ? "underline" : null }, shown),
      ];
    }));
  }

  // Changes: bars, each with a description and buttons

  function drawChanges(state) {
    title(g.changes, "Changes", needWords(state));
    fill("changes", [], state.changes.map((change, k) => changeBar(change, k)));
    // Not redrawn for every part that arrives: the user may be typing a factor.
    const signature = JSON.stringify([state.changes, g.rows, g.changes.top, g.width]);
    if (signature === wordsBuilt) return;
    wordsBuilt = signature;
    changesOver.replaceChildren(...state.changes.map((change, k) => changeWords(change, k)));
  }

  function changeBar(change, k) {
    const row = g.rows[k], dragged = drag?.change === k && drag.span, [a, b] = dragged || [row.a, row.b], ink = changeColour(change);
    const y = g.changes.top + row.y + 4, x = g.x(a) - g.column / 2, width = (b - a + 1) * g.column, chosen = look.row?.change === k;
    if (change.heads?.length) {
      const layers = [...new Set(change.heads.map(pair => pair[0]))];
      return layers.map(layer => make("rect", { x: g.x(layer) - g.column / 2 + 1, y, width: g.column - 2, height: 16, rx: 3, fill: colour(ink), stroke: chosen ? colour("link") : null, "stroke-width": 2 }));
    }
    const hollow = change.what === "patch" || change.demo != null;
    return [
      make("rect", { class: "ex-change", x: x + 0.5, y: y + 0.5, width: Math.max(2, width - 1), height: 15, rx: 3, fill: colour(ink), "fill-opacity": hollow ? 0.16 : 0.88, stroke: colour(chosen ? "link" : ink), "stroke-width": chosen ? 2.5 : 1.3, "stroke-dasharray": hollow && !chosen ? "4 2" : null, "data-change": k, "data-end": "whole" }),
      [["start", x], ["end", x + width]].map(([end, at]) => [
        make("rect", { x: at - (end === "start" ? -3 : 5), y: y + 4, width: 2, height: 8, rx: 1, fill: colour(hollow ? ink : "page") }),
        make("rect", { class: "ex-handle", x: at - 8, y: y - 4, width: 16, height: 24, fill: "transparent", "data-change": k, "data-end": end })]),
    ];
  }

  function changeWords(change, k) {
    const row = g.rows[k], top = g.changes.top + row.y + (row.side === "below" ? 19 : 0);
    const place = row.side === "left" ? { right: `${g.width - g.x(row.a) + g.column / 2 + 8}px` }
      : { left: `${row.side === "below" ? row.left : g.x(row.b) + g.column / 2 + 8}px` };
    const factor = change.factor != null && make("input", {
      type: "number", "data-live": true, "data-key": `factor ${k}`, step: 0.1, value: change.factor, "aria-label": `Factor of: ${change.words}`,
      onchange: event => { if (Number.isFinite(event.target.valueAsNumber)) app.act("scale", { change: k, factor: event.target.valueAsNumber }, "layers"); },
    });
    return make("div", { class: "ex-change-words", style: { top: `${top}px`, "max-width": row.side === "below" ? `${g.width - row.left}px` : "380px", ...place } },
      make("span", { title: change.words }, change.words), factor,
      make("button", { type: "button", "data-live": true, "data-key": `remove ${k}`, title: "Remove this change", "aria-label": `Remove: ${change.words}`, onclick: () => app.act("remove", { change: k }, "layers") }, "×"));
  }

  // Cursor and brush: the only elements that follow the pointer

  function drawCursor() {
    const x = g.x(look.layer), range = drag?.kind === "brush" && drag.to != null ? [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)] : null;
    groups.cursor.replaceChildren(
      make("rect", { x: x - g.column / 2, y: g.flow.top - 2, width: g.column, height: g.axis - g.flow.top, fill: colour("panel") }),
      make("line", { x1: x, x2: x, y1: g.flow.top - 4, y2: g.axis, stroke: colour("ink"), "stroke-dasharray": "2 3" }));
    groups.label.replaceChildren(
      make("rect", { x: x - 13, y: g.axis + 1, width: 26, height: 17, rx: 3, fill: colour("ink") }),
      make("text", { x, y: g.axis + 14, "font-size": 12, "text-anchor": "middle", "font-weight": 650, fill: colour("page") }, String(look.layer)),
      ...heads.chosen());
    groups.brush.replaceChildren(...(range ? [
      make("rect", { x: g.x(range[0]) - g.column / 2, y: g.flow.top, width: (range[1] - range[0] + 1) * g.column, height: g.axis - g.flow.top, fill: colour("label"), opacity: 0.14 }),
      make("text", { x: g.x((range[0] + range[1]) / 2), y: g.flow.top + 12, "font-size": 12.5, "text-anchor": "middle", "font-weight": 650, fill: colour("label"), class: "ex-halo" }, `${span(...range)}`),
    ] : []));
    read();
  }

  /** The numbers at the cursor as text: for screen readers, and exact to two decimals. */
  function read() {
    const said = app.says.layers;
    say.classList.toggle("ex-error", Boolean(said?.wrong));
    const words = said?.text ?? reading(app.state);
    if (say.textContent !== words) say.textContent = words;
    tracks.setAttribute("aria-description", words);
  }

  function reading(state) {
    const { flow, now, ref } = app.parts, l = look.layer, A = state.query.answer, row = look.row, parts = [`Layer ${l}`];
    if (drag?.kind === "brush" && drag.to != null) return `Layers ${span(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to))}: ${kindNow()?.words ?? ""} – ${drag.keys ? "Enter applies, Escape cancels" : "release to apply"}`;
    if (row?.change != null) return `Change ${row.change + 1}: ${state.changes[row.change].words} – Delete removes it, s sets its start and e its end to the cursor, Alt ← → moves it`;
    if (row?.head != null) return heads.reading(row.head);
    if (flow?.values.length) parts.push(spoken(`texts → label words ${two(flow.values[0][l])}, label words → target ${two(flow.values[1][l])}, else ${two(flow.values[2][l])}${flow.random ? `, random ${two(flow.random[l])}` : ""}`, state));
    if (now && state.labels.length) parts.push(`${truthName(state)} ${two(now.lens[l + 1][A])}${ref && isCompared(state) ? `, ${referenceName(state)} ${two(ref.lens[l + 1][A])}` : ""}`);
    if (now?.top[l + 1]?.[0]) parts.push(`next ${quoted(now.top[l + 1][0][0])} ${two(now.top[l + 1][0][1])}`);
    return parts.join(" · ");
  }

  // Pointer

  const pointed = event => {
    const frame = tracks.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };
  const layerAt = ({ x }) => clamp(Math.floor((x - g.x(0)) / g.column + 0.5), 0, app.state.layers - 1);
  const inside = (track, y) => y >= track.top && y < track.top + track.height;

  svg.addEventListener("pointerdown", event => {
    if (!app.state || event.button) return;
    const at = pointed(event), { change, end } = event.target.dataset;
    tracks.classList.remove("ex-by-keys");
    look.row = null;
    drag = change == null ? { kind: "brush", from: layerAt(at), to: null } : { kind: end, change: Number(change), from: layerAt(at), base: changeLayers(app.state.changes[change]), sent: null };
    Object.assign(drag, { x: event.clientX, shift: event.shiftKey, at });
    svg.setPointerCapture(event.pointerId);
  });

  svg.addEventListener("pointermove", event => {
    if (!g) return;
    const at = pointed(event);
    if (!drag) return hover(at, event);
    app.tip.hide();
    heads.preview(null);
    if (!drag.moved && Math.abs(event.clientX - drag.x) < CLICK) return;
    drag.moved = true;
    if (drag.kind === "brush") {
      if (missing()) return app.tip.show(event, missing());
      drag.to = layerAt(at);
      look.layer = drag.to;
      drawCursor();
      app.draw("prompt");
    } else {
      drag.span = stretched(drag, layerAt(at));
      // Every position is measured while the bar moves, and all are one step of history.
      if (app.pending == null) sendSpan(drag);
      fill("changes", [], app.state.changes.map((change, k) => changeBar(change, k)));
    }
  });

  /** The layers of a change while one of its ends, or the whole bar, is dragged. */
  function stretched({ kind, base, from }, layer) {
    const [a, b] = base, last = app.state.layers - 1;
    if (kind === "start") return [Math.min(layer, b), b];
    if (kind === "end") return [a, Math.max(layer, a)];
    const by = clamp(layer - from, -a, last - b);
    return [a + by, b + by];
  }

  svg.addEventListener("pointerup", event => {
    if (!drag) return;
    const done = drag;
    drag = null;
    if (done.kind !== "brush") return done.span ? (sendSpan(done), draw()) : select(done.change);
    if (done.moved) {
      apply(done.from, done.to);
      return drawCursor();
    }
    const head = heads.at(done.at);
    if (head) return heads.press(head, event.shiftKey || done.shift, event.pointerType === "touch");
    return moveCursor(done.from);
  });
  svg.addEventListener("pointercancel", cancelDrag);

  /** A bar that was dragged returns to where it was. */
  function cancelDrag() {
    if (drag?.sent) sendSpan({ ...drag, span: drag.base });
    drag = null;
    draw();
  }

  svg.addEventListener("pointerleave", () => {
    app.tip.hide();
    heads.preview(null);
  });
  tracks.addEventListener("blur", () => heads.preview(null));

  function sendSpan(drag) {
    const [from, to] = drag.span, same = (drag.sent ?? drag.base).join() === drag.span.join();
    if (same) return;
    app.act("stretch", { change: drag.change, from, to, over: drag.sent != null }, "layers");
    drag.sent = drag.span;
  }

  function stretch(change, [from, to]) {
    app.act("stretch", { change, from, to }, "layers");
    draw();
  }

  function select(change) {
    look.row = { change };
    draw();
  }

  function moveCursor(layer) {
    look.layer = clamp(layer, 0, app.state.layers - 1);
    app.says.layers = null;
    drawCursor();
    app.draw("prompt");
  }

  // The numbers under the pointer

  function hover(at, event) {
    const words = hoverWords(at);
    svg.classList.toggle("ex-on-head", Boolean(heads.at(at)));
    if (event.pointerType !== "touch") heads.preview(heads.at(at));
    if (words) app.tip.show(event, words);
    else app.tip.hide();
  }

  function hoverWords(at) {
    const state = app.state, { flow, now, ref, pair } = app.parts, l = layerAt(at), A = state.query.answer;
    const after = at.x < g.x(0) - g.column / 2 ? 0 : l + 1, where = after ? `layer ${l}` : "embedding", head = heads.at(at);
    if (head) return heads.words(head);
    if (inside(g.words, at.y) && now) return `after ${where}\n${now.top[after].map(([word, share]) => `${quoted(word)} ${two(share)}`).join("\n")}`;
    if (inside(g.lens, at.y) && now) return [`after ${where}`, ...lens.words(state, after)].filter(Boolean).join("\n");
    if (inside(g.flow, at.y) && flow?.values.length) {
      const edge = k => flow.edges?.length && flow.edges[k][l] != null ? `, ${flow.edges[k][l].toExponential(1)} per edge` : "";
      return [`layer ${l}`, ...FLOWS.map(([, words], k) => `${spoken(words, state)} ${two(flow.values[k][l])}${edge(k)}`), flow.random && `${RANDOM[1]} ${two(flow.random[l])}`].filter(Boolean).join("\n");
    }
    return "";
  }

  // Keys

  tracks.addEventListener("keydown", event => {
    if (!app.state || !g || event.ctrlKey || event.metaKey || event.target !== tracks) return;
    const done = keyDone(event);
    if (!done) return;
    heads.keysAt();
    tracks.classList.add("ex-by-keys");
    event.preventDefault();
    event.stopPropagation();
  });

  function keyDone(event) {
    const { key: name, shiftKey, altKey } = event, step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -5, PageDown: 5, Home: -1e6, End: 1e6 }[name];
    const row = look.row, change = row?.change != null ? app.state.changes[row.change] : null;
    if (step && altKey && change && !change.heads?.length) return moveChange(row.change, Math.sign(step));
    if (step && shiftKey) {
      drag = { kind: "brush", keys: true, from: drag?.keys ? drag.from : look.layer, to: clamp(look.layer + step, 0, app.state.layers - 1) };
      moveCursor(drag.to);
    } else if (step) {
      drag = null;
      if (change) look.row = null;
      moveCursor(look.layer + step);
    } else if (name === "ArrowDown" || name === "ArrowUp") selectRow(name === "ArrowDown" ? 1 : -1);
    else if (name === "Enter" && row?.head == null) {
      const range = drag ?? { from: look.layer, to: look.layer };
      drag = null;
      apply(range.from, range.to);
      drawCursor();
    } else if (name === "Escape") {
      look.row = null;
      cancelDrag();
    } else if (heads.key(name)) return true;
    else if (change && (name === "Delete" || name === "Backspace" || name === "x")) app.act("remove", { change: row.change }, "layers");
    else if (change && !change.heads?.length && name === "s") stretch(row.change, [Math.min(look.layer, change.layers[1]), change.layers[1]]);
    else if (change && !change.heads?.length && name === "e") stretch(row.change, [change.layers[0], Math.max(look.layer, change.layers[0])]);
    else if (change?.factor != null && (name === "+" || name === "-")) app.act("scale", { change: row.change, factor: Number((change.factor + (name === "+" ? 0.1 : -0.1)).toFixed(2)) }, "layers");
    else return false;
    return true;
  }

  function moveChange(k, by) {
    const [a, b] = changeLayers(app.state.changes[k]);
    if (a + by >= 0 && b + by < app.state.layers) stretch(k, [a + by, b + by]);
    return true;
  }

  /** Up and down move through the changes and then the heads of the cursor's layer. */
  function selectRow(step) {
    const { changes, heads } = app.state, row = look.row;
    const at = row == null ? (step > 0 ? -1 : changes.length + heads) : row.change ?? changes.length + row.head;
    const to = at + step;
    look.row = to < 0 || to >= changes.length + heads ? null : to < changes.length ? { change: to } : { head: to - changes.length };
    draw();
  }

  return { node, draw };
}
