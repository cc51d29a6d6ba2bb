"""The demo application by itself: each route, driven as a server would drive it."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


@pytest.fixture(scope="module")
def demo() -> Iterator[ModuleType]:
    """The module, imported as `headrace serve` does from its own folder."""
    before = set(sys.modules)
    sys.path.insert(0, str(DEMO))
    try:
        yield importlib.import_module("demo")
    finally:
        sys.path.remove(str(DEMO))
        for name in {"demo", "readings"} - before:
            sys.modules.pop(name, None)


class Answer:
    """What an application sent for one request."""

    def __init__(self, messages: list[dict]) -> None:
        head, *bodies = messages
        assert head["type"] == "http.response.start"
        assert all(m["type"] == "http.response.body" for m in bodies)
        assert [m.get("more_body", False) for m in bodies] == [True] * (len(bodies) - 1) + [False]
        self.status: int = head["status"]
        self.headers = {name.decode(): value.decode() for name, value in head["headers"]}
        self.blocks = [m.get("body", b"") for m in bodies]
        self.body = b"".join(self.blocks)
        if "content-length" in self.headers:
            assert int(self.headers["content-length"]) == len(self.body)


async def request(
    app: Callable, method: str, target: str, *blocks: bytes, kind: str = "text/plain"
) -> Answer:
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"content-type", kind.encode())],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
    body = list(blocks) or [b""]
    waiting = [
        {"type": "http.request", "body": b, "more_body": i + 1 < len(body)} for i, b in enumerate(body)
    ]
    sent: list[dict] = []

    async def receive() -> dict:
        return waiting.pop(0)

    async def send(message: dict) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return Answer(sent)


def alive(app: Callable, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` between the application's startup and its shutdown."""

    async def main() -> None:
        events: asyncio.Queue[dict] = asyncio.Queue()
        answers: asyncio.Queue[dict] = asyncio.Queue()
        life = asyncio.create_task(
            app({"type": "lifespan", "asgi": {"version": "3.0"}}, events.get, answers.put)
        )
        await events.put({"type": "lifespan.startup"})
        assert await answers.get() == {"type": "lifespan.startup.complete"}
        try:
            await work()
        finally:
            await events.put({"type": "lifespan.shutdown"})
            await life
        assert await answers.get() == {"type": "lifespan.shutdown.complete"}

    asyncio.run(main())


def test_the_start_page_lists_every_route(demo: ModuleType) -> None:
    answer = asyncio.run(request(demo.app, "GET", "/"))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = answer.body.decode()
    for route in demo.ROUTES:
        assert f'data-method="{route.method}" data-path="{route.path}"' in page
    for asset in demo.ASSETS:
        if asset.path in page:
            assert asyncio.run(request(demo.app, "GET", asset.path)).status == 200
    assert "$" not in page, "a placeholder was left"


def test_text(demo: ModuleType) -> None:
    answer = asyncio.run(request(demo.app, "GET", "/text"))
    assert (answer.status, answer.body) == (200, b"The headrace carries the stream to the mill wheel.\n")


def test_json_is_the_request(demo: ModuleType) -> None:
    answer = asyncio.run(request(demo.app, "GET", "/json?a=1&b=%20"))
    said = json.loads(answer.body)
    assert (said["method"], said["path"], said["query"]) == ("GET", "/json", "a=1&b=%20")
    assert ["content-type", "text/plain"] in said["headers"]


@pytest.mark.parametrize(
    "blocks", [(), (b"",), (b"one",), (b"one ", b"", b"two"), (bytes(range(256)) * 4096,)]
)
def test_echo_gives_back_every_byte(demo: ModuleType, blocks: tuple[bytes, ...]) -> None:
    answer = asyncio.run(request(demo.app, "POST", "/echo", *blocks))
    assert (answer.status, answer.body) == (200, b"".join(blocks))
    assert answer.headers["content-type"] == "text/plain"


def test_echo_never_gives_back_what_a_browser_would_run(demo: ModuleType) -> None:
    answer = asyncio.run(request(demo.app, "POST", "/echo", b"<script>", kind="text/html"))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_echo_refuses_what_it_would_not_hold(demo: ModuleType) -> None:
    answer = asyncio.run(request(demo.app, "POST", "/echo", bytes(1 << 20), b"1"))
    assert answer.status == 413


def test_the_download_comes_in_blocks_and_is_whole(demo: ModuleType) -> None:
    answer = asyncio.run(request(demo.app, "GET", "/download?megabytes=1"))
    assert "content-length" not in answer.headers
    assert max(map(len, answer.blocks)) < 100_000 < 1 << 20 <= len(answer.body)
    lines = answer.body.decode().splitlines()
    assert lines[0] == "minute,station,level_cm"
    for i, line in enumerate(lines[1:]):
        minute, station, level = line.split(",")
        assert int(minute) == i // 4
        assert station in ("upper weir", "headrace", "wheel pit", "tailrace")
        assert -100 < float(level) < 200


def test_the_download_lets_others_have_their_turn(demo: ModuleType) -> None:
    async def both() -> list[str]:
        order: list[str] = []
        download = asyncio.create_task(request(demo.app, "GET", "/download?megabytes=4"))
        download.add_done_callback(lambda _: order.append("download"))
        text = asyncio.create_task(request(demo.app, "GET", "/text"))
        text.add_done_callback(lambda _: order.append("text"))
        await asyncio.gather(download, text)
        return order

    assert asyncio.run(both()) == ["text", "download"]


def test_rows_come_by_pages_to_the_end(demo: ModuleType) -> None:
    async def work() -> None:
        seen: list[int] = []
        target = "/rows?limit=100"
        while target:
            page = json.loads((await request(demo.app, "GET", target)).body)
            seen += [row["id"] for row in page["rows"]]
            target = page["next"]
        assert seen == list(range(1, 7 * 24 * 4 + 1))

    alive(demo.app, work)


def test_the_database_is_gone_after_shutdown(demo: ModuleType) -> None:
    folder: list[Path] = []

    async def work() -> None:
        folder.append(Path(demo.readings._folder.name))
        assert folder[0].joinpath("readings.sqlite").is_file()

    alive(demo.app, work)
    assert not folder[0].exists()


@pytest.mark.parametrize(
    "target",
    ["/rows?limit=0", "/rows?limit=101", "/rows?limit=x", "/rows?after=-1", "/rows?after=" + "9" * 99],
)
def test_a_bad_number_is_400(demo: ModuleType, target: str) -> None:
    answer = asyncio.run(request(demo.app, "GET", target))
    assert answer.status == 400
    assert "must be a whole number" in answer.body.decode()


def test_unknown_path_and_method(demo: ModuleType) -> None:
    assert asyncio.run(request(demo.app, "GET", "/nowhere")).status == 404
    answer = asyncio.run(request(demo.app, "DELETE", "/text"))
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_answered_like_get(demo: ModuleType) -> None:
    answer = asyncio.run(request(demo.app, "HEAD", "/download"))
    assert (answer.status, answer.body) == (200, b"")
