// -- Keys of the whole page, only while the focus is inside --

const KEYS = [
  ["Everywhere", [["u, r", "undo, redo"], ["0", "back to the start"], ["k", "keep this state as a row"], ["f", "flip all labels or answers"], ["a", "add a demonstration"], ["[ ]", "previous, next query"], ["l, L", "next, previous label word"], ["o", "over all prompts; stop"], ["c", "copy as code"], ["?", "show these shortcuts"]]],
  ["In the prompt", [["← →", "move between tokens"], ["↑ ↓", "move between demonstrations"], ["Enter", "change a label word or answer; inspect any other token"], ["Alt Enter", "inspect it instead"], ["e", "edit the text"], ["Alt ↑ ↓", "move the demonstration"], ["Delete", "remove the demonstration"], ["Esc", "back to the roles"]]],
  ["In the layers", [["← →", "move the cursor"], ["Shift ← →, Enter", "choose a range, apply the change"], ["↑ ↓", "choose a change or a head"], ["x, i", "zero the head, see its attention"], ["m", "next map of heads"], ["1–5, z", "attention of a top head; zero all five"], ["v", "what every head attends to"], ["s, e", "set the change’s start, end to the cursor"], ["Alt ← →", "move the change"], ["+ −", "its factor"], ["Delete", "remove the change"], ["Esc", "cancel"]]],
  ["On a touch screen", [["tap a head", "choose it; a bar below the map zeroes it and shows its attention"]]],
];

function keyboard(app) {
  // Keys may come faster than answers: an action the last state forbids may be possible in the next.
  const unanswered = () => app.pending != null, may = what => unanswered() || app.state[what];
  const acts = {
    u: () => may("undo") && app.act("undo"), r: () => may("redo") && app.act("redo"), 0: () => (unanswered() || !app.state.started) && app.act("reset"),
    k: () => app.act("keep", {}, "answer"), f: () => app.state.demos.length && app.state.labels.length && app.act("flip_all"), a: () => !app.state.texts && app.act("add"),
    "[": () => otherQuery(app, -1), "]": () => otherQuery(app, 1), o: () => !app.state.texts && app.act(app.progress ? "stop" : "over_all", {}, "set"),
    l: () => app.nextLabel(1), L: () => app.nextLabel(-1), c: () => askCode(app), "?": () => app.dialogs.showHelp(),
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
