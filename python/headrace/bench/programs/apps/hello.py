"""The applications that say hello and little more, for ASGI and WSGI servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

HELLO = b"hello world\n"
#: Bodies of the path's size: ``/1024`` is answered with 1,024 bytes.
BODIES = {f"/{size}": b"x" * size for size in (1024, 10240, 102400)}

Receive = Callable[[], Any]
Send = Callable[[dict[str, Any]], Any]
Environ = dict[str, Any]
Start = Callable[[str, list[tuple[str, str]]], Any]


async def lifespan(receive: Receive, send: Send) -> None:
    """Answer a server's start and end."""
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def answer(send: Send, body: bytes) -> None:
    """Send one whole answer."""
    length = str(len(body)).encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def asgi(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Hello, or the body of the path's size."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    await answer(send, BODIES.get(scope["path"], HELLO))


async def asgi_post(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Read the whole body and answer its length."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    length = 0
    while True:
        message = await receive()
        length += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await answer(send, b"%d\n" % length)


async def asgi_stream(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Sixteen pieces of 4 KB, each sent by itself."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    headers = [(b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for _ in range(16):
        await send({"type": "http.response.body", "body": b"x" * 4096, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def asgi_websocket(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Echo messages."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    if scope["type"] == "http":
        await answer(send, HELLO)
        return
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("bytes") is not None:
            await send({"type": "websocket.send", "bytes": message["bytes"]})
        else:
            await send({"type": "websocket.send", "text": message["text"]})


def wsgi(environ: Environ, start_response: Start) -> Iterable[bytes]:
    """Hello, or the body of the path's size."""
    body = BODIES.get(environ["PATH_INFO"], HELLO)
    start_response("200 OK", [("content-type", "text/plain"), ("content-length", str(len(body)))])
    return [body]


def wsgi_post(environ: Environ, start_response: Start) -> Iterable[bytes]:
    """Read the whole body and answer its length."""
    left = int(environ.get("CONTENT_LENGTH") or 0)
    length = 0
    while left > length:
        piece = environ["wsgi.input"].read(min(65536, left - length))
        if not piece:
            break
        length += len(piece)
    body = b"%d\n" % length
    start_response("200 OK", [("content-type", "text/plain"), ("content-length", str(len(body)))])
    return [body]


def wsgi_stream(environ: Environ, start_response: Start) -> Iterable[bytes]:
    """Sixteen pieces of 4 KB, each given by itself."""
    start_response("200 OK", [("content-type", "text/plain")])
    return (b"x" * 4096 for _ in range(16))
