"""UDP: asyncio's own datagram transport with native hot methods.

``_native._define_datagram_transport`` puts ``_read_ready`` and ``sendto`` on the class below. All else (the write
buffer and how its size is counted, limits, pausing, closing) is inherited, and so is that of the CPython that runs.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import selector_events
from typing import TYPE_CHECKING, Any

from headrace import _native

if TYPE_CHECKING:
    from headrace.loop import Loop

_Plain: Any = selector_events._SelectorDatagramTransport  # type: ignore[attr-defined]


class DatagramTransport(_Plain):  # type: ignore[misc]
    """A UDP socket over IPv4 or IPv6. It reads until the socket is drained, and sends at once."""

    __slots__ = ("_datagram",)

    #: What ``sendto`` calls where the native way ends: nothing is sent yet then.
    _sendto_plain = _Plain.sendto

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(loop, sock, protocol, address, waiter, extra)
        self._datagram = _native.Datagram(
            loop,
            sock.fileno(),
            sock.family == socket.AF_INET6,
            bool(self._extra["peername"]),
            address or None,
        )

    def _call_connection_lost(self, exc: BaseException | None) -> None:
        try:
            super()._call_connection_lost(exc)
        finally:
            self._datagram.release()


_native._define_datagram_transport(DatagramTransport)


def is_native(sock: socket.socket) -> bool:
    """Whether a socket is of a kind that :class:`DatagramTransport` is for."""
    return type(sock) is socket.socket and sock.family in (socket.AF_INET, socket.AF_INET6)
