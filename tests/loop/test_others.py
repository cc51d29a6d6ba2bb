"""Clients and servers of others run on the loop, unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace.loop import Loop, new_event_loop, run

SIZE = 300_000


@pytest.fixture
def package(missing: Callable[[str], Any]) -> Callable[[str], Any]:
    """A function that imports a package, or ends the test."""

    def find(name: str) -> Any:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            missing(f"the package {name}")

    return find


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def process(command: list[str], port: int, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is stopped at the end; it listens on ``port`` when the block begins."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, **options)
    try:
        deadline = time.monotonic() + 30
        while True:
            assert server.poll() is None, f"{command[0]} has ended with {server.returncode}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < deadline, f"{command[0]} does not listen"
            time.sleep(0.05)
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture(autouse=True)
def nothing_is_left() -> None:
    """In the place of the folder's: Tornado and anyio keep the loops that they ran on."""


def test_aiohttp_client_and_server(package: Any) -> None:
    aiohttp = package("aiohttp")
    web = package("aiohttp.web")

    async def echo(request: Any) -> Any:
        return web.Response(body=await request.read())

    async def stream(request: Any) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(100):
            await response.write(b"%03d" % number * 1000)
        return response

    async def talk(request: Any) -> Any:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            await ws.send_str(message.data.upper())
        return ws

    async def main() -> None:
        app = web.Application()
        app.add_routes([web.post("/echo", echo), web.get("/stream", stream), web.get("/talk", talk)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:

            async def post(number: int) -> None:
                body = os.urandom(SIZE)
                async with session.post("/echo", data=body) as response:
                    assert response.status == 200 and await response.read() == body, number

            await asyncio.gather(*(post(number) for number in range(20)))
            async with session.get("/stream") as response:
                assert len(await response.read()) == 300_000
            async with session.ws_connect("/talk") as ws:
                for word in ("one", "two"):
                    await ws.send_str(word)
                    assert await ws.receive_str() == word.upper()
        await runner.cleanup()

    run(main())


def test_websockets(package: Any) -> None:
    client, server = package("websockets.asyncio.client"), package("websockets.asyncio.server")

    async def echo(connection: Any) -> None:
        async for message in connection:
            await connection.send(message)

    async def main() -> None:
        async with server.serve(echo, "127.0.0.1", 0) as serving:
            port = serving.sockets[0].getsockname()[1]
            async with client.connect(f"ws://127.0.0.1:{port}") as connection:
                for message in ("text", b"bytes", "x" * SIZE):
                    await connection.send(message)
                    assert await connection.recv() == message

    run(main())


def test_httpx_and_anyio(package: Any) -> None:
    httpx, anyio = package("httpx"), package("anyio")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
                await writer.drain()
        writer.close()

    async def main() -> None:
        assert isinstance(asyncio.get_running_loop(), Loop)
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with httpx.AsyncClient(trust_env=False) as http:
            answers = await asyncio.gather(*(http.get(f"http://127.0.0.1:{port}/") for _ in range(20)))
        assert [answer.text for answer in answers] == ["hello"] * 20

        got: list[bytes] = []
        async with anyio.create_task_group() as group:
            stream = await anyio.connect_tcp("127.0.0.1", port)

            async def ask() -> None:
                await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                got.append(await stream.receive())

            group.start_soon(ask)
        assert got[0].endswith(b"hello")
        with anyio.move_on_after(0.01) as scope:
            await stream.receive()
        assert scope.cancelled_caught
        await stream.aclose()
        assert await anyio.to_thread.run_sync(threading.get_ident) != threading.get_ident()
        result = await anyio.run_process([sys.executable, "-c", "print('out')"])
        assert result.stdout == b"out\n"
        listener.close()
        await listener.wait_closed()

    anyio.run(main, backend_options={"loop_factory": new_event_loop})


def test_tornado(package: Any) -> None:
    web, client = package("tornado.web"), package("tornado.httpclient")

    class Hello(web.RequestHandler):  # type: ignore[misc, name-defined]
        async def post(self) -> None:
            await asyncio.sleep(0)
            self.write(self.request.body)

    async def main() -> None:
        server = web.Application([("/", Hello)]).listen(0, "127.0.0.1")
        port = next(iter(server._sockets.values())).getsockname()[1]
        http = client.AsyncHTTPClient()
        body = os.urandom(SIZE)
        answer = await http.fetch(
            f"http://127.0.0.1:{port}/",
            method="POST",
            body=body,
            headers={"Content-Type": "application/octet-stream"},
        )
        assert answer.body == body
        server.stop()
        await server.close_all_connections()
        http.close()

    run(main())


APPLICATION = """
import asyncio
async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    loop = type(asyncio.get_running_loop()).__module__.encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(loop))]})
    await send({"type": "http.response.body", "body": loop})
"""


def test_uvicorn_with_our_loop(package: Any, tmp_path: Path) -> None:
    package("uvicorn")
    http = package("http.client")
    (tmp_path / "hosted.py").write_text(APPLICATION)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "hosted:app", "--loop", "headrace.loop:new_event_loop"]
    with process([*command, "--port", str(port), "--lifespan", "off"], port, cwd=tmp_path):
        connection = http.HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(10):
            connection.request("GET", "/")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"headrace.loop")
        connection.close()


def test_redis(package: Any, missing: Callable[[str], Any], tmp_path: Path) -> None:
    redis = package("redis.asyncio")
    program = shutil.which("redis-server") or missing("redis-server")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]

    async def main() -> None:
        client = redis.Redis(port=port)
        assert await client.set("key", "x" * SIZE)
        assert await client.get("key") == b"x" * SIZE
        assert await client.get("none") is None
        async with client.pipeline() as pipeline:
            for _ in range(100):
                pipeline.incr("counter")
            assert await pipeline.execute() == list(range(1, 101))
        listening = client.pubsub()
        await listening.subscribe("channel")
        await client.publish("channel", "message")
        async with asyncio.timeout(10):
            async for message in listening.listen():
                if message["type"] == "message":
                    assert message["data"] == b"message"
                    break
        await listening.aclose()
        await client.aclose()

    with process([*command, "--dir", str(tmp_path)], port):
        run(main())


def test_asyncpg(package: Any, missing: Callable[[str], Any], tmp_path: Path) -> None:
    asyncpg = package("asyncpg")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders or not shutil.which("setpriv"):
        missing("PostgreSQL's server, or setpriv")
    # The server refuses to run as root, and its user must get through to the folder.
    user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.getuid() == 0 else []
    folder = Path(tempfile.gettempdir()) / f"headrace-test-{os.getpid()}"
    folder.mkdir()
    try:
        if user:
            shutil.chown(folder, "postgres", "postgres")
        binaries, port = folders[-1], free_port()
        subprocess.run(
            [
                *user,
                str(binaries / "initdb"),
                "-D",
                str(folder / "data"),
                *["-U", "app", "-A", "trust", "--no-sync"],
            ],
            check=True,
            capture_output=True,
            cwd=folder,
        )
        command = [*user, str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
        with process([*command, "-k", str(folder), "-h", "127.0.0.1", "-c", "fsync=off"], port, cwd=folder):
            run(query(asyncpg, port))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def query(asyncpg: Any, port: int) -> None:
    async with asyncio.timeout(30):
        while True:  # it listens before it serves
            try:
                connection = await asyncpg.connect(
                    host="127.0.0.1", port=port, user="app", database="postgres"
                )
            except asyncpg.CannotConnectNowError:
                await asyncio.sleep(0.1)
            else:
                break
    await connection.close()
    async with asyncpg.create_pool(
        host="127.0.0.1", port=port, user="app", database="postgres", min_size=2, max_size=5
    ) as pool:

        async def ask(number: int) -> int:
            return int(await pool.fetchval("SELECT $1::int * 2", number))

        assert await asyncio.gather(*(ask(n) for n in range(100))) == [n * 2 for n in range(100)]
        rows = await pool.fetch("SELECT generate_series(1, 10000) AS n, repeat('x', 50) AS text")
        assert len(rows) == 10_000 and rows[-1]["n"] == 10_000
        with pytest.raises(asyncio.TimeoutError):
            await pool.execute("SELECT pg_sleep(5)", timeout=0.1)
        assert await pool.fetchval("SELECT 1") == 1
