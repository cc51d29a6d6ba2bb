"""Limits of the server that are no part of HTTP: how much at a time, how often, how long without a word."""

from __future__ import annotations

import email.utils
import re
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

APPLICATION = """
import asyncio, json, time

LARGE = 8 << 20

gone = []

async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": str(len(message.get("text") or message["bytes"]))})
        gone.append(message["code"])
    elif scope["type"] == "http":
        if scope["path"].startswith("/slow"):
            await asyncio.sleep(1)
        body = bytes(LARGE) if scope["path"] == "/slow-large" else json.dumps(gone).encode()
        await send({"type": "http.response.start", "status": 200,
                    "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

def wsgi(environ, start_response):
    if environ["PATH_INFO"].startswith("/slow"):
        time.sleep(1)
    body = bytes(LARGE) if environ["PATH_INFO"] == "/slow-large" else b"ok"
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits")
    folder.joinpath("limited.py").write_text(APPLICATION)
    return folder


BLOCKING = """
import time

async def app(scope, receive, send):
    if scope["type"] == "http":
        time.sleep(float(scope["query_string"] or b"0"))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

class Answer:
    def __iter__(self):
        yield b"ok"
    def close(self):
        pass

def wsgi(environ, start_response):
    time.sleep(float(environ["QUERY_STRING"] or "0"))
    start_response("200 OK", [("Content-Length", "2")])
    return Answer()
"""


@pytest.mark.parametrize(
    "words",
    [
        ("blocking:app",),
        ("blocking:wsgi", "--interface", "wsgi"),
        ("blocking:wsgi", "--interface", "wsgi", "--concurrency", "threads", "--threads", "4"),
    ],
    ids=["asgi", "wsgi", "wsgi-threads"],
)
def test_an_answer_does_not_wait_for_the_next_request(serve, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Answers are sent together, but not for the price of waiting for an application that blocks its thread."""
    tmp_path.joinpath("blocking.py").write_text(BLOCKING)
    with serve(words[0], tmp_path, *words[1:]) as running, ExitStack() as stack:
        busy, quick, slow = (
            stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10))
            for _ in range(3)
        )
        ahead = []
        for _ in range(4):
            for client, query in [(busy, b"0.1"), (quick, b""), (slow, b"0.1")]:
                client.sendall(b"GET /?" + query + b" HTTP/1.1\r\nHost: a\r\n\r\n")
                time.sleep(0.02)
            assert quick.recv(1000).endswith(b"ok")
            answered = time.monotonic()
            assert slow.recv(1000).endswith(b"ok")
            ahead.append(time.monotonic() - answered)
            assert busy.recv(1000).endswith(b"ok")
        assert min(ahead) > 0.05, ahead


def test_requests_in_flight(serve, folder: Path) -> None:
    """Beyond the limit: 503 with Retry-After, without the application, and room again when one is done."""
    with serve("limited:app", folder, "--in-flight", "3") as running, ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10))
            for _ in range(3)
        ]
        for client in slow:
            client.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.3)
        status, fields, body = running.ask("GET", "/")
        assert (status, fields["retry-after"], body) == (503, "1", b"too many requests at a time")
        assert fields["connection"] == "close"
        for client in slow:
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert running.ask("GET", "/")[0] == 200
        # Those whose client has gone count until the application is done with them.
        for client in slow:
            client.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.2)
        for client in slow:
            client.close()
        assert running.ask("GET", "/")[0] == 503
        deadline = time.monotonic() + 10
        while running.ask("GET", "/")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_many_short_requests_are_never_too_many(serve, folder: Path) -> None:
    """Each leaves the count, whatever ended it: an answer, a refusal, a WebSocket."""
    with serve("limited:app", folder, "--in-flight", "2", "--body-size", "10") as running:
        for _ in range(5):
            assert running.ask("GET", "/")[0] == 200
            assert running.ask("POST", "/", b"x" * 11)[0] == 413
        with ExitStack() as stack:
            url = f"ws://127.0.0.1:{running.port}/"
            sockets = [stack.enter_context(connect(url)) for _ in range(5)]
            for each in sockets:
                each.send("abc")
                assert each.recv(10) == "3"
            assert running.ask("GET", "/")[0] == 200


@pytest.mark.parametrize("attribute", ["app", "wsgi"])
def test_requests_of_one_connection(serve, folder: Path, attribute: str) -> None:
    with (
        serve(f"limited:{attribute}", folder, "--requests-per-connection", "3") as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 4)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.count(b"HTTP/1.1 200 ") == 3
        assert answer.count(b"connection: close") == 1


def test_the_size_of_web_socket_messages(serve, folder: Path) -> None:
    with (
        serve("limited:app", folder, "--websocket-message-size", "1000") as running,
        connect(f"ws://127.0.0.1:{running.port}/") as client,
    ):
        client.send("x" * 1000)
        assert client.recv(10) == "1000"
        with pytest.raises(ConnectionClosed) as closed:
            client.send("x" * 1001)
            client.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_silent_web_sockets(serve, folder: Path) -> None:
    """One that answers pings stays; one that does not is closed, and its application told."""
    with serve("limited:app", folder, "--websocket-ping", "0.3") as running:
        handshake = (
            b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        with (
            connect(f"ws://127.0.0.1:{running.port}/", ping_interval=None) as alive,
            socket.create_connection(("127.0.0.1", running.port), timeout=10) as deaf,
        ):
            deaf.sendall(handshake)
            began = time.monotonic()
            got = b"".join(iter(lambda: deaf.recv(65536), b""))
            assert 0.3 < time.monotonic() - began < 5
            assert got.partition(b"\r\n\r\n")[2] == b"\x89\x00"
            assert running.ask("GET", "/")[2] == b"[1006]"
            time.sleep(1)
            alive.send("still here")
            assert alive.recv(10) == "10"


@pytest.mark.parametrize(
    "arguments",
    [["limited:app"], ["limited:wsgi"], ["limited:wsgi", "--concurrency", "threads"]],
    ids=["asgi", "inline", "threads"],
)
def test_the_time_that_an_application_takes_is_not_its_client_s(
    serve, folder: Path, arguments: list[str]
) -> None:
    """An answer's Date, the time to take it in, and that to send the next request count from the answer on."""
    name, *options = arguments
    limits = ["--keep-alive", "0.8", "--write-timeout", "0.8"]
    with serve(name, folder, *options, *limits) as running:
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
            earliest = int(time.time() + 1)
            client.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            head = client.recv(65536)
            date = email.utils.parsedate_to_datetime(re.search(rb"date: (.*?)\r\n", head)[1].decode())
            assert date.timestamp() >= earliest
            time.sleep(0.3)
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.settimeout(10)
            client.connect(("127.0.0.1", running.port))
            client.sendall(b"GET /slow-large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            client.recv(1)
            time.sleep(0.4)
            size = sum(len(part) for part in iter(lambda: client.recv(1 << 20), b""))
            assert size > 8 << 20
