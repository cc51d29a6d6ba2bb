"""Echo on any asyncio loop, by each of its interfaces; also framed by lines, over TLS, and UDP."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from bench_support import arguments, listener, no_delay, run

#: One read of a stream: as much as a message of the largest case.
CHUNK = 102400


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """Sends back what it receives, read into a buffer of its own."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.buffer = bytearray(CHUNK)

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        """Where to read."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Send it back."""
        self.transport.write(bytes(memoryview(self.buffer)[:nbytes]))


class TwoWrites(asyncio.Protocol):
    """Sends back what it receives in two writes, as a server sends a head and a body."""

    transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Send it back in two pieces."""
        self.transport.write(data[:64])
        self.transport.write(data[64:])


class DatagramEcho(asyncio.DatagramProtocol):
    """Sends datagrams back."""

    transport: asyncio.DatagramTransport

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Send it back."""
        self.transport.sendto(data, addr)


async def stream_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo by streams."""
    no_delay(writer.get_extra_info("socket"))
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.close()


async def line_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo line by line."""
    no_delay(writer.get_extra_info("socket"))
    while line := await reader.readline():
        writer.write(line)
        await writer.drain()
    writer.close()


async def sock_echo(sock: socket.socket) -> None:
    """Echo by ``loop.sock_recv`` and ``loop.sock_sendall``."""
    loop = asyncio.get_running_loop()
    no_delay(sock)
    with sock:
        while data := await loop.sock_recv(sock, CHUNK):
            await loop.sock_sendall(sock, data)


async def serve(api: str, bind: str, context: ssl.SSLContext | None) -> None:
    """Listen, and serve until the process is ended."""
    loop = asyncio.get_running_loop()
    if api == "udp":
        await loop.create_datagram_endpoint(DatagramEcho, sock=listener(bind, socket.SOCK_DGRAM))
        await asyncio.Event().wait()
    sock = listener(bind)
    sock.setblocking(False)
    protocols = {"protocol": Echo, "buffered": BufferedEcho, "two-writes": TwoWrites}
    if api in protocols:
        factory = protocols[api]
        if bind.startswith("unix:"):
            await loop.create_unix_server(factory, sock=sock, ssl=context)
        else:
            await loop.create_server(factory, sock=sock, ssl=context)
    elif api == "sock":
        # A task is only weakly referenced by its loop.
        tasks = set()
        while True:
            task = loop.create_task(sock_echo((await loop.sock_accept(sock))[0]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    else:
        handler = line_echo if api == "readline" else stream_echo
        if bind.startswith("unix:"):
            await asyncio.start_unix_server(handler, sock=sock, limit=1 << 20, ssl=context)
        else:
            await asyncio.start_server(handler, sock=sock, limit=1 << 20, ssl=context)
    await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    parser = arguments("protocol", "buffered", "two-writes", "streams", "sock", "readline", "udp")
    parser.add_argument("--certificate", help="PEM file with key and certificate: serve TLS")
    args = parser.parse_args()
    context = None
    if args.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.certificate)
    run(args.loop, serve(args.api, args.bind, context))


if __name__ == "__main__":
    main()
