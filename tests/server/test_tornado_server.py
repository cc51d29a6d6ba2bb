"""What Tornado applications know of Tornado's own server: its arguments, a connection's stream, an end that is told."""

from __future__ import annotations

import base64
import gzip
import json
import os
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("tornado")

APPLICATION = """
import asyncio, json, pathlib
import tornado.httpserver, tornado.httputil, tornado.routing, tornado.web, tornado.websocket

class Who(tornado.web.RequestHandler):
    def get(self):
        stream = self.request.connection.stream
        self.write({"ip": self.request.remote_ip, "protocol": self.request.protocol,
                    "peer": stream.socket.getpeername()[0], "closed": stream.closed()})

    def post(self):
        self.write({"length": len(self.request.body)})

@tornado.web.stream_request_body
class Upload(tornado.web.RequestHandler):
    async def prepare(self):
        await asyncio.sleep(0.01)
        if self.request.headers.get("X-Allow"):
            self.request.connection.set_max_body_size(int(self.request.headers["X-Allow"]))
        self.length = 0

    def data_received(self, chunk):
        self.length += len(chunk)

    def put(self):
        self.write({"length": self.length})

class Abort(tornado.web.RequestHandler):
    def get(self):
        self.request.connection.stream.close()

class Slow(tornado.web.RequestHandler):
    async def get(self):
        try:
            await asyncio.sleep(60)
        finally:
            pathlib.Path("slow").write_text("ended")

    def on_connection_close(self):
        pathlib.Path("slow-closed").write_text("told")

class Socket(tornado.websocket.WebSocketHandler):
    def on_message(self, message):
        self.write_message(message)

    def on_close(self):
        pathlib.Path("socket-closed").write_text("told")

application = tornado.web.Application([
    ("/who", Who), ("/upload", Upload), ("/abort", Abort), ("/slow", Slow), ("/socket", Socket)
])

def behind_a_proxy():
    return tornado.httpserver.HTTPServer(
        application, xheaders=True, trusted_downstream=["10.0.0.1"], decompress_request=True, max_body_size=5000)

def last_word():
    return tornado.httpserver.HTTPServer(application, no_keep_alive=True, protocol="https")

def routed():
    return tornado.routing.RuleRouter([tornado.routing.Rule(tornado.routing.PathMatches("/who"), application)])

def by_function():
    def answer(request):
        body = request.path.encode()
        request.connection.write_headers(
            tornado.httputil.ResponseStartLine("HTTP/1.1", 200, "OK"),
            tornado.httputil.HTTPHeaders({"Content-Length": str(len(body))}))
        request.connection.write(body)
        request.connection.finish()
    return tornado.httpserver.HTTPServer(answer)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tornado")
    folder.joinpath("pages.py").write_text(APPLICATION)
    return folder


@pytest.fixture(scope="module")
def proxied(serve, folder: Path):
    with serve("pages:behind_a_proxy", folder, "--factory") as running:
        yield running


def who(served, **headers: str) -> tuple[str, str]:
    found = json.loads(served.ask("GET", "/who", headers=headers)[2])
    return found["ip"], found["protocol"]


def test_xheaders(proxied) -> None:
    assert who(proxied) == ("127.0.0.1", "http")
    assert who(proxied, **{"X-Real-Ip": "4.4.4.4", "X-Scheme": "https"}) == ("4.4.4.4", "https")
    assert who(proxied, **{"X-Forwarded-For": "5.5.5.5, 4.4.4.4"}) == ("4.4.4.4", "http")
    # What a trusted proxy added is passed over; the address before it is the client's.
    assert who(proxied, **{"X-Forwarded-For": "5.5.5.5, 4.4.4.4, 10.0.0.1"}) == ("4.4.4.4", "http")
    assert who(proxied, **{"X-Forwarded-Proto": "http, https"}) == ("127.0.0.1", "https")
    assert who(proxied, **{"X-Real-Ip": "4.4.4.4<script>", "X-Scheme": "gopher"}) == ("127.0.0.1", "http")
    # The next request of the same connection starts from its own address again.
    assert who(proxied) == ("127.0.0.1", "http")


def test_the_parameters_of_an_own_server(proxied) -> None:
    packed = gzip.compress(b"x" * 4000)
    found = proxied.ask("POST", "/who", packed, {"Content-Encoding": "gzip"})
    assert found[::2] == (200, b'{"length": 4000}')
    assert proxied.ask("POST", "/who", b"x" * 5001)[0] == 413


def test_xheaders_are_not_believed_unless_the_application_says_so(serve, folder: Path) -> None:
    with serve("pages:last_word", folder, "--factory") as running:
        assert who(running, **{"X-Real-Ip": "4.4.4.4", "X-Scheme": "http"}) == ("127.0.0.1", "https")
        assert running.ask("GET", "/who")[1]["connection"] == "close"


def test_other_delegates(serve, folder: Path) -> None:
    with serve("pages:routed", folder, "--factory") as running:
        assert who(running) == ("127.0.0.1", "http")
    with serve("pages:by_function", folder, "--factory") as running:
        assert running.ask("GET", "/some/path")[::2] == (200, b"/some/path")


def test_a_handler_may_allow_more_than_the_servers_limit(serve, folder: Path) -> None:
    with serve("pages:application", folder, "--body-size", "1000") as running:
        assert running.ask("PUT", "/upload", b"x" * 1001)[0] == 413
        found = running.ask("PUT", "/upload", b"x" * 400_000, {"X-Allow": "400000"})
        assert found[::2] == (200, b'{"length": 400000}')
        assert running.ask("PUT", "/upload", b"x" * 400_001, {"X-Allow": "400000"})[0] == 413


def test_the_connections_stream(serve, folder: Path) -> None:
    with serve("pages:application", folder) as running:
        found = json.loads(running.ask("GET", "/who")[2])
        assert (found["peer"], found["closed"]) == ("127.0.0.1", False)
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
            client.sendall(b"GET /abort HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.recv(100) == b""
        assert "Traceback" not in running.log


def test_an_end_is_told(serve, tmp_path: Path) -> None:
    """A request that outlives the grace time, and a WebSocket."""
    tmp_path.joinpath("pages.py").write_text(APPLICATION)
    key = base64.b64encode(os.urandom(16))
    with (
        serve("pages:application", tmp_path, "--grace", "0.3") as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as slow,
        socket.create_connection(("127.0.0.1", running.port), timeout=10) as web_socket,
    ):
        slow.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        web_socket.sendall(
            b"GET /socket HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
        )
        got = web_socket.makefile("rb")
        assert got.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
        while got.readline() != b"\r\n":
            pass
        began = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - began < 5
        # "Service restart" (RFC 6455 section 7.4; the registry of close codes).
        assert got.read() == b"\x88\x02" + (1012).to_bytes(2)
        assert slow.recv(100) == b""
        assert tmp_path.joinpath("socket-closed").read_text() == "told"
        assert tmp_path.joinpath("slow-closed").read_text() == "told"
        assert tmp_path.joinpath("slow").read_text() == "ended"
        assert "Traceback" not in running.log
