// -- The lens: a line per class, pale where the label words hold little of the next word's probability --

const LENSES = [
  ["classes", "each class", "One line per class, with the zero-shot lens and the mean over prompts as baselines"],
  ["calibrated", "calibrated", "Divided by the lens of content-free queries after the same demonstrations"],
  ["pair", "true | false", "The true answer after all true and after all false labels"],
];
const LINES = 5;  // classes that get a line
const FADES = [[0.1, 1], [0.02, 0.5], [0, 0.22]];  // opacity from this probability of all label words on
const WEAK = 0.1;
const OTHERS = ["1.5 3", "8 3 2 3", "4 4", "11 4"];

/** A line in pieces of one opacity each. */
function fading(values, mass, x, y, [ink, , dash], width) {
  const level = i => FADES.findIndex(([from]) => Math.min(mass?.[i] ?? 1, mass?.[i - 1] ?? 1) >= from), pieces = [];
  values.forEach((value, i) => {
    if (!i || value == null || values[i - 1] == null) return;
    const fade = level(i), to = `L${x(i).toFixed(1)},${y(value).toFixed(1)}`;
    if (pieces.at(-1)?.level !== fade || pieces.at(-1).end !== i - 1) pieces.push({ level: fade, d: `M${x(i - 1).toFixed(1)},${y(values[i - 1]).toFixed(1)}` });
    Object.assign(pieces.at(-1), { d: pieces.at(-1).d + to, end: i });
  });
  return pieces.map(piece => make("path", { d: piece.d, fill: "none", stroke: colour(ink), "stroke-width": width, "stroke-dasharray": dash || null, "stroke-linejoin": "round", opacity: FADES[piece.level][1] }));
}

/** The classes drawn: the true one, the most probable false one, then others by their largest probability. */
function lensClasses(state, lens) {
  const truth = state.query.answer, peak = c => lens.at(-1)[c] + 0.01 * Math.max(...lens.map(row => row[c]));
  const others = state.labels.map((_, c) => c).filter(c => c !== truth).sort((a, b) => peak(b) - peak(a)).slice(0, LINES - 1);
  return [truth, ...others].map((c, rank) => ({
    c, style: [rank === 0 ? "true" : rank === 1 ? "false" : "template", `${rank ? "" : "✓ "}${cut(visible(state.labels[c]), 14)}`, rank < 2 ? (rank ? "6 3" : "") : OTHERS[rank - 2], ""],
  }));
}

function lensTrack(app) {
  const { look } = app;
  const control = segmented("What the lens shows", LENSES, mode => {
    look.lens = mode;
    app.looked();
    app.draw("layers");
  });
  control.node.classList.add("ex-small");
  const showsAll = () => Boolean(app.set && look.all);

  /** The numbers of the present mode: rows of probabilities by entry, and of which classes. */
  function lines(state) {
    const { now, prior } = app.parts;
    const lens = look.lens === "calibrated" ? prior?.calibrated : now?.lens;
    return lens ? lensClasses(state, lens).map(line => ({ ...line, values: lens.map(row => row[line.c]) })) : [];
  }

  function draw(state, g, fill, title) {
    const A = state.query.answer, { pair, now, ref, prior } = app.parts, y = value => g.lens.top + g.lens.height * (1 - value), x = i => g.x(i - 1);
    const keys = [], compared = isCompared(state), all = showsAll(), mode = state.texts ? "classes" : all ? "all" : look.lens;
    const put = (values, style, width) => {
      if (!values) return [];
      keys.push(key(style, width));
      return curve(values, x, y, style, width);
    };
    const of = rows => rows?.map(row => row[A]);
    // A free-form answer has no content-free probability to divide by.
    control.buttons[1].hidden = Boolean(state.open);
    control.choose(look.lens);
    fill("pair", ["pair"], mode === "pair" ? [put(of(pair?.true), ["true", spoken("true labels", state), "", "circle"], 1.6), put(of(pair?.false), ["false", spoken("false labels", state), "6 3", "square"], 1.6)] : []);
    const classes = mode === "classes" || mode === "calibrated" ? lines(state) : [];
    keys.push(...classes.map(line => key(line.style, line.c === A ? 2.6 : 1.7)));
    fill("ref", ["ref"], compared && mode === "classes" ? put(of(ref?.lens), ["ref", `✓ ${referenceName(state)}`, "4 3", ""], 1.9) : []);
    const base = mode === "classes" && prior && !state.texts ? [
      put(of(prior.zero), ["muted", "✓ zero-shot", "1 4", ""], 1.4), put(of(prior.mean), ["muted", `✓ mean of ${prior.n ?? state.n}`, "7 2 1 2", ""], 1.4)] : [];
    fill("base", ["prior"], base);
    fill("now", [mode === "calibrated" ? "prior" : "now"], [...classes].reverse().map(line => fading(line.values, state.texts ? null : now?.mass, x, y, line.style, line.c === A ? 2.6 : 1.7)),
      mode === "pair" && (compared || !pair) ? put(of(now?.lens), ["ink", "now", "", ""], 2.6) : []);
    const drawn = [];
    if (all) {
      const { before, now: after } = app.set;
      if (compared) drawn.push(band(before.low, before.high, x, y, "ref"), put(before.lens, ["ref", referenceName(state), "4 3", ""], 1.8));
      drawn.push(band(after.low, after.high, x, y, "ink"), put(after.lens, ["ink", "now", "", "circle"], 2.4));
    }
    fill("all", [], drawn);
    const weak = !state.texts && classes.length > 0 && now?.mass?.some(mass => mass < WEAK);
    const more = all ? `true answer, mean of ${app.set.n} prompts, 95 % intervals` : state.texts ? "in the whole vocabulary" : weak ? spoken(`pale: label words hold < ${percent(WEAK)}`, state) : spoken("among the label words", state);
    const through = state.lens ? `${state.lens}, ${more}` : more;
    title(g.lens, state.texts ? "If the next token were read here" : "If the answer were read here", through, keys, all || !state.labels.length || state.texts ? null : control.node);
  }

  /** The numbers at an entry, for the tooltip. */
  function words(state, after) {
    const { pair, now, ref } = app.parts, prior = app.fresh.has("prior") ? app.parts.prior : null;
    const A = state.query.answer, compared = isCompared(state);
    if (showsAll()) {
      const { before, now: present, n } = app.set, one = side => `${two(side.lens[after])} [${two(side.low[after])}, ${two(side.high[after])}]`;
      return [`n = ${n}`, `now ${one(present)}`, compared && `${referenceName(state)} ${one(before)}`];
    }
    if (!now) return [];
    if (look.lens === "pair") return [pair && `${spoken("true labels", state)} ${two(pair.true[after][A])}`, pair && `${spoken("false labels", state)} ${two(pair.false[after][A])}`, `now ${two(now.lens[after][A])}`];
    return [...lines(state).map(({ style, values }) => `${style[1]} ${two(values[after])}`),
      compared && ref && `✓ ${referenceName(state)} ${two(ref.lens[after][A])}`,
      look.lens === "classes" && prior?.zero && `✓ zero-shot ${two(prior.zero[after][A])}`,
      look.lens === "classes" && prior?.mean && `✓ mean of prompts ${two(prior.mean[after][A])}`,
      now.mass && !state.texts && spoken(`label words hold ${percent(now.mass[after])} of the next word`, state)];
  }
  return { draw, words };
}
