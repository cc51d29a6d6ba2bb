"""Sweeps and open-loop latency: what their sentences say, and one real run of each."""

from __future__ import annotations

import json
import subprocess

import pytest
from headrace.bench.curves import knee, untaken


def point(value: int, rate: float, errors: int = 0) -> dict:
    """One value of a sweep."""
    first = "status 503" if errors else None
    return {
        "value": value,
        "requests_per_second": rate,
        "errors": errors,
        "first_error": first,
        "log": "too many clients",
        "seconds": 8.0,
    }


def test_the_knee_is_the_first_value_that_is_as_good_as_the_best():
    (said,) = knee(
        "asyncpg", "pool size", [point(1, 100.0), point(5, 980.0), point(10, 1000.0), point(50, 990.0)]
    )
    assert "980 good answers a second with pool size 5" in said


def test_a_value_with_errors_is_no_knee_and_is_named_with_its_reason():
    said = knee("asyncpg", "connections", [point(10, 500.0), point(500, 900.0, errors=7)])
    assert "with connections 10" in said[0]
    assert "7 errors with connections 500: status 503; too many clients" in said[1]


def test_a_value_without_any_answer_is_no_knee_and_is_named():
    said = knee("asyncpg", "connections", [point(10, 500.0), point(500, 0.0)])
    assert "500 good answers a second with connections 10" in said[0]
    assert said[1] == "asyncpg: not one answer within 8 s with connections 500."


def test_connections_that_a_server_does_not_take_are_told():
    points = [
        {**point(value, 100.0), "connections_open": taken} for value, taken in ((500, 496), (4000, 2049))
    ]
    assert untaken("sync", points) == ["sync: of 4000 connections 1951 were not taken at the end."]
    assert untaken("sync", points[:1]) == []


def run(headrace: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*headrace, "bench", *words], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_latency_is_measured_at_shares_of_capacity_and_a_common_rate(headrace, tmp_path):
    where, page = tmp_path / "run.json", tmp_path / "run.html"
    words = (
        "--contenders",
        "asyncio",
        "--cases",
        "1 KB",
        "--quick",
        "--json",
        str(where),
        "--html",
        str(page),
    )
    done = run(headrace, "latency", "tcp-echo", *words)
    (line,) = json.loads(where.read_text())["scenarios"][0]["cases"][0]["latency"]
    assert [each["share"] for each in line["points"]] == [0.5, 0.7, 0.85, 0.95]
    assert line["common"]["offered"] == pytest.approx(0.7 * line["capacity"])
    for each in line["points"]:
        assert each["offered"] == pytest.approx(each["share"] * line["capacity"])
        assert each["late"] == (each["answered"] < 0.99 * each["offered"])
    assert "capacity" in done.stdout and "common rate" in done.stdout
    assert "<svg" in page.read_text()


def test_a_sweep_varies_the_connections(headrace, tmp_path):
    where = tmp_path / "run.json"
    words = ("--contenders", "asyncio", "--cases", "1 KB", "--quick", "--json", str(where))
    run(headrace, "sweep", "tcp-echo", *words)
    (sweep,) = json.loads(where.read_text())["scenarios"][0]["cases"][0]["sweeps"]
    assert [each["value"] for each in sweep["lines"][0]["points"]] == [1, 10, 50, 100, 500]
    assert sweep["lines"][0]["sentences"]
