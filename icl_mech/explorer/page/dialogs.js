// -- Dialogs and the tooltip --

function dialogs(app) {
  const lines = make("pre", { tabindex: 0 }), copied = make("span", { class: "ex-quiet", role: "status" });
  const copy = button("Copy", "", () => copyText(lines, lines.textContent, copied), { class: "ex-button ex-main-button" });
  const code = dialog("The same in Python", lines, make("div", { class: "ex-bar" }, copy, button("Close", "", () => code.close()), copied));
  const help = dialog("Keyboard shortcuts",
    make("div", { class: "ex-help" }, KEYS.map(([where, rows]) => make("section", {}, make("h3", {}, where),
      make("dl", {}, rows.map(([keys, words]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, words)]))))),
    button("Close", "", () => help.close()));
  return {
    node: make("div", {}, code, help),
    showHelp: () => help.open || help.showModal(),
    showCode: (text, title) => {
      code.querySelector("h2").textContent = title ?? "The same in Python";
      lines.textContent = text;
      copied.textContent = "";
      if (!code.open) code.showModal();
    },
  };
}

function dialog(title, ...content) {
  const heading = `ex-${title.replace(/\W/g, "")}-${Math.round(1e9 * Math.random())}`;
  return make("dialog", { "aria-labelledby": heading, onclick: event => { if (event.target === event.currentTarget) event.currentTarget.close(); } },
    make("div", { class: "ex-dialog" }, make("h2", { id: heading }, title), ...content));
}

/** Copy a text; where the browser forbids it, select its element for the user to copy. */
async function copyText(node, text, said) {
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = "copied";
  } catch {
    if (node.select) node.select();
    else getSelection().selectAllChildren(node);
    said.textContent = "selected: press Ctrl C";
  }
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
