"""Several workers: sockets shared, the dead replaced, an orderly end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

APPLICATION = """
import asyncio, os

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan here")
    if scope["path"] == "/slow":
        await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("pids.py").write_text(APPLICATION)
    return tmp_path


def children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def wait_for(condition, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_serve_and_end_with_the_master(serve, folder: Path, number: int) -> None:
    with serve("pids:app", folder, "--workers", "3") as served:
        wait_for(lambda: len(children(served.process.pid)) == 3)
        workers = children(served.process.pid)
        answered = {int(served.ask("GET", "/")[2]) for _ in range(30)}
        assert answered <= workers
        assert served.stop(number) == 0
        assert all(gone(pid) for pid in workers)
        assert "Traceback" not in served.log


def test_a_worker_that_dies_is_replaced(serve, folder: Path) -> None:
    with serve("pids:app", folder, "--workers", "2") as served:
        wait_for(lambda: len(children(served.process.pid)) == 2)
        served.ask("GET", "/")
        victim = min(children(served.process.pid))
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: len(children(served.process.pid) - {victim}) == 2)
        assert served.ask("GET", "/")[0] == 200
        assert f"worker {victim} died (signal 9); starting another" in served.log
        assert served.stop() == 0


def test_running_requests_are_answered_before_the_end(serve, folder: Path) -> None:
    with serve("pids:app", folder, "--workers", "2") as served:
        served.connection.request("GET", "/slow")
        time.sleep(0.2)
        served.process.send_signal(signal.SIGTERM)
        assert served.connection.getresponse().status == 200
        assert served.process.wait(15) == 0


def test_workers_end_when_the_master_is_killed(serve, folder: Path) -> None:
    with serve("pids:app", folder, "--workers", "2") as served:
        wait_for(lambda: len(children(served.process.pid)) == 2)
        served.ask("GET", "/")
        workers = children(served.process.pid)
        served.process.kill()
        served.process.wait()
        wait_for(lambda: all(gone(pid) for pid in workers))


def test_more_and_fewer_workers_by_signal(serve, folder: Path) -> None:
    with serve("pids:app", folder, "--workers", "2") as served:
        wait_for(lambda: len(children(served.process.pid)) == 2)
        served.process.send_signal(signal.SIGTTIN)
        wait_for(lambda: len(children(served.process.pid)) == 3)
        served.process.send_signal(signal.SIGTTOU)
        wait_for(lambda: len(children(served.process.pid)) == 2)
        assert served.ask("GET", "/")[0] == 200
        assert served.stop() == 0


def test_an_application_that_cannot_be_loaded_is_not_tried_for_ever(headrace, tmp_path: Path) -> None:
    import subprocess

    words = [*headrace, "serve", "nowhere:app", "--workers", "2", "--bind", "127.0.0.1:0"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2
    assert "there is no module 'nowhere' here" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_application_that_fails_at_its_import_is_not_tried_for_ever(headrace, tmp_path: Path) -> None:
    import subprocess

    tmp_path.joinpath("broken.py").write_text("1 / 0\n")
    words = [*headrace, "serve", "broken:app", "--workers", "2", "--bind", "127.0.0.1:0"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert "ZeroDivisionError" in ended.stderr
    assert "headrace: the workers do not start; giving up\n" in ended.stderr


def test_a_worker_that_cannot_be_replaced_is_tried_ever_more_slowly(serve, folder: Path) -> None:
    with serve("pids:app", folder, "--workers", "2") as served:
        wait_for(lambda: len(children(served.process.pid)) == 2)
        served.ask("GET", "/")
        folder.joinpath("pids.py").write_text("1 / 0\n")
        os.kill(min(children(served.process.pid)), signal.SIGKILL)
        served.wait_for_log("starting another in 0.4 s")
        assert len(children(served.process.pid)) <= 2
        # The other one goes on, and the mended one comes back.
        assert served.ask("GET", "/")[0] == 200
        folder.joinpath("pids.py").write_text(APPLICATION + "\n")
        wait_for(lambda: len(children(served.process.pid)) == 2)
        assert served.stop() == 0


def test_a_worker_that_does_not_end_is_killed(serve, folder: Path) -> None:
    folder.joinpath("stuck.py").write_text(
        "import time\ndef app(environ, start_response):\n    time.sleep(60)\n"
    )
    with serve("stuck:app", folder, "--workers", "2", "--grace", "0.5") as served:
        wait_for(lambda: len(children(served.process.pid)) == 2)
        workers = children(served.process.pid)
        served.connection.request("GET", "/")
        time.sleep(0.5)
        began = time.monotonic()
        assert served.stop(signal.SIGTERM) == 0
        assert time.monotonic() - began < 8
        assert all(gone(pid) for pid in workers)
