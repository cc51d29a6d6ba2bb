"""Threads that run the requests of a WSGI application (``--concurrency threads``)."""

from __future__ import annotations

import threading
import time

from headrace._native import HttpServer


class ThreadPool:
    """Threads that take requests from the native server's queue; each writes its answers itself.

    :param native: the server; its interface is "wsgi.threads".
    :param size: how many threads.
    """

    def __init__(self, native: HttpServer, size: int) -> None:
        self._native = native
        # Daemons: the process must be able to end while an application hangs.
        self._threads = [
            threading.Thread(target=native.work, name=f"headrace-wsgi-{number}", daemon=True)
            for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Have each thread end as soon as it has no request. Requests that wait are dropped."""
        self._native.stop_working()

    def join(self, timeout: float) -> bool:
        """Wait for the threads' end, for at most ``timeout`` seconds. Returns whether all have ended."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self.alive() == 0

    def alive(self) -> int:
        """How many threads have not ended."""
        return sum(thread.is_alive() for thread in self._threads)
