// -- Words and numbers --

const two = value => value == null ? "–" : value.toFixed(2).replace("-", "−");
const signed = value => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
const percent = share => `${Math.round(100 * share)} %`;
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const span = (a, b) => a === b ? `${a}` : `${a}–${b}`;
const cut = (text, most) => [...text].length > most ? [...text].slice(0, most - 1).join("") + "…" : text;
/** True if there is something to compare with: the state is not the reference itself. */
const isCompared = state => state.compared ?? !state.started;
const referenceName = state => state.reference.name || "start";
/** A text about label words, adapted to free-form answers. */
const spoken = (words, state) => state?.open ? words.replace(/\blabel( word)?/g, "answer") : words;
/** What the numbers are probabilities of; a text is read towards its next token, in the whole vocabulary. */
const truthName = state => state.texts ? `P(${quoted(state.labels[0])})` : "P(true answer)";
/** Number of the label word that a token is; of a text's two tokens, exactly. */
const labelOf = (state, word) => state.labels.findIndex(own => state.texts ? own === word : own.trim() === word.trim());
/** One of the set: a query, or a text. */
const itemName = state => state.texts ? "text" : "query";
/** What a demonstration can display: the classes, or its own free-form answers. */
const wordsOf = (state, demo) => demo.words?.length ? demo.words : state.labels.map(own => own.trim());
const ordinal = n => n + ["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : Math.min(n % 10, 4) % 4];
/** A token's text shown on its own: spaces and line breaks become visible. */
const visible = text => text.replace(/\n/g, "↵").trim() || "␣";
const quoted = text => `“${cut(visible(text), 24)}”`;

const ROLES = {
  demo_text: ["demonstration text", "text"],
  rationale: ["rationale", "text"],
  label_word: ["label words", "label"],
  format: ["template", "template"],
  narrative: ["narrative", "template"],
  query_text: ["query", "query"],
  span: ["text", "query"],
  unknown: ["outside the spans", "template"],
  target: ["target", "target"],
  bos: ["start of text", "ref"],
};
const roleName = (role, state) => spoken((ROLES[role] ?? ROLES.format)[0], state);
const roleColour = role => colour((ROLES[role] ?? ROLES.format)[1]);

const PARTS = {
  now: "answer and lens", ref: "the reference", cal: "calibration", refcal: "calibration",
  pair: "true and false labels", flow: "information flow", refflow: "flow of the reference", attention: "attention",
  heads: "heads", null: "random heads", rows: "attention of all heads", board: "all queries", prior: "baselines of the lens", page: "what the page shows",
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
  if (text instanceof Uint8Array) return text;  // of a saved page
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
