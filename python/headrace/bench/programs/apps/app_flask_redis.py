"""The fifth source's application: INCR, then GET, by flask-redis."""

from __future__ import annotations

import os

from flask import Flask
from flask_redis import FlaskRedis

app = Flask(__name__)
app.config["REDIS_URL"] = os.environ["BENCH_REDIS_URL"]
# redis-py's pool refuses a 101st connection: a worker with more requests than that under way, as greenlets allow,
# would answer 500 for the client's limit, not for the server's.
store = FlaskRedis(app, max_connections=1000)


@app.route("/")
def index() -> bytes:
    """The number of hits, this one included or a later one."""
    store.incr("hit", 1)
    hits: bytes = store.get("hit")
    return hits
