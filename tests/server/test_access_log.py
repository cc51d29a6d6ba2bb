"""The access log: a line for each request, whole and harmless, whatever serves it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

APPLICATIONS = {
    "asgi": """
import asyncio
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise RuntimeError("none here")
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        await send({"type": "websocket.close"})
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(0.3)
    if scope["path"] == "/never":
        await asyncio.sleep(30)
    if scope["path"] == "/fault":
        raise ValueError
    await send({"type": "http.response.start", "status": 201, "headers": []})
    await send({"type": "http.response.body", "body": b"hello ", "more_body": True})
    await send({"type": "http.response.body", "body": b"world"})
""",
    "wsgi": """
import time
def app(environ, start_response):
    if environ["PATH_INFO"] == "/slow":
        time.sleep(0.3)
    if environ["PATH_INFO"] == "/fault":
        raise ValueError
    start_response("201 Created", [])
    return [b"hello ", b"world"]
""",
    "tornado": """
import asyncio, tornado.web
class Main(tornado.web.RequestHandler):
    async def get(self, path):
        if path == "slow":
            await asyncio.sleep(0.3)
        if path == "fault":
            raise ValueError
        self.set_status(201)
        self.finish("hello world")
app = tornado.web.Application([("/(.*)", Main)])
""",
}

COMBINED = re.compile(
    r'(?P<client>\S+) - - \[(?P<time>[^\]]+)\] "(?P<request>[^"]*)" (?P<status>\d{3}) (?P<bytes>\d+) '
    r'"(?P<referer>[^"]*)" "(?P<agent>[^"]*)"'
)


def raw(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(request)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
        return answer


def lines(path: Path, count: int, seconds: float = 15) -> list[str]:
    """Wait until the log has so many lines."""
    deadline = time.monotonic() + seconds
    while len(found := path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert len(found) == count, found
    return found


@pytest.mark.parametrize(
    "kind, options",
    [
        ("asgi", []),
        ("wsgi", []),
        ("wsgi", ["--concurrency", "threads"]),
        ("wsgi", ["--concurrency", "gevent"]),
        ("tornado", []),
    ],
)
def test_every_interface_is_logged(serve, tmp_path: Path, missing, kind: str, options: list[str]) -> None:
    for package in {"gevent", "tornado"} & {kind, *options}:
        try:
            __import__(package)
        except ImportError:
            missing(package)
    tmp_path.joinpath("it.py").write_text(APPLICATIONS[kind])
    log = tmp_path / "access"
    words = ["--access-log", str(log), "--access-log-format", "json", *options]
    with serve("it:app", tmp_path, *words) as served:
        agent = {"User-Agent": 'x "y"', "Referer": "http://from/"}
        assert served.ask("GET", "/a?b=c", headers=agent)[0] == 201
        assert served.ask("GET", "/slow")[0] == 201
        assert served.ask("GET", "/fault")[0] == 500
        # They come by themselves, without another event.
        first, slow, fault = (json.loads(line) for line in lines(log, 3))
        assert first["client"] == "127.0.0.1"
        assert first["request"] == "GET /a?b=c HTTP/1.1"
        assert (first["status"], first["bytes"]) == (201, 11)
        assert (first["user_agent"], first["referer"]) == ('x "y"', "http://from/")
        assert 0 <= first["duration"] < 0.3 <= slow["duration"] < 5
        assert (
            abs(time.mktime(time.strptime(first["time"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - time.time())
            < 60
        )
        assert fault["status"] == 500 and fault["bytes"] > 0
        served.ask("GET", "/last")
        assert served.stop(signal.SIGTERM) == 0
        assert json.loads(lines(log, 4)[-1])["request"] == "GET /last HTTP/1.1"


def test_refusals_and_clients_that_left(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("it.py").write_text(APPLICATIONS["asgi"])
    log = tmp_path / "access"
    options = ["--access-log", str(log), "--head-timeout", "0.3", "--body-size", "10", "--grace", "1"]
    with serve("it:app", tmp_path, *options) as served:
        port = served.port
        # Parsed by the shape of the combined format, in the order of their ends.
        assert b" 400 " in raw(port, b'GET /\x1b[2J" \\ HTTP/1.1\r\n\r\n')
        assert b" 413 " in raw(port, b"POST /big HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n")
        with socket.create_connection(("127.0.0.1", port), 20) as sock:
            sock.sendall(b"GET /half HT")
            assert b" 408 " in sock.recv(65536)
        with socket.create_connection(("127.0.0.1", port), 20) as sock:
            sock.sendall(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n")
            time.sleep(0.2)
            # Closed by a reset: there is nobody left to answer.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.2)
        raw(port, b'HEAD /head HTTP/1.1\r\nHost: a\r\nUser-Agent: \xff"\r\n\r\n')
        found = [COMBINED.fullmatch(line) for line in lines(log, 5)]
        assert served.stop() == 0
    assert all(found)
    rows = [(match["request"], match["status"], match["bytes"]) for match in found]
    assert rows[0][:2] == (r"GET /\x1B[2J\x22 \x5C HTTP/1.1", "400")
    assert rows[1][:2] == ("POST /big HTTP/1.1", "413")
    assert rows[2][:2] == ("GET /half HT", "408")
    assert rows[3] == ("GET /never HTTP/1.1", "499", "0")
    assert rows[4][1:] == ("201", "0") and found[4]["agent"] == r"\xFF\x22"
    assert all(match["client"] == "127.0.0.1" for match in found)
    assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000", found[0]["time"])


def test_a_head_answer_has_no_bytes_and_a_websocket_is_logged_at_its_end(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("it.py").write_text(APPLICATIONS["asgi"])
    log = tmp_path / "access"
    with serve("it:app", tmp_path, "--access-log", str(log), "--access-log-format", "json") as served:
        assert served.ask("HEAD", "/")[0] == 201
        raw(
            served.port,
            b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        head, socket_line = (json.loads(line) for line in lines(log, 2))
        assert (head["status"], head["bytes"]) == (201, 0)
        assert (socket_line["status"], socket_line["request"]) == (101, "GET /ws HTTP/1.1")
        assert socket_line["bytes"] >= 7
        assert served.stop() == 0


def test_workers_share_a_file_and_reopen_it(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("it.py").write_text(APPLICATIONS["asgi"])
    log = tmp_path / "access"
    with serve("it:app", tmp_path, "--access-log", str(log), "--workers", "3") as served:

        def load(number: int) -> None:
            for each in range(100):
                raw(served.port, b"GET /%d/%d HTTP/1.0\r\n\r\n" % (number, each))

        threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = lines(log, 400)
        assert all(COMBINED.fullmatch(line) for line in found)
        assert {COMBINED.fullmatch(line)["request"] for line in found} == {
            f"GET /{number}/{each} HTTP/1.0" for number in range(4) for each in range(100)
        }
        log.rename(tmp_path / "old")
        served.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 10
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        for _ in range(10):
            raw(served.port, b"GET /new HTTP/1.0\r\n\r\n")
        assert len(lines(log, 10)) == 10
        assert len((tmp_path / "old").read_text().splitlines()) == 400
        assert served.stop() == 0


def test_a_pipe_that_nobody_reads_stops_nobody(headrace: list[str], tmp_path: Path) -> None:
    tmp_path.joinpath("it.py").write_text(APPLICATIONS["asgi"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [*headrace, "serve", "it:app", "--bind", f"127.0.0.1:{port}", "--access-log", "-"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None and b"serving" in process.stderr.readline()
        request = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % (b"x" * 1000)
        with socket.create_connection(("127.0.0.1", port), 20) as sock:
            reader = sock.makefile("rb")
            for _ in range(20):
                sock.sendall(request * 20)
                for _ in range(20):
                    while reader.readline() != b"0\r\n":
                        pass
                    reader.readline()
            reader.close()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0
        dropped = int(re.search(rb"(\d+) lines of the access log were dropped", err)[1])
        assert dropped > 0
        # What is there is whole.
        found = out.decode().splitlines()
        assert 0 < len(found) <= 400 - dropped
        assert all(COMBINED.fullmatch(line) for line in found)
    finally:
        process.kill()
        process.wait()


def test_a_file_that_cannot_be_opened_is_told(headrace: list[str], tmp_path: Path) -> None:
    words = [*headrace, "serve", "it:app", "--access-log", str(tmp_path / "nowhere" / "log")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("headrace: cannot open the access log ")


def test_a_signal_without_an_access_log_ends_nobody(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("it.py").write_text(APPLICATIONS["asgi"])
    for options in ([], ["--workers", "2"]):
        with serve("it:app", tmp_path, *options) as served:
            served.ask("GET", "/")
            os.kill(served.process.pid, signal.SIGUSR1)
            time.sleep(0.2)
            assert served.ask("GET", "/")[0] == 201
            assert served.stop() == 0
            assert "Traceback" not in served.log, shlex.join(options)
