"""Runs a Tornado application named ``MODULE:ATTR`` by Tornado's own server on any asyncio loop."""

from __future__ import annotations

import asyncio
import importlib

from bench_support import arguments, listener, run
from tornado.httpserver import HTTPServer


async def serve(name: str, bind: str) -> None:
    """Listen, and serve until the process is ended."""
    module, _, attribute = name.partition(":")
    server = HTTPServer(getattr(importlib.import_module(module), attribute))
    sock = listener(bind)
    sock.setblocking(False)
    server.add_sockets([sock])
    await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    parser = arguments()
    parser.add_argument("app", metavar="MODULE:ATTR")
    args = parser.parse_args()
    # Tornado logs every request at INFO, which is off by default: nothing to turn off.
    run(args.loop, serve(args.app, args.bind))


if __name__ == "__main__":
    main()
