"""The lifespan protocol of ASGI: start-up before the first request, shutdown after the last."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

logger = logging.getLogger("headrace.error")


class StartupFailed(Exception):
    """The application said that it cannot start."""


class Lifespan:
    """Runs an application's lifespan in a task of its own.

    An application that raises before it has answered does not speak the protocol (ASGI lifespan
    specification, "Scope"): that is not an error.
    """

    def __init__(self, application: Any) -> None:
        self.state: dict[str, Any] = {}
        self.supported = False
        self._application = application
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._started = asyncio.Event()
        self._stopped = asyncio.Event()
        self._failure: str | None = None
        self._task: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """Start the application.

        :raises StartupFailed: with the application's message, when it says so.
        """
        self._task = asyncio.get_running_loop().create_task(self._run(), name="headrace-lifespan")
        self._events.put_nowait({"type": "lifespan.startup"})
        await self._started.wait()
        if self._failure is not None:
            raise StartupFailed(self._failure or "the application's start-up failed")

    async def shutdown(self) -> None:
        """Tell the application that the last request is over, and wait for its answer."""
        if self._task is None or self._task.done() or not self.supported:
            return
        self._events.put_nowait({"type": "lifespan.shutdown"})
        await self._stopped.wait()
        if self._failure:
            logger.error("Application shutdown failed: %s", self._failure)

    async def _run(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        try:
            await self._application(scope, self._events.get, self._send)
        except BaseException as error:
            if self._started.is_set() and not self._stopped.is_set() and self.supported:
                logger.error("Exception in the application's lifespan", exc_info=error)
            elif self._failure is not None:
                logger.debug("Exception after a failed start-up", exc_info=error)
            else:
                logger.debug("The application does not speak the lifespan protocol", exc_info=error)
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise
        finally:
            self._started.set()
            self._stopped.set()

    async def _send(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "lifespan.startup.complete":
                self.supported = True
                self._started.set()
            case "lifespan.startup.failed":
                self._failure = str(message.get("message", ""))
                self._started.set()
            case "lifespan.shutdown.complete":
                self._stopped.set()
            case "lifespan.shutdown.failed":
                self._failure = str(message.get("message", "")) or "no reason given"
                self._stopped.set()
            case other:
                raise RuntimeError(f"Unexpected ASGI message {other!r} in the lifespan protocol")
