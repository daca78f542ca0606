// -- Share: a state as a link, a file, a page without a kernel, and as a measurement --

const MARK = "icl1.";  // a state as a line of text begins with it

function shareView(app) {
  const { transport } = app;
  let shared = null;
  const line = make("input", { type: "text", class: "ex-line", readonly: true, onfocus: event => event.target.select() });
  const copied = make("span", { class: "ex-quiet", role: "status" });
  const file = make("input", { type: "file", accept: ".json,application/json", class: "ex-unseen", tabindex: -1, "aria-hidden": "true", onchange: openFile });
  const say = make("p", { class: "ex-say", role: "status" });
  const byAddress = transport.alone && !transport.saved;
  const copy = button(byAddress ? "Copy link" : "Copy line", "", () => copyText(line, line.value, copied), { class: "ex-button ex-main-button" });
  const save = button("Download state", "", () => download(`${shared.name}.json`, JSON.stringify(shared.content, null, 1), "application/json"));
  const row = (control, ...words) => make("div", { class: "ex-share-row" }, control, make("span", {}, ...words));
  const page = make("span", {});
  const finding = row(button("Make it a finding", "", () => { node.close(); app.act("finding"); }),
    "Python that tests this change over all queries and on held-out ones, with intervals, compared with a random control.");
  const node = dialog("Share this state",
    make("div", { class: "ex-share-line" }, line, copy, copied),
    make("p", { class: "ex-quiet" }, byAddress
      ? "The link opens this state, what it is compared with and what is on show: on this machine, while this explorer runs."
      : "Run the line where view is an explorer of the same model and task."),
    row(save,
      "The same as a file, for ", make("code", {}, "icl-mech explore --state FILE"), " and ", make("code", {}, "icl.explore(…, state=FILE)"), "."),
    row(button("Open a state …", "", () => file.click(), { "data-live": true }), file, "Such a file. Opening it is one step, which u undoes."),
    row(button("Save as page", "", () => { app.act("save_page", {}, "share"); app.tell("share", "Measuring what the page shows …"); }, { "data-live": true }), page),
    finding,
    say, make("div", { class: "ex-bar" }, button("Close", "", () => node.close())));

  /** The state as it is now is asked for at once, so that a click can copy it. */
  function open() {
    if (!app.state || node.open) return;
    shared = null;
    app.says.share = null;
    copied.textContent = "";
    node.showModal();
    draw();
    const shown = app.attention;
    app.act("share", { look: { ...onShow(app.look), attend: shown ? [shown.layer, shown.head] : null } }, "share");
  }

  function hear(_, message) {
    shared = message;
    draw();
  }

  async function openFile() {
    const [chosen] = file.files;
    if (!chosen) return undefined;
    let state = null;
    try {
      state = JSON.parse(await chosen.text());
    } catch {
      return app.tell("share", `${chosen.name} is not a state: it is not JSON.`, true);
    } finally {
      file.value = "";  // the same file can be chosen again
    }
    return app.act("open", { state }, "share");
  }

  /** Offer a text as a file. */
  function download(name, text, type) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    make("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  }

  /** A link in the page's own address is opened once, and then removed: a reload keeps what was changed since. */
  function openAddress() {
    const at = byAddress ? location.hash.indexOf(MARK) : -1;
    if (at < 0) return;
    const state = location.hash.slice(at);
    history.replaceState(null, "", location.pathname + location.search);
    app.act("open", { state });
  }
  window.addEventListener("hashchange", openAddress);

  function draw() {
    const said = app.says.share, kept = app.state.named.length;
    line.value = !shared ? "" : byAddress ? `${location.href.split("#")[0]}#${shared.link}` : `view.open("${shared.link}")`;
    line.setAttribute("aria-label", byAddress ? "Link" : "Line of Python");
    copy.disabled = save.disabled = !shared;
    finding.hidden = Boolean(app.state.texts);  // there are no right answers to count
    page.textContent = `One HTML file of this state, the start and ${kept > 1 ? `the ${kept} kept rows` : kept ? "the kept row" : "kept rows (none yet)"}, to look through without a model.`;
    say.classList.toggle("ex-error", Boolean(said?.wrong));
    say.textContent = said?.text ?? "";
  }
  return {
    node, draw, open, hear, openAddress, close: () => node.close(), end: () => window.removeEventListener("hashchange", openAddress),
    save: (_, { name, text }) => {
      download(name, text, "text/html");
      app.tell("share", `Saved as ${name}.`);
    },
  };
}

/** A saved page has no model: what would need one cannot be pressed. */
function freeze(app) {
  if (app.transport.saved) app.root.querySelectorAll("[data-live]").forEach(own => { own.disabled = true; });
}
