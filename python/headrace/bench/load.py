"""Loads a server: starts a load generator as a process of its own and reads the JSON that it prints.

The client is another process, so that its threads never share an interpreter with the bench's own bookkeeping.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.bench.machine import Cores
from headrace.bench.model import PROGRAMS, Case, Endpoint, Scenario
from headrace.bench.process import Processes, StartFailure

#: Seconds that a load may take beyond what it was told, connecting and starting included.
SLACK = 30.0


class LoadFailure(Exception):
    """The load generator could not do its work; the text is its last line."""


def words(
    scenario: Scenario,
    case: Case,
    endpoint: Endpoint,
    pid: int,
    seconds: float,
    folder: Path,
    *,
    warmup: float = 0.0,
    connections: int | None = None,
    rate: float | None = None,
) -> list[str]:
    """The command line that loads a server for one round.

    :param folder: where a body that is to be posted is written.
    """
    url = case.url.format(
        bind=endpoint.bind, host=endpoint.host, port=endpoint.port, path=endpoint.path or "/"
    )
    count = case.connections if connections is None else connections
    common = [
        "-c",
        str(count),
        "-d",
        f"{seconds:g}",
        "--warmup",
        f"{warmup:g}",
        "--pid",
        str(pid),
        "--json",
        "-",
    ]
    if case.body is not None:
        body = folder / "body"
        body.write_bytes(case.body)
        common += ["--body", str(body)]
    if rate is not None:
        common += ["--rate", f"{rate:g}"]
    if scenario.driver == "client":
        return [sys.executable, str(PROGRAMS / "client.py"), url, *common, *case.options]
    return [sys.executable, "-m", "headrace", "load", url, *common, "--quiet", *case.options]


def run(
    processes: Processes, command: Sequence[str], seconds: float, cores: Cores, folder: Path
) -> dict[str, Any]:
    """Run a load generator and give its result.

    :raises LoadFailure: when it fails, prints something else, or does not end in time.
    """
    return _json_of(processes, command, seconds, cores.client, folder, {})


def run_self(
    processes: Processes,
    command: Sequence[str],
    seconds: float,
    cores: Cores,
    folder: Path,
    variables: Mapping[str, str],
) -> dict[str, Any]:
    """Run a program that times itself: it prints ``operations``, ``seconds``, ``cpu_ns``, ``process_cpu_ns`` as JSON.

    :returns: the same shape as a load generator's result.
    :raises LoadFailure: as ``run`` does.
    """
    found = _json_of(processes, command, seconds, cores.server, folder, variables)
    operations, took = found["operations"], found["seconds"]
    return {
        "tool": "self-timed",
        "requests": operations,
        "duration_s": took,
        "requests_per_second": operations / took,
        "errors": {},
        "latency_us": {},
        "server": {
            "cpu_ns": found["cpu_ns"],
            "process_cpu_ns": found["process_cpu_ns"],
            "cpu_ns_per_request": found["cpu_ns"] / operations,
            "processes": 1,
        },
    }


def _json_of(
    processes: Processes,
    command: Sequence[str],
    seconds: float,
    cores: Sequence[int],
    folder: Path,
    variables: Mapping[str, str],
) -> dict[str, Any]:
    """Run a command and give the last JSON object that it printed."""
    try:
        running = processes.start("load", command, cores=cores, folder=folder, variables=variables)
    except StartFailure as error:
        raise LoadFailure(str(error)) from None
    try:
        running.process.wait(seconds + SLACK)
    except subprocess.TimeoutExpired:
        raise LoadFailure(f"{Path(command[0]).name} did not end within {seconds + SLACK:g} s") from None
    finally:
        processes.stop(running)
    text = running.log_path.read_text(errors="replace")
    running.log_path.unlink(missing_ok=True)
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                result: dict[str, Any] = json.loads(line)
            except ValueError:
                break
            return result
    last = text.strip().splitlines()[-1:] or ["nothing printed"]
    raise LoadFailure(f"failed: {last[0]}")
