"""WSGI applications inline, in threads and in greenlets: what must be the same in all three, and what differs."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MODES = {
    "inline": (),
    "threads": ("--concurrency", "threads", "--threads", "4"),
    "gevent": ("--concurrency", "gevent"),
}

APPLICATION = """
import json, os, resource, sys, tempfile, time
from wsgiref.validate import validator

events = []
DATA = bytes(range(256)) * 4096  # 1 MiB

class Closing:
    def __init__(self, pieces):
        self.pieces = iter(pieces)
    def __iter__(self):
        return self
    def __next__(self):
        return next(self.pieces)
    def close(self):
        events.append("closed")

def file(position=0):
    file = tempfile.TemporaryFile()
    file.write(DATA)
    file.seek(position)
    return file

class Unnumbered:
    def __init__(self):
        self.rest = DATA[:100_000]
    def read(self, size):
        piece, self.rest = self.rest[:size], self.rest[size:]
        return piece
    def close(self):
        events.append("file closed")

def app(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    data = environ["wsgi.input"]
    plain = [("Content-Type", "text/plain")]
    def answer(body, status="200 OK", headers=()):
        start_response(status, [*plain, *headers])
        return [body]
    if path == "/flags":
        return answer(json.dumps({key: value for key, value in environ.items() if type(value) in (bool, str)}).encode())
    if path == "/length":
        total = 0
        while piece := data.read(65536):
            total += len(piece)
        return answer(json.dumps([total, environ.get("CONTENT_LENGTH")]).encode())
    if path == "/reads":
        found = [data.read(3), data.readline(), data.readline(2), data.readlines(1), next(data), list(data),
                 data.read(), data.readline(), data.read(5)]
        return answer(repr(found).encode())
    if path == "/unread":
        return answer(b"not read")
    if path == "/head":
        events.append("called")
        first = data.read(5)
        events.append(first.decode())
        try:
            rest = data.read()
        except OSError as error:
            events.append(type(error).__name__)
            raise
        return answer(first + rest)
    if path == "/write":
        write = start_response("200 OK", plain)
        write(b"first,")
        write(b"second,")
        return [b"third"]
    if path == "/write-much":
        write = start_response("200 OK", plain)
        for _ in range(64):
            write(DATA)
        return []
    if path == "/pieces":
        start_response("200 OK", plain)
        return Closing([b"a", b"", b"b", b"c" * 100_000])
    if path == "/endless":
        start_response("200 OK", plain)
        def pieces():
            try:
                while True:
                    yield DATA
            finally:
                events.append("ended")
        return pieces()
    if path == "/broken":
        start_response("200 OK", [*plain, ("Content-Length", "10")])
        def pieces():
            yield b"12345"
            raise ValueError("in the middle")
        return Closing(pieces())
    if path == "/fail":
        raise ValueError("at once")
    if path == "/silent":
        return [b"no start_response"]
    if path == "/again":
        start_response("200 OK", plain)
        try:
            raise KeyError("late")
        except KeyError:
            start_response("500 Oh", plain, sys.exc_info())
        return [b"replaced"]
    if path == "/file":
        start_response("200 OK", plain)
        return environ["wsgi.file_wrapper"](file())
    if path == "/file-from":
        start_response("200 OK", plain)
        return environ["wsgi.file_wrapper"](file(1_000_000), 4096)
    if path == "/file-part":
        start_response("206 Partial Content", [*plain, ("Content-Length", "1000")])
        return environ["wsgi.file_wrapper"](file(256))
    if path == "/file-read-before":
        opened = file()
        opened.read(10)  # reads ahead, so that the descriptor stands elsewhere
        start_response("200 OK", plain)
        return environ["wsgi.file_wrapper"](opened)
    if path == "/file-unnumbered":
        start_response("200 OK", plain)
        return environ["wsgi.file_wrapper"](Unnumbered(), 1000)
    if path == "/file-closed":
        opened = file()
        close = opened.close
        def closing():
            events.append("file closed")
            close()
        opened.close = closing
        start_response("200 OK", plain)
        return environ["wsgi.file_wrapper"](opened)
    if path == "/sleep":
        seconds, _, marker = query.partition("&")
        if marker:
            open(marker, "w").close()
        time.sleep(float(seconds))
        return answer(b"slept")
    if path == "/exit":
        raise SystemExit(0)
    if path == "/events":
        body = json.dumps(events).encode()
        events.clear()
        return answer(body)
    if path == "/memory":
        return answer(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).encode())
    return answer(b"nothing here", "404 Not Found")

@validator
def strict(environ, start_response):
    read = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    write = start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(read) + 2))])
    if environ["REQUEST_METHOD"] != "HEAD":
        write(b"ab")
    return iter([read])
"""

DATA = bytes(range(256)) * 4096


@pytest.fixture(scope="module", params=MODES)
def mode(request: pytest.FixtureRequest, missing) -> str:
    if request.param == "gevent":
        try:
            import gevent  # noqa: F401
        except ImportError:
            missing("gevent")
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("application")
    folder.joinpath("three.py").write_text(APPLICATION)
    return folder


@pytest.fixture(scope="module")
def served(serve, mode: str, folder: Path) -> Iterator[object]:
    with serve(
        "three:app", folder, *MODES[mode], "--body-timeout", "1.5", "--write-timeout", "1.5"
    ) as server:
        server.mode = mode
        yield server
        assert server.stop() == 0


def events(served) -> list[str]:
    return json.loads(served.ask("GET", "/events")[2])


def wait_for_event(served, event: str) -> list[str]:
    seen: list[str] = []
    deadline = time.monotonic() + 15
    while event not in seen:
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)
        seen += events(served)
    return seen


def connect(served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=20)


def read_all(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def wait_for_file(path: Path) -> None:
    """Wait until the application has made a file, and take it away again."""
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    path.unlink()


def test_the_environ_says_how_it_runs(served) -> None:
    flags = json.loads(served.ask("GET", "/flags")[2])
    assert flags["wsgi.multithread"] is (served.mode != "inline")
    assert flags["wsgi.multiprocess"] is False
    assert flags["wsgi.run_once"] is False
    assert flags["wsgi.input_terminated"] is True


@pytest.mark.parametrize("size", [0, 1, 200_000, 5_000_000])
def test_a_body_of_known_length(served, size: int) -> None:
    assert json.loads(served.ask("POST", "/length", b"x" * size)[2]) == [size, str(size)]


def test_a_body_in_chunks(served) -> None:
    total, length = json.loads(served.ask("POST", "/length", (b"x" * 1000 for _ in range(3000)))[2])
    # Only a body that was gathered has a length to tell.
    assert (total, length) == (3_000_000, "3000000" if served.mode == "inline" else None)


def test_every_way_to_read(served) -> None:
    lines = b"one\ntwo\nthree\nfour\nfive\nsix"
    expected = [
        b"one", b"\n", b"tw", [b"o\n"], b"three\n", [b"four\n", b"five\n", b"six"], b"", b"", b"",
    ]  # fmt: skip
    assert served.ask("POST", "/reads", lines)[2].decode() == repr(expected)
    # The same from a client that sends byte after byte, in chunks.
    each = (bytes([byte]) for byte in lines)
    assert served.ask("POST", "/reads", each)[2].decode() == repr(expected)


def test_a_body_that_nobody_reads(served) -> None:
    with connect(served) as client:
        client.sendall(b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde")
        client.sendall(b"GET /events HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answers = read_all(client)
    assert answers.startswith(b"HTTP/1.1 200 OK") and b"not read" in answers


def test_the_application_is_called_when_the_head_has_come(served) -> None:
    if served.mode == "inline":
        pytest.skip("inline, the body is gathered first")
    events(served)
    with connect(served) as client:
        client.sendall(
            b"POST /head HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\nExpect: 100-continue\r\n"
            b"Connection: close\r\n\r\n"
        )
        # The application has begun to read: only that makes the server ask for the body.
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert "called" in events(served)
        client.sendall(b"12345")
        assert "12345" in wait_for_event(served, "12345")
        client.sendall(b"67890")
        assert read_all(client).endswith(b"\r\n\r\n1234567890")


def test_a_client_that_goes_away_in_the_middle_of_its_body(served) -> None:
    if served.mode == "inline":
        pytest.skip("inline, the application is not called at all")
    events(served)
    with connect(served) as client:
        client.sendall(b"POST /head HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345")
        wait_for_event(served, "12345")
    wait_for_event(served, "ClientDisconnected")


def test_a_body_that_does_not_come_is_given_up(served) -> None:
    with connect(served) as client:
        client.sendall(b"POST /head HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345")
        assert read_all(client).startswith(b"HTTP/1.1 408 ")
    assert served.ask("GET", "/unread")[0] == 200


def test_a_large_body_does_not_stay_in_memory(served) -> None:
    served.ask("POST", "/length", b"x")
    before = int(served.ask("GET", "/memory")[2])
    size = 200 << 20
    with connect(served) as client:
        head = f"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
        client.sendall(head.encode())
        for _ in range(200):
            client.sendall(bytes(1 << 20))
        assert json.loads(read_all(client).split(b"\r\n\r\n")[1])[0] == size
    assert int(served.ask("GET", "/memory")[2]) - before < 30 << 10  # KiB


def test_write(served) -> None:
    assert served.ask("GET", "/write")[2] == b"first,second,third"


def test_write_of_more_than_a_socket_takes(served) -> None:
    body = served.ask("GET", "/write-much")[2]
    assert len(body) == 64 << 20 and body[-256:] == DATA[-256:]


def test_pieces_are_streamed_and_closed(served) -> None:
    events(served)
    assert served.ask("GET", "/pieces")[2] == b"ab" + b"c" * 100_000
    assert events(served) == ["closed"]


def test_an_answer_that_breaks_off(served) -> None:
    events(served)
    with connect(served) as client:
        client.sendall(b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = read_all(client)
    assert answer.endswith(b"12345") and b"Content-Length: 10" in answer.replace(
        b"content-length", b"Content-Length"
    )
    assert events(served) == ["closed"]
    assert "in the middle" in served.log


def test_a_client_that_reads_nothing_is_given_up(served) -> None:
    events(served)
    with connect(served) as client:
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        # Others are served meanwhile, and the write timeout ends it.
        assert served.ask("GET", "/unread")[0] == 200
        wait_for_event(served, "ended")


def test_a_client_that_goes_away_in_the_middle_of_its_answer(served) -> None:
    events(served)
    with connect(served) as client:
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        client.recv(1000)
    wait_for_event(served, "ended")


def test_a_client_that_half_closes_gets_its_answer(served) -> None:
    with connect(served) as client:
        client.sendall(b"GET /sleep?0.2 HTTP/1.1\r\nHost: a\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).endswith(b"slept")


def test_a_half_closed_client_that_then_goes_away_is_noticed(served) -> None:
    events(served)
    with connect(served) as client:
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        client.recv(1000)
        time.sleep(0.3)
    wait_for_event(served, "ended")


def test_errors(served) -> None:
    assert served.ask("GET", "/fail")[0] == 500
    assert served.ask("GET", "/silent")[0] == 500
    assert served.ask("GET", "/again")[2] == b"replaced"
    assert served.ask("GET", "/nowhere")[0] == 404
    assert "at once" in served.log and "did not call start_response" in served.log


def test_pipelined_requests_are_answered_in_order(served) -> None:
    with connect(served) as client:
        client.sendall(
            b"GET /sleep?0.2 HTTP/1.1\r\nHost: a\r\n\r\nGET /write HTTP/1.1\r\nHost: a\r\n\r\n"
            b"GET /unread HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        answers = read_all(client)
    assert -1 < answers.find(b"slept") < answers.find(b"third") < answers.find(b"not read")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/file", DATA),
        ("/file-from", DATA[1_000_000:]),
        ("/file-part", DATA[256:1256]),
        ("/file-read-before", DATA[10:]),
    ],
)
def test_a_file(served, target: str, expected: bytes) -> None:
    _, fields, body = served.ask("GET", target)
    assert body == expected
    assert fields["content-length"] == str(len(expected))
    status, fields, body = served.ask("HEAD", target)
    assert (status // 100, body) == (2, b"")
    assert fields.get("content-length", str(len(expected))) == str(len(expected))


def test_a_file_is_closed(served) -> None:
    events(served)
    assert served.ask("GET", "/file-closed")[2] == DATA
    assert events(served) == ["file closed"]


def test_a_file_that_has_no_descriptor_is_read(served) -> None:
    events(served)
    assert served.ask("GET", "/file-unnumbered")[2] == DATA[:100_000]
    assert events(served) == ["file closed"]


def test_requests_that_block_do_not_hold_each_other_up(served) -> None:
    if served.mode == "inline":
        pytest.skip("inline, they do")
    started = time.monotonic()

    def ask() -> None:
        with connect(served) as client:
            client.sendall(b"GET /sleep?0.5 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert read_all(client).endswith(b"slept")

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert time.monotonic() - started < 1.5


def test_more_requests_than_threads_wait_their_turn(served) -> None:
    clients = [connect(served) for _ in range(12)]
    for client in clients:
        client.sendall(b"GET /sleep?0.05 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    for client in clients:
        assert read_all(client).endswith(b"slept")
        client.close()


def test_the_validator_has_no_complaint(serve, mode: str, folder: Path) -> None:
    with serve("three:strict", folder, *MODES[mode]) as served:
        assert served.ask("GET", "/a%20b?c=d")[2] == b"ab"
        assert served.ask("POST", "/", b"posted")[2] == b"abposted"
        assert served.ask("POST", "/", b"x" * 300_000)[2] == b"ab" + b"x" * 300_000
        assert served.ask("HEAD", "/")[0] == 200
        assert "Traceback" not in served.log and "AssertionError" not in served.log
        assert served.stop() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_running_request_is_answered_at_the_end(serve, mode: str, folder: Path, workers: str) -> None:
    with serve("three:app", folder, *MODES[mode], "--workers", workers) as served:
        with connect(served) as client:
            client.sendall(b"GET /sleep?1&began HTTP/1.1\r\nHost: a\r\n\r\n")
            wait_for_file(folder / "began")
            ended = threading.Thread(target=served.stop)
            ended.start()
            assert read_all(client).endswith(b"slept")
            ended.join()
        assert served.process.returncode == 0
        assert "Traceback" not in served.log


def test_a_request_that_hangs_is_broken_off_at_the_end(serve, mode: str, folder: Path) -> None:
    if mode == "inline":
        pytest.skip("inline, nothing ends but with the application")
    with serve("three:app", folder, *MODES[mode], "--grace", "0.3") as served:
        with connect(served) as client:
            client.sendall(b"GET /sleep?60&hangs HTTP/1.1\r\nHost: a\r\n\r\n")
            wait_for_file(folder / "hangs")
            started = time.monotonic()
            assert served.stop() == 0
            assert time.monotonic() - started < 10
            assert read_all(client) == b""
        assert "1 requests did not end within the grace time; broken off" in served.log
        assert "Traceback" not in served.log


def test_the_application_may_end_the_server(serve, mode: str, folder: Path) -> None:
    with serve("three:app", folder, *MODES[mode]) as served:
        assert served.ask("GET", "/exit")[0] == 500
        assert served.process.wait(15) == 0
