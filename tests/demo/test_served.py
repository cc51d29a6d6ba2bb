"""The demo under ``headrace serve``, as ``make run`` starts it: every route over a real connection."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


@pytest.fixture(scope="module")
def served(serve):
    with serve("demo:app", DEMO) as server:
        yield server


def test_the_start_page_says_what_serves_it(served) -> None:
    status, fields, body = served.ask("GET", "/")
    assert (status, fields["content-type"]) == (200, "text/html; charset=utf-8")
    assert "headrace.loop.Loop" in body.decode()


def test_text_and_json(served) -> None:
    assert served.ask("GET", "/text")[2] == b"The headrace carries the stream to the mill wheel.\n"
    said = json.loads(served.ask("GET", "/json?a=%2F")[2])
    assert (said["method"], said["path"], said["query"]) == ("GET", "/json", "a=%2F")
    assert said["server"]["You are"].startswith("127.0.0.1, port ")


@pytest.mark.parametrize("size", [0, 1, 70_000, 1 << 20])
def test_echo(served, size: int) -> None:
    body = os.urandom(size)
    status, _, given = served.ask("POST", "/echo", body)
    assert (status, given) == (200, body)


def test_echo_of_too_much(served) -> None:
    assert served.ask("POST", "/echo", bytes((1 << 20) + 1))[0] == 413
    served.connection.close()  # the rest of the body may not have been read
    assert served.ask("GET", "/text")[0] == 200


def test_the_download_is_streamed(served) -> None:
    status, fields, body = served.ask("GET", "/download?megabytes=3")
    assert (status, fields["transfer-encoding"]) == (200, "chunked")
    assert "content-length" not in fields
    assert 3 << 20 <= len(body) < (3 << 20) + 1000
    assert body.startswith(b"minute,station,level_cm\n") and body.endswith(b"\n")


def test_head_has_no_body(served) -> None:
    status, fields, body = served.ask("HEAD", "/text")
    assert (status, fields["content-length"], body) == (200, "51", b"")
    assert served.ask("HEAD", "/download")[2] == b""
    assert served.ask("GET", "/text")[0] == 200


def test_rows(served) -> None:
    page = json.loads(served.ask("GET", "/rows?after=12&limit=3")[2])
    assert [row["id"] for row in page["rows"]] == [13, 14, 15]
    assert page["next"] == "/rows?after=15&limit=3"


def test_what_is_not_there(served) -> None:
    assert served.ask("GET", "/nowhere")[0] == 404
    assert served.ask("GET", "/rows?limit=none")[0] == 400
    status, fields, _ = served.ask("PUT", "/text", b"")
    assert (status, fields["allow"]) == (405, "GET, HEAD")


def test_it_stops_cleanly_and_leaves_nothing(serve, tmp_path: Path) -> None:
    with serve("demo:app", DEMO, TMPDIR=str(tmp_path)) as server:
        assert server.ask("GET", "/rows")[0] == 200
        assert any(tmp_path.iterdir()), "the database is here while it is served"
        assert server.stop() == 0
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in server.log
