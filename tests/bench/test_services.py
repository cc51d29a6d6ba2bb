"""Services: real servers start in temporary folders, answer, and are gone afterwards; what is missing is said."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from headrace.bench import checks, registry
from headrace.bench.model import Endpoint, Service
from headrace.bench.process import Processes
from headrace.bench.provision import Missing, Provision, lacking

#: What a server of each kind answers to the first bytes of a client; None: it speaks first.
GREETINGS: dict[str, tuple[bytes, bytes]] = {
    # PostgreSQL: an SSLRequest is answered by one letter.
    "postgresql": (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"N"),
    "redis": (b"PING\r\n", b"+PONG\r\n"),
    "rabbitmq": (b"AMQP\x00\x00\x09\x01", b"\x01"),
    "upstream": (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
    # MariaDB speaks first: a packet with number 0 and protocol version 10 begins with its length.
    "mariadb": (b"", b""),
}


@pytest.mark.parametrize("name", GREETINGS)
def test_a_service_starts_answers_and_leaves_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    service = registry.services()[name]
    command = lacking(service)
    if command is not None and os.environ.get("CI") == "true":
        pytest.fail(f"{name} is missing, and CI must have it: {command}")
    if command is not None:
        pytest.skip(f"{name} is missing: {command}")
    monkeypatch.delenv(service.variable, raising=False)
    with Processes() as processes:
        url = urlsplit(Provision(processes, lambda line: None).urls([name])[name])
        folder = processes.root
        assert url.hostname == "127.0.0.1" and url.port
        sent, wanted = GREETINGS[name]
        with socket.create_connection((url.hostname, url.port), 10) as stream:
            stream.sendall(sent)
            got = checks.receive(stream, len(wanted) or 5)
        assert got == wanted if wanted else got[3:] == b"\x00\x0a"
    assert not folder.exists()
    with pytest.raises(OSError):
        socket.create_connection((url.hostname, url.port), 1).close()


def test_a_service_of_the_users_own_is_taken_by_its_url(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADRACE_BENCH_REDIS", "redis://10.0.0.1:6379/3")
    with Processes() as processes:
        assert Provision(processes, lambda line: None).urls(["redis"]) == {"redis": "redis://10.0.0.1:6379/3"}


def test_a_missing_service_says_what_installs_it(monkeypatch: pytest.MonkeyPatch):
    service = registry.services()["rabbitmq"]
    monkeypatch.delenv(service.variable, raising=False)
    monkeypatch.setattr("headrace.bench.provision.lacking", lambda each: "apt-get install it")
    with (
        Processes() as processes,
        pytest.raises(Missing, match="apt-get install it, or set HEADRACE_BENCH_RABBITMQ"),
    ):
        Provision(processes, lambda line: None).urls(["rabbitmq"])


def test_a_service_that_does_not_start_is_reported_once(monkeypatch: pytest.MonkeyPatch):
    starts = []

    def start(processes: Processes, folder: Path) -> str:
        starts.append(folder)
        running = processes.start("broken", ["sh", "-c", "echo out of luck; exit 1"], folder=folder)
        processes.wait_ready(running, lambda: False, 10)
        return ""

    broken = Service("broken", "", (), start, "HEADRACE_BENCH_BROKEN")
    monkeypatch.setattr(registry, "services", lambda: {"broken": broken})
    with Processes() as processes:
        provision = Provision(processes, lambda line: None)
        for _ in range(2):
            with pytest.raises(Missing, match="out of luck"):
                provision.urls(["broken"])
    assert len(starts) == 1


def test_checks_find_wrong_answers():
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = Endpoint(port=server.getsockname()[1])
        import threading

        def answer() -> None:
            stream, _ = server.accept()
            with stream:
                stream.recv(4096)
                stream.sendall(b"$-1\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Exception, match="was answered"):
            checks.redis_commands(((b"PING",), b"+PONG"))(endpoint)
        thread.join()
