"""WSGI applications in greenlets (``--concurrency gevent``): the gevent hub takes the place of the asyncio loop."""

from __future__ import annotations

import importlib.util
import logging
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from headrace._native import HttpServer
from headrace.cli import UsageError
from headrace.server import accesslog, templates
from headrace.server.config import Config

logger = logging.getLogger("headrace.error")

#: How often the end of the running requests is looked for while draining, in seconds.
DRAIN_STEP = 0.02

#: Seconds that requests are given to end after they were killed.
KILL_STEP = 0.5


def require() -> None:
    """See that gevent can be imported.

    :raises UsageError: when it is not installed.
    """
    try:
        found = importlib.util.find_spec("gevent") is not None
    except ValueError:  # an entry without a spec in sys.modules
        found = False
    if not found:
        raise UsageError("--concurrency gevent needs gevent: pip install gevent")


def patch() -> None:
    """Replace what blocks in the standard library by what lets other greenlets run (``gevent.monkey``).

    To be called before the application is imported, in the process that serves it.
    """
    from gevent import monkey

    with warnings.catch_warnings():
        # asyncio, which headrace imports, has imported ssl. gevent warns of that for subclasses of its contexts
        # that exist already; nothing that was imported so far has any.
        warnings.simplefilter("ignore", monkey.MonkeyPatchWarning)
        monkey.patch_all()


class Hub:
    """What the native server wants of an event loop, over gevent's hub."""

    def __init__(self) -> None:
        from gevent.event import Event
        from gevent.hub import get_hub

        self.hub: Any = get_hub()
        self.create_event: Callable[[], Any] = Event

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        """Run a callback in the hub. SystemExit and its like go on to the main greenlet."""
        self.hub.loop.run_callback_threadsafe(self._run, callback)

    def _run(self, callback: Callable[[], object]) -> None:
        try:
            callback()
        except (SystemExit, KeyboardInterrupt):
            self.hub.handle_system_error(*sys.exc_info()[:2])


class Server:
    """Serves one WSGI application on listening sockets, in the hub of the main thread.

    The hub watches the native poller's descriptor. Requests run in greenlets that are kept: one that has ended
    its request takes the next one that waits.

    :param application: the application object.
    :param sockets: listening sockets; they stay the caller's.
    :param config: how to serve; ``threads`` bounds the greenlets.
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
        from greenlet import getcurrent, greenlet

        self._getcurrent: Callable[[], Any] = getcurrent
        self._greenlet: Callable[..., Any] = greenlet
        self._config = config
        self._size = config.pool_size()
        self._hub = Hub()
        self._loop: Any = self._hub.hub.loop
        self._idle: list[Any] = []
        self._greenlets: set[Any] = set()
        self._timer: Any = None
        self._due = 0.0
        self._stopping = False
        self._nudged = False
        self._native = HttpServer(
            application, "wsgi.greenlets", self._hub, self._nudge, config.native_options()
        )
        accesslog.attach(self._native, config)
        for sock in sockets:
            template = templates.wsgi(sock, config.root_path, multithread=True, multiprocess=multiprocess)
            self._native.listen(sock.fileno(), template)
        fd = self._native.fileno()
        self._watcher: Any = self._loop.io(fd, 1)
        self._watcher.start(self._poll)

    def reopen_logs(self) -> None:
        """Open the access log's file anew: it was moved away."""
        accesslog.reattach(self._native, self._config)

    def stop(self, give_up: Callable[[], bool]) -> None:
        """Let running requests end within the grace time, then break them off.

        :param give_up: asked again and again whether to wait no longer.
        """
        import gevent

        self._native.drain()
        self._nudge()
        with gevent.Timeout(self._config.grace, False):
            while self._native.statistics()["connections"] and not give_up():
                gevent.sleep(DRAIN_STEP)
        self._stopping = True
        self._native.stop_working()
        for _ in range(len(self._idle)):
            self._loop.run_callback(self._idle.pop().switch)
        gevent.sleep(0)
        running = list(self._greenlets)
        for greenlet in running:
            self._loop.run_callback(greenlet.throw, gevent.GreenletExit)
        self._native.abort()
        with gevent.Timeout(KILL_STEP, False):
            while self._greenlets:
                gevent.sleep(DRAIN_STEP)
        self._watcher.stop()
        self._watcher.close()
        if self._timer is not None:
            self._timer.close()
        self._native.close()
        accesslog.report(self._native)
        if running:
            logger.warning("%d requests did not end within the grace time; broken off", len(running))

    # In the hub

    def _nudge(self) -> None:
        """Have :meth:`_poll` run soon."""
        if not self._nudged:
            self._nudged = True
            self._loop.run_callback(self._poll)

    def _poll(self) -> None:
        self._nudged = False
        again = self._native.poll()
        self._hand_out()
        if again is None:
            return
        due = time.monotonic() + again
        # A timer that fires too early does no harm: deadlines move with each request, and seldom fall due.
        if self._timer is None or due < self._due or self._due <= time.monotonic():
            if self._timer is not None:
                self._timer.close()
            self._due = due
            self._timer = self._loop.timer(again)
            self._timer.start(self._poll)

    def _hand_out(self) -> None:
        """Switch to greenlets until no request waits, or no more may run. Each takes all that it can."""
        while not self._stopping and self._native.queued():
            if self._idle:
                self._idle.pop().switch()
            elif len(self._greenlets) < self._size:
                new = self._greenlet(self._work, self._hub.hub)
                self._greenlets.add(new)
                new.switch()
            else:
                return

    # In the greenlets

    def _work(self) -> None:
        me = self._getcurrent()
        try:
            while not self._stopping:
                self._native.run_queued()
                if self._stopping:
                    break
                self._idle.append(me)
                self._hub.hub.switch()
        finally:
            self._greenlets.discard(me)


def serve_until_stopped(
    application: Any,
    sockets: Sequence[socket.socket],
    config: Config,
    announce: Callable[[], None],
    lifeline: int | None = None,
    *,
    multiprocess: bool = False,
) -> None:
    """Run a server until SIGINT or SIGTERM; a second one ends the wait for running requests.

    :param announce: called once connections are accepted.
    :param lifeline: a descriptor that becomes readable when the master has died: the server ends then, too.
    """
    import gevent
    from gevent.event import Event

    stop = Event()
    again = Event()

    def stop_soon() -> None:
        (again if stop.is_set() else stop).set()

    handlers = [gevent.signal_handler(number, stop_soon) for number in (signal.SIGINT, signal.SIGTERM)]
    watcher = None
    if lifeline is not None:
        watcher = gevent.get_hub().loop.io(lifeline, 1)
        watcher.start(stop.set)
    server = Server(application, sockets, config, multiprocess=multiprocess)
    handlers.append(gevent.signal_handler(signal.SIGUSR1, server.reopen_logs))
    announce()
    stop.wait()
    if watcher is not None:
        watcher.stop()
        watcher.close()
    server.stop(again.is_set)
    for handler in handlers:
        handler.cancel()
