// -- Prompt: by role, or by what one token reads --

function promptView(app) {
  const { look } = app;
  const modes = segmented("What the colours show", [
    ["roles", "Roles", "The role of each token"],
    ["into", "Reads", "What the chosen token reads at the cursor’s layer"],
    ["out", "Read by", "What reads the chosen token at the cursor’s layer"],
  ], setMode);
  const source = make("button", { type: "button", class: "ex-source", title: "Back to saliency", onclick: () => app.attend(null) });
  const add = button("+ Add", "Add another demonstration from the task (a)", () => app.act("add"), { "data-live": true });
  const flip = button("", "", () => app.act("flip_all"), { "data-live": true });
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
      const kind = state.texts ? "query" : token.d ?? (found.some(own => typeof own.kind === "number") || !state.demos.length ? "query" : "before");
      if (found.at(-1)?.kind !== kind) found.push({ kind, tokens: [] });
      found.at(-1).tokens.push(i);
    });
    return found;
  }

  /** Pin the query to the foot of the box if demonstrations keep most of it. */
  function pin() {
    const query = text.querySelector('.ex-block[data-kind="query"]');
    query?.classList.toggle("ex-pinned", box.scrollHeight > box.clientHeight + 1 && query.offsetHeight < 0.7 * box.clientHeight);
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
    const name = kind === "query" ? (state.texts ? "" : "?") : kind === "before" ? "" : String(demo + 1);
    const number = demo == null ? make("span", { class: "ex-number", "aria-hidden": "true" }, name)
      : make("button", { class: "ex-number", type: "button", tabindex: -1, title: `Choose demonstration ${name}`, onclick: () => chooseDemo(demo) }, name);
    const tools = demo != null ? demoTools(state, demo) : kind === "query" ? queryTools() : null;
    return make("div", { class: "ex-block", "data-demo": demo, "data-kind": demo == null ? kind : "demo" }, number,
      make("div", { class: "ex-tokens" }, members.map((i, place) => tokenNodes(state, i, members.slice(place + 1).every(k => /^\n*$/.test(state.tokens[k].t))))), tools);
  }

  function tool(sign, words, act) {
    return make("button", { type: "button", tabindex: -1, title: words, "aria-label": words, "data-live": true, onclick: act }, sign);
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
    return make("span", { class: "ex-tools" }, tool("✎", `Enter your own ${itemName(app.state)} (e)`, editQuery));
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
    }, token.t === "" ? make("span", { class: "ex-part", "aria-hidden": "true" }, "·")
      : begins ? [token.t.startsWith(" ") && make("span", { class: "ex-lead", "aria-hidden": "true" }, "␣"), pieces(token.t.replace(/^ /, "") || "␣", last)] : pieces(token.t, last));
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
    const place = demo ? `, demonstration ${token.d + 1}` : state.texts && token.d != null ? `, span ${token.d + 1}` : "";
    const wrong = demo && token.r === "label_word" && demo.shown !== demo.true ? `, false, the true ${spoken("label", state)} is ${wordsOf(state, demo)[demo.true]}` : "";
    return `${token.t === "" ? `part of ${whole(state, i)}` : visible(token.t)}, ${roleName(token.r, state)}${place}${wrong}`;
  }

  /** The character that a token without text is a part of: the tokenizer splits its bytes. */
  function whole(state, i) {
    const first = state.tokens.findLastIndex((token, k) => k < i && token.t !== "");
    return first < 0 ? "a character" : [...visible(state.tokens[first].t)].at(-1);
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
    add.hidden = Boolean(state.texts);
    const short = app.root.clientWidth < 1240;
    flip.textContent = allTrue ? (short ? "Flip all" : spoken("Flip all labels", state)) : short ? "All true" : spoken("All labels true", state);
    flip.title = spoken("All labels false, or all true again (f)", state);
    modes.choose(app.preview?.mode ?? look.mode);
    pin();
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
    tokens.forEach((own, i) => own.classList.toggle("ex-of-span", Boolean(picks && state.texts && look.demo != null && state.tokens[i].d === look.demo)));
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
    const pinned = text.querySelector(".ex-pinned"), edge = tokens[0].closest(".ex-block").querySelector(".ex-tokens").getBoundingClientRect().left - frame.left;
    const place = i => {
      const own = tokens[i].getClientRects()[0], covered = pinned && !pinned.contains(tokens[i]) ? pinned.getBoundingClientRect().top : Infinity;
      return { x: own.left - frame.left + Math.min(7, own.width / 2), y: Math.min(own.bottom, covered) - frame.top + box.scrollTop + 1.5 };
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
    mass.setAttribute("aria-label", `Colours: ${there.map(role => roleName(role, state)).join(", ")}`);
    mass.replaceChildren(...there.map(role => make("span", { class: `ex-${role}` }, roleName(role, state))));
  }

  function hint(state) {
    if (!state.labels.length || state.texts) return "Choose a token to see what it reads.";
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
    const finish = () => { const string = app.state.texts ? area.value : area.value.trim(); close(); if (string.trim()) done(string); };
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
    const { query, open, texts } = app.state, labels = texts ? [] : app.state.labels, block = text.querySelector('.ex-block[data-kind="query"]');
    const answer = open ? make("input", { type: "text", class: "ex-typed", maxlength: LONGEST_ANSWER, "aria-label": "Right answer", value: query.words[0] })
      : make("select", { "aria-label": "True answer" }, labels.map((label, i) => make("option", { value: i, selected: i === query.answer }, label.trim())));
    const more = labels.length ? [make("label", {}, open ? "right answer " : "true answer ", answer)] : [];
    editor(block, query.text, `Your own ${itemName(app.state)}`, string => {
      const to = open ? answer.value.trim() : labels.length ? Number(answer.value) : texts ? 0 : null;
      if (string !== query.text || to !== (open ? query.words[0] : query.answer)) app.act("ask", { text: string, answer: to });
    }, more);
  }

  // Pointer and keys

  new ResizeObserver(pin).observe(box);
  box.addEventListener("scroll", () => look.mode !== "roles" && app.draw("prompt"));

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

  /** Focus the next label word (or the one before), from the focused token. */
  app.nextLabel = step => {
    const { tokens: every } = app.state, begins = every.map((token, i) => i).filter(i => every[i].r === "label_word" && every[i].d != null && every[i - 1]?.r !== "label_word");
    const here = focusedToken() ?? (step > 0 ? -1 : every.length), rest = begins.filter(i => (i - here) * step > 0);
    const to = step > 0 ? rest[0] ?? begins[0] : rest.at(-1) ?? begins.at(-1);
    if (to != null) walk(to);
  };

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
    else if (hop && event.altKey && demo != null && !app.state.texts) app.act("move", { demo, by: hop });
    else if (hop) walk(neighbour(i, hop));
    else if (event.key === "Home") walk(0);
    else if (event.key === "End") walk(tokens.length - 1);
    else if (event.key === "Enter" || event.key === " ") choose(i, event.altKey || event.shiftKey);
    else if (event.key === "Escape" && look.mode !== "roles") setMode("roles");
    else if (event.key === "e") demo == null || app.state.texts ? editQuery() : editDemo(demo);
    else if (event.key === "Delete" && demo != null && !app.state.texts) app.act("drop", { demo });
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  return { node, draw: () => withPreview(app, draw) };
}
