"""``redis://`` against a real redis-server."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

Load = Callable[..., dict[str, Any]]


@pytest.fixture
def redis(missing: Callable[[str], NoReturn], tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "redis.sock"
    words = [
        shutil.which("redis-server") or missing("redis-server"),
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--save",
        "",
        "--appendonly",
        "no",
    ]
    with subprocess.Popen([*words, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL) as server:
        deadline = time.monotonic() + 10
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield path
        finally:
            server.terminate()


@pytest.mark.parametrize("pipeline", ["1", "16"])
def test_nil_and_values_are_told_apart(redis: Path, load: Load, pipeline: str) -> None:
    url = f"redis+unix:{redis}?keys=1000&size=64"
    more = ["-c", "5", "-d", "0.3", "--pipeline", pipeline]
    empty = load(f"{url}&get", *more)
    assert empty["status"] == {"nil": empty["requests"]} and empty["requests"] > 1000
    filled = load(f"{url}&set&order=turn", *more)
    assert filled["status"] == {"ok": filled["requests"]} and filled["requests"] > 1000
    full = load(f"{url}&get", *more, "--expect-body-length", "64")
    assert full["status"] == {"value": full["requests"]} and full["requests"] > 1000
    mixed = load(f"{url}&get=9&set=1&incr=1&ping=1", *more)
    assert set(mixed["status"]) == {"value", "ok", "integer"}
    for result in (empty, filled, full, mixed):
        assert not any(result["errors"].values())
    shares = {kind["name"]: kind["requests"] / mixed["requests"] for kind in mixed["kinds"]}
    assert shares["GET"] == pytest.approx(0.75, abs=0.05) and set(shares) == {"GET", "SET", "INCR", "PING"}


def test_values_of_another_length_are_body_errors(redis: Path, load: Load) -> None:
    url = f"redis+unix:{redis}?keys=10&size=5"
    load(f"{url}&set&order=turn", "-c", "1", "-d", "0.1")
    result = load(f"{url}&get", "-c", "1", "-d", "0.2", "--expect-body-length", "6", expect=1)
    assert result["errors"]["body"] == result["status"]["value"] > 0
