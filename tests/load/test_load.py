"""``headrace load`` against real servers of the standard library, through the command line."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

Load = Callable[..., dict[str, Any]]
Serve = Callable[..., AbstractContextManager[str]]


def test_a_closed_loop_counts_what_the_server_answered(web: str, load: Load, answers: Any) -> None:
    before = answers.count
    result = load(f"{web}/", "-c", "7", "-t", "2", "-d", "0.5")
    assert result["requests"] > 50
    # What was sent and not answered in time is in the server's count alone.
    assert result["requests"] <= answers.count - before <= result["requests"] + 14
    assert result["status"] == {"200": result["requests"]}
    assert not any(result["errors"].values())
    assert (result["connections"], result["connections_open"], result["reconnects"]) == (7, 7, 0)
    assert result["duration_s"] == pytest.approx(0.5)
    assert result["requests_per_second"] == pytest.approx(result["requests"] / 0.5)
    latency = result["latency_us"]
    quantiles = [latency[name] for name in ("min", "p50", "p75", "p90", "p99", "p99.9", "max")]
    assert quantiles == sorted(quantiles) and quantiles[0] > 0
    # Little's law: seven connections that are always busy.
    assert latency["mean"] * result["requests"] == pytest.approx(7 * 0.5e6, rel=0.2)
    assert base64.b64decode(result["histogram"])[:4] == b"\x1c\x84\x93\x14"  # V2, deflated
    assert result["lag_us"] is None and result["rate"] is None


@pytest.mark.parametrize("arrivals", [[], ["--poisson"]])
def test_an_open_loop_keeps_its_rate_and_loses_no_request(web: str, load: Load, arrivals: list[str]) -> None:
    result = load(f"{web}/", "-c", "8", "-t", "2", "-d", "1", "--rate", "200", *arrivals)
    assert result["offered"] == pytest.approx(200, abs=60 if arrivals else 1)
    assert result["requests"] + result["unsent"] == result["offered"]
    assert result["awaited"] == 0
    assert result["lag_us"]["p50"] < 50_000


def test_a_ramp_offers_the_mean_of_its_ends(web: str, load: Load) -> None:
    result = load(f"{web}/", "-c", "8", "-d", "1", "--rate", "100..300")
    assert result["offered"] == pytest.approx(200, abs=1)
    assert (result["rate"], result["ramp"]) == (200, [100, 300])


def test_a_stall_shows_in_the_latencies_of_an_open_loop(serve: Serve, answers: Any, load: Load) -> None:
    class Stalls(answers):  # type: ignore[misc]
        until = 0.0

        def do_GET(self) -> None:
            if not Stalls.until:
                Stalls.until = time.monotonic() + 0.5
            time.sleep(max(0.0, Stalls.until - time.monotonic()))
            super().do_GET()

    with serve(Stalls) as where:
        result = load(f"http://{where}/", "-c", "1", "-d", "2", "--rate", "20")
    # Forty were meant to start; the ten of the first half second waited, on average half of it: 62 ms over all.
    # Counted from when they were sent, it would be 12 ms. A busy machine only makes it more.
    assert result["requests"] >= 36
    assert result["latency_us"]["mean"] > 45_000


@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_echo_over_tcp_and_unix(size: int, serve: Serve, echo: Any, load: Load, tmp_path: Path) -> None:
    with serve(echo) as where:
        result = load(f"tcp://{where}?size={size}", "-c", "3", "-d", "0.3")
        assert result["protocol"] == "tcp"
        assert result["requests"] > 5 and not any(result["errors"].values())
        assert result["bytes_in"] == pytest.approx(result["requests"] * size, abs=8 * size)
    with serve(echo, tmp_path / "s") as where:
        result = load(f"unix:{where}?size={size}", "-c", "3", "-d", "0.3")
        assert result["protocol"] == "unix"
        assert result["requests"] > 5 and not any(result["errors"].values())


def test_pipelined_messages_are_answered_each(serve: Serve, echo: Any, load: Load, tmp_path: Path) -> None:
    with serve(echo, tmp_path / "s") as where:
        result = load(f"unix:{where}?size=100", "-c", "2", "-d", "0.3", "--pipeline", "16")
        assert result["requests"] > 50 and not any(result["errors"].values())


def test_a_wrong_echo_is_a_body_error(serve: Serve, echo: Any, load: Load) -> None:
    class Liar(echo):  # type: ignore[misc]
        @staticmethod
        def alter(data: bytes) -> bytes:
            return data.replace(b"a", b"b")

    with serve(Liar) as where:
        result = load(f"tcp://{where}?size=1000", "-c", "2", "-d", "0.2", expect=1)
        assert result["requests"] == 0 and result["errors"]["body"] > 5
        assert "what came back is not what was sent" in result["first_error"]


def test_http_over_a_unix_socket(serve: Serve, answers: Any, load: Load, tmp_path: Path) -> None:
    with serve(answers, tmp_path / "s") as where:
        result = load(f"http+unix:{where}:/chunked", "-c", "2", "-d", "0.2", "--expect-body-length", "5")
        assert result["requests"] > 5 and not any(result["errors"].values())


def test_a_name_with_several_addresses_is_tried(web: str, load: Load) -> None:
    # localhost may be ::1 first, and the server listens on 127.0.0.1 alone.
    result = load(web.replace("127.0.0.1", "localhost") + "/", "-c", "2", "-d", "0.2")
    assert result["requests"] > 5 and not any(result["errors"].values())


def test_lengths_that_differ_are_errors_unless_allowed(web: str, load: Load) -> None:
    result = load(f"{web}/counter", "-c", "1", "-d", "0.3")
    assert result["errors"]["body"] > 0
    result = load(f"{web}/counter", "-c", "1", "-d", "0.3", "--any-length")
    assert result["errors"]["body"] == 0 and result["requests"] > 5


def test_a_server_that_closes_is_opened_again_and_no_error(web: str, load: Load) -> None:
    result = load(f"{web}/bye", "-c", "2", "-d", "0.3")
    assert result["requests"] > 5 and result["reconnects"] > 5
    assert not any(result["errors"].values())


def test_status_is_checked(web: str, load: Load) -> None:
    result = load(f"{web}/unwell", "-c", "1", "-d", "0.2", expect=1)
    assert result["errors"]["status"] == result["status"]["503"] > 0
    result = load(f"{web}/unwell", "-c", "1", "-d", "0.2", "--expect-status", "503")
    assert result["requests"] > 0 and result["errors"]["status"] == 0


def test_bodies_are_sent_and_compared(web: str, load: Load, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(bytes(range(256)) * 2000)
    words = [f"{web}/", "-c", "2", "-d", "0.3", "-m", "POST", "-H", "X-Sent: a", "--body", str(body)]
    result = load(*words, "--expect-body", str(body))
    assert result["requests"] > 5 and not any(result["errors"].values())
    other = tmp_path / "other"
    other.write_bytes(body.read_bytes()[:-1] + b"!")
    result = load(*words, "--expect-body", str(other), expect=1)
    assert result["errors"]["body"] > 5


def test_a_silent_server_times_out_and_a_closed_port_refuses(load: Load) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        result = load(url, "-c", "2", "-d", "0.6", "--timeout", "0.2", expect=1)
        assert result["errors"]["timeout"] >= 2 and "0.2 s" in result["first_error"]
    result = load(url, "-c", "2", "-d", "0.3", expect=1)
    assert result["errors"]["connect"] >= 2 and "refused" in result["first_error"]


def test_a_server_that_hangs_up_is_a_read_error(serve: Serve, echo: Any, load: Load) -> None:
    class HangsUp(echo):  # type: ignore[misc]
        def handle(self) -> None:
            self.request.recv(65536)

    with serve(HangsUp) as where:
        result = load(f"http://{where}/", "-c", "1", "-d", "0.3", expect=1)
        assert result["errors"]["read"] > 0


def test_garbage_is_a_protocol_error(serve: Serve, echo: Any, load: Load) -> None:
    class Garbage(echo):  # type: ignore[misc]
        @staticmethod
        def alter(data: bytes) -> bytes:
            return b"SSH-2.0-nothing\r\n\r\n"

    with serve(Garbage) as where:
        for url in (f"http://{where}/", f"redis://{where}"):
            result = load(url, "-c", "1", "-d", "0.3", expect=1)
            assert result["errors"]["protocol"] > 0


def test_the_servers_cpu_time_is_counted_with_its_children(load: Load, tmp_path: Path) -> None:
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
            result = load(f"unix:{tmp_path / 's'}?size=10", "-c", "3", "-d", "0.5", "--pid", str(server.pid))
        finally:
            server.terminate()
    cpu = result["server"]
    assert (cpu["pid"], cpu["processes"]) == (server.pid, 4)
    assert cpu["cpu_ns_per_request"] == pytest.approx(cpu["cpu_ns"] / result["requests"])
    assert 1_000 < cpu["cpu_ns_per_request"] < 1_000_000


def test_interrupted_it_reports_what_it_has(web: str, headrace: list[str], answers: Any) -> None:
    words = [*headrace, "load", f"{web}/", "-c", "2", "-d", "60", "--json", "-"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        before = answers.count
        deadline = time.monotonic() + 30
        while answers.count < before + 20 and time.monotonic() < deadline:
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
        (["http://127.0.0.1:1/", "--find-rate"], "--p99"),
        (["http://127.0.0.1:1/", "--p99", "20ms"], "--find-rate"),
        (["http://127.0.0.1:1/", "--rate", "5", "--pipeline", "2"], "pipeline"),
        (["http://127.0.0.1:1/", "--pid", "0"], "no process 0"),
        (["http://127.0.0.1:1/", "--body", "/no/such/file"], "/no/such/file"),
        (["http://127.0.0.1:1/", "--requests", "/no/such/file"], "/no/such/file"),
        (["http://127.0.0.1:1/", "--expect-status", "20"], "three digits"),
        (["http://no-such-host.invalid/"], "no-such-host.invalid"),
        (["tcp://127.0.0.1:1?size=0"], "size"),
        (["tcp://127.0.0.1:1", "-m", "POST"], "http://"),
        (["redis://127.0.0.1:1?del"], "'del'"),
    ],
)
def test_nonsense_is_refused_in_one_line(headrace: list[str], arguments: list[str], part: str) -> None:
    words = [*headrace, "load", *arguments]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    message = done.stderr.replace('"', "'")
    assert part in message and message.count("\n") == 1 and not done.stdout


def test_the_table_says_what_people_ask(web: str, headrace: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = [
        *headrace,
        "load",
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
    for part in ("requests", "p99.9", "200: ", "errors  none", "server CPU", "client CPU"):
        assert part in done.stdout
    assert json.loads(out.read_text())["tool"] == "headrace load"


def test_progress_is_shown_on_a_terminal(web: str, headrace: list[str]) -> None:
    terminal, other = os.openpty()
    words = [*headrace, "load", f"{web}/", "-c", "2", "-d", "0.5", "--json", "-"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=other) as process:
        os.close(other)
        shown = b""
        try:
            while part := os.read(terminal, 4096):
                shown += part
        except OSError:  # Linux's end of a terminal whose other side has closed
            pass
        finally:
            os.close(terminal)
    assert process.returncode == 0
    assert b"requests/s" in shown and shown.endswith(b"\r\x1b[K")


def test_a_server_that_takes_no_connection_does_not_hold_up_the_load(headrace: list[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)  # its queue takes two connections; nobody accepts them
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        began = time.monotonic()
        # Ten batches of connections would be tried one after the other, a second each.
        words = ["load", url, "-c", "640", "-d", "1.5", "--timeout", "1", "--json", "-", "--quiet"]
        done = subprocess.run([*headrace, *words], capture_output=True, text=True, timeout=60, check=False)
        took = time.monotonic() - began
    result = json.loads(done.stdout)
    assert done.returncode == 1 and result["requests"] == 0
    assert result["errors"]["connect"] >= 60, "those that were tried within the window count"
    assert result["connections_open"] < 640
    assert took < 6
