"""``await headrace.serve(...)`` inside a running loop: Headrace's own, and asyncio's."""

from __future__ import annotations

import asyncio
import socket
import time

import headrace
import pytest
from headrace.cli import UsageError
from headrace.server.config import Limits

LOOPS = {"headrace": headrace.new_event_loop, "asyncio": asyncio.SelectorEventLoop}


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest):
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            scope["state"]["events"] = message["type"]
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    await asyncio.sleep(float(scope["query_string"] or 0))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(20):
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


async def started(app, **options) -> tuple[asyncio.Task[None], str, int]:
    urls: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        headrace.serve(app, bind="127.0.0.1:0", started=lambda found: urls.set_result(found[0]), **options)
    )
    await asyncio.wait({task, urls}, return_when=asyncio.FIRST_COMPLETED)
    host, port = urls.result().removeprefix("http://").split(":")
    return task, host, int(port)


async def fetch(host: str, port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    await writer.wait_closed()
    return answer


def post(body: bytes, query: str = "") -> bytes:
    return (
        b"POST /%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        % (("?" + query if query else "").encode(), len(body))
    ) + body


def test_bodies_both_ways_on_many_connections(runner: asyncio.Runner) -> None:
    async def main() -> None:
        task, host, port = await started(application)
        answers = await asyncio.gather(
            *(
                fetch(host, port, post(b"x" * size, "0.01"))
                for size in (0, 1, 10_000, 500_000)
                for _ in range(5)
            )
        )
        assert all(answer.startswith(b"HTTP/1.1 200 OK") for answer in answers)
        assert max(len(answer) for answer in answers) > 20 * 500_000
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    runner.run(main())


def test_cancelling_answers_running_requests_first(runner: asyncio.Runner) -> None:
    async def main() -> None:
        task, host, port = await started(application)
        running = asyncio.create_task(fetch(host, port, post(b"late", "0.3")))
        await asyncio.sleep(0.1)
        task.cancel()
        assert (await running).endswith(b"end\r\n0\r\n\r\n")
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(OSError):
            socket.create_connection((host, port), 1)

    runner.run(main())


def test_deadlines_pass_on_an_idle_loop(runner: asyncio.Runner) -> None:
    async def main() -> None:
        task, host, port = await started(application, limits=Limits(head_timeout=0.3))
        start = time.monotonic()
        assert (await fetch(host, port, b"GET / HT")).startswith(b"HTTP/1.1 408 ")
        assert 0.2 < time.monotonic() - start < 5
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    runner.run(main())


def test_wsgi(runner: asyncio.Runner) -> None:
    def plain(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return (piece for piece in [environ["wsgi.input"].read(), b"!"])

    async def main() -> None:
        task, host, port = await started(plain)
        assert (await fetch(host, port, post(b"y" * 300_000))).endswith(b"1\r\n!\r\n0\r\n\r\n")
        assert asyncio.get_running_loop().is_running()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    runner.run(main())


def test_a_busy_address_is_told(runner: asyncio.Runner) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            with pytest.raises(UsageError, match="in use"):
                await headrace.serve(application, bind=f"127.0.0.1:{taken.getsockname()[1]}")

    runner.run(main())
