"""The stream transport: what a protocol and its peer can observe, on asyncio's own loop and on ours."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import gc
import os
import resource
import socket
import struct
import warnings
from typing import Any

import pytest

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
BIG = 8 * 1024 * 1024


class Recorder(asyncio.Protocol):
    """Notes what is called, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.data = b""
        self.lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.keep_open = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.data += data
        self.calls.append("data")

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)


async def pair(protocol: Any = Recorder) -> tuple[Any, Any, socket.socket]:
    """A transport and its protocol over one end of a socket pair, and the other end, non-blocking."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    transport, made = await loop.create_connection(protocol, sock=ours)
    return transport, made, theirs


async def receive(peer: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        part = await loop.sock_recv(peer, count - len(data))
        if not part:
            break
        data += part
    return data


async def settle(turns: int = 5) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def test_data_end_of_stream_and_loss_come_in_order(run: Any) -> None:
    async def main() -> None:
        transport, protocol, peer = await pair()
        peer.send(b"hello")
        await asyncio.sleep(0.01)
        peer.close()
        assert await protocol.lost is None
        assert protocol.calls == ["made", "data", "eof", "lost"]
        assert protocol.data == b"hello"
        assert transport.is_closing()

    run(main)


def test_a_half_closed_connection_still_sends(run: Any) -> None:
    async def main() -> None:
        transport, protocol, peer = await pair()
        protocol.keep_open = True
        peer.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.01)
        assert protocol.calls == ["made", "eof"]
        transport.write(b"late")
        transport.write_eof()
        with pytest.raises(RuntimeError):
            transport.write(b"too late")
        assert await receive(peer, 100) == b"late"
        transport.close()
        assert await protocol.lost is None
        peer.close()

    run(main)


def test_writes_arrive_in_order_whatever_they_are_made_of(run: Any) -> None:
    async def main() -> None:
        transport, protocol, peer = await pair()
        array = bytearray(b"bytearray,")
        transport.write(b"bytes,")
        transport.write(array)
        transport.write(memoryview(b"memoryview,"))
        transport.writelines([b"a", bytearray(b"b"), memoryview(b"c"), b""])
        transport.write(b"")
        sent = b"bytes,bytearray,memoryview,abc"
        assert await receive(peer, len(sent)) == sent
        for wrong in ("text", 1, None, [1]):
            with pytest.raises(TypeError):
                transport.write(wrong)
        with pytest.raises(TypeError):
            transport.writelines(["text"])
        transport.close()
        peer.close()
        await protocol.lost

    run(main)


def test_a_buffer_may_be_changed_after_it_was_written() -> None:
    # Not on asyncio's: from 3.12 on it sends what the buffer holds later (cpython gh-91166).
    import headrace

    async def main() -> None:
        transport, protocol, peer = await pair()
        array = bytearray(b"before" * 100_000)
        transport.write(array)
        transport.write(array)
        array[:] = b"after!" * 100_000
        data = await receive(peer, 1_200_000)
        assert data == b"before" * 200_000
        transport.close()
        peer.close()
        await protocol.lost

    headrace.run(main())


def test_flow_control(run: Any) -> None:
    async def main() -> None:
        transport, protocol, peer = await pair()
        transport.set_write_buffer_limits(high=1000, low=100)
        assert transport.get_write_buffer_limits() == (100, 1000)
        for high, low in ((-1, None), (10, 20), (5, -1)):
            with pytest.raises(ValueError):
                transport.set_write_buffer_limits(high=high, low=low)
        transport.write(b"x" * BIG)
        assert protocol.calls == ["made", "pause"]
        left = transport.get_write_buffer_size()
        assert 0 < left < BIG
        transport.close()
        assert transport.is_closing()
        transport.write(b"")
        assert len(await receive(peer, BIG)) == BIG
        assert await protocol.lost is None
        assert protocol.calls in (["made", "pause", "resume", "lost"], ["made", "pause", "lost"])
        assert transport.get_write_buffer_size() == 0
        peer.close()

    run(main)


def test_small_writes_do_not_pause_the_protocol(run: Any) -> None:
    async def main() -> None:
        transport, protocol, peer = await pair()
        transport.set_write_buffer_limits(high=0)
        for _ in range(10):
            transport.write(b"x" * 100)
        assert transport.get_write_buffer_size() == 0
        assert protocol.calls == ["made"]
        assert len(await receive(peer, 1000)) == 1000
        transport.close()
        peer.close()
        await protocol.lost

    run(main)


def test_abort_drops_what_waits_and_close_sends_it(run: Any) -> None:
    async def main() -> None:
        transport, protocol, peer = await pair()
        transport.write(b"first")
        transport.write(b"x" * BIG)
        transport.abort()
        transport.abort()
        transport.close()
        assert await protocol.lost is None
        peer.setblocking(True)
        got = b""
        while part := peer.recv(1 << 20):
            got += part
        assert got.startswith(b"firstx") and len(got) < BIG
        peer.close()
        transport.write(b"ignored")
        assert transport.is_closing() and not transport.is_reading()

    run(main)


def test_paused_reading_delivers_nothing_and_survives_a_reset(run: Any) -> None:
    async def main() -> None:
        transport, protocol, peer = await pair()
        transport.pause_reading()
        transport.pause_reading()
        assert not transport.is_reading()
        peer.send(b"held")
        await asyncio.sleep(0.02)
        assert protocol.calls == ["made"]
        transport.resume_reading()
        transport.resume_reading()
        await asyncio.sleep(0.02)
        assert protocol.data == b"held"
        transport.pause_reading()
        peer.close()
        await asyncio.sleep(0.02)
        assert protocol.calls == ["made", "data"]
        transport.close()
        assert await protocol.lost is None

    run(main)


def test_a_reset_reaches_connection_lost(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[Recorder] = loop.create_future()

        class Server(Recorder):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                made.set_result(self)

        server = await loop.create_server(Server, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        protocol = await made
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        error = await protocol.lost
        assert isinstance(error, ConnectionResetError) and error.errno == errno.ECONNRESET
        assert "eof" not in protocol.calls
        server.close()
        await server.wait_closed()

    run(main)


@pytest.mark.parametrize("method", ["data_received", "eof_received"])
def test_a_protocol_that_raises_loses_its_connection(run: Any, method: str) -> None:
    async def main() -> None:
        contexts: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

        class Failing(Recorder):
            pass

        def fail(*_: Any) -> None:
            raise ZeroDivisionError

        setattr(Failing, method, fail)
        transport, protocol, peer = await pair(Failing)
        peer.send(b"x")
        await asyncio.sleep(0.01)
        peer.close()
        assert isinstance(await protocol.lost, ZeroDivisionError)
        (context,) = contexts
        assert context["message"] == f"Fatal error: protocol.{method}() call failed."
        assert context["transport"] is transport and context["protocol"] is protocol

    run(main)


def test_a_buffered_protocol_is_read_into(run: Any) -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.space = bytearray(16)
            self.got = b""
            self.hints: list[int] = []
            self.lost = asyncio.get_running_loop().create_future()

        def get_buffer(self, sizehint: int) -> bytearray:
            self.hints.append(sizehint)
            return self.space

        def buffer_updated(self, nbytes: int) -> None:
            self.got += self.space[:nbytes]

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(exc)

    async def main() -> None:
        transport, protocol, peer = await pair(Buffered)
        peer.send(b"0123456789" * 5)
        await asyncio.sleep(0.02)
        assert protocol.got == b"0123456789" * 5
        assert len(protocol.hints) >= 4
        # Another kind of protocol may take over.
        replacement = Recorder()
        transport.set_protocol(replacement)
        assert transport.get_protocol() is replacement
        peer.send(b"more")
        await asyncio.sleep(0.02)
        assert replacement.data == b"more"
        transport.close()
        peer.close()
        await replacement.lost

    run(main)


def test_the_protocol_runs_in_the_context_of_the_connection(run: Any) -> None:
    async def main() -> None:
        seen: list[tuple[str, str]] = []

        class Contextual(Recorder):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                seen.append(("made", VARIABLE.get()))
                VARIABLE.set("made")

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                seen.append(("data", VARIABLE.get()))
                VARIABLE.set("data")

        VARIABLE.set("main")
        transport, protocol, peer = await pair(Contextual)
        VARIABLE.set("later")
        for _ in range(2):
            peer.send(b"x")
            await asyncio.sleep(0.01)
        assert seen == [("made", "main"), ("data", "main"), ("data", "data")]
        transport.close()
        peer.close()
        await protocol.lost

    run(main)


def test_extra_info_and_representation(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Recorder, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        transport, protocol = await loop.create_connection(Recorder, *address)
        assert transport.get_extra_info("peername") == address
        sock = transport.get_extra_info("socket")
        assert transport.get_extra_info("sockname") == sock.getsockname()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert transport.get_extra_info("nothing", "default") == "default"
        assert isinstance(transport, asyncio.Transport)
        assert f"fd={sock.fileno()}" in repr(transport) and "read=polling" in repr(transport)
        with pytest.raises(RuntimeError, match="is used by transport"):
            loop.add_reader(sock.fileno(), print)
        with pytest.raises(RuntimeError, match="is used by transport"):
            loop.remove_writer(sock.fileno())
        transport.close()
        await protocol.lost
        assert "closed" in repr(transport)
        server.close()
        await settle()

    run(main)


def test_bulk_both_ways(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        class Echo(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                self.transport.write(data)

        server = await loop.create_server(Echo, "127.0.0.1", 0)
        payload = os.urandom(1 << 20) * 8
        transport, protocol = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
        transport.write(payload)
        while len(protocol.data) < len(payload):
            await asyncio.sleep(0.005)
        assert protocol.data == payload
        transport.close()
        await protocol.lost
        server.close()
        await server.wait_closed()

    run(main)


def test_accepting_goes_on_after_descriptors_ran_out(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        contexts: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: contexts.append(context))
        server = await loop.create_server(Recorder, "127.0.0.1", 0)
        client = socket.socket()
        client.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            await loop.sock_connect(client, server.sockets[0].getsockname())
            await asyncio.sleep(0.1)
            assert contexts and contexts[0]["message"] == "socket.accept() out of system resource"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        count = len(contexts)
        await asyncio.sleep(1.2)
        assert len(contexts) == count, "it must try again seldom, and succeed once it can"
        client.close()
        await asyncio.sleep(0.05)
        server.close()
        await server.wait_closed()

    run(main)


def test_an_unclosed_transport_warns_and_closes_its_socket(new_loop: Any) -> None:
    loop = new_loop()
    loop.set_exception_handler(lambda *_: None)

    async def leave() -> None:
        transport, protocol, peer = await pair()
        transport.pause_reading()
        peer.close()
        protocol.transport = None

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.run_until_complete(leave())
        loop.close()
        gc.collect()
    assert any("unclosed transport" in str(w.message) for w in caught)


class Answer(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(b"head")
        self.transport.write(b"body")
        self.transport.writelines([b"a", b"b"])


@pytest.mark.parametrize(
    ("immediate", "records"), [(False, [b"headbodyab"]), (True, [b"head", b"body", b"ab"])]
)
def test_what_one_callback_writes_is_one_system_call(immediate: bool, records: list[bytes]) -> None:
    import headrace

    async def main() -> None:
        # A socket that keeps records: what one system call sends is what one receives.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        theirs.setblocking(False)
        loop: Any = asyncio.get_running_loop()
        transport = loop._make_socket_transport(ours, Answer())
        for _ in range(3):
            theirs.send(b"x")
            await asyncio.sleep(0.005)
            assert [theirs.recv(100) for _ in records] == records
            with pytest.raises(BlockingIOError):
                theirs.recv(100)
        transport.close()
        theirs.close()
        await settle()

    with asyncio.Runner(loop_factory=lambda: headrace.Loop(immediate_writes=immediate)) as runner:
        runner.run(main())


def test_immediate_writes_do_not_wait_for_the_callback() -> None:
    import headrace

    async def main() -> None:
        transport, protocol, peer = await pair()
        transport.write(b"later")
        with pytest.raises(BlockingIOError):
            peer.recv(100)
        transport.immediate = True
        transport.write(b",now")
        assert peer.recv(100) == b"later,now"
        transport.close()
        peer.close()
        await protocol.lost

    for loop in (headrace.Loop(), headrace.Loop(immediate_writes=False)):
        with asyncio.Runner(loop_factory=lambda loop=loop: loop) as runner:
            runner.run(main())
