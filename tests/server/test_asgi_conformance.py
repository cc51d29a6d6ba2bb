"""Scopes and events, key by key, as the ASGI specification has them: HTTP and WebSocket 2.4, lifespan 2.0."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

APPLICATION = """
import asyncio, json

starts = []

def plain(value):
    # What JSON has no word for is written as its type and its representation.
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return [type(value).__name__, repr(value)]

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        starts.append(plain(scope))
        starts.append(plain(await receive()))
        scope["state"]["made"] = ["at the start"]
        await send({"type": "lifespan.startup.complete"})
        event = await receive()
        print("lifespan event", json.dumps(plain(event)), flush=True)
        await send({"type": "lifespan.shutdown.complete"})
    elif scope["type"] == "http":
        seen = [plain(scope)]
        scope["state"]["mine"] = True
        scope["extensions"]["mine"] = {}
        if scope["path"] == "/starts":
            seen = starts
        elif scope["path"] == "/gone":
            await receive()
            print("after it", json.dumps(plain(await receive())), flush=True)
            try:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for _ in range(100):
                    await send({"type": "http.response.body", "body": b"x" * 100000, "more_body": True})
            except OSError as error:
                print("send raised", type(error).__name__, flush=True)
            return
        else:
            while True:
                event = await receive()
                seen.append({"type": event["type"], "keys": sorted(event), "body": type(event["body"]).__name__,
                             "more": event["more_body"]})
                if not event["more_body"]:
                    break
        body = json.dumps(seen).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})
    else:
        connected = plain(await receive())
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": json.dumps([plain(scope), connected])})
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                print("socket event", json.dumps(plain(event)), flush=True)
                return
            await send({"type": "websocket.send", "text": json.dumps(plain(event))})
"""


@pytest.fixture(scope="module")
def served(serve, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("conformance")
    folder.joinpath("conform.py").write_text(APPLICATION)
    with serve("conform:app", folder, "--root-path", "/prefix") as running:
        yield running


def pairs(headers: list[Any]) -> list[list[str]]:
    """Headers as the application saw them, each a pair of bytes."""
    kind, *fields = headers
    assert kind == "list"
    for pair_kind, name, value in fields:
        assert pair_kind in ("tuple", "list")
        assert (name[0], value[0]) == ("bytes", "bytes")
    return [[name[1], value[1]] for _, name, value in fields]


def test_an_http_scope(served) -> None:
    target = "/prefix/caf%C3%A9%2Fx?a=%20b&c"
    _, _, body = served.ask("GET", target, headers={"X-Some": "one", "Accept": "caf\xe9"})
    scope = json.loads(body)[0]
    assert scope["type"] == "http"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.4"}
    assert (scope["http_version"], scope["method"], scope["scheme"]) == ("1.1", "GET", "http")
    # The path is whole, the prefix included, and unescaped; the raw path is as it came, without the query.
    assert scope["path"] == "/prefix/caf\xe9/x"
    assert scope["raw_path"] == ["bytes", repr(b"/prefix/caf%C3%A9%2Fx")]
    assert scope["query_string"] == ["bytes", repr(b"a=%20b&c")]
    assert scope["root_path"] == "/prefix"
    kind, host, port = scope["server"]
    assert (kind in ("list", "tuple"), host, port) == (True, "127.0.0.1", served.port)
    kind, host, port = scope["client"]
    assert (kind in ("list", "tuple"), host) == (True, "127.0.0.1")
    assert isinstance(port, int)
    fields = pairs(scope["headers"])
    assert [repr(b"x-some"), repr(b"one")] in fields
    assert [repr(b"accept"), repr(b"caf\xe9")] in fields
    # In the order in which they came.
    assert fields[0][0] == repr(b"host")
    assert set(scope["extensions"]) >= {"http.response.pathsend", "http.response.trailers"}
    assert scope["state"] == {"made": ["list", "at the start"]}


def test_nothing_of_one_request_is_there_in_the_next(served) -> None:
    served.ask("GET", "/")
    scope = json.loads(served.ask("GET", "/")[2])[0]
    assert "mine" not in scope["state"]
    assert "mine" not in scope["extensions"]


def test_the_events_of_a_body(served) -> None:
    _, _, body = served.ask("POST", "/", b"abc")
    events = json.loads(body)[1:]
    assert events == [
        {"type": "http.request", "keys": ["body", "more_body", "type"], "body": "bytes", "more": False}
    ]
    pieces = (b"x" * 10_000 for _ in range(30))
    events = json.loads(served.ask("POST", "/", pieces)[2])[1:]
    assert [event["more"] for event in events] == [True] * (len(events) - 1) + [False]
    assert {event["type"] for event in events} == {"http.request"}


def test_versions_and_methods(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        client.sendall(b"PURGE / HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    scope = json.loads(answer.partition(b"\r\n\r\n")[2])[0]
    assert (scope["http_version"], scope["method"]) == ("1.0", "PURGE")


def test_a_client_that_goes_away(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        client.sendall(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.2)
    served.wait_for_log('after it {"type": "http.disconnect"}')
    served.wait_for_log("send raised ClientDisconnected")


def test_lifespan(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("conform.py").write_text(APPLICATION)
    with serve("conform:app", tmp_path) as running:
        scope, event = json.loads(running.ask("GET", "/starts")[2])
        assert scope["type"] == "lifespan"
        assert scope["asgi"]["version"] == "3.0"
        assert scope["state"] == {}
        assert event == {"type": "lifespan.startup"}
        assert running.stop() == 0
        assert 'lifespan event {"type": "lifespan.shutdown"}' in running.log


def test_a_web_socket(served) -> None:
    with connect(f"ws://127.0.0.1:{served.port}/chat%20room?x=1", subprotocols=["a", "b"]) as client:
        scope, connected = json.loads(client.recv(10))
        assert connected == {"type": "websocket.connect"}
        assert (scope["type"], scope["scheme"], scope["path"]) == ("websocket", "ws", "/chat room")
        assert scope["asgi"] == {"version": "3.0", "spec_version": "2.4"}
        assert scope["raw_path"] == ["bytes", repr(b"/chat%20room")]
        assert scope["query_string"] == ["bytes", repr(b"x=1")]
        assert scope["subprotocols"] == ["list", "a", "b"]
        assert scope["http_version"] == "1.1"
        assert "method" not in scope
        assert "websocket.http.response" in scope["extensions"]
        assert [repr(b"upgrade"), repr(b"websocket")] in pairs(scope["headers"])
        client.send("text")
        event = json.loads(client.recv(10))
        assert (event["type"], event["text"], event.get("bytes")) == ("websocket.receive", "text", None)
        client.send(b"bytes")
        event = json.loads(client.recv(10))
        assert (event["bytes"], event.get("text")) == (["bytes", repr(b"bytes")], None)
        client.close(4000, "a reason")
    served.wait_for_log('socket event {"type": "websocket.disconnect", "code": 4000, "reason": "a reason"}')
