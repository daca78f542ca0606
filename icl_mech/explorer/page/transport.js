/* The live explorer: one page for the notebook widget and for the browser.

   Python holds the experiment (demonstrations, query, changes); this page holds the view (cursor, token, mode) and
   draws what Python sends. Texts reach the page as text nodes only, styles through the object model, so that a
   strict content security policy holds and a hostile text stays text. */

const VERSION = 1;
const LONGEST_TEXT = 8000;
const PATIENCE = 2000;  // milliseconds without an answer after which the page says that the kernel is busy
const CLICK = 5;  // pixels that a pointer may move and still click
const LONGEST_ANSWER = 200;  // characters of a typed answer
const MENU_FROM = 5;  // number of classes from which a click on a label word opens a menu instead of showing the next class
const WIDE = 900;  // pixels from which prompt and layers stand side by side
const STRONGEST = 7;  // tokens that get an arc
const DECADES = 4;  // of saliency that the codes 1 to 255 span

// -- Transports: {send(object), listen(callback), status(callback)} --

const HELLO = { do: "hello", version: VERSION, seq: 0, look: { layer: 0, token: null, mode: "roles", board: true, pair: false, prior: true } };

/** Over a websocket that reconnects automatically; every connection starts with `hello`. */
export function socketTransport(url) {
  let socket = null, wait = 250, heard = () => {}, told = () => {};
  function connect() {
    socket = new WebSocket(url);
    socket.onopen = () => {
      wait = 250;
      socket.send(JSON.stringify(HELLO));
      told("open");
    };
    socket.onmessage = event => heard(JSON.parse(event.data));
    socket.onclose = () => {
      told("lost");
      wait = Math.min(wait * 2, 8000);
      setTimeout(() => { told("trying"); connect(); }, wait);
    };
  }
  return {
    alone: true,
    busy: "no answer yet",
    send: message => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message)); },
    status: callback => { told = callback; },
    listen: callback => {
      heard = callback;
      connect();
      return () => {
        socket.onclose = null;
        socket.close();
      };
    },
  };
}

/** Over the comm of a notebook widget. */
function widgetTransport(model) {
  let told = () => {};
  return {
    busy: "the kernel is busy with a cell",
    send: message => model.send(message),
    status: callback => { told = callback; },
    listen: callback => {
      const heard = message => callback(message);
      model.on("msg:custom", heard);
      model.on("comm:close", () => told("lost"));
      told("open");
      (model.get("first") ?? []).forEach(heard);  // a kernel that runs further cells answers only after them
      model.send(HELLO);
      return () => model.off("msg:custom", heard);
    },
  };
}

/** From the stored messages of a saved page, with no Python behind it; `command` opens it live, `FILE` being the page. */
export function replayTransport(text, command) {
  const file = decodeURIComponent(location.pathname.split("/").at(-1)) || "FILE";
  const live = `This is a saved page, and that needs the model. Open it live: ${command.replace("FILE", () => /^[\w.-]+$/.test(file) ? file : `'${file}'`)}`;
  let saved = null, past = [0], future = [], reference = null, attended = "", gen = 0, told = () => {}, heard = () => {};
  const now = () => saved.states[past.at(-1)];

  const part = (name, number) => {
    if (number == null) return;
    const { maps, ...data } = saved.pool[number];
    heard({ kind: "part", gen, part: name, data: maps ? { ...data, maps: saved.maps.subarray(maps[0], maps[0] + maps[1]) } : data });
  };

  function show(seq) {
    const { state, parts, beside } = now(), [start, ...kept] = beside, against = reference == null ? start : kept[reference];
    gen += 1;
    heard({
      ...state, kind: "state", version: VERSION, gen, seq, note: "", undo: past.length > 1, redo: future.length > 0,
      compared: against.now !== parts.now,  // equal experiments share their numbers
      reference: { index: reference, name: reference == null ? "start" : state.named[reference].name },
    });
    Object.entries(parts).filter(([name]) => name !== "board").forEach(([name, number]) => part(name.split(" ")[0], number));
    Object.entries({ ref: against.now, refcal: against.cal, refflow: against.flow }).forEach(([name, number]) => part(name, number));
    kept.forEach((own, i) => part(`kept${i}`, own.now));
    part("attention", now().attention[attended]);
    const rows = number => saved.pool[number]?.rows ?? [], before = rows(against.board);
    heard({ kind: "board", gen, of: state.n, done: true, rows: rows(parts.board).map((now, q) => ({ q, before: before[q], now })) });
  }

  function step(to) {
    if (past.at(-1) !== to) {
      past.push(to);
      future = [];
    }
  }

  const moves = {
    undo: () => { if (past.length > 1) future.push(past.pop()); },
    redo: () => { if (future.length) past.push(future.pop()); },
    reset: () => step(1),
    restore: ({ index }) => step(2 + index),
    reference: ({ index }) => { reference = index; },
    hello: () => {},
  };
  const answers = {
    share: () => ({ kind: "shared", ...now().shared }),
    code: () => ({ kind: "code", code: now().code }),
    finding: () => ({ kind: "code", title: "As a finding", code: now().finding }),
    attend: ({ layer, head }) => { attended = `attention ${layer} ${head}`; if (layer != null) part("attention", now().attention[`attention ${layer} ${head}`]); return null; },
    look: () => null,
  };

  function answer(message) {
    const { do: what, layer, head } = message;
    if (moves[what]) {
      moves[what](message);
      show(message.seq);
    } else if (what === "finding" && (!now().finding || reference !== saved.reference)) {
      heard({ kind: "error", text: "This page has no test of this comparison: " + live });
    } else if (!answers[what] || (what === "attend" && layer != null && !(`attention ${layer} ${head}` in now().attention))) {
      heard({ kind: "error", text: live });
    } else {
      const found = answers[what](message);
      if (found) heard(found);
    }
  }

  return {
    alone: true,
    saved: true,
    send: message => setTimeout(() => answer(message)),
    status: callback => { told = callback; },
    listen: callback => {
      heard = callback;
      unpacked(text).then(found => {
        saved = found;
        reference = found.reference;
        told("open");
        show(0);
      });
    },
  };
}

/** JSON, a zero, and the maps behind it. */
async function unpacked(text) {
  const packed = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const all = new Uint8Array(await new Response(packed).arrayBuffer()), end = all.indexOf(0);
  return { ...JSON.parse(new TextDecoder().decode(all.subarray(0, end))), maps: all.subarray(end + 1) };
}

export default {
  render({ model, el }) {
    return mount(el, widgetTransport(model));
  },
};
