"""The broadcast ladder: its publisher against a real broker, and the proof that every message arrives once."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from headrace.bench import registry
from headrace.bench.model import PROGRAMS, Endpoint, WrongAnswer
from headrace.bench.process import Processes
from headrace.bench.provision import Provision, lacking
from headrace.bench.scenarios.broadcast_api import every_message_arrives_once

QUEUE = "bench-test"


def needed(*packages: str) -> None:
    """Skip without RabbitMQ or a package; fail where continuous integration must have them."""
    command = lacking(registry.services()["rabbitmq"])
    missing = [each for each in packages if importlib.util.find_spec(each) is None]
    if command or missing:
        said = f"needs {command or ' '.join(missing)}"
        pytest.fail(said) if os.environ.get("CI") == "true" else pytest.skip(said)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The URL of a broker of our own."""
    needed("aiormq", "pika", "tornado")
    with Processes() as processes:
        yield Provision(processes, lambda line: None).urls(["rabbitmq"])["rabbitmq"]


@pytest.fixture
def programs(broker: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a program of the bench."""
    monkeypatch.setenv("BENCH_RABBITMQ_URL", broker)
    monkeypatch.syspath_prepend(str(PROGRAMS))
    yield importlib.import_module
    for name in ("amqp_publisher", "broadcast_api", "bench_support"):
        sys.modules.pop(name, None)


def drained(broker: str) -> dict[str, int]:
    """What the consumer found in the queue."""
    words = [sys.executable, str(PROGRAMS / "broadcast_drain.py"), broker, QUEUE]
    found: dict[str, int] = json.loads(
        subprocess.run(words, capture_output=True, check=True, timeout=60).stdout
    )
    return found


def test_messages_published_together_arrive_once_each(broker: str, programs: Any):
    amqp, api = programs("amqp_publisher"), programs("broadcast_api")

    async def main() -> None:
        await api.declare(QUEUE)
        publisher = await amqp.connect(broker, QUEUE)
        for start in (0, 500):
            await asyncio.gather(
                *(publisher.publish(json.dumps({"number": n}).encode()) for n in range(start, start + 500))
            )
        with pytest.raises(ValueError, match="at most"):
            publisher.publish(bytes(1 << 20))

    asyncio.run(main())
    assert drained(broker) == {"messages": 1000, "distinct": 1000}


def test_a_lost_broker_fails_the_messages_that_wait(broker: str, programs: Any):
    amqp = programs("amqp_publisher")

    async def main() -> None:
        # No such exchange: the broker closes the channel in place of a confirm.
        publisher = await amqp.connect(broker, "bench-there-is-none")
        with pytest.raises(amqp.BrokerError):
            await asyncio.wait_for(publisher.publish(b"{}"), 20)
        with pytest.raises(amqp.BrokerError):
            publisher.publish(b"{}")

    asyncio.run(main())


@pytest.mark.parametrize(("answered", "wrong"), [(1, ""), (2, "2 messages were sent, 1 arrived")])
def test_the_proof_counts_messages_that_did_not_arrive(
    broker: str, programs: Any, answered: int, wrong: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    amqp, api = programs("amqp_publisher"), programs("broadcast_api")
    monkeypatch.setattr("headrace.bench.scenarios.broadcast_api.ARRIVAL", 0.5)
    queue = f"{QUEUE}-{answered}"

    async def publish() -> None:
        await api.declare(queue)
        await (await amqp.connect(broker, queue)).publish(b'{"number": 1}')

    asyncio.run(publish())

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status: int, found: dict[str, Any]) -> None:
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            good = asked["channel"] == "channel-2"
            self.answer(200 if good else 403, {"sent": good})

        def do_GET(self) -> None:
            self.answer(200, {"sent": answered, "queue": queue, "broker": broker})

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            if wrong:
                with pytest.raises(WrongAnswer, match=wrong):
                    every_message_arrives_once(Endpoint(server.server_port))
            else:
                every_message_arrives_once(Endpoint(server.server_port))
        finally:
            server.shutdown()
            thread.join()
