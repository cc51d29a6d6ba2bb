"""``bench sources``: each published figure of the five sources beside what was measured here.

``data/figures.csv`` has the figures as they were published, on machines and versions of 2015 to 2023: the columns
stand side by side to show which rows there are and which way they point, not to be divided by each other.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from headrace.bench import registry
from headrace.bench.machine import describe

FIGURES = Path(__file__).with_name("data") / "figures.csv"
#: Bytes of the body that our plain-string handler answers; the source's was 8.
HELLO_BYTES = 12
#: Requests of the sources' ``ab`` runs.
AB_REQUESTS = 10_000


@dataclass(frozen=True)
class Counterpart:
    """What here stands for a published row.

    :param scenario: the scenario.
    :param contenders: the contenders, the first being the row's own.
    :param case: a case of the scenario; empty for its first.
    """

    scenario: str
    contenders: tuple[str, ...]
    case: str = ""

    @property
    def command(self) -> str:
        """What measures it."""
        return f"headrace bench run {self.scenario} --contenders {','.join(self.contenders)} --json FILE"


ECHO = (
    *(
        "asyncio-streams",
        "tornado",
        "curio-streams",
        "twisted",
        "curio",
        "uvloop-streams",
        "gevent",
        "asyncio",
    ),
    *("nodejs", "uvloop", "go", "headrace", "headrace-streams"),
)
HTTP = ("aiohttp-asyncio", "aiohttp-uvloop", "httptools-asyncio", "httptools-uvloop", "nodejs", "go")
LADDER = tuple(
    f"broadcast-{name}"
    for name in (
        *("01-naive", "02-threads", "03-indexes", "04-raw-sql", "05-filters-in-sql", "06-one-query"),
        *("07-held-channel", "08-async-driver", "09-fitting-indexes", "10-batched-confirms"),
        *("11-uvloop", "12-headrace", "13-headrace-serve", "14-two-workers"),
    )
)
REDIS = ("redis-server", "gevent-redis", "asyncio-streams", "uvloop-streams", "headrace-streams")

#: Counterparts by source, scenario and the start of the variant; the longest start wins.
COUNTERPARTS: dict[tuple[str, str, str], Counterpart] = {
    ("1", "plain-string", "tornado-ioloop"): Counterpart("tornado-hello", ("tornado-asyncio",)),
    ("1", "plain-string", "tornado-asyncio"): Counterpart("tornado-hello", ("tornado-asyncio",)),
    ("1", "plain-string", "tornado-uvloop"): Counterpart("tornado-hello", ("tornado-uvloop",)),
    ("1", "async-httpclient", "tornado-ioloop"): Counterpart("tornado-http-client", ("tornado-asyncio",)),
    ("1", "async-httpclient", "tornado-asyncio"): Counterpart("tornado-http-client", ("tornado-asyncio",)),
    ("1", "async-httpclient", "tornado-uvloop"): Counterpart("tornado-http-client", ("tornado-uvloop",)),
    ("1", "db-read", "asyncpg-connect"): Counterpart("db-read", ("asyncpg-connect",)),
    ("1", "db-read", "asyncpg-pool"): Counterpart("db-read", ("asyncpg-pool",)),
    ("1", "db-read", "aiomysql-pool"): Counterpart("db-read", ("aiomysql-pool",)),
    ("1", "db-read", "motor"): Counterpart("db-read", ("motor-connect", "motor")),
    ("2", "tcp-echo", "asyncio-streams|"): Counterpart("tcp-echo", ECHO, "1 KB"),
    ("2", "tcp-echo", "uvloop"): Counterpart("tcp-echo", ("uvloop",)),
    ("2", "tcp-echo", "go"): Counterpart("tcp-echo", ("go", "uvloop"), "100 KB"),
    ("2", "unix-echo", ""): Counterpart("unix-echo", ECHO, "1 KB"),
    ("2", "http", ""): Counterpart("http-sizes", HTTP, "1 KB"),
    ("2", "overall", ""): Counterpart("tcp-echo", ("uvloop", "nodejs", "gevent", "go"), "1 KB"),
    ("2", "environment", ""): Counterpart("tcp-echo", ("uvloop",)),
    ("3", "redis-get", "gevent"): Counterpart("redis", ("gevent-redis",), "GET missing"),
    ("3", "redis-get", "asyncio-streams"): Counterpart(
        "redis", ("asyncio-streams", "redis-server"), "GET missing"
    ),
    ("3", "redis-get", "uvloop-streams"): Counterpart(
        "redis", ("uvloop-streams", "redis-server"), "GET missing"
    ),
    ("3", "redis-get", "native-redis"): Counterpart("redis", ("redis-server",), "GET missing"),
    ("3", "redis-get", "asyncio vs gevent"): Counterpart(
        "redis", ("asyncio-streams", "gevent-redis"), "GET missing"
    ),
    ("3", "redis-get", "uvloop vs gevent"): Counterpart(
        "redis", ("uvloop-streams", "gevent-redis"), "GET missing"
    ),
    ("4", "api", "before"): Counterpart("broadcast-api", ("broadcast-01-naive",)),
    ("4", "api", ""): Counterpart("broadcast-api", ("broadcast-14-two-workers",)),
    ("4", "api", "after"): Counterpart("broadcast-api", ("broadcast-06-one-query",)),
    ("4", "hello-world", ""): Counterpart("tornado-hello", ("tornado-asyncio",)),
    ("4", "orm-cost", "sqlalchemy ORM"): Counterpart(
        "broadcast-api", ("broadcast-03-indexes", "broadcast-04-raw-sql")
    ),
    ("4", "orm-cost", "sqlalchemy raw"): Counterpart("broadcast-api", ("broadcast-04-raw-sql",)),
    ("4", "steps", ""): Counterpart("broadcast-api", LADDER),
    ("5", "flask-redis-incr-get", "sync"): Counterpart("flask-redis", ("gunicorn-sync",)),
    ("5", "flask-redis-incr-get", "tornado"): Counterpart("flask-redis", ("gunicorn-tornado",)),
    ("5", "flask-redis-incr-get", "eventlet"): Counterpart("flask-redis", ("gunicorn-eventlet",)),
    ("5", "flask-redis-incr-get", "gevent"): Counterpart("flask-redis", ("gunicorn-gevent",)),
}

#: What Headrace has to set beside a row's own contender, by scenario: shown in the same line.
OURS = {
    "tornado-hello": ("tornado-headrace", "headrace-tornado"),
    "tornado-http-client": ("tornado-headrace", "headrace-tornado"),
    "redis": ("headrace-streams",),
    "flask-redis": ("headrace-wsgi", "headrace-wsgi-threads", "headrace-wsgi-gevent"),
    "tcp-echo": ("headrace", "headrace-streams"),
    "unix-echo": ("headrace", "headrace-streams"),
    "http-sizes": ("headrace-asgi", "headrace-wsgi"),
}
#: Cases of rows that speak of several sizes.
CASES = {"tcp-echo": ("1 KB", "10 KB", "100 KB"), "http-sizes": ("1 KB", "10 KB", "100 KB")}
#: The scenario whose connections the first source ran out of; who is swept, for how long a value, and the share of
#: the whole time that this takes.
SWEPT = "db-read"
SWEEP_CONTENDERS = ("asyncpg-connect", "asyncpg-pool", "motor-connect", "motor")
SWEEP_SECONDS, SWEEP_SHARE = 1.0, 0.2

#: What is wrong with a source's figures, by source and scenario; printed once above its rows.
FAULTS = {
    (
        "1",
        "plain-string",
    ): "three loops within 0.07 % under ab: something they shared was the limit; wrk -t12 -c500 "
    "opens 492 connections; Tornado 6's default loop is asyncio's, so that two rows are one here",
    (
        "1",
        "db-read",
    ): "each driver ran another query, and motor made a client for each request; here the same row and "
    "answer for all, one client",
    ("2", "tcp-echo"): "one blocking Python client for each connection, fixed order, one run",
    (
        "3",
        "redis-get",
    ): "the keys were never set, every reply was nil; redis-benchmark used more CPU than the server",
    (
        "4",
        "api",
    ): "the goal of 2,000 was missed, and the connection to the broker for each message left as it was",
    (
        "5",
        "flask-redis-incr-get",
    ): "ab without -l counts a counter's longer answers as failed, so that 793 and 543 "
    "may be no errors at all; -t 30 stops at 50,000 requests",
}


@dataclass(frozen=True)
class Found:
    """The measured rounds of one contender."""

    contender: Mapping[str, Any]
    case: Mapping[str, Any]

    def median_of(self, get: Callable[[Mapping[str, Any]], float | None]) -> float | None:
        """The median of a figure over the rounds."""
        values = [value for each in self.contender["rounds"] if (value := get(each["load"])) is not None]
        return median(values) if values else None

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.median_of(lambda load: load["requests_per_second"]) or 0.0

    @property
    def errors(self) -> dict[str, int]:
        """Errors by kind, over all rounds."""
        total: dict[str, int] = {}
        for each in self.contender["rounds"]:
            for kind, count in each["load"]["errors"].items():
                total[kind] = total.get(kind, 0) + count
        return total

    def ms(self, name: str) -> str:
        """A latency in milliseconds."""
        value = self.median_of(lambda load: load["latency_us"].get(name))
        return "-" if value is None else f"{value / 1000:.3g}"

    def latencies(self, *names: str) -> str:
        """Several latencies, parted as the published figures are."""
        return "/".join(self.ms(name) for name in names)

    def bytes_per_request(self) -> float:
        """Bytes that the client received for each answer."""
        return (
            self.median_of(lambda load: load["bytes_in"] / load["requests"] if load["requests"] else None)
            or 0.0
        )


def wanted() -> dict[str, tuple[list[str], list[str]]]:
    """For each scenario that stands for a published row: the contenders and the cases that are needed."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for row in rows():
        stands = counterpart(row)
        names, cases = found.setdefault(
            stands.scenario, (list(OURS.get(stands.scenario, ())), list(CASES.get(stands.scenario, ())))
        )
        case = stands.case or registry.scenarios()[stands.scenario].cases[0].name
        names += (each for each in stands.contenders if each not in names)
        cases += (each for each in (case,) if each not in cases)
        if stands.scenario == "db-read":
            names += (f"{each}-headrace" for each in stands.contenders if f"{each}-headrace" not in names)
    return found


def rows() -> list[dict[str, str]]:
    """The published figures."""
    with FIGURES.open(newline="") as file:
        return list(csv.DictReader(file))


def counterpart(row: Mapping[str, str]) -> Counterpart:
    """What here stands for a row.

    :raises LookupError: when nothing does: a test holds that there is something for every row.
    """
    fitting = [
        (len(start), each)
        for (source, scenario, start), each in COUNTERPARTS.items()
        if (source, scenario) == (row["source"], row["scenario"]) and row["variant"].startswith(start)
    ]
    if not fitting:
        raise LookupError(f"no counterpart for {row['source']} {row['scenario']} {row['variant']}")
    return max(fitting, key=lambda pair: pair[0])[1]


def lines(documents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table: published and measured, row by row.

    :param documents: runs to take the measured figures from; of two that have the same, the later one counts.
    """
    measured = _index(documents)
    swept = _swept(documents)
    told = set()
    for row in rows():
        key = (row["source"], row["scenario"])
        if key not in told:
            told.add(key)
            yield ""
            yield f"source {row['source']}, {row['scenario']}" + (f": {FAULTS[key]}" if key in FAULTS else "")
        stands = counterpart(row)
        tool = " ".join(word for word in (row["tool"], row["params"]) if word and word != "not stated")
        published = (
            f"{row['variant']} {row['metric']} {row['value']} {row['unit'].replace('text', '')}".strip()
        )
        yield f"  published: {published}" + (f" ({tool})" if tool else "")
        yield f"  here:      {_measured(row, stands, measured, swept)}"


def _measured(
    row: Mapping[str, str],
    stands: Counterpart,
    measured: Mapping[tuple[str, str, str], Found],
    swept: Mapping[str, Mapping[str, Any]],
) -> str:
    """The counterpart's figure, or what measures it."""
    case = stands.case or next((key[1] for key in measured if key[0] == stands.scenario), "")
    if row["metric"] == "throughput":
        case = "100 KB"
    found = [measured.get((stands.scenario, case, name)) for name in stands.contenders]
    known = [each for each in found if each is not None]
    if row["metric"] == "hw":
        machine = describe([])
        return f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}; {machine['pinning']}"
    if row["metric"] == "failure":
        return _failure(stands, swept)
    if not known or found[0] is None:
        return f"not measured; {stands.command}"
    where = f"{stands.scenario} {case}, {stands.contenders[0]}"
    if found[0].rate == 0:
        return f"{where}: no good answer, {sum(found[0].errors.values())} errors"
    known = [each for each in known if each.rate > 0]
    if (
        row["metric"] in ("rank", "claim", "list", "delta")
        or "vs" in row["variant"]
        or "share" in row["metric"]
    ):
        if stands.scenario in CASES and len(stands.contenders) > 2:
            # Rows that rank stacks speak of several sizes.
            return f"{stands.scenario} " + "; ".join(_ranked(row, stands, measured))
        return f"{stands.scenario} {case}: {_compared(row, known)}"
    said = f"{where}: {_figure(row['metric'], known[0])}"
    if row["metric"] in ("rps", "qps", "time/complete/failed/rps"):
        beside = [*stands.contenders[1:], *(f"{each}-headrace" for each in stands.contenders)]
        names = dict.fromkeys((*beside, *OURS.get(stands.scenario, ())))
        others = [(name, measured.get((stands.scenario, case, name))) for name in names]
        rates = [f"{name} {each.rate:,.0f}" for name, each in others if each is not None]
        said += f" (beside it: {', '.join(rates)})" if rates else ""
    return said


def _ranked(
    row: Mapping[str, str], stands: Counterpart, measured: Mapping[tuple[str, str, str], Found]
) -> Iterator[str]:
    """The contenders of a row at each size that was measured."""
    for case in CASES[stands.scenario]:
        found = (measured.get((stands.scenario, case, name)) for name in stands.contenders)
        known = [each for each in found if each is not None and each.rate > 0]
        if known:
            yield f"{case}: {_compared(row, known)}"


def _failure(stands: Counterpart, swept: Mapping[str, Mapping[str, Any]]) -> str:
    """What runs out when the first source's connections are opened."""
    name = stands.contenders[0]
    line = swept.get(name)
    if line is None:
        return f"not measured; headrace bench sweep {stands.scenario} --contenders {name} --json FILE"
    point = line["points"][-1]
    said = "; ".join(text for text in (point["first_error"], point.get("log")) if text)
    if not point["errors"] and not point["requests_per_second"]:
        return f"{name} with {point['value']} connections: not one answer within {point['seconds']:g} s"
    if not point["errors"]:
        return f"{name} with {point['value']} connections: no error"
    return f"{name} with {point['value']} connections: {point['errors']} errors: {said}"


def _compared(row: Mapping[str, str], known: Sequence[Found]) -> str:
    """Figures of several contenders, dearest first, or the first over the second."""
    if row["metric"] == "delta" and len(known) == 2:
        orm, raw = (float(each.ms("p50")) for each in known)
        return f"{orm - raw:+.3g} ms of median latency from rows to ORM objects"
    if len(known) == 2 and row["metric"] != "claim":
        cpu = [each.median_of(lambda load: load["server"]["cpu_ns_per_request"]) or 1.0 for each in known]
        by_cpu = f"{cpu[1] / cpu[0]:.2f} by CPU"
        return f"{known[0].rate / max(known[1].rate, 1e-9):.2f} times by requests a second, {by_cpu}"
    # A ladder is shown from its lowest rung up, stacks from the slowest.
    ordered = known if row["metric"] == "list" else sorted(known, key=lambda each: each.rate)
    return ", ".join(f"{each.contender['name']} {each.rate:,.0f}/s" for each in ordered)


def _figure(metric: str, found: Found) -> str:
    """One contender's figure in the terms of a published metric."""
    rate, errors = found.rate, found.errors
    connections = found.case["connections"]
    across = 1000 / rate
    made = {
        "rps": f"{rate:,.0f} req/s",
        "qps": f"{rate:,.0f} req/s",
        "time_taken": f"{AB_REQUESTS / rate:.3f} s for {AB_REQUESTS:,}",
        "time_per_request_mean": f"{connections * across:.3f} ms",
        "time_per_request_across": f"{across:.3f} ms",
        "time_per_request_mean/across": f"{connections * across:.3f}/{across:.3f} ms",
        "transfer_rate": f"{rate * found.bytes_per_request() / 1024:,.0f} KB/s",
        "transfer": f"{rate * found.bytes_per_request() / 1024:,.0f} KB/s",
        "failed": f"{sum(errors.values())} requests",
        "keepalive_requests": "every request: connections are kept",
        "document_length": f"{HELLO_BYTES} bytes",
        "total_transferred": f"{found.bytes_per_request() * AB_REQUESTS:,.0f} bytes for {AB_REQUESTS:,}",
        "html_transferred": f"{HELLO_BYTES * AB_REQUESTS:,} bytes for {AB_REQUESTS:,}",
        "connect_min/mean/sd/median/max": "connections are opened before the measurement",
        "processing_min/mean/sd/median/max": f"{found.latencies('min', 'mean', 'stdev', 'p50', 'max')} ms",
        "waiting_min/mean/sd/median/max": f"{found.latencies('min', 'mean', 'stdev', 'p50', 'max')} ms",
        "total_min/mean/sd/median/max": f"{found.latencies('min', 'mean', 'stdev', 'p50', 'max')} ms",
        "latency_avg/sd/max/within": f"{found.latencies('mean', 'stdev', 'max')} ms, p99 {found.ms('p99')}",
        "thread_reqsec_avg/sd/max/within": f"{rate:,.0f} req/s in the one thread",
        "requests": f"{sum(each['load']['requests'] for each in found.contender['rounds']):,} requests",
        "read": f"{rate * found.bytes_per_request() / 1e6:.1f} MB each second",
        "errors_connect/read/write/timeout": "/".join(
            str(errors[k]) for k in ("connect", "read", "write", "timeout")
        ),
        "throughput": f"{2 * rate * 102400 / 1e9:.2f} GB/s both ways, {rate * 102400 / 1e9:.2f} one way",
        "mean_response": f"{found.ms('mean')} ms",
        "time/complete/failed/rps": f"{sum(errors.values())} errors, {rate:,.0f} req/s",
        "user_wait/server_time": f"{connections * across:.3f}/{across:.3f} ms",
        "conn_min/mean/p50/max": f"{found.latencies('min', 'mean', 'p50', 'max')} ms",
        "event": f"{sum(errors.values())} errors, slowest answer {found.ms('max')} ms; beyond that: "
        "headrace bench sweep flask-redis",
    }
    return made[metric]


def _swept(documents: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Lines of the sweep of connections that the first source's failures belong to, by contender."""
    return {
        line["name"]: line
        for document in documents
        for scenario in document["scenarios"]
        for case in scenario["cases"]
        for sweep in case.get("sweeps", ())
        for line in sweep["lines"]
        if scenario["name"] == SWEPT and sweep["parameter"] == "connections" and line["points"]
    }


def _index(documents: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], Found]:
    """Measured contenders by scenario, case and name."""
    return {
        (scenario["name"], case["name"], contender["name"]): Found(contender, case)
        for document in documents
        for scenario in document["scenarios"]
        for case in scenario["cases"]
        for contender in case["contenders"]
        if contender["rounds"]
    }
