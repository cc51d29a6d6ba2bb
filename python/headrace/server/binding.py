"""Listening sockets from what the user wrote after ``--bind``."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Sequence

from headrace.cli import UsageError


def parse_tcp(text: str) -> tuple[str, int]:
    """Host and port of "HOST:PORT", "[IPV6]:PORT", ":PORT" (all addresses) or "PORT" (loopback).

    :raises UsageError: when it is none of these.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        host = "127.0.0.1"
    host = host.removeprefix("[").removesuffix("]") or "0.0.0.0"
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"cannot bind to {text!r}: use HOST:PORT, unix:PATH or fd:NUMBER")
    return host, int(port)


def listen(bind: str, backlog: int) -> socket.socket:
    """Open the listening socket that ``bind`` names, non-blocking.

    :raises UsageError: when the address is malformed, in use, or not ours to use.
    """
    try:
        if bind.startswith("unix:"):
            return _listen_unix(bind.removeprefix("unix:"), backlog)
        if bind.startswith("fd:"):
            return _adopt(bind.removeprefix("fd:"))
        host, port = parse_tcp(bind)
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"cannot bind to {bind}: {error.strerror or error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise UsageError(f"cannot bind to {bind}: {os.strerror(error.errno or 0)}") from error
    return sock


def _listen_unix(path: str, backlog: int) -> socket.socket:
    if not path:
        raise UsageError("cannot bind to 'unix:': a path must follow")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        sock.bind(path)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _remove_stale(path: str) -> None:
    """Remove a socket file that nobody listens on any more: a server that was killed leaves one behind."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def _adopt(number: str) -> socket.socket:
    if not number.isascii() or not number.isdigit():
        raise UsageError(f"cannot bind to 'fd:{number}': a file descriptor's number must follow")
    sock = socket.socket(fileno=os.dup(int(number)))
    sock.setblocking(False)
    return sock


def url(sock: socket.socket) -> str:
    """What a user types to reach the socket."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[:2]
    return f"http://[{host}]:{port}" if sock.family == socket.AF_INET6 else f"http://{host}:{port}"


def close_all(sockets: Sequence[socket.socket]) -> None:
    """Close listening sockets; the files of Unix sockets go with them."""
    for sock in sockets:
        path = sock.getsockname() if sock.family == socket.AF_UNIX else None
        sock.close()
        if isinstance(path, str) and path:
            with contextlib.suppress(OSError):
                os.unlink(path)
