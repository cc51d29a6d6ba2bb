"""Tornado's own demo applications, unmodified: Debian's package of its documentation has them."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("tornado")
from websockets.sync.client import connect

PACKAGE = "python-tornado-doc"
CACHE = Path(__file__).parents[2] / ".cache" / "tornado-demos"

#: Where a demo makes its application inside of main(): runs that until it listens, and takes what would.
CAPTURE = """
import asyncio, importlib, sys
import tornado.httpserver, tornado.web

class Listens(BaseException):
    pass

def listen(self, *args, **kwargs):
    raise Listens(self)

def take(module):
    sys.argv[1:] = []
    tornado.web.Application.listen = tornado.httpserver.HTTPServer.listen = listen
    try:
        asyncio.run(importlib.import_module(module).main())
    except Listens as found:
        return found.args[0]

def helloworld():
    return take("helloworld")

def chat():
    return take("chatdemo")
"""


@pytest.fixture(scope="module")
def demos(missing) -> Path:
    """The folder of the demos."""
    folder = CACHE / "unpacked"
    if not folder.exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            missing(f"apt-get (Tornado's demos are in Debian's package {PACKAGE})")
        CACHE.mkdir(parents=True, exist_ok=True)
        download = ["apt-get", "-o", "APT::Sandbox::User=root", "download", "-qq", PACKAGE]
        if subprocess.run(download, cwd=CACHE, capture_output=True, check=False).returncode != 0:
            # A fresh machine has no lists of packages, or old ones.
            subprocess.run(["apt-get", "update", "-qq"], capture_output=True, check=False)
            again = subprocess.run(download, cwd=CACHE, capture_output=True, text=True, check=False)
            if again.returncode != 0:
                missing(f"Debian's package {PACKAGE} ({again.stderr.strip()})")
        package = next(CACHE.glob(f"{PACKAGE}_*.deb"))
        partial = CACHE / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run(["dpkg-deb", "-x", package, partial], check=True)
        partial.rename(folder)
    return folder / "usr/share/doc" / PACKAGE / "examples"


def copied(demos: Path, name: str, tmp_path: Path) -> Path:
    """A demo's folder to run in, with the capture beside it."""
    folder = tmp_path / name
    shutil.copytree(demos / name, folder)
    folder.joinpath("capture.py").write_text(CAPTURE)
    return folder


def test_helloworld(serve, demos: Path, tmp_path: Path) -> None:
    with serve("capture:helloworld", copied(demos, "helloworld", tmp_path), "--factory") as running:
        assert running.ask("GET", "/")[::2] == (200, b"Hello, world")


def test_chat_by_long_polling(serve, demos: Path, tmp_path: Path) -> None:
    """Templates, static files with versions, XSRF cookies, and handlers that wait for each other."""
    with serve("capture:chat", copied(demos, "chat", tmp_path), "--factory") as running:
        status, fields, page = running.ask("GET", "/")
        assert status == 200
        script = re.search(rb'src="(/static/chat\.js\?v=[0-9a-f]+)"', page)
        assert script is not None
        status, script_fields, _ = running.ask("GET", script[1].decode())
        assert (status, script_fields["content-type"].partition(";")[0].split("/")[1]) == (200, "javascript")
        token = re.search(rb'name="_xsrf" value="([^"]+)"', page)
        assert token is not None
        headers = {
            "Cookie": fields["set-cookie"].partition(";")[0],
            "X-XSRFToken": token[1].decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        }
        assert running.ask("POST", "/a/message/new", b"body=no+token")[0] == 403
        updates: list[bytes] = []

        def poll() -> None:
            waiting = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
            waiting.request("POST", "/a/message/updates", b"", headers)
            updates.append(waiting.getresponse().read())
            waiting.close()

        # One that goes away while it waits: the handler's on_connection_close cancels what it waits for.
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as leaver:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            leaver.sendall(
                f"POST /a/message/updates HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: 0\r\n\r\n".encode()
            )
            time.sleep(0.2)
        poller = threading.Thread(target=poll)
        poller.start()
        time.sleep(0.3)
        status, _, said = running.ask("POST", "/a/message/new", b"body=hello+there", headers)
        assert (status, json.loads(said)["body"]) == (200, "hello there")
        poller.join(20)
        assert [message["body"] for message in json.loads(updates[0])["messages"]] == ["hello there"]
        assert b"hello there" in running.ask("GET", "/")[2]
        assert "Traceback" not in running.log, running.log


def test_chat_by_web_socket(serve, demos: Path, tmp_path: Path) -> None:
    """Compression is on in this demo."""
    with serve("chatdemo:Application", copied(demos, "websocket", tmp_path), "--factory") as running:
        url = f"ws://127.0.0.1:{running.port}/chatsocket"
        origin = f"http://127.0.0.1:{running.port}"
        with connect(url, origin=origin) as one, connect(url, origin=origin) as other:
            assert one.protocol.extensions
            one.send(json.dumps({"body": "hello " * 1000}))
            for client in (one, other):
                assert json.loads(client.recv(10))["body"] == "hello " * 1000
        assert b"hello hello" in running.ask("GET", "/")[2]
        assert running.stop() == 0
        assert "Traceback" not in running.log, running.log


def test_file_upload(serve, demos: Path, tmp_path: Path) -> None:
    with serve("file_receiver:make_app", copied(demos, "file_upload", tmp_path), "--factory") as running:
        assert running.ask("PUT", "/some.bin", b"x" * 3_000_000)[::2] == (200, b"OK")
        pieces = (b"y" * 10_000 for _ in range(100))
        assert running.ask("PUT", "/in%20pieces", pieces)[::2] == (200, b"OK")
        form = (
            b'--b\r\nContent-Disposition: form-data; name="f"; filename="a.txt"\r\n'
            b"Content-Type: text/plain\r\n\r\ncontent\r\n--b--\r\n"
        )
        headers = {"Content-Type": "multipart/form-data; boundary=b"}
        assert running.ask("POST", "/post", form, headers)[::2] == (200, b"OK")


def test_s3server(serve, demos: Path, tmp_path: Path) -> None:
    """Buckets come and go; its objects and lists need the names of Python 2 (`urllib.unquote`, `long`)."""
    folder = copied(demos, "s3server", tmp_path)
    folder.joinpath("hosted.py").write_text(
        "import s3server\n\ndef make():\n    return s3server.S3Application('root', 0)\n"
    )
    with serve("hosted:make", folder, "--factory") as running:
        assert running.ask("PUT", "/bucket/")[::2] == (200, b"")
        assert running.ask("PUT", "/bucket/")[0] == 403
        assert running.ask("DELETE", "/bucket/")[::2] == (204, b"")
        assert running.ask("DELETE", "/bucket/")[0] == 404
