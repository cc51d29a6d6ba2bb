"""Documents as Markdown tables: how figures get into documentation without anybody typing them.

Each case gives a table of the contenders asked for. One that is programmed in another way than the baseline
(``headrace-streams`` beside ``uvloop``) stands against the baseline's contender of that way, where it was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from headrace.bench.rounds import AGAIN
from headrace.bench.statistics import Interval, ratio
from headrace.bench.summary import NOISY_SHARE, blocks_of

#: Suffixes of contenders that tell the way in which they are programmed; see ``contenders/loops.py``.
WAYS = ("-streams", "-sock")
#: Our servers, and what names of rivals with the same interface have in them; see ``contenders/http_servers.py``.
OURS = {
    "headrace-asgi": ("asgi", "uvicorn"),
    "headrace-wsgi": ("wsgi", "gunicorn"),
    "headrace-wsgi-threads": ("wsgi", "gunicorn"),
    "headrace-tornado": ("tornado",),
}
HEADER = ("", "CPU µs/{unit}", "of", "per second", "p50 µs", "p99 µs")


def page(documents: Sequence[Mapping[str, Any]], contenders: Sequence[str] = ()) -> str:
    """The cases of all documents, and what they were measured on.

    :param documents: runs as ``bench run --json`` writes them.
    :param contenders: names of those to show; empty for all.
    """
    lines = [line for document in documents for line in _scenarios(document, set(contenders))]
    machines = dict.fromkeys(_machine(document) for document in documents)
    return "\n".join([*lines, *(line for machine in machines for line in ("", machine))]).lstrip("\n") + "\n"


def glance(documents: Sequence[Mapping[str, Any]], family: str) -> str:
    """One table of ratios: each contender of a family against the baseline's contender of its way.

    :param family: ``headrace`` stands for ``headrace``, ``headrace-streams``, ``headrace-sock``.
    """
    lines = [_line(("workload", "connections", "", "CPU of the baseline's")), "|---|---:|---|---:|"]
    for document in documents:
        for scenario in document["scenarios"]:
            for case in scenario["cases"]:
                measured = {each["name"]: each for each in case["contenders"] if each["rounds"]}
                for name in (family, *(family + way for way in WAYS)):
                    against = _peer(name, scenario["baseline"], measured) if name in measured else None
                    if against is None:
                        continue
                    found = _against(measured, name, against)
                    if found is not None:
                        connections = str(case["connections"] or "")
                        workload = f"{scenario['name']}: {case['name']}"
                        lines.append(_line((workload, connections, name, f"{_ratio(found)} of {against}")))
    return "\n".join(lines) + "\n"


def glance_at_servers(documents: Sequence[Mapping[str, Any]]) -> str:
    """One table of ratios: each of our servers against the rival of its interface that needs the least CPU."""
    lines = [_line(("workload", "connections", "", "CPU of the best rival's")), "|---|---:|---|---:|"]
    for document in documents:
        for scenario in document["scenarios"]:
            for case in scenario["cases"]:
                measured = {each["name"]: each for each in case["contenders"] if each["rounds"]}
                for name, interface in OURS.items():
                    rival = _best_rival(interface, measured)
                    found = _against(measured, name, rival) if rival and name in measured else None
                    if found is not None:
                        workload = f"{scenario['name']}: {case['name']}"
                        lines.append(
                            _line((workload, str(case["connections"]), name, f"{_ratio(found)} of {rival}"))
                        )
    return "\n".join(lines) + "\n"


def _best_rival(interface: tuple[str, ...], measured: Mapping[str, Any]) -> str | None:
    """The contender of an interface, none of ours, with the least CPU for a request."""
    cpu = {
        name: median(value for values in blocks_of(each, "cpu_ns_per_request") for value in values)
        for name, each in measured.items()
        if any(word in name for word in interface) and "headrace" not in name and not name.endswith(AGAIN)
    }
    return min(cpu, key=cpu.__getitem__, default=None)


def _against(measured: Mapping[str, Any], name: str, against: str) -> Interval | None:
    """The ratio of two contenders of a case."""
    ours, theirs = (blocks_of(measured[each], "cpu_ns_per_request") for each in (name, against))
    return ratio(ours, theirs)


def _scenarios(document: Mapping[str, Any], only: set[str]) -> Iterator[str]:
    """The tables of a document."""
    for scenario in document["scenarios"]:
        for case in scenario["cases"]:
            rows = list(_rows(scenario, case, only))
            if not rows:
                continue
            connections = f", {case['connections']} connections" if case["connections"] else ""
            yield from ("", f"**{scenario['name']}: {case['name']}{connections}**", "")
            yield _line(cell.format(unit=scenario["unit"]) for cell in HEADER)
            yield "|---|" + "---:|" * (len(HEADER) - 1)
            yield from rows
            floor = case["summary"]["floor"]
            if floor is not None:
                yield from (
                    "",
                    f"{scenario['baseline']} differs from itself by up to {floor:.1%} in this run.",
                )


def _rows(scenario: Mapping[str, Any], case: Mapping[str, Any], only: set[str]) -> Iterator[str]:
    """The rows of a case, in the order of the report: the least CPU first."""
    measured = {each["name"]: each for each in case["contenders"] if each["rounds"]}
    for row in case["summary"]["rows"]:
        name = row["name"]
        if row["cpu_ns_per_request"] is None or (only and name not in only):
            continue
        against = _peer(name, scenario["baseline"], measured)
        found = _against(measured, name, against) if against is not None and against != name else None
        rate = row["requests_per_second"]
        noisy = row["flags"].get("noisy", 0) > NOISY_SHARE * row["rounds"]
        yield _line(
            (
                f"{name} {row['version']}".rstrip() + (f", {row['errors']} errors" if row["errors"] else ""),
                _interval(row["cpu_ns_per_request"], 1000) + (" (noisy)" if noisy else ""),
                f"{_ratio(found)} of {against}" if found else "",
                f"{rate['value']:,.0f}" if rate else "",
                f"{row['p50_us']:,.0f}" if row["p50_us"] is not None else "",
                f"{row['p99_us']:,.0f}" if row["p99_us"] is not None else "",
            )
        )


def _peer(name: str, baseline: str, measured: Mapping[str, Any]) -> str | None:
    """Whom a contender stands against."""
    way = next((way for way in WAYS if name.endswith(way)), "")
    root = next((baseline.removesuffix(way) for way in WAYS if baseline.endswith(way)), baseline)
    return next((peer for peer in (root + way, baseline) if peer in measured), None)


def _interval(found: Mapping[str, float], scale: float) -> str:
    """A value and its limits."""
    value, low, high = (found[key] / scale for key in ("value", "low", "high"))
    return f"{value:.2f} [{low:.2f} {high:.2f}]"


def _ratio(found: Interval) -> str:
    """A ratio and its limits."""
    return f"**{found.value:.2f}** [{found.low:.2f} {found.high:.2f}]"


def _line(cells: Iterator[str] | Sequence[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def _machine(document: Mapping[str, Any]) -> str:
    """What a run was measured on, in a sentence or two."""
    environment, settings = document["environment"], document["settings"]
    allocator = ", ".join(f"`{name}={value}`" for name, value in settings["allocator"].items())
    return (
        f"Measured {document['finished'][:10]}: {environment['cpu']}, {environment['cores']} cores, "
        f"Linux {environment['kernel']}, CPython {environment['python']}; {environment['pinning']}; "
        f"{settings['rounds']} rounds of {settings['seconds']:g} s, interleaved; 95 % intervals in brackets; "
        f"allocator alike for all: {allocator}."
    )
