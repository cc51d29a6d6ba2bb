"""What a server can be told, each with a safe default."""

from __future__ import annotations

import dataclasses
from typing import Literal

Interface = Literal["auto", "asgi", "wsgi", "tornado"]

#: Where the requests of a WSGI application run: in the thread that serves the connections, in a pool of threads,
#: or in greenlets of gevent's.
Concurrency = Literal["inline", "threads", "gevent"]

#: Formats of the access log.
AccessLogFormat = Literal["common", "combined", "json"]

#: Threads of a worker where none are asked for.
DEFAULT_THREADS = 8
#: Greenlets of a worker where none are asked for: gunicorn's ``worker_connections``.
DEFAULT_GREENLETS = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a client can ask of the server. Times are in seconds, sizes in bytes.

    The native server reads these by name; crates/server/src/config.rs says which servers' values they follow.
    """

    #: Bytes of a request's head; more is answered with 431.
    head_size: int = 64 * 1024
    #: Number of header fields; more is answered with 431.
    head_fields: int = 100
    #: Bytes of the request target; more is answered with 414.
    target_size: int = 16 * 1024
    #: Bytes of a request's body; more is answered with 413.
    body_size: int = 1 << 30
    #: Connections at a time; more wait in the listener's queue.
    connections: int = 65_536
    #: Time from a head's first byte to its last; then 408.
    head_timeout: float = 30.0
    #: Time in which something of a body must arrive; then 408.
    body_timeout: float = 30.0
    #: Time in which a client must take something of an answer; then the connection breaks.
    write_timeout: float = 60.0
    #: Time that a connection may be idle between requests.
    keep_alive: float = 75.0
    #: Time that a connection which we closed is still read from, so that the last answer is not lost.
    linger: float = 2.0
    #: Requests that the application is at, at a time; more are answered with 503 and Retry-After.
    in_flight: int = 10_000
    #: Requests of one connection; with the last it closes.
    requests_per_connection: int = 100_000
    #: Bytes of one WebSocket message; more ends the connection with 1009.
    websocket_message_size: int = 16 * 1024 * 1024
    #: Time after which a silent WebSocket client is sent a ping, and after which one that does not answer is closed.
    websocket_ping: float = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """One server: what to host, where, and how."""

    #: "module:attribute" of the application.
    application: str
    #: Where to listen: "HOST:PORT", "unix:PATH" or "fd:NUMBER".
    bind: tuple[str, ...] = ("127.0.0.1:8000",)
    #: The interface that the application speaks; "auto" looks at the object.
    interface: Interface = "auto"
    #: Where the requests of a WSGI application run.
    concurrency: Concurrency = "inline"
    #: Requests that a worker runs at a time, in threads or greenlets; None for the default of either.
    threads: int | None = None
    #: Whether the attribute is a function without arguments that makes the application.
    factory: bool = False
    #: Worker processes.
    workers: int = 1
    #: Path prefix that a proxy took off (``root_path``, ``SCRIPT_NAME``).
    root_path: str = ""
    #: Connections that the kernel queues before they are accepted.
    backlog: int = 2048
    #: Seconds that running requests are given at the end.
    grace: float = 30.0
    #: The Server header of answers that have none; None for no header.
    server_header: str | None = "headrace"
    #: Start the workers anew when a file changes.
    reload: bool = False
    #: Folders whose files are watched for that.
    reload_dir: tuple[str, ...] = (".",)
    #: Names of further files than Python's, as in "*.html".
    reload_include: tuple[str, ...] = ()
    #: File of the access log; "-" for standard output, empty for none.
    access_log: str = ""
    #: What its lines look like.
    access_log_format: AccessLogFormat = "combined"
    limits: Limits = dataclasses.field(default_factory=Limits)

    def pool_size(self) -> int:
        """How many threads or greenlets run requests."""
        return self.threads or (DEFAULT_GREENLETS if self.concurrency == "gevent" else DEFAULT_THREADS)

    def native_options(self) -> dict[str, object]:
        """The options of the native server."""
        limits = dataclasses.asdict(self.limits)
        # When to ping is the worker's to know.
        del limits["websocket_ping"]
        return {**limits, "server_header": self.server_header}
