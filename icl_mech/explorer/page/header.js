// -- Header: what is shown, how certain it is, and undo --

function headerView(app) {
  const what = make("span", { class: "ex-what" });
  const pill = make("span", { class: "ex-pill" });
  const status = make("span", { class: "ex-status", role: "status" });
  const back = segmented("History", [["undo", "Undo", "Undo (u)"], ["redo", "Redo", "Redo (r)"], ["reset", "Start", "Back to the start (0)"]],
    what => app.act(what));
  const tour = button("Tour", "Three steps that show what this page is for", () => app.tour(), { "data-live": true });
  const node = make("header", { class: "ex-header" },
    make("h1", {}, "Explore in-context learning"), what, pill, status, make("span", { class: "ex-space" }),
    back.node,
    button("Keep", "Keep this state as a row next to the others (k)", () => app.act("keep", {}, "answer"), { "data-live": true }),
    button("Copy as code", "Python code that reproduces these numbers (c)", () => askCode(app)),
    tour,
    button("Share", "Share this state as a link, file or page, or as a test in Python", () => app.share.open()),
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
    tour.hidden = Boolean(state.texts);  // its steps are about label words
    what.textContent = what.title = [state.model, state.task, app.transport.saved && "saved page"].filter(Boolean).join(" · ");
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
