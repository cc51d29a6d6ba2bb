"""What goes beyond one request at one rate: request files, logs, searches, old tools' forms."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace.cli import UsageError
from headrace.load.compat import in_form_of
from headrace.load.request_file import read_requests
from headrace.load.search import find_rate

Load = Callable[..., dict[str, Any]]
DEFAULTS = {"method": "GET", "headers": ["A: 1", "B: 2"], "body": None, "body_size": None}


def test_requests_are_mixed_by_weight_and_counted_each(web: str, load: Load, tmp_path: Path) -> None:
    file = tmp_path / "mix.toml"
    file.write_text(
        '[[request]]\nname = "front"\nweight = 3\n'
        '[[request]]\nmethod = "POST"\npath = "/post"\nbody = "abc"\nexpect_body = "abc"\n'
        '[[request]]\npath = "/unwell"\nexpect_status = 503\n'
    )
    result = load(f"{web}/", "-c", "4", "-d", "0.6", "--requests", str(file))
    assert not any(result["errors"].values())
    kinds = {kind["name"]: kind for kind in result["kinds"]}
    assert list(kinds) == ["front", "POST /post", "GET /unwell"]
    assert sum(kind["requests"] for kind in kinds.values()) == result["requests"]
    assert kinds["front"]["requests"] / result["requests"] == pytest.approx(0.6, abs=0.1)
    assert set(result["status"]) == {"200", "503"}


def test_a_request_file_inherits_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\x00\x01")
    file = tmp_path / "r.json"
    file.write_text(json.dumps([{"headers": {"b": "3"}}, {"body_file": "body", "weight": 0}]))
    first, second = read_requests(file, DEFAULTS)
    assert first == DEFAULTS | {"headers": ["A: 1", "b: 3"]}
    assert second == DEFAULTS | {"body": b"\x00\x01", "weight": 0}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "cannot be understood"),
        ("[]", "a list of objects"),
        ("{}", "a list of objects"),
        ("[3]", "request 1: it must be a table"),
        ('[{}, {"wieght": 1}]', "request 2: there is no key 'wieght', but 'weight'"),
        ('[{"weight": "1"}]', "weight must be a number"),
        ('[{"weight": -1}]', "weight must be a number"),
        ('[{"weight": true}]', "weight must be a number"),
        ('[{"any_length": 1}]', "true or false"),
        ('[{"body": "a", "body_size": 1}]', "only one of"),
        ('[{"body_file": "nowhere"}]', "cannot read nowhere"),
    ],
)
def test_a_mistake_in_a_request_file_is_named(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "r.json"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_requests(file, DEFAULTS)
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_an_hdr_log_has_a_line_for_each_second(web: str, load: Load, tmp_path: Path) -> None:
    log = tmp_path / "log"
    result = load(f"{web}/", "-c", "2", "-t", "2", "-d", "1.5", "--hdr-log", str(log))
    lines = log.read_text().splitlines()
    assert lines[1] == "#[Histogram log format version 1.3]" and lines[2].startswith("#[StartTime: ")
    rows = [line.split(",") for line in lines[4:]]
    assert [row[:2] for row in rows] == [["0.000", "1.000"], ["1.000", "0.500"]]
    assert all(base64.b64decode(row[3])[:4] == b"\x1c\x84\x93\x14" for row in rows)
    longest = max(float(row[2]) for row in rows) * 1000
    assert longest == pytest.approx(result["latency_us"]["max"], rel=0.002)


class Server:
    """A simulated server: it answers up to its capacity, and its p99 rises steeply towards it."""

    def __init__(self, capacity: float, hiccups: int = 0) -> None:
        self.capacity = capacity
        self.hiccups = hiccups
        self.asked: list[float | None] = []

    def load(self, rate: float | None) -> dict[str, Any]:
        self.asked.append(rate)
        done = min(rate or self.capacity, self.capacity)
        p99 = 1_000 / max(1e-9, 1 - done / self.capacity) if rate else 1e6
        if rate and rate < 0.9 * self.capacity and self.hiccups:
            self.hiccups -= 1
            p99 = 21_000
        return {
            "interrupted": False,
            "rate": rate,
            "offered": rate,
            "requests": done,
            "requests_per_second": done,
            "latency_us": {"p99": p99},
            "errors": {"read": 0},
        }


@pytest.mark.parametrize("hiccups", [0, 1])
def test_the_search_finds_the_rate_that_keeps_the_goal(hiccups: int) -> None:
    server = Server(10_000, hiccups)
    told: list[str] = []
    found = find_rate(server.load, 20_000, told.append)["search"]
    # 20 ms is reached at 1 - 1/20 of the capacity.
    assert 9_500 * 0.97 <= found["rate"] <= 9_500
    assert len(told) == len(server.asked) == len(found["trials"]) + 1 <= 14


def test_a_goal_out_of_reach_is_said_so() -> None:
    server = Server(10_000)
    found = find_rate(server.load, 500, lambda line: None)["search"]
    assert found["rate"] is None and len(server.asked) <= 25


def test_an_interrupted_search_says_so() -> None:
    server = Server(10_000)

    def load(rate: float | None) -> dict[str, Any]:
        return server.load(rate) | {"interrupted": len(server.asked) == 3}

    found = find_rate(load, 20_000, lambda line: None)
    assert found["interrupted"] and len(server.asked) == 3
    assert found["search"]["rate"] == pytest.approx(9_000)


def test_a_search_runs_real_loads(web: str, headrace: list[str]) -> None:
    words = [
        *headrace,
        "load",
        f"{web}/",
        "-c",
        "4",
        "-d",
        "0.3",
        "--find-rate",
        "--p99",
        "5s",
        "--json",
        "-",
    ]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["search"]["rate"] == pytest.approx(result["rate"])
    assert "closed loop: " in done.stderr and "kept" in done.stderr


def test_old_tools_forms_have_their_figures_and_what_they_hide(web: str, load: Load) -> None:
    result = load(f"{web}/", "-c", "3", "-d", "0.3")
    rate = result["requests_per_second"]
    ab = in_form_of("ab", result)
    assert f"Complete requests:      {result['requests']}\n" in ab
    assert f"Requests per second:    {rate:.2f} [#/sec] (mean)" in ab
    wrk = in_form_of("wrk", result)
    assert "1 threads and 3 connections" in wrk and f"Requests/sec: {rate:>10.2f}" in wrk
    redis = in_form_of("redis-benchmark", result)
    assert f"throughput summary: {rate:.2f} requests per second" in redis
    for text in (ab, wrk, redis):
        assert "can mislead:\n- " in text
