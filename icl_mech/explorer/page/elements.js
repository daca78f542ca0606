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
