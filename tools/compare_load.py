"""Compare the load generator's own CPU time with that of wrk and redis-benchmark, on this machine.

``python tools/compare_load.py [--rounds 6] [--seconds 3]``: the tools take turns on the same server (the null
responder of ``crates/load/examples``, redis-server), client and server each on a core of its own. Printed are
microseconds of the client's CPU time for each request, round by round, and the median of the ratios. Tools
that are not installed are left out with a line.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The least ratio of CPU time that the project wants: of wrk's for HTTP, of redis-benchmark's for GET.
GOALS = {"wrk": 0.85, "redis-benchmark": 0.60}
KEYS = 10_000


def on_core(core: int, words: list[str]) -> list[str]:
    """The words that run a command on one core, where there are several."""
    return ["taskset", "-c", str(core), *words] if (os.cpu_count() or 1) > 1 else words


@contextmanager
def server(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A server on the first core, until the end of the block."""
    with subprocess.Popen(on_core(0, words), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def timed(words: list[str]) -> tuple[str, float]:
    """Run a client on the second core: its output and the seconds of CPU time it used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(on_core(1, words), check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def headrace(url: str, connections: int, seconds: float) -> float:
    """Microseconds a request of ``headrace load``, of its threads that load."""
    words = [sys.executable, "-m", "headrace", "load", url, "-c", str(connections), "-d", str(seconds)]
    output, _ = timed([*words, "--warmup", "0.2", "--json", "-"])
    result = json.loads(output)
    if any(result["errors"].values()):
        raise SystemExit(f"headrace load had errors: {result['first_error']}")
    return float(result["client"]["cpu_ns_per_request"]) / 1000


def wrk(url: str, connections: int, seconds: float) -> float:
    """Microseconds a request of wrk."""
    output, used = timed(["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}", url])
    found = re.search(r"(\d+) requests in", output)
    if found is None:
        raise SystemExit(f"wrk printed something else: {output}")
    return used / int(found[1]) * 1e6


def redis_benchmark(port: int, connections: int, seconds: float) -> float:
    """Microseconds a request of redis-benchmark, which is told a number of requests in place of seconds."""
    count = int(50_000 * seconds)
    options = ["-t", "get", "-r", str(KEYS), "-c", str(connections), "-n", str(count), "-q"]
    _, used = timed(["redis-benchmark", "-p", str(port), *options])
    return used / count * 1e6


def report(name: str, theirs: list[float], ours: list[float]) -> None:
    """Print the rounds and their ratio."""
    for other, own in zip(theirs, ours, strict=True):
        print(f"  {name} {other:6.2f} us   headrace load {own:6.2f} us   ratio {own / other:.2f}")
    ratio = statistics.median(own / other for other, own in zip(theirs, ours, strict=True))
    print(f"  median ratio {ratio:.2f} (goal: at most {GOALS[name]:.2f})")


def compare_http(rounds: int, seconds: float) -> None:
    """HTTP hello, 64 connections, one thread."""
    build = ["cargo", "build", "--quiet", "--release", "-p", "headrace-load", "--example", "null_responder"]
    subprocess.run(build, check=True, cwd=ROOT)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    with server([str(target / "release/examples/null_responder"), "http", "127.0.0.1:0"]) as process:
        assert process.stdout is not None
        url = f"http://{process.stdout.readline().strip()}/"
        pairs = [(wrk(url, 64, seconds), headrace(url, 64, seconds)) for _ in range(rounds)]
    report("wrk", [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def compare_redis(rounds: int, seconds: float) -> None:
    """GET of keys that exist, 50 connections."""
    port = 40_000 + os.getpid() % 20_000
    with tempfile.TemporaryDirectory() as folder:
        words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with server([*words, "--appendonly", "no", "--loglevel", "warning"]):
            time.sleep(0.5)
            url = f"redis://127.0.0.1:{port}?keys={KEYS}"
            headrace(f"{url}&set&order=turn", 10, 1)
            pairs = [
                (redis_benchmark(port, 50, seconds), headrace(f"{url}&get", 50, seconds))
                for _ in range(rounds)
            ]
    report("redis-benchmark", [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def main() -> int:
    """Compare with each tool that is installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3)
    args = parser.parse_args()
    for name, needed, compare in (
        ("HTTP hello, 64 connections", ["wrk"], compare_http),
        ("Redis GET, 50 connections", ["redis-benchmark", "redis-server"], compare_redis),
    ):
        print(name)
        absent = [program for program in needed if shutil.which(program) is None]
        if absent:
            print(f"  left out: {', '.join(absent)} not installed")
        else:
            compare(args.rounds, args.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
