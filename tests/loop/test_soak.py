"""Nothing grows: not after a hundred thousand connections, not after a million timers."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from headrace import _native
from headrace.loop import run

#: Growth that is noise: what the allocators keep in hand.
MEGABYTES = 6


def measure() -> tuple[float, int, int]:
    """Resident memory in MB, open descriptors, live handles."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return memory, len(os.listdir("/proc/self/fd")), _native._handles_alive()


async def steady(repeat: Callable[[int], Awaitable[None]], warm_up: int, count: int) -> None:
    await repeat(warm_up)
    await asyncio.sleep(0.1)
    before = measure()
    await repeat(count)
    await asyncio.sleep(0.1)
    after = measure()
    assert after[0] - before[0] < MEGABYTES, f"memory grew from {before[0]:.1f} to {after[0]:.1f} MB"
    assert after[1] <= before[1], "descriptors were left open"
    assert after[2] <= before[2] + 10, "handles were left alive"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        writer.write(await reader.readline())
        await writer.drain()
        await reader.read(1)
    except ConnectionError:
        pass
    writer.close()


async def connect(address: Any) -> None:
    if isinstance(address, str):
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        reader, writer = await asyncio.open_connection(*address)
        # Reset at the end: a closed port would wait for a minute.
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "count",
    [pytest.param(1_000, id="short"), pytest.param(50_000, id="long", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("family", ["tcp", "unix"])
@pytest.mark.timeout(600)
def test_connections(family: str, count: int, tmp_path: Path) -> None:
    async def main() -> None:
        if family == "unix":
            address: Any = str(tmp_path / "s")
            server: Any = await asyncio.start_unix_server(serve, address)
        else:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            address = server.sockets[0].getsockname()

        async def repeat(total: int) -> None:
            for _ in range(total // 50):
                await asyncio.gather(*(connect(address) for _ in range(50)))

        await steady(repeat, 1_000, count)
        server.close()
        await server.wait_closed()

    run(main())


@pytest.mark.parametrize(
    "count",
    [pytest.param(50_000, id="short"), pytest.param(1_000_000, id="long", marks=pytest.mark.slow)],
)
@pytest.mark.timeout(600)
def test_timers(count: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        fired = 0

        def fire() -> None:
            nonlocal fired
            fired += 1

        async def repeat(total: int) -> None:
            nonlocal fired
            fired = 0
            for _ in range(total // 1_000):
                timers = [loop.call_later(number % 7 * 1e-4, fire) for number in range(1_000)]
                for number, timer in enumerate(timers):
                    if number % 10:
                        timer.cancel()
                timers.clear()
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            assert fired == total // 10

        await steady(repeat, 20_000, count)

    run(main())


@pytest.mark.parametrize(
    "count", [pytest.param(2_000, id="short"), pytest.param(200_000, id="long", marks=pytest.mark.slow)]
)
@pytest.mark.timeout(600)
def test_operations_that_are_cancelled(count: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        other, peer = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=other)

        async def repeat(total: int) -> None:
            for _ in range(total // 2):
                for start in (lambda: loop.sock_recv(ours, 10), lambda: reader.readline()):
                    task = asyncio.ensure_future(start())
                    await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])

        await steady(repeat, 2_000, count)
        writer.close()
        await writer.wait_closed()
        for sock in (ours, theirs, peer):
            sock.close()

    run(main())
