"""``sock_*`` operations, on asyncio's own loop and on ours."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def pair(kind: int = socket.SOCK_STREAM) -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_receive_at_once_later_and_at_the_end(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (ours, theirs):
            theirs.send(b"first")
            assert await loop.sock_recv(ours, 3) == b"fir"
            assert await loop.sock_recv(ours, 100) == b"st"
            for number in range(20):
                task = asyncio.create_task(loop.sock_recv(ours, 100))
                await asyncio.sleep(0)
                theirs.send(b"%d" % number)
                assert await task == b"%d" % number
            space = bytearray(5)
            theirs.send(b"into")
            assert await loop.sock_recv_into(ours, space) == 4 and space == b"into\0"
            theirs.close()
            assert await loop.sock_recv(ours, 100) == b""
            assert await loop.sock_recv(ours, 100) == b""

    run(main)


def test_large_transfers(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        payload = bytes(range(256)) * 20_000
        with pair() as (ours, theirs):
            for data in (payload, bytearray(payload), memoryview(payload)):
                sending = asyncio.create_task(loop.sock_sendall(theirs, data))
                got = b""
                while len(got) < len(payload):
                    got += await loop.sock_recv(ours, 1 << 20)
                assert got == payload
                assert await sending is None

    run(main)


def test_nothing_is_read_before_it_is_awaited_nor_after_it_was_cancelled(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (ours, theirs):
            task = asyncio.create_task(loop.sock_recv(ours, 100))
            task.cancel()
            theirs.send(b"kept")
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await loop.sock_recv(ours, 100) == b"kept"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(loop.sock_recv(ours, 100), 0.01)
            theirs.send(b"kept too")
            await asyncio.sleep(0.01)
            assert await loop.sock_recv(ours, 100) == b"kept too"

    run(main)


def test_a_descriptor_number_used_again_is_another_socket(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(5):
            with pair() as (ours, theirs):
                number = ours.fileno()
                task = asyncio.create_task(loop.sock_recv(ours, 100))
                await asyncio.sleep(0)
                theirs.send(b"x")
                assert await task == b"x"
            # The same number for another socket, and for a transport, and for a reader.
            with pair() as (ours, theirs):
                assert ours.fileno() == number
                theirs.send(b"y")
                assert await asyncio.wait_for(loop.sock_recv(ours, 100), 5) == b"y"
                task = asyncio.create_task(loop.sock_recv(ours, 100))
                await asyncio.sleep(0)
                theirs.send(b"z")
                assert await asyncio.wait_for(task, 5) == b"z"
            ours, theirs = socket.socketpair()
            assert ours.fileno() == number
            reader, writer = await asyncio.open_connection(sock=ours)
            theirs.send(b"stream\n")
            assert await asyncio.wait_for(reader.readline(), 5) == b"stream\n"
            writer.close()
            await writer.wait_closed()
            theirs.close()
            with pair() as (ours, theirs):
                assert ours.fileno() == number
                ready = loop.create_future()
                loop.add_reader(ours, lambda r=ready: r.done() or r.set_result(True))
                theirs.send(b"reader")
                assert await asyncio.wait_for(ready, 5)
                assert loop.remove_reader(ours)
                assert not loop.remove_reader(ours)

    run(main)


def test_reading_and_writing_one_socket_at_once(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair() as (ours, theirs):
            reading = asyncio.create_task(loop.sock_recv(ours, 100))
            writing = asyncio.create_task(loop.sock_sendall(ours, b"w" * 2_000_000))
            await asyncio.sleep(0.01)
            assert not reading.done() and not writing.done()
            theirs.send(b"r")
            assert await reading == b"r"
            count = 0
            while count < 2_000_000:
                count += len(await loop.sock_recv(theirs, 1 << 20))
            await writing

    run(main)


def test_datagrams_are_not_taken_for_a_stream(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pair(socket.SOCK_DGRAM) as (ours, theirs):
            task = asyncio.create_task(loop.sock_recv(ours, 100))
            await asyncio.sleep(0)
            for datagram in (b"one", b"two", b"three"):
                theirs.send(datagram)
            assert await task == b"one"
            assert await loop.sock_recv(ours, 100) == b"two"
            assert await loop.sock_recv(ours, 100) == b"three"
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two,
        ):
            for sock in (one, two):
                sock.setblocking(False)
                sock.bind(("127.0.0.1", 0))
            assert await loop.sock_sendto(one, b"to", two.getsockname()) == 2
            assert await loop.sock_recvfrom(two, 100) == (b"to", one.getsockname())
            await loop.sock_sendto(one, b"into", two.getsockname())
            space = bytearray(10)
            assert await loop.sock_recvfrom_into(two, space) == (4, one.getsockname())

    run(main)


def test_accept_and_connect(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            with socket.socket() as client:
                client.setblocking(False)
                accepting = asyncio.create_task(loop.sock_accept(server))
                await loop.sock_connect(client, server.getsockname())
                accepted, address = await accepting
                with accepted:
                    assert address == client.getsockname() and accepted.gettimeout() == 0
                    await loop.sock_sendall(accepted, b"hello")
                    assert await loop.sock_recv(client, 100) == b"hello"
            port = server.getsockname()
        with socket.socket() as client:
            client.setblocking(False)
            with pytest.raises(ConnectionRefusedError):
                await loop.sock_connect(client, port)

    run(main)


@pytest.mark.parametrize(
    "call",
    [
        lambda loop, sock: loop.sock_recv(sock, -1),
        lambda loop, sock: loop.sock_recv(sock, "1"),
        lambda loop, sock: loop.sock_recv(sock),
        lambda loop, sock: loop.sock_recv(sock, 1, 2),
        lambda loop, sock: loop.sock_recv_into(sock, b"immutable"),
        lambda loop, sock: loop.sock_sendall(sock, "text"),
        lambda loop, sock: loop.sock_sendall(sock, None),
        lambda loop, sock: (sock.close(), loop.sock_recv(sock, 1))[1],
        lambda loop, sock: (sock.close(), loop.sock_sendall(sock, b"x"))[1],
        lambda loop, sock: (sock.shutdown(socket.SHUT_WR), loop.sock_sendall(sock, b"x"))[1],
    ],
)
def test_wrong_use_raises_what_asyncio_raises(call: Any) -> None:
    import headrace

    raised = []
    for factory in (asyncio.SelectorEventLoop, headrace.new_event_loop):

        async def main() -> None:
            with pair() as (ours, _):
                await call(asyncio.get_running_loop(), ours)

        with asyncio.Runner(loop_factory=factory) as runner:
            try:
                runner.run(main())
            except Exception as error:
                raised.append((type(error), getattr(error, "errno", None)))
    assert len(raised) == 2 and raised[0] == raised[1], raised
