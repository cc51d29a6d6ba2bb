"""Redis without persistence."""

from __future__ import annotations

import socket
from pathlib import Path

from headrace.bench.model import Program, Service
from headrace.bench.process import Processes, free_port
from headrace.bench.services.databases import APT, PATIENCE, path_of

REDIS = Program("redis-server", f"{APT} redis-server")


def pings(port: int) -> bool:
    """Whether Redis answers PING."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as stream:
            stream.sendall(b"PING\r\n")
            return stream.recv(16) == b"+PONG\r\n"
    except OSError:
        return False


def start_redis(processes: Processes, folder: Path) -> str:
    """Start Redis."""
    port = free_port()
    where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no"]
    running = processes.start(
        "redis", [path_of(REDIS), *where, "--save", "", "--appendonly", "no"], folder=folder
    )
    processes.wait_ready(running, lambda: pings(port), PATIENCE)
    return f"redis://127.0.0.1:{port}/0"


SERVICE = Service("redis", "Redis without persistence", (REDIS,), start_redis, "HEADRACE_BENCH_REDIS")
