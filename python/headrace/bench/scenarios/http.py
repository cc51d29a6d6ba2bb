"""HTTP beyond hello: sizes, posts, streamed answers, pipelining, WebSocket."""

from headrace.bench import checks
from headrace.bench.model import Case, Scenario

KB = 1024
GOOD = ("--expect-status", "200")

HTTP_SIZES = Scenario(
    name="http-sizes",
    summary="bodies of 1, 10 and 100 KB, 300 connections (the second source's)",
    workloads={"asgi": ("hello:asgi",), "wsgi": ("hello:wsgi",), "http": ()},
    cases=tuple(
        Case(
            name=f"{size} KB",
            check=checks.http_answer(f"/{size * KB}", b"x" * (size * KB), content_type="text/plain"),
            url=f"http://{{bind}}/{size * KB}",
            connections=300,
            options=(*GOOD, "--expect-body-length", str(size * KB)),
        )
        for size in (1, 10, 100)
    ),
    baseline="uvicorn",
)

HTTP_POST = Scenario(
    name="http-post",
    summary="posts of 1 and 100 KB, read in full and answered with their length, 64 connections",
    workloads={"asgi": ("hello:asgi_post",), "wsgi": ("hello:wsgi_post",)},
    cases=tuple(
        Case(
            name=f"{size} KB",
            check=checks.http_answer("/", b"%d\n" % (size * KB), method="POST", sent=b"x" * (size * KB)),
            url="http://{bind}/",
            connections=64,
            options=(
                *("--method", "POST", "--body-size", str(size * KB), *GOOD),
                *("--expect-body-length", str(len(b"%d\n" % (size * KB)))),
            ),
        )
        for size in (1, 100)
    ),
    baseline="uvicorn",
)

HTTP_STREAM = Scenario(
    name="http-stream",
    summary="an answer of sixteen pieces of 4 KB, each sent by itself, 64 connections",
    workloads={"asgi": ("hello:asgi_stream",), "wsgi": ("hello:wsgi_stream",)},
    cases=(
        Case(
            name="16 x 4 KB",
            check=checks.http_answer("/", b"x" * (64 * KB)),
            url="http://{bind}/",
            connections=64,
            options=(*GOOD, "--expect-body-length", str(64 * KB)),
        ),
    ),
    baseline="uvicorn",
)

HTTP_PIPELINED = Scenario(
    name="http-pipelined",
    summary="hello, sixteen requests in one piece, 64 connections",
    workloads={"asgi": ("hello:asgi",), "wsgi": ("hello:wsgi",)},
    cases=(
        Case(
            name="16 in a piece",
            check=checks.http_answer("/", b"hello world\n"),
            url="http://{bind}/",
            connections=64,
            options=("--pipeline", "16", *GOOD, "--expect-body-length", "12"),
        ),
    ),
    baseline="uvicorn",
)

WEBSOCKET_ECHO = Scenario(
    name="websocket-echo",
    summary="echo of 256-byte WebSocket messages, 64 connections",
    workloads={"asgi.websocket": ("hello:asgi_websocket",)},
    cases=(
        Case(
            name="256 B",
            check=checks.websocket_echo("/", 256),
            url="ws://{bind}/",
            connections=64,
            options=("--body-size", "256"),
        ),
    ),
    baseline="uvicorn",
    unit="message",
)
