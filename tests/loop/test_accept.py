"""Accepting connections, on asyncio's loop and on ours."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import resource
import socket
import struct
import sys
from asyncio import constants
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from headrace import new_event_loop

Run = Callable[[Callable[[], Awaitable[Any]]], Any]
RESET = struct.pack("ii", 1, 0)


class Echo(asyncio.Protocol):
    made = 0

    def connection_made(self, transport: Any) -> None:
        type(self).made += 1
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def connected(address: Any, family: int = socket.AF_INET) -> socket.socket:
    sock = socket.socket(family)
    sock.settimeout(5)
    sock.connect(address)
    return sock


async def in_thread(function: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function)


@pytest.mark.parametrize("kind", ["IPv4", "IPv6", "unix", "unix with name", "abstract"])
def test_what_a_transport_says_of_its_socket(run: Run, kind: str, tmp_path: Any) -> None:
    made: list[Any] = []

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            sock = transport.get_extra_info("socket")
            made.append((transport.get_extra_info("peername"), transport.get_extra_info("sockname"), sock))
            made.append((sock.family, sock.type, sock.proto, sock.gettimeout()))
            made.append(os.get_blocking(sock.fileno()) or os.get_inheritable(sock.fileno()))
            transport.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        name: Any = None
        if kind.startswith("IP"):
            server: Any = await loop.create_server(Protocol, {"IPv4": "127.0.0.1", "IPv6": "::1"}[kind], 0)
        else:
            server = await loop.create_unix_server(Protocol, str(tmp_path / "listener"))
            name = {"unix with name": str(tmp_path / "né\udcff"), "abstract": "\0" + str(tmp_path)}.get(kind)
        listener = server.sockets[0]
        sock = socket.socket(listener.family)
        if name is not None:
            sock.bind(name)
        sock.connect(listener.getsockname())
        while not made:
            await asyncio.sleep(0.001)
        peer, own, seen = made[0]
        assert peer == sock.getsockname() and type(peer) is type(sock.getsockname())
        assert own == listener.getsockname() == sock.getpeername()
        assert made[1] == (listener.family, socket.SOCK_STREAM, listener.proto, 0.0)
        assert made[2] is False
        sock.close()
        del seen
        made.clear()
        server.close()
        await server.wait_closed()

    run(main)


def test_more_than_the_backlog_at_once(run: Run) -> None:
    async def main() -> None:
        Echo.made = 0
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0, backlog=5)
        address = server.sockets[0].getsockname()

        def many() -> None:
            for _ in range(20):
                socks = [connected(address) for _ in range(5)]
                for sock in socks:
                    sock.sendall(b"x")
                for sock in socks:
                    assert sock.recv(1) == b"x"
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    sock.close()

        await in_thread(many)
        assert Echo.made == 100
        server.close()

    run(main)


def test_a_connection_reset_in_the_queue(run: Run) -> None:
    async def main() -> None:
        Echo.made = 0
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        for _ in range(10):
            sock = connected(address)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            sock.close()
        last = connected(address)
        last.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(last, b"x")
        assert await loop.sock_recv(last, 1) == b"x"
        last.close()
        server.close()

    run(main)


def test_out_of_descriptors(new_loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler is told, the listener rests, and then those that waited are served."""
    monkeypatch.setattr(constants, "ACCEPT_RETRY_DELAY", 0.2)
    told: list[Any] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        listener = server.sockets[0]
        number = listener.fileno()
        waiting = [connected(listener.getsockname()) for _ in range(3)]
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            while not told:
                await asyncio.sleep(0.01)
            assert told[0]["exception"].errno == errno.EMFILE
            assert told[0]["message"] == "socket.accept() out of system resource"
            assert told[0]["socket"].fileno() == number
            assert number not in loop._selector.get_map()  # type: ignore[attr-defined]
            await asyncio.sleep(0.5)  # twice again in vain
            assert len({id(context["exception"]) for context in told}) >= 2
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for sock in waiting:
            sock.setblocking(False)
            await loop.sock_sendall(sock, b"hello")
            assert await asyncio.wait_for(loop.sock_recv(sock, 5), 5) == b"hello"
            sock.close()
        server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(main(), 20))


def test_closed_while_out_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener that rests is not taken up again once it is closed (asyncio's loop reports an error)."""
    monkeypatch.setattr(constants, "ACCEPT_RETRY_DELAY", 0.05)
    told: list[Any] = []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        server = await loop.create_server(Echo, "127.0.0.1", 0)
        waiting = connected(server.sockets[0].getsockname())
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            while not told:
                await asyncio.sleep(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        server.close()
        await asyncio.sleep(0.2)
        assert told == ["socket.accept() out of system resource"]
        waiting.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("debug", [False, True])
def test_a_factory_that_raises(new_loop: Any, debug: bool) -> None:
    """The peer sees the end; the handler is told in debug mode; the next connection is served."""
    told: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _, context: told.append((context["message"], type(context["exception"])))
        )
        first = True

        def factory() -> asyncio.Protocol:
            nonlocal first
            if first:
                first = False
                raise ZeroDivisionError
            return Echo()

        server = await loop.create_server(factory, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        sock = connected(address)
        if debug:  # the exception that was told of keeps the connection until it is collected
            while not told:
                await asyncio.sleep(0.01)
        else:
            assert await in_thread(lambda: sock.recv(1)) == b""
        sock.close()
        other = connected(address)
        other.sendall(b"x")
        assert await in_thread(lambda: other.recv(1)) == b"x"
        other.close()
        server.close()

    with asyncio.Runner(loop_factory=new_loop, debug=debug) as runner:
        runner.get_loop().slow_callback_duration = 10
        runner.run(asyncio.wait_for(main(), 20))
    said = ("Error on transport creation for incoming connection", ZeroDivisionError)
    assert told == ([said] if debug else [])


def test_context_of_a_server(run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="outside")
    seen: list[str] = []

    class Protocol(asyncio.Protocol):
        def __init__(self) -> None:
            seen.append(variable.get())
            variable.set("of this connection")

        def connection_made(self, transport: Any) -> None:
            seen.append(variable.get())
            transport.close()

    async def main() -> None:
        variable.set("of the server")
        server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0)
        variable.set("later")
        for _ in range(2):
            connected(server.sockets[0].getsockname()).close()
            await asyncio.sleep(0.02)
        assert seen == ["of the server", "of this connection"] * 2
        server.close()

    run(main)


def test_a_server_closed_by_its_factory() -> None:
    """Whoever is connected sees the end (asyncio's loop leaves the first to the garbage collector)."""

    async def main() -> None:
        def factory() -> asyncio.Protocol:
            server.close()
            return Echo()

        server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        socks = [connected(address) for _ in range(3)]
        for sock in socks:
            with_end = await in_thread(lambda sock=sock: receive(sock))
            assert with_end == b""
            sock.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 20))


def receive(sock: socket.socket) -> bytes:
    """What comes; a reset is an end too."""
    try:
        return sock.recv(10)
    except ConnectionResetError:
        return b""


def test_accepted_elsewhere(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sock = connected(listener.getsockname())
            connection, _ = listener.accept()
        transport, _ = await loop.connect_accepted_socket(Echo, connection)
        assert transport.get_extra_info("peername") == sock.getsockname()
        sock.sendall(b"x")
        assert await in_thread(lambda: sock.recv(1)) == b"x"
        transport.close()
        await in_thread(lambda: sock.recv(1))
        sock.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            with pytest.raises(ValueError, match="Stream Socket was expected"):
                await loop.connect_accepted_socket(Echo, datagrams)

    run(main)


def test_options_of_a_listener(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"reuse_port": True, "reuse_address": True}
        if sys.version_info >= (3, 13):
            options["keep_alive"] = True
        server = await loop.create_server(Echo, "127.0.0.1", 0, **options)
        listener = server.sockets[0]
        for option in (socket.SO_REUSEPORT, socket.SO_REUSEADDR):
            assert listener.getsockopt(socket.SOL_SOCKET, option)
        kept = listener.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert bool(kept) is (sys.version_info >= (3, 13))
        server.close()

    run(main)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="new in CPython 3.13")
@pytest.mark.parametrize("how", ["close_clients", "abort_clients"])
def test_a_server_ends_its_connections(run: Run, how: str) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        socks = [connected(address) for _ in range(5)]
        for sock in socks:
            sock.sendall(b"x")
            assert await in_thread(lambda sock=sock: sock.recv(1)) == b"x"
        server.close()
        getattr(server, how)()
        await asyncio.wait_for(server.wait_closed(), 5)
        for sock in socks:
            assert receive(sock) == b""
            sock.close()

    run(main)
