"""Echo on stacks that are not asyncio loops: gevent, Twisted, Tornado, curio. Whole messages or lines."""

from __future__ import annotations

import argparse
from typing import Any

from bench_support import host_port, listener, no_delay

CHUNK = 102400


def gevent_echo(bind: str, lines: bool) -> None:
    """By gevent's StreamServer."""
    from gevent.server import StreamServer

    def handle(sock: Any, _address: Any) -> None:
        no_delay(sock)
        if lines:
            file = sock.makefile("rwb")
            for line in file:
                file.write(line)
                file.flush()
        else:
            while data := sock.recv(CHUNK):
                sock.sendall(data)

    from gevent.socket import socket as gevent_socket

    plain = listener(bind)
    StreamServer(gevent_socket(plain.family, plain.type, 0, plain.detach()), handle).serve_forever()


def twisted_echo(bind: str, lines: bool) -> None:
    """By Twisted's default (epoll) reactor."""
    from twisted.internet import protocol, reactor
    from twisted.protocols.basic import LineOnlyReceiver

    # Twisted types its transports and its reactor as narrower interfaces than the objects have.
    base: Any = protocol.Protocol
    running: Any = reactor

    class Echo(base):
        def connectionMade(self) -> None:
            if not bind.startswith("unix:"):
                self.transport.setTcpNoDelay(True)

        def dataReceived(self, data: bytes) -> None:
            self.transport.write(data)

    class LineEcho(LineOnlyReceiver):
        delimiter = b"\n"
        MAX_LENGTH = 1 << 20

        def lineReceived(self, line: bytes) -> None:
            self.sendLine(line)

    factory: Any = protocol.Factory.forProtocol(LineEcho if lines else Echo)
    if bind.startswith("unix:"):
        running.listenUNIX(bind.removeprefix("unix:"), factory, backlog=1024)
    else:
        host, port = host_port(bind)
        running.listenTCP(port, factory, backlog=1024, interface=host)
    running.run()


def tornado_echo(bind: str, lines: bool) -> None:
    """By Tornado's TCPServer and IOStream."""
    import asyncio

    from tornado.iostream import StreamClosedError
    from tornado.tcpserver import TCPServer

    class Server(TCPServer):
        async def handle_stream(self, stream: Any, address: Any) -> None:
            if not bind.startswith("unix:"):
                stream.set_nodelay(True)
            try:
                while True:
                    if lines:
                        await stream.write(await stream.read_until(b"\n"))
                    else:
                        await stream.write(await stream.read_bytes(CHUNK, partial=True))
            except StreamClosedError:
                return

    async def main() -> None:
        sock = listener(bind)
        sock.setblocking(False)
        Server().add_sockets([sock])
        await asyncio.Event().wait()

    asyncio.run(main())


def curio_echo(bind: str, lines: bool, streams: bool) -> None:
    """By curio's sockets or streams."""
    import curio
    from curio.io import Socket

    async def handle(client: Any) -> None:
        no_delay(client._socket)
        if streams or lines:
            stream = client.as_stream()
            if lines:
                async for line in stream:
                    await stream.write(line)
            else:
                while data := await stream.read(CHUNK):
                    await stream.write(data)
        else:
            while data := await client.recv(CHUNK):
                await client.sendall(data)
        await client.close()

    async def main() -> None:
        sock = Socket(listener(bind))
        while True:
            client, _address = await sock.accept()
            await curio.spawn(handle, client, daemon=True)

    curio.run(main)


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("stack", choices=("gevent", "twisted", "tornado", "curio", "curio-streams"))
    parser.add_argument("--bind", required=True)
    parser.add_argument("--lines", action="store_true")
    args = parser.parse_args()
    if args.stack.startswith("curio"):
        curio_echo(args.bind, args.lines, args.stack == "curio-streams")
    else:
        {"gevent": gevent_echo, "twisted": twisted_echo, "tornado": tornado_echo}[args.stack](
            args.bind, args.lines
        )


if __name__ == "__main__":
    main()
