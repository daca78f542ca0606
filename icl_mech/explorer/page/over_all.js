// -- Over all prompts: the same change as a measurement --

function setView(app) {
  const ask = button("", "", () => app.progress ? app.act("stop", {}, "set") : app.act("over_all", {}, "set"), { class: "ex-button ex-main-button", "data-live": true });
  const note = make("span", { class: "ex-note" });
  const bar = make("div", { class: "ex-progress", role: "progressbar", "aria-label": "Over all prompts", "aria-valuemin": 0, "aria-valuemax": 100 }, make("i"));
  const out = make("div", { class: "ex-intervals", "aria-live": "polite" });
  const node = make("section", { class: "ex-set-view", "aria-label": "Over all prompts" }, make("div", { class: "ex-bar" }, ask, note), bar, out);

  function draw() {
    const { state, set, progress } = app, said = app.says.set;
    ask.textContent = progress ? "Stop" : `Over all ${state.n} prompts`;
    ask.title = progress ? "Stop this measurement" : "Measure the reference and this state over all queries (o)";
    note.classList.toggle("ex-error", Boolean(said?.wrong));
    note.textContent = said?.text ?? noteWords(state, set, progress);
    bar.hidden = !progress;
    bar.firstChild.style.width = `${100 * (progress?.share ?? 0)}%`;
    bar.setAttribute("aria-valuenow", Math.round(100 * (progress?.share ?? 0)));
    out.replaceChildren(...(set ? results(state, set) : []));
  }

  function noteWords(state, set, progress) {
    if (progress) return progress.words;
    if (!set) return "One prompt is only an example. Measure this change over all prompts for intervals.";
    return state.shared ? "95 % intervals over queries, same demonstrations" : "95 % intervals over prompts";
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
