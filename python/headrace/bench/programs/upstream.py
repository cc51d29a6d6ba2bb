"""A JSON API of one answer, on asyncio's protocols and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

from bench_support import arguments, listener, run

BODY = b'{"price": 7}'
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


class Api(asyncio.Protocol):
    """One connection; requests have no bodies."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = b""

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every whole head."""
        *heads, self.received = (self.received + data).split(b"\r\n\r\n")
        for head in heads:
            self.transport.write(ANSWER)
            if b"connection: close" in head.lower():
                self.transport.close()


async def serve(bind: str) -> None:
    """Listen, and serve until the process is ended."""
    sock = listener(bind)
    sock.setblocking(False)
    await asyncio.get_running_loop().create_server(Api, sock=sock)
    await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    args = arguments().parse_args()
    run(args.loop, serve(args.bind))


if __name__ == "__main__":
    main()
