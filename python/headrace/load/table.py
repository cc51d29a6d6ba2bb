"""A result as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: The quantiles that are shown.
QUANTILES = ("p50", "p75", "p90", "p99", "p99.9", "max")


def duration(microseconds: float) -> str:
    """A latency, in the unit that suits it."""
    if microseconds < 1_000:
        return f"{microseconds:.0f} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1_000:.2f} ms"
    return f"{microseconds / 1_000_000:.2f} s"


def size(count: float) -> str:
    """A number of bytes, in the unit that suits it."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1_000:
            return f"{count:.3g} {unit}"
        count /= 1_000
    return f"{count:,.0f} TB"


def table(result: dict[str, Any]) -> str:
    """The result of a run, as lines of text."""
    return "\n".join(lines(result))


def lines(result: dict[str, Any]) -> Iterator[str]:
    """The lines of the table."""
    seconds = result["duration_s"]
    yield f"{result['url']}: {loop(result)}, {seconds:.2f} s{', interrupted' if result['interrupted'] else ''}"
    yield ""
    yield row(
        "requests",
        f"{result['requests']:,} good, {result['requests_per_second']:,.0f} a second",
    )
    if result["offered"] is not None:
        yield row(
            "offered",
            f"{result['offered']:,}, {result['unsent']:,} of them never sent (no free connection)",
        )
    latency = result["latency_us"]
    if latency["max"] is not None:
        yield row(
            "latency",
            "   ".join(f"{name} {duration(latency[name])}" for name in QUANTILES),
        )
        spread = f"mean {duration(latency['mean'])}   standard deviation {duration(latency['stdev'])}"
        yield row("", f"{spread}   min {duration(latency['min'])}")
    if result["lag_us"] is not None and result["lag_us"]["max"] is not None:
        lag = result["lag_us"]
        shown = "   ".join(f"{name} {duration(lag[name])}" for name in ("p50", "p99", "max"))
        yield row("sent late by", f"{shown}   (the latencies include it)")
    if result["status"]:
        yield row(
            "replies" if result["protocol"] == "redis" else "status",
            "   ".join(f"{code}: {count:,}" for code, count in result["status"].items()),
        )
    yield row("errors", errors(result))
    if seconds > 0:
        yield row(
            "bytes",
            f"in {size(result['bytes_in'] / seconds)}/s   out {size(result['bytes_out'] / seconds)}/s",
        )
    yield from processors(result)
    yield from kinds(result)
    if "search" in result:
        yield from ("", search(result["search"]))


def kinds(result: dict[str, Any]) -> Iterator[str]:
    """A line for each kind of request, where there are several."""
    for kind in result["kinds"]:
        figures = kind["latency_us"]
        text = f"{kind['requests']:,} good, {kind['bad']:,} bad"
        if figures["max"] is not None:
            text += "   " + "   ".join(f"{name} {duration(figures[name])}" for name in ("p50", "p99", "max"))
        yield row(kind["name"], text)


def search(found: dict[str, Any]) -> str:
    """What a search for a rate has found."""
    goal = duration(found["goal_p99_us"])
    if found["rate"] is None:
        return f"no rate was found that keeps p99 within {goal} without errors"
    return f"highest rate that keeps p99 within {goal} without errors: {found['rate']:,.0f} requests/s"


def loop(result: dict[str, Any]) -> str:
    """How requests were sent, in words."""
    text = f"{result['connections']} connections, {result['threads']} thread{'s' if result['threads'] > 1 else ''}"
    if result["pipeline"] > 1:
        text += f", {result['pipeline']} requests in one piece"
    if result["ramp"] is not None:
        low, high = result["ramp"]
        text += f", {result['arrivals']} rate from {low:,.6g}/s to {high:,.6g}/s"
    elif result["rate"] is not None:
        text += f", {result['arrivals']} rate of {result['rate']:,.6g}/s"
    return text


def errors(result: dict[str, Any]) -> str:
    """The errors by kind, and the first of them in words."""
    seen = [f"{kind} {count:,}" for kind, count in result["errors"].items() if count]
    if result["reconnects"]:
        seen.append(f"(connections opened anew: {result['reconnects']:,})")
    text = "   ".join(seen) or "none"
    if result["first_error"] and (any(result["errors"].values()) or not result["requests"]):
        text += f"\n{'':>14}first: {result['first_error']}"
    if result["errors"]["body"]:
        text += f"\n{'':>14}bodies that rightly differ in length need --any-length"
    return text


def processors(result: dict[str, Any]) -> Iterator[str]:
    """CPU time of the server and of this client."""
    server = result.get("server")
    if server is not None and server["cpu_ns_per_request"] is not None:
        count = f"{server['processes']} process{'es' if server['processes'] != 1 else ''}"
        yield row(
            "server CPU",
            f"{server['cpu_ns_per_request'] / 1000:.2f} µs a request ({count})",
        )
    client = result["client"]
    if client["cpu_ns_per_request"] is not None:
        cost = f"{client['cpu_ns_per_request'] / 1000:.2f} µs a request, {client['cpu_share']:.0%} of a core"
        yield row("client CPU", cost)
    if client["bound"]:
        yield row(
            "",
            "this client was busy for most of its core: it may have been the limit (more --threads?)",
        )


def row(name: str, text: str) -> str:
    """One line: a name and what it is."""
    return f"{name:>12}  {text}"
