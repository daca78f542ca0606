// -- The queries: what the state does to each of them, and over all of them with intervals --

const STRIP = 96, EDGE = 7;  // height of the strip of queries, and its margin above and below

function boardView(app) {
  const { look } = app;
  const ask = button("", "", () => app.progress ? app.act("stop", {}, "set") : app.act("over_all", {}, "set"), { class: "ex-button ex-main-button", "data-live": true });
  const sort = segmented("Order of the queries", [["order", "in order", "Queries in the order of the set"], ["change", "by change", "Queries by the change of the true answer’s probability"]],
    order => { look.sort = order; app.draw("set"); });
  const filter = make("select", { "aria-label": "Queries of which class", "data-key": "class", onchange: event => { look.class = event.target.value === "" ? null : Number(event.target.value); app.draw("set"); } });
  const svg = make("svg", { "aria-hidden": "true" });
  const strip = make("div", { class: "ex-queries", role: "slider", tabindex: 0, "data-key": "strip", "aria-label": "Query; left and right choose the next in this order" }, svg);
  const summary = make("p", { class: "ex-note", role: "status" });
  const note = make("p", { class: "ex-note" });
  const bar = make("div", { class: "ex-progress", role: "progressbar", "aria-label": "Over all prompts", "aria-valuemin": 0, "aria-valuemax": 100 }, make("i"));
  const out = make("div", { class: "ex-intervals", "aria-live": "polite" });
  const node = make("section", { class: "ex-set-view", "aria-label": "All queries" },
    make("div", { class: "ex-bar" }, make("h2", {}, "All queries"), sort.node, filter), strip, make("div", { class: "ex-bar" }, summary, make("span", { class: "ex-space" }), ask), note, bar, out);
  let classesBuilt = "";

  // The strip: a column per query, from its probability before (hollow) to that now (filled)

  /** Rows of the present order and class; a query that is not measured yet has no numbers. */
  function listed(state) {
    const rows = state.queries.map((query, q) => ({ q, ...query, ...app.board.get(q) })).filter(row => look.class == null || row.answer === look.class);
    const change = ({ before, now }) => now ? now[0] - (before ?? now)[0] : Infinity;
    return look.sort === "change" ? [...rows].sort((a, b) => change(a) - change(b)) : rows;
  }

  function drawStrip(state) {
    const rows = listed(state), width = strip.clientWidth || 500, left = 26, column = (width - left) / Math.max(rows.length, 1);
    const x = i => left + (i + 0.5) * column, y = value => EDGE + (STRIP - 2 * EDGE) * (1 - value), r = clamp(column / 4.5, 1.2, 4);
    const line = (value, more) => make("line", { x1: left, x2: width, y1: y(value), y2: y(value), stroke: colour("grid"), ...more });
    const label = (value, words) => make("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", "font-size": 11.5, fill: colour("muted") }, words);
    const compared = isCompared(state), chance = 1 / state.labels.length;
    svg.setAttribute("viewBox", `0 0 ${width} ${STRIP}`);
    svg.replaceChildren(line(0), line(0.5), line(1), line(chance, { stroke: colour("ref"), "stroke-dasharray": "1 4" }), label(0, "0"), label(0.5, ".5"), label(1, "1"),
      ...rows.map((row, i) => {
        const here = row.q === state.query.number && make("rect", { x: x(i) - column / 2, y: 0, width: column, height: STRIP, rx: 2, fill: colour("panel"), stroke: colour("rule") });
        if (!row.now) return make("g", {}, here || [], make("circle", { cx: x(i), cy: y(chance), r: 1, fill: colour("rule") }));
        const right = row.now[1] === row.answer, ink = colour(right ? "true" : "false"), was = compared && row.before;
        return make("g", { class: row.fresh ? "" : "ex-stale" }, here || [],
          was ? make("line", { x1: x(i), x2: x(i), y1: y(was[0]), y2: y(row.now[0]), stroke: ink, "stroke-width": 1.6 }) : [],
          was ? make("circle", { cx: x(i), cy: y(was[0]), r: r * 0.8, fill: colour("page"), stroke: colour("ref"), "stroke-width": 1.4 }) : [],
          // Right answers are discs, wrong ones diamonds: colour is not the only difference.
          right ? make("circle", { cx: x(i), cy: y(row.now[0]), r, fill: ink }) : make("path", { d: `M${x(i)},${y(row.now[0]) - 1.3 * r}l${1.3 * r},${1.3 * r}l${-1.3 * r},${1.3 * r}l${-1.3 * r},${-1.3 * r}Z`, fill: ink }));
      }));
    strip.rows = rows;
    strip.at = at => rows[clamp(Math.floor((at - left) / column), 0, rows.length - 1)];
    const mine = rows.find(row => row.q === state.query.number);
    strip.setAttribute("aria-valuenow", (state.query.number ?? -1) + 1);
    strip.setAttribute("aria-valuemin", 1);
    strip.setAttribute("aria-valuemax", state.n);
    strip.setAttribute("aria-valuetext", mine ? rowWords(state, mine).join(", ") : "a query outside of the set");
  }

  function rowWords(state, row) {
    const answer = (end, choices) => state.open ? (end[1] ? "another answer" : "right answer") : choices[end[1]].trim();
    const one = end => `${two(end[0])} (${answer(end, state.labels)})`;
    return [`query ${row.q + 1}, ${row.label.trim()}`, row.now && `P(true answer) ${isCompared(state) && row.before ? `${one(row.before)} → ` : ""}${one(row.now)}`, cut(row.text, 90)].filter(Boolean);
  }

  function drawFilter(state) {
    const classes = state.open ? [] : state.labels.map(label => label.trim()), signature = JSON.stringify(classes);
    filter.hidden = !classes.length;
    if (signature === classesBuilt) return;
    classesBuilt = signature;
    filter.replaceChildren(make("option", { value: "" }, "all classes"), ...classes.map((label, i) => make("option", { value: i }, cut(label, 20))));
  }

  /** The strip in one line: how many are measured, right, and changed. */
  function summaryWords(state) {
    const rows = listed(state).filter(row => row.now !== null && row.before !== null), done = rows.filter(row => row.now && row.fresh), right = end => done.filter(row => row[end][1] === row.answer).length;
    if (!rows.length) return "None of these queries can be asked after these demonstrations.";
    if (!done.length) return app.board.size || app.busy ? "Measuring every query …" : "";
    const measured = done.length < rows.length ? `${done.length} of ${rows.length} measured: ` : "";
    if (!isCompared(state) || !done.every(row => row.before)) return `${measured}${right("now")} of ${done.length} right. ${done.length === rows.length ? "Change the prompt or a layer: every query follows." : ""}`;
    const change = done.reduce((sum, row) => sum + row.now[0] - row.before[0], 0) / done.length;
    const tried = !app.set && app.tried?.[0] && app.tried[1] > 1 ? ` Change ${app.tried[0]} of ${app.tried[1]} tried on these queries${app.tried[1] > 2 ? " (the best of several looks better than it is)" : ""}.` : "";
    return `${measured}right ${right("before")} → ${right("now")} of ${done.length}, P(true answer) ${signed(change)} on average.${tried}`;
  }

  strip.addEventListener("pointermove", event => {
    const row = strip.at?.(event.clientX - strip.getBoundingClientRect().left);
    if (row) app.tip.show(event, rowWords(app.state, row).join("\n"));
  });
  strip.addEventListener("pointerleave", () => app.tip.hide());
  strip.addEventListener("click", event => {
    const row = strip.at?.(event.clientX - strip.getBoundingClientRect().left);
    if (row) app.act("query", { number: row.q }, "set");
  });
  strip.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1 }[event.key], rows = strip.rows ?? [];
    if (!step || !rows.length) return;
    const at = rows.findIndex(row => row.q === app.state.query.number);
    app.act("query", { number: rows[(at + step + rows.length) % rows.length].q }, "set");
    event.preventDefault();
    event.stopPropagation();
  });

  function draw() {
    const { state, set, progress } = app, said = app.says.set, several = state.queries?.length > 1;
    node.hidden = !several && !said;
    for (const part of [strip, summary, sort.node, filter, ask]) part.hidden = !several;
    if (several) {
      sort.choose(look.sort);
      drawFilter(state);
      filter.value = look.class ?? "";
      drawStrip(state);
      summary.textContent = summaryWords(state);
    }
    ask.textContent = progress ? "Stop" : "Intervals";
    ask.title = progress ? "Stop this measurement" : `Measure the reference and this state over all ${state.n} queries, with 95 % intervals (o)`;
    note.hidden = !said && !progress && !set;
    note.classList.toggle("ex-error", Boolean(said?.wrong));
    note.textContent = said?.text ?? noteWords(state, set, progress);
    bar.hidden = !progress;
    bar.firstChild.style.width = `${100 * (progress?.share ?? 0)}%`;
    bar.setAttribute("aria-valuenow", Math.round(100 * (progress?.share ?? 0)));
    out.replaceChildren(...(set ? results(state, set) : []));
  }

  function noteWords(state, set, progress) {
    if (progress) return progress.words;
    if (!set) return "";
    return "95 % intervals over queries, same demonstrations";
  }

  function results(state, set) {
    const name = referenceName(state), compared = isCompared(state);
    const rows = [compared && ["right answers", name, set.before.accuracy, "ref"], ["right answers", compared ? "now" : "", set.now.accuracy, "now"],
      compared && set.same && ["unchanged answers", "", set.same, "now"]].filter(Boolean);
    const widest = set.difference ? Math.max(0.1, ...set.difference.map(Math.abs)) : 1;
    return [
      make("table", {}, make("tbody", {}, rows.map(([words, of, values, kind]) => intervalRow(words, of, values, kind, 0, 1, two)),
        compared && set.difference && intervalRow("p(true answer)", `now − ${name}`, set.difference, "now", -widest, widest, signed))),
      given(state, set, compared),
      set.sentence && make("p", { class: "ex-sentence" }, set.sentence),
      set.warning && make("p", { class: "ex-warning" }, set.warning),
    ].filter(Boolean);
  }

  /** How often each class was the answer: giving one class for everything is the most common failure. */
  function given(state, { before, now }, compared) {
    if (!now.shares?.length) return null;
    const most = [...now.shares.keys()].sort((a, b) => now.shares[b] - now.shares[a]).slice(0, 3);
    return make("p", { class: "ex-next" }, make("span", {}, "answers given"), most.map(c => make("span", {}, make("b", {}, state.labels[c].trim()),
      ` ${compared ? `${two(before.shares[c])} → ` : ""}${two(now.shares[c])}`)));
  }

  /** Estimate and interval on a line from `low` to `high`; a mark at zero if it lies inside. */
  function intervalRow(words, of, [value, from, to], kind, low, high, show) {
    const at = x => 2 + 196 * (x - low) / (high - low), ink = kind === "ref" ? colour("ref") : colour("ink");
    const drawn = make("svg", { viewBox: "0 0 200 16", preserveAspectRatio: "none", "aria-hidden": "true" },
      make("line", { x1: 2, x2: 198, y1: 8, y2: 8, stroke: colour("grid") }),
      low < 0 && make("line", { x1: at(0), x2: at(0), y1: 0, y2: 16, stroke: colour("rule") }),
      make("line", { x1: at(from), x2: at(to), y1: 8, y2: 8, stroke: ink, "stroke-width": 3, "stroke-dasharray": kind === "ref" ? "5 2" : null }),
      make("rect", { x: at(value) - 1.5, y: 2, width: 3, height: 12, fill: ink }));
    return make("tr", { class: `ex-${kind}` }, make("th", { scope: "row" }, words, of && make("small", {}, ` ${of}`)), make("td", { class: "ex-interval" }, drawn),
      make("td", { class: "ex-figures" }, show(value), make("small", {}, ` [${show(from)}, ${show(to)}]`)));
  }
  return { node, draw };
}
