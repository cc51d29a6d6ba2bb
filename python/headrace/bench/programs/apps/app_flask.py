"""Hello from Flask."""

from __future__ import annotations

from flask import Flask, Response

app = Flask(__name__)


@app.route("/")
def hello() -> Response:
    """Hello."""
    return Response("hello world\n", mimetype="text/plain")
