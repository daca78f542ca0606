// -- Heads: one cell per layer and head --

function headsMap(app, { fill, title, showsAll }) {
  const { look } = app;
  let g = null;

  /** Cells of one colour form one path, so a map of a thousand heads has some twenty elements. */
  function draw(state, geometry) {
    g = geometry;
    const values = app.parts.now?.heads ?? [], contrast = app.parts.now?.contrast, { cell, column } = g;
    const most = Math.max(1e-9, ...values.flat().map(Math.abs)), paths = new Map();
    values.forEach((row, layer) => row.forEach((value, head) => {
      const level = Math.round(12 * clamp(1.15 * value / most, -1, 1));
      const path = `M${(g.x(layer) - column / 2 + 0.6).toFixed(1)},${(g.heads.top + head * cell + 0.6).toFixed(1)}h${(column - 1.2).toFixed(1)}v${(cell - 1.2).toFixed(1)}h-${(column - 1.2).toFixed(1)}z`;
      paths.set(level, (paths.get(level) ?? "") + path);
    }));
    fill("heads", ["now"], [...paths].map(([level, d]) => make("path", { d, fill: mixed(SIGNED, (level + 12) / 24) })));
    const scale = make("svg", { width: 105, height: 10, "aria-hidden": "true" }, SIGNED.map((step, i) => make("rect", { x: 15 * i, width: 15, height: 10, fill: colour(step) })));
    title(g.heads, "Heads", `${showsAll() ? "n = 1, " : ""}${contrast ? `${contrast}, logits · ` : ""}click: zero, ⇧ click: attention`, [make("span", { class: "ex-key" }, "against ", scale, " for")]);
    const off = state.changes.flatMap(change => change.heads ?? []);
    const box = (layer, head, more) => make("rect", { x: g.x(layer) - column / 2, y: g.heads.top + head * cell, width: column, height: cell, fill: "none", ...more });
    fill("marks", [], off.map(([layer, head]) => {
      const x = g.x(layer), y = g.heads.top + (head + 0.5) * cell, r = Math.min(4, cell / 2 - 1);
      return [box(layer, head, { fill: colour("page"), stroke: colour("ink"), "stroke-width": 1.6 }),
        make("path", { d: `M${x - r},${y - r}l${2 * r},${2 * r}m0,-${2 * r}l-${2 * r},${2 * r}`, stroke: colour("ink"), "stroke-width": 1.6 })];
    }), app.attention && box(app.attention.layer, app.attention.head, { stroke: colour("link"), "stroke-width": 2.5, rx: 2 }));
  }

  /** The frame of the head chosen by keys. */
  function chosen() {
    const head = look.row?.head;
    return head == null ? [] : [make("rect", { x: g.x(look.layer) - g.column / 2 - 1, y: g.heads.top + head * g.cell - 1, width: g.column + 2, height: g.cell + 2, rx: 2, fill: "none", stroke: colour("link"), "stroke-width": 2.5 })];
  }

  function at({ x, y }) {
    if (y < g.heads.top || y >= g.heads.top + g.heads.height || x < g.x(0) - g.column / 2) return null;
    const layer = clamp(Math.floor((x - g.x(0)) / g.column + 0.5), 0, app.state.layers - 1);
    return { layer, head: Math.floor((y - g.heads.top) / g.cell) };
  }

  function words({ layer, head }) {
    const { now } = app.parts;
    if (!now?.heads.length) return "";
    const off = app.state.changes.some(change => change.heads?.some(([a, b]) => a === layer && b === head));
    return `head ${layer}.${head}\n${off ? "set to zero at the target" : `${signed(now.heads[layer][head])} logit${now.contrast ? `: ${now.contrast}` : ""}`}`;
  }

  function reading(head) {
    const { now } = app.parts;
    return `Head ${look.layer}.${head}: ${now?.heads.length ? `${signed(now.heads[look.layer][head])} logit` : ""} – x sets it to zero, i shows its attention`;
  }

  function press(head, looking) {
    return looking ? attend(head) : app.act("head", head, "layers");
  }

  function key(name, head) {
    const own = { layer: look.layer, head };
    if (name === "x" || name === "Enter" || name === " ") press(own, false);
    else if (name === "i") press(own, true);
    else return false;
    return true;
  }

  function attend({ layer, head }) {
    const shown = app.attention;
    if (shown?.layer === layer && shown.head === head) app.attention = null;
    else app.act("attend", { layer, head }, "layers");
    app.draw("prompt", "layers");
  }

  return { draw, chosen, at, words, reading, press, key };
}
