"""Flask with redis-py under ``--concurrency gevent``: hundreds of requests that wait, in one process."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

APPLICATION = """
import os, socket, ssl, threading
import redis
from flask import Flask, jsonify

app = Flask(__name__)
pool = redis.BlockingConnectionPool(max_connections=600, timeout=30, port=int(os.environ["REDIS_PORT"]))
client = redis.Redis(connection_pool=pool)

@app.get("/wait/<name>")
def wait(name):
    # Blocks the connection to Redis until somebody pushes.
    return client.blpop(name, timeout=40)[1]

@app.get("/waiting")
def waiting():
    return jsonify(blocked=client.info("clients")["blocked_clients"], pid=os.getpid())

@app.get("/push/<name>/<int:count>")
def push(name, count):
    client.lpush(name, *(f"item {number}" for number in range(count)))
    return "pushed"

@app.get("/patched")
def patched():
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # recurses where ssl was patched badly
    kinds = {"socket": socket.socket, "lock": type(threading.Lock()), "tls": type(context)}
    return jsonify({name: kind.__module__ for name, kind in kinds.items()})
"""

CLIENTS = 500


@pytest.fixture(scope="module")
def redis_port(missing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = shutil.which("redis-server") or missing("redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path_factory.mktemp("redis")
    words = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def served(serve, redis_port: int, missing, tmp_path: Path, request: pytest.FixtureRequest):
    for name in ("gevent", "flask", "redis"):
        try:
            __import__(name)
        except ImportError:
            missing(name)
    tmp_path.joinpath("queue_app.py").write_text(APPLICATION)
    options = ("--concurrency", "gevent", *getattr(request, "param", ()))
    with serve("queue_app:app", tmp_path, *options, REDIS_PORT=str(redis_port)) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log


def get(port: int, target: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    return client


def answer(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(65536):
        pieces.append(piece)
    client.close()
    head, _, body = b"".join(pieces).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return body


def blocked(served) -> int:
    return json.loads(served.ask("GET", "/waiting")[2])["blocked"]


def test_five_hundred_requests_wait_in_one_process(served) -> None:
    clients = [get(served.port, "/wait/many") for _ in range(CLIENTS)]
    deadline = time.monotonic() + 60
    while blocked(served) < CLIENTS:  # a request that is answered while they wait
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert served.ask("GET", f"/push/many/{CLIENTS}")[0] == 200
    answers = sorted(answer(client) for client in clients)
    assert answers == sorted(f"item {number}".encode() for number in range(CLIENTS))


@pytest.mark.parametrize("served", [("--threads", "5")], indirect=True)
def test_requests_beyond_the_pool_wait_for_a_greenlet(served, redis_port: int) -> None:
    clients = [get(served.port, "/wait/few") for _ in range(8)]
    pushed = threading.Event()

    def push() -> None:
        # No greenlet is free for a request that would push: this goes to Redis by another way.
        time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", redis_port), timeout=30) as redis:
            for number in range(8):
                redis.sendall(f"LPUSH few item{number}\r\n".encode())
                redis.recv(100)
        pushed.set()

    pusher = threading.Thread(target=push)
    pusher.start()
    answers = {answer(client) for client in clients}
    pusher.join()
    assert pushed.is_set() and len(answers) == 8


@pytest.mark.parametrize("served", [(), ("--workers", "2")], indirect=True)
def test_the_standard_library_is_patched_before_the_application_is_loaded(served) -> None:
    found = json.loads(served.ask("GET", "/patched")[2])
    assert found["socket"].startswith("gevent.") and found["tls"].startswith("gevent.")
    assert found["lock"].startswith(("gevent.", "_gevent", "gevent"))
