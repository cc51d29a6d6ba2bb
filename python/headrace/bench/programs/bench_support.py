"""What the programs share: the loop that is asked for, and where to listen. Imports nothing of Headrace's bench."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import socket
from collections.abc import Coroutine
from typing import Any

#: Modules that have ``new_event_loop``.
LOOPS = {
    "asyncio": "asyncio",
    "uvloop": "uvloop",
    "headrace": "headrace",
    "rloop": "rloop",
    "rsloop": "rsloop",
}


def arguments(*apis: str) -> argparse.ArgumentParser:
    """The options that all programs have."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bind", required=True, metavar="HOST:PORT|unix:PATH")
    parser.add_argument("--loop", default="asyncio", choices=(*LOOPS, *PATCHED))
    if apis:
        parser.add_argument("--api", default=apis[0], choices=apis)
    return parser


#: aiofastnet replaces the transports of a loop: what it stands on, by the name that users give.
PATCHED = {"aiofastnet-asyncio": "asyncio", "aiofastnet-uvloop": "uvloop"}


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """A new event loop of the kind named."""
    loop: asyncio.AbstractEventLoop = importlib.import_module(LOOPS[PATCHED.get(name, name)]).new_event_loop()
    if name in PATCHED:
        patched: asyncio.AbstractEventLoop = importlib.import_module("aiofastnet").patch_loop(loop)
        return patched
    return loop


def run(name: str, main: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine on the loop named, until TERM ends the process."""
    loop = new_loop(name)
    asyncio.set_event_loop(loop)
    with contextlib.suppress(KeyboardInterrupt):
        loop.run_until_complete(main)


def host_port(bind: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``."""
    host, _, port = bind.rpartition(":")
    return host, int(port)


def listener(bind: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A bound socket; a stream socket listens with a queue long enough for any case."""
    if bind.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX, kind)
        sock.bind(bind.removeprefix("unix:"))
    else:
        # asyncio sets TCP_NODELAY only on sockets that say by their protocol number that they are TCP's.
        sock = socket.socket(socket.AF_INET, kind, socket.IPPROTO_TCP if kind == socket.SOCK_STREAM else 0)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(host_port(bind))
    if kind == socket.SOCK_STREAM:
        sock.listen(1024)
    return sock


def no_delay(sock: socket.socket | None) -> None:
    """Send small messages at once, as asyncio's transports do by themselves."""
    if sock is not None and sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
