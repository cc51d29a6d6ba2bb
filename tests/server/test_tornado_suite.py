"""Tornado's own tests of its web and WebSocket layers, over Headrace's server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tornado")


@pytest.mark.parametrize(
    ("module", "at_least"), [("tornado.test.web_test", 200), ("tornado.test.websocket_test", 50)]
)
def test_tornados_own_suite(module: str, at_least: int) -> None:
    runner = Path(__file__).with_name("tornado_suite.py")
    done = subprocess.run(
        [sys.executable, runner, module], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    ran = re.search(r"^Ran (\d+) tests", done.stderr, re.M)
    assert ran is not None
    assert int(ran[1]) >= at_least
