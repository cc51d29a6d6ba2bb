"""The stream transport's Python half: what happens once or seldom in a connection's life.

Its hot methods (``write``, ``close``, ``pause_reading``, …) are native; ``_native._define_transport`` puts them
on the class below. Both halves follow asyncio's ``_SelectorSocketTransport`` in what a protocol can observe.
"""

from __future__ import annotations

import asyncio
import socket
import warnings
from asyncio import constants, futures, transports, trsock
from asyncio.log import logger
from typing import TYPE_CHECKING, Any

from headrace import _native, streams, tls

if TYPE_CHECKING:
    from headrace.loop import Loop


class SocketTransport(transports._FlowControlMixin, transports.Transport):
    """A connected TCP or Unix stream socket.

    Writes of one callback are sent together when it returns, or at once when no callback of the loop runs.
    ``transport.immediate = True`` sends each write at once, for code that blocks before it returns to the loop.
    """

    # Attributes of a program's own, or of its tests in the place of methods, can be set as on asyncio's.
    __slots__ = ("__dict__", "__weakref__", "_channel", "_server", "_sock", "_sock_fd")

    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.TRY_NATIVE
    max_size = 256 * 1024

    _loop: Any  # the loop; None once the connection is lost
    _channel: _native.Channel
    _sock: socket.socket | None
    _sock_fd: int
    _server: Any
    if TYPE_CHECKING:
        _force_close: Any

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
    ) -> None:
        self._sock = None
        self._sock_fd = sock.fileno()
        self._channel = _native.Channel(loop, self._sock_fd)
        self._extra = {} if extra is None else extra
        self._loop = loop
        self._extra["socket"] = trsock.TransportSocket(sock)
        try:
            self._extra["sockname"] = sock.getsockname()
        except OSError:
            self._extra["sockname"] = None
        if "peername" not in self._extra:
            try:
                self._extra["peername"] = sock.getpeername()
            except OSError:
                self._extra["peername"] = None
        self._channel.immediate = loop.immediate_writes
        self.set_protocol(protocol)
        self._server = None
        if server is not None:
            _attach(server, self)  # fails when the server was closed meanwhile: then there is nothing to undo
            self._server = server
        self._sock = sock
        loop._transports[self._sock_fd] = self
        if sock.family != socket.AF_UNIX:
            # Small writes must not wait for the acknowledgement of earlier ones.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.call_soon(protocol.connection_made, self)
        # Reading starts when connection_made() has been called, and so does whoever waits for the connection.
        loop.call_soon(self._channel.start, self)
        if waiter is not None:
            loop.call_soon(futures._set_result_unless_cancelled, waiter, None)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        info = [self.__class__.__name__]
        if self._sock is None:
            info.append("closed")
        elif self._channel.closing:
            info.append("closing")
        info.append(f"fd={self._sock_fd}")
        if self._loop is not None and not self._loop.is_closed():
            reading, writing = self._loop._watched().get(self._sock_fd, (False, False))
            info.append("read=polling" if reading else "read=idle")
            state = "polling" if writing else "idle"
            info.append(f"write=<{state}, bufsize={self.get_write_buffer_size()}>")
        return f"<{' '.join(info)}>"

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if self._sock is not None:
            _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)
            self._sock.close()
            if self._server is not None:
                _detach(self._server, self)

    # -- what asyncio's own code asks for ---------------------------------------------------------------

    @property
    def immediate(self) -> bool:
        """Whether each write is sent at once, instead of with all others of the running callback."""
        return self._channel.immediate

    @immediate.setter
    def immediate(self, value: bool) -> None:
        self._channel.immediate = value

    @property
    def _protocol(self) -> Any:
        return self._channel.protocol

    @property
    def _closing(self) -> bool:
        return self._channel.closing

    @property
    def _paused(self) -> bool:
        return self._channel.paused

    @property
    def _eof(self) -> bool:
        return self._channel.eof

    @property
    def _conn_lost(self) -> int:
        return self._channel.lost

    @property
    def _protocol_paused(self) -> bool:
        return self._channel.protocol_paused

    @property
    def _low_water(self) -> int:
        return self._channel.limits[0]

    @property
    def _high_water(self) -> int:
        return self._channel.limits[1]

    @property
    def _empty_waiter(self) -> Any:
        return self._channel.empty_waiter

    # -- the rest of asyncio.Transport --------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        loop = self._loop
        native = loop is not None and not loop.get_debug()
        reader = streams.adopt(protocol) if native and loop.native_streams else None
        session = tls.adopt(protocol) if native else None
        self._channel.set_protocol(protocol, isinstance(protocol, asyncio.BufferedProtocol), reader, session)

    def get_protocol(self) -> Any:
        """The current protocol."""
        return self._channel.protocol

    def abort(self) -> None:
        """Close at once; what the kernel has not taken is dropped."""
        self._force_close(None)

    def can_write_eof(self) -> bool:
        """Streams can be half closed."""
        return True

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low- and high-water marks of the write buffer, in bytes."""
        return self._channel.limits

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks at which the protocol is told to stop and to go on writing.

        :param high: above this the protocol is paused; by default 64 KiB, or four times ``low``.
        :param low: at or below this it is resumed; by default a quarter of ``high``.
        """
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._channel.limits = (low, high)
        self._channel.check_limits(self)

    def _make_empty_waiter(self) -> asyncio.Future[None]:
        if self._channel.empty_waiter is not None:
            raise RuntimeError("Empty waiter is already set")
        waiter: asyncio.Future[None] = self._loop.create_future()
        unsent = self.get_write_buffer_size()
        self._channel.empty_waiter = waiter
        if not unsent:
            waiter.set_result(None)
        return waiter

    def _reset_empty_waiter(self) -> None:
        self._channel.empty_waiter = None

    # -- called by the native half ------------------------------------------------------------------------

    def _write_to_lost(self, lost: int) -> None:
        if lost >= constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES:
            logger.warning("socket.send() raised exception.")

    def _flow_control_failed(self, method: str, exc: BaseException) -> None:
        self._loop.call_exception_handler(
            {
                "message": f"protocol.{method}() failed",
                "exception": exc,
                "transport": self,
                "protocol": self._protocol,
            }
        )

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        if isinstance(exc, OSError):
            if self._loop.get_debug():
                logger.debug("%r: %s", self, message, exc_info=exc)
        else:
            self._loop.call_exception_handler(
                {"message": message, "exception": exc, "transport": self, "protocol": self._protocol}
            )
        self._force_close(exc)

    def _call_connection_lost(self, exc: BaseException | None) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            self._protocol.connection_lost(exc)
        finally:
            waiter = self._channel.empty_waiter
            self._channel.release(self)
            sock.close()
            self._sock = None
            self._loop = None
            server, self._server = self._server, None
            if server is not None:
                _detach(server, self)
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionError("Connection is closed by peer"))


if hasattr(asyncio.Server, "close_clients"):  # 3.13: the server knows its transports, not only their number

    def _attach(server: Any, transport: SocketTransport) -> None:
        server._attach(transport)

    def _detach(server: Any, transport: SocketTransport) -> None:
        server._detach(transport)

else:

    def _attach(server: Any, transport: SocketTransport) -> None:
        server._attach()

    def _detach(server: Any, transport: SocketTransport) -> None:
        server._detach()


_native._define_transport(SocketTransport)
