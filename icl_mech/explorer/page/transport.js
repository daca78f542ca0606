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
const STRONGEST = 7;  // tokens that get an arc
const DECADES = 4;  // of saliency that the codes 1 to 255 span

// -- Transports: {send(object), listen(callback), status(callback)} --

const HELLO = { do: "hello", version: VERSION, seq: 0, look: { layer: 0, token: null, mode: "roles" } };

/** Over a websocket that reconnects automatically; every connection starts with `hello`. */
export function socketTransport(url) {
  let socket = null, wait = 250, heard = () => {}, told = () => {};
  function connect() {
    socket = new WebSocket(url);
    socket.onopen = () => {
      wait = 250;
      told("open");
      socket.send(JSON.stringify(HELLO));
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

export default {
  render({ model, el }) {
    return mount(el, widgetTransport(model));
  },
};
