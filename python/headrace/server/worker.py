"""One process that serves: the loop, the application, the native server, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, Literal

from headrace._native import HttpServer
from headrace.server import accesslog, loading, templates
from headrace.server.config import Config
from headrace.server.lifespan import Lifespan
from headrace.server.threads import ThreadPool

logger = logging.getLogger("headrace.error")

#: How often the end of the running requests is looked for while draining, in seconds.
DRAIN_STEP = 0.02

#: Seconds between the cancelling of requests that outlived the grace time and the closing of their connections.
CANCEL_STEP = 0.5


class Server:
    """Serves one application on listening sockets, inside a running asyncio loop.

    On a Headrace loop the native server is called straight from the loop; on any other the loop watches the
    native poller's descriptor.

    :param application: the application object.
    :param sockets: listening sockets; they stay the caller's.
    :param config: how to serve.
    :param multiprocess: whether other processes serve the same application.
    """

    def __init__(
        self,
        application: Any,
        sockets: Sequence[socket.socket],
        config: Config,
        *,
        multiprocess: bool = False,
    ) -> None:
        self._application = application
        self._sockets = sockets
        self._config = config
        self._multiprocess = multiprocess
        self._interface: Literal["asgi", "wsgi", "tornado"] = (
            loading.interface(application) if config.interface == "auto" else config.interface
        )
        self._lifespan: Lifespan | None = None
        self._threads: ThreadPool | None = None
        self._native: HttpServer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watched: int | None = None
        self._pinging: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start the application, then accept connections.

        :raises StartupFailed: when the application says that it cannot start.
        """
        loop = asyncio.get_running_loop()
        if self._interface == "asgi":
            self._lifespan = Lifespan(self._application)
            await self._lifespan.startup()
        has_state = self._lifespan is not None and self._lifespan.supported
        threaded = self._interface == "wsgi" and self._config.concurrency == "threads"
        native = HttpServer(
            self._application,
            "wsgi.threads" if threaded else self._interface,
            loop,
            self._nudge_from_thread if threaded else self._nudge,
            self._config.native_options(),
        )
        if has_state and self._lifespan is not None:
            native.set_state(self._lifespan.state)
        self._native = native
        accesslog.attach(native, self._config)
        for sock in self._sockets:
            template = (
                templates.asgi(sock, self._config.root_path, has_state=has_state)
                if self._interface == "asgi"
                else templates.wsgi(
                    sock, self._config.root_path, multithread=threaded, multiprocess=self._multiprocess
                )
            )
            native.listen(sock.fileno(), template)
        self._watched = native.fileno()
        if self._watched is not None:
            loop.add_reader(self._watched, self._poll)
        if self._interface == "asgi":
            self._pinging = loop.call_later(self._config.limits.websocket_ping, self._ping)
        if threaded:
            self._loop = loop
            self._threads = ThreadPool(native, self._config.pool_size())

    def requests(self) -> int:
        """How many requests have come since the start."""
        return 0 if self._native is None else self._native.statistics()["requests"]

    async def stop(self, grace: float | None = None) -> None:
        """Let running requests end within the grace time, then stop the application.

        :param grace: that time in seconds; by default the configured one.
        """
        if self._native is not None:
            native = self._native
            native.drain()
            self._nudge()
            loop = asyncio.get_running_loop()
            deadline = loop.time() + (self._config.grace if grace is None else grace)
            # The native side has no event to wait for, and an end that comes a step late harms nobody.
            while native.statistics()["connections"] and loop.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(DRAIN_STEP)
            tasks = native.tasks()
            if tasks:
                logger.warning("%d requests did not end within the grace time; cancelled", len(tasks))
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks, timeout=CANCEL_STEP)
            native.abort()
            if self._threads is not None:
                await self._stop_threads(self._threads)
            if self._interface == "tornado":
                from headrace.server.tornado import close_streams

                await close_streams()
        if self._lifespan is not None:
            await self._lifespan.shutdown()
        self.close()

    async def _stop_threads(self, threads: ThreadPool) -> None:
        threads.stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CANCEL_STEP
        # They have no event that a loop could wait for.
        while threads.alive() and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(DRAIN_STEP)
        if threads.alive():
            logger.warning("%d requests did not end within the grace time; broken off", threads.alive())

    def hangs(self) -> bool:
        """Whether a thread is still in the application, after :meth:`close`: only the process's end ends it."""
        return self._threads is not None and not self._threads.join(CANCEL_STEP)

    def close(self) -> None:
        """Close every connection at once and leave the loop."""
        if self._native is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()
        if self._threads is not None:
            self._threads.stop()
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
        self._native.close()
        accesslog.report(self._native)
        self._native = None

    def reopen_logs(self) -> None:
        """Open the access log's file anew: it was moved away."""
        if self._native is not None:
            accesslog.reattach(self._native, self._config)

    def _ping(self) -> None:
        """Look after WebSockets whose clients are silent."""
        if self._native is not None:
            self._native.ping()
            every = self._config.limits.websocket_ping
            self._pinging = asyncio.get_running_loop().call_later(every, self._ping)

    # On a loop that is not ours

    def _nudge(self) -> None:
        """Have :meth:`_poll` run soon."""
        if self._watched is not None:
            asyncio.get_running_loop().call_soon(self._poll)

    def _nudge_from_thread(self) -> None:
        if self._watched is not None:
            self._loop.call_soon_threadsafe(self._poll)

    def _poll(self) -> None:
        if self._native is None:
            return
        again = self._native.poll()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if again is not None:
            self._timer = asyncio.get_running_loop().call_later(again, self._poll)


async def serve_until_stopped(
    server: Server, announce: Callable[[], None], lifeline: int | None = None
) -> None:
    """Run a server until SIGINT or SIGTERM; a second one ends the wait for running requests. SIGUSR1 reopens logs.

    :param announce: called once connections are accepted.
    :param lifeline: a descriptor that becomes readable when the master has died: the server ends then, too.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop_soon() -> None:
        if stop.is_set() and (task := ending.get("task")) is not None:
            task.cancel()
        stop.set()

    ending: dict[str, asyncio.Task[None]] = {}
    for number in signals:
        loop.add_signal_handler(number, stop_soon)
    loop.add_signal_handler(signal.SIGUSR1, server.reopen_logs)
    if lifeline is not None:
        loop.add_reader(lifeline, stop.set)
    try:
        await server.start()
        announce()
        await stop.wait()
        if lifeline is not None:
            loop.remove_reader(lifeline)
        ending["task"] = asyncio.create_task(server.stop())
        with contextlib.suppress(asyncio.CancelledError):
            await ending["task"]
    finally:
        server.close()
        for number in (*signals, signal.SIGUSR1):
            loop.remove_signal_handler(number)
