"""A publisher for one RabbitMQ exchange: prepared frames, one write for all that a turn of the loop publishes, and
publisher confirms counted in batches (AMQP 0-9-1; the broker's extension "publisher confirms").

``publish`` returns when the broker has confirmed the message. A lost connection fails every waiting message.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable
from urllib.parse import unquote, urlsplit

#: Kinds of frames (AMQP 0-9-1, 2.3.5), and the byte that ends each.
METHOD, HEADER, BODY, END = 1, 2, 3, b"\xce"
#: Bytes of a frame before and after its payload.
FRAME = 8
CHANNEL = 1
#: Class and method numbers of the handshake, and of what a broker says of published messages.
START, START_OK, TUNE, TUNE_OK = (10, 10), (10, 11), (10, 30), (10, 31)
OPEN, OPEN_OK, CHANNEL_OPEN, CHANNEL_OPEN_OK = (10, 40), (10, 41), (20, 10), (20, 11)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)
PUBLISH, ACK, NACK = (60, 40), (60, 80), (60, 120)


class BrokerError(Exception):
    """The broker refused something, or the connection to it was lost."""


def short(text: str) -> bytes:
    """A short string."""
    data = text.encode()
    return bytes([len(data)]) + data


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return struct.pack("!BHI", kind, channel, len(payload)) + payload + END


def method(channel: int, name: tuple[int, int], arguments: bytes = b"") -> bytes:
    """A method frame."""
    return frame(METHOD, channel, struct.pack("!HH", *name) + arguments)


class Publisher:
    """Publishes to one exchange; made by ``connect``."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: str, frame_max: int
    ) -> None:
        self._reader, self._writer = reader, writer
        self._body_max = frame_max - FRAME
        self._head = method(CHANNEL, PUBLISH, struct.pack("!H", 0) + short(exchange) + short("") + b"\0")
        self._pieces: list[bytes] = []
        #: Messages that are not confirmed, in the order of their tags; the first has the tag ``_first``.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._first = 1
        self._loop = asyncio.get_running_loop()
        self._error: BrokerError | None = None
        self._task = self._loop.create_task(self._read())

    def publish(self, body: bytes) -> Awaitable[None]:
        """Publish a message; done when the broker has confirmed it.

        :raises BrokerError: when the broker did not take it; ``ValueError`` for a body longer than one frame.
        """
        if self._error is not None:
            raise self._error
        if len(body) > self._body_max:
            raise ValueError(f"a body of {len(body)} bytes: at most {self._body_max}")
        if not self._pieces:
            self._loop.call_soon(self._flush)
        header = frame(HEADER, CHANNEL, struct.pack("!HHQH", PUBLISH[0], 0, len(body), 0))
        self._pieces += (self._head, header, frame(BODY, CHANNEL, body))
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        return waiting

    def _flush(self) -> None:
        """Send all that this turn of the loop published."""
        self._writer.write(b"".join(self._pieces))
        self._pieces.clear()

    async def _read(self) -> None:
        """Take the broker's confirms until the connection ends."""
        try:
            while True:
                kind, payload = await read_frame(self._reader)
                if kind == METHOD:
                    self._take((int.from_bytes(payload[:2]), int.from_bytes(payload[2:4])), payload[4:])
        except (OSError, asyncio.IncompleteReadError, BrokerError) as error:
            self._error = BrokerError(f"the connection to the broker was lost: {error}")
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(self._error)
            self._writer.close()

    def _take(self, name: tuple[int, int], arguments: bytes) -> None:
        """What the broker says of messages: one tag, or all up to it."""
        if name not in (ACK, NACK):
            raise BrokerError(f"unexpected method {name}")
        tag, several = int.from_bytes(arguments[:8]), arguments[8] & 1
        if several:
            confirmed = [self._waiting.popleft() for _ in range(tag - self._first + 1)]
            self._first = tag + 1
        else:
            # Confirms may come out of order: one in the middle leaves a hole that the next ones pass over.
            confirmed = [self._waiting[tag - self._first]]
        for waiting in confirmed:
            if waiting.done():
                continue
            if name == ACK:
                waiting.set_result(None)
            else:
                waiting.set_exception(BrokerError("the broker did not take the message"))
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
            self._first += 1


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The kind and payload of the next frame."""
    kind, _channel, size = struct.unpack("!BHI", await reader.readexactly(7))
    payload = await reader.readexactly(size + 1)
    if payload[-1:] != END:
        raise BrokerError("a frame does not end where it should")
    return kind, payload[:-1]


async def expect(reader: asyncio.StreamReader, name: tuple[int, int]) -> bytes:
    """The arguments of the next method, which has to be this one."""
    _kind, payload = await read_frame(reader)
    got = (int.from_bytes(payload[:2]), int.from_bytes(payload[2:4]))
    if got != name:
        raise BrokerError(f"method {got} in place of {name}: {payload[4:200]!r}")
    return payload[4:]


async def connect(url: str, exchange: str) -> Publisher:
    """Connect to a broker and open a channel with confirms.

    :param url: ``amqp://USER:PASSWORD@HOST:PORT/VHOST``.
    :param exchange: where messages go.
    :raises BrokerError: when the broker refuses.
    """
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 5672)
    writer.write(b"AMQP\0\0\x09\x01")
    await expect(reader, START)
    login = f"\0{unquote(parts.username or 'guest')}\0{unquote(parts.password or 'guest')}".encode()
    answer = struct.pack("!I", 0) + short("PLAIN") + struct.pack("!I", len(login)) + login + short("en_US")
    writer.write(method(0, START_OK, answer))
    channels, frame_max, _heartbeat = struct.unpack("!HIH", await expect(reader, TUNE))
    # No heartbeats: the connection lives as long as the server that holds it.
    writer.write(method(0, TUNE_OK, struct.pack("!HIH", channels, frame_max, 0)))
    writer.write(method(0, OPEN, short(unquote(parts.path[1:]) or "/") + short("") + b"\0"))
    await expect(reader, OPEN_OK)
    writer.write(method(CHANNEL, CHANNEL_OPEN, short("")))
    await expect(reader, CHANNEL_OPEN_OK)
    writer.write(method(CHANNEL, CONFIRM_SELECT, b"\0"))
    await expect(reader, CONFIRM_SELECT_OK)
    return Publisher(reader, writer, exchange, frame_max)
