"""Tornado applications: what the native side leaves to Python, as it is not done at every request."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable
from typing import Any

from tornado import httputil, iostream

logger = logging.getLogger("headrace.error")

#: Deliveries that are not done: asyncio itself holds tasks only weakly.
_running: set[asyncio.Task[None]] = set()


class Context:
    """Who is at the other end of a connection, as ``HTTPServerRequest`` asks for it."""

    def __init__(self, peer: tuple[str, int] | None) -> None:
        self.address = peer
        # Tornado's own server says the same of a Unix socket's clients.
        self.remote_ip = peer[0] if peer is not None else "0.0.0.0"
        self.protocol = "http"


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
    try:
        if waiting is not None:
            await waiting
        while not connection.over:
            chunk = connection.read_body()
            if chunk is None:
                delegate.finish()
                return
            if isinstance(chunk, bytes):
                waiting = delegate.data_received(chunk) if chunk else None
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
    detached._read_buffer += unread
    detached._read_buffer_size = len(unread)
    if head:
        detached.write(head)
    return detached
