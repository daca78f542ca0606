// -- The page --

/** The part of the view that Python has to know, to measure what is on show first. */
function onShow({ layer, token, mode, calibrated, lens, heads, rows }) {
  return { layer, token, mode, calibrated, heads, rows, board: true, pair: lens === "pair", prior: lens !== "pair" };
}

/** Show the explorer in an element; returns a function that removes it. */
export function mount(el, transport) {
  const root = make("div", { class: "icl-explore", tabindex: -1, role: "region", "aria-label": "Explore in-context learning" });
  const app = {
    root, transport, state: null, parts: {}, fresh: new Set(), attention: null, attending: null, preview: null, set: null, board: new Map(), tried: null, progress: null,
    busy: null, link: "trying", pending: null, slow: false, seq: 0, says: {}, lastPlace: "prompt",
    look: {
      layer: null, token: null, mode: "roles", calibrated: false, kind: null, demo: null, row: null, all: true, flow: "shares", lens: "classes", sort: "order", class: null,
      heads: "logit", rows: false, each: false,
    },
  };

  app.act = (what, fields = {}, place = "prompt") => {
    app.lastPlace = place;
    if (app.link !== "open") return app.tell(place, "Not connected: nothing was sent.", true);
    app.says = {};
    app.seq += 1;
    app.pending = app.seq;
    const sent = app.seq;
    setTimeout(() => { if (app.pending === sent) { app.slow = true; app.draw("header"); } }, PATIENCE);
    transport.send({ do: what, seq: sent, look: onShow(app.look), ...fields });
    return undefined;
  };
  /** Say what is now on show, which makes no new state. */
  app.looked = () => {
    if (app.link !== "open") return;
    app.seq += 1;
    transport.send({ do: "look", seq: app.seq, look: onShow(app.look) });
  };
  /** Show a sentence in the section it concerns: prompt, answer, set or layers. */
  app.tell = (place, text, wrong = false) => {
    app.says[place] = { text, wrong };
    app.draw(place);
  };
  app.focused = () => root.getRootNode().activeElement;

  // Drawing is batched into the next frame.
  const waiting = new Set();
  let frame = null;
  app.draw = (...names) => {
    names.forEach(name => waiting.add(name));
    frame ??= requestAnimationFrame(() => {
      frame = null;
      const due = [...waiting];
      waiting.clear();
      const began = performance.now();
      keepFocus(app, () => due.filter(name => app.state || name === "header").forEach(name => views[name].draw()));
      freeze(app);
      // Read by benchmarks.
      root.dataset.redraw = (performance.now() - began).toFixed(1);
    });
  };
  app.drawAll = () => app.draw("header", "tour", "prompt", "answer", "set", "layers");

  const views = {};
  app.dialogs = dialogs(app);
  app.tip = tooltip(root);
  app.share = shareView(app);
  Object.assign(views, {
    header: headerView(app), tour: tourView(app), prompt: promptView(app), answer: answerView(app), set: boardView(app), layers: layersView(app), share: app.share,
  });
  app.tour = views.tour.start;
  root.append(
    make("div", { class: "ex-page" },
      views.header.node, views.tour.node,
      make("div", { class: "ex-main" },
        make("div", { class: "ex-left" }, views.prompt.node, views.answer.node, views.set.node),
        make("div", { class: "ex-right" }, views.layers.node))),
    app.dialogs.node, app.share.node, app.tip.node);
  el.append(root);

  const ends = [theme(app), keyboard(app), app.share.end];
  const sized = new ResizeObserver(() => app.draw("answer", "layers", "prompt", "set"));
  sized.observe(root);
  const above = new ResizeObserver(() => root.style.setProperty("--above", `${views.header.node.offsetHeight + views.tour.node.offsetHeight + 16}px`));
  for (const view of [views.header, views.tour]) above.observe(view.node);
  ends.push(() => sized.disconnect(), () => above.disconnect());
  transport.status(link => {
    app.link = link;
    if (link === "open" && app.state) app.looked();
    app.draw("header");
    if (link === "open") app.share.openAddress();
  });
  const unlisten = transport.listen(message => hear(app, message));
  if (unlisten) ends.push(unlisten);
  app.draw("header");
  if (transport.alone) {
    root.classList.add("ex-alone");
    root.focus({ preventScroll: true });
  }
  return () => {
    ends.forEach(end => end());
    root.remove();
  };
}

/** A redrawn element keeps the focus by its key; if it is gone, hidden or disabled, the page gets the focus, so that keys still work. */
function keepFocus(app, draw) {
  const held = app.focused(), inside = held && app.root.contains(held);
  draw();
  const now = app.focused();
  if (!inside || (app.root.contains(now) && !now.disabled && now.checkVisibility())) return;
  const again = [...app.root.querySelectorAll("[data-key]")].find(own => own.dataset.key === held.dataset.key && !own.disabled && own.checkVisibility());
  (again ?? app.root).focus({ preventScroll: true });
}
