"""The local API that ``tornado-http-client`` calls: a small asyncio server that answers each request with JSON."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.bench.model import PROGRAMS, Service
from headrace.bench.process import Processes, accepts, free_port


def start_upstream(processes: Processes, folder: Path) -> str:
    """Start the API."""
    port = free_port()
    words = [sys.executable, str(PROGRAMS / "upstream.py"), "--bind", f"127.0.0.1:{port}"]
    running = processes.start("upstream", words, folder=folder)
    processes.wait_ready(running, lambda: accepts(port))
    return f"http://127.0.0.1:{port}/"


SERVICE = Service("upstream", "a local JSON API", (), start_upstream, "HEADRACE_BENCH_UPSTREAM")
