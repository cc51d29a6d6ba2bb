"""Native streams behave as asyncio's: the same script through both, and what remains compared."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator
from typing import Any

import headrace
import pytest
from headrace import streams

LIMIT = 64

#: What a peer does and what the reader is asked, in turn: a list of (sent, [(method, argument), …]).
SCRIPTS: dict[str, list[tuple[Any, list[tuple[str, Any]]]]] = {
    "lines": [(b"one\ntwo\nthr", [("readline", None)] * 2), (b"ee\n", [("readline", None)])],
    "line by line": [(b"%d\n" % n, [("readline", None)]) for n in range(5)],
    "exactly": [(b"abcdef", [("readexactly", 2), ("readexactly", 4)]), (b"gh", [("readexactly", 2)])],
    "exactly over the limit": [(b"x" * 200, [("readexactly", 200)])],
    "read some": [(b"abcdef", [("read", 2), ("read", 100)]), (b"g", [("read", 1)])],
    "read nothing": [(b"abc", [("read", 0), ("readexactly", 0), ("read", 3)])],
    "read to the end": [(b"abc", []), ("eof", [("read", -1), ("read", 1), ("readline", None)])],
    "end within a line": [(b"part", []), ("eof", [("readline", None), ("readline", None)])],
    "end within exactly": [(b"part", []), ("eof", [("readexactly", 10), ("read", 10)])],
    "end within until": [(b"part", []), ("eof", [("readuntil", b"!"), ("read", 10)])],
    "until": [(b"a--b-", [("readuntil", b"--")]), (b"-c", [("readuntil", b"--"), ("read", 1)])],
    "until something odd": [(b"abc", [("readuntil", b""), ("readuntil", "x"), ("read", 3)])],
    "a line at the limit": [(b"x" * LIMIT + b"\n", [("readline", None)])],
    "a line over the limit": [(b"x" * (LIMIT + 1) + b"\nnext\n", [("readline", None), ("readline", None)])],
    "no line within the limit": [(b"x" * (LIMIT + 10), [("readline", None)]), (b"y\n", [("readline", None)])],
    "until over the limit": [(b"x" * 100 + b"!rest", [("readuntil", b"!"), ("read", 200)])],
    "negative": [(b"abc", [("readexactly", -1), ("read", 3)])],
    "wrong type": [(b"abc", [("readexactly", "2"), ("read", "2"), ("read", 3)])],
}


def random_script(seed: int) -> list[tuple[Any, list[tuple[str, Any]]]]:
    choice = random.Random(seed)
    script: list[tuple[Any, list[tuple[str, Any]]]] = []
    for _ in range(choice.randrange(3, 12)):
        sent = bytes(choice.choices(b"ab\n-", k=choice.randrange(1, 150)))
        asked: list[tuple[str, Any]] = [
            choice.choice(
                [
                    ("readline", None),
                    ("read", choice.randrange(1, 80)),
                    ("readexactly", choice.randrange(1, 40)),
                    ("readuntil", choice.choice([b"-", b"ab", b"\n-"])),
                ]
            )
            for _ in range(choice.randrange(0, 4))
        ]
        script.append((sent, asked))
    return [*script, ("eof", [("read", 10), ("readline", None), ("read", -1)])]


async def play(
    script: list[tuple[Any, list[tuple[str, Any]]]], ask_first: bool, limit: int, native: bool
) -> list[Any]:
    """Run a script over a real connection. Returns all results and errors, and the state after each step."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=limit)
    assert (type(reader) is streams.StreamReader) is native
    events: list[Any] = []

    async def call(method: str, argument: Any) -> Any:
        return await getattr(reader, method)(*([] if argument is None else [argument]))

    async def outcome(task: asyncio.Task[Any]) -> None:
        # What was sent lies in the kernel: whatever the time, it is read before this timer fires.
        await asyncio.sleep(0.003)
        await asyncio.sleep(0)
        if not task.done():
            task.cancel()
        try:
            result = await task
        except asyncio.CancelledError:
            events.append("waits")
        except Exception as error:
            events.append((type(error), str(error), getattr(error, "partial", None)))
        else:
            events.append((type(result), result))

    for sent, asked in script:
        asking = None
        if ask_first and asked:
            # The reader waits before there is anything to read.
            asking = asyncio.ensure_future(call(*asked[0]))
            await asyncio.sleep(0)
        if sent == "eof":
            theirs.shutdown(socket.SHUT_WR)
        else:
            theirs.sendall(sent)
        if asking is not None:
            await outcome(asking)
        else:
            await asyncio.sleep(0.003)
        for method, argument in asked[1 if ask_first else 0 :]:
            await outcome(asyncio.ensure_future(call(method, argument)))
        state: Any = reader
        events.append((bytes(state._buffer), reader.at_eof(), state._paused, state._waiter))
    writer.close()
    await writer.wait_closed()
    theirs.close()
    return events


def on(factory: Any, *args: Any, native: bool) -> list[Any]:
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(play(*args, native))


@pytest.mark.parametrize("ask_first", [False, True], ids=["data first", "reader first"])
@pytest.mark.parametrize("name", [*SCRIPTS, *(f"random {n}" for n in range(12))])
def test_both_readers_give_the_same(name: str, ask_first: bool) -> None:
    # The random ones stay within the limit: where the transport pauses, what is read when is a matter of time.
    script, limit = (
        (SCRIPTS[name], LIMIT) if name in SCRIPTS else (random_script(int(name.split()[1])), 1 << 16)
    )
    expected = on(asyncio.SelectorEventLoop, script, ask_first, limit, native=False)
    assert on(headrace.new_event_loop, script, ask_first, limit, native=True) == expected
    plain = on(lambda: headrace.Loop(native_streams=False), script, ask_first, limit, native=False)
    assert plain == expected


async def connected(callback: Any) -> AsyncIterator[Any]:
    server = await asyncio.start_server(callback, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    yield reader, writer
    writer.close()
    server.close()
    await server.wait_closed()


def test_a_read_that_is_cancelled_leaves_what_came_for_it(run: Any) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        for ask in (lambda: reader.read(100), lambda: reader.readexactly(3), lambda: reader.readline()):
            task = asyncio.ensure_future(ask())
            await asyncio.sleep(0)
            theirs.sendall(b"ab\ncd\n")
            # Cancelled in the very turn in which the data arrives, before the task runs.
            waiter: Any = reader
            while waiter._waiter is not None:
                asyncio.get_running_loop().call_soon(lambda: None)
                await asyncio.sleep(0)
            task.cancel()
            try:
                got = await task
            except asyncio.CancelledError:
                got = b""
            rest = await reader.readexactly(6 - len(got))
            assert got + rest == b"ab\ncd\n"
        writer.close()
        await writer.wait_closed()
        theirs.close()

    run(main)


def test_reads_are_coroutines_in_asyncios_eyes(run: Any) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        coroutine = reader.readline()
        assert asyncio.iscoroutine(coroutine)
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(0)
        assert "readline" in repr(task)
        with pytest.raises(RuntimeError, match="another coroutine is already waiting"):
            await reader.read(1)
        theirs.sendall(b"line\nmore")
        assert await task == b"line\n"
        assert await asyncio.gather(reader.readexactly(2), reader.readexactly(2)) == [b"mo", b"re"]
        await asyncio.wait_for(writer.drain(), 5)
        await asyncio.create_task(writer.drain())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.01)
        unawaited = reader.read(1)
        with pytest.warns(RuntimeWarning, match=r"coroutine '.*read' was never awaited"):
            del unawaited
        writer.close()
        await writer.wait_closed()
        theirs.close()

    run(main)


def test_the_attributes_of_a_reader_say_and_do_what_asyncios_do(run: Any) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        opened, writer = await asyncio.open_connection(sock=ours, limit=100)
        reader: Any = opened
        assert (reader._limit, reader._eof, reader._paused) == (100, False, False)
        assert (reader._waiter, reader._exception, reader._buffer) == (None, None, bytearray())
        # Some code raises the limit of a reader that is there already.
        reader._limit = 1000
        theirs.sendall(b"x" * 500 + b"\n" + b"y" * 500 + b"\nrest")
        assert await reader.readline() == b"x" * 500 + b"\n"
        assert reader._buffer == b"y" * 500 + b"\nrest" and not reader.at_eof()
        assert await reader.readuntil(b"\n") == b"y" * 500 + b"\n"
        # What is done to the buffer is done to the reader.
        reader._buffer.extend(b" of it")
        assert await reader.read(4) == b"rest"
        del reader._buffer[:1]
        reader._buffer = reader._buffer[:2]
        assert await reader.readexactly(2) == b"of"
        # What has come for a read that has not run yet is in the buffer for who looks there.
        task = asyncio.ensure_future(reader.read(100))
        await asyncio.sleep(0)
        waiter = reader._waiter
        assert asyncio.isfuture(waiter) and waiter.get_loop() is asyncio.get_running_loop()
        theirs.sendall(b"late")
        while reader._waiter is not None:
            await asyncio.sleep(0)
        assert task.done() or reader._buffer == b"late"
        assert await task == b"late"
        reader.feed_data(b"fed")
        reader.feed_data(bytearray(b" by hand"))
        assert await reader.read(100) == b"fed by hand"
        reader.feed_eof()
        assert reader._eof and reader.at_eof() and await reader.read(1) == b""
        failure = OSError("broken")
        reader.set_exception(failure)
        assert reader._exception is reader.exception() is failure
        with pytest.raises(OSError, match="broken"):
            await reader.read(1)
        writer.close()
        theirs.close()

    run(main)


def test_many_lines_at_once_leave_no_memory_behind(run: Any) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        opened, writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        reader: Any = opened
        lines = [b"%07d" % n + b"x" * (n % 300) + b"\n" for n in range(3000)]
        sending = asyncio.get_running_loop().run_in_executor(None, theirs.sendall, b"".join(lines))
        for line in lines:
            assert await reader.readline() == line
        await sending
        assert reader._buffer == bytearray() and reader._buffer.__sizeof__() < 128 * 1024
        writer.close()
        await writer.wait_closed()
        theirs.close()

    run(main)


def test_large_messages_on_many_connections_at_once(run: Any) -> None:
    """Readers run between the events of one batch; one of them closes a connection whose event is yet to come."""

    async def main() -> None:
        pairs = [socket.socketpair() for _ in range(12)]
        streams = [await asyncio.open_connection(sock=ours, limit=1 << 20) for ours, _ in pairs]
        loop = asyncio.get_running_loop()
        got: dict[int, int] = {}

        async def read(index: int) -> None:
            reader, _ = streams[index]
            while data := await reader.read(1 << 20):
                assert set(data) == {index}
                got[index] = got.get(index, 0) + len(data)
                if index == 0:
                    streams[11][1].transport.abort()

        tasks = [asyncio.ensure_future(read(index)) for index in range(12)]
        await asyncio.sleep(0)
        for _ in range(5):
            for index, (_, theirs) in enumerate(pairs[:11]):
                theirs.sendall(bytes([index]) * 100_000)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                pairs[11][1].sendall(b"\x0b" * 1000)
            loop.call_soon(lambda: None)
            await asyncio.sleep(0.01)
        for _, theirs in pairs:
            theirs.close()
        await asyncio.gather(*tasks)
        assert all(got[index] == 500_000 for index in range(11)) and got.get(11, 0) <= 1000
        for _, writer in streams:
            writer.close()

    run(main)


def test_back_pressure_pauses_and_resumes_the_peer(run: Any) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(sock=ours, limit=1000)
        sending = asyncio.ensure_future(loop.sock_sendall(theirs, b"x" * 4_000_000))
        await asyncio.sleep(0.1)
        transport: Any = writer.transport
        assert not transport.is_reading() and not sending.done()
        assert len(await reader.readexactly(4_000_000)) == 4_000_000
        await sending
        assert transport.is_reading()
        writer.close()
        await writer.wait_closed()
        theirs.close()

    run(main)


def test_drain_waits_for_the_peer_and_raises_when_it_is_gone(run: Any) -> None:
    async def main() -> None:
        accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def serve(reader: Any, writer: Any) -> None:
            accepted.set_result((reader, writer))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        reader, writer = await accepted
        writer.write(b"x" * 20_000_000)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.05)
        client.close()
        with pytest.raises(ConnectionError):
            for _ in range(100):
                writer.write(b"x" * 1000)
                await writer.drain()
                await asyncio.sleep(0.01)
        with pytest.raises(ConnectionError):
            await reader.read(1)
        writer.close()
        server.close()

    run(main)


def test_subclasses_and_patched_readers_get_the_plain_path() -> None:
    class Reader(asyncio.StreamReader):
        pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for make in (Reader, asyncio.StreamReader):
            ours, theirs = socket.socketpair()
            reader = make(loop=loop)
            seen: list[bytes] = []
            if make is asyncio.StreamReader:
                feed = reader.feed_data
                reader.feed_data = lambda data, f=feed, s=seen: (s.append(data), f(data))[1]  # type: ignore[method-assign]
            protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
            transport, _ = await loop.create_connection(lambda p=protocol: p, sock=ours)
            assert type(reader) is make
            assert not transport._channel.streaming  # type: ignore[attr-defined]
            theirs.sendall(b"data")
            assert await reader.read(10) == b"data"
            assert seen == ([b"data"] if make is asyncio.StreamReader else [])
            transport.close()
            theirs.close()
            await asyncio.sleep(0.01)

    headrace.run(main())


def test_a_server_gets_native_streams() -> None:
    async def main() -> None:
        async def serve(reader: Any, writer: Any) -> None:
            assert type(reader) is streams.StreamReader and type(writer) is streams.StreamWriter
            assert isinstance(reader, asyncio.StreamReader) and isinstance(writer, asyncio.StreamWriter)
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        async for reader, writer in connected(serve):
            for number in range(10):
                writer.write(b"line %d\n" % number)
                assert await reader.readline() == b"LINE %d\n" % number

    headrace.run(main())
