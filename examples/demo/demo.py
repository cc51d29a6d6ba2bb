"""A small ASGI application to look at in a browser, on the standard library alone.

headrace serve demo:app

It has what most services have: pages, JSON, a posted body, an answer that is longer than memory should hold, and a
database. `ROUTES` is the whole map; each handler sends its own answer.
"""

from __future__ import annotations

import asyncio
import json
import platform
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import parse_qs

from readings import Readings, csv_blocks

Scope = Mapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

STATIC = Path(__file__).parent / "static"
PAGE = Template(STATIC.joinpath("page.html").read_text(encoding="utf-8"))

#: A posted body is held in memory to be sent back: no more than this many bytes.
LARGEST_ECHO = 1 << 20

#: Types that /echo gives back as they came; all others come back as bytes that no browser will run.
ECHO_TYPES = {"text/plain", "application/json", "application/x-www-form-urlencoded"}

readings = Readings()


class BadRequest(Exception):
    """The client's mistake: its text is the answer."""


@dataclass(frozen=True)
class Route:
    """One line of the start page, and what answers it."""

    method: str
    path: str
    title: str
    about: str
    handler: Callable[[Scope, Receive, Send], Awaitable[None]]


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request, or live through one server's life."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http":
        await answer(scope, receive, send)
    else:
        raise NotImplementedError(f"this application has no {scope['type']}")


async def lifespan(receive: Receive, send: Send) -> None:
    """Create the database when the server starts, remove it when it stops."""
    await receive()
    try:
        await readings.open()
    except OSError as error:
        await send({"type": "lifespan.startup.failed", "message": f"the demo database: {error}"})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await readings.close()
    await send({"type": "lifespan.shutdown.complete"})


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Find the route; 404 and 405 are plain lines of text."""
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    routes = {route.method: route for route in (*ROUTES, *ASSETS) if route.path == scope["path"]}
    if not routes:
        await respond(
            send, f"There is no {scope['path']} here. The start page lists what is: /\n", status=404
        )
    elif method not in routes:
        allowed = ", ".join(sorted({*routes, *(["HEAD"] if "GET" in routes else [])}))
        await respond(send, f"{scope['path']} takes {allowed}.\n", status=405, headers={"allow": allowed})
    else:
        try:
            await routes[method].handler(scope, receive, send)
        except BadRequest as error:
            await respond(send, f"{error}\n", status=400)


async def respond(
    send: Send,
    body: str | bytes,
    kind: str = "text/plain; charset=utf-8",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send a whole answer."""
    data = body.encode() if isinstance(body, str) else body
    fields = {"content-type": kind, "content-length": str(len(data)), "x-content-type-options": "nosniff"}
    await start(send, status, {**fields, **(headers or {})})
    await send({"type": "http.response.body", "body": data})


async def start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    """Send a head."""
    fields = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})


def number(scope: Scope, name: str, default: int, low: int, high: int) -> int:
    """A whole number from the query string."""
    given = parse_qs(scope["query_string"].decode("latin-1")).get(name, [str(default)])[-1]
    if not (given.isascii() and given.isdigit() and len(given) < 10 and low <= int(given) <= high):
        raise BadRequest(f"{name} must be a whole number from {low} to {high}")
    return int(given)


# --- Handlers -------------------------------------------------------------------------------------


def facts(scope: Scope) -> dict[str, str]:
    """What serves this request."""
    loop = type(asyncio.get_running_loop())
    client = scope.get("client")
    return {
        "Event loop": f"{loop.__module__}.{loop.__qualname__}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Protocol": f"HTTP/{scope['http_version']}, ASGI {scope['asgi']['version']}",
        "You are": f"{client[0]}, port {client[1]}" if client else "on a Unix socket",
    }


async def start_page(scope: Scope, receive: Receive, send: Send) -> None:
    """The list of routes, made from ROUTES."""
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts(scope).items()
    )
    cards = "".join(
        f'<li class="route" data-method="{route.method}" data-path="{route.path}">'
        f"<h2>{escape(route.title)}</h2>"
        f'<p class="where"><span class="method">{route.method}</span> '
        + (
            f'<a href="{route.path}">{route.path}</a>'
            if route.method == "GET"
            else f"<span>{route.path}</span>"
        )
        + f"</p><p>{escape(route.about)}</p></li>"
        for route in ROUTES
    )
    await respond(send, PAGE.substitute(facts=shown, routes=cards), "text/html; charset=utf-8")


async def text(scope: Scope, receive: Receive, send: Send) -> None:
    """The smallest answer there is."""
    await respond(send, "The headrace carries the stream to the mill wheel.\n")


async def as_json(scope: Scope, receive: Receive, send: Send) -> None:
    """The request, as the application got it."""
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]]
    about = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode("latin-1"),
        "headers": headers,
        "server": facts(scope),
    }
    await respond(send, json.dumps(about, indent=2) + "\n", "application/json")


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """The posted body, byte for byte."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LARGEST_ECHO:
            line = f"That is more than {LARGEST_ECHO} bytes.\n"
            await respond(send, line, status=413, headers={"connection": "close"})
            return
    given = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
    kind = given if given.partition(";")[0].strip().lower() in ECHO_TYPES else "application/octet-stream"
    await respond(send, bytes(body), kind)


async def download(scope: Scope, receive: Receive, send: Send) -> None:
    """A file that never exists as a whole: each block is made when the last one has been taken."""
    megabytes = number(scope, "megabytes", 8, 1, 1024)
    fields = {
        "content-type": "text/csv; charset=utf-8",
        "content-disposition": 'attachment; filename="readings.csv"',
    }
    await start(send, 200, fields)
    if scope["method"] != "HEAD":
        for block in csv_blocks(megabytes << 20):
            await send({"type": "http.response.body", "body": block, "more_body": True})
            await asyncio.sleep(
                0
            )  # a fast client never makes `send` wait: let the other requests have their turn
    await send({"type": "http.response.body"})


async def rows(scope: Scope, receive: Receive, send: Send) -> None:
    """A page of rows from SQLite, which runs in a thread of its own."""
    after = number(scope, "after", 0, 0, 999_999_999)
    limit = number(scope, "limit", 12, 1, 100)
    found = await readings.rows(after, limit)
    following = f"/rows?after={found[-1]['id']}&limit={limit}" if len(found) == limit else None
    await respond(send, json.dumps({"rows": found, "next": following}, indent=2) + "\n", "application/json")


def static(name: str, kind: str) -> Route:
    """A route to a file of the start page."""
    content = STATIC.joinpath(name).read_bytes()

    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, content, kind)

    return Route("GET", f"/{name}", name, "", handler)


#: What the start page lists.
ROUTES = (
    Route("GET", "/", "This page", "HTML, made for each request from the table of routes.", start_page),
    Route("GET", "/text", "Text", "One line: the smallest answer there is.", text),
    Route("GET", "/json", "JSON", "Your request, as the application got it, and what serves it.", as_json),
    Route("POST", "/echo", "Echo", "Whatever you post comes back, byte for byte.", echo),
    Route(
        "GET",
        "/download",
        "Streamed download",
        "A CSV file, made while you take it (?megabytes=8).",
        download,
    ),
    Route("GET", "/rows", "Rows from SQLite", "Made-up gauge readings, by pages (?after=0&limit=12).", rows),
)

#: What the start page is made of.
ASSETS = (
    static("page.css", "text/css; charset=utf-8"),
    static("page.js", "text/javascript; charset=utf-8"),
    static("icon.svg", "image/svg+xml"),
)
