"""Beyond saturation: latency at equal offered load, and sweeps of a parameter.

Latencies of saturated servers compare nothing: a faster server just queues more. So each contender is offered shares
of its own capacity, and all of them one common rate, in open loop: a latency counts from when the request was due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from headrace.bench.load import LoadFailure
from headrace.bench.model import Case, Contender, Endpoint, Scenario, Sweep
from headrace.bench.process import Running, StartFailure
from headrace.bench.rounds import Bench, Entry
from headrace.bench.run import describe_case
from headrace.bench.summary import summarise
from headrace.cli import UsageError

#: Shares of a contender's own capacity.
SHARES = (0.50, 0.70, 0.85, 0.95)
#: The rate that is common to all: this share of the slowest one's capacity.
COMMON_SHARE = 0.7
#: A point is no point when less than this share of what was offered was answered.
ANSWERED = 0.99
#: Measurements whose median is a contender's capacity.
CAPACITY_ROUNDS = 3
#: A value at which nothing at all came back, answer or error, is measured again for so many times as long.
LONGER = (1, 4, 8)
#: Beyond the knee a value of the parameter gains less than this.
KNEE_GAIN = 0.05


def measure_latency(
    bench: Bench, scenario: Scenario, case: Case, contenders: Sequence[Contender], baseline: str
) -> dict[str, Any]:
    """Measure latency against offered load on one case.

    :raises UsageError: for a scenario whose load is not made by ``headrace load``.
    """
    if scenario.driver != "load":
        raise UsageError(f"{scenario.name} has no open loop: its load is not made by headrace load")
    entries = [Entry(contender.name, contender) for contender in contenders]
    lines: dict[str, dict[str, Any]] = {}
    for entry in entries:
        line = _with_server(bench, scenario, case, entry, partial(_own_shares, bench, scenario, case, entry))
        if line is not None:
            lines[entry.label] = line
    if lines:
        common = COMMON_SHARE * min(line["capacity"] for line in lines.values())
        for entry in entries:
            if entry.label not in lines or common < 1:
                continue
            at_common = partial(_point, bench, scenario, case, entry, rate=common, share=None)
            point = _with_server(bench, scenario, case, entry, at_common)
            if point is not None:
                lines[entry.label]["common"] = point
    found = [entry.json() for entry in entries]
    return {
        **describe_case(case),
        "contenders": found,
        "summary": summarise(found, baseline),
        "latency": [{"name": name, **line} for name, line in lines.items()],
    }


def measure_sweeps(
    bench: Bench, scenario: Scenario, case: Case, contenders: Sequence[Contender], baseline: str
) -> dict[str, Any]:
    """Vary the scenario's parameters on one case, and say where the knee lies and what fails beyond it.

    :raises UsageError: for a scenario that has nothing to sweep.
    """
    if not scenario.sweeps and scenario.driver == "self":
        raise UsageError(f"{scenario.name} has nothing to sweep")
    entries = [Entry(contender.name, contender) for contender in contenders]
    sweeps = scenario.sweeps or (Sweep("connections", (1, 10, 50, 100, 500)),)
    described = []
    for sweep in sweeps:
        lines = []
        for entry in entries:
            if entry.status != "measured" or (sweep.contenders and entry.label not in sweep.contenders):
                continue
            points = [_swept(bench, scenario, case, entry, sweep, value) for value in sweep.values]
            known = [point for point in points if point is not None]
            said = knee(entry.label, sweep.parameter, known)
            said += [] if sweep.variable else untaken(entry.label, known)
            lines.append({"name": entry.label, "points": known, "sentences": said})
        described.append({"parameter": sweep.parameter, "lines": lines})
    found = [entry.json() for entry in entries]
    return {
        **describe_case(case),
        "contenders": found,
        "summary": summarise(found, baseline),
        "sweeps": described,
    }


def knee(name: str, parameter: str, points: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a sweep says, in sentences: the knee, and the first value with errors.

    :param points: ``value``, ``requests_per_second``, ``errors``, ``first_error`` of each, by rising value.
    """
    sentences = []
    clean = [point for point in points if not point["errors"] and point["requests_per_second"]]
    if clean:
        best = max(point["requests_per_second"] for point in clean)
        at = next(point for point in clean if point["requests_per_second"] >= best * (1 - KNEE_GAIN))
        rate = f"{at['requests_per_second']:,.0f}"
        sentences.append(
            f"{name}: {rate} good answers a second with {parameter} {at['value']}; more gains nothing."
        )
    silent = next(
        (point for point in points if not point["errors"] and not point["requests_per_second"]), None
    )
    if silent is not None:
        sentences.append(
            f"{name}: not one answer within {silent['seconds']:g} s with {parameter} {silent['value']}."
        )
    failed = next((point for point in points if point["errors"]), None)
    if failed is not None:
        said = [text for text in (failed["first_error"], failed.get("log")) if text]
        why = f": {'; '.join(said)}" if said else ""
        sentences.append(f"{name}: {failed['errors']} errors with {parameter} {failed['value']}{why}.")
    return sentences


def untaken(name: str, points: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on the first number of connections that a server did not take: overload that is no error yet.

    :param points: of a sweep of connections.
    """
    for point in points:
        taken = point["connections_open"]
        if taken is not None and taken < point["value"] * (1 - KNEE_GAIN):
            return [
                f"{name}: of {point['value']} connections {point['value'] - taken} were not taken at the end."
            ]
    return []


def _with_server(bench: Bench, scenario: Scenario, case: Case, entry: Entry, use: Any) -> Any:
    """Start a contender, use it, stop it; None when it fails, which the entry keeps."""
    try:
        running, endpoint = bench.launch(scenario, case, entry)
    except StartFailure as error:
        entry.fail(str(error), error.log)
        return None
    try:
        return use(running, endpoint)
    except LoadFailure as error:
        entry.fail(str(error), running.log() if running else "")
        return None
    finally:
        if running is not None:
            bench.stop(running)


def _own_shares(
    bench: Bench, scenario: Scenario, case: Case, entry: Entry, running: Running, endpoint: Endpoint
) -> dict[str, Any]:
    """A contender's capacity, and its latency at shares of it."""
    bench.warm_up(scenario, case, 0, entry, running, endpoint)
    seconds = bench.settings.seconds
    for number in range(CAPACITY_ROUNDS):
        found = bench.measure(scenario, case, entry, running, endpoint, seconds)
        entry.rounds.append({"block": 0, "round": number, **found})
    capacity = median(each["requests_per_second"] for each in entry.rounds)
    points = [
        _point(bench, scenario, case, entry, running, endpoint, rate=capacity * share, share=share)
        for share in SHARES
        if capacity * share >= 1
    ]
    return {"capacity": capacity, "points": points}


def _point(
    bench: Bench,
    scenario: Scenario,
    case: Case,
    entry: Entry,
    running: Running,
    endpoint: Endpoint,
    *,
    rate: float,
    share: float | None,
) -> dict[str, Any]:
    """One offered rate."""
    found = bench.measure(scenario, case, entry, running, endpoint, bench.settings.seconds, rate=rate)
    result = found["load"]
    latency = result["latency_us"]
    return {
        "share": share,
        "offered": rate,
        "answered": result["requests_per_second"],
        "late": result["requests_per_second"] < ANSWERED * rate,
        "p50": latency.get("p50"),
        "p99": latency.get("p99"),
        "p99.9": latency.get("p99.9"),
        "lag_us": result.get("lag_us"),
        "errors": found["errors"],
        "cpu_ns_per_request": found["cpu_ns_per_request"],
        "flags": found["flags"],
        "histogram": result.get("histogram"),
    }


def _swept(
    bench: Bench, scenario: Scenario, case: Case, entry: Entry, sweep: Sweep, value: int
) -> dict[str, Any] | None:
    """One value of a parameter."""
    bench.progress(f"{scenario.name}: {entry.label}, {sweep.parameter} {value}")
    at = replace(case, variables={**case.variables, sweep.variable: str(value)}) if sweep.variable else case
    connections = None if sweep.variable else value

    def use(running: Running, endpoint: Endpoint) -> dict[str, Any]:
        bench.measure(
            scenario, at, entry, running, endpoint, bench.settings.warmup_step, connections=connections
        )
        for seconds in (factor * bench.settings.seconds for factor in LONGER):
            found = bench.measure(scenario, at, entry, running, endpoint, seconds, connections=connections)
            if found["load"]["requests"] or found["errors"]:
                break
        return {
            "value": value,
            "seconds": seconds,
            "requests_per_second": found["requests_per_second"],
            "cpu_ns_per_request": found["cpu_ns_per_request"],
            "errors": found["errors"],
            "first_error": found["load"].get("first_error"),
            "log": running.log(1) if found["errors"] else "",
            "status": found["load"].get("status"),
            "p99_us": found["load"]["latency_us"].get("p99"),
            "connections_open": found["load"].get("connections_open"),
        }

    point: dict[str, Any] | None = _with_server(bench, scenario, at, entry, use)
    return point
