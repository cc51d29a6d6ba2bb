"""Applications that answer with what they were asked: the vectors' tests look at it from the other side."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer once the whole body is there; nothing when the client goes before."""
    if scope["type"] != "http":
        return
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
    answer = {
        "method": scope["method"],
        "version": scope["http_version"],
        "target": (
            scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        ).hex(),
        "fields": [(name.hex(), value.hex()) for name, value in scope["headers"]],
        "body": body.hex(),
    }
    content = json.dumps(answer).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def wsgi(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """The same, as far as the environ tells."""
    body = environ["wsgi.input"].read()
    answer = {
        "method": environ["REQUEST_METHOD"],
        "version": environ["SERVER_PROTOCOL"].removeprefix("HTTP/"),
        "body": body.hex(),
    }
    content = json.dumps(answer).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
    return [content]
