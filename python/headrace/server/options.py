"""The options of ``headrace serve``, each declared once: its word, its help, and how its text is read.

The command line, the variables and the configuration file (:mod:`headrace.server.settings`) are made from this table;
defaults are those of :class:`~headrace.server.config.Config` and :class:`~headrace.server.config.Limits`, in fields of
the same names.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import Any

from headrace.cli import UsageError
from headrace.server import binding
from headrace.server.config import DEFAULT_GREENLETS, DEFAULT_THREADS, Config, Limits


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One option.

    :param name: its word without the dashes; also its key in a file, and, in capitals, its variable.
    :param help: what ``--help`` says of it.
    :param group: its heading in ``--help``.
    :param parse: the value of a text; raises :class:`ValueError`, which says what the text must be.
    :param metavar: what stands for the value in ``--help``.
    :param many: may be given several times; a comma separates several values in a variable.
    :param flag: is on or off.
    """

    name: str
    help: str
    group: str
    parse: Callable[[str], Any] = str
    metavar: str = ""
    many: bool = False
    flag: bool = False

    @property
    def field(self) -> str:
        """The field of Config or Limits that it sets."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable that it may come from."""
        return "HEADRACE_" + self.field.upper()

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return self.metavar in ("N", "SECONDS")

    @property
    def default(self) -> Any:
        """The value when nobody says anything."""
        return _defaults()[self.field]


@functools.cache
def _defaults() -> dict[str, Any]:
    config = Config(application="")
    return {
        holder_field.name: getattr(holder, holder_field.name)
        for holder in (config, config.limits)
        for holder_field in dataclasses.fields(holder)
    }


# How texts are read


def positive(kind: type[int] | type[float]) -> Callable[[str], int | float]:
    """A parser of numbers above zero."""

    def parse(text: str) -> int | float:
        try:
            number = kind(text)
        except ValueError:
            number = kind(0)
        if not 0 < number < 1 << 62:
            raise ValueError("must be a whole number above 0" if kind is int else "must be a number above 0")
        return number

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """A parser of one word out of some."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}")
        return text

    return parse


def on_or_off(text: str) -> bool:
    """The value of a flag's variable."""
    match text.lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off":
            return False
    raise ValueError("must be 1, true, yes or on, or else 0, false, no or off")


def address(text: str) -> str:
    """Where to listen."""
    kind, colon, rest = text.partition(":")
    try:
        if kind == "fd" and colon:
            if not rest.isascii() or not rest.isdigit():
                raise ValueError("must have a file descriptor's number after 'fd:'")
        elif kind == "unix" and colon:
            if not rest:
                raise ValueError("must have a path after 'unix:'")
        else:
            binding.parse_tcp(text)
    except UsageError:
        raise ValueError("must be HOST:PORT, unix:PATH or fd:NUMBER") from None
    return text


def folder(text: str) -> str:
    """A folder that is there."""
    if not os.path.isdir(text):
        raise ValueError("must be a folder that is there")
    return text


def workers(text: str) -> int:
    """A number of workers; "auto" is one for each CPU that this process may use, cgroup quota included."""
    if text == "auto":
        return available_cpus()
    try:
        return int(positive(int)(text))
    except ValueError:
        raise ValueError("must be a whole number above 0, or 'auto'") from None


def available_cpus() -> int:
    """CPUs that this process may use: its affinity, and the quota of its cgroup (version 2) if that is less."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            count = min(count, -(-int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return max(count, 1)


# The table

#: What each limit is, as ``--help`` says it.
LIMIT_HELP = {
    "head_size": "bytes of a request's head; more is 431",
    "head_fields": "number of header fields; more is 431",
    "target_size": "bytes of the request target; more is 414",
    "body_size": "bytes of a request's body; more is 413",
    "connections": "connections of a worker at a time; more wait in the queue",
    "head_timeout": "seconds from a head's first byte to its last; then 408",
    "body_timeout": "seconds in which something of a body must arrive; then 408",
    "write_timeout": "seconds in which a client must take something of an answer",
    "keep_alive": "seconds that a connection may be idle between requests",
    "in_flight": "requests of a worker at a time; more are answered with 503",
    "requests_per_connection": "requests of a connection; with the last it closes",
    "websocket_message_size": "bytes of a WebSocket message",
    "websocket_ping": "seconds after which a silent WebSocket client is pinged, and then closed",
    "linger": "seconds that a closed connection is still read from, so that its last answer arrives",
}

APPLICATION = "application"
ADDRESSES = "addresses"
PROCESSES = "processes"
DEVELOPMENT = "development"
LOGGING = "logging"
LIMITS = "limits"

#: All options, in the order of ``--help``. The application is one, too, though its word stands alone.
OPTIONS: tuple[Option, ...] = (
    Option("application", "the application, as in main:app", APPLICATION, metavar="MODULE:ATTRIBUTE"),
    Option(
        "interface",
        "auto, asgi, wsgi or tornado: the interface that the application speaks; auto looks at it",
        APPLICATION,
        one_of("auto", "asgi", "wsgi", "tornado"),
        metavar="NAME",
    ),
    Option("factory", "the attribute is a function that makes the application", APPLICATION, flag=True),
    Option("root-path", "path prefix that a proxy took off", APPLICATION, metavar="PATH"),
    Option(
        "bind",
        "HOST:PORT, unix:PATH or fd:NUMBER; may be given several times",
        ADDRESSES,
        address,
        metavar="ADDRESS",
        many=True,
    ),
    Option(
        "backlog",
        "connections that wait to be accepted",
        ADDRESSES,
        positive(int),
        metavar="N",
    ),
    Option(
        "workers",
        "worker processes, or 'auto': one for each CPU that is ours to use",
        PROCESSES,
        workers,
        metavar="N",
    ),
    Option(
        "concurrency",
        "inline, threads or gevent: where requests of a WSGI application run, in the thread that serves the "
        "connections, in a pool of threads, or in greenlets",
        PROCESSES,
        one_of("inline", "threads", "gevent"),
        metavar="NAME",
    ),
    Option(
        "threads",
        f"requests that a worker runs at a time with --concurrency threads (default: {DEFAULT_THREADS}) or gevent "
        f"(default: {DEFAULT_GREENLETS})",
        PROCESSES,
        positive(int),
        metavar="N",
    ),
    Option(
        "grace",
        "seconds that running requests are given at the end",
        PROCESSES,
        positive(float),
        metavar="SECONDS",
    ),
    Option(
        "reload", "start anew when a Python file below the current folder changes", DEVELOPMENT, flag=True
    ),
    Option(
        "reload-dir",
        "watch this folder instead; may be given several times",
        DEVELOPMENT,
        folder,
        metavar="FOLDER",
        many=True,
    ),
    Option(
        "reload-include",
        "watch files of such names, too, as in '*.html'; may be given several times",
        DEVELOPMENT,
        metavar="PATTERN",
        many=True,
    ),
    Option(
        "access-log",
        "file for a line about each request, '-' for standard output (default: no access log)",
        LOGGING,
        metavar="FILE",
    ),
    Option(
        "access-log-format",
        "common, combined or json",
        LOGGING,
        one_of("common", "combined", "json"),
        metavar="NAME",
    ),
    *(
        Option(
            field.name.replace("_", "-"),
            LIMIT_HELP[field.name],
            LIMITS,
            positive(float if isinstance(field.default, float) else int),
            metavar="SECONDS" if isinstance(field.default, float) else "N",
        )
        for field in dataclasses.fields(Limits)
    ),
)
