"""Tornado applications: what the native side leaves to Python, as it is not done at every request."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import socket
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from tornado import http1connection, httpserver, httputil, iostream, netutil

logger = logging.getLogger("headrace.error")

#: Deliveries that are not done: asyncio itself holds tasks only weakly.
_running: set[asyncio.Task[None]] = set()

#: Streams that handlers took, and those of them that speak WebSocket.
_detached: weakref.WeakSet[iostream.IOStream] = weakref.WeakSet()
_web_sockets: weakref.WeakSet[iostream.IOStream] = weakref.WeakSet()

#: A whole Close frame with 1012, "service restart" (RFC 6455 section 5.5.1).
CLOSE_FRAME = b"\x88\x02\x03\xf4"

#: Bytes that ``data_received`` gets at most, where the application's server says nothing: as in Tornado's own.
CHUNK_SIZE = 64 * 1024

#: Bytes that a packed body may be unpacked to where the application's server says nothing: as in Tornado's own.
UNPACKED_SIZE = 100 * 1024 * 1024

#: Seconds that a client is given to take it.
CLOSE_TIMEOUT = 0.5


class Context:
    """Who is at the other end of a connection, as ``HTTPServerRequest`` and ``xheaders`` ask for it.

    :param peer: the client's address and port; None for a Unix socket's.
    :param protocol: "http" or "https", where the application's server says so.
    :param trusted: addresses of proxies that are passed over in ``X-Forwarded-For``.
    :param chunk_size: bytes that ``data_received`` gets at most.
    """

    def __init__(
        self,
        peer: tuple[str, int] | None,
        protocol: str = "http",
        trusted: frozenset[str] = frozenset(),
        chunk_size: int = CHUNK_SIZE,
    ) -> None:
        self.chunk_size = chunk_size
        self.address = peer
        # Tornado's own server says the same of a Unix socket's clients.
        self.remote_ip = peer[0] if peer is not None else "0.0.0.0"
        self.protocol = protocol
        self._own = (self.remote_ip, self.protocol)
        self._trusted = trusted

    def __str__(self) -> str:
        return self.remote_ip if self.address is not None else ""

    # Called by tornado.httpserver's adapter where its server was made with xheaders.

    def _apply_xheaders(self, headers: httputil.HTTPHeaders) -> None:
        """Believe what a proxy says of the client: ``X-Real-Ip`` before ``X-Forwarded-For``'s last address that is not
        a trusted proxy's; ``X-Scheme`` before ``X-Forwarded-Proto``'s last word. What is no address or scheme is
        passed over.
        """
        hops = [hop.strip() for hop in headers.get("X-Forwarded-For", self.remote_ip).split(",")]
        client = next((hop for hop in reversed(hops) if hop not in self._trusted), hops[0])
        client = headers.get("X-Real-Ip", client)
        if netutil.is_valid_ip(client):
            self.remote_ip = client
        scheme = headers.get("X-Scheme", headers.get("X-Forwarded-Proto", ""))
        scheme = scheme.rpartition(",")[2].strip()
        if scheme in ("http", "https"):
            self.protocol = scheme

    def _unapply_xheaders(self) -> None:
        self.remote_ip, self.protocol = self._own


class Hosting:
    """An application, and what its ``tornado.httpserver.HTTPServer`` was told where it comes in one.

    :param application: a ``tornado.web.Application``, another ``HTTPServerConnectionDelegate``, or an ``HTTPServer``
        that does not listen. Of its arguments ``xheaders``, ``trusted_downstream``, ``protocol``, ``max_body_size``,
        ``body_timeout``, ``no_keep_alive``, ``chunk_size`` and ``decompress_request`` are followed; the others' place
        is taken by options of ``headrace serve``.
    """

    def __init__(self, application: httputil.HTTPServerConnectionDelegate) -> None:
        self._application = application
        self._protocol = "http"
        self._trusted: frozenset[str] = frozenset()
        self._chunk_size = CHUNK_SIZE
        self.start_request: Callable[[Any, Any], httputil.HTTPMessageDelegate] = application.start_request
        if isinstance(application, httpserver.HTTPServer):
            self._protocol = application.protocol or "http"
            self._trusted = frozenset(application.trusted_downstream or ())
            self._parameters = application.conn_params
            self._chunk_size = self._parameters.chunk_size
            self.start_request = self._start_request

    def context(self, peer: tuple[str, int] | None) -> Context:
        """The context of a new connection."""
        return Context(peer, self._protocol, self._trusted, self._chunk_size)

    def _start_request(self, server: Any, connection: Any) -> httputil.HTTPMessageDelegate:
        """Begin a request with the parameters of the application's own server."""
        parameters = self._parameters
        if parameters.max_body_size is not None:
            connection.set_max_body_size(parameters.max_body_size)
        if parameters.body_timeout is not None:
            connection.set_body_timeout(parameters.body_timeout)
        if parameters.no_keep_alive:
            connection.end_after_answer()
        delegate = self._application.start_request(server, connection)
        if parameters.decompress:
            return _unzipping(delegate, parameters)
        return delegate


def _unzipping(
    delegate: httputil.HTTPMessageDelegate, parameters: http1connection.HTTP1ConnectionParameters
) -> httputil.HTTPMessageDelegate:
    """A delegate that gets what gzip has packed as it was before."""
    limits: list[int] = [parameters.chunk_size]
    if len(inspect.signature(http1connection._GzipMessageDelegate).parameters) > len(limits) + 1:
        # From Tornado 6.6 on, what is unpacked has a limit too.
        limits.append(parameters.max_body_size or UNPACKED_SIZE)
    return http1connection._GzipMessageDelegate(delegate, *limits)


class Stream:
    """What handlers use of ``request.connection.stream``: a look at the socket, and its end."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: socket.socket | None = None

    @property
    def socket(self) -> socket.socket | None:
        """The connection's socket, for its addresses and options; None once it is closed. It must not be read from or
        written to.
        """
        if self._socket is None and (descriptor := self._connection.duplicate()) is not None:
            self._socket = socket.socket(fileno=descriptor)
        return self._socket

    def closed(self) -> bool:
        """Whether the client has gone."""
        return bool(self._connection.gone)

    def close(self) -> None:
        """Close the connection at once."""
        self._connection.close()

    def set_nodelay(self, value: bool) -> None:
        """No-op: small writes are never held back on the server's connections."""

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """Have `callback` called when the client goes away during this request."""
        self._connection.set_close_callback(callback)


def headers_have_known_shape() -> bool:
    """Whether this Tornado's ``HTTPHeaders`` is the two dictionaries that the native side fills directly."""
    headers = httputil.HTTPHeaders()
    fresh = dict(vars(headers))
    headers.add("x-some-name", "value")
    return fresh == {"_as_list": {}, "_combined_cache": {}} and vars(headers) == {
        "_as_list": {"X-Some-Name": ["value"]},
        "_combined_cache": {},
    }


def deliver(delegate: httputil.HTTPMessageDelegate, connection: Any, waiting: Awaitable[None] | None) -> None:
    """Hand a request's body to its delegate as it comes.

    :param waiting: what ``headers_received`` returned: it is awaited first.
    """
    task = asyncio.get_running_loop().create_task(_deliver(delegate, connection, waiting))
    _running.add(task)
    task.add_done_callback(_running.discard)


async def _deliver(
    delegate: httputil.HTTPMessageDelegate, connection: Any, waiting: Awaitable[None] | None
) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    size = connection.context.chunk_size
    try:
        if waiting is not None:
            await waiting
        while not connection.over:
            chunk = connection.read_body()
            if chunk is None:
                delegate.finish()
                return
            if isinstance(chunk, bytes):
                for at in range(0, len(chunk), size):
                    waiting = delegate.data_received(chunk[at : at + size])
                    if waiting is not None:
                        await waiting
            elif connection.body_timeout is None:
                await chunk
            else:
                async with asyncio.timeout_at(started + connection.body_timeout):
                    await chunk
        delegate.on_connection_close()
    except TimeoutError:
        connection.fail(408)
        delegate.on_connection_close()
    except OSError:
        delegate.on_connection_close()
    except httputil.HTTPInputError as error:
        logger.info("Malformed HTTP message: %s", error)
        connection.fail(400)
    except Exception as error:
        logger.error("Exception in Tornado application", exc_info=error)
        connection.fail(500)


def stream_closed() -> asyncio.Future[None]:
    """What a write to a client that has gone returns."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(iostream.StreamClosedError())
    # Nobody need look at it.
    future.exception()
    return future


def output_error(reason: str) -> Exception:
    """The exception of an answer that does not keep to its own head."""
    return httputil.HTTPOutputError(reason)


def stream(descriptor: int, head: bytes, unread: bytes) -> iostream.IOStream:
    """A stream on a connection that the server has given up.

    :param head: the answer's head, to be sent first.
    :param unread: what was read from the client already.
    """
    detached = iostream.IOStream(socket.socket(fileno=descriptor))
    _detached.add(detached)
    if b"upgrade: websocket" in head.lower():
        _web_sockets.add(detached)
    detached._read_buffer += unread
    detached._read_buffer_size = len(unread)
    if head:
        detached.write(head)
    return detached


async def close_streams() -> None:
    """Close what handlers took out of the server, so that their ``on_close`` and ``on_connection_close`` run."""
    streams = [each for each in _detached if not each.closed()]
    for each in streams:
        if each in _web_sockets:
            # Tornado writes whole frames, between which a control frame may stand (RFC 6455 section 5.4).
            with contextlib.suppress(iostream.StreamClosedError):
                await asyncio.wait([asyncio.ensure_future(each.write(CLOSE_FRAME))], timeout=CLOSE_TIMEOUT)
        each.close()
    # The streams' close callbacks are called by the loop.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
