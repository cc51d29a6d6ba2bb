"""The ASGI extensions: files, early hints and trailers, on the wire and as an application is told of misuse."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

APPLICATION = """
import asyncio, json, os, socket
from pathlib import Path
from urllib.parse import parse_qs

FILE = Path(__file__).parent / "file.bin"
seen = {}

async def start(send, headers=(), **more):
    await send({"type": "http.response.start", "status": 200, "headers": list(headers), **more})

async def body(send, body=b"", more_body=False):
    await send({"type": "http.response.body", "body": body, "more_body": more_body})

async def path(send, path=FILE):
    await send({"type": "http.response.pathsend", "path": str(path)})

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise RuntimeError("no lifespan here")
    words = {key: values[0] for key, values in parse_qs(scope["query_string"].decode()).items()}
    try:
        await globals()[scope["path"][1:].replace("-", "_")](scope, send, **words)
    except Exception as error:
        seen["error"] = f"{type(error).__name__}: {error}"
        raise

async def extensions(scope, send):
    before = dict(scope["extensions"])
    scope["extensions"]["mine"] = {}
    await start(send)
    await body(send, json.dumps(before).encode())

async def last_error(scope, send):
    await start(send)
    await body(send, json.dumps(seen.pop("error", None)).encode())

async def pathsend(scope, send, length=None):
    await start(send, [(b"content-length", length.encode())] if length else [])
    await path(send)

async def pathsend_empty(scope, send):
    await start(send)
    await path(send, FILE.with_name("empty.bin"))

async def pathsend_chunked(scope, send):
    await start(send, trailers=True)
    await path(send)
    await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"1")]})

async def pathsend_missing(scope, send):
    await start(send)
    await path(send, "/nowhere/at/all")

async def pathsend_fifo(scope, send):
    await start(send)
    await path(send, FILE.with_name("fifo"))

async def pathsend_after_body(scope, send):
    await start(send)
    await body(send, b"some", more_body=True)
    await path(send)

async def pathsend_twice(scope, send):
    await start(send)
    await path(send)
    await path(send)

async def pathsend_first(scope, send):
    await path(send)

async def pathsend_nothing(scope, send):
    await start(send)
    await send({"type": "http.response.pathsend"})

async def zerocopy(scope, send):
    with FILE.open("rb") as file:
        await start(send)
        await body(send, b"<", more_body=True)
        await send({"type": "http.response.zerocopysend", "file": file, "offset": 5, "count": 10, "more_body": True})
        await body(send, b"|", more_body=True)
        file.seek(100)
        await send({"type": "http.response.zerocopysend", "file": file, "count": 3, "more_body": True})
        await send({"type": "http.response.zerocopysend", "file": file, "count": 4, "more_body": True})
        assert file.tell() == 107
        head = {"file": file.fileno(), "offset": 0, "count": 2, "more_body": True}
        await send({"type": "http.response.zerocopysend", **head})
        await body(send, b">")

async def zerocopy_whole(scope, send, more=None):
    with FILE.open("rb") as file:
        await start(send)
        await send({"type": "http.response.zerocopysend", "file": file})
    seen["closed"] = True

async def zerocopy_number(scope, send):
    number = os.open(FILE, os.O_RDONLY)
    try:
        os.lseek(number, 7, os.SEEK_SET)
        await start(send, [(b"content-length", b"8")])
        for more in (True, False):
            await send({"type": "http.response.zerocopysend", "file": number, "count": 4, "more_body": more})
    finally:
        os.close(number)

async def zerocopy_bytes(scope, send):
    import io
    await start(send)
    await send({"type": "http.response.zerocopysend", "file": io.BytesIO(b"x")})

async def zerocopy_socket(scope, send):
    one, other = socket.socketpair()
    with one, other:
        await start(send)
        await send({"type": "http.response.zerocopysend", "file": one, "offset": 0})

async def zerocopy_negative(scope, send):
    with FILE.open("rb") as file:
        await start(send)
        await send({"type": "http.response.zerocopysend", "file": file, "count": -1})

async def zerocopy_flood(scope, send):
    seen["sent"] = 0
    with FILE.open("rb") as file:
        await start(send)
        for _ in range(200):
            await send({"type": "http.response.zerocopysend", "file": file, "offset": 0, "more_body": True})
            seen["sent"] += 1
        await body(send)

async def sent(scope, send):
    await start(send)
    await body(send, json.dumps(seen.get("sent")).encode())

async def hint(send, *links):
    await send({"type": "http.response.early_hint", "links": links})

async def hints(scope, send):
    await hint(send, b"</a.css>; rel=preload", b"</b.js>; rel=preload")
    await start(send)
    await hint(send, b"</c>; rel=preload")
    await hint(send)
    await asyncio.sleep(0.3)
    await body(send, b"one", more_body=True)
    await hint(send, b"</late>; rel=preload")
    await body(send, b"two")

async def hints_inject(scope, send):
    await hint(send, b"</a>\\r\\nset-cookie: a=b")

async def hints_text(scope, send):
    await hint(send, "</a>")

async def trailers(scope, send, length=None):
    await start(send, [(b"content-length", length.encode())] if length else [], trailers=True)
    await body(send, b"ab", more_body=True)
    await body(send, b"cd")
    await send({"type": "http.response.trailers", "headers": [(b"x-one", b"1")], "more_trailers": True})
    await send({"type": "http.response.trailers", "headers": [(b"x-two", b"2")]})
    try:
        await body(send, b"more")
    except RuntimeError as error:
        seen["error"] = str(error)

async def trailers_forgotten(scope, send):
    await start(send, trailers=True)
    await body(send, b"abcd")

async def trailers_unannounced(scope, send):
    await start(send)
    await body(send, b"ab", more_body=True)
    await send({"type": "http.response.trailers", "headers": []})

async def trailers_early(scope, send):
    await start(send, trailers=True)
    await send({"type": "http.response.trailers", "headers": []})

async def trailers_body_again(scope, send):
    await start(send, trailers=True)
    await body(send)
    await body(send)

async def trailers_bad(scope, send, name, value="1"):
    await start(send, trailers=True)
    await body(send, b"abcd")
    await send({"type": "http.response.trailers", "headers": [(name.encode(), value.encode())]})
"""

CONTENT = bytes(n % 251 for n in range(3_000_000))


@pytest.fixture(scope="module")
def served(serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    folder = tmp_path_factory.mktemp("application")
    folder.joinpath("extended.py").write_text(APPLICATION)
    folder.joinpath("file.bin").write_bytes(CONTENT)
    folder.joinpath("empty.bin").touch()
    os.mkfifo(folder / "fifo")
    with serve("extended:app", folder) as server:
        yield server
        assert server.stop() == 0


def exchange(served, path: str, *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    """Send one request, and read until the server closes."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        head = [f"{method} {path} HTTP/{version}", "Host: a", "Connection: close", *lines, "", ""]
        sock.sendall("\r\n".join(head).encode())
        pieces = []
        while piece := sock.recv(1 << 20):
            pieces.append(piece)
        return b"".join(pieces)


def ask(served, path: str, *lines: str) -> tuple[bytes, bytes]:
    head, _, body = exchange(served, path, *lines).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    return head, body


def last_error(served) -> str | None:
    return json.loads(ask(served, "/last-error")[1])


def dechunk(body: bytes) -> tuple[bytes, bytes]:
    """The body in chunks, and the trailer section."""
    whole = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return whole, body
        whole += body[:length]
        assert body[length:][:2] == b"\r\n"
        body = body[length + 2 :]


def test_they_are_announced_to_each_request_afresh(served) -> None:
    names = ("early_hint", "pathsend", "trailers", "zerocopysend")
    for _ in range(2):
        announced = json.loads(ask(served, "/extensions")[1])
        assert announced == {f"http.response.{name}": {} for name in names}


# Files


def test_a_path_is_sent_with_its_length(served) -> None:
    head, body = ask(served, "/pathsend")
    assert b"content-length: 3000000" in head and body == CONTENT


def test_a_path_to_http_1_0(served) -> None:
    assert exchange(served, "/pathsend", version="1.0").endswith(b"\r\n\r\n" + CONTENT)


def test_a_path_in_answer_to_head(served) -> None:
    head, _, body = exchange(served, "/pathsend?length=3000000", method="HEAD").partition(b"\r\n\r\n")
    assert b"content-length: 3000000" in head and body == b""


def test_an_empty_file(served) -> None:
    head, body = ask(served, "/pathsend-empty")
    assert b"content-length: 0" in head and body == b""


def test_a_file_that_has_grown_ends_where_its_length_was_promised(served) -> None:
    assert ask(served, "/pathsend?length=1000")[1] == CONTENT[:1000]


def test_a_file_that_is_shorter_than_promised(served) -> None:
    with_body = exchange(served, "/pathsend?length=3000001")
    assert len(with_body) < 3_000_001
    assert last_error(served) == "RuntimeError: the response body is shorter than its content-length"


def test_a_path_in_chunks_with_a_trailer(served) -> None:
    head, body = ask(served, "/pathsend-chunked", "TE: trailers")
    assert b"transfer-encoding: chunked" in head
    assert dechunk(body) == (CONTENT, b"x-sum: 1\r\n\r\n")


def test_files_keep_their_place_in_a_pipeline(served) -> None:
    requests = b"".join(
        b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n" % (path, b"Connection: close\r\n" if last else b"")
        for path, last in [(b"/sent", 0), (b"/pathsend", 0), (b"/pathsend", 0), (b"/sent", 1)]
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        sock.sendall(requests)
        answer = b""
        while piece := sock.recv(1 << 20):
            answer += piece
    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert answer.count(CONTENT) == 2
    assert answer.index(CONTENT) > 100 and not answer.endswith(CONTENT)


def test_parts_of_open_files_mixed_with_bytes(served) -> None:
    expected = b"<" + CONTENT[5:15] + b"|" + CONTENT[100:107] + CONTENT[:2] + b">"
    assert dechunk(ask(served, "/zerocopy")[1])[0] == expected
    assert exchange(served, "/zerocopy", version="1.0").endswith(b"\r\n\r\n" + expected)


def test_an_open_file_may_be_closed_once_it_was_sent(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        sock.sendall(b"GET /zerocopy-whole HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        time.sleep(0.3)
        answer = b""
        while piece := sock.recv(1 << 20):
            answer += piece
    assert answer.endswith(b"\r\n\r\n" + CONTENT)


def test_a_descriptor_by_number(served) -> None:
    assert ask(served, "/zerocopy-number")[1] == CONTENT[7:15]


def test_a_slow_client_holds_back_an_application_that_sends_files(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        sock.sendall(b"GET /zerocopy-flood HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        time.sleep(0.5)
        before = json.loads(ask(served, "/sent")[1])
        assert before < 20, "the application must wait for the client"
        total = 0
        while piece := sock.recv(1 << 20):
            total += len(piece)
    assert total > 200 * len(CONTENT)


def test_one_call_for_head_and_beginning_of_a_file(served) -> None:
    """Head and file leave in full packets: the first read of a small file has both."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        for _ in range(20):
            sock.sendall(b"GET /pathsend?length=1000 HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = sock.recv(65536)
            assert answer.endswith(b"\r\n\r\n" + CONTENT[:1000])


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/pathsend-missing", r"FileNotFoundError: \[Errno 2\] .*: '/nowhere/at/all'"),
        ("/pathsend-fifo", r"ValueError: .*fifo.*: not a regular file"),
        ("/pathsend-first", r"RuntimeError: Expected ASGI message 'http.response.start', but got .*pathsend"),
        ("/pathsend-after-body", r"RuntimeError: .*cannot follow a part of it"),
        ("/pathsend-twice", r"RuntimeError: Unexpected ASGI message .* after response already completed"),
        ("/pathsend-nothing", r"RuntimeError: ASGI message 'http.response.pathsend' has no 'path'"),
        ("/zerocopy-bytes", r"TypeError: .* must be an open file with a descriptor"),
        ("/zerocopy-socket", r"ValueError: .*: not a regular file"),
        ("/zerocopy-negative", r"ValueError: .*'count' must be a number, not below zero"),
    ],
)
def test_misuse_of_files(served, path: str, error: str) -> None:
    answer = exchange(served, path)
    if path == "/pathsend-twice":
        assert answer.endswith(CONTENT)
    elif path != "/pathsend-after-body":
        assert answer.startswith(b"HTTP/1.1 500 ")
    assert re.match(error, str(last_error(served)))


def test_starlette_sends_its_files_so(serve, tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    tmp_path.joinpath("page.bin").write_bytes(CONTENT)
    tmp_path.joinpath("star.py").write_text(
        """
from starlette.applications import Starlette
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

messages = []

async def page(request):
    return FileResponse("page.bin")

routes = [Route("/", page), Mount("/static", StaticFiles(directory="."))]

class Recorder:
    def __init__(self, app):
        self.app = app
    async def __call__(self, scope, receive, send):
        async def recorded(message):
            print("message", message["type"], flush=True)
            await send(message)
        await self.app(scope, receive, recorded)

app = Recorder(Starlette(routes=routes))
"""
    )
    with serve("star:app", tmp_path) as server:
        for path in ("/", "/static/page.bin"):
            status, fields, body = server.ask("GET", path)
            assert (status, body) == (200, CONTENT)
            assert fields["content-length"] == str(len(CONTENT))
        assert server.log.count("http.response.pathsend") == 2
        status, fields, body = server.ask("GET", "/", headers={"Range": "bytes=10-19"})
        assert (status, body) == (206, CONTENT[10:20])
        status, fields, body = server.ask("HEAD", "/")
        assert (status, fields["content-length"], body) == (200, str(len(CONTENT)), b"")
        tag = server.ask("GET", "/static/page.bin")[1]["etag"]
        assert server.ask("GET", "/static/page.bin", headers={"If-None-Match": tag})[0] == 304


# Early hints


def test_hints_come_before_the_answer(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        sock.sendall(b"GET /hints HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        time.sleep(0.1)
        early = sock.recv(65536)
        assert early == (
            b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nlink: </b.js>; rel=preload\r\n\r\n"
            b"HTTP/1.1 103 Early Hints\r\nlink: </c>; rel=preload\r\n\r\n"
        )
        rest = b""
        while piece := sock.recv(65536):
            rest += piece
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n") and b"103" not in rest
    assert dechunk(rest.partition(b"\r\n\r\n")[2])[0] == b"onetwo"


def test_http_1_0_gets_no_hints(served) -> None:
    answer = exchange(served, "/hints", version="1.0")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nonetwo")


@pytest.mark.parametrize(("path", "kind"), [("/hints-inject", "ValueError"), ("/hints-text", "TypeError")])
def test_a_hint_must_be_a_field_value(served, path: str, kind: str) -> None:
    answer = exchange(served, path)
    assert answer.startswith(b"HTTP/1.1 500 ") and b"set-cookie" not in answer
    assert str(last_error(served)).startswith(f"{kind}: 'http.response.early_hint': 'links' must be")


# Trailers


def test_trailers_to_a_client_that_heeds_them(served) -> None:
    head, body = ask(served, "/trailers", "TE: deflate;q=0.5, Trailers")
    assert b"transfer-encoding: chunked" in head
    assert dechunk(body) == (b"abcd", b"x-one: 1\r\nx-two: 2\r\n\r\n")
    assert "after response already completed" in str(last_error(served))


def test_no_trailers_to_a_client_that_did_not_ask(served) -> None:
    assert dechunk(ask(served, "/trailers")[1]) == (b"abcd", b"\r\n")
    assert exchange(served, "/trailers", "TE: trailers", version="1.0").endswith(b"\r\n\r\nabcd")


def test_no_trailers_where_the_length_is_given(served) -> None:
    head, body = ask(served, "/trailers?length=4", "TE: trailers")
    assert b"content-length: 4" in head and body == b"abcd"


def test_no_trailers_in_answer_to_head(served) -> None:
    answer = exchange(served, "/trailers", "TE: trailers", method="HEAD")
    assert answer.endswith(b"\r\n\r\n") and answer.count(b"\r\n\r\n") == 1 and b"x-one" not in answer


def test_the_connection_goes_on_after_trailers(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sock:
        for _ in range(2):
            sock.sendall(b"GET /trailers HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n")
            answer = b""
            while not answer.endswith(b"x-two: 2\r\n\r\n"):
                answer += sock.recv(65536)


def test_trailers_that_were_promised_and_do_not_come_break_the_answer(served) -> None:
    answer = exchange(served, "/trailers-forgotten", "TE: trailers")
    assert answer.endswith(b"\r\n4\r\nabcd\r\n")
    served.wait_for_log("ASGI callable returned without completing response.")


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/trailers-unannounced", "RuntimeError: 'http.response.trailers' was not announced"),
        ("/trailers-early", "RuntimeError: Expected ASGI message 'http.response.body', but got"),
        ("/trailers-body-again", "RuntimeError: Expected ASGI message 'http.response.trailers', but got"),
        ("/trailers-bad?name=a%20b", "RuntimeError: ASGI message 'http.response.trailers': a header's name"),
        (
            "/trailers-bad?name=a&value=1%0d%0ab:%202",
            "RuntimeError: ASGI message 'http.response.trailers': a h",
        ),
        *(
            (f"/trailers-bad?name={name}", "RuntimeError: ASGI message 'http.response.trailers': a trailer")
            for name in ("content-length", "Transfer-Encoding", "host", "set-cookie", "trailer", "age")
        ),
    ],
)
def test_misuse_of_trailers(served, path: str, error: str) -> None:
    answer = exchange(served, path, "TE: trailers")
    assert not answer.endswith(b"0\r\n\r\n") and b"b: 2" not in answer
    assert str(last_error(served)).startswith(error)
