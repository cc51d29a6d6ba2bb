"""``gunicorn -k headrace.gunicorn.Worker``: with a real gunicorn as the master."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ASGI = """
import asyncio, os
STARTED = []
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            STARTED.append(message["type"])
            print(message["type"], flush=True)
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": f"{os.getpid()} {STARTED[0]}".encode()})
"""

WSGI = """
import os, threading, time
def app(environ, start_response):
    if environ["PATH_INFO"] == "/stuck":
        time.sleep(60)
    if environ["PATH_INFO"] == "/slow":
        time.sleep(1)
    start_response("200 OK", [("Connection", "close")])
    return [f"{os.getpid()} {environ['wsgi.multithread']}".encode()]
"""


class Master:
    """A gunicorn that runs."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    def ask(self, path: str = "/") -> list[str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        words = answer.read().decode().split()
        connection.close()
        return words

    def workers(self) -> set[int]:
        pid = self.process.pid
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

    def wait_for(self, condition, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@pytest.fixture
def gunicorn(missing, tmp_path: Path):
    """A context manager that runs gunicorn in a folder of the test's own, where ``it.py`` has the application."""
    try:
        import gunicorn  # noqa: F401
    except ImportError:
        missing("gunicorn")

    @contextmanager
    def run(text: str, *options: str, starts: bool = True) -> Iterator[Master]:
        tmp_path.joinpath("it.py").write_text(text)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        path = tmp_path / "log"
        words = [sys.executable, "-m", "gunicorn", "-k", "headrace.gunicorn.Worker", "--no-control-socket"]
        words += ["-b", f"127.0.0.1:{port}", "--graceful-timeout", "10", *options, "it:app"]
        with path.open("wb") as log:
            process = subprocess.Popen(words, cwd=tmp_path, stdout=log, stderr=log)
        master = Master(process, port, path)
        try:

            def listens() -> bool:
                assert process.poll() is None, master.log
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            if starts:
                master.wait_for(listens)
            yield master
        finally:
            # The workers see that their parent has gone, and end.
            if process.poll() is None:
                process.send_signal(signal.SIGQUIT)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    return run


def test_asgi_with_lifespan(gunicorn) -> None:
    with gunicorn(ASGI, "-w", "2") as master:
        master.wait_for(lambda: master.log.count("lifespan.startup") == 2)
        pid, started = master.ask()
        assert int(pid) in master.workers()
        assert started == "lifespan.startup"
        assert master.stop() == 0
        assert master.log.count("lifespan.shutdown") == 2
        assert "Traceback" not in master.log


@pytest.mark.parametrize("threads", [1, 4])
def test_wsgi(gunicorn, threads: int) -> None:
    with gunicorn(WSGI, "--threads", str(threads)) as master:
        assert master.ask()[1] == str(threads > 1)
        if threads > 1:
            began = time.monotonic()
            asking = [threading.Thread(target=master.ask, args=("/slow",)) for _ in range(3)]
            for each in asking:
                each.start()
            for each in asking:
                each.join()
            assert time.monotonic() - began < 2.5
        assert master.stop() == 0
        assert "Traceback" not in master.log


def test_a_reload_loads_the_new_application_and_loses_nothing(gunicorn, tmp_path: Path) -> None:
    with gunicorn(ASGI) as master:
        before = int(master.ask()[0])
        slow: list[list[str]] = []
        asking = threading.Thread(target=lambda: slow.append(master.ask("/slow")))
        asking.start()
        time.sleep(0.3)
        tmp_path.joinpath("it.py").write_text(ASGI.replace("{STARTED[0]}", "new one"))
        master.process.send_signal(signal.SIGHUP)
        master.wait_for(lambda: master.ask()[1] == "new")
        asking.join()
        assert int(slow[0][0]) == before
        master.wait_for(lambda: len(master.workers()) == 1 and before not in master.workers())
        assert master.stop() == 0


def test_more_fewer_and_killed_workers(gunicorn) -> None:
    with gunicorn(ASGI) as master:
        master.ask()
        master.process.send_signal(signal.SIGTTIN)
        master.wait_for(lambda: len(master.workers()) == 2)
        time.sleep(0.5)
        master.process.send_signal(signal.SIGTTOU)
        master.wait_for(lambda: len(master.workers()) == 1)
        (victim,) = master.workers()
        os.kill(victim, signal.SIGKILL)
        master.wait_for(lambda: len(master.workers() - {victim}) == 1)
        assert int(master.ask()[0]) != victim
        assert master.stop() == 0


def test_a_running_request_is_answered_at_the_end(gunicorn) -> None:
    with gunicorn(ASGI) as master:
        slow: list[list[str]] = []
        asking = threading.Thread(target=lambda: slow.append(master.ask("/slow")))
        asking.start()
        time.sleep(0.4)
        assert master.stop() == 0
        asking.join()
        assert len(slow) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_quick_end_waits_for_no_request(gunicorn, number: int) -> None:
    with gunicorn(ASGI.replace("sleep(1)", "sleep(30)")) as master:
        master.ask()
        with socket.create_connection(("127.0.0.1", master.port)) as sock:
            sock.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
            time.sleep(0.3)
            began = time.monotonic()
            assert master.stop(number) == 0
            assert time.monotonic() - began < 5


def test_a_worker_that_is_stuck_is_killed(gunicorn) -> None:
    with gunicorn(WSGI, "--timeout", "2") as master:
        before = int(master.ask()[0])
        # Idle for longer than the timeout: it gives signs of life.
        time.sleep(3)
        assert master.workers() == {before}
        with socket.create_connection(("127.0.0.1", master.port)) as sock:
            sock.sendall(b"GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n")
            master.wait_for(lambda: "WORKER TIMEOUT" in master.log)
            master.wait_for(lambda: before not in master.workers() and len(master.workers()) == 1)
        assert int(master.ask()[0]) != before
        assert master.stop() == 0


def test_a_worker_has_had_enough_requests(gunicorn) -> None:
    with gunicorn(ASGI, "--max-requests", "5") as master:
        before = int(master.ask()[0])
        for _ in range(4):
            master.ask()
        master.wait_for(lambda: "Autorestarting worker" in master.log)
        master.wait_for(lambda: before not in master.workers() and len(master.workers()) == 1)
        assert int(master.ask()[0]) != before
        assert master.stop() == 0


def test_the_access_log_is_reopened(gunicorn, tmp_path: Path) -> None:
    log = tmp_path / "access"
    with gunicorn(ASGI, "--access-logfile", str(log)) as master:
        master.ask("/first")
        master.wait_for(lambda: log.exists() and '"GET /first HTTP/1.1" 200' in log.read_text())
        log.rename(tmp_path / "old")
        master.process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)
        master.ask("/second")
        master.wait_for(lambda: log.exists() and '"GET /second HTTP/1.1" 200' in log.read_text())
        assert master.stop() == 0


def test_a_start_that_fails_is_told(gunicorn) -> None:
    failing = ASGI.replace(
        'message["type"] + ".complete"', '"lifespan.startup.failed", "message": "no database"'
    )
    with gunicorn(failing, starts=False) as master:
        assert master.process.wait(20) == 3
        assert "The application did not start: no database" in master.log
        assert "Traceback" not in master.log.split("The application")[0]


def test_gunicorn_is_not_installed() -> None:
    code = "import sys; sys.modules['gunicorn'] = None\nimport headrace.gunicorn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: headrace.gunicorn is a worker class of gunicorn's: pip install gunicorn"
    )
