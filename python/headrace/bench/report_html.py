"""A document as one HTML page that needs nothing else: no network, no script; it reads on a phone and in the dark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from headrace.bench import charts
from headrace.bench.histogram import decode, merge, percentiles
from headrace.bench.rounds import AGAIN
from headrace.bench.summary import sentences

#: Percentiles of the latency curves, and those that are labelled.
CURVE = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999)
LABELLED = ((0.0, "0"), (0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"))
#: Lines of a latency chart: the cheapest of a case, so that the chart can be read.
MOST_LINES = 8


def page(document: Mapping[str, Any], title: str = "Headrace bench") -> str:
    """The page."""
    style = Path(__file__).with_name("report.css").read_text()
    body = "\n".join(_body(document, title))
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _body(document: Mapping[str, Any], title: str) -> Iterator[str]:
    """The parts of the page."""
    environment = document["environment"]
    yield f"<h1>{escape(title)}</h1>"
    yield (
        f'<p class="soft">{escape(str(environment["cpu"]))}, {environment["cores"]} cores, Linux '
        f"{escape(environment['kernel'])}, CPython {escape(environment['python'])}; {escape(environment['pinning'])}; "
        f"finished {escape(document['finished'])}</p>"
    )
    yield (
        "<p>Bars show CPU time of the server's process tree for each request, user and system, from the scheduler's "
        "accounts: shorter is better. Whiskers are 95&nbsp;% bootstrap intervals over interleaved rounds and fresh "
        "processes.</p>"
    )
    names = [scenario["name"] for scenario in document["scenarios"]]
    names += ["sources"] if document.get("sources") else []
    yield "<nav>" + "".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names) + "</nav>"
    for scenario in document["scenarios"]:
        yield f'<section id="{escape(scenario["name"])}"><h2>{escape(scenario["name"])}</h2>'
        yield f"<p>{escape(scenario['summary'])}</p>"
        for case in scenario["cases"]:
            yield from _case(scenario, case)
        for absent in scenario["missing"]:
            yield f'<p class="soft">Left out: {escape(absent["name"])} (<code>{escape(absent["install"])}</code>)</p>'
        yield "</section>"
    for sentence in (*document.get("where_time_goes", ()), *document.get("gains", ())):
        yield f"<p>{escape(sentence)}</p>"
    yield from _sources(document)
    for each in document["left_out"]:
        yield f'<p class="soft">Left out: {escape(each["name"])}: {escape(each["reason"])}</p>'
    yield from _environment(document)


def _case(scenario: Mapping[str, Any], case: Mapping[str, Any]) -> Iterator[str]:
    """One case: bars, verdicts, the table, and curves."""
    summary = case["summary"]
    rows = [row for row in summary["rows"] if row["cpu_ns_per_request"]]
    yield f'<div class="card"><h3>{escape(case["name"])}, {case["connections"]} connections</h3>'
    if rows:
        yield _bars(rows, scenario["baseline"], scenario["unit"])
    if summary["floor"] is not None:
        base = escape(scenario["baseline"])
        yield f'<p class="soft">{base} differs from itself by up to {summary["floor"]:.1%}: less is not claimed.</p>'
    yield '<ul class="verdicts">'
    yield from (f"<li>{escape(sentence)}</li>" for sentence in summary["steps"])
    for kind, sentence in sentences(summary["rows"]):
        yield f'<li class="{kind.replace(" ", "-")}">{escape(sentence)}</li>'
    yield "</ul>"
    for row in summary["rows"]:
        if row["status"] == "measured" and row["rounds"] and row["cpu_ns_per_request"] is None:
            why = f": {row['first_error']}" if row["first_error"] else ""
            said = (
                f"{row['name']}: not one good answer in {row['rounds']} rounds, {row['errors']} errors{why}"
            )
            yield f"<p>{escape(said)}</p>"
        if row["status"] == "failed":
            said = f"{escape(row['name'])} failed: {escape(row['reason'])}"
            yield f"<details><summary>{said}</summary><pre>{escape(row['log'])}</pre></details>"
    if rows:
        yield _table(rows, scenario["unit"])
    yield from _curves(case)
    yield from _loads(case)
    yield from _sweep(case)
    yield "</div>"


def _bars(rows: Sequence[Mapping[str, Any]], baseline: str, unit: str) -> str:
    """Bars of CPU per request with their intervals."""
    # Bars of a contender many times as dear would leave nothing to see of the others.
    most = max(row["cpu_ns_per_request"]["high"] for row in rows)
    parts = ['<div class="bars">']
    for row in rows:
        cpu = row["cpu_ns_per_request"]
        kind = "ours" if "headrace" in row["name"] else "base" if row["name"] == baseline else ""
        low, high = cpu["low"] / most * 100, cpu["high"] / most * 100
        ratio = f" · {row['ratio']['value']:.2f}&times;" if row["ratio"] else ""
        mark = " ⚠" if row["flags"] or row["status"] == "failed" else ""
        parts.append(
            f'<div class="bar"><div class="name"><b>{escape(row["name"])}</b> '
            f'<span class="soft">{escape(row["version"])}{mark}</span></div>'
            f'<div class="track {kind}"><div class="fill" style="width:{cpu["value"] / most * 100:.2f}%"></div>'
            f'<div class="whisker" style="left:{low:.2f}%;width:{max(high - low, 0):.2f}%"></div></div>'
            f'<div class="value" title="of {escape(baseline)}">{cpu["value"] / 1000:.2f} µs{ratio}</div></div>'
        )
    parts.append(
        f'</div><p class="soft">CPU per {escape(unit)}; &times; is the ratio to {escape(baseline)}.</p>'
    )
    return "".join(parts)


def _table(rows: Sequence[Mapping[str, Any]], unit: str) -> str:
    """All figures."""
    head = (
        "",
        f"CPU µs per {unit}",
        "95 % interval",
        "ratio",
        "per second",
        "p50 µs",
        "p99 µs",
        "errors",
        "PSS MB",
        "marks",
    )
    parts = ["<details><summary>All figures</summary><div class=wide><table><tr>"]
    parts += [f"<th>{escape(word)}</th>" for word in head]
    for row in rows:
        cpu, ratio, rate = row["cpu_ns_per_request"], row["ratio"], row["requests_per_second"]
        marks = [f"{count} of {row['rounds']} {mark}" for mark, count in row["flags"].items()]
        if row["steady"] is False:
            marks.append("no steady state in the warm-up")
        marks += (said for said in (row["idle"], row.get("services")) if said)
        cells = (
            f"{cpu['value'] / 1000:.2f}",
            f"{cpu['low'] / 1000:.2f}&ndash;{cpu['high'] / 1000:.2f}",
            f"{ratio['value']:.3f} ({ratio['low']:.3f}&ndash;{ratio['high']:.3f})" if ratio else "",
            f"{rate['value']:,.0f}" if rate else "",
            _number(row["p50_us"]),
            _number(row["p99_us"]),
            str(row["errors"]),
            f"{row['memory_kb'] / 1024:.0f}" if row["memory_kb"] else "",
        )
        parts.append(
            f"</tr><tr><td>{escape(row['name'])}</td>" + "".join(f"<td>{cell}</td>" for cell in cells)
        )
        parts.append(f"<td class=text>{escape(', '.join(marks))}</td>")
    parts.append("</tr></table></div></details>")
    return "".join(parts)


def _curves(case: Mapping[str, Any]) -> Iterator[str]:
    """Latency by percentile, from the merged histograms of all rounds."""
    order = [row["name"] for row in case["summary"]["rows"]]
    drawn = []
    for contender in sorted(
        case["contenders"], key=lambda each: order.index(each["name"].removesuffix(AGAIN))
    ):
        texts = [each["load"].get("histogram") for each in contender["rounds"]]
        if contender["name"].endswith(AGAIN) or not texts or not all(texts):
            continue
        drawn.append(_curve(contender["name"], merge(decode(text) for text in texts)))
    yield from _latency_chart("Latency at saturation (closed loop)", drawn[:MOST_LINES])


def _curve(name: str, counts: dict[int, int]) -> charts.Line:
    """A latency curve."""
    values = percentiles(counts, CURVE)
    return charts.Line(name, [(share, max(value, 1)) for share, value in zip(CURVE, values, strict=False)])


def _latency_chart(title: str, drawn: Sequence[charts.Line]) -> Iterator[str]:
    """A chart of latency by percentile."""
    drawn = [line for line in drawn if line.points]
    if not drawn:
        return
    y = charts.logarithmic("latency", [value for line in drawn for _, value in line.points], _duration)
    x = charts.Axis("percentile", 0.0, 0.9999, LABELLED, lambda share: -math.log10(1 - min(share, 0.99999)))
    chart = charts.lines(title, x, y, drawn)
    yield f"<details><summary>{escape(title)}</summary>{chart}</details>"


def _loads(case: Mapping[str, Any]) -> Iterator[str]:
    """Latency against offered load, when it was measured."""
    found = case.get("latency")
    if not found:
        return
    for name in ("p50", "p99"):
        drawn = []
        for each in found:
            points = [
                (point["offered"], point[name])
                for point in each["points"]
                if point.get(name) and not point["late"]
            ]
            if points:
                drawn.append(charts.Line(each["name"], sorted(points)))
        if not drawn:
            continue
        x = charts.linear(
            "offered requests per second", [px for line in drawn for px, _ in line.points], _count
        )
        y = charts.logarithmic(f"{name} latency", [py for line in drawn for _, py in line.points], _duration)
        yield charts.lines(f"{name} latency against offered load (open loop)", x, y, drawn)


def _sweep(case: Mapping[str, Any]) -> Iterator[str]:
    """Throughput against connections or pool sizes, when it was swept."""
    for sweep in case.get("sweeps", ()):
        drawn = [
            charts.Line(
                each["name"], [(point["value"], point["requests_per_second"]) for point in each["points"]]
            )
            for each in sweep["lines"]
            if each["points"]
        ]
        if not drawn:
            continue
        x = charts.linear(sweep["parameter"], [px for line in drawn for px, _ in line.points], _count)
        y = charts.linear("good answers per second", [py for line in drawn for _, py in line.points], _count)
        yield charts.lines(f"Sweep of {sweep['parameter']}", x, y, drawn)
        for each in sweep["lines"]:
            for sentence in each["sentences"]:
                yield f"<p>{escape(sentence)}</p>"


def _sources(document: Mapping[str, Any]) -> Iterator[str]:
    """Published figures beside ours, where the run was made for them."""
    lines = document.get("sources", ())
    if not lines:
        return
    yield '<section id="sources"><h2>The five sources</h2>'
    opened = False
    for line in lines:
        kind, _, rest = line.strip().partition(":")
        if kind == "published":
            yield f'<tr><td class="text">{escape(rest.strip())}</td>'
        elif kind == "here":
            yield f'<td class="text">{escape(rest.strip())}</td></tr>'
        elif line:
            yield "</table></div></details>" if opened else ""
            opened = True
            title, _, fault = line.partition(": ")
            yield f"<details><summary>{escape(title)}</summary>"
            yield f'<p class="soft">{escape(fault)}</p>' if fault else ""
            yield '<div class="wide"><table><tr><th>published</th><th>here</th></tr>'
    yield "</table></div></details></section>"


def _environment(document: Mapping[str, Any]) -> Iterator[str]:
    """The machine and the versions."""
    environment, settings = document["environment"], document["settings"]
    yield "<h2>Machine and method</h2><div class=card>"
    pairs = [(key, value) for key, value in environment.items() if key not in ("packages", "sysctl")]
    pairs += [
        ("rounds", settings["rounds"]),
        ("seconds", settings["seconds"]),
        ("allocator", settings["allocator"]),
    ]
    pairs += list(environment["sysctl"].items())
    pairs.append(
        ("packages", ", ".join(f"{name} {version}" for name, version in environment["packages"].items()))
    )
    pairs.append(("command", "headrace " + " ".join(document["command"])))
    yield "<div class=wide><table>"
    for key, value in pairs:
        yield f"<tr><td>{escape(str(key))}</td><td class=text>{escape(str(value))}</td></tr>"
    yield "</table></div></div>"


def _number(value: float | None) -> str:
    """A latency in the table."""
    return "" if value is None else f"{value:,.0f}"


def _count(value: float) -> str:
    """A number on an axis."""
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _duration(microseconds: float) -> str:
    """A latency on an axis."""
    if microseconds < 1000:
        return f"{microseconds:g} µs"
    if microseconds < 1e6:
        return f"{microseconds / 1000:g} ms"
    return f"{microseconds / 1e6:g} s"
