"""What the TLS tests share: certificates, a recording protocol, and a peer that writes TLS by hand."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

#: So long at most a blocking peer waits.
PATIENCE = 10.0


class Certificates:
    """Two self-signed certificates: ``localhost`` and ``other``."""

    def __init__(self, openssl: str, folder: Path) -> None:
        self.folder = folder
        for name in ("localhost", "other"):
            words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name}"
            files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
            extension = ["-addext", f"subjectAltName=DNS:{name}"]
            command = [openssl, *words.split(), *extension, *files]
            subprocess.run(command, check=True, capture_output=True, timeout=60)

    def server(self, name: str = "localhost", **options: Any) -> ssl.SSLContext:
        """A server's context with the certificate of that name; options are attributes of the context."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return with_options(context, options)

    def client(self, trust: str | None = "localhost", **options: Any) -> ssl.SSLContext:
        """A client's context that trusts the certificate of that name, or every one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if trust is None:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context.load_verify_locations(self.folder / f"{trust}.pem")
        return with_options(context, options)


def with_options(context: ssl.SSLContext, options: dict[str, Any]) -> ssl.SSLContext:
    """Set attributes of a context."""
    for name, value in options.items():
        setattr(context, name, value)
    return context


class Recorder(asyncio.Protocol):
    """Notes what is called, in order."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.calls: list[Any] = []
        self.data = bytearray()
        self.made: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[Any] = loop.create_future()
        self.changed = asyncio.Event()
        self.keep_open = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.calls.append("made")
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        assert data
        self.data += data
        if self.calls[-1] != "data":
            self.calls.append("data")
        self.changed.set()

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

    async def received(self, count: int) -> bytes:
        """Wait until so many bytes have come."""
        while len(self.data) < count:
            self.changed.clear()
            await self.changed.wait()
        return bytes(self.data)


class Echo(Recorder):
    """Sends back what it receives."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class Reports:
    """The exception handler of the running loop, for as long as the context lasts."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []

    def __enter__(self) -> Reports:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.contexts.append(context))
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.get_running_loop().set_exception_handler(None)

    def brief(self) -> list[tuple[str, type]]:
        """Message and type of exception of each report."""
        return [(context["message"], type(context.get("exception"))) for context in self.contexts]


@contextlib.asynccontextmanager
async def serving(factory: Any, context: ssl.SSLContext, **options: Any) -> AsyncIterator[tuple[str, int]]:
    """The address of a server of the running loop."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(factory, "127.0.0.1", 0, ssl=context, **options)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()


async def connected(
    certificates: Certificates, server: Any, client: Any = Recorder, **options: Any
) -> tuple[Any, Any]:
    """Two protocols, both on the running loop, joined by TLS: the server's and the client's."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Any] = loop.create_future()

    def factory() -> Any:
        protocol = server()
        made.set_result(protocol)
        return protocol

    async with serving(factory, options.pop("server_context", None) or certificates.server()) as address:
        context = options.pop("client_context", None) or certificates.client()
        options.setdefault("server_hostname", "localhost")
        _, protocol = await loop.create_connection(client, *address, ssl=context, **options)
        other = await made
        await other.made
    return other, protocol


class ByHand:
    """A blocking TLS client that decides itself how its bytes go out. To be used in a thread."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, name: str = "localhost") -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> ByHand:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def _step(self, operation: Any, send: Any) -> Any:
        while True:
            try:
                result = operation()
            except ssl.SSLWantReadError:
                send(self.outgoing.read())
                data = self.socket.recv(65536)
                if not data:
                    raise EOFError from None
                self.incoming.write(data)
            else:
                send(self.outgoing.read())
                return result

    def handshake(self, send: Any = None) -> None:
        """Shake hands; ``send`` sends bytes, by default at once."""
        self._step(self.tls.do_handshake, send or self.socket.sendall)

    def bytewise(self, data: bytes) -> None:
        """Send bytes one at a time."""
        for index in range(len(data)):
            self.socket.sendall(data[index : index + 1])

    def records(self, *messages: bytes) -> bytes:
        """The records of some messages, not sent yet."""
        for message in messages:
            self.tls.write(message)
        return self.outgoing.read()

    def read(self, count: int) -> bytes:
        """Read exactly so many bytes."""
        data = b""
        while len(data) < count:
            part = self._step(functools.partial(self.tls.read, count - len(data)), self.socket.sendall)
            if not part:
                raise EOFError
            data += part
        return data

    def closing(self) -> bytes:
        """The record of ``close_notify``, not sent yet."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()
