"""Servers of the standard library to load, each on a thread of its own."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import shutil
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers by path; ``/counter`` differs in length, ``/bye`` closes, ``/chunked`` is chunked."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # head and body in one segment: two would wait for a delayed acknowledgement
    count = 0

    def do_GET(self) -> None:
        type(self).count += 1
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nhello\r\n0\r\n\r\n")
            return
        status = 503 if self.path == "/unwell" else 200
        body = b"x" * (type(self).count % 7) if self.path == "/counter" else b"hello"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if self.path == "/bye":
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Seen", self.headers.get("X-Sent", ""))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(self.alter(data))

    @staticmethod
    def alter(data: bytes) -> bytes:
        return data


class WebSocketEcho(Echo):
    """A WebSocket server's least: it accepts, and sends each frame back, unmasked."""

    def handle(self) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self.request.recv(65536)
        head, _, received = received.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        digest = hashlib.sha1(fields["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11")
        self.request.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest.digest()) + b"\r\n\r\n"
        )
        while True:
            while (frame := self.frame(received)) is None:
                more = self.request.recv(65536)
                if not more:
                    return
                received += more
            first, payload, used = frame
            received = received[used:]
            length = len(payload)
            size = (
                bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2) if length < 65536 else b""
            )
            size = size or b"\x7f" + length.to_bytes(8)
            self.request.sendall(bytes([first]) + size + self.alter(payload))

    @staticmethod
    def frame(data: bytes) -> tuple[int, bytes, int] | None:
        """The first frame's first byte, its payload, and how many bytes it has."""
        if len(data) < 2:
            return None
        assert data[1] & 0x80, "a client masks"
        extra = {126: 2, 127: 8}.get(data[1] & 0x7F, 0)
        length = int.from_bytes(data[2 : 2 + extra]) if extra else data[1] & 0x7F
        start = 2 + extra + 4
        if len(data) < start + length:
            return None
        mask = data[start - 4 : start] * (length // 4 + 1)
        payload = int.from_bytes(data[start : start + length]) ^ int.from_bytes(mask[:length])
        return data[0], payload.to_bytes(length), start + length


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A load that ends leaves connections with answers under way: no error of the server's."""


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    handle_error = Server.handle_error


def handler_on_unix(handler: type[socketserver.BaseRequestHandler]) -> type:
    """The handler for a Unix socket, whose peers have no address that the standard library could log."""

    class Local(handler):  # type: ignore[misc, valid-type]
        def __init__(self, request: object, client_address: object, server: object) -> None:
            super().__init__(request, ("local", 0), server)

    return Local


@contextmanager
def serving(
    handler: type[socketserver.BaseRequestHandler],
    path: Path | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """Serve on a free port or a Unix socket; gives ``host:port`` or the path."""
    server: socketserver.BaseServer
    if path is None:
        server = Server(("127.0.0.1", 0), handler)
        where = f"127.0.0.1:{server.server_address[1]}"
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    else:
        server = UnixServer(str(path), handler_on_unix(handler))
        where = str(path)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield where
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def serve() -> Callable[..., AbstractContextManager[str]]:
    """A function that serves a handler, on a free port or a Unix socket."""
    return serving


@pytest.fixture
def answers() -> type[Answers]:
    """The handler of HTTP requests."""
    return Answers


@pytest.fixture
def echo() -> type[Echo]:
    """The handler that echoes; subclasses alter what comes back."""
    return Echo


@pytest.fixture
def websocket_echo() -> type[WebSocketEcho]:
    """The handler that echoes WebSocket messages."""
    return WebSocketEcho


@pytest.fixture(scope="session")
def certificate(
    missing: Callable[[str], NoReturn], tmp_path_factory: pytest.TempPathFactory
) -> tuple[ssl.SSLContext, Path]:
    """A server's TLS context for localhost and 127.0.0.1, and its certificate, which signs itself."""
    openssl = shutil.which("openssl") or missing("openssl")
    folder = tmp_path_factory.mktemp("certificate")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    # rustls takes no certificate of an authority for a server's own.
    more = ["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([openssl, *words.split(), *more, *files], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context, folder / "cert.pem"


@pytest.fixture
def web() -> Iterator[str]:
    """A URL of a server of ``Answers``, without its path."""
    with serving(Answers) as where:
        yield f"http://{where}"


@pytest.fixture
def headrace() -> list[str]:
    """The words that start the command line of the package under test, on the interpreter of the tests."""
    return [sys.executable, "-m", "headrace"]


@pytest.fixture
def load(headrace: list[str]) -> Callable[..., dict[str, Any]]:
    """A function that runs ``headrace load`` and gives its JSON; ``expect`` is the exit status."""

    def run(*arguments: str, expect: int = 0) -> dict[str, Any]:
        words = [*headrace, "load", *arguments, "--json", "-"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == expect, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    return run
