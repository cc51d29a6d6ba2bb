"""Markdown tables: each way to program against the baseline's of that way; only whom was asked for; the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.bench import report_markdown
from headrace.bench.rounds import Settings
from headrace.bench.run import document
from headrace.bench.summary import summarise


def contender(name: str, cpu: float) -> dict[str, Any]:
    rounds = [
        {
            "block": i // 4,
            "round": i,
            "cpu_ns_per_request": cpu,
            "requests_per_second": 1e9 / cpu,
            "errors": 0,
            "flags": [],
            "load": {"latency_us": {"p50": 50.0, "p99": 90.0}},
        }
        for i in range(8)
    ]
    base = {"name": name, "version": "1.2", "status": "measured", "reason": "", "log": "", "warmups": []}
    return {**base, "memory_kb": 1024, "rounds": rounds}


def run_of(**cpus: float) -> dict[str, Any]:
    contenders = [contender(name.replace("_", "-"), cpu) for name, cpu in cpus.items()]
    contenders.append(contender("rival (again)", cpus["rival"]))
    case = {
        "name": "1 KB",
        "connections": 10,
        "contenders": contenders,
        "summary": summarise(contenders, "rival"),
    }
    scenario = {"name": "echo", "summary": "", "unit": "message", "baseline": "rival", "missing": []}
    return document(Settings(), [{**scenario, "cases": [case]}])


RUN = run_of(rival=4000.0, ours=3000.0, rival_streams=8000.0, ours_streams=6000.0, other_sock=5000.0)


def row(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_streams_stand_against_the_baselines_streams_and_what_has_no_such_peer_against_the_baseline():
    text = report_markdown.page([RUN])
    assert row(text, "ours")[1:4] == ["3.00 [3.00 3.00]", "**0.75** [0.75 0.75] of rival", "333,333"]
    assert row(text, "ours-streams")[2] == "**0.75** [0.75 0.75] of rival-streams"
    assert row(text, "other-sock")[2] == "**1.25** [1.25 1.25] of rival"
    assert row(text, "rival")[2] == ""
    assert "(again)" not in text


def test_a_family_at_a_glance():
    lines = report_markdown.glance([RUN], "ours").splitlines()
    assert lines[2:] == [
        "| echo: 1 KB | 10 | ours | **0.75** [0.75 0.75] of rival |",
        "| echo: 1 KB | 10 | ours-streams | **0.75** [0.75 0.75] of rival-streams |",
    ]


def test_our_servers_at_a_glance_against_the_best_rival_of_their_interface():
    run = run_of(
        rival=1000.0,
        headrace_asgi=3000.0,
        headrace_wsgi=1000.0,
        uvicorn=6000.0,
        granian_asgi=4000.0,
        gunicorn=5000.0,
    )
    lines = report_markdown.glance_at_servers([run]).splitlines()
    assert lines[2:] == [
        "| echo: 1 KB | 10 | headrace-asgi | **0.75** [0.75 0.75] of granian-asgi |",
        "| echo: 1 KB | 10 | headrace-wsgi | **0.20** [0.20 0.20] of gunicorn |",
    ]


def test_only_those_asked_for_and_the_machine_once():
    text = report_markdown.page([RUN, RUN], ["ours"])
    assert "**echo: 1 KB, 10 connections**" in text and "| ours 1.2 |" in text
    assert "rival 1.2" not in text
    assert text.count("Measured ") == 1 and "8 rounds of 1 s" in text


def test_the_command_writes_a_file_and_to_standard_output(tmp_path: Path):
    run, out = tmp_path / "run.json", tmp_path / "tables.md"
    run.write_text(json.dumps(RUN))
    command = [sys.executable, "-m", "headrace", "bench", "report", str(run), "--markdown"]
    printed = subprocess.run([*command, "-"], capture_output=True, text=True, check=True, timeout=60).stdout
    subprocess.run([*command, str(out), "--contenders", "ours"], check=True, timeout=60)
    assert printed == report_markdown.page([RUN])
    assert out.read_text() == report_markdown.page([RUN], ["ours"])


def test_the_tool_for_documents_changes_its_own_section_alone(tmp_path: Path):
    tool = Path(__file__).resolve().parents[2] / "tools" / "benchmarks_tables.py"
    run, page = tmp_path / "run.json", tmp_path / "benchmarks.md"
    run.write_text(json.dumps(RUN))
    page.write_text(
        "before\n<!-- tables: a -->\nold\n<!-- end of tables -->\nbetween\n<!-- tables: b -->\n<!-- end of tables -->\n"
    )
    command = [sys.executable, str(tool), str(page)]
    for _ in range(2):
        subprocess.run([*command, "a", str(run)], check=True, timeout=60)
    text = page.read_text()
    assert text.startswith("before\n<!-- tables: a -->") and "old" not in text
    assert text.endswith("between\n<!-- tables: b -->\n<!-- end of tables -->\n")
    assert text.count("**echo: 1 KB, 10 connections**") == 1
    assert (
        subprocess.run([*command, "c", str(run)], stderr=subprocess.PIPE, timeout=60, check=False).returncode
        == 1
    )
