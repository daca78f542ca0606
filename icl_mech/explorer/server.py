"""`Server`: the explorer as a page in the browser, from a server that only this machine can reach.

The server is bound to the loopback address. The printed address holds a random token, which every request needs
(not a cookie: cookies are sent to every server of this machine, whatever its port and whoever runs it). `Host` must
be the loopback address (no other name that resolves to it), and `Origin` of the socket the page's own. The page may
load nothing else, and sends its address to no other site.
"""

import asyncio
import json
import logging
import os
import secrets
import socket
import threading
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

from icl_mech.errors import RunError
from icl_mech.explorer.session import LONGEST, Session
from icl_mech.explorer.theme import css, module

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import Response
    from starlette.websockets import WebSocket

HOST = "127.0.0.1"

REFUSED = 4403
"""Close code for an unauthorised socket."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Explore: {title}</title>
<style nonce="{nonce}">body {{ margin: 0 }}
{css}</style></head>
<body><main id="explore"></main>
<script type="module" nonce="{nonce}">{module}
mount(document.getElementById("explore"), socketTransport("ws://" + location.host + "/ws" + location.search));
</script></body></html>
"""


def page(session: Session, nonce: str) -> str:
    """The page as one self-contained HTML document."""
    title = f"{session.asker.stage.task.name}, {session.asker.stage.info.name}"
    return _PAGE.format(title=escape(title), css=css(), module=module(), nonce=nonce)


def application(session: Session, token: str, port: int) -> "Starlette":
    """The web application that answers requests.

    Args:
        session: The session to show.
        token: Token that every request needs.
        port: Port on which it is reached.
    """
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, PlainTextResponse
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocketDisconnect

    hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    def allowed(request: "HTTPConnection") -> bool:
        given = request.query_params.get("token", "").encode()
        known = secrets.compare_digest(given, token.encode())
        return request.headers.get("host") in hosts and known

    async def shown(request: "Request") -> "Response":
        if not allowed(request):
            text = "This page opens only at the address that was printed at its start, including the token."
            return PlainTextResponse(text, 403, headers=_HEADERS)
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}' 'unsafe-inline'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {**_HEADERS, "Content-Security-Policy": policy}
        return HTMLResponse(page(session, nonce), headers=headers)

    async def talked(websocket: "WebSocket") -> None:
        origin = websocket.headers.get("origin")
        if not allowed(websocket) or origin not in {f"http://{host}" for host in hosts}:
            await websocket.close(REFUSED)
            return
        with suppress(WebSocketDisconnect):  # the page disconnected at once
            await websocket.accept()
            await _talk(session, websocket)

    return Starlette(routes=[Route("/", shown), WebSocketRoute("/ws", talked)])


_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


async def _talk(session: Session, websocket: "WebSocket") -> None:
    """Exchange messages with one page until it disconnects."""
    loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
    out: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(message: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(out.put_nowait, message)

    async def sending() -> None:
        while True:
            await websocket.send_text(json.dumps(await out.get()))

    session.join(send)
    sender = asyncio.create_task(sending())
    try:
        # Not `iter_text`: it raises on bytes, and on a page that disconnects while it is answered.
        while (received := await websocket.receive())["type"] != "websocket.disconnect":
            text = received.get("text")
            if text is None:
                send(_error("The message is binary; expected JSON as text."))
                continue
            if len(text) > LONGEST:
                send(_error(f"The message has {len(text)} characters; at most {LONGEST} are read."))
                continue
            try:
                message = json.loads(text)
            except (ValueError, RecursionError):
                send(_error("The message is not JSON."))
                continue
            # Building a prompt takes a moment, and the lock may be taken.
            try:
                await loop.run_in_executor(None, session.do, message, send)
            except Exception as error:  # such as a full disk: the page stays open and reports it
                logging.getLogger(__name__).exception("an action failed")
                send(_error(f"{type(error).__name__}: {error}"))
    finally:
        session.leave(send)
        sender.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await sender


def _error(text: str) -> dict[str, Any]:
    return {"kind": "error", "gen": None, "text": text}


class Server:
    """The explorer's page on a port of this machine; `url` holds its token."""

    def __init__(self, session: Session, port: int = 0, token: str | None = None) -> None:
        """Bind a port.

        Args:
            session: The session to show.
            port: Number of the port; 0: a free one.
            token: Token of the address; None: a new one.

        Raises:
            RunError: the libraries are missing, or the port is taken.
        """
        try:
            import uvicorn
        except ImportError:
            raise RunError(
                "A page in the browser needs starlette, uvicorn and websockets: pip install starlette "
                "uvicorn websockets"
            ) from None
        self.socket = socket.socket()
        if (
            os.name == "posix"
        ):  # a restarted server gets its port at once; elsewhere the option shares it
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((HOST, port))
            self.socket.listen()  # a page may connect at once: its first requests wait
        except (OSError, OverflowError) as error:
            self.socket.close()
            raise RunError(
                f"Port {port} cannot be used ({error}); give another, or 0 for a free one."
            ) from None
        self.port, self.token = self.socket.getsockname()[1], token or secrets.token_urlsafe(24)
        made = application(session, self.token, self.port)
        config = uvicorn.Config(
            made,
            log_level="warning",
            ws="websockets-sansio",
            ws_max_size=8 * LONGEST,
            lifespan="off",
        )
        self.server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def run(self) -> None:
        """Serve until stopped."""
        self.server.run(sockets=[self.socket])

    def start(self) -> threading.Thread:
        """Serve in a separate thread."""
        thread = threading.Thread(target=self.run, name="icl-mech explore server", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        """Stop serving."""
        self.server.should_exit = True
