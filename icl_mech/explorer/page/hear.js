// -- Messages from Python --

function hear(app, message) {
  const { kind, part, seq } = message;
  const unasked = kind === "busy" || kind === "board" || (kind === "part" && part !== "attention") || (kind === "state" && seq < app.pending);
  if (!unasked) {
    app.pending = null;
    app.slow = false;
    app.draw("header");
  }
  const known = {
    state: hearState, part: hearPart, busy: hearBusy, progress: hearProgress, board: hearBoard, set: hearSet, code: hearCode,
    look: hearLook, shared: app.share.hear, file: app.share.save, error: hearError,
  };
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
    app.progress = app.tried = null;
    for (const row of app.board.values()) row.fresh = false;
    if (old && old.n !== state.n) app.board.clear();
    for (const name of Object.keys(app.parts)) if (name.startsWith("rows ")) delete app.parts[name];
  }
  if (old) app.parts = keptParts(app.parts, old.named, state.named);
  if (old && experiment(old) !== experiment(state)) app.set = null;
  if (old && texts(old) !== texts(state)) {
    if (old.tokens.length !== state.tokens.length) look.token = followed(old, state, look.token);
    if (look.token == null) look.mode = "roles";
  }
  if (look.demo != null && !(state.texts ? state.tokens.some(token => token.d === look.demo) : look.demo < state.demos.length)) look.demo = null;
  look.layer = clamp(look.layer ?? Math.round(state.layers / 4), 0, state.layers - 1);
  if (!state.kinds.some(kind => kind.what === look.kind)) look.kind = state.kinds[0]?.what ?? null;
  if (look.row?.change >= state.changes.length) look.row = null;
  if (state.note) app.says.prompt = { text: state.note, wrong: false };
  if (app.attention && old?.gen !== state.gen) app.attention.fresh = false;  // it is measured again with every state
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
    for (const what of ["", "cal"]) if (was >= 0 && parts[`kept${was}${what}`]) rest[`kept${i}${what}`] = parts[`kept${was}${what}`];
  });
  return rest;
}

function hearPart(app, { gen, part, data }) {
  if (!app.state || gen !== app.state.gen) return;
  if (part === "attention") {
    hearAttention(app, { ...data, codes: bytes(data.maps), fresh: true });
    return;
  }
  const name = { heads: `heads ${data.mode}`, rows: `rows ${data.token}` }[part] ?? part;
  if (part === "now") app.draw("tour");
  app.parts[name] = data.maps ? { ...data, codes: bytes(data.maps) } : data;
  app.fresh.add(name);
  if (part === "flow") app.draw("prompt", "layers");
  else if (["pair", "prior", "refflow", "heads", "null", "rows"].includes(part)) app.draw("layers");
  else app.draw("answer", "layers", "set");
}

/** A head's attention is shown to the page that asked for it, and keeps the colours chosen since. */
function hearAttention(app, data) {
  const { look } = app;
  if (same(data, app.attending)) {
    app.attending = null;
    look.mode = look.mode === "out" ? "out" : "into";
    look.token ??= app.state.tokens.length - 1;
  } else if (!same(data, app.attention)) return;
  app.attention = data;
  app.draw("prompt", "layers");
}

function hearBusy(app, { part }) {
  app.busy = part;
  app.draw("header");
}

/** Queries of the board as they are measured; those of the state before stay, pale, until then. */
function hearBoard(app, { gen, rows, tried }) {
  if (gen !== app.state?.gen) return;
  for (const row of rows) app.board.set(row.q, { ...row, fresh: true });
  if (tried) app.tried = tried;
  app.draw("set");
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

function hearCode(app, { code, title }) {
  app.dialogs.showCode(code, title);
}

/** What was on show in a state that was opened. */
function hearLook(app, { look }) {
  const { attend, ...rest } = look;
  Object.assign(app.look, rest);
  if (!(app.look.token < app.state.tokens.length)) app.look.token = null;
  if (app.look.token == null) app.look.mode = "roles";
  app.attention = null;
  app.attending = attend ? { layer: attend[0], head: attend[1] } : null;
  app.share.close();
  app.looked();
  app.drawAll();
}

function hearError(app, { text }) {
  app.busy = null;
  app.progress = null;
  app.tell(app.lastPlace, text, true);
  app.draw("header", "set");
}
