"""Unmodified Tornado applications under ``headrace serve``."""

from __future__ import annotations

import base64
import os
import socket
import struct
import time
from pathlib import Path

import pytest

pytest.importorskip("tornado")

APPLICATION = """
import asyncio, pathlib
import tornado.web, tornado.websocket, tornado.httpclient

closed = []

class Hello(tornado.web.RequestHandler):
    def get(self):
        self.write("Hello " + self.get_argument("name", "world"))

    def post(self):
        self.write({"length": len(self.request.body), "client": self.request.remote_ip,
                    "form": self.get_body_argument("a", "")})

class Header(tornado.web.RequestHandler):
    def get(self):
        self.write("|".join(self.request.headers.get_list("x-some")))

@tornado.web.stream_request_body
class Upload(tornado.web.RequestHandler):
    async def prepare(self):
        await asyncio.sleep(0)
        self.request.connection.set_max_body_size(3_000_000)
        if self.request.headers.get("X-Timeout"):
            self.request.connection.set_body_timeout(0.2)
        self.pieces = self.length = 0

    async def data_received(self, chunk):
        await asyncio.sleep(0)
        self.pieces += 1
        self.length += len(chunk)

    def post(self):
        self.write({"length": self.length, "several": self.pieces > 1})

class Stream(tornado.web.RequestHandler):
    async def get(self):
        for number in range(200):
            self.write(f"{number}:" + "x" * 5000)
            await self.flush()

class Slow(tornado.web.RequestHandler):
    async def get(self):
        await asyncio.sleep(30)

    def on_connection_close(self):
        closed.append("slow")

class Closed(tornado.web.RequestHandler):
    def get(self):
        self.write(",".join(closed))

class Fetch(tornado.web.RequestHandler):
    async def get(self):
        url = f"http://{self.request.host}/?name=within"
        answer = await tornado.httpclient.AsyncHTTPClient().fetch(url)
        self.write(answer.body)

class Fail(tornado.web.RequestHandler):
    def get(self):
        raise ValueError("the application's own fault")

class Echo(tornado.websocket.WebSocketHandler):
    async def on_message(self, message):
        await self.write_message(message[::-1])

application = tornado.web.Application([
    ("/", Hello), ("/header", Header), ("/upload", Upload), ("/stream", Stream), ("/slow", Slow),
    ("/closed", Closed), ("/fetch", Fetch), ("/fail", Fail), ("/echo", Echo),
], static_path=str(pathlib.Path(__file__).parent / "static"))

def make():
    return application
"""


@pytest.fixture(scope="module")
def served(serve, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tornado")
    folder.joinpath("pages.py").write_text(APPLICATION)
    folder.joinpath("static").mkdir()
    folder.joinpath("static", "digits.txt").write_bytes(b"0123456789" * 50_000)
    with serve("pages:application", folder) as running:
        yield running


def test_hello_and_keep_alive(served) -> None:
    for name in ("world", "x", "y"):
        status, fields, body = served.ask("GET", "/" if name == "world" else f"/?name={name}")
        assert (status, body) == (200, f"Hello {name}".encode())
        assert fields["server"].startswith("TornadoServer/")
        assert "connection" not in fields


def test_head_and_not_modified(served) -> None:
    status, fields, _ = served.ask("GET", "/static/digits.txt")
    etag = fields["etag"]
    status, fields, body = served.ask("HEAD", "/static/digits.txt")
    assert (status, fields["content-length"], body) == (200, "500000", b"")
    status, _, body = served.ask("GET", "/static/digits.txt", headers={"If-None-Match": etag})
    assert (status, body) == (304, b"")
    assert served.ask("GET", "/")[2] == b"Hello world"


def test_static_files_and_ranges(served) -> None:
    assert served.ask("GET", "/static/digits.txt")[2] == b"0123456789" * 50_000
    status, fields, body = served.ask("GET", "/static/digits.txt", headers={"Range": "bytes=3-6"})
    assert (status, fields["content-range"], body) == (206, "bytes 3-6/500000", b"3456")


def test_posts_and_errors(served) -> None:
    status, _, body = served.ask("POST", "/", b"a=b", {"Content-Type": "application/x-www-form-urlencoded"})
    assert (status, body) == (200, b'{"length": 3, "client": "127.0.0.1", "form": "b"}')
    status, _, body = served.ask("POST", "/", b"x" * 1_000_000)
    assert (status, body) == (200, b'{"length": 1000000, "client": "127.0.0.1", "form": ""}')
    assert served.ask("GET", "/nowhere")[0] == 404
    assert served.ask("GET", "/fail")[0] == 500
    assert "the application's own fault" in served.log


def test_fields_of_one_name(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        client.sendall(
            b"GET /header HTTP/1.1\r\nHost: a\r\nX-SOME: one\r\nx-some: two\r\nConnection: close\r\n\r\n"
        )
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.endswith(b"\r\n\r\none|two")


def test_streamed_upload(served) -> None:
    status, _, body = served.ask("POST", "/upload", b"x" * 2_000_000)
    assert (status, body) == (200, b'{"length": 2000000, "several": true}')


def test_a_body_has_the_time_and_size_that_its_handler_gives_it(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        client.sendall(b"POST /upload HTTP/1.1\r\nHost: a\r\nX-Timeout: 1\r\nContent-Length: 9\r\n\r\nabc")
        assert client.recv(65536).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        client.sendall(b"POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        time.sleep(0.2)
        client.sendall(b"3d0900\r\n" + b"x" * 3_000_000)
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_flush(served) -> None:
    status, fields, body = served.ask("GET", "/stream")
    assert (status, fields["transfer-encoding"]) == (200, "chunked")
    assert body == b"".join(b"%d:" % number + b"x" * 5000 for number in range(200))


def test_on_connection_close(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.2)
    deadline = time.monotonic() + 10
    while served.ask("GET", "/closed")[2] != b"slow":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_async_http_client_in_a_handler(served) -> None:
    assert served.ask("GET", "/fetch")[::2] == (200, b"Hello within")


def test_web_socket(served) -> None:
    key = base64.b64encode(os.urandom(16))
    payload = b"headrace"
    mask = os.urandom(4)
    frame = bytes([0x81, 0x80 | len(payload)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        # The first frame comes with the handshake: it must not be lost on the way to Tornado's stream.
        client.sendall(
            b"GET /echo HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n" + frame
        )
        got = client.makefile("rb")
        assert got.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
        while got.readline() != b"\r\n":
            pass
        assert got.read(2 + len(payload)) == bytes([0x81, len(payload)]) + payload[::-1]
        client.sendall(frame)
        assert got.read(2 + len(payload)) == bytes([0x81, len(payload)]) + payload[::-1]
        client.sendall(
            bytes([0x88, 0x82]) + mask + bytes(b ^ mask[i] for i, b in enumerate(struct.pack("!H", 1000)))
        )
        assert got.read(4) == b"\x88\x02\x03\xe8"
        assert got.read() == b""


def test_factory_and_an_orderly_end(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("pages.py").write_text(APPLICATION)
    with serve("pages:make", tmp_path, "--factory") as running:
        assert running.ask("GET", "/")[2] == b"Hello world"
        assert running.stop() == 0
        assert "Traceback" not in running.log
