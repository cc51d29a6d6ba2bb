"""Real frameworks on each server: what is left of a server's gain under an application."""

from typing import Any

from headrace.bench import checks
from headrace.bench.model import Case, Package, Scenario

JSON = "application/json"
GOOD = ("--expect-status", "200")


def json_case(path: str, wanted: Any, connections: int = 64) -> Case:
    """One JSON answer, asked for by GET."""
    check = checks.http_answer(path, checks.json_body(wanted), content_type=JSON)
    return Case(path, check, "http://{bind}" + path, connections, GOOD)


FLASK_HELLO = Scenario(
    name="flask-hello",
    summary="hello from Flask, 64 connections",
    workloads={"wsgi": ("app_flask:app",)},
    cases=(Case("hello", checks.http_answer("/", b"hello world\n"), "http://{bind}/", 64, GOOD),),
    baseline="gunicorn-gthread",
    needs=(Package("flask"),),
)

STARLETTE_JSON = Scenario(
    name="starlette-json",
    summary="a small JSON document from Starlette, 64 connections",
    workloads={"asgi": ("app_starlette:app",)},
    cases=(json_case("/json", {"message": "hello", "numbers": [1, 2, 3]}),),
    baseline="uvicorn",
    needs=(Package("starlette"),),
)

ITEM = b'{"name": "lamp", "price": 12.5, "tags": ["home", "light"]}'

FASTAPI_VALIDATE = Scenario(
    name="fastapi-validate",
    summary="FastAPI validates a posted JSON object and answers with it, 64 connections",
    workloads={"asgi": ("app_fastapi:app",)},
    cases=(
        Case(
            name="POST /items",
            check=checks.http_answer(
                "/items/7?q=on",
                checks.json_body(
                    {"id": 7, "q": "on", "name": "lamp", "price": 12.5, "tags": ["home", "light"]}
                ),
                method="POST",
                sent=ITEM,
                headers={"content-type": JSON},
                content_type=JSON,
            ),
            url="http://{bind}/items/7?q=on",
            connections=64,
            options=(*GOOD, "--method", "POST", "--header", f"content-type: {JSON}"),
            body=ITEM,
        ),
    ),
    baseline="uvicorn",
    needs=(Package("fastapi"),),
)

DJANGO_SQLITE = Scenario(
    name="django-orm-sqlite",
    summary="twenty rows by Django's ORM from SQLite as JSON, 64 connections",
    workloads={"wsgi": ("app_django:wsgi",), "asgi": ("app_django:asgi",)},
    cases=(json_case("/rows", [{"id": i, "name": f"row {i}"} for i in range(1, 21)]),),
    baseline="gunicorn-gthread",
    needs=(Package("django"),),
)
