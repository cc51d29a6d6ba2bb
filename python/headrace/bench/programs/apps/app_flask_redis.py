"""The fifth source's application: INCR, then GET, by flask-redis."""

from __future__ import annotations

import os

from flask import Flask
from flask_redis import FlaskRedis

app = Flask(__name__)
app.config["REDIS_URL"] = os.environ["BENCH_REDIS_URL"]
store = FlaskRedis(app)


@app.route("/")
def index() -> bytes:
    """The number of hits, this one included or a later one."""
    store.incr("hit", 1)
    hits: bytes = store.get("hit")
    return hits
