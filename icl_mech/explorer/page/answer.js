// -- Answer: each class before and after, and the kept states as rows --

function answerView(app) {
  const { look } = app;
  const scale = segmented("Probabilities", [
    [false, "raw", "Probabilities among the label words"],
    [true, "calibrated", "Divided by the probabilities for a content-free query after the same demonstrations"],
  ], value => { look.calibrated = value; app.looked(); app.draw("answer"); });
  const title = make("h2", {}, "Answer"), number = make("span", { class: "ex-count" });
  const query = make("span", { class: "ex-segmented ex-query", role: "group", "aria-label": "Query" },
    make("button", { type: "button", title: "Previous query ([)", "data-live": true, "aria-label": "Previous query", onclick: () => otherQuery(app, -1) }, "‹"),
    number,
    make("button", { type: "button", title: "Next query (])", "data-live": true, "aria-label": "Next query", onclick: () => otherQuery(app, 1) }, "›"));
  const table = make("table", { class: "ex-answers", "aria-label": "Probability of each class, by state" });
  const next = make("p", { class: "ex-next" });
  const say = make("p", { class: "ex-say", role: "status" });
  const heard = make("p", { class: "ex-unseen", "aria-live": "polite" });
  const node = make("section", { class: "ex-answer-view", "aria-label": "Answer" },
    make("div", { class: "ex-bar" }, title, scale.node, make("span", { class: "ex-space" }), query), make("div", { class: "ex-rows" }, table), next, say, heard);

  /** The part a row shows: raw or calibrated probabilities. */
  const partOf = row => !look.calibrated ? row : { now: "cal", ref: "refcal" }[row] ?? `${row}cal`;
  const probabilities = row => app.parts[partOf(row)]?.probs;

  function rows(state) {
    const found = [], compared = isCompared(state);
    if (compared) found.push({ part: "ref", kind: "ref", name: referenceName(state), words: state.reference.index == null ? "" : "kept state" });
    found.push({ part: "now", kind: "now", name: "now", words: state.started ? "as at the start" : state.title });
    state.named.forEach((own, index) => found.push({ part: `kept${index}`, kind: "kept", name: own.name, words: own.title, index }));
    return found;
  }

  /** The classes that fit: the true one and the most probable ones, in the task's order; the rest is summed. Of
      free-form answers, those with a visible probability. */
  function columns(state, every) {
    const narrow = app.root.clientWidth <= 620, count = state.labels.length;
    const fits = Math.max(2, Math.floor((node.clientWidth - (narrow ? 92 : 128)) / (narrow ? 58 : 76)));
    if (state.texts) return { shown: [0, 1], rest: "all" };
    if (count <= fits && !state.open) return { shown: [...Array(count).keys()], rest: 0 };
    const most = c => c === state.query.answer ? 3 : c === taught(state) ? 2 : Math.max(0, ...every.map(row => row?.[c] ?? 0));
    const shown = [...Array(count).keys()].sort((a, b) => most(b) - most(a)).filter((c, i) => !state.open || i < 2 || most(c) >= 0.005)
      .slice(0, Math.max(1, fits - 1)).sort((a, b) => a - b);
    return { shown, rest: count - shown.length };
  }

  /** For free-form answers, the answer of the other relation, if the task has one. */
  const taught = state => state.query.words?.length > 1 ? 1 : -1;

  function heading(state, c) {
    const label = state.labels[c].trim(), words = make("bdi", {}, cut(visible(label), 24));
    if (c === state.query.answer) return make("b", { title: state.texts ? "the token that is followed: the next one of the text, else the likeliest one without changes" : "the true answer of this query" }, "✓ ", words);
    return c === taught(state) ? make("span", { class: "ex-taught", title: "the answer that incorrect demonstrations imply" }, "✗ ", words) : words;
  }

  function draw() {
    const state = app.state, listed = rows(state);
    title.textContent = state.texts ? "Next token" : "Answer";
    scale.choose(look.calibrated);
    number.textContent = state.query.number == null ? `own ${itemName(state)}` : `${itemName(state)} ${state.query.number + 1} of ${state.query.of}`;
    table.hidden = !state.labels.length;
    scale.node.hidden = table.hidden || state.open || state.texts;  // a free-form answer has no content-free probability to divide by
    look.calibrated &&= !state.open && !state.texts;
    table.setAttribute("aria-label", `Probability of each ${state.texts ? "next token" : state.open ? "choice" : "class"}, by state`);
    const every = listed.map(row => probabilities(row.part)), { shown, rest } = columns(state, every);
    const before = listed[0].kind === "ref" ? every[0] : null;
    table.replaceChildren(
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, make("span", { class: "ex-unseen" }, "state")),
        shown.map(c => make("th", { scope: "col", title: state.labels[c].trim() }, heading(state, c))),
        rest !== 0 && make("th", { scope: "col" }, `${rest} ${state.open ? "more" : "others"}`))),
      make("tbody", {}, listed.map((row, i) => rowNode(state, row, every[i], before, shown, rest))));
    drawNext(state);
    const said = app.says.answer;
    say.hidden = !said;
    say.classList.toggle("ex-error", Boolean(said?.wrong));
    say.textContent = said?.text ?? "";
    announce(state);
  }

  function rowNode(state, row, values, before, shown, rest) {
    const best = values ? values.indexOf(Math.max(...values)) : -1;
    const logits = app.parts[row.part]?.logits;
    const part = partOf(row.part);
    const cells = shown.map(c => make("td", {
      class: c === state.query.answer ? "ex-right" : c === taught(state) ? "ex-taught" : "", title: logits ? `${state.labels[c].trim()}: logit ${logits[c].toFixed(2)}` : null,
    }, values ? bar(values[c], row.kind === "now" ? before?.[c] : null, c === best) : "–"));
    if (rest) cells.push(make("td", {}, values ? bar(1 - shown.reduce((sum, c) => sum + values[c], 0), null, false) : "–"));
    return make("tr", { class: `ex-${row.kind}${app.fresh.has(part) ? "" : " ex-stale"}` }, make("th", { scope: "row" }, rowName(state, row)), cells);
  }

  function rowName(state, row) {
    const words = row.words && make("small", { title: row.words }, row.words);
    if (row.kind !== "kept") {
      const back = row.kind === "ref" && state.reference.index != null
        && make("button", { type: "button", class: "ex-rowtool", title: "Compare with the start again", "aria-label": "Compare with the start again", onclick: () => app.act("reference", { index: null }, "answer") }, "×");
      return [make("span", { class: "ex-rowline" }, row.name, back), words];
    }
    const index = row.index, compared = state.reference.index === index;
    return [make("span", { class: "ex-rowline" },
      make("button", { type: "button", class: "ex-restore", "data-key": `restore ${index}`, title: `Return to this state: ${row.words}`, onclick: () => app.act("restore", { index }, "answer") }, row.name),
      make("span", { class: "ex-rowtools" },
        make("button", { type: "button", class: "ex-rowtool", "data-key": `compare ${index}`, "aria-pressed": compared, title: "Compare with this state", "aria-label": `Compare with ${row.name}`, onclick: () => app.act("reference", { index: compared ? null : index }, "answer") }, "⇄"),
        make("button", { type: "button", class: "ex-rowtool", "data-live": true, "data-key": `forget ${index}`, title: "Forget this state", "aria-label": `Forget ${row.name}`, onclick: () => app.act("forget", { index }, "answer") }, "×"))), words];
  }

  /** A probability as a bar and a number; the tick marks its previous value. */
  function bar(value, was, best) {
    return make("span", { class: "ex-probability" },
      make("span", { class: "ex-bar-track" }, make("i", { style: { width: `${100 * value}%` } }),
        was != null && make("u", { style: { left: `${100 * was}%` }, title: `before: ${two(was)}` })),
      make("span", { class: best ? "ex-best" : "" }, two(value)));
  }

  function drawNext(state) {
    const words = app.parts.now?.next ?? [], probs = app.parts.now?.probs;
    next.classList.toggle("ex-stale", !app.fresh.has("now"));
    next.replaceChildren(make("span", {}, "next token"), ...words.slice(0, 5).map(([word, share]) => {
      const label = labelOf(state, word);
      return make("span", {}, make("bdi", { class: label < 0 ? "ex-word" : label === state.query.answer ? "ex-word ex-is-true" : "ex-word ex-is-false" }, cut(visible(word), 18)), ` ${two(share)}`);
    }), state.open && probs ? rank(probs) : "");
  }

  /** The rank of the right answer among the choices. */
  function rank(probs) {
    const place = 1 + probs.filter(own => own > probs[0]).length;
    return make("span", { class: "ex-rank" }, "right answer ", make("b", {}, place === 1 ? "likeliest" : `${ordinal(place)} likeliest`), ` of ${probs.length} choices`);
  }

  /** Announce the answer to screen readers. */
  function announce(state) {
    const probs = app.parts.now?.probs;
    if (!probs || !app.fresh.has("now") || !state.labels.length) return;
    const best = probs.indexOf(Math.max(...probs)), was = app.fresh.has("ref") && isCompared(state) ? `, before ${two(app.parts.ref.probs[state.query.answer])}` : "";
    const words = state.texts ? `${truthName(state)} ${two(probs[0])}${was}.` : `Answer ${state.labels[best].trim()} ${two(probs[best])}; true answer ${state.labels[state.query.answer]?.trim()} ${two(probs[state.query.answer])}${was}.`;
    if (heard.textContent !== words) heard.textContent = words;
  }
  return { node, draw };
}

function otherQuery(app, step) {
  const { number, of } = app.state.query;
  app.act("query", { number: ((number ?? (step > 0 ? -1 : 0)) + step + of) % of });
}
