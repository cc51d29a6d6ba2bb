"""``bench app``: applications recognised without being imported, answers held alike, time attributed by stand-ins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from headrace.bench import app, registry
from headrace.bench.process import Processes
from headrace.bench.rounds import Bench, Entry, Settings
from headrace.bench.summary import summarise
from headrace.cli import UsageError

APPS = """
async def coroutine(scope, receive, send): ...
class Asgi:
    async def __call__(self, scope, receive, send): ...
asgi = Asgi()
def wsgi(environ, start_response): ...
from flask import Flask
flask = Flask(__name__)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kinds.py").write_text(APPS)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no database')")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "interface", "framework"),
    [("coroutine", "asgi", ""), ("asgi", "asgi", ""), ("wsgi", "wsgi", ""), ("flask", "wsgi", "flask")],
)
def test_the_interface_and_framework_are_found(folder: Path, name: str, interface: str, framework: str):
    pytest.importorskip("flask")
    assert app.inspect(f"kinds:{name}", folder) == {"interface": interface, "framework": framework}


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("kinds", "not MODULE:ATTR"),
        ("kinds:nothing", "nothing"),
        ("nowhere:app", "nowhere"),
        ("broken:x", "no database"),
    ],
)
def test_what_cannot_be_loaded_gets_one_line(folder: Path, name: str, part: str):
    with pytest.raises(UsageError, match=part) as caught:
        app.inspect(name, folder)
    assert "\n" not in str(caught.value)


def own_scenario():
    return app.scenarios("kinds:wsgi", {"interface": "wsgi", "framework": "flask"}, "/", 8, Path())


def test_servers_are_chosen_by_short_names():
    chosen = app.against(["granian", "gunicorn:gevent"], own_scenario()[0])
    assert {"granian-wsgi", "gunicorn-gevent", "headrace-wsgi"} <= set(chosen)
    assert "granian-asgi" not in chosen and "gunicorn-sync" not in chosen
    with pytest.raises(UsageError, match="uwsgi"):
        app.against(["uwsgi"], own_scenario()[0])


@pytest.mark.parametrize(
    ("framework", "interface"),
    [
        ("flask", "wsgi"),
        ("starlette", "asgi"),
        ("fastapi", "asgi"),
        ("django", "wsgi"),
        ("django", "asgi"),
        ("tornado", "tornado"),
    ],
)
def test_every_framework_has_a_stand_in_that_answers(framework: str, interface: str):
    pytest.importorskip(framework)
    chosen = app.scenarios("kinds:x", {"interface": interface, "framework": framework}, "/", 8, Path())
    assert [each.name for each in chosen] == [app.OWN, app.NOTHING, app.FRAMEWORK]
    ours = registry.contenders()[f"headrace-{interface}"]
    with Processes() as processes:
        bench = Bench(processes, Settings(), {}, lambda line: None)
        for stand_in in chosen[1:]:
            # The check asks twice, and refuses an error's status.
            running, endpoint = bench.launch(stand_in, stand_in.cases[0], Entry(ours.name, ours))
            assert running is not None and running.alive and endpoint.port


def contender(name: str, cpu: float, system: float) -> dict:
    """A contender with four equal rounds."""
    load = {"latency_us": {}, "first_error": None}
    each = {
        "block": 0,
        "cpu_ns_per_request": cpu,
        "system_share": system,
        "requests_per_second": 1.0,
        "errors": 0,
    }
    rounds = [{**each, "round": i, "flags": [], "load": load} for i in range(4)]
    base = {
        "name": name,
        "version": "",
        "status": "measured",
        "reason": "",
        "log": "",
        "warmups": [],
        "memory_kb": 0,
    }
    return {**base, "rounds": rounds}


def document(**costs: list[tuple[float, float]]) -> dict:
    """Own application, nothing, and the framework's hello of each contender: CPU and the kernel's share."""
    scenarios = []
    for place, name in enumerate((app.OWN, app.NOTHING, app.FRAMEWORK)):
        contenders = [contender(who, *cost[place]) for who, cost in costs.items()]
        case = {"contenders": contenders, "summary": summarise(contenders, "theirs")}
        scenarios.append({"name": name, "baseline": "theirs", "cases": [case]})
    return {"scenarios": scenarios}


def test_time_is_attributed_by_stand_ins():
    # 100 us: 20 kernel; nothing costs 15, 5 of it kernel: server 10; hello 60, 10 of it kernel: framework 40.
    found = document(theirs=[(100_000.0, 0.2), (15_000.0, 1 / 3), (60_000.0, 1 / 6)])
    (said,) = app.where_time_goes(found)
    assert (
        said
        == "theirs: 100.0 us of CPU a request: kernel 20.0, server 10.0, framework 40.0, application 30.0"
    )


def test_gains_are_said_and_so_is_that_there_are_none():
    cost = [(100_000.0, 0.2)] * 3
    found = document(theirs=cost, ours=[(50_000.0, 0.2)] * 3, same=cost)
    said = list(app.gains(found))
    assert any("switching from theirs to ours would serve 2.00 times" in line for line in said)
    assert any("switching to same would gain nothing measurable" in line for line in said)


def test_a_mistake_gets_one_line(headrace, folder: Path):
    for words, part in (
        (["kinds:wsgi", "--path", "x"], "--path"),
        (["kinds:wsgi", "--app-dir", "/nowhere"], "/nowhere"),
        (["broken:app"], "no database"),
        (["kinds:wsgi", "-c", "0"], "--connections"),
    ):
        done = subprocess.run(
            [*headrace, "bench", "app", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2 and part in done.stderr and len(done.stderr.splitlines()) == 1, (
            done.stderr
        )
