// -- Heads: one cell per layer and head, coloured by mode; what each attends to; zeroed ones beside random ones --

const TOP = 5;
const HOVER_MS = 120;
const MOST_BARS = 600;  // cells of more heads are too small for bars
const SCALE_WIDTH = 105;
const FINGERS = matchMedia("(pointer: coarse)");
const NUMBERS = ["no", "one", "two", "three", "four", "five"];
const inWords = count => NUMBERS[count] ?? String(count);
const headName = ([layer, head]) => `${layer}.${head}`;
const same = (a, b) => Boolean(a && b) && a.layer === b.layer && a.head === b.head;

/** Draw the prompt as if a head's attention were chosen, without choosing it. */
function withPreview(app, draw) {
  const { preview, attention, look } = app, { mode, token } = look;
  if (preview) {
    app.attention = preview;
    preview.mode = mode;
    Object.assign(look, { mode: "into", token: preview.token });
  }
  draw();
  app.attention = attention;
  Object.assign(look, { mode, token });
}

function headsMap(app, { fill, showsAll }) {
  const { look } = app, scales = new Map(), held = new Map();
  let g = null, built = "", aimed = null, timer = null, asked = "";

  const top = make("span", { class: "ex-chips" }), zero = button("", "", zeroTop, { "data-key": "zero these", "data-live": true });
  const each = button("each head", "What every head attends to, in small (v)", () => setEach(!look.each), { "aria-pressed": false });
  const legend = make("div", { class: "ex-head-scale" }), modes = make("span", { class: "ex-head-modes" });
  const title = make("div", { class: "ex-heads-title" }, make("div", {}, make("h3", {}, "Heads"), modes, each), legend);
  const about = make("p", { class: "ex-quiet" }), chosenBar = make("div", { class: "ex-head-bar", role: "group" });
  const versus = make("p", { class: "ex-versus", role: "status" }), strips = make("div", { class: "ex-strips", role: "group" });
  const node = make("div", { class: "ex-heads" }, chosenBar,
    make("div", { class: "ex-top" }, top, zero), versus, about, strips);

  // Buttons are redrawn under the pointer, so it is their row that it leaves.
  for (const row of [top.parentNode, strips]) row.addEventListener("pointerleave", () => preview(null));

  // Modes and their values

  const modeNow = state => state.modes.find(map => map.mode === look.heads) ?? state.modes[0];
  const partOf = mode => ({ logit: ["now"], change: ["now", "ref"] })[mode] ?? [`heads ${mode}`];
  const shortOf = (map, state) => map.short.replace("{reference}", cut(referenceName(state), 12));

  function values(mode) {
    const { now, ref } = app.parts;
    if (mode === "logit") return now?.heads ?? [];
    if (mode !== "change") return app.parts[`heads ${mode}`]?.values ?? [];
    if (!now?.heads.length || !ref?.heads.length) return [];
    return now.heads.map((row, layer) => row.map((value, head) => value - ref.heads[layer][head]));
  }

  /** The end of a mode's scale: the largest value so far, in two digits; it never shrinks, so that colours of two states compare. */
  function end(mode) {
    const start = mode === "logit" ? app.parts.ref?.heads ?? [] : [];
    const most = Math.max(scales.get(mode) ?? 0, ...[...values(mode), ...start].flat().map(Math.abs));
    const digit = 10 ** (Math.floor(Math.log10(most || 1)) - 1), rounded = Math.ceil(most / digit - 1e-9) * digit;
    scales.set(mode, rounded);
    return rounded;
  }

  const number = (value, map) => map.signed ? signed(value) : two(value);
  const valueWords = (value, map) => `${number(value, map)} ${map.unit}`;

  function setMode(mode) {
    look.heads = mode;
    app.looked();
    app.draw("layers");
  }

  function setEach(on) {
    look.each = on;
    if (on) wantRows();
    app.draw("layers");
  }

  function drawModes(state) {
    const compact = g.width < 620, signature = JSON.stringify([compact, state.modes, referenceName(state)]), map = modeNow(state);
    if (signature !== built) {
      built = signature;
      const words = "What the map of heads shows";
      const control = compact
        ? make("select", { "aria-label": words, onchange: event => setMode(event.target.value) }, state.modes.map(one => make("option", { value: one.mode }, shortOf(one, state))))
        : segmented(words, state.modes.map(one => [one.mode, shortOf(one, state), one.words]), setMode);
      modes.control = control;
      modes.replaceChildren(control.node ?? control);
    }
    if (modes.control.choose) modes.control.choose(map.mode);
    else modes.control.value = map.mode;
    each.setAttribute("aria-pressed", Boolean(look.each));
  }

  function drawLegend(state, map, most, bars) {
    if (!bars && !most) return legend.replaceChildren(values(map.mode).length ? "0 for every head" : waits());
    const key = make("span", { class: "ex-key", role: "img" }), steps = map.signed ? SIGNED : SCALE, wide = SCALE_WIDTH / steps.length;
    if (bars) {
      const roles = Object.keys(ROLES).filter(role => state.tokens.some(token => token.r === role));
      return legend.replaceChildren(...roles.map(role => make("span", { class: "ex-key" },
        make("svg", { width: 10, height: 10, "aria-hidden": "true" }, make("rect", { width: 10, height: 10, rx: 2, fill: roleColour(role) })), g.narrow ? roleName(role, state).replace("demonstration ", "") : roleName(role, state))));
    }
    const scale = make("svg", { width: SCALE_WIDTH, height: 13, "aria-hidden": "true" },
      steps.map((step, i) => make("rect", { x: wide * i, width: wide + 0.5, height: 13, fill: colour(step) })),
      map.signed && make("text", { x: SCALE_WIDTH / 2, y: 10.5, "text-anchor": "middle", "font-size": 11, fill: colour("ink") }, "0"));
    const ends = map.signed ? [`against ${signed(-most)}`, `${signed(most)} for`] : ["0", `${two(most)} ${map.unit}`];
    key.setAttribute("aria-label", map.signed
      ? `Colours from ${signed(-most)} ${map.unit}, against, through 0 to ${signed(most)}, for` : `Colours from 0 to ${two(most)} ${map.unit}`);
    key.append(ends[0], scale, ends[1]);
    return legend.replaceChildren(key);
  }

  // The map

  function draw(state, geometry) {
    g = geometry;
    const map = modeNow(state), cells = values(map.mode), most = end(map.mode);
    title.style.cssText = `top: ${g.heads.head}px; left: ${g.left}px; right: ${g.right}px`;
    drawModes(state);
    const bars = look.each && state.layers * state.heads <= MOST_BARS && rowsNow();
    drawLegend(state, map, most, bars);
    fill("heads", bars ? [rowsName()] : partOf(map.mode), bars ? drawBars(state, bars) : drawCells(cells, map, most));
    drawMarks(state);
    drawBelow(state, map, cells);
    if (aimed) showPreview();
  }

  const cellPath = (layer, head, from = 0, to = 1) => {
    const x = g.x(layer) - g.column / 2 + 0.6, wide = g.column - 1.2, tall = (g.cell - 1.2).toFixed(1), part = ((to - from) * wide).toFixed(2);
    return `M${(x + from * wide).toFixed(2)},${(g.heads.top + head * g.cell + 0.6).toFixed(1)}h${part}v${tall}h-${part}z`;
  };

  /** Cells of one colour form one path, so a map of a thousand heads has some twenty elements. */
  function drawCells(cells, map, most) {
    const paths = new Map();
    cells.forEach((row, layer) => row.forEach((value, head) => {
      const level = Math.round(12 * clamp(value / (most || 1), -1, 1));
      paths.set(level, (paths.get(level) ?? "") + cellPath(layer, head));
    }));
    return [...paths].map(([level, d]) => make("path", { d, fill: map.signed ? mixed(SIGNED, (level + 12) / 24) : mixed(SCALE, level / 12) }));
  }

  /** In every cell a bar of the head's attention by role. */
  function drawBars(state, rows) {
    const paths = new Map(), roles = Object.keys(ROLES);
    for (let layer = 0; layer < state.layers; layer += 1) {
      for (let head = 0; head < state.heads; head += 1) {
        const row = rowOf(rows, state, layer, head), total = row.reduce((sum, code) => sum + code, 0) || 1, shares = {};
        row.forEach((code, i) => { const { r } = state.tokens[i]; shares[r] = (shares[r] ?? 0) + code / total; });
        let from = 0;
        for (const role of roles.filter(one => shares[one])) {
          paths.set(role, (paths.get(role) ?? "") + cellPath(layer, head, from, from + shares[role]));
          from += shares[role];
        }
      }
    }
    return [...paths].map(([role, d]) => make("path", { d, fill: roleColour(role) }));
  }

  const isZeroed = (state, [layer, head]) => state.changes.some(change => change.heads?.some(([a, b]) => a === layer && b === head));

  function drawMarks(state) {
    const off = state.changes.flatMap(change => change.heads ?? []);
    const box = (layer, head, more) => make("rect", { x: g.x(layer) - g.column / 2, y: g.heads.top + head * g.cell, width: g.column, height: g.cell, fill: "none", ...more });
    fill("marks", [], off.map(([layer, head]) => {
      const x = g.x(layer), y = g.heads.top + (head + 0.5) * g.cell, r = Math.min(4, g.cell / 2 - 1);
      return [box(layer, head, { fill: colour("page"), stroke: colour("ink"), "stroke-width": 1.6 }),
        make("path", { d: `M${x - r},${y - r}l${2 * r},${2 * r}m0,-${2 * r}l-${2 * r},${2 * r}`, stroke: colour("ink"), "stroke-width": 1.6 })];
    }), app.attention && box(app.attention.layer, app.attention.head, { stroke: colour("link"), "stroke-width": 2.5, rx: 2 }));
  }

  /** The frame of the chosen head. */
  function chosen() {
    const head = look.row?.head;
    return head == null ? [] : [make("rect", { x: g.x(look.layer) - g.column / 2 - 1, y: g.heads.top + head * g.cell - 1, width: g.column + 2, height: g.cell + 2, rx: 2, fill: "none", stroke: colour("link"), "stroke-width": 2.5 })];
  }

  // Below the map: the chosen head, the top five, random heads beside zeroed ones, every head of one layer

  function drawBelow(state, map, cells) {
    const contrast = app.parts.now?.contrast, said = map.signed && contrast ? `${map.mode === "change" ? "change of the " : ""}${contrast}, logits` : map.words;
    about.textContent = `${showsAll() ? `This prompt alone: ${said}` : said[0].toUpperCase() + said.slice(1)}. ${FINGERS.matches ? "Tap a head to choose it" : "Click a head to zero it, ⇧ click to see its attention"}.`;
    drawChosen(state, map, cells);
    drawTop(state, map, cells);
    drawVersus(state);
    drawStrips(state);
  }

  function drawChosen(state, map, cells) {
    const head = look.row?.head, { layer } = look;
    chosenBar.hidden = head == null;
    if (head == null) return;
    const place = { layer, head }, off = isZeroed(state, [layer, head]), shown = same(app.attention, place);
    const step = (sign, words, to) => button(sign, words, () => select(to), { class: "ex-button ex-square", "aria-label": words, "data-key": words });
    chosenBar.setAttribute("aria-label", `Head ${headName([layer, head])}`);
    chosenBar.replaceChildren(
      make("b", {}, `Head ${headName([layer, head])}`), make("span", {}, off ? "set to zero" : cells.length ? valueWords(cells[layer][head], map) : ""),
      step("‹", "Same head, layer before", { layer: layer - 1, head }), step("›", "Same head, next layer", { layer: layer + 1, head }),
      step("▴", "Head before", { layer, head: head - 1 }), step("▾", "Next head", { layer, head: head + 1 }),
      button("Attention", "Show what it attends to (i)", () => attend(place), { "aria-pressed": shown, "data-key": "attend" }),
      button(off ? "Restore" : "Zero", "Set it to zero at the target, or undo that (x)", () => app.act("head", place, "layers"), { "data-key": "zero", "data-live": true }));
  }

  function select({ layer, head }) {
    look.layer = clamp(layer, 0, app.state.layers - 1);
    look.row = { head: clamp(head, 0, app.state.heads - 1) };
    app.draw("layers", "prompt");
  }

  /** The heads with the largest values (of a change: the largest of either sign); those zeroed as a group stay while they are zeroed. */
  function topHeads(state, map, cells) {
    const kept = held.get(map.mode);
    if (kept?.every(head => isZeroed(state, head))) return kept;
    const size = map.mode === "change" ? Math.abs : value => value;
    return cells.flatMap((row, layer) => row.map((value, head) => [size(value), [layer, head]]))
      .filter(([value]) => value > 0).sort((a, b) => b[0] - a[0]).slice(0, TOP).map(([, head]) => head);
  }

  function drawTop(state, map, cells) {
    const best = cells.length ? topHeads(state, map, cells) : [], off = best.length > 0 && best.every(head => isZeroed(state, head));
    top.replaceChildren(make("span", { class: "ex-quiet" }, `Top ${inWords(TOP)}`), ...best.map((pair, i) => {
      const [layer, head] = pair, value = number(cells[layer][head], map);
      return button([make("b", {}, headName(pair)), value], `Head ${headName(pair)}: ${valueWords(cells[layer][head], map)}; show its attention (${i + 1})`, () => attend({ layer, head }),
        { class: "ex-button ex-chip", "aria-pressed": same(app.attention, { layer, head }), "data-key": `top ${i}`, onpointerenter: () => preview({ layer, head }) });
    }), ...(best.length ? [] : [make("span", { class: "ex-quiet" }, cells.length ? "none" : waits())]));
    zero.hidden = !best.length;
    zero.textContent = `${off ? "Restore" : "Zero"} these ${inWords(best.length)}`;
    zero.title = "Set them to zero at the target, beside as many random heads (z)";
    zero.setAttribute("aria-pressed", off);
  }

  const waits = () => app.busy ? "measuring …" : "not measured";

  function zeroTop() {
    const map = modeNow(app.state), best = topHeads(app.state, map, values(map.mode));
    if (!best.length) return;
    held.set(map.mode, best);
    app.act("heads", { heads: best }, "layers");
  }

  /** Zeroed heads matter as such only if random ones do less. */
  function drawVersus(state) {
    const count = state.changes.flatMap(change => change.heads ?? []).length, measured = app.parts.null;
    versus.hidden = !count || !state.labels.length;
    if (versus.hidden) return;
    const here = measured?.count === count && app.fresh.has("null");
    versus.classList.toggle("ex-stale", Boolean(measured) && !here);
    if (!measured) return tell(versus, [`Random heads beside the zeroed ones: ${waits()}`]);
    const { random, zeroed, without } = measured, low = Math.min(...random), high = Math.max(...random), mean = random.reduce((sum, chance) => sum + chance, 0) / random.length;
    const these = measured.count === 1 ? "this head zeroed" : `these ${inWords(measured.count)} zeroed`, of = `${inWords(measured.count)} random head${measured.count === 1 ? "" : "s"}`;
    const words = [`${truthName(state)}: no head zeroed `, make("b", {}, two(without)), ` · ${these} `, make("b", {}, two(zeroed))];
    if (random.length) {
      const outside = zeroed < low || zeroed > high;
      words.push(` · ${of} `, make("b", {}, two(mean)), ` (${two(low)}–${two(high)}, ${random.length} draws): ${outside ? "outside" : "within"} the range of random heads.`);
    } else words.push(" · too few other heads for a random draw.");
    return tell(versus, words);
  }

  /** A status that is redrawn with the same words is not said again. */
  function tell(status, words) {
    const told = make("span", {}, words);
    if (status.textContent !== told.textContent) status.replaceChildren(told);
  }

  function drawStrips(state) {
    const rows = look.each && rowsNow(), { layer } = look;
    strips.hidden = !look.each;
    if (!look.each) return;
    strips.setAttribute("aria-label", `What every head of layer ${layer} attends to`);
    const caption = make("p", { class: "ex-quiet" }, rows ? `Layer ${layer}: attention of every head from ${quoted(state.tokens[rows.token].t)} (${rows.token}), token by token` : `Attention of every head: ${waits()}`);
    strips.replaceChildren(caption, ...(rows ? Array.from({ length: state.heads }, (_, head) => strip(state, rows, layer, head)) : []));
  }

  /** A head's attention over the prompt as a strip, and the tokens with most of it. */
  function strip(state, rows, layer, head) {
    const row = rowOf(rows, state, layer, head), wide = 100 / state.tokens.length, paths = new Map(), place = { layer, head };
    row.forEach((code, i) => {
      const level = Math.ceil(12 * Math.sqrt(code / 255));
      if (level) paths.set(level, `${paths.get(level) ?? ""}M${(i * wide).toFixed(2)},0h${wide.toFixed(2)}v10h-${wide.toFixed(2)}z`);
    });
    const best = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, 2).map(i => `${quoted(state.tokens[i].t)} ${percent(row[i] / 255)}`).join(", ");
    return make("button", { type: "button", class: "ex-strip", "data-key": `strip ${head}`, "aria-pressed": same(app.attention, place), title: `Head ${headName([layer, head])}: show its attention`, onclick: () => attend(place), onpointerenter: () => preview(place) },
      make("b", {}, headName([layer, head])),
      make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        make("rect", { width: 100, height: 10, fill: colour("s0") }), [...paths].map(([level, d]) => make("path", { d, fill: mixed(SCALE, level / 12) }))),
      make("span", {}, best));
  }

  // Rows: what all heads attend to from one token, measured once the pointer is among the heads

  const rowToken = () => look.token ?? app.state.tokens.findLastIndex(token => token.r === "target");
  const rowsName = () => `rows ${rowToken()}`;
  const rowsNow = () => {
    const rows = app.parts[rowsName()];
    return rows?.t === app.state.tokens.length ? rows : null;
  };

  function rowOf(rows, state, layer, head) {
    const length = rows.token + 1, start = (layer * state.heads + head) * length;
    return rows.codes.subarray(start, start + length);
  }

  function wantRows() {
    const wanted = `${app.state.gen} ${rowsName()}`;
    look.rows = true;
    if (app.fresh.has(rowsName()) || asked === wanted) return;
    asked = wanted;
    app.looked();
  }

  /** Show a head's attention in the prompt while it is pointed at; null: no head is. */
  function preview(place) {
    if (same(place, aimed) || (!place && !aimed)) return;
    aimed = place;
    clearTimeout(timer);
    if (!place) return showPreview();
    wantRows();
    timer = setTimeout(showPreview, HOVER_MS);
  }

  function showPreview() {
    const rows = aimed && rowsNow(), had = app.preview;
    app.preview = null;
    if (rows && !same(aimed, app.attention)) {
      const { token, t } = rows, codes = new Uint8Array(t * (t + 1) / 2);
      codes.set(rowOf(rows, app.state, aimed.layer, aimed.head), token * (token + 1) / 2);
      app.preview = { ...aimed, token, t, codes, fresh: app.fresh.has(rowsName()) };
    }
    if (had || app.preview) app.draw("prompt");
  }

  // Pointer and keys

  function at({ x, y }) {
    if (y < g.heads.top || y >= g.heads.top + g.heads.height || x < g.x(0) - g.column / 2) return null;
    const layer = clamp(Math.floor((x - g.x(0)) / g.column + 0.5), 0, app.state.layers - 1);
    return { layer, head: Math.floor((y - g.heads.top) / g.cell) };
  }

  function words({ layer, head }) {
    const map = modeNow(app.state), cells = values(map.mode), off = isZeroed(app.state, [layer, head]);
    return `head ${headName([layer, head])}\n${off ? "set to zero at the target" : cells.length ? valueWords(cells[layer][head], map) : waits()}`;
  }

  function reading(head) {
    const map = modeNow(app.state), cells = values(map.mode), most = end(map.mode);
    const value = cells.length ? `${valueWords(cells[look.layer][head], map)} on a scale ${map.signed ? `of ±${two(most)}` : `from 0 to ${two(most)}`}, ${map.words}` : waits();
    return `Head ${headName([look.layer, head])}: ${isZeroed(app.state, [look.layer, head]) ? "set to zero" : value} – x sets it to zero, i shows its attention`;
  }

  /** A finger cannot hover or hold Shift: its tap chooses a head, and the bar below has the buttons. */
  function press(place, looking, touch) {
    if (touch) return select(place);
    return looking ? attend(place) : app.act("head", place, "layers");
  }

  function key(name) {
    const head = look.row?.head, place = { layer: look.layer, head }, map = modeNow(app.state);
    const best = topHeads(app.state, map, values(map.mode))[Number(name) - 1];
    if (best) attend({ layer: best[0], head: best[1] });
    else if (name === "z") zeroTop();
    else if (name === "m") setMode(app.state.modes[(app.state.modes.indexOf(map) + 1) % app.state.modes.length].mode);
    else if (name === "v") setEach(!look.each);
    else if (head == null) return false;
    else if (name === "x" || name === "Enter" || name === " ") app.act("head", place, "layers");
    else if (name === "i") attend(place);
    else return false;
    return true;
  }

  /** Show the attention of a head; of none if it is shown already. */
  function attend(place) {
    const none = place == null || same(app.attention, place);
    if (none) app.attention = null;
    app.attending = none ? null : place;
    app.act("attend", none ? { layer: null } : place, "layers");
    app.draw("prompt", "layers");
  }
  app.attend = attend;

  /** The head the keys are at is previewed, as one under the pointer is. */
  const keysAt = () => preview(look.row?.head == null ? null : { layer: look.layer, head: look.row.head });

  return { title, node, draw, chosen, at, words, reading, press, key, preview, keysAt };
}
