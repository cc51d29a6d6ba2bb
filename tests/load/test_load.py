"""``headrace load`` against real servers of the standard library, through the command line."""

from __future__ import annotations

import base64
import http.server
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HEADRACE = [sys.executable, "-m", "headrace", "load"]


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


class Liar(Echo):
    @staticmethod
    def alter(data: bytes) -> bytes:
        return data.replace(b"a", b"b")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


class UnixServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


def serving(server: socketserver.BaseServer) -> Iterator[socketserver.BaseServer]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def web() -> Iterator[str]:
    for server in serving(Server(("127.0.0.1", 0), Answers)):
        yield f"http://127.0.0.1:{server.server_address[1]}"


def load(*arguments: str, expect: int = 0) -> dict[str, Any]:
    words = [*HEADRACE, *arguments, "--json", "-"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == expect, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_closed_loop_counts_what_the_server_answered(web: str) -> None:
    before = Answers.count
    result = load(f"{web}/", "-c", "7", "-t", "2", "-d", "0.5")
    assert result["requests"] > 50
    assert (
        result["requests"] <= Answers.count - before <= result["requests"] + 14
    )  # sent, not answered in time
    assert result["status"] == {"200": result["requests"]}
    assert not any(result["errors"].values())
    assert (
        result["connections"],
        result["connections_open"],
        result["reconnects"],
    ) == (7, 7, 0)
    assert result["duration_s"] == pytest.approx(0.5)
    assert result["requests_per_second"] == pytest.approx(result["requests"] / 0.5)
    latency = result["latency_us"]
    quantiles = [latency[name] for name in ("min", "p50", "p75", "p90", "p99", "p99.9", "max")]
    assert quantiles == sorted(quantiles) and quantiles[0] > 0
    # Little's law: seven connections that are always busy.
    assert latency["mean"] * result["requests"] == pytest.approx(7 * 0.5e6, rel=0.2)
    assert base64.b64decode(result["histogram"])[:4] == b"\x1c\x84\x93\x14"  # V2, deflated
    assert result["lag_us"] is None and result["rate"] is None


def test_an_open_loop_keeps_its_rate_and_its_share_of_threads(web: str) -> None:
    for extra in ([], ["--poisson"]):
        result = load(f"{web}/", "-c", "8", "-t", "2", "-d", "1", "--rate", "200", *extra)
        assert result["offered"] == pytest.approx(200, abs=1 if not extra else 60)
        assert abs(result["requests"] + result["unsent"] + result["awaited"] - result["offered"]) <= 8
        assert result["lag_us"]["p50"] < 50_000


@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_echo_over_tcp_and_unix(size: int, tmp_path: Path) -> None:
    for server in serving(Server(("127.0.0.1", 0), Echo)):
        result = load(
            f"tcp://127.0.0.1:{server.server_address[1]}?size={size}",
            "-c",
            "3",
            "-d",
            "0.3",
        )
        assert result["protocol"] == "tcp"
        assert result["requests"] > 5 and not any(result["errors"].values())
        assert result["bytes_in"] == pytest.approx(result["requests"] * size, abs=8 * size)
    path = tmp_path / "s"
    for _ in serving(UnixServer(str(path), Echo)):
        result = load(f"unix:{path}?size={size}", "-c", "3", "-d", "0.3")
        assert result["protocol"] == "unix"
        assert result["requests"] > 5 and not any(result["errors"].values())


def test_pipelined_messages_are_answered_each(tmp_path: Path) -> None:
    path = tmp_path / "s"
    for _ in serving(UnixServer(str(path), Echo)):
        result = load(f"unix:{path}?size=100", "-c", "2", "-d", "0.3", "--pipeline", "16")
        assert result["requests"] > 50 and not any(result["errors"].values())


def test_a_wrong_echo_is_a_body_error() -> None:
    for server in serving(Server(("127.0.0.1", 0), Liar)):
        url = f"tcp://127.0.0.1:{server.server_address[1]}?size=1000"
        result = load(url, "-c", "2", "-d", "0.2", expect=1)
        assert result["requests"] == 0 and result["errors"]["body"] > 5


def test_http_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "s"

    class Handler(Answers):
        def __init__(self, request: Any, client_address: Any, server: Any) -> None:
            super().__init__(request, ("local", 0), server)

    for _ in serving(UnixServer(str(path), Handler)):
        result = load(
            f"http+unix:{path}:/chunked",
            "-c",
            "2",
            "-d",
            "0.2",
            "--expect-body-length",
            "5",
        )
        assert result["requests"] > 5 and not any(result["errors"].values())


def test_lengths_that_differ_are_errors_unless_allowed(web: str) -> None:
    result = load(f"{web}/counter", "-c", "1", "-d", "0.3")
    assert result["errors"]["body"] > 0
    result = load(f"{web}/counter", "-c", "1", "-d", "0.3", "--any-length")
    assert result["errors"]["body"] == 0 and result["requests"] > 5


def test_a_server_that_closes_is_opened_again_and_no_error(web: str) -> None:
    result = load(f"{web}/bye", "-c", "2", "-d", "0.3")
    assert result["requests"] > 5 and result["reconnects"] > 5
    assert not any(result["errors"].values())


def test_status_is_checked(web: str) -> None:
    result = load(f"{web}/unwell", "-c", "1", "-d", "0.2", expect=1)
    assert result["errors"]["status"] == result["status"]["503"] > 0
    result = load(f"{web}/unwell", "-c", "1", "-d", "0.2", "--expect-status", "503")
    assert result["requests"] > 0 and result["errors"]["status"] == 0


def test_bodies_are_sent_and_compared(web: str, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)) * 2000)
    words = [
        f"{web}/",
        "-c",
        "2",
        "-d",
        "0.3",
        "-m",
        "POST",
        "-H",
        "X-Sent: a",
        "--body",
        str(body),
    ]
    result = load(*words, "--expect-body", str(body))
    assert result["requests"] > 5 and not any(result["errors"].values())
    other = tmp_path / "other"
    other.write_bytes(body.read_bytes()[:-1] + b"!")
    result = load(*words, "--expect-body", str(other), expect=1)
    assert result["errors"]["body"] > 5


def test_a_silent_server_times_out_and_a_closed_port_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        result = load(url, "-c", "2", "-d", "0.6", "--timeout", "0.2", expect=1)
        assert result["errors"]["timeout"] >= 2 and "0.2 s" in result["first_error"]
    result = load(url, "-c", "2", "-d", "0.3", expect=1)
    assert result["errors"]["connect"] >= 2 and "refused" in result["first_error"]


def test_garbage_is_a_protocol_error(tmp_path: Path) -> None:
    class Garbage(Echo):
        @staticmethod
        def alter(data: bytes) -> bytes:
            return b"SSH-2.0-nothing\r\n\r\n"

    path = tmp_path / "s"
    for _ in serving(UnixServer(str(path), Garbage)):
        result = load(f"http+unix:{path}:/", "-c", "1", "-d", "0.3", expect=1)
        assert result["errors"]["protocol"] > 0


def test_the_servers_cpu_time_is_counted_with_its_children(tmp_path: Path) -> None:
    program = (
        "import os, socketserver\n"
        "class Echo(socketserver.BaseRequestHandler):\n"
        "    def handle(self):\n"
        "        while data := self.request.recv(65536): self.request.sendall(data)\n"
        "class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer): pass\n"
        f"server = Server({str(tmp_path / 's')!r}, Echo)\n"
        "print('ready', flush=True)\n"
        "server.serve_forever(0.01)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == b"ready\n"
            result = load(
                f"unix:{tmp_path / 's'}?size=10",
                "-c",
                "3",
                "-d",
                "0.5",
                "--pid",
                str(server.pid),
            )
        finally:
            server.terminate()
    cpu = result["server"]
    assert (cpu["pid"], cpu["processes"]) == (server.pid, 4)
    assert cpu["cpu_ns_per_request"] == pytest.approx(cpu["cpu_ns"] / result["requests"])
    assert 1_000 < cpu["cpu_ns_per_request"] < 1_000_000


def test_interrupted_it_reports_what_it_has(web: str) -> None:
    words = [*HEADRACE, f"{web}/", "-c", "2", "-d", "60", "--json", "-"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        before = Answers.count
        deadline = time.monotonic() + 30
        while Answers.count < before + 20 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=10)
    assert process.returncode == 130, errors
    result = json.loads(output)
    assert result["interrupted"] and result["requests"] >= 10 and result["duration_s"] < 40


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["http://127.0.0.1:1/", "-c", "0"], "connections"),
        (["http://127.0.0.1:1/", "-c", "-5"], "connections"),
        (["ftp://127.0.0.1/"], "must begin with"),
        (["http://127.0.0.1:1/", "-H", "nonsense"], "no colon"),
        (["http://127.0.0.1:1/", "--rate", "0"], "rate"),
        (["http://127.0.0.1:1/", "--rate", "nan"], "rate"),
        (["http://127.0.0.1:1/", "-d", "0"], "duration"),
        (["http://127.0.0.1:1/", "-d", "inf"], "duration"),
        (["http://127.0.0.1:1/", "--warmup", "-1"], "warm-up"),
        (["http://127.0.0.1:1/", "-t", "9", "-c", "8"], "threads"),
        (["http://127.0.0.1:1/", "--poisson"], "--rate"),
        (["http://127.0.0.1:1/", "--pid", "0"], "no process 0"),
        (["http://127.0.0.1:1/", "--body", "/no/such/file"], "/no/such/file"),
        (["http://127.0.0.1:1/", "--expect-status", "20"], "three digits"),
        (["http://no-such-host.invalid/"], "no-such-host.invalid"),
        (["tcp://127.0.0.1:1?size=0"], "size"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: list[str], part: str) -> None:
    done = subprocess.run([*HEADRACE, *arguments], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert part in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_the_table_says_what_people_ask(web: str, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = [
        *HEADRACE,
        f"{web}/",
        "-c",
        "2",
        "-d",
        "0.3",
        "--json",
        str(out),
        "--pid",
        str(os.getpid()),
    ]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr
    for part in (
        "requests",
        "p99.9",
        "200: ",
        "errors  none",
        "server CPU",
        "client CPU",
    ):
        assert part in done.stdout
    assert json.loads(out.read_text())["tool"] == "headrace load"
