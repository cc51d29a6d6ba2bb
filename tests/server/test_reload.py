"""``--reload``: new workers when a file changes; what is broken waits for its mending; no connection is lost."""

from __future__ import annotations

import http.client
import os
import threading
import time
from pathlib import Path

from headrace.supervisor.reload import stamps

APPLICATION = """
import asyncio
import part
async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("no lifespan here")
    if scope["path"] == "/slow":
        await asyncio.sleep(1.5)
    body = part.TEXT.encode() if scope["path"] != "/page" else open("page.html", "rb").read()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
"""


def ask(port: int, path: str = "/") -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def wait_for(port: int, text: str) -> None:
    deadline = time.monotonic() + 20
    while (found := ask(port)) != text:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_change_is_served_and_nothing_is_lost(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("it.py").write_text(APPLICATION)
    part = tmp_path / "part.py"
    part.write_text("TEXT = 'one'\n")
    with serve("it:app", tmp_path, "--reload", "--grace", "5") as served:
        wait_for(served.port, "one")
        slow: list[str] = []
        asking = threading.Thread(target=lambda: slow.append(ask(served.port, "/slow")))
        asking.start()
        time.sleep(0.3)
        part.write_text("TEXT = 'two'\n")
        # Each of these connects in the middle of it, and is answered.
        wait_for(served.port, "two")
        asking.join()
        assert slow == ["one"]
        assert "part.py changed; reloading" in served.log

        part.write_text("TEXT = 'three\n")
        served.wait_for_log("waiting for a change")
        assert "SyntaxError" in served.log
        waiting: list[str] = []
        asking = threading.Thread(target=lambda: waiting.append(ask(served.port)))
        asking.start()
        time.sleep(0.7)
        part.write_text("TEXT = 'three'\n")
        asking.join()
        assert waiting == ["three"]
        assert served.log.count("waiting for a change") == 1
        assert served.stop() == 0


def test_a_program_that_is_broken_at_first_is_waited_for(serve, tmp_path: Path) -> None:
    module = tmp_path / "it.py"
    module.write_text("def broken(:\n")
    with serve("it:app", tmp_path, "--reload") as served:
        served.wait_for_log("waiting for a change")
        tmp_path.joinpath("part.py").write_text("TEXT = 'mended'\n")
        module.write_text(APPLICATION)
        wait_for(served.port, "mended")
        assert served.stop() == 0


def test_other_files_and_folders(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("it.py").write_text(APPLICATION)
    tmp_path.joinpath("part.py").write_text("TEXT = 'one'\n")
    watched = tmp_path / "watched"
    watched.mkdir()
    options = ["--reload", "--reload-dir", str(watched), "--reload-include", "*.html"]
    with serve("it:app", tmp_path, *options) as served:
        wait_for(served.port, "one")
        tmp_path.joinpath("part.py").write_text("TEXT = 'two'\n")
        time.sleep(1.5)
        assert ask(served.port) == "one"
        watched.joinpath("page.html").write_text("page")
        wait_for(served.port, "two")
        assert served.stop() == 0


def test_environments_and_hidden_folders_are_not_watched(tmp_path: Path) -> None:
    for folder in ("app", "app/deep", ".git", "venv/lib", "__pycache__", "node_modules"):
        tmp_path.joinpath(folder).mkdir(parents=True)
        tmp_path.joinpath(folder, "a.py").write_text("")
    tmp_path.joinpath("venv", "pyvenv.cfg").write_text("")
    tmp_path.joinpath("app", "b.txt").write_text("")
    found = {os.path.relpath(path, tmp_path) for path in stamps([str(tmp_path)], ["*.py"])}
    assert found == {"app/a.py", "app/deep/a.py"}
