"""Both roles of the WebSocket crate pass the Autobahn suite. See ``tests/server/autobahn.py``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
AUTOBAHN = ROOT / "tests" / "server" / "autobahn.py"
pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(3600)]


Missing = Callable[[str], NoReturn]


def build(example: str, missing: Missing) -> str:
    """The path of an example's program; only cargo knows where it puts it."""
    if shutil.which("cargo") is None:
        missing("a Rust toolchain (cargo)")
    command = ["cargo", "build", "--quiet", "--locked", "--profile", "quick", "--message-format", "json"]
    command += ["-p", "headrace-websocket", "--example", example]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    programs = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    [program] = filter(None, programs)
    return str(program)


def check(missing: Missing, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, str(AUTOBAHN), *words], capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        missing(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def url(missing: Missing) -> Iterator[str]:
    """The address of the crate's echo server, which runs as long as the tests."""
    command = [build("echo", missing), "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.mark.parametrize("group", ["framing", "large", "deflate"])
def test_the_server_role(group: str, url: str, missing: Missing) -> None:
    check(missing, "--group", group, url)


def test_the_client_role(missing: Missing) -> None:
    check(missing, "--group", "framing", "--group", "large", "--client", build("echo_client", missing))
