"""What a user sees of ``headrace bench``: names found, mistakes in one line, a real run from end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from headrace.bench import checks, command, registry
from headrace.bench.model import Case, Contender, Scenario
from headrace.bench.process import Processes
from headrace.bench.rounds import Bench, Settings
from headrace.bench.run import FORMAT

TINY = Settings(rounds=2, seconds=0.1, restart_every=1, warmup_step=0.05, warmup_limit=0.1)


def bench(headrace: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``headrace bench``."""
    return subprocess.run(
        [*headrace, "bench", *words], capture_output=True, text=True, timeout=90, check=False
    )


def one_line(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """Hold a mistake to one line on standard error and status 2."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def program(code: str) -> Contender:
    """A contender that is a Python program given as text; its last argument is ``HOST:PORT``."""
    return Contender(
        "made-up",
        "for a test",
        {"loop.protocol": lambda launch: [sys.executable, "-c", code, launch.endpoint.bind]},
    )


def tcp_echo_of(size: int = 64) -> Scenario:
    """A small echo scenario."""
    case = Case("64 B", checks.echo(size), f"tcp://{{bind}}?size={size}", 2)
    workloads = {"loop.protocol": ("echo.py", "--api", "protocol")}
    return Scenario("small-echo", "for a test", workloads, (case,), "asyncio")


def measure(*contenders: Contender) -> dict[str, dict]:
    """Measure contenders on the small echo, by name."""
    scenario = tcp_echo_of()
    with Processes() as processes:
        found = Bench(processes, TINY, {}, lambda line: None)
        return {each["name"]: each for each in found.case(scenario, scenario.cases[0], contenders, "asyncio")}


@pytest.fixture(scope="module")
def asyncio_contender() -> Contender:
    return registry.contenders()["asyncio"]


def test_list_names_scenarios_and_contenders(headrace):
    done = bench(headrace, "list")
    assert done.returncode == 0
    assert "tcp-echo:" in done.stdout and "http-hello:" in done.stdout
    assert "granian-asgi" in done.stdout


def test_every_scenario_has_a_baseline_that_can_host_it():
    for scenario in registry.scenarios().values():
        assert scenario.baseline in {each.name for each in registry.hosts_of(scenario)}, scenario.name
        names = [case.name for case in scenario.cases]
        assert names and len(names) == len(set(names)), scenario.name
        assert not any("," in name for name in names), "--cases takes names parted by commas"


def test_an_unknown_scenario_gets_the_nearest_names(headrace):
    one_line(bench(headrace, "run", "tcp-ecko"), "tcp-echo")


def test_an_unknown_contender_gets_the_nearest_names(headrace):
    one_line(bench(headrace, "run", "tcp-echo", "--contenders", "uvlop"), "uvloop")


def test_a_contender_that_cannot_host_the_scenario_is_refused(headrace):
    one_line(
        bench(headrace, "run", "tcp-echo", "--contenders", "granian-asgi"), "cannot run tcp-echo", "asyncio"
    )


def test_nonsense_is_refused(headrace):
    one_line(bench(headrace, "run", "tcp-echo", "--rounds", "0"), "--rounds")
    one_line(bench(headrace, "run", "tcp-echo", "--seconds", "nan"), "--seconds")
    one_line(bench(headrace, "run", "tcp-echo", "--connections", "0"), "--connections")
    one_line(bench(headrace, "run", "tcp-echo", "--cases", "7 KB"), "1 KB")
    one_line(bench(headrace, "run", "tcp-echo", "--json", "/nowhere/x.json"), "/nowhere/x.json")


def test_a_contender_that_fails_to_start_is_reported_and_does_not_stop_the_others(asyncio_contender):
    found = measure(asyncio_contender, program("raise SystemExit('no such thing here')"))
    assert found["made-up"]["status"] == "failed"
    assert "ended at once" in found["made-up"]["reason"]
    assert "no such thing here" in found["made-up"]["log"]
    assert len(found["asyncio"]["rounds"]) == TINY.rounds


def test_a_contender_that_answers_wrongly_is_reported(asyncio_contender):
    code = """
import asyncio, sys
async def shout(reader, writer):
    while data := await reader.read(65536):
        writer.write(data.upper())
async def main():
    host, port = sys.argv[1].split(":")
    await (await asyncio.start_server(shout, host, port)).serve_forever()
asyncio.run(main())
"""
    found = measure(asyncio_contender, program(code))
    assert found["made-up"]["status"] == "failed"
    assert "wrong answer" in found["made-up"]["reason"]
    assert not found["made-up"]["rounds"]
    assert found["asyncio"]["status"] == "measured"


def test_a_contender_that_dies_under_load_is_reported(asyncio_contender):
    code = """
import asyncio, os, sys
count = 0
async def echo(reader, writer):
    global count
    while data := await reader.read(65536):
        count += 1
        if count > 20:
            print("out of order", flush=True)
            os._exit(3)
        writer.write(data)
async def main():
    host, port = sys.argv[1].split(":")
    await (await asyncio.start_server(echo, host, port)).serve_forever()
asyncio.run(main())
"""
    found = measure(asyncio_contender, program(code))
    assert found["made-up"]["status"] == "failed"
    assert "out of order" in found["made-up"]["log"]
    assert len(found["asyncio"]["rounds"]) == TINY.rounds


def test_a_run_writes_raw_rounds_histograms_and_environment(headrace, tmp_path):
    where = tmp_path / "run.json"
    words = [
        "run",
        "tcp-echo",
        "--contenders",
        "asyncio,asyncio-streams",
        "--cases",
        "1 KB",
        "--baseline",
        "asyncio",
    ]
    done = bench(headrace, *words, "--connections", "7", "--quick", "--json", str(where))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(where.read_text())
    assert (found["tool"], found["format"]) == ("headrace bench", FORMAT)
    (case,) = found["scenarios"][0]["cases"]
    assert case["connections"] == 7
    assert all(r["load"]["connections"] == 7 for each in case["contenders"] for r in each["rounds"])
    by_name = {each["name"]: each for each in case["contenders"]}
    # Two rounds give no verdict, so that the baseline need not run twice.
    assert set(by_name) == {"asyncio", "asyncio-streams"}
    for each in by_name.values():
        assert len(each["rounds"]) == command.QUICK.rounds
        for round_ in each["rounds"]:
            assert round_["load"]["requests"] > 0
            assert round_["load"]["histogram"]
            # What the load generator counts and what its window was must agree with what the kernel can have given.
            assert 500 < round_["cpu_ns_per_request"] < 1_000_000
    assert case["summary"]["floor"] is None, "two rounds give no floor"
    assert "too few" in done.stdout
    assert found["environment"]["kernel"]
    assert "asyncio-streams" in done.stdout


def test_nothing_is_left_running_or_lying_about_when_the_bench_is_killed(headrace, tmp_path):
    words = [*headrace, "bench", "run", "tcp-echo", "--contenders", "asyncio", "--seconds", "30"]
    process = subprocess.Popen(
        words,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: any("echo.py" in line for line in children(process.pid)))
        started = [int(line.split()[0]) for line in children(process.pid)]
        assert started
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))
    wait_for(lambda: not list(tmp_path.iterdir()))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_services_end_with_the_bench(headrace, tmp_path, how: signal.Signals):
    pytest.importorskip("tornado")
    words = ["run", "tornado-http-client", "--contenders", "tornado-asyncio", "--seconds", "30"]
    process = subprocess.Popen(
        [*headrace, "bench", *words],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: any("tornado_serve.py" in line for line in children(process.pid)))
        started = children(process.pid)
        assert any("upstream.py" in line for line in started)
        process.send_signal(how)
        process.wait(30)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not any(Path(f"/proc/{line.split()[0]}").exists() for line in started))
    wait_for(lambda: not list(tmp_path.iterdir()))


def children(pid: int) -> list[str]:
    """The processes below one: id and command line."""
    from headrace.bench.cpu import tree

    found = []
    for each in tree(pid):
        if each != pid:
            try:
                found.append(f"{each} " + Path(f"/proc/{each}/cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
    return found


def wait_for(condition, seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    import time

    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def test_an_interrupted_run_keeps_what_it_has(headrace, tmp_path):
    where = tmp_path / "run.json"
    words = [*headrace, "bench", "run", "call-soon", "tcp-echo", "--contenders", "asyncio"]
    process = subprocess.Popen(
        [*words, "--rounds", "3", "--seconds", "2", "--json", str(where)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        wait_for(lambda: any("echo.py" in line for line in children(process.pid)), 60)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    found = json.loads(where.read_text())
    assert [each["name"] for each in found["scenarios"]] == ["call-soon"]
    assert found["left_out"][0]["name"] == "tcp-echo" and "interrupted" in found["left_out"][0]["reason"]
    assert "call-soon" in out
    assert list(tmp_path.iterdir()) == [where]
