"""The figures in an old tool's own form, each with what it hides.

Scripts and habits know the output of ab, wrk and redis-benchmark. The numbers here were measured by this tool's
rules (answers checked, exact connection counts); the form is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TOOLS = ("ab", "wrk", "redis-benchmark")


def in_form_of(tool: str, result: dict[str, Any]) -> str:
    """The result in the form of ``ab``, ``wrk`` or ``redis-benchmark``, and why that form can mislead."""
    form, warnings = {
        "ab": (ab, AB_MISLEADS),
        "wrk": (wrk, WRK_MISLEADS),
        "redis-benchmark": (redis_benchmark, REDIS_BENCHMARK_MISLEADS),
    }[tool]
    text = [*form(result), "", f"Why {tool}'s form can mislead:"]
    return "\n".join([*text, *(f"- {warning}" for warning in warnings)])


AB_MISLEADS = (
    'ab counts an answer whose length differs from the first one\'s as failed ("Length"): a counter fails always.',
    "Its two figures for time per request are the same number, divided once by the concurrency.",
    "It waits for slow answers before it sends again, so a stall hides the requests that would have come then.",
)
WRK_MISLEADS = (
    "wrk rounds connections down to a multiple of its threads (-t12 -c500 opens 492); here they are exact.",
    "It compares no answers: any status of 2xx or 3xx and any body counts.",
    "It waits for slow answers before it sends again, so a stall hides the requests that would have come then: "
    "its percentiles are those of a server whose users are polite. Give --rate to see the others.",
)
REDIS_BENCHMARK_MISLEADS = (
    "redis-benchmark does not tell nil from a value: a GET on keys that were never set measures neither.",
    "It often needs more CPU time for a request than the server does, so it shows its own limit; see client CPU.",
    "Pipelined requests are counted each, but their latency is that of the whole piece.",
)


def milliseconds(microseconds: float | None) -> float:
    """Microseconds in milliseconds; nothing measured is 0, as the old tools have it."""
    return (microseconds or 0) / 1000


def ab(result: dict[str, Any]) -> Iterator[str]:
    """The summary of ``ab -k``."""
    seconds, requests, latency = result["duration_s"], result["requests"], result["latency_us"]
    failed = sum(result["errors"].values())
    rate = result["requests_per_second"]
    concurrency = result["connections"]
    yield f"Concurrency Level:      {concurrency}"
    yield f"Time taken for tests:   {seconds:.3f} seconds"
    yield f"Complete requests:      {requests + failed}"
    yield f"Failed requests:        {failed}"
    if failed:
        errors = result["errors"]
        received = errors["read"] + errors["timeout"] + errors["protocol"]
        yield (
            f"   (Connect: {errors['connect']}, Receive: {received}, Length: {errors['body']}, "
            f"Exceptions: {errors['write'] + errors['status']})"
        )
    yield f"Total transferred:      {result['bytes_in']} bytes"
    yield f"Requests per second:    {rate:.2f} [#/sec] (mean)"
    if rate:
        yield f"Time per request:       {concurrency / rate * 1000:.3f} [ms] (mean)"
        yield f"Time per request:       {1000 / rate:.3f} [ms] (mean, across all concurrent requests)"
    if seconds:
        yield f"Transfer rate:          {result['bytes_in'] / 1024 / seconds:.2f} [Kbytes/sec] received"
    yield ""
    yield "Percentage of the requests served within a certain time (ms)"
    for share, name in (("50%", "p50"), ("75%", "p75"), ("90%", "p90"), ("99%", "p99"), ("100%", "max")):
        yield f"  {share:>4}  {milliseconds(latency[name]):.0f}" + (
            " (longest request)" if name == "max" else ""
        )


def wrk(result: dict[str, Any]) -> Iterator[str]:
    """The summary of ``wrk --latency``."""
    seconds, latency, errors = result["duration_s"], result["latency_us"], result["errors"]
    threads = result["threads"]
    yield f"Running {seconds:.0f}s test @ {result['url']}"
    yield f"  {threads} threads and {result['connections']} connections"
    yield "  Thread Stats   Avg      Stdev     Max"
    spread = "".join(f"{wrk_time(latency[name]):>10}" for name in ("mean", "stdev", "max"))
    yield f"    Latency   {spread}"
    yield "  Latency Distribution"
    for share, name in (("50%", "p50"), ("75%", "p75"), ("90%", "p90"), ("99%", "p99")):
        yield f"     {share}{wrk_time(latency[name]):>10}"
    size = result["bytes_in"]
    yield f"  {result['requests']} requests in {seconds:.2f}s, {binary(size)} read"
    if any(errors[kind] for kind in ("connect", "read", "write", "timeout", "protocol")):
        yield (
            f"  Socket errors: connect {errors['connect']}, read {errors['read'] + errors['protocol']}, "
            f"write {errors['write']}, timeout {errors['timeout']}"
        )
    if errors["status"]:
        yield f"  Non-2xx or 3xx responses: {errors['status']}"
    yield f"Requests/sec: {result['requests_per_second']:>10.2f}"
    if seconds:
        yield f"Transfer/sec: {binary(size / seconds):>10}"


def wrk_time(microseconds: float | None) -> str:
    """A time in wrk's units."""
    value = microseconds or 0.0
    if value < 1_000:
        return f"{value:.2f}us"
    if value < 1_000_000:
        return f"{value / 1_000:.2f}ms"
    return f"{value / 1_000_000:.2f}s"


def binary(size: float) -> str:
    """A number of bytes in wrk's units of 1024."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.2f}{unit}"
        size /= 1024
    return f"{size:.2f}TB"


def redis_benchmark(result: dict[str, Any]) -> Iterator[str]:
    """The summary of ``redis-benchmark``, for all commands together and then for each."""
    latency = result["latency_us"]
    names = " ".join(kind["name"] for kind in result["kinds"]) or "requests"
    yield f"====== {names} ======"
    yield f"  {result['requests']} requests completed in {result['duration_s']:.2f} seconds"
    yield f"  {result['connections']} parallel clients"
    yield f"  pipeline: {result['pipeline']}"
    yield f"  multi-thread: {'yes' if result['threads'] > 1 else 'no'}"
    yield ""
    yield "Summary:"
    yield f"  throughput summary: {result['requests_per_second']:.2f} requests per second"
    yield "  latency summary (msec):"
    yield "          avg       min       p50       p99       max"
    figures = (latency[name] for name in ("mean", "min", "p50", "p99", "max"))
    yield "    " + "".join(f"{milliseconds(figure):>10.3f}" for figure in figures).strip().rjust(49)
