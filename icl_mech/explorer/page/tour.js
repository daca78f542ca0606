// -- The guided first minute: three steps that the user takes, or has taken, on the page itself --

const SEEN = "icl-mech explorer tour";

/** Storage may be forbidden, as in some notebooks. */
const remembered = () => { try { return localStorage.getItem(SEEN) != null; } catch { return true; } };
const remember = () => { try { localStorage.setItem(SEEN, "seen"); } catch { /* asked again next time */ } };

const truth = app => app.parts.now?.probs[app.state.query.answer];

/** The head that adds most to the true answer. */
function bestHead(app) {
  let best = null;
  (app.parts.now?.heads ?? []).forEach((row, layer) => row.forEach((value, head) => { if (!best || value > best.value) best = { layer, head, value }; }));
  return best;
}

/** The layers of the second step: 5–10 of 30, the same part of any depth. */
const patched = state => [5, 10].map(layer => Math.round(layer * (state.layers - 1) / 29));

/** The demonstration to flip: one that shows the query's true answer, else the first. */
const telling = state => Math.max(0, state.demos.findIndex(demo => !state.open && demo.shown === state.query.answer));

const TOUR = [
  {
    target: app => `.ex-block[data-demo="${telling(app.state)}"] .ex-label_word`,
    ask: app => {
      const { state } = app, demo = telling(state);
      return ["Does the model read the label words? ", make("b", {}, `Click “${visible(wordsOf(state, state.demos[demo])[state.demos[demo].shown])}”`), `, the ${spoken("label", state)} of demonstration ${demo + 1}, to make it false.`];
    },
    take: app => app.act("flip", { demo: telling(app.state) }),
    taken: ({ state }) => !state.started && state.demos.some(demo => demo.shown !== demo.true),
    after: () => ["The strip under the answer shows the same for every query."],
  },
  {
    target: () => ".ex-svg",
    ask: app => {
      const [from, to] = patched(app.state), other = app.state.demos.every(demo => demo.shown === demo.true) ? "false" : "true";
      return ["Where is it read? Choose “patch” above the layers and ", make("b", {}, `drag over layers ${from}–${to}`), `: there, ${spoken("label words", app.state)} get their states from the prompt with ${other} ${spoken("labels", app.state)}.`];
    },
    take: app => { const [from, to] = patched(app.state); app.look.kind = "patch"; app.act("range", { what: "patch", from, to }, "layers"); },
    taken: ({ state }) => state.changes.some(change => !change.heads?.length),
    after: () => ["If the answer follows, these layers carry the difference. Bars can be dragged to other layers."],
  },
  {
    target: () => ".ex-svg",
    ask: app => { const head = bestHead(app); return ["Which heads? ", make("b", {}, `Look at head ${head ? `${head.layer}.${head.head}` : ""}`), ", which adds most to the true answer: Shift-click it in the map, or tap it."]; },
    take: app => { const head = bestHead(app); if (head) app.act("attend", { layer: head.layer, head: head.head }, "layers"); },
    taken: ({ attention }) => attention != null,
    after: () => ["The arcs lead to the tokens that it attends to. One prompt is an example: ", make("b", {}, "Intervals"), " measures a change over all queries."],
  },
];

function tourView(app) {
  const words = make("p", { role: "status" }), show = button("Show me", "Take this step for me", () => { TOUR[step].take(app); });
  const next = button("Next", "", () => go(step + 1), { class: "ex-button ex-main-button" }), skip = button("Skip", "End the tour", () => go(TOUR.length));
  const node = make("section", { class: "ex-tour", "aria-label": "First steps", hidden: true }, words, make("span", { class: "ex-space" }), show, next, skip);
  let step = remembered() ? TOUR.length : 0, before = null, query = null, change = "", marked = null;

  function go(to) {
    step = to;
    before = null;
    if (step >= TOUR.length) remember();
    app.draw("tour");
  }

  function mark(selector) {
    const target = selector && app.root.querySelector(selector);
    if (marked !== target) marked?.classList.remove("ex-tour-target");
    target?.classList.add("ex-tour-target");
    marked = target;
  }

  function draw() {
    const { state } = app, present = TOUR[step];
    node.hidden = !present || app.transport.saved || state.labels.length < 2 || !state.demos.length || !state.kinds.some(kind => kind.what === "patch");
    if (node.hidden) return mark(null);
    const taken = present.taken(app);
    if (query !== state.query.text) before = null;
    query = state.query.text;
    if (!taken) {
      if (app.fresh.has("now")) before = truth(app);
      change = "";
    } else if (app.fresh.has("now") && before != null) change = ` P(true answer) ${two(before)} → ${two(truth(app))}.`;
    words.replaceChildren(make("span", { class: "ex-quiet" }, `${step + 1} of ${TOUR.length} `),
      ...taken ? [make("b", {}, "Done."), step < 2 ? change : "", " ", ...present.after(app)] : present.ask(app));
    show.hidden = taken;
    next.hidden = !taken;
    next.textContent = step + 1 < TOUR.length ? "Next" : "Finish";
    skip.hidden = taken && step + 1 === TOUR.length;
    return mark(taken ? null : present.target(app));
  }
  return { node, draw, start: () => go(0) };
}
