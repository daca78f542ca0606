"use strict";
const DATA = JSON.parse(document.getElementById("atlas-data").textContent);
const find = (selector, root = document) => root.querySelector(selector);
const byId = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const STATUSES = ["supported", "present, not used", "mixed", "not shown", "opposite", "cannot be judged"];
const CLASS = {"present, not used": "present", "not shown": "shown-not", "cannot be judged": "judged-not"};
const classOf = status => CLASS[status] || status;
const open = {groups: new Set(), detail: ""};

/* Nodes are created one by one, so that no text is ever parsed as markup. */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(own => own !== null && own !== undefined && own !== ""));
  return node;
}
const el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

const counted = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
const minus = text => text.replace("-", "−");
/* As in the texts of the package (`wording.told`): two decimals, rounded half to even; more if two would read as
   exactly 0 or 1. */
function rounded(own) {
  const places = [2, 3, 4].find(digits => { const shown = Number(own.toFixed(digits)); return !((shown === 0 && own !== 0) || (shown === 1 && own < 1)); }) ?? 5;
  const text = places === 2 && (own * 100) % 1 === 0.5 ? (2 * Math.round(own * 50) / 100).toFixed(2) : own.toFixed(places);
  return Number(text) === 0 && own !== 0 ? minus(own.toExponential(1)) : text;
}
const said = (value, sign = true) => {
  if (value === null || value === undefined) return "undefined";
  const own = Math.round(Math.abs(value) * 1e9) / 1e9, small = own !== 0 && own < 0.000005;
  return `${value < 0 && own ? "−" : sign && own && !small ? "+" : ""}${own >= 100 ? own.toFixed(0) : rounded(own)}`;
};
const interval = own => own.low === undefined ? said(own.value) : `${said(own.value)} [${said(own.low)}, ${said(own.high)}]`;
const short = text => text.includes(":") ? text.split(":")[0] : `${text.split(" ").slice(0, 3).join(" ")} …`;
const words = text => String(text || "").replaceAll("_", " ");
const plain = text => text.replace(/\*\*/g, "");

/* --- from the rows of the file to what is drawn: claims of studies, verdicts of runs and of means, curves --- */
const weightsOf = {};
for (const run of DATA.runs) (weightsOf[run.model] ||= new Set()).add(run.weights);
for (const own of [...DATA.runs, ...DATA.claims]) {
  if (weightsOf[own.model]?.size > 1) own.model = `${own.model} (${own.weights.slice(0, 6)})`;
}
const STUDIES = new Map(), VERDICTS = new Map(), MEANS = [];
for (const row of DATA.claims) {
  if (!STUDIES.has(row.study)) STUDIES.set(row.study, {name: row.study, source: row.source.replaceAll("_", " "), claims: []});
  const study = STUDIES.get(row.study);
  let claim = study.claims.find(own => own.text === row.claim);
  if (!claim) study.claims.push(claim = {text: row.claim, effects: []});
  if (row.effect && !claim.effects.some(own => own.name === row.effect)) claim.effects.push({name: row.effect, null: row.null, rising: row.rising});
  const list = row.kind === "mean" ? MEANS : VERDICTS.get(row.run) || VERDICTS.set(row.run, []).get(row.run);
  let verdict = list.find(own => own.claim === row.claim && (row.kind === "run" || groupOf(own) === groupOf(row)));
  if (!verdict) list.push(verdict = {...row, effects: []});
  if (row.effect) verdict.effects.push({name: row.effect, value: row.value, low: row.low ?? undefined, high: row.high ?? undefined});
}
const ORDER = ["label_words", "overthinking", "causal", "contextualise", "anchors"], placeOf = name => (ORDER.indexOf(name) + 1) || 99;
const LISTED = [...STUDIES.values()].sort((a, b) => placeOf(a.name) - placeOf(b.name));
for (const run of DATA.runs) run.verdicts = VERDICTS.get(run.name) || [];

/* A curve for each label of the other axes; each layer divided by the number of layers. */
const LAYERS = Object.fromEntries(DATA.runs.map(run => [run.name, run.n_layers]));
function unrolled(own) {
  const place = own.axes.indexOf("layer"), found = [];
  const walk = (ends, labels, axis) => {
    if (axis === own.axes.length) { found[found.length - 1].points.push(ends); return; }
    own.labels[axis].forEach((label, i) => {
      const inner = ends.map(end => end[i]);
      if (axis === place) walk(inner, labels, axis + 1);
      else { found.push({labels: [...labels, label], points: []}); walk(inner, [...labels, label], axis + 1); }
    });
  };
  const last = [own.value, own.low, own.high], order = own.axes.map((_, i) => i).filter(i => i !== place);
  if (!order.length) found.push({labels: [], points: []});
  const turned = order.length === 1 && place === 0 ? last.map(end => own.labels[1].map((_, j) => end.map(row => row[j]))) : last;
  const one = order.length === 1 && place === 0 ? {...own, axes: [own.axes[1], "layer"], labels: [own.labels[1], own.labels[0]]} : own;
  if (one !== own) return unrolled({...one, value: turned[0], low: turned[1], high: turned[2]});
  if (order.length > 1) return [];
  walk(last, [], 0);
  return found.filter(curve => curve.points.length).map(curve => ({
    run: own.run, quantity: own.quantity, unit: own.unit, curve: curve.labels.join(", "), x: own.labels[place].map(layer => layer / LAYERS[own.run]),
    value: curve.points.map(ends => ends[0]), low: curve.points.map(ends => ends[1]), high: curve.points.map(ends => ends[2]),
  }));
}
function groupOf(own) {
  return [own.model, own.study, setting(own), own.n, own.demonstrations].join("|");
}

function setting(run) {
  const parts = [run.labels ? `${words(run.labels)} labels` : "texts"];
  if (run.shots !== null && run.shots !== undefined) parts.push(`${run.shots} per class`);
  if (run.total) parts.push(`${run.total} in total`);
  return parts.join(", ");
}

/* --- signs and forests --- */
function sign(status) {
  const own = `var(--own)`, ring = {cx: 9, cy: 9, r: 7.4, fill: "none", stroke: own, "stroke-width": 1.6}, marks = [];
  const full = {cx: 9, cy: 9, r: 8.2, fill: own}, cut = {fill: "none", stroke: "var(--page)", "stroke-width": 2};
  if (status === "supported") marks.push(svg("circle", full), svg("path", {d: "M5 9.4l2.8 2.8 5.4-6.2", ...cut}));
  else if (status === "opposite") marks.push(svg("rect", {x: 1, y: 1, width: 16, height: 16, rx: 2, fill: own}), svg("path", {d: "M5.4 5.4l7.2 7.2M12.6 5.4l-7.2 7.2", ...cut}));
  else if (status === "present, not used") marks.push(svg("circle", ring), svg("circle", {cx: 9, cy: 9, r: 3.2, fill: own}));
  else if (status === "mixed") marks.push(svg("circle", ring), svg("path", {d: "M9 1.6a7.4 7.4 0 0 0 0 14.8z", fill: own}));
  else if (status === "not shown") marks.push(svg("circle", ring), svg("path", {d: "M5.6 9h6.8", stroke: own, "stroke-width": 1.8}));
  else if (status === "published") marks.push(svg("path", {d: "M9 1.6L16.4 9 9 16.4 1.6 9z", fill: "none", stroke: own, "stroke-width": 1.6}));
  else marks.push(svg("circle", {...ring, "stroke-dasharray": "2.6 2.2"}), svg("text", {x: 9, y: 12.6, "text-anchor": "middle", "font-size": 10, fill: own}, "?"));
  return svg("svg", {class: `sign ${classOf(status)}`, viewBox: "0 0 18 18", "aria-hidden": "true"}, marks);
}

const WIDE = 112, HALF = WIDE / 2 - 5;
/* Signed distance from the value without an effect: positive supports the claim. */
const towards = (value, effect) => (value - effect.null) * (effect.rising ? 1 : -1);

function reach(rows, claim) {
  let most = 0;
  for (const own of rows) for (const effect of claim.effects) {
    const found = own.effects.find(one => one.name === effect.name);
    if (found) for (const end of [found.value, found.low, found.high]) {
      if (Number.isFinite(end)) most = Math.max(most, Math.abs(towards(end, effect)));
    }
  }
  for (const step of [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50]) if (most <= step) return step;
  return most;
}

function forest(verdict, claim, most, kind) {
  const found = claim.effects.map(effect => [effect, verdict.effects.find(own => own.name === effect.name)]).filter(pair => pair[1]);
  const high = Math.max(22, 11 * found.length), at = value => WIDE / 2 + Math.max(-1, Math.min(1, value / most)) * HALF;
  const marks = found.map(([effect, own], i) => {
    const y = high / (found.length + 1) * (i + 1), x = at(towards(own.value, effect)), parts = [];
    if (Number.isFinite(own.low) && Number.isFinite(own.high)) {
      parts.push(svg("path", {class: "reach", d: `M${at(towards(own.low, effect))} ${y}H${at(towards(own.high, effect))}`}));
    }
    parts.push(kind === "published" ? svg("path", {class: "dot", d: `M${x} ${y - 4.6}l4.6 4.6-4.6 4.6-4.6-4.6z`})
      : svg("circle", {class: "dot", cx: x, cy: y, r: i ? 2.6 : 3.4}));
    return parts;
  });
  return svg("svg", {class: `forest ${classOf(kind || verdict.status)}`, width: WIDE, height: high, viewBox: `0 0 ${WIDE} ${high}`, "aria-hidden": "true"},
    found.length ? svg("path", {class: "null", d: `M${WIDE / 2} 0V${high}`}) : null, marks);
}

function scale(most) {
  return svg("svg", {class: "scale", width: WIDE + 45, height: 17, viewBox: `-27 0 ${WIDE + 45} 17`, "aria-hidden": "true"},
    svg("path", {d: `M5 3V0M${WIDE / 2} 3V0M${WIDE - 5} 3V0M5 .5H${WIDE - 5}`}),
    svg("text", {x: 5, y: 14, "text-anchor": "middle"}, `−${most}`), svg("text", {x: WIDE / 2, y: 14, "text-anchor": "middle"}, "0"),
    svg("text", {x: WIDE - 5, y: 14, "text-anchor": "middle"}, `+${most}`));
}

/* --- filters --- */
const form = byId("filters");
const KEYS = {model: run => run.model, task: run => run.task, study: run => run.study, setting};
for (const run of DATA.runs) {
  run.setting = setting(run);
  run.hay = [run.name, run.model, run.task, words(run.study), run.setting, run.weights, run.prompts, `seed ${run.seed}`].join(" ").toLowerCase();
}
function options() {
  for (const name of Object.keys(KEYS)) {
    const values = [...new Set(DATA.runs.map(KEYS[name]))].sort();
    const title = value => name === "study" ? words(value) : value;
    form.elements[name].replaceChildren(el("option", {value: ""}, "all"), ...values.map(own => el("option", {value: own}, title(own))));
  }
}
const chosen = () => Object.fromEntries(["text", ...Object.keys(KEYS)].map(name => [name, form.elements[name].value.trim()]));
function shows(run, filter) {
  return Object.keys(KEYS).every(name => !filter[name] || KEYS[name](run) === filter[name])
    && filter.text.toLowerCase().split(/\s+/).every(word => run.hay.includes(word));
}
/* Published rows have no run: filters of model and setting hide them; filters of task, study and text apply to them. */
function showsPublished(own, filter) {
  const hay = [own.model, own.task, words(own.study), words(own.labels), "published"].join(" ").toLowerCase();
  return !filter.model && !filter.setting && (!filter.task || own.task === filter.task) && (!filter.study || own.study === filter.study)
    && filter.text.toLowerCase().split(/\s+/).every(word => hay.includes(word));
}

/* --- the matrices --- */
function cell(owner, verdict, claim, most, key, columns) {
  const kind = owner.published ? "published" : "";
  const told = verdict.effects.map(own => `${own.name} ${interval(own)}`).join("; ");
  const name = `${short(claim.text)}, ${owner.model}${owner.task ? ` on ${owner.task}` : ""}: ${kind || verdict.status}${told ? `. ${told}` : ""}`;
  const button = el("button", {
    type: "button", class: "cell", "aria-expanded": String(open.detail === key), "aria-label": name, title: told || verdict.status,
    onclick: () => { open.detail = open.detail === key ? "" : key; draw(); find(`[data-key="${CSS.escape(key)}"]`)?.focus(); }, "data-key": key,
  }, sign(kind || verdict.status), forest(verdict, claim, most, kind),
  el("span", {class: "num"}, verdict.effects.length ? verdict.effects.map((own, i) => [i ? el("br") : null, said(own.value), " ", own.low === undefined ? "" : el("i", {}, `[${said(own.low)}, ${said(own.high)}]`)]) : el("i", {class: "told"}, kind || verdict.status)));
  if (open.detail === key) owner.detail = detail(owner, verdict, claim, columns);
  return el("td", {}, button);
}

function detail(owner, verdict, claim, columns) {
  const kind = owner.published ? "published" : verdict.status;
  const box = el("div", {class: "detail-box"},
    el("h4", {}, sign(kind), `${owner.model}${owner.task ? ` on ${owner.task}` : ""}: ${kind}`),
    el("p", {}, el("b", {}, claim.text)),
    verdict.finding ? el("p", {}, plain(verdict.finding)) : null,
    ...verdict.effects.map(own => el("p", {class: "quiet"}, `${own.name}: ${interval(own)}`)),
    verdict.p === null || verdict.p === undefined ? null : el("p", {class: "quiet"}, `one-sided p = ${verdict.p < 0.0001 ? "< 0.0001" : verdict.p.toPrecision(2)}`),
    owner.published ? el("p", {class: "quiet"}, `Published, not measured here. ${DATA.published.sources[owner.source]}`) : null,
    owner.name ? el("p", {}, el("a", {href: `runs/${owner.name}.html`}, "Open the run’s page"), " · ", el("a", {href: `runs/${owner.name}.json`}, "its numbers (JSON)")) : null);
  return el("tr", {class: "detail"}, el("td", {colspan: columns}, box));
}

function row(kind, head, owner, study, mosts, verdicts) {
  owner.detail = null;
  const key = `${study.name}/${kind}/${owner.name || owner.group || `${owner.model}/${owner.task}/${owner.labels}`}`, columns = study.claims.length + 1;
  const cells = study.claims.map((claim, i) => {
    const verdict = verdicts.find(own => own.claim === claim.text);
    return verdict ? cell(owner, verdict, claim, mosts[i], `${key}/${i}`, columns) : el("td", {class: "none", "aria-label": "not measured"}, "·");
  });
  const found = el("tr", {class: kind}, el("th", {scope: "row"}, head), cells);
  return owner.detail ? [found, owner.detail] : [found];
}

/* Published effects are shown below the claims whose effects have these names. */
function asVerdicts(own, study) {
  return study.claims.map(claim => {
    const effects = claim.effects.filter(effect => effect.name in own.effects).map(effect => ({name: effect.name, value: own.effects[effect.name]}));
    return effects.length ? {claim: claim.text, status: "published", finding: "", effects} : null;
  }).filter(Boolean);
}

function matrix(study, runs, published, whole) {
  const groups = [...new Set(runs.map(groupOf))], models = new Set(runs.map(run => run.model));
  const means = whole ? MEANS.filter(own => own.study === study.name && groups.includes(groupOf(own))) : [];
  const outside = published.map(own => ({...own, published: true, verdicts: asVerdicts(own, study)})).filter(own => own.verdicts.length);
  const mosts = study.claims.map(claim => reach([...runs.flatMap(run => run.verdicts), ...means, ...outside.flatMap(own => own.verdicts)].filter(own => own.claim === claim.text), claim));
  const head = el("thead", {}, el("tr", {}, el("th", {scope: "col"}, el("span", {class: "quiet"}, "Model, task and setting")),
    study.claims.map((claim, i) => el("th", {scope: "col", title: claim.text}, el("b", {}, short(claim.text)), claim.effects.length ? scale(mosts[i]) : el("span", {class: "of"}, "verdict only")))));
  let before = "";
  const bodies = groups.map(group => {
    const own = runs.filter(run => groupOf(run) === group), mean = means.filter(one => groupOf(one) === group), body = el("tbody");
    const {model, n} = own[0], first = model !== before, told = `${setting(own[0])}, n\u00a0=\u00a0${n}`, key = `${study.name}/${group}`, shut = mean.length && open.groups.has(key);
    if (mean.length) {
      const button = el("button", {type: "button", class: "group", "aria-expanded": String(!shut), onclick: () => { open.groups[shut ? "delete" : "add"](key); draw(); }}, model);
      body.append(...row("mean", [button, el("span", {class: "of"}, `means over ${counted(own.length, "run")}; ${told}`)], {model, group}, study, mosts, mean));
    }
    before = model;
    if (!first) body.className = "same";
    const several = own.length > new Set(own.map(run => run.task)).size;
    if (!shut) own.forEach((run, i) => body.append(...row("run", [
      !mean.length && !i && first ? el("b", {}, model) : null,
      el("span", {class: "in"}, el("a", {href: `runs/${run.name}.html`}, run.task), mean.length ? several ? `, seed ${run.seed}` : null : el("span", {class: "of"}, told))], run, study, mosts, run.verdicts)));
    return body;
  });
  if (outside.length) {
    const key = `${study.name}/published`, wide = open.groups.has(key), body = el("tbody");
    const usual = outside.filter(own => /^mean/.test(own.task) && ["permuted", "correct"].includes(own.labels)).sort((a, b) => b.verdicts.length - a.verdicts.length).slice(0, 4);
    const list = wide || !usual.length ? outside : usual;
    const button = outside.length > usual.length && usual.length ? el("button", {type: "button", class: "group", "aria-expanded": String(wide), onclick: () => { open.groups[wide ? "delete" : "add"](key); draw(); }}, wide ? "Published numbers" : `Published numbers: ${list.length} of ${outside.length}`) : el("b", {}, "Published numbers");
    body.append(el("tr", {}, el("th", {scope: "rowgroup"}, button), el("td", {colspan: study.claims.length}, el("span", {class: "of"}, "from papers, not measured here"))));
    list.forEach(own => body.append(...row("published", el("span", {class: "in"}, own.model, " ", el("span", {class: "badge"}, "published"), el("span", {class: "of"}, `${words(own.task)}, ${words(own.labels)} labels`)), own, study, mosts, own.verdicts)));
    bodies.push(body);
  }
  return [el("div", {class: "matrix-head"}, el("h3", {}, study.source), el("span", {class: "of"}, `${counted(study.claims.length, "claim")}, ${counted(runs.length, "run")} of ${counted(models.size, "model")}`)),
    el("div", {class: "scroll", role: "region", "aria-label": `Claims of ${study.source}`, tabindex: 0}, el("table", {class: "claims"}, head, bodies))];
}

/* --- curves --- */
const quantity = byId("quantity"), curve = byId("curve"), colour = byId("colour"), chart = byId("chart");
const OWN = DATA.curves.flatMap(unrolled);
const CURVES = [...OWN, ...DATA.published.curves.map(own => ({...own, run: "", published: true, x: own.value.map((_, i) => i / (own.value.length - 1)), low: [], high: []}))];
let pinned = null;

function quantities() {
  const names = [...new Set(OWN.map(own => own.quantity))];
  quantity.replaceChildren(...names.map(own => el("option", {value: own}, own)));
  if (names.includes("accuracy by layer")) quantity.value = "accuracy by layer";
  curves();
}
const NAMES = {wp: "into label words (S_wp)", pq: "label words to target (S_pq)", ww: "all other edges (S_ww)"};
function curves() {
  const names = [...new Set(OWN.filter(own => own.quantity === quantity.value).map(own => own.curve))];
  curve.replaceChildren(...names.map(own => el("option", {value: own}, NAMES[own] || own || "the only one")));
  curve.parentElement.hidden = names.length < 2;
}

function drawCurves(runs, published) {
  const known = new Map(runs.map(run => [run.name, run]));
  const own = CURVES.filter(one => one.quantity === quantity.value && one.curve === curve.value && (one.published ? published.some(row => row.model === one.model && row.task === one.task) : known.has(one.run)));
  const group = one => one.published ? "published" : known.get(one.run)[colour.value];
  const groups = [...new Set(own.map(group))].filter(name => name !== "published");
  const look = one => one.published ? "var(--c7)" : `var(--c${groups.indexOf(group(one)) % 7})`;
  const plainly = run => `${run.model} on ${run.task}${/correct/.test(run.labels) ? "" : ` (${words(run.labels)})`}`;
  const shown = own.filter(one => !one.published).map(one => known.get(one.run));
  /* Curves with the same name are distinguished by what differs between them. */
  const name = one => {
    if (one.published) return `${one.model}, ${one.task}`;
    const run = known.get(one.run), alike = shown.filter(other => plainly(other) === plainly(run));
    const apart = [["seed", "seed "], ["n", "n = "], ["study", ""], ["setting", ""]].filter(([key]) => alike.some(other => other[key] !== run[key]));
    return [plainly(run), ...apart.map(([key, before]) => `${before}${words(run[key])}`)].join(", ");
  };
  chart.className = "";
  byId("told").textContent = "";
  if (!own.length) { chart.replaceChildren(el("p", {class: "empty"}, "None of the selected runs has this quantity.")); byId("lines").replaceChildren(); return; }
  const across = Math.max(280, chart.clientWidth), high = Math.round(Math.min(420, Math.max(260, across * 0.46)));
  const margin = {l: 46, r: 12, t: 12, b: 42}, ends = own.flatMap(one => [...one.value, ...(own.length < 5 ? [...one.low, ...one.high] : [])]).filter(Number.isFinite);
  let [low, top] = [Math.min(...ends), Math.max(...ends)];
  const room = (top - low || 1) * 0.06; low -= room; top += room;
  const x = value => margin.l + value * (across - margin.l - margin.r), y = value => high - margin.b - (value - low) / (top - low) * (high - margin.t - margin.b);
  const path = (xs, ys) => { let pen = "M"; return xs.map((own, i) => { if (!Number.isFinite(ys[i])) { pen = "M"; return ""; } const part = `${pen}${x(own).toFixed(1)} ${y(ys[i]).toFixed(1)}`; pen = "L"; return part; }).join(""); };
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10].find(own => (top - low) / own <= 7) || 20, ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= top; tick += step) ticks.push(tick);
  const digits = step < 0.1 ? 2 : step < 1 ? 1 : 0, band = svg("path", {class: "band"});
  const lines = own.map(one => svg("path", {class: `line${one.published ? " outside" : ""}`, d: path(one.x, one.value), style: `--own:${look(one)}`}));
  const picture = svg("svg", {viewBox: `0 0 ${across} ${high}`, height: high, role: "img", "aria-label": `${quantity.value} over depth, ${counted(own.length, "curve")}. All numbers are in the curves file.`},
    ticks.map(tick => [svg("path", {class: "rule", d: `M${margin.l} ${y(tick)}H${across - margin.r}`}), svg("text", {x: margin.l - 8, y: y(tick) + 4, "text-anchor": "end"}, minus(Math.abs(tick) < step / 1e6 ? "0" : tick.toFixed(digits)))]),
    [0, 0.25, 0.5, 0.75, 1].map(tick => svg("text", {x: x(tick), y: high - margin.b + 18, "text-anchor": tick === 1 ? "end" : "middle"}, String(tick))),
    svg("path", {class: "axis", d: `M${margin.l} ${margin.t}V${high - margin.b}H${across - margin.r}`}),
    svg("text", {x: (margin.l + across - margin.r) / 2, y: high - 6, "text-anchor": "middle"}, "layer / number of layers"), band, lines);
  chart.replaceChildren(picture);
  const buttons = own.map((one, i) => el("button", {type: "button", class: one.published ? "outside" : "", "aria-pressed": "false", onclick: () => { pinned = pinned === i ? null : i; show(pinned); }, onpointerenter: () => show(i), onpointerleave: () => show(pinned), onfocus: () => show(i), onblur: () => show(pinned)},
    svg("svg", {width: 22, height: 10, "aria-hidden": "true"}, svg("path", {d: "M0 5h22", stroke: look(one), "stroke-width": 2.4, "stroke-dasharray": one.published ? "2 3" : ""})), name(one), one.published ? el("span", {class: "badge"}, "published") : ""));
  byId("lines").replaceChildren(...buttons.map(own => el("li", {}, own)));
  pinned = null;
  function show(i, at = null) {
    chart.className = i === null ? "" : "one";
    lines.forEach((line, j) => line.classList.toggle("chosen", i === j));
    buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(pinned === j)));
    band.setAttribute("d", "");
    if (i === null) { byId("told").textContent = ""; return; }
    const one = own[i], ends = one.x.map((_, j) => j).filter(j => Number.isFinite(one.low[j]) && Number.isFinite(one.high[j]));
    band.style.setProperty("--own", look(one));
    const edge = end => y(Math.min(top, Math.max(low, end)));
    if (ends.length > 1) band.setAttribute("d", `M${ends.map(j => `${x(one.x[j])} ${edge(one.high[j])}`).join("L")}L${ends.reverse().map(j => `${x(one.x[j])} ${edge(one.low[j])}`).join("L")}Z`);
    const j = at === null ? one.value.findLastIndex(Number.isFinite) : at;
    byId("told").textContent = `${name(one)}${one.published ? " (published)" : ""}: ${said(one.value[j], false)}${Number.isFinite(one.low[j]) ? ` [${said(one.low[j], false)}, ${said(one.high[j], false)}]` : ""} at depth ${one.x[j].toFixed(2)}.`;
  }
  picture.addEventListener("pointermove", event => {
    const box = picture.getBoundingClientRect(), zoom = across / box.width, px = (event.clientX - box.x) * zoom, py = (event.clientY - box.y) * zoom;
    let best = [22, null, null];
    own.forEach((one, i) => one.x.forEach((value, j) => {
      if (!Number.isFinite(one.value[j])) return;
      const far = Math.hypot(x(value) - px, y(one.value[j]) - py);
      if (far < best[0]) best = [far, i, j];
    }));
    if (best[1] === null) show(pinned); else show(best[1], best[2]);
  });
  picture.addEventListener("pointerleave", () => show(pinned));
}

/* --- the list --- */
function list(runs) {
  const heads = ["Run", "Study", "Setting", "n", "Seed", "Verdicts", "Made", "Weights, prompts", "Numbers"];
  const rows = runs.map(run => el("tr", {}, el("td", {}, el("a", {href: `runs/${run.name}.html`}, `${run.model} on ${run.task}`)), el("td", {}, words(run.study)), el("td", {}, run.setting),
    el("td", {}, run.n), el("td", {}, run.seed), el("td", {}, run.verdicts.length ? el("span", {class: "verdicts"}, run.verdicts.map(own => el("span", {title: `${short(own.claim)}: ${own.status}`}, sign(own.status)))) : el("span", {class: "of"}, "no claims")),
    el("td", {}, run.date.slice(0, 10)), el("td", {class: "digest"}, run.weights.slice(0, 10), el("br"), run.prompts.slice(0, 10)), el("td", {}, el("a", {href: `runs/${run.name}.json`}, "JSON"))));
  byId("list").replaceChildren(rows.length ? el("table", {class: "list"}, el("thead", {}, el("tr", {}, heads.map(own => el("th", {scope: "col"}, own)))), el("tbody", {}, rows)) : el("p", {class: "empty"}, "No run matches the filters."));
}

/* --- tables of what is shown --- */
/* Spreadsheets read some texts as formulas; a mark before them prevents this. */
const field = value => {
  const text = typeof value === "string" ? (/^\s*[=+\-@'\t\r\n]/.test(value) ? `'${value}` : value) : value === null || value === undefined ? "" : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
function csv(rows) {
  const names = [...new Set(rows.flatMap(Object.keys))];
  return [names, ...rows.map(row => names.map(name => row[name]))].map(row => row.map(field).join(",")).join("\r\n") + "\r\n";
}
function tables() {
  const filter = chosen(), runs = DATA.runs.filter(run => shows(run, filter)), known = new Set(runs.map(run => run.name)), models = new Set(runs.map(groupOf));
  const published = DATA.published.rows.filter(own => showsPublished(own, filter));
  return {
    claims: [...DATA.claims.filter(row => row.kind === "run" ? known.has(row.run) : models.has(groupOf(row))), ...published.flatMap(({effects, ...own}) => Object.entries(effects).map(([effect, value]) => ({kind: "published", ...own, effect, value})))],
    curves: OWN.filter(own => known.has(own.run)).flatMap(own => own.x.map((depth, i) => ({run: own.run, quantity: own.quantity, unit: own.unit, curve: own.curve, depth, value: own.value[i], low: own.low[i], high: own.high[i]}))),
    runs: runs.map(({hay, verdicts, ...own}) => own),
  };
}
function download(name) {
  const link = el("a", {href: URL.createObjectURL(new Blob([csv(tables()[name])], {type: "text/csv"})), download: `${name}.csv`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/* --- everything --- */
function draw() {
  const filter = chosen(), runs = DATA.runs.filter(run => shows(run, filter)), whole = !filter.task && !filter.setting && !filter.text;
  const published = byId("with-published").checked ? DATA.published.rows.filter(own => showsPublished(own, filter)) : [];
  byId("count").textContent = `${runs.length} of ${counted(DATA.runs.length, "run")}`;
  const tables = LISTED.map(study => {
    const own = runs.filter(run => run.study === study.name), outside = published.filter(row => row.study === study.name);
    return own.length || outside.length ? matrix(study, own, outside, whole) : [];
  }).flat();
  const scrolled = [...document.querySelectorAll("#matrices .scroll")].map(own => own.scrollLeft);
  byId("matrices").replaceChildren(...(tables.length ? tables : [el("p", {class: "empty"}, "None of the selected runs was judged on a claim.")]));
  document.querySelectorAll("#matrices .scroll").forEach((own, i) => { own.scrollLeft = scrolled[i] || 0; });
  drawCurves(runs, published);
  list(runs);
  const query = new URLSearchParams(Object.entries(filter).filter(([, value]) => value)).toString();
  if (query !== location.hash.slice(1) && (query || location.hash.includes("="))) history.replaceState(null, "", query ? `#${query}` : location.pathname);
}

function start() {
  const verdicts = DATA.runs.flatMap(run => run.verdicts), judged = verdicts.filter(own => own.status !== "cannot be judged");
  const models = new Set(DATA.runs.map(run => run.model)), tasks = new Set(DATA.runs.map(run => run.task));
  byId("title").textContent = `What ${counted(DATA.runs.length, "run")} of ${counted(models.size, "model")} on ${counted(tasks.size, "task")} show`;
  document.title = `Atlas: ${counted(DATA.runs.length, "run")}`;
  const counts = STATUSES.map(status => [status, verdicts.filter(own => own.status === status).length]);
  byId("lead").textContent = `Of ${counted(verdicts.length, "verdict")} on single runs, ${counted(judged.length, "could", "could")} be judged: ${counts.slice(0, 4).filter(([, count]) => count).map(([status, count]) => `${count} ${status}`).join(", ")}.`;
  byId("key").append(...STATUSES.map(status => el("li", {}, sign(status), status)), el("li", {}, sign("published"), "published"));
  byId("runs-lead").textContent = `Each run has its own page with all figures, prompts and numbers, loaded when you open it.`;
  byId("sources").append(...Object.values(DATA.published.sources).map(own => el("p", {class: "quiet"}, own)));
  byId("made").textContent = `Judged by ${DATA.versions}.`;
  options();
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of wanted) if (form.elements[name]) form.elements[name].value = value;
  quantities();
  draw();
  document.documentElement.dataset.first = "yes";
  document.querySelectorAll("[data-table]").forEach(own => own.addEventListener("click", () => download(own.dataset.table)));
  form.addEventListener("input", draw);
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(draw));
  byId("with-published").addEventListener("change", draw);
  byId("numbers").addEventListener("change", event => document.body.classList.toggle("numbers", event.target.checked));
  quantity.addEventListener("change", () => { curves(); draw(); });
  curve.addEventListener("change", draw);
  colour.addEventListener("change", draw);
  let timer, before = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== before) { before = innerWidth; clearTimeout(timer); timer = setTimeout(draw, 120); } });
  document.documentElement.dataset.ready = "yes";
}
start();
