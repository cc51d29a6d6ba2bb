"""``await headrace.serve(app)``: the server inside a loop that is running already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from headrace.server import binding
from headrace.server.config import Config, Interface, Limits
from headrace.server.worker import Server


async def serve(
    application: Any,
    *,
    bind: str | Sequence[str] = "127.0.0.1:8000",
    interface: Interface = "auto",
    root_path: str = "",
    backlog: int = 2048,
    grace: float = 30.0,
    limits: Limits | None = None,
    started: Callable[[Sequence[str]], object] | None = None,
) -> None:
    """Serve an application until the task that awaits this is cancelled; running requests are then answered first.

    Works on every asyncio loop; on :class:`headrace.Loop` nothing of Python's stands between a ready connection
    and the application. A WSGI application runs in the loop's thread, and holds the loop up while it works.

    :param application: the ASGI or WSGI application object.
    :param bind: where to listen: "HOST:PORT", "unix:PATH" or "fd:NUMBER", one or several.
    :param interface: "asgi" or "wsgi"; "auto" looks at the object.
    :param root_path: path prefix that a proxy took off.
    :param backlog: connections that the kernel queues before they are accepted.
    :param grace: seconds that running requests are given at the end.
    :param limits: bounds on what a client can ask; by default those of ``headrace serve``.
    :param started: called with the URLs once connections are accepted.
    :raises headrace.cli.UsageError: when an address is malformed, in use, or not ours to use.
    :raises headrace.server.lifespan.StartupFailed: when the application says that it cannot start.
    """
    binds = (bind,) if isinstance(bind, str) else tuple(bind)
    config = Config(
        application=type(application).__name__,
        bind=binds,
        interface=interface,
        root_path=root_path,
        backlog=backlog,
        grace=grace,
        limits=limits or Limits(),
    )
    sockets = []
    try:
        for address in binds:
            sockets.append(binding.listen(address, backlog))
        server = Server(application, sockets, config)
        try:
            await server.start()
            if started is not None:
                started([binding.url(sock) for sock in sockets])
            await asyncio.get_running_loop().create_future()
        finally:
            # Shielded: a second cancellation must not leave the application without its shutdown.
            await asyncio.shield(server.stop())
    finally:
        binding.close_all(sockets)
