"""A document as tables for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.bench.summary import sentences

#: Percentiles shown of open-loop latencies.
LATENCIES = ("p50", "p99", "p99.9")


def text(document: Mapping[str, Any]) -> str:
    """The whole report."""
    return "\n".join(lines(document))


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the report."""
    for scenario in document["scenarios"]:
        for case in scenario["cases"]:
            yield from _case(scenario, case)
        for absent in scenario["missing"]:
            yield f"  left out: {absent['name']}; to have it: {absent['install']}"
        yield ""
    for each in document["left_out"]:
        yield f"left out: {each['name']}: {each['reason']}"
    environment = document["environment"]
    yield f"{environment['cpu']}, {environment['cores']} cores, Linux {environment['kernel']}; {environment['pinning']}"
    yield "CPU: of the server's process tree, user and system, by the scheduler's accounts; [95 % interval]."
    yield "p50 and p99 are of a saturated server (closed loop): use `bench latency` to compare latencies."


def _case(scenario: Mapping[str, Any], case: Mapping[str, Any]) -> Iterator[str]:
    """The table of one case."""
    summary = case["summary"]
    base = scenario["baseline"]
    free = "" if scenario.get("pinned", True) else "; not pinned: all share all cores"
    yield f"{scenario['name']} {case['name']}, {case['connections']} connections{free}"
    header = ("", f"CPU us/{scenario['unit']}", f"of {base}", "per second", "p50 us", "p99 us", "errors", "")
    rows = [header]
    for row in summary["rows"]:
        if row["cpu_ns_per_request"] is None:
            continue
        cpu, ratio = row["cpu_ns_per_request"], row["ratio"]
        rows.append(
            (
                f"{row['name']} {row['version']}".rstrip(),
                f"{cpu['value'] / 1000:.2f} [{cpu['low'] / 1000:.2f} {cpu['high'] / 1000:.2f}]",
                f"{ratio['value']:.3f} [{ratio['low']:.3f} {ratio['high']:.3f}]"
                if ratio
                else ("1" if row["name"] == base else ""),
                f"{row['requests_per_second']['value']:,.0f}" if row["requests_per_second"] else "",
                f"{row['p50_us']:,.0f}" if row["p50_us"] is not None else "",
                f"{row['p99_us']:,.0f}" if row["p99_us"] is not None else "",
                str(row["errors"]),
                _marks(row),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)
        ]
        yield "  " + "  ".join([*cells, row[-1]]).rstrip()
    if summary["floor"] is not None:
        yield f"  {base} differs from itself by up to {summary['floor']:.1%}: smaller differences are not claimed"
    yield from (f"  {sentence}" for sentence in summary["steps"])
    yield from (f"  {sentence}" for _, sentence in sentences(summary["rows"]))
    yield from _more(case)
    for row in summary["rows"]:
        if row["status"] == "measured" and row["rounds"] and row["cpu_ns_per_request"] is None:
            yield (
                f"  {row['name']}: not one good answer in {row['rounds']} rounds, {row['errors']} errors"
                + (f": {row['first_error']}" if row["first_error"] else "")
            )
        if row["status"] == "failed":
            yield f"  {row['name']} failed: {row['reason']}"
            yield from (f"    | {line}" for line in row["log"].splitlines())


def _more(case: Mapping[str, Any]) -> Iterator[str]:
    """Latency against load and sweeps, where they were measured."""
    for line in case.get("latency", ()):
        yield f"  {line['name']}: capacity {line['capacity']:,.0f}/s; latency from when each request was due:"
        for point in [*line["points"], *([line["common"]] if "common" in line else [])]:
            share = f"{point['share']:.0%} of it" if point["share"] else "common rate"
            shown = "   ".join(
                f"{name} {point[name] / 1000:,.2f} ms" for name in LATENCIES if point[name] is not None
            )
            late = (
                f"   only {point['answered']:,.0f}/s answered: no latency to compare" if point["late"] else ""
            )
            yield f"    {share:>12} {point['offered']:>9,.0f}/s   {shown}{late}"
    for sweep in case.get("sweeps", ()):
        for line in sweep["lines"]:
            shown = "   ".join(
                f"{each['value']}: {each['requests_per_second']:,.0f}/s"
                + (f", p99 {each['p99_us'] / 1000:,.0f} ms" if each.get("p99_us") else "")
                for each in line["points"]
            )
            yield f"  {line['name']}, {sweep['parameter']}   {shown}"
            yield from (f"    {sentence}" for sentence in line["sentences"])


def _marks(row: Mapping[str, Any]) -> str:
    """What speaks against a row."""
    marks = [f"{count} of {row['rounds']} rounds {mark}" for mark, count in row["flags"].items()]
    if row["steady"] is False:
        marks.append("no steady state in the warm-up")
    marks += (said for said in (row["idle"], row.get("services")) if said)
    if row["status"] == "failed":
        marks.append("failed later")
    return ", ".join(marks)


class Progress:
    """One line on standard error that is written over; silent where there is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __call__(self, line: str) -> None:
        """Show a line."""
        if self._shown:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        self("")
