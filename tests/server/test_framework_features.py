"""What applications in real frameworks do beyond a page: databases, uploads, sessions, checks, WebSockets, files."""

from __future__ import annotations

import json
import time

import pytest
from websockets.sync.client import connect

BOUNDARY = "the-boundary"
MULTIPART = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}

FASTAPI = """
import asyncio, contextvars
from typing import Annotated
from fastapi import BackgroundTasks, Depends, FastAPI, WebSocket, WebSocketDisconnect
from pydantic import BaseModel, Field
from starlette.middleware.base import BaseHTTPMiddleware

app = FastAPI()
done = []
current = contextvars.ContextVar("current")

class Item(BaseModel):
    name: str
    price: float = Field(gt=0)

async def user(token: str):
    current.set(token)
    yield token
    done.append("closed " + token)

@app.post("/items")
def create(item: Item) -> Item:
    return item

@app.get("/user")
async def who(user: Annotated[str, Depends(user)], tasks: BackgroundTasks):
    async def later():
        await asyncio.sleep(0.05)
        done.append("later " + user)
    tasks.add_task(later)
    return {"user": user, "context": current.get()}

@app.get("/done")
def all_done():
    return done

async def stamp(request, call_next):
    response = await call_next(request)
    response.headers["x-stamp"] = request.url.path
    return response

app.add_middleware(BaseHTTPMiddleware, dispatch=stamp)

@app.websocket("/socket")
async def socket(web_socket: WebSocket):
    await web_socket.accept(subprotocol="chat")
    try:
        while True:
            await web_socket.send_json({"said": await web_socket.receive_json()})
    except WebSocketDisconnect as error:
        done.append(f"left {error.code}")
"""

STARLETTE = """
from pathlib import Path
from starlette.applications import Starlette
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware import Middleware

folder = Path(__file__).parent

async def file(request):
    return FileResponse(folder / "static" / "digits.txt", filename="digits.txt")

async def long(request):
    return JSONResponse(["headrace"] * 10_000)

app = Starlette(
    routes=[Route("/file", file), Route("/long", long), Mount("/static", StaticFiles(directory=folder / "static"))],
    middleware=[Middleware(GZipMiddleware, minimum_size=5000)],
)
"""

DJANGO = """
import django
from django.conf import settings
from pathlib import Path

settings.configure(
    SECRET_KEY="for tests", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], USE_TZ=True,
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parent / "{kind}.db"}}}},
    FILE_UPLOAD_MAX_MEMORY_SIZE=1000,
)
django.setup()
from django.contrib.auth.models import Group
from django.core.{kind} import get_{kind}_application
from django.core.management import call_command
from django.http import FileResponse, JsonResponse
from django.urls import path

call_command("migrate", verbosity=0)
app = get_{kind}_application()

def groups(request):
    if request.method == "POST":
        Group.objects.create(name=request.POST["name"])
    request.session["visits"] = request.session.get("visits", 0) + 1
    names = list(Group.objects.order_by("name").values_list("name", flat=True))
    return JsonResponse({{"names": names, "visits": request.session["visits"]}})

def upload(request):
    file = request.FILES["file"]
    return JsonResponse({{"name": file.name, "size": file.size, "sum": sum(file.read()), "note": request.POST["note"]}})

def download(request):
    return FileResponse(open(Path(__file__).parent / "static" / "digits.txt", "rb"))

urlpatterns = [path("groups", groups), path("upload", upload), path("download", download)]
"""

FLASK = """
from pathlib import Path
from flask import Flask, jsonify, request, send_file, session, stream_with_context

app = Flask(__name__)
app.secret_key = "for tests"

@app.route("/groups", methods=["GET", "POST"])
def groups():
    session["visits"] = session.get("visits", 0) + 1
    return jsonify(visits=session["visits"])

@app.post("/upload")
def upload():
    file = request.files["file"]
    content = file.read()
    return jsonify(name=file.filename, size=len(content), sum=sum(content), note=request.form["note"])

@app.get("/download")
def download():
    return send_file(Path(__file__).parent / "static" / "digits.txt")
"""


def serving(name: str, source: str):
    """A fixture: the application served for the whole file."""

    @pytest.fixture(scope="module", name=name)
    def served(serve, tmp_path_factory: pytest.TempPathFactory):
        folder = tmp_path_factory.mktemp(name)
        folder.joinpath("pages.py").write_text(source)
        folder.joinpath("static").mkdir()
        folder.joinpath("static", "digits.txt").write_bytes(b"0123456789" * 50_000)
        with serve("pages:app", folder) as running:
            yield running

    return served


fastapi = serving("fastapi", FASTAPI)
starlette = serving("starlette", STARLETTE)
django_wsgi = serving("django_wsgi", DJANGO.format(kind="wsgi"))
django_asgi = serving("django_asgi", DJANGO.format(kind="asgi"))
flask = serving("flask", FLASK)


def ask_json(served, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None):
    status, _, answer = served.ask(method, path, body, headers or {})
    return status, json.loads(answer)


def test_fastapi_validates(fastapi) -> None:
    json_type = {"Content-Type": "application/json"}
    item = {"name": "a", "price": 1.5}
    assert ask_json(fastapi, "POST", "/items", json.dumps(item).encode(), json_type) == (200, item)
    status, found = ask_json(fastapi, "POST", "/items", b'{"name": "a", "price": -1}', json_type)
    assert (status, found["detail"][0]["loc"]) == (422, ["body", "price"])
    assert fastapi.ask("POST", "/items", b"", json_type)[1]["x-stamp"] == "/items"


def test_fastapi_dependencies_and_background_tasks(fastapi) -> None:
    assert ask_json(fastapi, "GET", "/user?token=me") == (200, {"user": "me", "context": "me"})
    deadline = time.monotonic() + 10
    while {"later me", "closed me"} - set(ask_json(fastapi, "GET", "/done")[1]):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_fastapi_web_socket(fastapi) -> None:
    with connect(f"ws://127.0.0.1:{fastapi.port}/socket", subprotocols=["other", "chat"]) as client:
        assert client.subprotocol == "chat"
        for said in ("hello", ["a", 1], "x" * 300_000):
            client.send(json.dumps(said))
            assert json.loads(client.recv()) == {"said": said}
        client.close(4001)
    deadline = time.monotonic() + 10
    while "left 4001" not in ask_json(fastapi, "GET", "/done")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_starlette_files(starlette) -> None:
    for path in ("/file", "/static/digits.txt"):
        status, fields, body = starlette.ask("GET", path)
        assert (status, body) == (200, b"0123456789" * 50_000)
        assert starlette.ask("GET", path, headers={"If-None-Match": fields["etag"]})[0] in (200, 304)
        found = starlette.ask("GET", path, headers={"Range": "bytes=499995-"})
        assert (found[0], found[2]) == (206, b"56789")
        assert starlette.ask("HEAD", path)[1]["content-length"] == "500000"
    assert starlette.ask("GET", "/static/../pages.py")[0] == 404


def test_starlette_compresses(starlette) -> None:
    status, fields, body = starlette.ask("GET", "/long", headers={"Accept-Encoding": "gzip"})
    assert (status, fields["content-encoding"]) == (200, "gzip")
    assert len(body) < 5000


@pytest.fixture(params=["django_wsgi", "django_asgi"])
def django(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


def test_django_database_and_sessions(django) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, fields, body = django.ask("POST", "/groups", b"name=writers", form)
    assert (status, json.loads(body)) == (200, {"names": ["writers"], "visits": 1})
    cookie = fields["set-cookie"].partition(";")[0]
    found = ask_json(django, "POST", "/groups", b"name=readers", {**form, "Cookie": cookie})
    assert found == (200, {"names": ["readers", "writers"], "visits": 2})


@pytest.fixture(params=["django_wsgi", "django_asgi", "flask"])
def uploads(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_uploads(uploads, size: int) -> None:
    content = bytes(range(10)) * (size // 10)
    parts = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="note"\r\n\r\na note\r\n'
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="some.bin"\r\n'
        f"Content-Type: application/octet-stream\r\n\r\n"
    )
    body = parts.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    expected = {"name": "some.bin", "size": size, "sum": sum(content), "note": "a note"}
    assert ask_json(uploads, "POST", "/upload", body, MULTIPART) == (200, expected)


def test_downloads(uploads) -> None:
    status, _, body = uploads.ask("GET", "/download")
    assert (status, body) == (200, b"0123456789" * 50_000)


def test_flask_sessions(flask) -> None:
    _, fields, body = flask.ask("GET", "/groups")
    assert json.loads(body) == {"visits": 1}
    cookie = fields["set-cookie"].partition(";")[0]
    assert ask_json(flask, "GET", "/groups", headers={"Cookie": cookie}) == (200, {"visits": 2})
