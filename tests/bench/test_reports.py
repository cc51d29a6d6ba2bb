"""Reports: histograms read and merged, pages without outside parts, comparisons that gate, foreign files refused."""

from __future__ import annotations

import base64
import contextlib
import copy
import html.parser
import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from headrace.bench import charts, compare, report_html, report_terminal
from headrace.bench.histogram import decode, merge, percentiles
from headrace.bench.rounds import Settings
from headrace.bench.run import FORMAT, document, merged
from headrace.bench.summary import sentences, summarise
from headrace.cli import UsageError


def encoded(counts: list[int], digits: int = 3) -> str:
    """A histogram with these counts from slot 0 on, written out by the format's description."""
    payload = bytearray()
    for count in counts:
        number = (count << 1) ^ (count >> 63)
        while number >= 0x80:
            payload.append(number & 0x7F | 0x80)
            number >>= 7
        payload.append(number)
    plain = struct.pack(">IIIIQQd", 0x1C849303, len(payload), 0, digits, 1, 3_600_000_000, 1.0) + payload
    packed = zlib.compress(plain)
    return base64.b64encode(struct.pack(">II", 0x1C849304, len(packed)) + packed).decode()


def contender(name: str, cpu: float, **changed: Any) -> dict[str, Any]:
    """A contender as the bench writes it, with eight rounds about a value."""
    rounds = [
        {
            "block": i // 4,
            "round": i,
            "cpu_ns_per_request": cpu * (1 + (i % 3 - 1) / 1000),
            "requests_per_second": 1e9 / cpu,
            "errors": 0,
            "flags": [],
            "load": {"latency_us": {"p50": 50.0, "p99": 90.0}, "histogram": encoded([0, 5, 3, -20, 1])},
        }
        for i in range(8)
    ]
    base = {"name": name, "version": "1", "status": "measured", "reason": "", "log": "", "warmups": []}
    return {**base, "memory_kb": 1024, "rounds": rounds, **changed}


def run_of(**cpus: float) -> dict[str, Any]:
    """A whole document."""
    contenders = [contender(name, cpu) for name, cpu in cpus.items()] + [
        contender("base (again)", cpus["base"])
    ]
    case = {
        "name": "1 KB",
        "connections": 10,
        "contenders": contenders,
        "summary": summarise(contenders, "base"),
    }
    scenario = {"name": "made-up", "summary": "<for> a test", "unit": "request", "baseline": "base"}
    missing = [{"name": "absent", "install": "pip install absent"}]
    return document(Settings(), [{**scenario, "missing": missing, "cases": [case]}])


def test_a_histogram_is_read_slot_by_slot():
    assert decode(encoded([0, 5, 3, -20, 1])) == {1: 5, 2: 3, 23: 1}


def test_values_above_the_first_bucket_are_the_highest_of_their_slot():
    # With three digits 2,048 slots have width 1; the next 1,024 have width 2.
    assert decode(encoded([-2047, 1, 1, 1])) == {2047: 1, 2049: 1, 2051: 1}


def test_a_histogram_of_the_load_generator_has_its_own_percentiles(headrace):
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            stream, _ = server.accept()
            # The load generator leaves without waiting for the last answers.
            with stream, contextlib.suppress(ConnectionError):
                while data := stream.recv(65536):
                    stream.sendall(data)

        threading.Thread(target=echo, daemon=True).start()
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}?size=64"
        words = [*headrace, "load", url, "-c", "1", "-d", "0.3", "--json", "-", "--quiet"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    found = json.loads(done.stdout)
    counts = decode(found["histogram"])
    assert sum(counts.values()) == found["requests"]
    p50, p99 = percentiles(counts, (0.5, 0.99))
    assert p50 == pytest.approx(found["latency_us"]["p50"], abs=1)
    assert p99 == pytest.approx(found["latency_us"]["p99"], abs=1)


@pytest.mark.parametrize("text", ["", base64.b64encode(b"x" * 60).decode(), encoded([1])[:40]])
def test_what_is_no_histogram_is_refused(text: str):
    with pytest.raises(ValueError):
        decode(text)


def test_merged_histograms_have_the_percentiles_of_all_their_values():
    merged = merge([{10: 99}, {10: 800, 500: 1, 900: 100}])
    assert percentiles(merged, (0.0, 0.5, 0.9, 1.0)) == [10, 10, 500, 900]
    assert percentiles({}, (0.5,)) == []


def test_the_summary_ranks_and_judges():
    found = summarise(
        [contender("base", 10_000.0), contender("base (again)", 10_050.0), contender("ours", 5_000.0)], "base"
    )
    assert [row["name"] for row in found["rows"]] == ["ours", "base"]
    assert found["rows"][0]["ratio"]["value"] == pytest.approx(0.5)
    assert found["rows"][0]["verdict"]["kind"] == "better"
    assert 0.004 < found["floor"] < 0.01


def test_the_summary_withholds_what_errors_or_noise_spoil():
    bad = contender("ours", 5_000.0)
    bad["rounds"][3]["flags"] = ["errors"]
    noisy = contender("theirs", 5_000.0)
    for each in noisy["rounds"][:5]:
        each["flags"] = ["noisy"]
    rows = {row["name"]: row for row in summarise([contender("base", 10_000.0), bad, noisy], "base")["rows"]}
    assert rows["ours"]["verdict"]["kind"] == "withheld" and "1 of 8" in rows["ours"]["verdict"]["sentence"]
    assert (
        rows["theirs"]["verdict"]["kind"] == "withheld" and "5 of 8" in rows["theirs"]["verdict"]["sentence"]
    )


def test_a_ladder_says_what_is_in_the_way():
    rungs = [contender("01-slow", 100_000.0), contender("02-fast", 50_000.0)]
    for each in rungs:
        for round_ in each["rounds"]:
            round_["services_cpu_ns"] = {"broker": 20_000.0, "database": 70_000.0, "other": 10.0}
            round_["load"]["client"] = {"cpu_ns_per_request": 10_000.0}
    found = summarise(rungs, "01-slow", ladder=True)
    assert found["rows"][0]["services"] == "beside it database 70, broker 20 us"
    # 20,000 a second of 150.01 us each.
    assert found["steps"][-1].startswith("02-fast: at 20,000 a second 3.0 cores are busy")
    assert "database 70, server 50, broker 20, client 10" in found["steps"][-1]
    assert "services" not in found["steps"][0]
    assert summarise([contender("base", 1e5)], "base")["rows"][0]["services"] == ""


def test_verdicts_withheld_for_the_same_reason_are_one_sentence():
    contenders = [contender("base", 10_000.0), contender("one", 5_000.0), contender("two", 6_000.0)]
    for each in contenders[1:]:
        for round_ in each["rounds"]:
            round_["flags"] = ["noisy"]
    rows = summarise([*contenders, contender("three", 7_000.0)], "base")["rows"]
    told = sentences(rows)
    assert [kind for kind, _ in told] == ["better", "withheld"]
    assert told[1][1].startswith("withheld of one, two: the machine was too noisy in 8 of 8")


class Outside(html.parser.HTMLParser):
    """Collects what a page would fetch, and the tags that are left open."""

    VOID = ("meta", "br", "img", "input", "link", "line", "circle", "polyline")

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href") and not (value or "").startswith("#"):
                self.fetched.append(str(value))
        if tag in ("script", "link", "iframe"):
            self.fetched.append(tag)
        if tag in ("section", "div", "details", "figure", "svg", "table", "ul"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("section", "div", "details", "figure", "svg", "table", "ul"):
            assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing():
    page = report_html.page(run_of(base=10_000.0, ours=5_000.0))
    parser = Outside()
    parser.feed(page)
    assert parser.fetched == [] and parser.open == []
    assert "url(" not in page and "@import" not in page
    assert "&lt;for&gt; a test" in page
    assert "50.0% less CPU" in page
    assert "pip install absent" in page
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page


def test_runs_are_merged_into_one_page_with_their_latencies_and_sweeps():
    run, swept, other = (run_of(base=10_000.0, ours=cpu) for cpu in (5_000.0, 7_000.0, 6_000.0))
    points = [
        {"value": n, "requests_per_second": 100.0 * n, "errors": 0, "first_error": None} for n in (1, 10)
    ]
    lines = [{"name": "ours", "points": points, "sentences": ["ours: more gains nothing."]}]
    swept["scenarios"][0]["cases"][0]["sweeps"] = [{"parameter": "connections", "lines": lines}]
    other["scenarios"][0]["name"] = "another"
    found = merged([run, swept, other])
    assert [each["name"] for each in found["scenarios"]] == ["made-up", "another"]
    (case,) = found["scenarios"][0]["cases"]
    # The sweep's case brings its sweep; the rounds stay those of the plain run.
    assert case["sweeps"][0]["parameter"] == "connections"
    assert case["contenders"][1]["rounds"][0]["cpu_ns_per_request"] < 5_100
    assert "sweeps" not in run["scenarios"][0]["cases"][0], "the documents given stay as they are"
    published = ["", "source 1, hello: ran <out>", "  published: 1,780 req/s", "  here:      9,000 req/s"]
    page = report_html.page({**found, "sources": published})
    parser = Outside()
    parser.feed(page)
    assert parser.fetched == [] and parser.open == []
    assert "more gains nothing" in page and "ran &lt;out&gt;" in page and "9,000 req/s" in page


def test_the_later_of_two_runs_of_a_case_counts():
    found = merged([run_of(base=10_000.0, ours=5_000.0), run_of(base=10_000.0, ours=7_000.0)])
    (case,) = found["scenarios"][0]["cases"]
    assert case["contenders"][1]["rounds"][0]["cpu_ns_per_request"] > 6_900


def test_the_table_names_ratios_verdicts_and_what_is_left_out():
    text = report_terminal.text(run_of(base=10_000.0, ours=5_000.0))
    assert "0.500" in text and "50.0% less CPU" in text and "left out: absent" in text


def test_an_axis_covers_its_values():
    axis = charts.logarithmic("x", [3.0, 4000.0], str)
    assert (axis.low, axis.high) == (1, 10_000)
    line = charts.linear("x", [0.0, 730.0], str)
    assert line.high >= 730 and 3 <= len(line.ticks) <= 8


def test_compare_says_what_is_beyond_doubt():
    old, new = run_of(base=10_000.0, ours=5_000.0), run_of(base=10_001.0, ours=6_000.0)
    found = {change.contender: change for change in compare.changes(old, new)}
    assert found["base"].kind == "cannot tell"
    assert found["ours"].kind == "worse" and found["ours"].ratio.value == pytest.approx(1.2)
    assert [change.contender for change in compare.failing(list(found.values()), 0.05)] == ["ours"]
    assert compare.failing(list(found.values()), 0.3) == []


def test_compare_needs_something_in_common():
    new = copy.deepcopy(run_of(base=10_000.0))
    new["scenarios"][0]["name"] = "another"
    with pytest.raises(UsageError, match="in common"):
        list(compare.changes(run_of(base=10_000.0), new))


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("12.5%", 0.125)])
def test_a_share(text: str, value: float):
    assert compare.share(text) == pytest.approx(value)


def command_line(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", "bench", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_compare_is_a_gate(tmp_path: Path):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps(run_of(base=10_000.0, ours=5_000.0)))
    new.write_text(json.dumps(run_of(base=10_000.0, ours=6_000.0)))
    assert command_line("compare", str(old), str(old), "--fail-above", "5%").returncode == 0
    done = command_line("compare", str(old), str(new), "--fail-above", "5%")
    assert done.returncode == 1 and "worse, +20.0% CPU" in done.stdout
    assert command_line("compare", str(new), str(old), "--fail-above", "5%").returncode == 0


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not JSON"),
        ('{"tool": "wrk"}', "not written by headrace bench"),
        ("[1]", "not written by headrace bench"),
        (json.dumps({"tool": "headrace bench", "format": FORMAT + 1}), "run the bench again"),
        (None, "cannot read"),
    ],
)
def test_an_old_or_foreign_file_gets_one_line(tmp_path: Path, text: str | None, part: str):
    file = tmp_path / "run.json"
    if text is not None:
        file.write_text(text)
    for words in (["compare", str(file), str(file)], ["report", str(file)]):
        done = command_line(*words)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1 and part in done.stderr


def test_a_wrong_share_gets_one_line(tmp_path: Path):
    done = command_line("compare", "a", "b", "--fail-above", "much")
    assert done.returncode == 2 and "such as 5%" in done.stderr


def test_the_sources_go_onto_the_page_of_runs(tmp_path: Path):
    where, page = tmp_path / "run.json", tmp_path / "page.html"
    where.write_text(json.dumps(run_of(base=10_000.0, ours=5_000.0)))
    words = [sys.executable, "-m", "headrace", "bench", "sources"]

    def sources(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *more], capture_output=True, text=True, timeout=60, check=False)

    assert sources(str(where), "--html", str(page)).returncode == 0
    text = page.read_text()
    assert "The five sources" in text and "1780.84" in text and "made-up" in text
    for mistake in (
        ["--html", str(page)],
        [str(where), "--json", str(tmp_path / "x.json")],
        ["--run", "--minutes", "0"],
    ):
        done = sources(*mistake)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
