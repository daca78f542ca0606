/* The live explorer: one page for the notebook widget and for the browser.

   Python holds the experiment (demonstrations, query, changes); this page holds the view (cursor, token, mode) and
   draws what Python sends. Texts reach the page as text nodes only, styles through the object model, so that a
   strict content security policy holds and a hostile text stays text. */

const VERSION = 1;
const LONGEST_TEXT = 8000;
const PATIENCE = 2000;  // milliseconds without an answer after which the page says that the kernel is busy
const CLICK = 5;  // pixels that a pointer may move and still click
const LONGEST_ANSWER = 200;  // characters of a typed answer
const MENU_FROM = 5;  // number of classes from which a click on a label word opens a menu instead of showing the next class
const STRONGEST = 7;  // tokens that get an arc
const DECADES = 4;  // of saliency that the codes 1 to 255 span

// -- Transports: {send(object), listen(callback), status(callback)} --

const HELLO = { do: "hello", version: VERSION, seq: 0, look: { layer: 0, token: null, mode: "roles" } };

/** Over a websocket that reconnects automatically; every connection starts with `hello`. */
export function socketTransport(url) {
  let socket = null, wait = 250, heard = () => {}, told = () => {};
  function connect() {
    socket = new WebSocket(url);
    socket.onopen = () => {
      wait = 250;
      told("open");
      socket.send(JSON.stringify(HELLO));
    };
    socket.onmessage = event => heard(JSON.parse(event.data));
    socket.onclose = () => {
      told("lost");
      wait = Math.min(wait * 2, 8000);
      setTimeout(() => { told("trying"); connect(); }, wait);
    };
  }
  return {
    alone: true,
    busy: "no answer yet",
    send: message => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message)); },
    status: callback => { told = callback; },
    listen: callback => {
      heard = callback;
      connect();
      return () => {
        socket.onclose = null;
        socket.close();
      };
    },
  };
}

/** Over the comm of a notebook widget. */
function widgetTransport(model) {
  let told = () => {};
  return {
    busy: "the kernel is busy with a cell",
    send: message => model.send(message),
    status: callback => { told = callback; },
    listen: callback => {
      const heard = message => callback(message);
      model.on("msg:custom", heard);
      model.on("comm:close", () => told("lost"));
      told("open");
      model.send(HELLO);
      return () => model.off("msg:custom", heard);
    },
  };
}

export default {
  render({ model, el }) {
    return mount(el, widgetTransport(model));
  },
};

// -- Elements --

const SVG_NAMES = new Set(["svg", "g", "path", "rect", "line", "circle", "text"]);

/** An element with attributes, listeners (`onclick`), styles and children; strings become text nodes. */
function make(name, given = {}, ...children) {
  const own = SVG_NAMES.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    const said = key.startsWith("aria-");  // these take true and false as words
    if (value == null || (value === false && !said)) continue;
    if (key.startsWith("on")) own.addEventListener(key.slice(2), value);
    else if (key === "style") Object.entries(value).forEach(([rule, text]) => own.style.setProperty(rule, text));
    else own.setAttribute(key, value === true && !said ? "" : value);
  }
  own.append(...children.flat(Infinity).filter(child => child != null && child !== false));
  return own;
}

function button(words, title, act, more = {}) {
  return make("button", { type: "button", class: "ex-button", title, onclick: act, ...more }, words);
}

/** A choice of one option: `options` are [value, words, title]; `choose` redraws the group. */
function segmented(label, options, act) {
  const buttons = options.map(([value, words, title]) =>
    make("button", { type: "button", title, onclick: () => act(value) }, words));
  const node = make("span", { class: "ex-segmented", role: "group", "aria-label": label }, buttons);
  const choose = chosen => buttons.forEach((own, i) => own.setAttribute("aria-pressed", options[i][0] === chosen));
  return { node, buttons, choose };
}

const colour = name => `var(--icl-${name})`;

/** A place between two steps of a scale, as a colour that follows the theme. */
function mixed(steps, at) {
  const place = Math.min(Math.max(at, 0), 1) * (steps.length - 1), low = Math.min(Math.floor(place), steps.length - 2);
  const share = Math.round(100 * (place - low));
  return `color-mix(in oklab, ${colour(steps[low])} ${100 - share}%, ${colour(steps[low + 1])})`;
}

const SCALE = ["s0", "s1", "s2", "s3", "s4", "s5"];
const SIGNED = ["d0", "d1", "d2", "dm", "d3", "d4", "d5"];

// -- Words and numbers --

const two = value => value == null ? "–" : value.toFixed(2).replace("-", "−");
const signed = value => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
const percent = share => `${Math.round(100 * share)} %`;
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const span = (a, b) => a === b ? `${a}` : `${a}–${b}`;
const cut = (text, most) => [...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text;
/** True if there is something to compare with: the state is not the reference itself. */
const isCompared = state => !state.started || state.reference.index != null;
const referenceName = state => state.reference.name || "start";
/** A text about label words, adapted to free-form answers. */
const spoken = (words, state) => state?.open ? words.replace(/\blabel( word)?/g, "answer") : words;
/** What a demonstration can display: the classes, or its own free-form answers. */
const wordsOf = (state, demo) => demo.words?.length ? demo.words : state.labels.map(own => own.trim());
const ordinal = n => n + ["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : Math.min(n % 10, 4) % 4];
/** A token's text shown on its own: spaces and line breaks become visible. */
const visible = text => text.replace(/\n/g, "↵").trim() || "␣";
const quoted = text => `“${cut(visible(text), 24)}”`;

const ROLES = {
  demo_text: ["demonstration text", "text"],
  label_word: ["label words", "label"],
  format: ["template", "template"],
  narrative: ["narrative", "template"],
  query_text: ["query", "query"],
  target: ["target", "target"],
  bos: ["start of text", "ref"],
};
const roleName = (role, state) => spoken((ROLES[role] ?? ROLES.format)[0], state);
const roleColour = role => colour((ROLES[role] ?? ROLES.format)[1]);

const PARTS = {
  now: "answer and lens", ref: "the reference", cal: "calibration", refcal: "calibration",
  pair: "true and false labels", flow: "information flow", refflow: "flow of the reference", attention: "attention",
};

/** What a change concerns, which sets its colour. */
function changeColour(change) {
  if (change.heads?.length) return "template";
  if (change.what === "patch") return "false";
  if (change.demo != null) return "text";
  if (change.token != null) return "target";
  return "label";
}

/** The layers a change spans. */
function changeLayers(change) {
  if (!change.heads?.length) return change.layers;
  const layers = change.heads.map(pair => pair[0]);
  return [Math.min(...layers), Math.max(...layers)];
}

// -- Maps: lower triangles of one byte per edge, row by row --

function bytes(text) {
  return Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}

/** Codes of the edges into (or out of) a token, one per token; `self` includes its edge to itself. */
function edges(codes, offset, size, token, mode, self) {
  return Array.from({ length: size }, (_, other) => {
    const [to, from] = mode === "out" ? [other, token] : [token, other];
    if (from > to || (from === to && !self)) return 0;
    return codes[offset + to * (to + 1) / 2 + from];
  });
}

// -- The page --

/** Show the explorer in an element; returns a function that removes it. */
export function mount(el, transport) {
  const root = make("div", { class: "icl-explore", tabindex: -1, role: "region", "aria-label": "Explore in-context learning" });
  const app = {
    root, transport, state: null, parts: {}, fresh: new Set(), attention: null, set: null, progress: null,
    busy: null, link: "trying", pending: null, slow: false, seq: 0, says: {}, lastPlace: "prompt",
    look: { layer: null, token: null, mode: "roles", calibrated: false, kind: null, demo: null, row: null, all: true },
  };

  app.act = (what, fields = {}, place = "prompt") => {
    app.lastPlace = place;
    if (app.link !== "open") return app.tell(place, "Not connected: nothing was sent.", true);
    app.says = {};
    const { layer, token, mode } = app.look;
    app.seq += 1;
    app.pending = app.seq;
    const sent = app.seq;
    setTimeout(() => { if (app.pending === sent) { app.slow = true; app.draw("header"); } }, PATIENCE);
    transport.send({ do: what, seq: sent, look: { layer, token, mode }, ...fields });
    return undefined;
  };
  /** Show a sentence in the section it concerns: prompt, answer, set or layers. */
  app.tell = (place, text, wrong = false) => {
    app.says[place] = { text, wrong };
    app.draw(place);
  };
  app.focused = () => root.getRootNode().activeElement;

  // Drawing is batched into the next frame.
  const waiting = new Set();
  let frame = null;
  app.draw = (...names) => {
    names.forEach(name => waiting.add(name));
    frame ??= requestAnimationFrame(() => {
      frame = null;
      const due = [...waiting];
      waiting.clear();
      const began = performance.now();
      keepFocus(app, () => due.filter(name => app.state || name === "header").forEach(name => views[name].draw()));
      // Read by benchmarks.
      root.dataset.redraw = (performance.now() - began).toFixed(1);
    });
  };
  app.drawAll = () => app.draw("header", "prompt", "answer", "set", "layers");

  const views = {};
  app.dialogs = dialogs(app);
  app.tip = tooltip(root);
  Object.assign(views, {
    header: headerView(app), prompt: promptView(app), answer: answerView(app), set: setView(app), layers: layersView(app),
  });
  root.append(
    make("div", { class: "ex-page" },
      views.header.node,
      make("div", { class: "ex-main" },
        make("div", { class: "ex-left" }, views.prompt.node, views.answer.node, views.set.node),
        make("div", { class: "ex-right" }, views.layers.node))),
    app.dialogs.node, app.tip.node);
  el.append(root);

  const ends = [theme(app), keyboard(app)];
  const sized = new ResizeObserver(() => app.draw("answer", "layers", "prompt"));
  sized.observe(root);
  ends.push(() => sized.disconnect());
  transport.status(link => {
    app.link = link;
    app.draw("header");
  });
  const unlisten = transport.listen(message => hear(app, message));
  if (unlisten) ends.push(unlisten);
  app.draw("header");
  if (transport.alone) {
    root.classList.add("ex-alone");
    root.focus({ preventScroll: true });
  }
  return () => {
    ends.forEach(end => end());
    root.remove();
  };
}

/** A redrawn element keeps the focus by its key; if it is gone or disabled, the page gets the focus, so that keys still work. */
function keepFocus(app, draw) {
  const held = app.focused(), inside = held && app.root.contains(held);
  draw();
  const now = app.focused();
  if (!inside || (app.root.contains(now) && !now.disabled)) return;
  const again = [...app.root.querySelectorAll("[data-key]")].find(own => own.dataset.key === held.dataset.key && !own.disabled);
  (again ?? app.root).focus({ preventScroll: true });
}

// -- Messages from Python --

function hear(app, message) {
  const { kind, part, seq } = message;
  const unasked = kind === "busy" || (kind === "part" && part !== "attention") || (kind === "state" && seq < app.pending);
  if (!unasked) {
    app.pending = null;
    app.slow = false;
    app.draw("header");
  }
  const known = { state: hearState, part: hearPart, busy: hearBusy, progress: hearProgress, set: hearSet, code: hearCode, error: hearError };
  known[kind]?.(app, message);
}

/** Everything a result over all queries depends on: all but the query. */
const experiment = state => JSON.stringify([state.demos, state.changes, state.reference]);
const texts = state => JSON.stringify(state.tokens.map(token => token.t));

function hearState(app, state) {
  const old = app.state, look = app.look;
  app.state = state;
  if (state.version !== VERSION) {
    app.tell("prompt", `This page uses protocol version ${VERSION}, but the server uses version ${state.version}: reload the page.`, true);
  }
  if (!old || old.gen !== state.gen) {
    app.fresh.clear();
    app.progress = null;
  }
  if (old) app.parts = keptParts(app.parts, old.named, state.named);
  if (old && experiment(old) !== experiment(state)) app.set = null;
  if (old && texts(old) !== texts(state)) {
    if (old.tokens.length !== state.tokens.length) look.token = followed(old, state, look.token);
    if (look.token == null) look.mode = "roles";
  }
  if (look.demo != null && look.demo >= state.demos.length) look.demo = null;
  look.layer = clamp(look.layer ?? Math.round(state.layers / 4), 0, state.layers - 1);
  if (!state.kinds.some(kind => kind.what === look.kind)) look.kind = state.kinds[0]?.what ?? null;
  if (look.row?.change >= state.changes.length) look.row = null;
  if (state.note) app.says.prompt = { text: state.note, wrong: false };
  // The map of a head belongs to one experiment: request it again, once, if the experiment changed.
  if (app.attention && old && (experiment(old) !== experiment(state) || texts(old) !== texts(state))) {
    app.attention.fresh = false;
    app.act("attend", { layer: app.attention.layer, head: app.attention.head });
  }
  app.drawAll();
}

/** When the prompt's length changes, the target stays chosen; any other token is deselected. */
function followed(old, state, token) {
  if (token == null || old.tokens[token]?.r !== "target") return null;
  return state.tokens.findLastIndex(own => own.r === "target");
}

/** Parts of kept states are numbered, and numbers shift when one is forgotten: match them by name. */
function keptParts(parts, before, after) {
  const rest = Object.fromEntries(Object.entries(parts).filter(([name]) => !name.startsWith("kept")));
  after.forEach((own, i) => {
    const was = before.findIndex(other => other.name === own.name);
    if (was >= 0 && parts[`kept${was}`]) rest[`kept${i}`] = parts[`kept${was}`];
  });
  return rest;
}

function hearPart(app, { gen, part, data }) {
  if (!app.state || gen !== app.state.gen) return;
  if (part === "attention") {
    app.attention = { ...data, codes: bytes(data.maps), fresh: true };
    app.look.mode = app.look.mode === "out" ? "out" : "into";
    app.look.token ??= app.state.tokens.length - 1;
    app.draw("prompt", "layers");
    return;
  }
  app.parts[part] = part === "flow" ? { ...data, codes: bytes(data.maps) } : data;
  app.fresh.add(part);
  if (part === "flow") app.draw("prompt", "layers");
  else if (part === "pair" || part === "refflow") app.draw("layers");
  else app.draw("answer", "layers", "set");
}

function hearBusy(app, { part }) {
  app.busy = part;
  app.draw("header");
}

function hearProgress(app, { gen, share, words }) {
  if (gen !== app.state?.gen) return;
  app.progress = share == null ? null : { share, words };
  if (share == null) app.says.set = { text: words || "Stopped.", wrong: false };
  app.draw("set", "header");
}

function hearSet(app, { gen, data }) {
  if (gen !== app.state?.gen) return;
  app.set = data;
  app.progress = null;
  app.look.all = true;
  app.draw("set", "header", "layers");
}

function hearCode(app, { code }) {
  app.dialogs.showCode(code);
}

function hearError(app, { text }) {
  app.busy = null;
  app.progress = null;
  app.tell(app.lastPlace, text, true);
  app.draw("header", "set");
}

// -- Header: what is shown, how certain it is, and undo --

function headerView(app) {
  const what = make("span", { class: "ex-what" });
  const pill = make("span", { class: "ex-pill" });
  const status = make("span", { class: "ex-status", role: "status" });
  const back = segmented("History", [["undo", "Undo", "Undo (u)"], ["redo", "Redo", "Redo (r)"], ["reset", "Start", "Back to the start (0)"]],
    what => app.act(what));
  const node = make("header", { class: "ex-header" },
    make("h1", {}, "Explore in-context learning"), what, pill, status, make("span", { class: "ex-space" }),
    back.node,
    button("Keep", "Keep this state as a row next to the others (k)", () => app.act("keep", {}, "answer")),
    button("Copy as code", "Python code that reproduces these numbers (c)", () => askCode(app)),
    button("?", "Keyboard shortcuts (?)", () => app.dialogs.showHelp(), { "aria-label": "Keyboard shortcuts", class: "ex-button ex-square" }),
    button("◐", "Switch between light and dark", () => app.toggleTheme(), { "aria-label": "Switch between light and dark", class: "ex-button ex-square" }));

  function statusWords() {
    if (app.link === "lost" || app.link === "trying") return app.state ? "not connected – trying again" : "connecting …";
    if (app.pending != null && app.slow) return app.transport.busy ?? "no answer yet";
    if (app.progress) return `over all ${app.state.n} prompts · ${percent(app.progress.share)}`;
    return app.busy ? `measuring ${spoken(PARTS[app.busy] ?? "a kept state", app.state)}` : "";
  }

  function draw() {
    const words = statusWords(), state = app.state;
    if (status.textContent !== words) status.textContent = words;
    status.classList.toggle("ex-working", Boolean(words));
    app.root.classList.toggle("ex-lost", app.link !== "open");
    pill.hidden = !state;
    if (!state) return;
    what.textContent = what.title = [state.model, state.task].filter(Boolean).join(" · ");
    const all = app.set && app.look.all;
    pill.textContent = all ? `n = ${app.set.n} · 95 % intervals` : "n = 1 · an example, not a finding";
    pill.classList.toggle("ex-many", Boolean(all));
    const [undo, redo, reset] = back.buttons;
    undo.disabled = !state.undo;
    redo.disabled = !state.redo;
    reset.disabled = state.started;
  }
  return { node, draw };
}

function askCode(app) {
  app.act("code", { all: Boolean(app.set && app.look.all) });
}

// -- Prompt: by role, or by what one token reads --

function promptView(app) {
  const { look } = app;
  const modes = segmented("What the colours show", [
    ["roles", "Roles", "The role of each token"],
    ["into", "Into the token", "What the chosen token reads at the cursor’s layer"],
    ["out", "Out of it", "What reads the chosen token at the cursor’s layer"],
  ], setMode);
  const source = make("button", { type: "button", class: "ex-source", title: "Back to saliency", onclick: () => { app.attention = null; app.draw("prompt", "layers"); } });
  const add = button("+ Add", "Add another demonstration from the task (a)", () => app.act("add"));
  const flip = button("", "", () => app.act("flip_all"));
  const text = make("div", { class: "ex-text", role: "group", "aria-label": "The prompt, token by token" });
  const arcs = make("svg", { class: "ex-arcs", "aria-hidden": "true" });
  const box = make("div", { class: "ex-prompt" }, text, arcs);
  const say = make("p", { class: "ex-say", role: "status" });
  const mass = make("div", { class: "ex-mass", role: "img" });
  const node = make("section", { class: "ex-prompt-view", "aria-label": "Prompt" },
    make("div", { class: "ex-bar" }, make("h2", {}, "Prompt"), modes.node, make("span", { class: "ex-space" }), add, flip),
    box, say, mass);

  let built = "", tokens = [], editing = false, menu = null;

  // Structure

  /** Runs of tokens that belong together: the text before the demonstrations, each demonstration, the query. */
  function blocks(state) {
    const found = [];
    state.tokens.forEach((token, i) => {
      const kind = token.d ?? (found.some(own => typeof own.kind === "number") || !state.demos.length ? "query" : "before");
      if (found.at(-1)?.kind !== kind) found.push({ kind, tokens: [] });
      found.at(-1).tokens.push(i);
    });
    return found;
  }

  function build(state) {
    const held = focusedToken();
    tokens = [];
    closeMenu();
    text.replaceChildren(...blocks(state).map(block => blockNode(state, block)));
    if (held != null) tokens[Math.min(held, tokens.length - 1)]?.focus({ preventScroll: true });
  }

  function blockNode(state, { kind, tokens: members }) {
    const demo = typeof kind === "number" ? kind : null;
    const name = kind === "query" ? "?" : kind === "before" ? "" : String(demo + 1);
    const number = demo == null ? make("span", { class: "ex-number", "aria-hidden": "true" }, name)
      : make("button", { class: "ex-number", type: "button", tabindex: -1, title: `Choose demonstration ${name}`, onclick: () => chooseDemo(demo) }, name);
    const tools = demo != null ? demoTools(state, demo) : kind === "query" ? queryTools() : null;
    return make("div", { class: "ex-block", "data-demo": demo, "data-kind": demo == null ? kind : "demo" }, number,
      make("div", { class: "ex-tokens" }, members.map((i, place) => tokenNodes(state, i, members.slice(place + 1).every(k => /^\n*$/.test(state.tokens[k].t))))), tools);
  }

  function tool(sign, words, act) {
    return make("button", { type: "button", tabindex: -1, title: words, "aria-label": words, onclick: act }, sign);
  }

  function demoTools(state, demo) {
    const name = `demonstration ${demo + 1}`;
    return make("span", { class: "ex-tools" },
      tool("✎", `Edit the text of ${name} (e)`, () => editDemo(demo)),
      demo > 0 && tool("↑", `Move ${name} up (Alt ↑)`, () => app.act("move", { demo, by: -1 })),
      demo < state.demos.length - 1 && tool("↓", `Move ${name} down (Alt ↓)`, () => app.act("move", { demo, by: 1 })),
      tool("×", `Remove ${name} (Delete)`, () => app.act("drop", { demo })));
  }

  function queryTools() {
    return make("span", { class: "ex-tools" }, tool("✎", "Enter your own query (e)", editQuery));
  }

  /** A token and what follows it: the true word after a false label, line breaks; with `last`, no breaks. */
  function tokenNodes(state, i, last) {
    const token = state.tokens[i], demo = token.r === "label_word" && token.d != null ? state.demos[token.d] : null;
    const wrong = demo != null && demo.shown !== demo.true;
    const begins = token.r === "label_word" && state.tokens[i - 1]?.r !== "label_word";
    const ends = !last && state.tokens[i + 1]?.r === "label_word" && state.tokens[i + 1].d === token.d;
    const own = make("span", {
      class: `ex-token ex-${token.r}${wrong ? " ex-wrong" : ""}`, "data-i": i, tabindex: -1, role: "button",
      "aria-label": tokenName(state, i),
    }, pieces(begins ? token.t.replace(/^ /, "") || "␣" : token.t, last));
    tokens[i] = own;
    const truth = wrong && !ends && make("s", { class: "ex-truth", title: spoken("the true label", state) }, cut(visible(wordsOf(state, demo)[demo.true]), 24));
    return [own, truth];
  }

  /** A text with visible line breaks; the last one of a block is shown without breaking the line. */
  function pieces(string, last) {
    return string.split("\n").flatMap((piece, i, every) => {
      if (i === every.length - 1) return [piece];
      const end = last && every.slice(i + 1).every(rest => rest === "");
      return [piece, make("span", { class: "ex-end", "aria-hidden": "true" }, "↵"), end ? null : make("br")];
    });
  }

  function tokenName(state, i) {
    const token = state.tokens[i], demo = token.d == null ? null : state.demos[token.d];
    const place = demo ? `, demonstration ${token.d + 1}` : "";
    const wrong = demo && token.r === "label_word" && demo.shown !== demo.true ? `, false, the true ${spoken("label", state)} is ${wordsOf(state, demo)[demo.true]}` : "";
    return `${visible(token.t)}, ${roleName(token.r, state)}${place}${wrong}`;
  }

  // Painting

  function draw() {
    if (editing) return;  // updates are drawn when the editor closes; else its keys would become commands
    const state = app.state, signature = JSON.stringify([state.tokens, state.demos, state.labels]);
    if (signature !== built) {
      built = signature;
      build(state);
    }
    const classes = state.labels.length > 0, allTrue = state.demos.every(demo => demo.shown === demo.true);
    flip.hidden = !classes || !state.demos.length;
    flip.textContent = spoken(allTrue ? "Flip all labels" : "All labels true", state);
    flip.title = spoken("All labels false, or all true again (f)", state);
    modes.choose(look.mode);
    paint(state);
  }

  /** Level (0 to 1, for the colour) and weight (for fractions) of each token; null if nothing is measured. */
  function values(state) {
    if (look.mode === "roles" || look.token == null) return null;
    const size = state.tokens.length, head = app.attention, flow = app.parts.flow;
    if (head) {
      if (head.t !== size) return null;
      return edges(head.codes, 0, size, look.token, look.mode, true)
        .map(code => ({ level: Math.sqrt(code / 255), weight: code / 255 }));
    }
    if (flow?.t !== size || !flow.codes.length) return null;
    return edges(flow.codes, look.layer * size * (size + 1) / 2, size, look.token, look.mode, false)
      .map(code => ({ level: code / 255, weight: code && 10 ** ((code / 255 - 1) * DECADES) }));
  }

  const isFresh = () => app.attention ? app.attention.fresh : app.fresh.has("flow");

  function paint(state) {
    const found = values(state), marks = changeMarks(state), reachable = focusedToken() ?? look.token ?? state.tokens.length - 1;
    text.classList.toggle("ex-roles", !found);
    text.classList.toggle("ex-valued", Boolean(found));
    text.classList.toggle("ex-stale", Boolean(found) && !isFresh());
    tokens.forEach((own, i) => {
      const level = found?.[i].level ?? 0;
      own.style.background = level > 0 ? mixed(SCALE, level) : "";
      own.classList.toggle("ex-strong", level > 0.56);
      own.classList.toggle("ex-chosen", i === look.token && look.mode !== "roles");
      for (const mark of ["ex-alone", "ex-hidden", "ex-patched", "ex-weighted"]) own.classList.toggle(mark, marks.get(i) === mark);
      own.tabIndex = i === reachable ? 0 : -1;
    });
    const picks = state.kinds.some(kind => kind.what === look.kind && kind.needs === "demo");
    text.querySelectorAll(".ex-block").forEach(block => block.classList.toggle("ex-picked", picks && block.dataset.demo === String(look.demo)));
    drawArcs(state, found);
    describe(state, found);
  }

  /** The effect of the changes at the cursor's layer, token by token. */
  function changeMarks(state) {
    const marks = new Map();
    for (const change of state.changes) {
      if (change.heads?.length || look.layer < change.layers[0] || look.layer > change.layers[1]) continue;
      state.tokens.forEach((token, i) => {
        const begins = token.r === "label_word" && state.tokens[i - 1]?.r !== "label_word";
        if (change.token != null) { if (i === change.token) marks.set(i, "ex-alone"); }
        else if (change.demo != null) { if (token.d === change.demo) marks.set(i, "ex-hidden"); }
        else if (change.what === "patch") { if (token.r === "label_word") marks.set(i, "ex-patched"); }
        else if (change.factor != null) { if (token.r === "label_word") marks.set(i, "ex-weighted"); }
        else if (begins) marks.set(i, "ex-alone");
      });
    }
    return marks;
  }

  // Arcs run between the lines and down the margin, each in its own lane, and never cross a word.

  function strongest(found) {
    return found.map(({ weight }, i) => [weight, i]).filter(([weight, i]) => weight > 0 && i !== look.token)
      .sort((a, b) => b[0] - a[0]).slice(0, STRONGEST);
  }

  function drawArcs(state, found) {
    const best = found ? strongest(found) : [];
    if (!best.length) return arcs.replaceChildren();
    const frame = box.getBoundingClientRect(), pad = parseFloat(getComputedStyle(text).getPropertyValue("--lane")) || 3;
    const edge = tokens[0].closest(".ex-block").querySelector(".ex-tokens").getBoundingClientRect().left - frame.left;
    const place = i => {
      const own = tokens[i].getClientRects()[0];
      return { x: own.left - frame.left + Math.min(7, own.width / 2), y: own.bottom - frame.top + box.scrollTop + 1.5 };
    };
    const here = place(look.token), into = look.mode === "into";
    arcs.style.height = `${text.offsetHeight}px`;
    const drawn = best.map(([weight, i], rank) => {
      const there = place(i), width = 1 + 2 * Math.sqrt(weight / best[0][0]);
      const ink = roleColour(state.tokens[into ? i : look.token].r);
      return make("g", { stroke: ink, fill: "none", "stroke-width": width.toFixed(2), class: "ex-arc" },
        make("path", { d: lanePath(there, here, edge - pad * (rank + 1.6)) }),
        into ? make("circle", { cx: there.x, cy: there.y, r: 1.6 + width / 2, fill: ink, stroke: "none" }) : arrow(there, ink));
    }).reverse();
    arcs.replaceChildren(...drawn, into ? arrow(here, colour("ink")) : make("circle", { cx: here.x, cy: here.y, r: 3.2, fill: colour("ink") }));
    return undefined;
  }

  function lanePath(from, to, lane) {
    if (Math.abs(from.y - to.y) < 4) return `M${from.x},${from.y}H${to.x}`;
    const down = to.y > from.y ? 1 : -1, r = Math.min(6, Math.abs(to.y - from.y) / 2);
    return `M${from.x},${from.y}H${lane + r}Q${lane},${from.y} ${lane},${from.y + down * r}V${to.y - down * r}Q${lane},${to.y} ${lane + r},${to.y}H${to.x}`;
  }

  function arrow({ x, y }, ink) {
    return make("path", { d: `M${x - 4.5},${y + 2}L${x},${y - 4.5}L${x + 4.5},${y + 2}Z`, fill: ink, stroke: "none" });
  }

  // The sentence and the bar of roles below

  function describe(state, found) {
    const said = app.says.prompt;
    say.classList.toggle("ex-error", Boolean(said?.wrong));
    legend(state);
    if (said) say.replaceChildren(said.text);
    else if (look.mode === "roles") say.replaceChildren(hint(state));
    if (said || look.mode === "roles") return found ? drawMass(state, found) : undefined;
    if (!found) return say.replaceChildren(app.busy || app.attention ? "Measuring what is read here …" : "Not measured.");
    const total = found.reduce((sum, { weight }) => sum + weight, 0), token = state.tokens[look.token];
    const direction = look.mode === "out" ? "out of" : "into";
    if (app.attention) source.textContent = `Attention of head ${app.attention.layer}.${app.attention.head} ×`;
    const start = [app.attention ? source : `Saliency, layer ${look.layer}`, ` ${direction} `, make("b", {}, quoted(token.t)), ` (${look.token}, ${roleName(token.r, state)})`];
    if (!total) return say.replaceChildren(...start, ": nothing.");
    const named = strongest(found).slice(0, 3).flatMap(([weight, i], rank) =>
      [rank ? ", " : ": ", make("b", {}, quoted(state.tokens[i].t)), ` ${percent(weight / total)}`]);
    say.replaceChildren(...start, ...named, ".");
    return drawMass(state, found);
  }

  /** What the colours mean, in the place of the bar of fractions, so that nothing below moves. */
  function legend(state) {
    const there = Object.keys(ROLES).filter(role => state.tokens.some(token => token.r === role));
    mass.className = "ex-mass ex-legend ex-roles";
    mass.removeAttribute("aria-label");
    mass.replaceChildren(...there.map(role => make("span", { class: `ex-${role}` }, roleName(role, state))));
  }

  function hint(state) {
    if (!state.labels.length) return "Choose a token to see what it reads.";
    return `Choose ${state.open ? "an answer" : "a label word"} to change it; any other token to see what it reads.`;
  }

  function drawMass(state, found) {
    const shares = {}, total = found.reduce((sum, { weight }) => sum + weight, 0) || 1;
    mass.className = "ex-mass";
    found.forEach(({ weight }, i) => { const role = state.tokens[i].r; shares[role] = (shares[role] ?? 0) + weight / total; });
    const parts = Object.keys(ROLES).filter(role => shares[role] > 0.002);
    mass.replaceChildren(...parts.map(role => make("span", {
      style: { width: `${100 * shares[role]}%`, background: roleColour(role) }, title: `${roleName(role, state)} ${percent(shares[role])}`,
    }, shares[role] > 0.28 ? `${roleName(role, state)} ${percent(shares[role])}` : shares[role] > 0.09 ? percent(shares[role]) : "")));
    mass.setAttribute("aria-label", parts.map(role => `${roleName(role, state)} ${percent(shares[role])}`).join(", "));
  }

  // Choosing

  function setMode(mode) {
    look.mode = mode;
    if (mode !== "roles") look.token ??= app.state.tokens.length - 1;
    app.says = {};
    app.draw("prompt", "layers");
  }

  function chooseDemo(demo) {
    look.demo = look.demo === demo ? null : demo;
    app.draw("prompt", "layers");
  }

  function choose(i, looking) {
    const token = app.state.tokens[i];
    look.demo = token.d ?? look.demo;
    app.says = {};
    if (token.r === "label_word" && token.d != null && look.mode === "roles" && !looking) return changeLabel(i, token.d);
    const again = look.token === i && look.mode !== "roles";
    look.token = again ? null : i;
    look.mode = again ? "roles" : look.mode === "roles" ? "into" : look.mode;
    return app.draw("prompt", "layers");
  }

  function changeLabel(i, demo) {
    if (app.state.open || app.state.labels.length >= MENU_FROM) openMenu(i, demo);
    else if (app.state.labels.length) app.act("flip", { demo });
  }

  /** A menu of the classes (or the demonstration's answers and a text field) at a label word; a letter jumps to the next item that starts with it. */
  function openMenu(i, demo) {
    closeMenu();
    const { demos, open } = app.state, anchor = tokens[i], labels = wordsOf(app.state, demos[demo]);
    const close = () => { closeMenu(); anchor.focus({ preventScroll: true }); };
    const items = labels.map((label, to) => make("button", {
      type: "button", role: "menuitemradio", "aria-checked": demos[demo].shown === to, tabindex: -1, title: label,
      onclick: () => { close(); app.act("flip", { demo, to }); },
    }, make("bdi", {}, cut(visible(label), 32)), to === demos[demo].true && make("small", {}, " true")));
    const own = open && make("input", {
      type: "text", maxlength: LONGEST_ANSWER, placeholder: "another answer …", "aria-label": "Your own answer",
      onkeydown: event => {
        if (event.key === "ArrowUp") items.at(-1).focus();
        else if (event.key === "Escape") close();
        else if (event.key === "Enter" && event.target.value.trim()) {
          const answer = event.target.value.trim();
          close();
          app.act("answer", { demo, answer });
        } else if (event.key !== "Enter") return event.stopPropagation();
        event.preventDefault();
        event.stopPropagation();
        return undefined;
      },
    });
    const keydown = event => {
      const at = items.indexOf(app.focused()), step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const letter = event.key.length === 1 && [...items.keys()].map(k => (at + 1 + k) % items.length)
        .find(k => labels[k].trim().toLowerCase().startsWith(event.key.toLowerCase()));
      if (own && step > 0 && at === items.length - 1) own.focus();
      else if (step) items.at((at + step) % items.length).focus();
      else if (event.key === "Escape" || event.key === "Tab") close();
      else if (typeof letter === "number") items[letter].focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    const at = anchor.getBoundingClientRect(), frame = node.getBoundingClientRect();
    menu = make("div", {
      class: "ex-menu", role: "menu", "aria-label": `${open ? "Answer" : "Label"} of demonstration ${demo + 1}`, onkeydown: keydown,
      style: { left: `${at.left - frame.left}px`, top: `${at.bottom - frame.top + 4}px` },
    }, items, own);
    menu.addEventListener("focusout", event => { if (!menu?.contains(event.relatedTarget)) closeMenu(); });
    node.append(menu);
    items[demos[demo].shown].focus();
  }

  function closeMenu() {
    const open = menu;
    menu = null;
    open?.remove();
  }

  // Editing in place

  function editor(block, value, label, done, more = []) {
    const area = make("textarea", { "aria-label": label, rows: clamp(Math.ceil(value.length / 60), 2, 8), maxlength: LONGEST_TEXT });
    area.value = value;
    block.classList.add("ex-editing");
    text.classList.remove("ex-stale");
    arcs.replaceChildren();
    const tokensNode = block.querySelector(".ex-tokens"), first = tokensNode.querySelector(".ex-token");
    const close = () => {
      form.remove();
      block.classList.remove("ex-editing");
      tokensNode.hidden = false;
      editing = false;
      first?.focus({ preventScroll: true });
      app.draw("prompt");
    };
    const finish = () => { const string = area.value.trim(); close(); if (string) done(string); };
    const form = make("div", { class: "ex-editor" }, area,
      make("div", {}, ...more, button("Measure", "Enter", finish), button("Cancel", "Escape", close), make("small", {}, "Enter measures, Shift Enter breaks the line, Escape cancels")));
    form.addEventListener("keydown", event => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && !event.shiftKey && event.target === area) { event.preventDefault(); finish(); }
      event.stopPropagation();
    });
    editing = true;
    tokensNode.hidden = true;
    block.append(form);
    area.focus();
    area.select();
  }

  function editDemo(demo) {
    if (editing) return;
    const own = app.state.demos[demo], block = text.querySelector(`.ex-block[data-demo="${demo}"]`);
    editor(block, own.text, `Text of demonstration ${demo + 1}`, string => {
      const place = app.state.demos[demo]?.text === own.text ? demo : app.state.demos.findIndex(other => other.text === own.text);
      if (string !== own.text && place >= 0) app.act("edit", { demo: place, text: string });
    });
  }

  function editQuery() {
    if (editing) return;
    const { query, labels, open } = app.state, block = text.querySelector('.ex-block[data-kind="query"]');
    const answer = open ? make("input", { type: "text", class: "ex-typed", maxlength: LONGEST_ANSWER, "aria-label": "Right answer", value: query.words[0] })
      : make("select", { "aria-label": "True answer" }, labels.map((label, i) => make("option", { value: i, selected: i === query.answer }, label.trim())));
    const more = labels.length ? [make("label", {}, open ? "right answer " : "true answer ", answer)] : [];
    editor(block, query.text, "Your own query", string => {
      const to = open ? answer.value.trim() : labels.length ? Number(answer.value) : null;
      if (string !== query.text || to !== (open ? query.words[0] : query.answer)) app.act("ask", { text: string, answer: to });
    }, more);
  }

  // Pointer and keys

  const at = target => target.closest?.(".ex-token")?.dataset.i;
  text.addEventListener("click", event => {
    const i = at(event.target);
    if (app.state?.tokens[i]) choose(Number(i), event.altKey);
  });

  function focusedToken() {
    const i = app.focused()?.closest?.(".ex-token")?.dataset.i;
    return i == null || !text.contains(app.focused()) ? null : Number(i);
  }

  function walk(to) {
    const own = tokens[clamp(to, 0, tokens.length - 1)];
    if (look.mode !== "roles") {
      look.token = Number(own.dataset.i);
      look.demo = app.state.tokens[look.token].d ?? look.demo;
      app.draw("prompt", "layers");
    }
    tokens.forEach(other => { other.tabIndex = other === own ? 0 : -1; });
    own.focus({ preventScroll: false });
  }

  /** The first token of the block before or after. */
  function neighbour(i, step) {
    const found = blocks(app.state), at = found.findIndex(block => block.tokens.includes(i));
    return found[clamp(at + step, 0, found.length - 1)].tokens[0];
  }

  text.addEventListener("keydown", event => {
    const i = focusedToken();
    if (!app.state?.tokens[i] || event.ctrlKey || event.metaKey) return;
    const demo = app.state.tokens[i].d, step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], hop = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) walk(i + step);
    else if (hop && event.altKey && demo != null) app.act("move", { demo, by: hop });
    else if (hop) walk(neighbour(i, hop));
    else if (event.key === "Home") walk(0);
    else if (event.key === "End") walk(tokens.length - 1);
    else if (event.key === "Enter" || event.key === " ") choose(i, event.altKey || event.shiftKey);
    else if (event.key === "Escape" && look.mode !== "roles") setMode("roles");
    else if (event.key === "e") demo == null ? editQuery() : editDemo(demo);
    else if (event.key === "Delete" && demo != null) app.act("drop", { demo });
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  return { node, draw };
}

// -- Answer: each class before and after, and the kept states as rows --

function answerView(app) {
  const { look } = app;
  const scale = segmented("Probabilities", [
    [false, "raw", "Probabilities among the label words"],
    [true, "calibrated", "Divided by the probabilities for a content-free query after the same demonstrations"],
  ], value => { look.calibrated = value; app.draw("answer"); });
  const number = make("span", { class: "ex-count" });
  const query = make("span", { class: "ex-segmented ex-query", role: "group", "aria-label": "Query" },
    make("button", { type: "button", title: "Previous query ([)", "aria-label": "Previous query", onclick: () => otherQuery(app, -1) }, "‹"),
    number,
    make("button", { type: "button", title: "Next query (])", "aria-label": "Next query", onclick: () => otherQuery(app, 1) }, "›"));
  const table = make("table", { class: "ex-answers", "aria-label": "Probability of each class, by state" });
  const next = make("p", { class: "ex-next" });
  const say = make("p", { class: "ex-say", role: "status" });
  const heard = make("p", { class: "ex-unseen", "aria-live": "polite" });
  const node = make("section", { class: "ex-answer-view", "aria-label": "Answer" },
    make("div", { class: "ex-bar" }, make("h2", {}, "Answer"), scale.node, make("span", { class: "ex-space" }), query), make("div", { class: "ex-rows" }, table), next, say, heard);

  /** Probabilities of a row: raw, or calibrated if that was measured. */
  function probabilities(part) {
    if (!look.calibrated) return app.parts[part]?.probs;
    return app.parts[{ now: "cal", ref: "refcal" }[part]]?.probs;
  }

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
    if (c === state.query.answer) return make("b", { title: "the true answer of this query" }, "✓ ", words);
    return c === taught(state) ? make("span", { class: "ex-taught", title: "the answer that false demonstrations demonstrate for this query" }, "✗ ", words) : words;
  }

  function draw() {
    const state = app.state, listed = rows(state);
    scale.choose(look.calibrated);
    number.textContent = state.query.number == null ? "own query" : `query ${state.query.number + 1} of ${state.query.of}`;
    table.hidden = !state.labels.length;
    scale.node.hidden = table.hidden || state.open;  // a free-form answer has no content-free probability to divide by
    look.calibrated &&= !state.open;
    table.setAttribute("aria-label", `Probability of each ${state.open ? "choice" : "class"}, by state`);
    const every = listed.map(row => probabilities(row.part)), { shown, rest } = columns(state, every);
    const before = listed[0].kind === "ref" ? every[0] : null;
    table.replaceChildren(
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, make("span", { class: "ex-unseen" }, "state")),
        shown.map(c => make("th", { scope: "col", title: state.labels[c].trim() }, heading(state, c))),
        rest > 0 && make("th", { scope: "col" }, `${rest} ${state.open ? "more" : "others"}`))),
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
    const part = look.calibrated ? { now: "cal", ref: "refcal" }[row.part] ?? row.part : row.part;
    const cells = shown.map(c => make("td", {
      class: c === state.query.answer ? "ex-right" : c === taught(state) ? "ex-taught" : "", title: logits ? `${state.labels[c].trim()}: logit ${logits[c].toFixed(2)}` : null,
    }, values ? bar(values[c], row.kind === "now" ? before?.[c] : null, c === best) : "–"));
    if (rest > 0) cells.push(make("td", {}, values ? bar(1 - shown.reduce((sum, c) => sum + values[c], 0), null, false) : "–"));
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
        make("button", { type: "button", class: "ex-rowtool", "data-key": `forget ${index}`, title: "Forget this state", "aria-label": `Forget ${row.name}`, onclick: () => app.act("forget", { index }, "answer") }, "×"))), words];
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
      const label = state.labels.findIndex(own => own.trim() === word.trim());
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
    const best = probs.indexOf(Math.max(...probs)), was = app.parts.ref && isCompared(state) ? `, before ${two(app.parts.ref.probs[state.query.answer])}` : "";
    const words = `Answer ${state.labels[best].trim()} ${two(probs[best])}; true answer ${state.labels[state.query.answer]?.trim()} ${two(probs[state.query.answer])}${was}.`;
    if (heard.textContent !== words) heard.textContent = words;
  }
  return { node, draw };
}

function otherQuery(app, step) {
  const { number, of } = app.state.query;
  app.act("query", { number: ((number ?? (step > 0 ? -1 : 0)) + step + of) % of });
}

// -- Over all prompts: the same change as a measurement --

function setView(app) {
  const ask = button("", "", () => app.progress ? app.act("stop", {}, "set") : app.act("over_all", {}, "set"), { class: "ex-button ex-main-button" });
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

// -- Layers: tracks over one axis; dragging on any of them chooses a range of layers --

const FLOWS = [
  ["text", "texts → label words", "", "circle", "texts → labels"],
  ["label", "label words → target", "6 3", "square", "labels → target"],
  ["template", "everything else", "1.5 3", "diamond", "else"],
];
const RANDOM = ["ref", "random", "4 4", "", "random"];
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
  return make("span", { class: "ex-key", title: words === "random" ? "label words → target, with random tokens in place of the label words" : null, style: { color: colour(ink === "ref" ? "muted" : ink) } },
    make("svg", { width: 26, height: 10, "aria-hidden": "true" }, curve([5], () => 13, () => 5, [ink, "", "", marker]),
      make("path", { d: "M0,5H26", stroke: colour(ink), "stroke-width": width, "stroke-dasharray": dash || null })), words);
}

function layersView(app) {
  const { look } = app;
  const kinds = make("span", { class: "ex-kinds" });
  const scope = segmented("What the tracks show", [[true, "all prompts", "Means over the set with 95 % intervals"], [false, "this prompt", "Only the prompt on the left"]],
    all => { look.all = all; app.draw("layers", "header"); });
  const svg = make("svg", { class: "ex-svg", "aria-hidden": "true" });
  const groups = Object.fromEntries(["cursor", "grid", "refflow", "flow", "changes", "pair", "ref", "now", "all", "words", "heads", "marks", "brush", "label"]
    .map(name => [name, make("g", { class: `ex-g-${name}` })]));
  svg.append(...Object.values(groups));
  const over = make("div", { class: "ex-over" }), changesOver = make("div", { class: "ex-over" });
  const tracks = make("div", {
    class: "ex-tracks", tabindex: 0, role: "application", "aria-roledescription": "layers",
    "aria-label": "Layers. Left and right move the cursor, with Shift they choose a range, Enter applies the change to it, up and down choose a change or a head.",
  }, svg, over, changesOver);
  const say = make("p", { class: "ex-say ex-reading", role: "status" });
  const node = make("section", { class: "ex-layers-view", "aria-label": "Layers" },
    make("div", { class: "ex-bar" }, make("h2", {}, "Layers"), kinds, make("span", { class: "ex-space" }), scope.node), tracks, say);

  let g = null, drag = null, kindsBuilt = "", wordsBuilt = "";

  // The kind of change that a dragged range applies

  function drawKinds(state) {
    const others = app.set ? 390 : 185, compact = node.clientWidth < others + state.kinds.reduce((sum, kind) => sum + 19 + 6.4 * kind.words.length, 0);
    const signature = JSON.stringify([state.kinds, compact]);
    if (signature !== kindsBuilt) {
      kindsBuilt = signature;
      const act = what => { look.kind = what; app.says = {}; app.draw("layers"); };
      const chosen = compact
        ? make("select", { "aria-label": "What a dragged range does", onchange: event => act(event.target.value) }, state.kinds.map(kind => make("option", { value: kind.what }, kind.words)))
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
    if (needs === "demo") return look.demo == null ? "choose a demonstration by its number, then drag" : `drag: ${kindNow().words}, number ${look.demo + 1}`;
    return state.changes.length ? "" : "none – drag across layers on any track, or choose heads below";
  }

  function apply(from, to) {
    const kind = kindNow(), [a, b] = [Math.min(from, to), Math.max(from, to)];
    if (!kind) return undefined;
    if (kind.needs === "token" && look.token == null) return app.tell("layers", "Choose a token in the prompt first: this change is about one token.", true);
    if (kind.needs === "demo" && look.demo == null) return app.tell("layers", "Choose a demonstration in the prompt first: its number, or one of its tokens.", true);
    const fields = { what: kind.what, from: a, to: b };
    if (kind.needs === "token") fields.token = look.token;
    if (kind.needs === "demo") fields.demo = look.demo;
    return app.act("range", fields, "layers");
  }

  // Geometry: the place of each track, from the width of the cell and the height of the window

  function geometry(state) {
    const width = tracks.clientWidth || 820, narrow = width < 620, left = narrow ? 34 : 44, right = 8;
    const column = (width - left - right) / (state.layers + 1), head = narrow ? 37 : 19;
    const cell = clamp(Math.min(270 / state.heads, column * 0.8), 5, 15.5), rows = changeRows(state, width, left, column);
    const roomy = app.root.clientWidth > 1080;
    // The flow keeps its height whatever the number of changes, so that bars stay under the pointer; the lens shrinks instead.
    const fixed = 148 + 3 * head + 78 + state.heads * cell + 76, allowed = 25;
    const rest = roomy ? clamp(window.innerHeight - fixed - allowed, 230, 440) : 250;
    const flowHeight = Math.round(rest * 0.52), lensHeight = roomy ? Math.max(104, rest - flowHeight - Math.max(0, rows.height - allowed)) : rest - flowHeight;
    let y = 0;
    const found = { width, narrow, left, right, column, cell, rows: rows.placed };
    const place = (name, height, title) => {
      found[name] = { head: y, top: y + title, height };
      y += title + height;
    };
    place("flow", flowHeight, head + 5);
    y += 9;
    place("changes", rows.height, 19);
    y += 5;
    place("lens", lensHeight, head + 5);
    y += 9;
    place("words", 66, 0);
    y += 8;
    place("heads", state.heads * cell, head + 2);
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
    g = geometry(state);
    // Positions of layers and heads, for tests that drive the page.
    svg.dataset.places = JSON.stringify({ first: g.x(0), column: g.column, flow: g.flow.top + g.flow.height / 2, heads: g.heads.top, cell: g.cell });
    svg.setAttribute("viewBox", `0 0 ${g.width} ${g.height}`);
    svg.style.height = over.style.height = `${g.height}px`;
    over.replaceChildren();
    drawGrid(state);
    drawFlow(state);
    drawChanges(state);
    drawLens(state);
    drawWords(state);
    drawHeads(state);
    drawCursor();
  }

  /** Old drawings stay, pale, until new ones arrive. */
  function fill(name, parts, ...children) {
    groups[name].replaceChildren(...children.flat(Infinity).filter(Boolean));
    groups[name].classList.toggle("ex-stale", parts.some(part => app.parts[part] && !app.fresh.has(part)));
  }

  function title(track, words, more, keys = []) {
    over.append(make("div", { class: "ex-track-head", style: { top: `${track.head}px`, left: `${g.left}px`, right: `${g.right}px` } },
      make("h3", {}, words, make("span", {}, more)), make("span", { class: "ex-keys" }, keys)));
  }

  function drawGrid(state) {
    const parts = [], chance = 1 / state.labels.length;
    const text = (x, y, words, more = {}) => parts.push(make("text", { x, y, "font-size": 11.5, "text-anchor": "end", fill: colour("muted"), ...more }, words));
    for (const track of [g.flow, g.lens]) {
      for (const [value, words] of [[0, "0"], [0.5, ".5"], [1, "1"]]) {
        const y = rise(track, value);
        parts.push(make("line", { x1: g.left, x2: g.width - g.right, y1: y, y2: y, stroke: colour("grid") }));
        if (Math.abs(value - chance) > 0.12 || track === g.flow) text(g.left - 6, y + 4, words);
      }
    }
    if (state.labels.length > 1) {
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

  function drawFlow(state) {
    const flow = app.parts.flow, before = app.parts.refflow, y = value => rise(g.flow, value), { x } = g;
    const compared = before && (isCompared(state));
    const words = !flow ? (app.busy ? "measuring …" : "") : showsAll() ? "n = 1" : compared ? `pale: ${referenceName(state)}` : "per edge";
    const named = ([ink, long, dash, marker, short]) => [ink, spoken(g.narrow ? short : long, state), dash, marker];
    title(g.flow, "Information flow", words, flow ? [...FLOWS.map(style => key(named(style))), flow.random && key(RANDOM, 1.4)].filter(Boolean) : []);
    fill("refflow", ["refflow"], compared ? before.values.map((values, k) =>
      make("path", { d: values.map((value, l) => `${l ? "L" : "M"}${x(l)},${y(value ?? 0)}`).join(""), fill: "none", stroke: colour(FLOWS[k][0]), "stroke-width": 5, opacity: 0.22, "stroke-linejoin": "round" })) : []);
    fill("flow", ["flow"], flow ? [flow.random && curve(flow.random, x, y, RANDOM, 1.4), flow.values.map((values, k) => curve(values, x, y, FLOWS[k]))] : []);
  }

  const showsAll = () => Boolean(app.set && look.all);

  function drawLens(state) {
    const A = state.query.answer, { pair, now, ref } = app.parts, y = value => rise(g.lens, value), x = i => g.x(i - 1);
    const keys = [], compared = isCompared(state), one = !showsAll();
    const line = (name, parts, values, style, width) => {
      fill(name, parts, ...values.map((own, k) => curve(own, x, y, style[k], width)));
      if (values.length) keys.push(...style.map(own => key(own, width)));
    };
    const of = rows => rows.map(row => row[A]);
    line("pair", ["pair"], one && pair ? [of(pair.true), of(pair.false)] : [], [["true", spoken("true labels", state), "", "circle"], ["false", spoken("false labels", state), "6 3", "square"]], 1.6);
    line("ref", ["ref"], one && compared && ref && differs(ref, pair, A) ? [of(ref.lens)] : [], [["ref", referenceName(state), "4 3", ""]], 1.9);
    line("now", ["now"], one && now && (compared || !pair) ? [of(now.lens)] : [], [["ink", "now", "", ""]], 2.6);
    const all = [];
    if (!one) {
      const { before, now: after } = app.set;
      if (compared) {
        all.push(band(before.low, before.high, x, y, "ref"), curve(before.lens, x, y, ["ref", "", "4 3", ""], 1.8));
        keys.push(key(["ref", referenceName(state), "4 3", ""], 1.8));
      }
      all.push(band(after.low, after.high, x, y, "ink"), curve(after.lens, x, y, ["ink", "", "", "circle"], 2.4));
      keys.push(key(["ink", "now", "", "circle"], 2.4));
    }
    fill("all", [], all);
    title(g.lens, "If the answer were read here", one ? "probability of the true answer" : `mean of ${app.set.n} prompts, 95 % intervals`, keys);
  }

  /** The reference has its own curve only if it differs from the curve with all true labels. */
  function differs(ref, pair, A) {
    return !pair || ref.lens.some((row, l) => Math.abs(row[A] - pair.true[l][A]) > 0.005);
  }

  function drawWords(state) {
    const top = app.parts.now?.top ?? [], { column } = g;
    fill("words", ["now"], top.map(([best], place) => {
      if (!best) return [];
      const [word, share] = best, x = g.x(place - 1), label = state.labels.findIndex(own => own.trim() === word.trim()), shown = cut(visible(word), 11);
      const ink = label < 0 ? "ink" : label === state.query.answer ? "true" : "false", upright = [...shown].length < 3;
      return [
        make("rect", { x: x - column / 2 + 0.5, y: g.words.top, width: Math.max(1, column - 1), height: g.words.height, rx: 2, fill: `color-mix(in oklab, ${colour("s0")} ${100 - Math.round(70 * Math.sqrt(share))}%, ${colour("s2")})` }),
        column > (upright ? 14 : 9) && make("text", upright
          ? { x, y: g.words.top + g.words.height - 8, "text-anchor": "middle", "font-size": 12, fill: colour(label < 0 ? "muted" : ink), "font-weight": label < 0 ? 400 : 700 }
          : { transform: `translate(${x + 4},${g.words.top + g.words.height - 5}) rotate(-90)`, "font-size": Math.min(12, 98 / [...shown].length, column), fill: colour(ink), "font-weight": label < 0 ? 400 : 700, "text-decoration": label >= 0 && label === state.query.answer ? "underline" : null }, shown),
      ];
    }));
  }

  /** Cells of one colour form one path, so a map of a thousand heads has some twenty elements. */
  function drawHeads(state) {
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
      type: "number", "data-key": `factor ${k}`, step: 0.1, value: change.factor, "aria-label": `Factor of: ${change.words}`,
      onchange: event => { if (Number.isFinite(event.target.valueAsNumber)) app.act("scale", { change: k, factor: event.target.valueAsNumber }, "layers"); },
    });
    return make("div", { class: "ex-change-words", style: { top: `${top}px`, "max-width": row.side === "below" ? `${g.width - row.left}px` : "380px", ...place } },
      make("span", { title: change.words }, change.words), factor,
      make("button", { type: "button", "data-key": `remove ${k}`, title: "Remove this change", "aria-label": `Remove: ${change.words}`, onclick: () => app.act("remove", { change: k }, "layers") }, "×"));
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
      ...(look.row?.head != null ? [make("rect", { x: x - g.column / 2 - 1, y: g.heads.top + look.row.head * g.cell - 1, width: g.column + 2, height: g.cell + 2, rx: 2, fill: "none", stroke: colour("link"), "stroke-width": 2.5 })] : []));
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
    if (row?.head != null) return `Head ${l}.${row.head}: ${now?.heads.length ? `${signed(now.heads[l][row.head])} logit` : ""} – x sets it to zero, i shows its attention`;
    if (flow) parts.push(spoken(`texts → label words ${two(flow.values[0][l])}, label words → target ${two(flow.values[1][l])}, else ${two(flow.values[2][l])}${flow.random ? `, random ${two(flow.random[l])}` : ""}`, state));
    if (now && state.labels.length) parts.push(`P(true answer) ${two(now.lens[l + 1][A])}${ref && isCompared(state) ? `, ${referenceName(state)} ${two(ref.lens[l + 1][A])}` : ""}`);
    if (now?.top[l + 1]?.[0]) parts.push(`next ${quoted(now.top[l + 1][0][0])} ${two(now.top[l + 1][0][1])}`);
    return parts.join(" · ");
  }

  // Pointer

  const place = event => {
    const frame = tracks.getBoundingClientRect();
    return { x: event.clientX - frame.left, y: event.clientY - frame.top };
  };
  const layerAt = ({ x }) => clamp(Math.floor((x - g.x(0)) / g.column + 0.5), 0, app.state.layers - 1);
  const inside = (track, y) => y >= track.top && y < track.top + track.height;
  const headAt = point => inside(g.heads, point.y) && point.x >= g.x(0) - g.column / 2
    ? { layer: layerAt(point), head: Math.floor((point.y - g.heads.top) / g.cell) } : null;

  svg.addEventListener("pointerdown", event => {
    if (!app.state || event.button) return;
    const at = place(event), { change, end } = event.target.dataset;
    tracks.classList.remove("ex-by-keys");
    look.row = null;
    drag = change == null ? { kind: "brush", from: layerAt(at), to: null } : { kind: end, change: Number(change), from: layerAt(at) };
    Object.assign(drag, { x: event.clientX, shift: event.shiftKey, at });
    svg.setPointerCapture(event.pointerId);
  });

  svg.addEventListener("pointermove", event => {
    if (!g) return;
    const at = place(event);
    if (!drag) return hover(at, event);
    app.tip.hide();
    if (!drag.moved && Math.abs(event.clientX - drag.x) < CLICK) return;
    drag.moved = true;
    if (drag.kind === "brush") {
      drag.to = layerAt(at);
      look.layer = drag.to;
      drawCursor();
      app.draw("prompt");
    } else {
      drag.span = stretched(drag, layerAt(at));
      fill("changes", [], app.state.changes.map((change, k) => changeBar(change, k)));
    }
  });

  /** The layers of a change while one of its ends, or the whole bar, is dragged. */
  function stretched({ kind, change, from }, layer) {
    const [a, b] = changeLayers(app.state.changes[change]), last = app.state.layers - 1;
    if (kind === "start") return [Math.min(layer, b), b];
    if (kind === "end") return [a, Math.max(layer, a)];
    const by = clamp(layer - from, -a, last - b);
    return [a + by, b + by];
  }

  svg.addEventListener("pointerup", event => {
    if (!drag) return;
    const done = drag;
    drag = null;
    if (done.kind !== "brush") return done.span ? stretch(done.change, done.span) : select(done.change);
    if (done.moved) {
      apply(done.from, done.to);
      return drawCursor();
    }
    const head = headAt(done.at);
    if (head && (event.shiftKey || done.shift)) return attend(head);
    if (head) return app.act("head", head, "layers");
    return moveCursor(done.from);
  });
  svg.addEventListener("pointercancel", () => { drag = null; draw(); });
  svg.addEventListener("pointerleave", () => app.tip.hide());

  function stretch(change, [from, to]) {
    app.act("stretch", { change, from, to }, "layers");
    draw();
  }

  function select(change) {
    look.row = { change };
    draw();
  }

  function attend({ layer, head }) {
    const shown = app.attention;
    if (shown?.layer === layer && shown.head === head) app.attention = null;
    else app.act("attend", { layer, head }, "layers");
    app.draw("prompt", "layers");
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
    svg.classList.toggle("ex-on-head", Boolean(headAt(at)));
    if (words) app.tip.show(event, words);
    else app.tip.hide();
  }

  function hoverWords(at) {
    const state = app.state, { flow, now, ref, pair } = app.parts, l = layerAt(at), A = state.query.answer;
    const after = at.x < g.x(0) - g.column / 2 ? 0 : l + 1, where = after ? `layer ${l}` : "embedding", head = headAt(at);
    if (head && now?.heads.length) {
      const off = state.changes.some(change => change.heads?.some(([a, b]) => a === head.layer && b === head.head));
      return `head ${head.layer}.${head.head}\n${off ? "set to zero at the target" : `${signed(now.heads[head.layer][head.head])} logit${now.contrast ? `: ${now.contrast}` : ""}`}`;
    }
    if (inside(g.words, at.y) && now) return `after ${where}\n${now.top[after].map(([word, share]) => `${quoted(word)} ${two(share)}`).join("\n")}`;
    if (inside(g.lens, at.y) && showsAll()) {
      const { before, now: own } = app.set, one = kind => `${two(kind.lens[after])} [${two(kind.low[after])}, ${two(kind.high[after])}]`;
      return `after ${where}, n = ${app.set.n}\nnow ${one(own)}${!isCompared(state) ? "" : `\n${referenceName(state)} ${one(before)}`}`;
    }
    if (inside(g.lens, at.y) && now) {
      return [`after ${where}`, pair && `${spoken("true labels", state)} ${two(pair.true[after][A])}`, pair && `${spoken("false labels", state)} ${two(pair.false[after][A])}`, ref && isCompared(state) && `${referenceName(state)} ${two(ref.lens[after][A])}`, `now ${two(now.lens[after][A])}`].filter(Boolean).join("\n");
    }
    if (inside(g.flow, at.y) && flow) {
      return [`layer ${l}`, ...FLOWS.map(([, words], k) => `${spoken(words, state)} ${two(flow.values[k][l])}`), flow.random && `${RANDOM[1]} ${two(flow.random[l])}`].filter(Boolean).join("\n");
    }
    return "";
  }

  // Keys

  tracks.addEventListener("keydown", event => {
    if (!app.state || !g || event.ctrlKey || event.metaKey || event.target !== tracks) return;
    const done = keyDone(event);
    if (!done) return;
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
      drag = look.row = null;
      draw();
    } else if (row?.head != null && (name === "x" || name === "Enter" || name === " ")) app.act("head", { layer: look.layer, head: row.head }, "layers");
    else if (row?.head != null && name === "i") attend({ layer: look.layer, head: row.head });
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

// -- Keys of the whole page, only while the focus is inside --

const KEYS = [
  ["Everywhere", [["u, r", "undo, redo"], ["0", "back to the start"], ["k", "keep this state as a row"], ["f", "flip all labels or answers"], ["a", "add a demonstration"], ["[ ]", "previous, next query"], ["o", "over all prompts; stop"], ["c", "copy as code"], ["?", "show these shortcuts"]]],
  ["In the prompt", [["← →", "move between tokens"], ["↑ ↓", "move between demonstrations"], ["Enter", "change a label word or answer; inspect any other token"], ["Alt Enter", "inspect it instead"], ["e", "edit the text"], ["Alt ↑ ↓", "move the demonstration"], ["Delete", "remove the demonstration"], ["Esc", "back to the roles"]]],
  ["In the layers", [["← →", "move the cursor"], ["Shift ← →, Enter", "choose a range, apply the change"], ["↑ ↓", "choose a change or a head"], ["x, i", "zero the head, see its attention"], ["s, e", "set the change’s start, end to the cursor"], ["Alt ← →", "move the change"], ["+ −", "its factor"], ["Delete", "remove the change"], ["Esc", "cancel"]]],
];

function keyboard(app) {
  // Keys may come faster than answers: an action the last state forbids may be possible in the next.
  const unanswered = () => app.pending != null, may = what => unanswered() || app.state[what];
  const acts = {
    u: () => may("undo") && app.act("undo"), r: () => may("redo") && app.act("redo"), 0: () => (unanswered() || !app.state.started) && app.act("reset"),
    k: () => app.act("keep", {}, "answer"), f: () => app.state.labels.length && app.act("flip_all"), a: () => app.act("add"),
    "[": () => otherQuery(app, -1), "]": () => otherQuery(app, 1), o: () => app.act(app.progress ? "stop" : "over_all", {}, "set"),
    c: () => askCode(app), "?": () => app.dialogs.showHelp(),
  };
  app.root.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey) return;
    event.stopPropagation();
    if (!app.state || event.altKey || event.target.closest?.("textarea, input, select, dialog")) return;
    if (!acts[event.key]) return;
    acts[event.key]();
    event.preventDefault();
  });
  for (const name of ["keyup", "keypress"]) app.root.addEventListener(name, event => event.stopPropagation());

  // JupyterLab listens before the page does (capture at the document); its own attribute tells it to ignore plain keys.
  const before = event => {
    const own = event.composedPath().includes(app.root) && !event.ctrlKey && !event.metaKey;
    app.root.toggleAttribute("data-lm-suppress-shortcuts", own);
  };
  window.addEventListener("keydown", before, true);
  return () => window.removeEventListener("keydown", before, true);
}

// -- Light and dark: as the button says, else as the notebook does, else as the system does --

function theme(app) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const surroundings = () => {
    const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
    if (jpThemeLight) return jpThemeLight === "false";
    if (document.documentElement.hasAttribute("theme")) return document.documentElement.getAttribute("theme") === "dark";  // Colab
    if (vscodeThemeKind) return /dark|high-contrast$/.test(vscodeThemeKind);
    return system.matches;
  };
  const set = () => app.root.classList.toggle("dark", chosen ?? surroundings());
  app.toggleTheme = () => { chosen = !app.root.classList.contains("dark"); set(); };
  const watched = new MutationObserver(set);
  watched.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  system.addEventListener("change", set);
  set();
  return () => {
    watched.disconnect();
    system.removeEventListener("change", set);
  };
}

// -- Dialogs and the tooltip --

function dialogs(app) {
  const lines = make("pre", { tabindex: 0 }), copied = make("span", { class: "ex-quiet", role: "status" });
  const copy = button("Copy", "", async () => {
    try {
      await navigator.clipboard.writeText(lines.textContent);
      copied.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(lines);
      copied.textContent = "selected: press Ctrl C";
    }
  }, { class: "ex-button ex-main-button" });
  const code = dialog("The same in Python", lines, make("div", { class: "ex-bar" }, copy, button("Close", "", () => code.close()), copied));
  const help = dialog("Keyboard shortcuts",
    make("div", { class: "ex-help" }, KEYS.map(([where, rows]) => make("section", {}, make("h3", {}, where),
      make("dl", {}, rows.map(([keys, words]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, words)]))))),
    button("Close", "", () => help.close()));

  function dialog(title, ...content) {
    const heading = `ex-${title.replace(/\W/g, "")}-${Math.round(1e9 * Math.random())}`;
    return make("dialog", { "aria-labelledby": heading, onclick: event => { if (event.target === event.currentTarget) event.currentTarget.close(); } },
      make("div", { class: "ex-dialog" }, make("h2", { id: heading }, title), ...content));
  }
  return {
    node: make("div", {}, code, help),
    showHelp: () => help.open || help.showModal(),
    showCode: text => {
      lines.textContent = text;
      copied.textContent = "";
      if (!code.open) code.showModal();
    },
  };
}

function tooltip(root) {
  const node = make("div", { class: "ex-tip", "aria-hidden": "true", hidden: true });
  return {
    node,
    hide: () => { node.hidden = true; },
    show: (event, words) => {
      const frame = root.getBoundingClientRect();
      node.textContent = words;
      node.hidden = false;
      node.style.left = `${clamp(event.clientX - frame.left + 14, 4, Math.max(4, frame.width - node.offsetWidth - 4))}px`;
      node.style.top = `${Math.max(4, event.clientY - frame.top - node.offsetHeight - 12)}px`;
    },
  };
}
