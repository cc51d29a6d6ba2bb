"""What a user can get wrong with ``headrace serve``: one line, exit status 2, no traceback."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

APPLICATION = """
async def app(scope, receive, send):
    raise NotImplementedError

number = 1
"""


@pytest.fixture
def refused(headrace: list[str], tmp_path: Path):
    """A function that runs ``headrace serve`` beside a module `good`, and gives its one line."""
    tmp_path.joinpath("good.py").write_text(APPLICATION)
    tmp_path.joinpath("broken.py").write_text("import a_module_that_is_not_there\n")

    def run(*words: str) -> str:
        done = subprocess.run(
            [*headrace, "serve", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, done
        assert "Traceback" not in done.stderr
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("headrace: "), done.stderr
        return lines[0]

    return run


def test_no_such_module(refused) -> None:
    assert "nowhere" in refused("nowhere:app", "--bind", "127.0.0.1:0")


def test_no_such_submodule(refused) -> None:
    assert "good.inner" in refused("good.inner:app", "--bind", "127.0.0.1:0")


def test_no_such_attribute(refused) -> None:
    line = refused("good:application", "--bind", "127.0.0.1:0")
    assert "good" in line and "application" in line


def test_an_attribute_that_is_no_application(refused) -> None:
    assert "number" in refused("good:number", "--bind", "127.0.0.1:0")


@pytest.mark.parametrize("kind", ["threads", "gevent"])
def test_threads_and_greenlets_are_for_wsgi(refused, kind: str) -> None:
    if kind == "gevent":
        pytest.importorskip("gevent")
    line = refused("good:app", "--bind", "127.0.0.1:0", "--concurrency", kind)
    assert f"--concurrency {kind}" in line and "asgi" in line


def test_gevent_is_not_installed(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # To the child's import system it is not there, as an entry None in sys.modules says.
    tmp_path.joinpath("sitecustomize.py").write_text("import sys\nsys.modules['gevent'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    line = refused("good:app", "--bind", "127.0.0.1:0", "--concurrency", "gevent")
    assert "pip install gevent" in line


@pytest.mark.parametrize("word", [":app", ""])
def test_no_module_is_named(refused, word: str) -> None:
    refused(word, "--bind", "127.0.0.1:0")


def test_a_busy_port(refused) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert address in refused("good:app", "--bind", address)


def test_a_unix_socket_in_a_folder_that_is_not_there(refused, tmp_path: Path) -> None:
    assert "nowhere" in refused("good:app", "--bind", f"unix:{tmp_path}/nowhere/socket")


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.0.0.1:port", "127.0.0.1:99999", "unix:", ":"])
def test_a_bind_that_is_no_address(refused, bind: str) -> None:
    refused("good:app", "--bind", bind)


def test_the_page_of_the_server_has_every_option_and_its_default() -> None:
    from headrace.server.options import OPTIONS

    page = Path(__file__).parents[2].joinpath("docs/server.md").read_text().splitlines()
    for word in ["--config", "--check"] + ["--" + option.name for option in OPTIONS[1:]]:
        assert any(line.startswith(f"| `{word}") for line in page), f"docs/server.md has no row for {word}"
    for option in OPTIONS:
        if isinstance(option.default, int | float) and not isinstance(option.default, bool):
            row = next(line for line in page if line.startswith(f"| `--{option.name}"))
            assert f"`{option.default:.0f}`" in row, f"another default in {row!r}"
