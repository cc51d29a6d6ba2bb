"""The WebSocket crate's echo server passes the Autobahn suite. See ``tests/server/autobahn.py``."""

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
ECHO = ["-p", "headrace-websocket", "--example", "echo"]

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def url(missing: Callable[[str], NoReturn]) -> Iterator[str]:
    """The address of the crate's example, which runs as long as the tests."""
    if shutil.which("cargo") is None:
        missing("a Rust toolchain (cargo)")
    with subprocess.Popen([build_echo(), "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def build_echo() -> str:
    """The path of the example's program; only cargo knows where it puts it."""
    command = [
        "cargo",
        "build",
        "--quiet",
        "--locked",
        "--profile",
        "quick",
        "--message-format",
        "json",
        *ECHO,
    ]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    programs = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    [program] = filter(None, programs)
    return str(program)


@pytest.mark.parametrize("group", ["framing", "large", "deflate"])
def test_the_suite_passes(group: str, url: str, missing: Callable[[str], NoReturn]) -> None:
    command = [sys.executable, str(AUTOBAHN), url, "--group", group]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        missing(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
