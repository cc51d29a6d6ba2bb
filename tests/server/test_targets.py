"""Requests in absolute form: the Host that applications see is the target's (RFC 9112 section 3.2.2)."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

APPLICATION = """
import tornado.web

async def asgi(scope, receive, send):
    if scope["type"] == "http":
        body = b"|".join(value for name, value in scope["headers"] if name == b"host") + scope["path"].encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

def wsgi(environ, start_response):
    start_response("200 OK", [])
    return [(environ["HTTP_HOST"] + environ["PATH_INFO"]).encode()]

class Host(tornado.web.RequestHandler):
    def get(self):
        self.write(self.request.headers["Host"] + self.request.path)

tornado_application = tornado.web.Application([("/x", Host)])
"""


@pytest.mark.parametrize("attribute", ["asgi", "wsgi", "tornado_application"])
def test_the_host_of_an_absolute_target(serve, tmp_path: Path, attribute: str) -> None:
    pytest.importorskip("tornado")
    tmp_path.joinpath("hosts.py").write_text(APPLICATION)
    with serve(f"hosts:{attribute}", tmp_path) as running:

        def ask(request: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", running.port), timeout=10) as client:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: client.recv(65536), b""))

        assert ask(b"GET http://Other:81/x HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nOther:81/x")
        field = b"Host: other:81\r\nConnection: close\r\n\r\n"
        assert b"other:81/x" in ask(b"GET http://other:81/x HTTP/1.1\r\n" + field)
        assert ask(b"GET http://another/x HTTP/1.1\r\n" + field).startswith(b"HTTP/1.1 400 ")
        assert b"other:81/x" in ask(b"GET /x HTTP/1.1\r\n" + field)
