"""The bodies of ``http-hello`` and ``http-sizes`` from aiohttp's server on any asyncio loop."""

from __future__ import annotations

import asyncio

from aiohttp import web
from bench_support import arguments, listener, run

BODIES = {f"/{size}": b"x" * size for size in (1024, 10240, 102400)}
HELLO = b"hello world\n"


async def answer(request: web.Request) -> web.Response:
    """The body of the path's size."""
    return web.Response(body=BODIES.get(request.path, HELLO), content_type="text/plain")


async def serve(bind: str) -> None:
    """Listen, and serve until the process is ended."""
    app = web.Application()
    app.router.add_get("/{size:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener(bind)).start()
    await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    args = arguments().parse_args()
    run(args.loop, serve(args.bind))


if __name__ == "__main__":
    main()
