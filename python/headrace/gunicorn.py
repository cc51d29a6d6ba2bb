"""A gunicorn worker class: ``gunicorn -k headrace.gunicorn.Worker app:app``, for ASGI, WSGI and Tornado applications.

gunicorn's master opens the sockets, starts and replaces workers; Headrace serves in them. docs/server.md says which of
gunicorn's settings count.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import sys
from typing import Any

import headrace
from headrace.cli import UsageError
from headrace.server import loading
from headrace.server.config import Config, Limits
from headrace.server.lifespan import StartupFailed
from headrace.server.worker import Server

try:
    from gunicorn.arbiter import Arbiter
    from gunicorn.config import AccessLogFormat
    from gunicorn.workers.base import Worker as BaseWorker
except ImportError as error:
    raise ImportError("headrace.gunicorn is a worker class of gunicorn's: pip install gunicorn") from error

#: Seconds between two signs of life at the most; gunicorn's own workers give one each second.
HEARTBEAT = 1.0

#: The same where requests are counted: so much later may a worker notice that it has had enough of them.
COUNTING_HEARTBEAT = 0.1

#: Idle seconds for ``--keep-alive 0``: a connection's first request is waited for by the same deadline.
SHORTEST_KEEP_ALIVE = 1.0


class Worker(BaseWorker):  # type: ignore[misc]    # gunicorn has no types
    """Serves gunicorn's listening sockets with Headrace's server."""

    def run(self) -> None:
        """Serve until the master, or a setting, says that it is over."""
        self._log_to_gunicorn()
        config = self._config()
        self._quick = False
        self._server = Server(
            self.wsgi,
            [getattr(sock, "sock", sock) for sock in self.sockets],
            config,
            multiprocess=self.cfg.workers > 1,
        )
        try:
            with asyncio.Runner(loop_factory=headrace.new_event_loop) as runner:
                runner.run(self._serve())
        except StartupFailed as error:
            self.log.error("The application did not start: %s", error)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        except UsageError as error:
            self.log.error("%s", error)
            sys.exit(Arbiter.WORKER_BOOT_ERROR)
        if self._server.hangs():
            # The interpreter's own end would wait for what the application's thread holds.
            self.cfg.worker_exit(self, self)
            logging.shutdown()
            os._exit(0)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        loop.add_signal_handler(signal.SIGTERM, self._end)
        for number in (signal.SIGINT, signal.SIGQUIT):
            loop.add_signal_handler(number, self._end_quickly)
        loop.add_signal_handler(signal.SIGUSR1, self._reopen_logs)
        beating = asyncio.create_task(self._beat(), name="headrace-heartbeat")
        try:
            await self._server.start()
            await self._ended.wait()
            self._stopping = asyncio.create_task(self._server.stop(0.0 if self._quick else None))
            with contextlib.suppress(asyncio.CancelledError):
                await self._stopping
        finally:
            self._server.close()
            beating.cancel()

    async def _beat(self) -> None:
        """Give signs of life, as long as the loop turns, and look for reasons to end."""
        counting = self.max_requests < sys.maxsize
        step = COUNTING_HEARTBEAT if counting else min(HEARTBEAT, (self.timeout or 2 * HEARTBEAT) / 2)
        while True:
            self.notify()
            if not self._ended.is_set():
                if self.ppid != os.getppid():
                    self.log.info("Parent changed, shutting down: %s", self)
                    self._end()
                elif counting and self._server.requests() >= self.max_requests:
                    self.log.info("Autorestarting worker after current request.")
                    self._end()
                elif not self.alive:
                    # By gunicorn's reloader, from a thread of its own.
                    self._end()
            await asyncio.sleep(step)

    def _end(self) -> None:
        self.alive = False
        self._ended.set()

    def _end_quickly(self) -> None:
        first = not self._quick
        self._quick = True
        if first:
            self.cfg.worker_int(self)
        if self._stopping is not None:
            self._stopping.cancel()
        self._end()

    def _reopen_logs(self) -> None:
        self.log.reopen_files()
        self._server.reopen_logs()

    def _log_to_gunicorn(self) -> None:
        """Let the server's own messages go where gunicorn's error log goes."""
        logger = logging.getLogger("headrace")
        logger.handlers = self.log.error_log.handlers
        logger.setLevel(self.log.error_log.level)
        logger.propagate = False

    def _config(self) -> Config:
        cfg = self.cfg
        for setting, missing in {
            "certfile": cfg.is_ssl,
            "proxy_protocol": cfg.proxy_protocol not in (False, "off"),
        }.items():
            if missing:
                self.log.error("headrace.gunicorn.Worker has no %s: let the proxy in front do it", setting)
                sys.exit(Arbiter.APP_LOAD_ERROR)
        if cfg.accesslog and cfg.access_log_format != AccessLogFormat.default:
            self.log.warning("headrace.gunicorn.Worker writes the access log in the combined format")
        kind = loading.interface(self.wsgi)
        defaults = Limits()
        return Config(
            application=str(cfg.wsgi_app or type(self.wsgi).__name__),
            interface=kind,
            concurrency="threads" if kind == "wsgi" and cfg.threads > 1 else "inline",
            threads=cfg.threads if cfg.threads > 1 else None,
            root_path=_root_path(cfg, kind),
            grace=float(cfg.graceful_timeout),
            access_log=cfg.accesslog or "",
            limits=dataclasses.replace(
                defaults,
                keep_alive=float(cfg.keepalive) or SHORTEST_KEEP_ALIVE,
                connections=cfg.worker_connections,
                head_fields=cfg.limit_request_fields or defaults.head_fields,
                target_size=cfg.limit_request_line or defaults.target_size,
            ),
        )


def _root_path(cfg: Any, kind: str) -> str:
    """The path prefix that a proxy took off: gunicorn has two ways to say it."""
    path = str(getattr(cfg, "root_path", "")) if kind == "asgi" else ""
    return path or os.environ.get("SCRIPT_NAME", "")
