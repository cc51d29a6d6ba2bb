"""Accepting connections: as asyncio's selector loop does, without a task and a future for each of them.

A connection's protocol is made in the turn in which it was accepted, in a copy of the context that the server was
made in. TLS, debug mode and sockets of other classes take asyncio's own way.
"""

from __future__ import annotations

import _socket
import contextvars
import errno
import socket
from asyncio import constants, trsock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.loop import Loop

#: The listener's family and protocol as plain numbers; ``socket.socket`` makes an enumeration of the family.
_family: Any = _socket.socket.family.__get__
_proto: Any = _socket.socket.proto.__get__

#: With this flag a socket object knows that its descriptor does not block, and need not ask.
_KIND = socket.SOCK_STREAM | socket.SOCK_NONBLOCK

#: What passes when others close descriptors or memory is given back: asyncio's list.
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def accept(
    loop: Loop,
    protocol_factory: Any,
    sock: socket.socket,
    server: Any,
    backlog: int,
    more: tuple[Any, ...],
) -> None:
    """Accept what waits in the listener's queue, at most ``backlog`` connections and one.

    :param more: what ``_start_serving`` takes after ``backlog``.
    """
    listener = sock.fileno()
    for _ in range(backlog + 1):
        try:
            accepted = loop._accept(listener)
        except OSError as exc:
            if exc.errno not in _OUT_OF_RESOURCES:
                raise
            loop.call_exception_handler(
                {
                    "message": "socket.accept() out of system resource",
                    "exception": exc,
                    "socket": trsock.TransportSocket(sock),
                }
            )
            # The connection stays queued, and would be reported for ever.
            loop._remove_reader(listener)
            loop.call_later(
                constants.ACCEPT_RETRY_DELAY, _resume, loop, protocol_factory, sock, server, backlog, more
            )
            return
        if accepted is None:
            return
        number, address = accepted
        connection = socket.socket(_family(sock), _KIND, _proto(sock), number)
        # A context of its own, as the task has in which asyncio does this.
        contextvars.copy_context().run(_serve, loop, protocol_factory, connection, address, server)
        if sock.fileno() != listener:
            return  # the factory has closed the server


def _resume(
    loop: Any, protocol_factory: Any, sock: socket.socket, server: Any, backlog: int, more: tuple[Any, ...]
) -> None:
    if sock.fileno() >= 0:  # not closed meanwhile
        loop._start_serving(protocol_factory, sock, None, server, backlog, *more)


def _serve(loop: Any, protocol_factory: Any, connection: socket.socket, address: Any, server: Any) -> None:
    """Give a connection its protocol and transport. What fails is told in debug mode alone, as asyncio does it."""
    try:
        protocol = protocol_factory()
        loop._make_socket_transport(connection, protocol, extra={"peername": address}, server=server)
    except (SystemExit, KeyboardInterrupt):
        connection.close()
        raise
    except BaseException:
        connection.close()
