"""The vectors of ``conformance/`` over a real socket, against ``headrace serve``.

Each is sent whole, in pieces, and with another request behind it. The application answers with what it was asked, so
both what it got and what it did not get are seen from here.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from vectors import Request, Vector, load

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
VECTORS = load(ROOT / "conformance")
FILES = sorted({vector.file for vector in VECTORS})
BEHIND = b"GET /behind HTTP/1.1\r\nHost: behind\r\n\r\n"
SECONDS = 20.0


@dataclass
class Answer:
    """One answer, read to its end."""

    status: int
    fields: dict[str, str]
    body: bytes


class Connection:
    """A client's end that reads strictly: a status line, fields, and a body of known length."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""

    def send(self, data: bytes, step: int | None = None) -> None:
        """Send in pieces of ``step`` bytes. A server that has refused need not read the rest."""
        try:
            for at in range(0, len(data), step or len(data)):
                self.socket.sendall(data[at : at + (step or len(data))])
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _more(self) -> bool:
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        self.unread += data
        return bool(data)

    def answer(self, to_head: bool) -> Answer | None:
        """The next final answer; None when the server has closed instead."""
        while True:
            while b"\r\n\r\n" not in self.unread:
                if not self._more():
                    assert not self.unread, f"half an answer: {self.unread!r}"
                    return None
            head, self.unread = self.unread.split(b"\r\n\r\n", 1)
            line, *lines = head.decode("ascii").split("\r\n")
            version, status, _ = line.split(" ", 2)
            assert version == "HTTP/1.1"
            if status == "100":
                assert not lines
                continue
            fields = {}
            for field in lines:
                name, _, value = field.partition(": ")
                assert name.lower() not in fields, f"{name} twice"
                fields[name.lower()] = value
            length = 0 if to_head else int(fields["content-length"])
            while len(self.unread) < length:
                assert self._more(), "half a body"
            body, self.unread = self.unread[:length], self.unread[length:]
            return Answer(int(status), fields, body)

    def silent(self) -> bool:
        """Whether nothing comes for a moment, not even the connection's end."""
        self.socket.settimeout(0.05)
        try:
            self._more()
        except TimeoutError:
            return not self.unread
        return False

    def rest(self, end: bool) -> bytes:
        """What else comes until the server closes, after we have closed our half if ``end`` is set."""
        if end:
            self.socket.shutdown(socket.SHUT_WR)
        while self._more():
            pass
        return self.unread


@pytest.fixture(scope="module", params=["asgi", "wsgi"])
def server(request: pytest.FixtureRequest, headrace: list[str]) -> Iterator[tuple[str, tuple[str, int]]]:
    """The interface, and the address of a server of the echo application by it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    command = [*headrace, "serve", f"echo:{request.param}", "--interface", request.param]
    command += ["--bind", f"127.0.0.1:{address[1]}"]
    process = subprocess.Popen(
        command, cwd=HERE, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE)])}
    )
    try:
        for _ in range(200):
            with socket.socket() as attempt:
                if attempt.connect_ex(address) == 0:
                    break
            assert process.poll() is None, "the server did not start"
            time.sleep(0.05)
        yield request.param, address
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("way", ["whole", "in-pieces", "with-another-behind"])
def test_vectors(server: tuple[str, tuple[str, int]], file: str, way: str) -> None:
    interface, address = server
    failures = []
    for vector in VECTORS:
        if vector.file != file or any(request.upgrade == b"websocket" for request in vector.requests):
            continue  # a WebSocket is another protocol: tests/websocket
        connection = Connection(address)
        try:
            check(connection, vector, way, interface)
        except (AssertionError, TimeoutError) as failure:
            failures.append(f"{vector}: {str(failure).splitlines()[0][:300]}")
        finally:
            connection.socket.close()
    assert not failures, "\n".join(failures)


def check(connection: Connection, vector: Vector, way: str, interface: str) -> None:
    data = vector.data
    expected = list(vector.requests)
    if way == "with-another-behind":
        if vector.incomplete:
            return
        data += BEHIND
        if vector.reject is None and not expected[-1].close:
            expected.append(Request(b"GET /behind HTTP/1.1", host=b"behind"))
    # A long one goes in coarser pieces: a system call for each byte of 70 KB shows nothing more.
    connection.send(data, (1 if len(data) < 2048 else 997) if way == "in-pieces" else None)
    for request in expected:
        answer = connection.answer(to_head=request.line.startswith(b"HEAD "))
        assert answer is not None, f"no answer to {request.line[:40]!r}"
        compare(answer, request, interface)
    if vector.reject is not None:
        answer = connection.answer(to_head=False)
        assert answer is not None, f"closed without an answer of {vector.reject}"
        assert answer.status == vector.reject, answer
        assert answer.fields["connection"] == "close"
    if vector.incomplete:
        # Then the client breaks off: what a server does when it only ends its half is for the server's own tests.
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert connection.silent(), f"an answer to half a message: {connection.unread!r}"
        return
    closes = vector.reject is not None or expected[-1].close
    assert connection.rest(end=not closes) == b""


def compare(answer: Answer, request: Request, interface: str) -> None:
    assert answer.status == 200, answer
    method, target, version = request.line.split(b" ")
    keep_alive = answer.fields.get("connection") != "close"
    assert keep_alive is not request.close, f"{request.line!r}: {answer.fields}"
    if version == b"HTTP/1.0" and not request.close:
        assert answer.fields["connection"] == "keep-alive"
    if method == b"HEAD":
        return
    echo = json.loads(answer.body)
    assert echo["method"] == method.decode()
    assert echo["version"] == version.decode().removeprefix("HTTP/")
    assert bytes.fromhex(echo["body"]) == request.body
    if interface != "asgi":
        return
    assert bytes.fromhex(echo["target"]) == target
    fields = [(bytes.fromhex(name), bytes.fromhex(value)) for name, value in echo["fields"]]
    if request.fields is not None:
        assert fields == [(name.lower(), value) for name, value in request.fields]
