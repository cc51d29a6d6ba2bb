"""Pipes, terminals and sockets by ``connect_read_pipe`` and ``connect_write_pipe``, on asyncio's loop and on ours."""

from __future__ import annotations

import asyncio
import os
import pty
import socket
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Run = Callable[[Callable[[], Awaitable[Any]]], Any]


class Recorder(asyncio.Protocol):
    """Keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.got = b""
        self.lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)


def ends(kind: str) -> tuple[Any, Any]:
    """A reading and a writing end, as file objects."""
    if kind == "pipe":
        read, write = os.pipe()
    elif kind == "terminal":
        read, write = pty.openpty()
    else:
        first, second = socket.socketpair()
        return first, second
    return os.fdopen(read, "rb", 0), os.fdopen(write, "wb", 0)


async def reader(pipe: Any) -> tuple[Any, Recorder]:
    return await asyncio.get_running_loop().connect_read_pipe(Recorder, pipe)


async def writer(pipe: Any) -> tuple[Any, Recorder]:
    return await asyncio.get_running_loop().connect_write_pipe(Recorder, pipe)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_much_from_one_end_to_the_other(run: Run, kind: str) -> None:
    async def main() -> None:
        read, write = ends(kind)
        source, sent = await writer(write)
        target, received = await reader(read)
        assert source.get_extra_info("pipe") is write and target.get_extra_info("pipe") is read
        assert not os.get_blocking(read.fileno()) and not os.get_blocking(write.fileno())
        source.set_write_buffer_limits(high=100_000)
        data = os.urandom(2_000_000)
        for start in range(0, len(data), 50_000):
            part = data[start : start + 50_000]
            source.write((bytes, bytearray, memoryview)[start // 50_000 % 3](part))
        assert sent.calls == ["made", "pause"] and source.get_write_buffer_size() > 100_000
        source.write_eof()
        assert await received.lost is None and received.got == data
        assert received.calls == ["made", "eof", "lost"]
        assert await sent.lost is None and sent.calls == ["made", "pause", "resume", "lost"]
        assert source.get_write_buffer_size() == 0 and source.is_closing()

    run(main)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("pending", [False, True])
def test_a_reader_that_goes_away(run: Run, kind: str, pending: bool) -> None:
    async def main() -> None:
        read, write = ends(kind)
        source, sent = await writer(write)
        if pending:
            source.write(bytes(1_000_000))
        read.close()
        if pending:
            assert isinstance(await sent.lost, BrokenPipeError | ConnectionResetError)
        else:
            assert await sent.lost is None
        for _ in range(10):
            source.write(b"to nobody")
        assert sent.calls[0] == "made" and sent.calls[-1] == "lost"

    run(main)


def test_a_terminal_hangs_up(run: Run) -> None:
    async def main() -> None:
        read, write = ends("terminal")
        target, received = await reader(read)
        write.write(b"line\r\n")
        await until(lambda: received.got)
        assert received.got.startswith(b"line")
        write.close()
        assert await received.lost is None or isinstance(received.lost.result(), OSError)
        assert target.is_closing()

    run(main)


def test_pausing(run: Run) -> None:
    async def main() -> None:
        read, write = ends("pipe")
        target, received = await reader(read)
        assert target.is_reading()
        target.pause_reading()
        target.pause_reading()
        write.write(b"data")
        await asyncio.sleep(0.02)
        assert received.got == b"" and not target.is_reading()
        target.resume_reading()
        target.resume_reading()
        await until(lambda: received.got)
        write.close()
        assert await received.lost is None

    run(main)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_closing_a_writer(run: Run, how: str) -> None:
    """``close`` sends what waits, ``abort`` drops it."""

    async def main() -> None:
        read, write = ends("pipe")
        source, sent = await writer(write)
        source.write(bytes(300_000))
        getattr(source, how)()
        assert source.is_closing()
        source.write(b"later")
        if how == "abort":
            assert await sent.lost is None
            assert write.closed and len(read.read(1_000_000)) < 300_000
            read.close()
        else:
            target, received = await reader(read)
            assert await received.lost is None and await sent.lost is None
            assert len(received.got) == 300_000
            assert target.is_closing()

    run(main)


def test_closing_a_reader(run: Run) -> None:
    async def main() -> None:
        read, write = ends("pipe")
        target, received = await reader(read)
        write.write(b"unread")
        target.close()
        target.close()
        assert target.is_closing() and await received.lost is None
        assert received.got == b"" and read.closed
        with pytest.raises(BrokenPipeError):
            write.write(b"x")
        write.close()

    run(main)


def test_wrong_things(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with tempfile.TemporaryFile() as file:
            with pytest.raises(ValueError, match="for pipes/sockets only"):
                await loop.connect_read_pipe(Recorder, file)
        with tempfile.TemporaryFile() as file:
            with pytest.raises(ValueError, match="for pipes, sockets and character devices"):
                await loop.connect_write_pipe(Recorder, file)
        read, write = ends("pipe")
        source, sent = await writer(write)
        with pytest.raises((TypeError, AssertionError)):
            source.write("text")
        with pytest.raises(ValueError):
            source.set_write_buffer_limits(high=1, low=2)
        source.abort()
        await sent.lost
        read.close()

    run(main)


def test_streams_over_pipes(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        read, write = ends("pipe")
        stream = asyncio.StreamReader()
        target, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), read)
        source, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, write)
        sink = asyncio.StreamWriter(source, protocol, None, loop)
        sink.write(b"one\ntwo\n")
        await sink.drain()
        assert [await stream.readline() for _ in range(2)] == [b"one\n", b"two\n"]
        sink.close()
        assert await stream.read() == b""
        target.close()
        await asyncio.sleep(0.01)

    run(main)
