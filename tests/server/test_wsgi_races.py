"""Threads and greenlets under clients of every kind at once, with the interpreter lock changing hands all the time."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import socket
import threading
import time
from pathlib import Path

import pytest

APPLICATION = """
import sys, time
sys.setswitchinterval(1e-6)

def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/echo":
        data = environ["wsgi.input"]
        start_response("200 OK", [("Content-Type", "text/plain")])
        return iter(lambda: data.read(7000), b"")
    if path == "/sum":
        total = sum(len(line) for line in environ["wsgi.input"])
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(total).encode()]
    if path == "/much":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (b"#" * 50_000 for _ in range(40))
    if path == "/sleep":
        time.sleep(0.002)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [path.encode()]
"""

SECONDS = 3.0


class Client(threading.Thread):
    """Sends requests of all kinds until it is told to stop; some it leaves in the middle."""

    def __init__(self, port: int, seed: int, stop: threading.Event) -> None:
        super().__init__()
        self.port, self.random, self.stop = port, random.Random(seed), stop
        self.wrong: list[object] = []
        self.answered = 0

    def run(self) -> None:
        kinds = [self.plain, self.pipelined, self.echo, self.chunked, self.much, self.left]
        while not self.stop.is_set() and not self.wrong:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=20) as stream:
                    self.random.choice(kinds)(stream)
            except OSError as error:
                self.wrong.append(error)

    def expect(self, stream: socket.socket, *bodies: bytes) -> None:
        pieces = []
        while piece := stream.recv(1 << 16):
            pieces.append(piece)
        whole = b"".join(pieces)
        if whole.count(b"HTTP/1.1 200 OK") != len(bodies) or not all(body in whole for body in bodies):
            self.wrong.append(whole[:300])
        self.answered += len(bodies)

    def plain(self, stream: socket.socket) -> None:
        stream.sendall(b"GET /sleep HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        self.expect(stream, b"/sleep")

    def pipelined(self, stream: socket.socket) -> None:
        stream.sendall(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        stream.sendall(b"GET /sleep HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        self.expect(stream, *[b"/one"] * 5, b"/sleep")

    def echo(self, stream: socket.socket) -> None:
        size = self.random.randrange(1, 200_000)
        stream.sendall(f"POST /echo HTTP/1.0\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode())
        sender = threading.Thread(target=stream.sendall, args=(b"%" * size,))
        sender.start()
        count = 0
        while piece := stream.recv(1 << 16):
            count += piece.count(b"%")
        sender.join()
        if count != size:
            self.wrong.append((count, size))

    def chunked(self, stream: socket.socket) -> None:
        stream.sendall(
            b"POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        for _ in range(5):
            stream.sendall(b"6\r\nline \n\r\n")
            if self.random.random() < 0.3:
                time.sleep(0.001)
        stream.sendall(b"0\r\n\r\n")
        self.expect(stream, b"30")

    def much(self, stream: socket.socket) -> None:
        stream.sendall(b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        count = 0
        while piece := stream.recv(1 << 16):
            count += piece.count(b"#")
        if count != 2_000_000:
            self.wrong.append(count)

    def left(self, stream: socket.socket) -> None:
        stream.sendall(
            self.random.choice(
                [
                    b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n",
                    b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc",
                    b"POST /sum HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
                    b"GET /sleep HTTP/1.1\r\nHost: a\r\n\r\n",
                ]
            )
        )
        stream.settimeout(0.05)
        if self.random.random() < 0.5:
            with contextlib.suppress(OSError):
                stream.recv(100) if self.random.random() < 0.5 else stream.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("mode", ["threads", "gevent"])
def test_clients_of_every_kind_at_once(serve, missing, tmp_path: Path, mode: str) -> None:
    if mode == "gevent" and importlib.util.find_spec("gevent") is None:
        missing("gevent")
    tmp_path.joinpath("races.py").write_text(APPLICATION)
    with serve("races:app", tmp_path, "--concurrency", mode, "--threads", "6") as served:
        stop = threading.Event()
        clients = [Client(served.port, seed, stop) for seed in range(12)]
        for client in clients:
            client.start()
        time.sleep(SECONDS)
        stop.set()
        for client in clients:
            client.join(60)
        assert not [client.wrong for client in clients if client.wrong or client.is_alive()], served.log
        assert sum(client.answered for client in clients) > 50
        # None of the threads is lost: as many requests as there are run at a time.
        for _ in range(20):
            assert served.ask("GET", "/sleep")[2] == b"/sleep"
        assert served.stop() == 0
        assert "Traceback" not in served.log and "panic" not in served.log, served.log
