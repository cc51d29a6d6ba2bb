"""What stands below Tornado's web layer: a delegate that answers each request with the same bytes."""

from __future__ import annotations

from typing import Any

from tornado import httputil

HEADERS = {"Content-Type": "text/plain", "Content-Length": "12"}


class Answer(httputil.HTTPMessageDelegate):
    """Answers one request when it is whole."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def headers_received(self, start_line: Any, headers: httputil.HTTPHeaders) -> None:
        """Nothing is asked of the head."""

    def finish(self) -> None:
        """Answer."""
        line = httputil.ResponseStartLine("HTTP/1.1", 200, "OK")
        self.connection.write_headers(line, httputil.HTTPHeaders(HEADERS), b"hello world\n")
        self.connection.finish()


class Nothing(httputil.HTTPServerConnectionDelegate):
    """An application that does nothing but answer."""

    def start_request(self, server_conn: object, request_conn: Any) -> httputil.HTTPMessageDelegate:
        """A request begins."""
        return Answer(request_conn)


app = Nothing()
