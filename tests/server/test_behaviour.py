"""The server as a client sees it on the wire, byte by byte, and as an ASGI application sees it."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

APPLICATION = """
import asyncio, contextvars, json, logging, resource

variable = contextvars.ContextVar("variable", default=0)
events = []

async def read(receive):
    body, count = b"", 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            events.append("disconnect while reading")
            return None
        body += message["body"]
        count += 1
        if not message["more_body"]:
            return body

async def answer(send, body, status=200, headers=()):
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        scope["state"]["seen"] = 0
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    path = scope["path"]
    if path == "/late":
        # Requests behind one another end in the reverse order.
        await asyncio.sleep(float(scope["query_string"]))
        await answer(send, scope["query_string"])
    elif path == "/echo":
        body = await read(receive)
        if body is not None:
            await answer(send, body)
    elif path == "/unread":
        await answer(send, b"I did not look")
    elif path == "/wait":
        waiting = asyncio.create_task(receive())
        message = await asyncio.wait_for(waiting, 20)
        assert message["type"] == "http.request"
        message = await asyncio.wait_for(receive(), 20)
        events.append(message["type"])
    elif path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sent = 0
        try:
            for _ in range(3000):
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                sent += 1
        finally:
            events.append(f"sent {sent < 3000}")
        await send({"type": "http.response.body", "body": b""})
    elif path == "/pieces":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(3):
            await send({"type": "http.response.body", "body": b"%d," % number, "more_body": True})
        if scope["query_string"] == b"large":
            await send({"type": "http.response.body", "body": b"x" * 9000, "more_body": True})
        while "go on" not in events:
            await asyncio.sleep(0.02)
        events.remove("go on")
        await send({"type": "http.response.body", "body": b"end"})
    elif path == "/go-on":
        events.append("go on")
        await answer(send, b"")
    elif path == "/context":
        before = variable.get()
        variable.set(1)
        await asyncio.sleep(0)
        scope["state"]["seen"] += 1
        await answer(send, json.dumps([before, variable.get(), scope["state"]["seen"]]).encode())
    elif path == "/events":
        await answer(send, json.dumps(events).encode())
    elif path == "/memory":
        await answer(send, str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).encode())
    elif path == "/types":
        await send({"type": "http.response.start", "status": 200, "headers": ([n, v] for n, v in [(b"x-a", b"1")])})
        await send({"type": "http.response.body", "body": bytearray(b"ab"), "more_body": True})
        await send({"type": "http.response.body", "body": memoryview(b"cd")})
    elif path == "/status":
        await answer(send, b"", int(scope["query_string"]))
    elif path == "/inject":
        await answer(send, b"", 200, [(b"x-a", b"1\\r\\nx-b: 2")])
    elif path == "/body-first":
        await send({"type": "http.response.body", "body": b""})
    elif path == "/start-twice":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.start", "status": 200, "headers": []})
    elif path == "/nothing":
        pass
    elif path == "/half":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"12345", "more_body": True})
    elif path == "/long":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
        await send({"type": "http.response.body", "body": b"12345"})
    elif path == "/after":
        await answer(send, b"whole")
        try:
            await send({"type": "http.response.body", "body": b"more"})
        except RuntimeError as error:
            events.append(str(error))
"""

LIMITS = ("--head-timeout", "0.6", "--body-timeout", "0.6", "--keep-alive", "0.8", "--body-size", "4000000")


@pytest.fixture(scope="module")
def served(serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    folder = tmp_path_factory.mktemp("application")
    folder.joinpath("wire.py").write_text(APPLICATION)
    with serve("wire:app", folder, *LIMITS) as server:
        yield server
        assert server.stop(signal.SIGTERM) == 0


def connect(served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=20)


def read_all(sock: socket.socket) -> bytes:
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def exchange(served, request: bytes) -> bytes:
    """Send bytes, and read until the server closes."""
    with connect(served) as sock:
        sock.sendall(request)
        return read_all(sock)


def get(path: str, *lines: str, version: str = "1.1") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/{version}", "Host: a", *lines, "", ""]).encode()


def ask(served, path: str) -> bytes:
    return exchange(served, get(path, "Connection: close")).partition(b"\r\n\r\n")[2]


def wait_for_event(served, event: str) -> None:
    deadline = time.monotonic() + 15
    while event not in json.loads(ask(served, "/events")):
        assert time.monotonic() < deadline, f"no event {event!r}"
        time.sleep(0.05)


def test_pipelined_requests_are_answered_in_order(served) -> None:
    requests = get("/late?0.3") + get("/late?0.1") + get("/late?0") + get("/late?0.05", "Connection: close")
    answers = exchange(served, requests)
    assert re.findall(rb"\r\n\r\n([0-9.]+)", answers) == [b"0.3", b"0.1", b"0", b"0.05"]


def test_a_hundred_pipelined_requests_with_bodies(served) -> None:
    bodies = [b"%d" % number * 50 for number in range(100)]
    requests = b"".join(
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        for body in bodies
    )
    answers = exchange(served, requests + get("/unread", "Connection: close"))
    assert answers.count(b"HTTP/1.1 200 OK") == 101
    position = 0
    for body in bodies:
        position = answers.index(b"\r\n\r\n" + body, position)


def test_a_request_that_comes_byte_by_byte(served) -> None:
    request = (
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n"
    )
    with connect(served) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in request:
            sock.sendall(bytes([byte]))
            time.sleep(0.0005)
        assert read_all(sock).endswith(b"\r\n\r\nabcde")


@pytest.mark.parametrize("size", [1, 65535, 300_000, 3_000_000])
def test_bodies_both_ways(served, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    assert served.ask("POST", "/echo", body[:size])[2] == body[:size]


def test_expect_100_continue(served) -> None:
    with connect(served) as sock:
        sock.sendall(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
        )
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"body")
        assert read_all(sock).endswith(b"\r\n\r\nbody")


def test_an_answer_without_a_look_at_the_body_ends_the_connection_and_arrives(served) -> None:
    with connect(served) as sock:
        sock.sendall(
            b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 1_000_000
        )
        answer = read_all(sock)
    assert b"connection: close" in answer and answer.endswith(b"I did not look")


def test_http_1_0(served) -> None:
    assert b"connection: close" in exchange(served, get("/unread", version="1.0"))
    with connect(served) as sock:
        sock.sendall(get("/unread", "Connection: keep-alive", version="1.0"))
        assert b"connection: keep-alive" in sock.recv(1000)
        sock.sendall(get("/types", version="1.0"))
        answer = read_all(sock)
    assert b"transfer-encoding" not in answer and answer.endswith(b"\r\n\r\nabcd")


def test_bytes_like_bodies_and_headers_from_a_generator(served) -> None:
    answer = exchange(served, get("/types", "Connection: close"))
    assert b"\r\nx-a: 1\r\n" in answer
    assert answer.endswith(b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_have_no_body(served, status: int) -> None:
    head, _, body = exchange(served, get(f"/status?{status}", "Connection: close")).partition(b"\r\n\r\n")
    assert body == b"" and b"transfer-encoding" not in head and b"content-length" not in head


def test_the_client_goes_away_while_the_application_waits(served) -> None:
    with connect(served) as sock:
        sock.sendall(get("/wait"))
        time.sleep(0.1)
    wait_for_event(served, "http.disconnect")


def test_the_client_goes_away_in_the_middle_of_its_body(served) -> None:
    with connect(served) as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        time.sleep(0.1)
    wait_for_event(served, "disconnect while reading")


def test_a_client_that_does_not_read_holds_the_application_back(served) -> None:
    before = int(ask(served, "/memory"))
    with connect(served) as sock:
        sock.sendall(get("/stream"))
        time.sleep(1.0)
        assert int(ask(served, "/memory")) - before < 20_000, "200 MB are not kept for a client that sleeps"
        assert "sent True" not in json.loads(ask(served, "/events"))
    # Its leaving ends the application's work, and is no error.
    wait_for_event(served, "sent True")
    assert "ClientDisconnected" not in served.log


@pytest.mark.parametrize("query", ["", "?large"])
def test_pieces_go_out_before_the_application_waits(served, query: str) -> None:
    with connect(served) as sock:
        sock.sendall(get("/pieces" + query, "Connection: close"))
        expected = b"2\r\n0,\r\n2\r\n1,\r\n2\r\n2,\r\n"
        if query:
            expected += b"2328\r\n" + b"x" * 9000 + b"\r\n"
        got = sock.recv(65536)
        while not got.endswith(expected):
            got += sock.recv(65536)
        ask(served, "/go-on")
        assert read_all(sock) == b"3\r\nend\r\n0\r\n\r\n"


def test_a_slow_reader_gets_everything(served) -> None:
    with connect(served) as sock:
        sock.sendall(get("/stream", "Connection: close"))
        total = 0
        while piece := sock.recv(1 << 20):
            total += len(piece)
    assert total > 3000 * 65536


def test_each_request_has_its_context_and_its_state(served) -> None:
    for _ in range(3):
        assert json.loads(ask(served, "/context")) == [0, 1, 1]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost", b"408"),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", b"408"),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4000001\r\n\r\n", b"413"),
        (b"GET /" + b"a" * 70_000, b"414"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70_000, b"431"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 101 + b"\r\n", b"431"),
        (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", b"505"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", b"501"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
    ],
)
def test_what_is_refused(served, request_bytes: bytes, status: bytes) -> None:
    start = time.monotonic()
    answer = exchange(served, request_bytes)
    assert answer.startswith(b"HTTP/1.1 " + status + b" ")
    assert b"connection: close" in answer
    assert time.monotonic() - start < 5


def test_an_idle_connection_is_closed(served) -> None:
    with connect(served) as sock:
        sock.sendall(get("/unread"))
        assert sock.recv(1000).endswith(b"I did not look")
        start = time.monotonic()
        assert sock.recv(1000) == b""
        assert 0.5 < time.monotonic() - start < 5


def test_a_header_cannot_split_the_answer(served) -> None:
    answer = exchange(served, get("/inject"))
    assert answer.startswith(b"HTTP/1.1 500 ") and b"x-b" not in answer


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/body-first", "Expected ASGI message 'http.response.start', but got 'http.response.body'."),
        ("/start-twice", "Expected ASGI message 'http.response.body', but got 'http.response.start'."),
        ("/nothing", "ASGI callable returned without starting response."),
        ("/half", "ASGI callable returned without completing response."),
        ("/long", "the response body is longer than its content-length"),
    ],
)
def test_an_application_that_breaks_the_protocol(served, path: str, message: str) -> None:
    before = served.log.count(message)
    answer = exchange(served, get(path))
    if path == "/half":
        assert answer.endswith(b"12345")
    elif path == "/long":
        assert b"12345" not in answer
    else:
        assert answer.startswith(b"HTTP/1.1 500 ")
    served.wait_for_log(message, before + 1)


def test_a_message_after_the_last_is_told_so(served) -> None:
    assert ask(served, "/after") == b"whole"
    wait_for_event(
        served, "Unexpected ASGI message 'http.response.body' sent, after response already completed."
    )


def test_a_half_closed_client_costs_no_cpu_and_gets_its_answer(served) -> None:
    def cpu() -> int:
        return int(Path(f"/proc/{served.process.pid}/schedstat").read_text().split()[0])

    with connect(served) as sock:
        sock.sendall(get("/late?1.5"))
        sock.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
        before = cpu()
        time.sleep(1.0)
        assert cpu() - before < 100_000_000, "a connection that waits must not keep the loop busy"
        assert read_all(sock).endswith(b"\r\n\r\n1.5")
