"""HTTP by httptools alone on an asyncio loop: the second source's fastest Python server, with no framework.

Every answer has Date and Server fields, as the other servers' have.
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import Any

import httptools
from bench_support import arguments, listener, run

BODIES = {f"/{size}".encode(): b"x" * size for size in (1024, 10240, 102400)}
HELLO = b"hello world\n"
HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: %s\r\nserver: httptools\r\n"
    b"content-type: text/plain\r\ncontent-length: %d\r\n\r\n"
)


class Server(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport
    date = b""

    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.url = b""

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Parse it; the parser calls back."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self.url = url

    def on_message_complete(self) -> None:
        """Called by the parser: answer."""
        body = BODIES.get(self.url, HELLO)
        self.transport.write(HEAD % (Server.date, len(body)) + body)
        if not self.parser.should_keep_alive():
            self.transport.close()


async def serve(bind: str) -> None:
    """Listen, and serve until the process is ended."""
    loop = asyncio.get_running_loop()

    def tick() -> None:
        Server.date = formatdate(usegmt=True).encode()
        loop.call_later(1, tick)

    tick()
    sock = listener(bind)
    sock.setblocking(False)
    await loop.create_server(Server, sock=sock)
    await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    args = arguments().parse_args()
    run(args.loop, serve(args.bind))


if __name__ == "__main__":
    main()
