"""The first source's Tornado application: a plain string, a call to another API, a sleep."""

from __future__ import annotations

import asyncio
import json
import os

from tornado import web
from tornado.httpclient import AsyncHTTPClient


class Index(web.RequestHandler):
    """A plain string."""

    def get(self) -> None:
        """Hello."""
        self.set_header("Content-Type", "text/plain")
        self.write("hello world\n")


class Client(web.RequestHandler):
    """Calls the local API by Tornado's own client, as many at a time as there are requests."""

    async def get(self) -> None:
        """The price, doubled."""
        client = AsyncHTTPClient(max_clients=1000)
        answer = await client.fetch(os.environ["BENCH_UPSTREAM_URL"])
        self.write({"double": 2 * json.loads(answer.body)["price"]})


class Sleep(web.RequestHandler):
    """Waits without working."""

    async def get(self) -> None:
        """Hello, after 20 ms."""
        await asyncio.sleep(0.02)
        self.write("awake\n")


app = web.Application([("/", Index), ("/client", Client), ("/sleep", Sleep)])
