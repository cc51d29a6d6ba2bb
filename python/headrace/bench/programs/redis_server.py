"""The Redis-protocol server of the third source, in its structure: asyncio streams or gevent, and hiredis to parse.

GET, SET and CONFIG; an answer is written, and drained, for each command. Unlike the source's, which answers ``1``
whatever was stored, GET gives the value itself, as a Redis server does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

import hiredis
from bench_support import LOOPS, host_port, listener, no_delay, run

STORE: dict[bytes, bytes] = {}


def process(request: list[bytes]) -> bytes:
    """The answer to one command."""
    command = request[0].lower()
    if command == b"get":
        value = STORE.get(request[1])
        return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)
    if command == b"set":
        STORE[request[1]] = request[2]
        return b"+OK\r\n"
    return b"-ERR unknown command\r\n"


async def serve_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection on asyncio's streams."""
    no_delay(writer.get_extra_info("socket"))
    parser = hiredis.Reader()
    while data := await reader.read(4096):
        parser.feed(data)
        while request := parser.gets():
            writer.write(process(request))
            await writer.drain()
    writer.close()


async def serve(bind: str) -> None:
    """Listen, and serve until the process is ended."""
    sock = listener(bind)
    sock.setblocking(False)
    await asyncio.start_server(serve_stream, sock=sock)
    await asyncio.Event().wait()


def serve_gevent(bind: str) -> None:
    """The same on gevent."""
    from gevent.server import StreamServer

    def handle(sock: Any, _address: Any) -> None:
        no_delay(sock)
        parser = hiredis.Reader()
        while data := sock.recv(4096):
            parser.feed(data)
            while request := parser.gets():
                sock.sendall(process(request))

    StreamServer(host_port(bind), handle, backlog=1024).serve_forever()


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bind", required=True)
    parser.add_argument("--loop", choices=[*LOOPS, "gevent"], default="asyncio")
    args = parser.parse_args()
    # Keys that exist, for the cases that read them, named as redis-benchmark names them.
    STORE.update({b"key:%012d" % i: b"v" * 32 for i in range(int(os.environ.get("BENCH_KEYS", "0")))})
    if args.loop == "gevent":
        serve_gevent(args.bind)
    else:
        run(args.loop, serve(args.bind))


if __name__ == "__main__":
    main()
