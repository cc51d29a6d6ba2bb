"""Real frameworks under ``headrace serve``, each with a page, a posted form and an error of its own."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path

import pytest

STARLETTE = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

async def hello(request):
    return PlainTextResponse("Hello " + request.query_params.get("name", "world"))

async def post(request):
    return JSONResponse({"length": len(await request.body()), "client": request.client.host})

async def stream(request):
    async def pieces():
        for i in range(1000):
            yield f"{i}\\n"
    return StreamingResponse(pieces(), media_type="text/plain")

async def fail(request):
    raise ValueError("the application's own fault")

app = Starlette(routes=[
    Route("/", hello), Route("/post", post, methods=["POST"]), Route("/stream", stream), Route("/fail", fail),
])
"""

FASTAPI = """
from contextlib import asynccontextmanager
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

@asynccontextmanager
async def lifespan(app):
    yield {"greeting": "Hello "}

app = FastAPI(lifespan=lifespan)

@app.get("/", response_class=PlainTextResponse)
async def hello(request: Request, name: str = "world"):
    return request.state.greeting + name

@app.post("/post")
async def post(request: Request):
    return {"length": len(await request.body()), "client": request.client.host}

@app.get("/stream")
def stream():
    return StreamingResponse((f"{i}\\n" for i in range(1000)), media_type="text/plain")

@app.get("/fail")
def fail():
    raise ValueError("the application's own fault")
"""

LITESTAR = """
from litestar import Litestar, MediaType, Request, get, post
from litestar.logging import LoggingConfig
from litestar.response import Stream

@get("/", media_type=MediaType.TEXT)
async def hello(name: str = "world") -> str:
    return "Hello " + name

@post("/post", status_code=200)
async def posted(request: Request) -> dict[str, int | str]:
    return {"length": len(await request.body()), "client": request.client.host}

@get("/stream", media_type=MediaType.TEXT)
async def stream() -> Stream:
    return Stream((f"{i}\\n" for i in range(1000)))

@get("/fail")
async def fail() -> None:
    raise ValueError("the application's own fault")

app = Litestar([hello, posted, stream, fail], logging_config=LoggingConfig(log_exceptions="always"))
"""

FLASK = """
from flask import Flask, Response, jsonify, request

app = Flask(__name__)

@app.get("/")
def hello():
    return Response("Hello " + request.args.get("name", "world"), mimetype="text/plain")

@app.post("/post")
def post():
    return jsonify(length=len(request.get_data()), client=request.remote_addr)

@app.get("/stream")
def stream():
    return Response((f"{i}\\n" for i in range(1000)), mimetype="text/plain")

@app.get("/fail")
def fail():
    raise ValueError("the application's own fault")
"""

DJANGO = """
import django
from django.conf import settings
from django.core.{kind} import get_{kind}_application
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

settings.configure(SECRET_KEY="for tests", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], USE_TZ=True)

def hello(request):
    return HttpResponse("Hello " + request.GET.get("name", "world"), content_type="text/plain")

@csrf_exempt
def post(request):
    return JsonResponse({{"length": len(request.body), "client": request.META["REMOTE_ADDR"]}})

def stream(request):
    return StreamingHttpResponse((f"{{i}}\\n" for i in range(1000)), content_type="text/plain")

def fail(request):
    raise ValueError("the application's own fault")

urlpatterns = [path("", hello), path("post", post), path("stream", stream), path("fail", fail)]
app = get_{kind}_application()
"""

APPLICATIONS = {
    "starlette": STARLETTE,
    "fastapi": FASTAPI,
    "litestar": LITESTAR,
    "flask": FLASK,
    "django-wsgi": DJANGO.format(kind="wsgi"),
    "django-asgi": DJANGO.format(kind="asgi"),
}


#: Each application, and each of WSGI's also where it may block.
CASES = {
    **{name: (name, ()) for name in APPLICATIONS},
    "flask-threads": ("flask", ("--concurrency", "threads")),
    "flask-gevent": ("flask", ("--concurrency", "gevent")),
    "django-wsgi-threads": ("django-wsgi", ("--concurrency", "threads")),
    "django-wsgi-gevent": ("django-wsgi", ("--concurrency", "gevent")),
}


@pytest.fixture(scope="module", params=CASES)
def served(serve, missing, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    name, options = CASES[request.param]
    if "gevent" in options and importlib.util.find_spec("gevent") is None:
        missing("gevent")
    folder = tmp_path_factory.mktemp("application")
    folder.joinpath("hello.py").write_text(APPLICATIONS[name])
    with serve("hello:app", folder, *options) as server:
        server.case = request.param
        yield server


def test_a_page(served) -> None:
    status, fields, body = served.ask("GET", "/?name=you%20all")
    assert (status, body) == (200, b"Hello you all")
    assert fields["content-type"].startswith("text/plain")


@pytest.mark.parametrize("size", [0, 5, 300_000])
def test_a_posted_body(served, size: int) -> None:
    status, _, body = served.ask("POST", "/post", bytes(size))
    assert (status, json.loads(body)) == (200, {"length": size, "client": "127.0.0.1"})


def test_a_posted_body_in_chunks(served) -> None:
    if served.case in ("django-wsgi-threads", "django-wsgi-gevent"):
        pytest.skip("Django reads no body without Content-Length, and one that streams has none")
    pieces = (b"x" * 1000 for _ in range(50))
    status, _, body = served.ask("POST", "/post", pieces)  # chunked, for its length is not known
    assert (status, json.loads(body)["length"]) == (200, 50_000)


def test_a_streamed_answer(served) -> None:
    status, _, body = served.ask("GET", "/stream")
    assert (status, body) == (200, "".join(f"{i}\n" for i in range(1000)).encode())


def test_head_and_not_found(served) -> None:
    assert served.ask("HEAD", "/")[2] == b""
    assert served.ask("GET", "/nowhere")[0] == 404
    assert served.ask("GET", "/")[0] == 200


def test_an_application_that_raises_gets_500_and_goes_on(served) -> None:
    assert served.ask("GET", "/fail")[0] == 500
    deadline = time.monotonic() + 10
    while "the application's own fault" not in served.log:  # frameworks raise after they have sent the 500
        assert time.monotonic() < deadline, served.log
        time.sleep(0.02)
    assert served.ask("GET", "/")[0] == 200


def test_the_validator_of_wsgi_has_no_complaint(serve, tmp_path: Path) -> None:
    tmp_path.joinpath("strict.py").write_text(
        "from wsgiref.validate import validator\n"
        "@validator\n"
        "def app(environ, start_response):\n"
        "    body = environ['wsgi.input'].read(int(environ.get('CONTENT_LENGTH') or 0))\n"
        "    start_response('200 OK', [('Content-Type', 'text/plain'), ('Content-Length', str(len(body)))])\n"
        "    return [body]\n"
    )
    with serve("strict:app", tmp_path) as server:
        assert server.ask("GET", "/a%20b?c=d")[0] == 200
        assert server.ask("POST", "/", b"posted")[2] == b"posted"
        assert server.ask("HEAD", "/")[0] == 200
        assert "Traceback" not in server.log and "AssertionError" not in server.log
