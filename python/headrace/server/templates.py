"""What a request's scope or environ has in common with all others of its listener."""

from __future__ import annotations

import socket
import sys
from typing import Any

from headrace._native import FileWrapper

#: Keys that a request may add to its environ; see :func:`_with_room`.
_ROOM = 12

#: What a request's application may send beyond the specification's own messages (asgiref, "Extensions").
EXTENSIONS = (
    "http.response.early_hint",
    "http.response.pathsend",
    "http.response.trailers",
    "http.response.zerocopysend",
)


def _with_room(template: dict[str, Any]) -> dict[str, Any]:
    """The template with room in its hash table, which copies inherit: adding to them need not rebuild it."""
    spare = [f"\0{number}" for number in range(_ROOM)]
    template.update(dict.fromkeys(spare))
    for key in spare:
        del template[key]
    return template


def _server(sock: socket.socket) -> tuple[str, int | None]:
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return (name if isinstance(name, str) else name.decode(errors="replace"), None)
    return (name[0], name[1])


def asgi(sock: socket.socket, root_path: str, *, has_state: bool) -> dict[str, Any]:
    """A scope of type "http" (ASGI HTTP specification); the native side fills in what differs."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "root_path": root_path,
        "headers": [],
        "client": None,
        "server": _server(sock),
        "extensions": {name: {} for name in EXTENSIONS},
    }
    if has_state:
        scope["state"] = {}
    return scope


def wsgi(sock: socket.socket, root_path: str, *, multithread: bool, multiprocess: bool) -> dict[str, Any]:
    """An environ (PEP 3333, "environ Variables"); the native side fills in what differs."""
    host, port = _server(sock)
    return _with_room(
        {
            "REQUEST_METHOD": "GET",
            "SCRIPT_NAME": root_path,
            "PATH_INFO": "/",
            "QUERY_STRING": "",
            "SERVER_NAME": host if port is not None else "localhost",
            "SERVER_PORT": str(port) if port is not None else "0",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "SERVER_SOFTWARE": "headrace",
            "REMOTE_ADDR": "",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": None,
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": multithread,
            "wsgi.multiprocess": multiprocess,
            "wsgi.run_once": False,
            "wsgi.input_terminated": True,
            "wsgi.file_wrapper": FileWrapper,
        }
    )
