"""A small JSON document from Starlette."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def document(request: Request) -> JSONResponse:
    """The document."""
    return JSONResponse({"message": "hello", "numbers": [1, 2, 3]})


app = Starlette(routes=[Route("/json", document)])
