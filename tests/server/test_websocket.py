"""WebSockets of ASGI applications, with a client library of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

APPLICATION = """
import asyncio, json

events = []

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise RuntimeError("no lifespan here")
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(events).encode()})
        return
    assert (await receive())["type"] == "websocket.connect"
    path = scope["path"]
    if path == "/refuse":
        await send({"type": "websocket.close"})
        return
    if path == "/refuse-at-length":
        await send({"type": "websocket.http.response.start", "status": 418, "headers": [(b"x-why", b"tea")]})
        await send({"type": "websocket.http.response.body", "body": b"short and stout"})
        return
    if path == "/fail-early":
        raise ValueError("before the answer")
    subprotocol = scope["subprotocols"][-1] if scope["subprotocols"] else None
    await send({"type": "websocket.accept", "subprotocol": subprotocol, "headers": [(b"x-path", path.encode())]})
    if path == "/fail":
        raise ValueError("in the middle")
    if path == "/leave":
        return
    if path == "/close":
        await send({"type": "websocket.close", "code": 3001, "reason": "enough"})
        return
    if path == "/flood":
        try:
            while True:
                await send({"type": "websocket.send", "bytes": b"x" * 100_000})
        except OSError as error:
            events.append(type(error).__name__)
            raise
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            events.append([message["code"], message["reason"]])
            return
        await send({"type": "websocket.send", "bytes": message.get("bytes"), "text": message.get("text")})
"""


@pytest.fixture(scope="module")
def served(serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    folder = tmp_path_factory.mktemp("application")
    folder.joinpath("sockets.py").write_text(APPLICATION)
    with serve("sockets:app", folder) as server:
        yield server
        assert server.stop() == 0


def url(served, path: str = "/") -> str:
    return f"ws://127.0.0.1:{served.port}{path}"


async def wait_for_event(served, event: object) -> None:
    for _ in range(500):
        if event in json.loads(served.ask("GET", "/")[2]):
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"no event {event!r}")


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_echo(served, compression: str | None) -> None:
    async def main() -> None:
        async with connect(url(served), compression=compression, max_size=None) as client:
            for message in ("", "text", "ü" * 10_000, b"", b"bytes", bytes(range(256)) * 20_000):
                await client.send(message)
                assert await client.recv() == message
            for number in range(500):
                await client.send(str(number))
            assert [await client.recv() for _ in range(500)] == [str(number) for number in range(500)]

    asyncio.run(main())


def test_fragments_and_pings(served) -> None:
    async def main() -> None:
        async with connect(url(served)) as client:
            await client.send(["one ", "message ", "in parts"])
            assert await client.recv() == "one message in parts"
            await asyncio.wait_for(await client.ping(b"are you there"), 10)

    asyncio.run(main())


def test_subprotocol_and_headers_of_the_answer(served) -> None:
    async def main() -> None:
        async with connect(url(served, "/path"), subprotocols=["a", "b"]) as client:
            assert client.subprotocol == "b"
            assert client.response.headers["x-path"] == "/path"

    asyncio.run(main())


def test_the_client_closes(served) -> None:
    async def main() -> None:
        async with connect(url(served)) as client:
            await client.close(4321, "that was all")
            assert client.close_code == 4321
        await wait_for_event(served, [4321, "that was all"])

    asyncio.run(main())


def test_the_client_goes_away(served) -> None:
    async def main() -> None:
        client = await connect(url(served))
        client.transport.abort()
        await wait_for_event(served, [1006, ""])

    asyncio.run(main())


@pytest.mark.parametrize(("path", "code"), [("/close", 3001), ("/leave", 1000), ("/fail", 1011)])
def test_the_application_ends_it(served, path: str, code: int) -> None:
    async def main() -> None:
        async with connect(url(served, path)) as client:
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert client.close_code == code

    asyncio.run(main())
    if path == "/fail":
        served.wait_for_log("ValueError: in the middle")


@pytest.mark.parametrize(
    ("path", "status"), [("/refuse", 403), ("/refuse-at-length", 418), ("/fail-early", 500)]
)
def test_the_application_refuses(served, path: str, status: int) -> None:
    async def main() -> None:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url(served, path))
        assert refused.value.response.status_code == status
        if status == 418:
            assert refused.value.response.body == b"short and stout"
            assert refused.value.response.headers["x-why"] == "tea"

    asyncio.run(main())


def test_a_client_that_does_not_read_holds_the_application_back(served) -> None:
    async def main() -> None:
        client = await connect(url(served, "/flood"), max_queue=1)
        await asyncio.sleep(0.5)
        status = Path(f"/proc/{served.process.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        assert resident < 200_000
        client.transport.abort()
        await wait_for_event(served, "ClientDisconnected")

    asyncio.run(main())


def test_a_client_that_breaks_the_protocol(served) -> None:
    async def main() -> None:
        client = await connect(url(served))
        client.transport.write(b"\xff\xff\xff\xff")
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1002

    asyncio.run(main())


def test_open_connections_are_told_when_the_server_stops(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("sockets.py").write_text(APPLICATION)

    async def main(served) -> None:
        async with connect(url(served)) as client:
            await client.send("x")
            assert await client.recv() == "x"
            served.process.terminate()
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert client.close_code == 1012

    with serve("sockets:app", tmp_path) as served:
        asyncio.run(main(served))
        assert served.process.wait(15) == 0
        assert "Traceback" not in served.log


def test_an_upgrade_that_is_no_websocket_is_plain_http(served) -> None:
    status, _, _ = served.ask("GET", "/", headers={"Connection": "upgrade", "Upgrade": "h2c"})
    assert status == 200
