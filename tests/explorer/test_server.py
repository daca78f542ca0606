"""The server: who may come in, what is refused, and that nothing changes by it."""

import json
import secrets
from contextlib import suppress
from socket import SHUT_RDWR, create_connection
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from icl_mech.errors import RunError
from icl_mech.explorer import Server
from tests.explorer.cases import opened, serving
from tests.patience import seconds, until
from tests.said import Words

websockets = pytest.importorskip("websockets")
from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def served():
    view = opened()
    with serving(view) as server:
        yield view, server
    view.close()


def socket(server, token=None, origin=None, **more):
    return connect(
        f"ws://127.0.0.1:{server.port}/ws?token={server.token if token is None else token}",
        origin=origin or f"http://127.0.0.1:{server.port}",
        open_timeout=seconds(30),
        **more,
    )


def talk(server, text, **how):
    with socket(server, **how) as own:
        own.send(text)
        own.recv(timeout=seconds(30))


def status(url, **headers):
    try:
        with urlopen(Request(url, headers=headers), timeout=seconds(30)) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


def test_the_page_needs_its_token(served):
    _, server = served
    code, headers, text = status(server.url)
    assert code == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    nonce = policy.split("'nonce-")[1].split("'")[0]
    assert text.count(f'nonce="{nonce}"') == 2
    assert status(server.url)[1]["content-security-policy"] != policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert server.token not in text
    assert "set-cookie" not in headers
    bare = f"http://127.0.0.1:{server.port}/"
    for url in (
        bare,
        f"{bare}?token=",
        f"{bare}?token={secrets.token_urlsafe(24)}",
        f"{bare}?token=%C3%A9",
    ):
        code, _, text = status(url)
        assert code == 403
        assert "icl-explore" not in text
    assert status(f"{bare}favicon.ico")[0] == 404


def test_another_name_for_this_machine_is_refused(served):
    _, server = served
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1"):
        assert status(server.url, Host=host)[0] == 403
    assert status(server.url, Host=f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize(
    "how",
    [
        {"token": ""},
        {"token": "wrong"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1"},
    ],
    ids=str,
)
def test_a_socket_without_the_right_to_be_here(served, how):
    view, server = served
    before = view.session.generation
    with pytest.raises((InvalidStatus, ConnectionClosed)):
        talk(server, json.dumps({"do": "flip", "demo": 0}), **how)
    assert view.session.generation == before


def hear(own, kind):
    while True:
        message = json.loads(own.recv(timeout=seconds(60)))
        if message["kind"] == kind:
            return message


def test_messages_that_are_none(served):
    view, server = served
    before = view.session.history.now
    with socket(server) as own:
        for text, said in (
            ("{", "no JSON"),
            ("[]", "name"),
            ('{"do": "explode"}', "no action"),
            (json.dumps({"do": "edit", "demo": 0, "text": "a" * 19_000}), "at most 8000"),
            (json.dumps({"do": "edit", "demo": 0, "text": "a" * 110_000}), "at most 100000"),
        ):
            own.send(text)
            WORDS(hear(own, "error")["text"], said)
    with pytest.raises(ConnectionClosed):
        talk(server, "a" * 2_000_000)
    assert view.session.history.now == before


def test_two_pages_see_one_state_and_a_reload_keeps_it(served):
    view, server = served
    with socket(server, max_size=2**24) as one, socket(server, max_size=2**24) as other:
        one.send(json.dumps({"do": "flip", "demo": 0, "seq": 7}))
        first, second = hear(one, "state"), hear(other, "state")
        assert first == second
        assert first["seq"] == 7
    with socket(server, max_size=2**24) as again:
        again.send(json.dumps({"do": "hello", "version": 1}))
        state = hear(again, "state")
        assert state["demos"] == first["demos"]
        assert hear(again, "part")["part"] == "now"
        hostile = "<script>alert(1)</script> \u202eevil <img src=x onerror=alert(1)>"
        again.send(json.dumps({"do": "edit", "demo": 0, "text": hostile}))
        assert hear(again, "state")["demos"][0]["text"] == hostile
    view.do("reset")


def test_a_taken_port_is_said(served):
    view, server = served
    with WORDS.raises(RunError, "taken_port", server.port):
        Server(view.session, server.port)


def test_the_address_can_be_that_of_before(served):
    view, server = served
    again = Server(view.session, 0, server.token)
    assert again.url.endswith(server.token)
    again.socket.close()


def test_a_message_of_bytes_and_pages_that_go_away(served, caplog):
    view, server = served
    with socket(server) as own:
        own.send(b"\x00")
        WORDS(hear(own, "error")["text"], "bytes")
        own.send('{"do": "explode"}')  # the page goes on
        hear(own, "error")
    for _ in range(3):
        with suppress(ConnectionClosed, OSError), socket(server) as gone:
            for _ in range(20):
                gone.send('{"do": "hello"}')
            gone.socket.shutdown(SHUT_RDWR)
    talk(server, '{"do": "hello"}')
    until(lambda: not view.session._listeners, 30, "the pages to be gone")
    # The client of this test may complain of the socket that was taken from it.
    raised = [record for record in caplog.records if record.exc_info]
    assert not [record for record in raised if record.name != "websockets.client"]


def test_who_reads_the_address_is_not_refused(served):
    view, _ = served
    server = Server(view.session)
    with create_connection(("127.0.0.1", server.port), seconds(10)):
        server.socket.close()


def test_a_port_that_cannot_be(served):
    with WORDS.raises(RunError, "no_port", 70_000):
        Server(served[0].session, 70_000)
