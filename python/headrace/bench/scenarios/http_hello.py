"""The smallest web application on each server: what the server itself costs."""

from headrace.bench import checks
from headrace.bench.model import Case, Scenario

HTTP_HELLO = Scenario(
    name="http-hello",
    summary="12 bytes of text from an ASGI or WSGI application, 64 connections",
    workloads={"asgi": ("hello:asgi",), "wsgi": ("hello:wsgi",)},
    cases=(
        Case(
            name="12 B",
            check=checks.http_answer("/", b"hello world\n", content_type="text/plain"),
            url="http://{bind}/",
            connections=64,
            options=("--expect-status", "200", "--expect-body-length", "12"),
        ),
    ),
    baseline="uvicorn",
)
