"""Checks of the right answer, made in full before a contender is measured and again after each block.

They speak the protocols by the standard library, not by anything of Headrace's: a check must not share the faults
of what it checks.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import Any

from headrace.bench.model import Check, Endpoint, WrongAnswer

#: Seconds that an answer may take before it counts as none.
TIMEOUT = 10.0
#: The constant that RFC 6455 section 1.3 joins to the key.
WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def connect(endpoint: Endpoint) -> socket.socket:
    """A connected stream socket."""
    if endpoint.path:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.settimeout(TIMEOUT)
        stream.connect(endpoint.path)
        return stream
    return socket.create_connection((endpoint.host, endpoint.port), TIMEOUT)


def receive(stream: socket.socket, count: int) -> bytes:
    """Exactly ``count`` bytes, or what came before the peer closed."""
    got = bytearray()
    while len(got) < count:
        piece = stream.recv(min(65536, count - len(got)))
        if not piece:
            break
        got += piece
    return bytes(got)


def echo(size: int, tls: bool = False, lines: int = 0) -> Check:
    """The check of an echo: three different messages on one connection come back byte for byte.

    :param size: bytes of a message.
    :param tls: whether the connection is TLS (the certificate is the bench's own: not verified).
    :param lines: when given, the message is this many lines.
    """

    def check(endpoint: Endpoint) -> None:
        with _secured(connect(endpoint), tls) as stream:
            for _ in range(3):
                message = os.urandom(size // 2).hex().encode().ljust(size, b"x")
                if lines:
                    each = size // lines
                    message = b"".join(message[i * each : (i + 1) * each - 1] + b"\n" for i in range(lines))
                stream.sendall(message)
                got = receive(stream, len(message))
                if got != message:
                    raise WrongAnswer(f"sent {len(message)} bytes, {_difference(message, got)}")

    return check


def datagram_echo(size: int) -> Check:
    """The check of a UDP echo."""

    def check(endpoint: Endpoint) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
            stream.settimeout(TIMEOUT)
            message = os.urandom(size)
            stream.sendto(message, (endpoint.host, endpoint.port))
            got = stream.recv(65536)
            if got != message:
                raise WrongAnswer(f"sent {size} bytes, {_difference(message, got)}")

    return check


def http_answer(
    path: str,
    body: bytes | Callable[[bytes], None],
    *,
    method: str = "GET",
    sent: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    content_type: str = "",
    timeout: float = TIMEOUT,
) -> Check:
    """The check of an HTTP answer: status 200, the body in full, twice on one connection.

    :param path: the path asked for.
    :param body: the right body, or what raises ``WrongAnswer`` for a wrong one.
    :param sent: the request's body.
    :param content_type: what the field ``Content-Type`` has to begin with.
    :param timeout: seconds that an answer may take.
    """

    def check(endpoint: Endpoint) -> None:
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout)
        try:
            for _ in range(2):
                connection.request(method, path, body=sent, headers=dict(headers or {}))
                answer = connection.getresponse()
                got = answer.read()
                if answer.status != 200:
                    raise WrongAnswer(f"status {answer.status} for {method} {path}: {got[:200]!r}")
                if content_type and not (answer.getheader("content-type") or "").startswith(content_type):
                    raise WrongAnswer(
                        f"content-type {answer.getheader('content-type')!r}, not {content_type}"
                    )
                if callable(body):
                    body(got)
                elif got != body:
                    raise WrongAnswer(f"{method} {path}: {_difference(body, got)}")
        except (http.client.HTTPException, OSError) as error:
            raise WrongAnswer(f"{method} {path}: {type(error).__name__}: {error}") from None
        finally:
            connection.close()

    return check


def json_body(wanted: Any) -> Callable[[bytes], None]:
    """The check of a JSON body: white space and the order of keys may differ, nothing else."""

    def check(got: bytes) -> None:
        try:
            value = json.loads(got)
        except ValueError:
            raise WrongAnswer(f"not JSON: {got[:200]!r}") from None
        if value != wanted:
            raise WrongAnswer(f"{value!r}, not {wanted!r}")

    return check


def redis_commands(*exchanges: tuple[tuple[bytes, ...], bytes]) -> Check:
    """The check of a Redis-protocol server: each command and its answer as raw bytes."""

    def check(endpoint: Endpoint) -> None:
        with connect(endpoint) as stream:
            for words, wanted in exchanges:
                parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
                stream.sendall(b"".join(parts))
                got = receive(stream, len(wanted))
                if got != wanted:
                    raise WrongAnswer(f"{b' '.join(words)!r} was answered {got!r}, not {wanted!r}")

    return check


def websocket_echo(path: str, size: int) -> Check:
    """The check of a WebSocket echo of one binary message (RFC 6455), by hand."""

    def check(endpoint: Endpoint) -> None:
        with connect(endpoint) as stream:
            key = base64.b64encode(os.urandom(16))
            stream.sendall(
                b"GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n" % (path.encode(), key)
            )
            head = b""
            while b"\r\n\r\n" not in head:
                piece = stream.recv(1)
                if not piece:
                    raise WrongAnswer(f"closed during the handshake: {head!r}")
                head += piece
            accept = base64.b64encode(hashlib.sha1(key + WEBSOCKET_GUID, usedforsecurity=False).digest())
            if not head.startswith(b"HTTP/1.1 101") or accept.lower() not in head.lower():
                raise WrongAnswer(f"the handshake was answered {head[:100]!r}")
            message = os.urandom(size)
            mask = os.urandom(4)
            masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(message))
            stream.sendall(b"\x82" + _length(size, 0x80) + mask + masked)
            wanted = b"\x82" + _length(size, 0) + message
            got = receive(stream, len(wanted))
            if got != wanted:
                raise WrongAnswer(f"the echo of {size} bytes: {_difference(wanted, got)}")

    return check


def _length(size: int, mask_bit: int) -> bytes:
    """The length field of a WebSocket frame."""
    if size < 126:
        return bytes([mask_bit | size])
    if size < 65536:
        return bytes([mask_bit | 126]) + struct.pack("!H", size)
    return bytes([mask_bit | 127]) + struct.pack("!Q", size)


def _secured(stream: socket.socket, tls: bool) -> socket.socket:
    """The stream, within TLS when asked for."""
    if not tls:
        return stream
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(stream)


def _difference(wanted: bytes, got: bytes) -> str:
    """Where two byte strings part, in words."""
    if len(got) != len(wanted):
        return f"got {len(got)} bytes, not {len(wanted)}: {got[:80]!r}"
    first = next(i for i, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b)
    return f"byte {first} is {got[first : first + 20]!r}, not {wanted[first : first + 20]!r}"
