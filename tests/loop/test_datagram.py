"""UDP, on asyncio's loop and on ours."""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[[Any], Any]


class Recorder(asyncio.DatagramProtocol):
    """Keeps what it was called with."""

    def __init__(self, wanted: int = 1) -> None:
        self.wanted = wanted
        self.calls: list[Any] = []
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[BaseException] = []
        self.lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.enough = asyncio.Event()
        self.failed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.calls.append("made")

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.append((data, addr))
        if len(self.got) >= self.wanted:
            self.enough.set()

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)
        self.failed.set()

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)


async def endpoint(wanted: int = 1, **kwargs: Any) -> tuple[Any, Recorder]:
    if not kwargs:
        kwargs = {"local_addr": ("127.0.0.1", 0)}
    loop = asyncio.get_running_loop()
    return await loop.create_datagram_endpoint(lambda: Recorder(wanted), **kwargs)


async def closed(*pairs: tuple[Any, Recorder]) -> None:
    for transport, _ in pairs:
        transport.close()
    for _, protocol in pairs:
        assert await asyncio.wait_for(protocol.lost, 5) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("connected", [False, True])
def test_exchange(run: Run, host: str, connected: bool) -> None:
    async def main() -> None:
        server, theirs = await endpoint(40, local_addr=(host, 0))
        address = server.get_extra_info("sockname")
        if connected:
            client, ours = await endpoint(40, remote_addr=address[:2])
            to = None
            assert client.get_extra_info("peername") == address
        else:
            client, ours = await endpoint(40, local_addr=(host, 0))
            to = address
            assert client.get_extra_info("peername") is None
        assert server.get_extra_info("socket").type == socket.SOCK_DGRAM
        mine = client.get_extra_info("sockname")
        sent = [os.urandom(1 + number * 50) for number in range(40)]
        for number, data in enumerate(sent):
            kind = (bytes, bytearray, memoryview)[number % 3]
            client.sendto(kind(data), to)
        await theirs.enough.wait()
        assert theirs.got == [(data, mine) for data in sent]
        assert [type(part) for part in theirs.got[0]] == [bytes, tuple]
        assert [type(part) for part in theirs.got[0][1]] == [type(part) for part in mine]
        for data, peer in theirs.got:
            server.sendto(data, peer)
        await ours.enough.wait()
        assert ours.got == [(data, address) for data in sent]
        await closed((server, theirs), (client, ours))
        assert ours.calls == theirs.calls == ["made", "lost"]

    run(main)


def test_many_peers_keep_their_addresses(run: Run) -> None:
    async def main() -> None:
        server, theirs = await endpoint(900)
        address = server.get_extra_info("sockname")
        socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(300)]
        names = []
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
            names.append(sock.getsockname())
        for turn in range(3):
            for number, sock in enumerate(socks):
                sock.sendto(b"%d" % (turn * 300 + number), address)
                if number % 50 == 49:
                    await asyncio.sleep(0.01)
        await theirs.enough.wait()
        assert sorted((int(data), peer) for data, peer in theirs.got) == [
            (number, names[number % 300]) for number in range(900)
        ]
        for sock in socks:
            sock.close()
        await closed((server, theirs))

    run(main)


def test_largest_and_oversized(run: Run) -> None:
    async def main() -> None:
        server, theirs = await endpoint()
        client, ours = await endpoint()
        address = server.get_extra_info("sockname")
        client.sendto(bytes(65507), address)
        await theirs.enough.wait()
        assert len(theirs.got[0][0]) == 65507
        client.sendto(bytes(65508), address)
        await ours.failed.wait()
        assert isinstance(ours.errors[0], OSError) and not client.is_closing()
        await closed((server, theirs), (client, ours))

    run(main)


def test_empty_datagrams(run: Run) -> None:
    """An empty one from outside arrives; whether our own goes out is the CPython's matter that runs."""

    async def main() -> None:
        server, theirs = await endpoint()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.sendto(b"", server.get_extra_info("sockname"))
            await theirs.enough.wait()
            assert theirs.got == [(b"", sock.getsockname())]
        await closed((server, theirs))

    run(main)


def test_empty_datagrams_sent_as_asyncio_does() -> None:
    import headrace

    async def count() -> int:
        server, theirs = await endpoint(1)
        client, ours = await endpoint(1)
        client.sendto(b"", server.get_extra_info("sockname"))
        client.sendto(b"end", server.get_extra_info("sockname"))
        while not theirs.got or theirs.got[-1][0] != b"end":
            await asyncio.sleep(0.001)
        await closed((server, theirs), (client, ours))
        return len(theirs.got)

    results = []
    for factory in (asyncio.SelectorEventLoop, headrace.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            results.append(runner.run(asyncio.wait_for(count(), 10)))
    assert results[0] == results[1]


@pytest.mark.parametrize("data", ["text", None, 1, [b"x"], object()])
def test_wrong_data(run: Run, data: Any) -> None:
    async def main() -> None:
        server, theirs = await endpoint()
        with pytest.raises(TypeError, match="data argument must be a bytes-like object"):
            server.sendto(data, ("127.0.0.1", 9))
        await closed((server, theirs))

    run(main)


@pytest.mark.parametrize(
    "address",
    [
        ("127.0.0.1",),
        ("127.0.0.1", "9"),
        ("127.0.0.1", 70000),
        ("127.0.0.1", -1),
        (b"127.0.0.1", 0.5),
        "127.0.0.1",
        7,
        ("127.0.0.1", 9, 0, 0),
        ("::1", 9),
        None,
    ],
    ids=repr,
)
def test_wrong_address(new_loop: Any, address: Any) -> None:
    """What asyncio does with an address that is none: an error of the system is told, all others are fatal."""

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        told: list[Any] = []
        loop.set_exception_handler(lambda _, context: told.append(context))
        transport, protocol = await endpoint()
        transport.sendto(b"data", address)
        if not protocol.errors:
            await asyncio.wait_for(asyncio.shield(protocol.lost), 5)
        told = [(type(context["exception"]), context["message"]) for context in told]
        found = [type(error) for error in protocol.errors], transport.is_closing(), told
        transport.abort()
        await asyncio.wait([protocol.lost])
        if protocol.lost.exception() is None:
            protocol.lost.result()
        return found

    expected: Any = {
        "text": ([], True, [(TypeError, "Fatal write error on datagram transport")]),
        "range": ([], True, [(OverflowError, "Fatal write error on datagram transport")]),
    }
    with asyncio.Runner(loop_factory=new_loop) as runner:
        errors, closing, told = runner.run(asyncio.wait_for(main(), 10))
    if isinstance(address, tuple) and address[0] == "::1":
        assert len(errors) == 1 and issubclass(errors[0], OSError) and not closing and not told
    elif isinstance(address, tuple) and address[1:] in ((70000,), (-1,)):
        assert (errors, closing, told) == expected["range"]
    else:
        assert (errors, closing, told) == expected["text"]


def test_another_address_than_the_one_connected_to(run: Run) -> None:
    async def main() -> None:
        server, theirs = await endpoint(2)
        address = server.get_extra_info("sockname")
        client, ours = await endpoint(remote_addr=address)
        with pytest.raises(ValueError, match="must be None or"):
            client.sendto(b"data", ("127.0.0.1", 1))
        client.sendto(b"one", ("127.0.0.1", address[1]))  # equal, and not the same object
        client.sendto(b"two")
        await theirs.enough.wait()
        assert [data for data, _ in theirs.got] == [b"one", b"two"]
        await closed((server, theirs), (client, ours))

    run(main)


def test_a_peer_that_is_not_there(run: Run) -> None:
    """The kernel tells a connected socket of it, at a read or a write; the transport lives on."""

    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
            gone.bind(("127.0.0.1", 0))
            address = gone.getsockname()
        client, ours = await endpoint(remote_addr=address)
        client.sendto(b"one")
        await ours.failed.wait()
        assert isinstance(ours.errors[0], ConnectionRefusedError) and not client.is_closing()
        client.sendto(b"two")
        client.sendto(b"three")
        while len(ours.errors) < 2:
            await asyncio.sleep(0.001)
        assert {type(error) for error in ours.errors} == {ConnectionRefusedError}
        await closed((client, ours))

    run(main)


def test_host_names_are_looked_up(run: Run) -> None:
    async def main() -> None:
        server, theirs = await endpoint()
        port = server.get_extra_info("sockname")[1]
        client, ours = await endpoint()
        client.sendto(b"data", ("localhost", port))
        await theirs.enough.wait()
        assert theirs.got[0][0] == b"data"
        await closed((server, theirs), (client, ours))

    run(main)


def test_pausing_and_closing_end_a_batch(run: Run) -> None:
    async def main() -> None:
        server, theirs = await endpoint(60)
        address = server.get_extra_info("sockname")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for number in range(60):  # many turns with more to read: batches grow
                sock.sendto(b"%d" % number, address)
            await theirs.enough.wait()
            assert [int(data) for data, _ in theirs.got] == list(range(60))
            theirs.got.clear()
            received = theirs.datagram_received

            def pause(data: bytes, addr: Any) -> None:
                received(data, addr)
                server.pause_reading()

            theirs.datagram_received = pause  # type: ignore[method-assign]
            for number in range(10):
                sock.sendto(b"%d" % number, address)
            for count in range(1, 6):
                await asyncio.sleep(0.02)
                assert len(theirs.got) == count and not server.is_reading()
                server.resume_reading()

            def close(data: bytes, addr: Any) -> None:
                received(data, addr)
                server.close()

            await asyncio.sleep(0.02)
            before = len(theirs.got)
            theirs.datagram_received = close  # type: ignore[method-assign]
            server.resume_reading()
            assert await theirs.lost is None
            assert len(theirs.got) == before + 1

    run(main)


def test_a_callback_that_raises_loses_no_datagram_after_it(new_loop: Any) -> None:
    async def main() -> Any:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        server, theirs = await endpoint(20)
        received = theirs.datagram_received

        def fail(data: bytes, addr: Any) -> None:
            received(data, addr)
            raise ZeroDivisionError(data)

        theirs.datagram_received = fail  # type: ignore[method-assign]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for number in range(20):
                sock.sendto(b"%d" % number, server.get_extra_info("sockname"))
        await theirs.enough.wait()
        await asyncio.sleep(0)
        assert [type(context["exception"]) for context in told] == [ZeroDivisionError] * 20
        assert all("_read_ready" in context["message"] for context in told)
        assert not server.is_closing()
        await closed((server, theirs))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(main(), 10))


def unread(buffer: int = 4096) -> socket.socket:
    """A Unix datagram socket with a short queue: what UDP over loopback never is."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.setblocking(False)
    return sock


def test_what_the_kernel_does_not_take_is_buffered(run: Run, tmp_path: Any) -> None:
    """Over a Unix socket, which blocks; with limits, and in order."""

    async def main() -> None:
        peer = unread()
        path = str(tmp_path / "s")
        peer.bind(path)
        transport, protocol = await endpoint(family=socket.AF_UNIX, remote_addr=path)
        transport.set_write_buffer_limits(high=3000)
        for number in range(100):
            transport.sendto(b"%03d" % number * 100)
        assert transport.get_write_buffer_size() > 3000
        assert protocol.calls == ["made", "pause"]
        got = []
        while len(got) < 100:
            try:
                got.append(peer.recv(1000))
            except BlockingIOError:
                await asyncio.sleep(0)
        assert got == [b"%03d" % number * 100 for number in range(100)]
        await closed((transport, protocol))
        peer.close()

    run(main)


def test_context_of_the_protocol(run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")

    async def main() -> None:
        variable.set("inside")
        server, theirs = await endpoint()
        seen = []
        theirs.datagram_received = lambda data, addr: seen.append(variable.get())  # type: ignore[method-assign]
        variable.set("later")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", server.get_extra_info("sockname"))
        while not seen:
            await asyncio.sleep(0.001)
        assert seen == ["inside"]
        await closed((server, theirs))

    run(main)


def test_abort_and_use_after_close(run: Run) -> None:
    async def main() -> None:
        server, theirs = await endpoint()
        server.abort()
        assert server.is_closing() and not server.is_reading()
        assert await theirs.lost is None
        server.close()
        server.abort()
        assert "closed" in repr(server)

    run(main)


def test_the_descriptor_of_a_closed_transport_is_not_touched() -> None:
    """Its number may be another socket's by then."""
    import headrace

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, theirs = await endpoint()
        address = server.get_extra_info("sockname")
        client, ours = await endpoint()
        client.sendto(b"x", address)
        await theirs.enough.wait()
        number = client.get_extra_info("socket").fileno()
        await closed((client, ours))
        ours_now, other = socket.socketpair()
        assert number in (ours_now.fileno(), other.fileno())
        loop.set_exception_handler(lambda *_: None)
        with pytest.raises(AttributeError):  # asyncio's own: its loop is gone
            client.sendto(b"y", address)
        ours_now.setblocking(False)
        other.setblocking(False)
        for sock in (ours_now, other):
            with pytest.raises(BlockingIOError):
                sock.recv(10)
        ours_now.close()
        other.close()
        await closed((server, theirs))

    with asyncio.Runner(loop_factory=headrace.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 10))


def test_wrong_endpoints(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        stream = socket.socket()
        with pytest.raises(ValueError, match="ocket was expected"):
            await loop.create_datagram_endpoint(Recorder, sock=stream)
        stream.close()
        with pytest.raises(ValueError, match="unexpected address family"):
            await loop.create_datagram_endpoint(Recorder)
        with pytest.raises(TypeError):
            await loop.create_datagram_endpoint(Recorder, local_addr="127.0.0.1")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            with pytest.raises(OSError):
                await loop.create_datagram_endpoint(Recorder, local_addr=taken.getsockname())

    run(main)
