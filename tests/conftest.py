"""What all tests share."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """A function that ends a test for want of a real part: a skip here, a failure in CI, which must have it."""

    def end(what: str) -> NoReturn:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{what} is missing, and CI must have it")
        pytest.skip(f"{what} is missing")

    return end


@pytest.fixture(scope="session")
def headrace() -> list[str]:
    """The words that start the command line of the package under test, on the interpreter of the tests."""
    return [sys.executable, "-m", "headrace"]


class Served:
    """A running ``headrace serve``, and one connection to it that is kept alive."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    @property
    def log(self) -> str:
        """What the server has written so far."""
        return self._log.read_text()

    def wait_for_log(self, text: str, count: int = 1) -> None:
        """Wait until the log has ``text`` so many times: what a client sees may come before it."""
        deadline = time.monotonic() + 15
        while self.log.count(text) < count:
            assert time.monotonic() < deadline, f"{text!r} is not {count} times in {self.log}"
            time.sleep(0.02)
        assert self.log.count(text) == count

    def wait_until_ready(self) -> None:
        """Wait until connections are accepted."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        pytest.fail(f"the server does not listen: {self.log}")

    def ask(
        self, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request; status, fields (in lower case) and body of the answer."""
        self.connection.request(method, target, body, headers or {})
        answer = self.connection.getresponse()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, fields, answer.read()

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal; the exit status."""
        self.connection.close()
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture(scope="session")
def serve(headrace: list[str], tmp_path_factory: pytest.TempPathFactory):
    """A context manager that runs ``headrace serve`` on a free port, in a folder: it gives a :class:`Served`."""

    @contextmanager
    def run(application: str, folder: Path, *options: str, **variables: str) -> Iterator[Served]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        path = tmp_path_factory.mktemp("serve") / "log"
        words = [*headrace, "serve", application, "--bind", f"127.0.0.1:{port}", *options]
        with path.open("wb") as log:
            process = subprocess.Popen(
                words, cwd=folder, env={**os.environ, **variables}, stdout=log, stderr=log
            )
        served = Served(process, port, path)
        try:
            served.wait_until_ready()
            yield served
        finally:
            served.connection.close()
            process.kill()
            process.wait()

    return run
