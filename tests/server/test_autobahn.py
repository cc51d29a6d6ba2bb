"""An ASGI application's WebSockets under ``headrace serve`` pass the Autobahn suite. See ``autobahn.py``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.timeout(3600)]

ECHO = """
async def app(scope, receive, send):
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})
"""


@pytest.mark.parametrize("group", ["framing", "large", "deflate"])
def test_the_autobahn_suite(group: str, serve, missing: Callable[[str], NoReturn], tmp_path: Path) -> None:
    tmp_path.joinpath("echo.py").write_text(ECHO)
    suite = Path(__file__).with_name("autobahn.py")
    with serve("echo:app", tmp_path, "--websocket-message-size", str(64 * 1024 * 1024)) as running:
        done = subprocess.run(
            [sys.executable, suite, "--group", group, f"ws://127.0.0.1:{running.port}/"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 3:
            missing(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in running.log
