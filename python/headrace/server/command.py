"""``headrace serve``."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import headrace
from headrace.cli import UsageError
from headrace.server import binding, greenlets, loading
from headrace.server.config import DEFAULT_GREENLETS, DEFAULT_THREADS, Config, Limits
from headrace.server.lifespan import StartupFailed
from headrace.server.worker import Server, serve_until_stopped
from headrace.supervisor import Prefork, Worker

#: Exit status when the application says that it cannot start; uvicorn's.
EXIT_STARTUP_FAILED = 3

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
    "linger": "seconds that a closed connection is still read from, so that its last answer arrives",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``headrace serve``."""
    defaults = Config(application="")
    parser.add_argument("application", metavar="MODULE:ATTRIBUTE", help="the application, as in main:app")
    parser.add_argument(
        "--bind",
        action="append",
        metavar="ADDRESS",
        help=f"HOST:PORT, unix:PATH or fd:NUMBER; may be given several times (default: {defaults.bind[0]})",
    )
    parser.add_argument(
        "--interface",
        choices=("auto", "asgi", "wsgi", "tornado"),
        default=defaults.interface,
        help="the interface that the application speaks (default: by a look at it)",
    )
    parser.add_argument(
        "--concurrency",
        choices=("inline", "threads", "gevent"),
        default=defaults.concurrency,
        help="where requests of a WSGI application run: in the thread that serves the connections, in a pool of "
        "threads, or in greenlets (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=positive(int),
        metavar="N",
        help="requests that a worker runs at a time with --concurrency threads "
        f"(default: {DEFAULT_THREADS}) or gevent (default: {DEFAULT_GREENLETS})",
    )
    parser.add_argument(
        "--factory", action="store_true", help="the attribute is a function that makes the application"
    )
    parser.add_argument(
        "--workers",
        type=workers,
        default=defaults.workers,
        metavar="N",
        help=f"worker processes, or 'auto': one for each CPU that is ours to use (default: {defaults.workers})",
    )
    parser.add_argument(
        "--check", action="store_true", help="load the application, open the sockets, and exit"
    )
    parser.add_argument(
        "--root-path", default=defaults.root_path, metavar="PATH", help="path prefix that a proxy took off"
    )
    parser.add_argument(
        "--backlog",
        type=positive(int),
        default=defaults.backlog,
        metavar="N",
        help=f"connections that wait to be accepted (default: {defaults.backlog})",
    )
    parser.add_argument(
        "--grace",
        type=positive(float),
        default=defaults.grace,
        metavar="SECONDS",
        help=f"seconds that running requests are given at the end (default: {defaults.grace:g})",
    )
    limits = parser.add_argument_group("limits")
    for field in dataclasses.fields(Limits):
        kind = type(field.default)
        limits.add_argument(
            "--" + field.name.replace("_", "-"),
            type=positive(kind),
            default=field.default,
            metavar="SECONDS" if kind is float else "N",
            help=f"{LIMIT_HELP[field.name]} (default: {field.default:g})"
            if kind is float
            else f"{LIMIT_HELP[field.name]} (default: {field.default})",
        )


def positive(kind: type[Any]) -> Callable[[str], Any]:
    """A parser of numbers above zero."""

    def parse(text: str) -> Any:
        number = kind(text)
        if not 0 < number < 1 << 62:
            raise ValueError(text)
        return number

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def workers(text: str) -> int:
    """A number of workers; "auto" is one for each CPU that this process may use, cgroup quota included."""
    return available_cpus() if text == "auto" else positive(int)(text)


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


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop.

    :returns: 0, or 3 when the application says that it cannot start.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("headrace").setLevel(logging.INFO)
    config = Config(
        application=args.application,
        bind=tuple(args.bind or Config(application="").bind),
        interface=args.interface,
        concurrency=args.concurrency,
        threads=args.threads,
        factory=args.factory,
        workers=args.workers,
        root_path=args.root_path,
        backlog=args.backlog,
        grace=args.grace,
        limits=Limits(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Limits)}),
    )
    if config.concurrency == "gevent":
        greenlets.require()
    sockets: list[socket.socket] = []
    try:
        for bind in config.bind:
            sockets.append(binding.listen(bind, config.backlog))
        if args.check:
            application = loading.load(config.application, factory=config.factory)
            kind = loading.interface(application) if config.interface == "auto" else config.interface
            print(f"headrace: {config.application} loads ({kind}), and its addresses are free")
            return 0
        places = ", ".join(binding.url(sock) for sock in sockets)
        serving = f"serving {config.application} on {places}"
        if config.workers == 1:
            return work(config, sockets, lambda: say(f"{serving} (Ctrl-C stops it)"))
        say(f"{serving} with {config.workers} workers (Ctrl-C stops it)")

        def work_forked(worker: Worker) -> int:
            try:
                return work(config, sockets, worker.ready, worker.lifeline_fd)
            except UsageError as error:
                say(str(error))
                return 2

        return Prefork(work_forked, config.workers, config.grace, say).run()
    finally:
        binding.close_all(sockets)


def work(
    config: Config,
    sockets: Sequence[socket.socket],
    announce: Callable[[], None],
    lifeline: int | None = None,
) -> int:
    """Load the application and serve it in this process, until told to stop."""
    if config.concurrency == "gevent":
        greenlets.patch()
    application = loading.load(config.application, factory=config.factory)
    kind = loading.interface(application) if config.interface == "auto" else config.interface
    if config.concurrency != "inline" and kind != "wsgi":
        raise UsageError(
            f"--concurrency {config.concurrency} is for WSGI applications, and {config.application} is {kind}"
        )
    multiprocess = config.workers > 1
    if config.concurrency == "gevent":
        greenlets.serve_until_stopped(
            application, sockets, config, announce, lifeline, multiprocess=multiprocess
        )
        return 0
    server = Server(application, sockets, config, multiprocess=multiprocess)
    try:
        with asyncio.Runner(loop_factory=headrace.new_event_loop) as runner:
            runner.run(serve_until_stopped(server, announce, lifeline))
    except StartupFailed as error:
        say(f"the application did not start: {error}")
        return EXIT_STARTUP_FAILED
    if server.hangs():
        # The interpreter's own end would wait for what the application's thread holds, or pull it from under it.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def say(line: str) -> None:
    """A line for the user."""
    print(f"headrace: {line}", file=sys.stderr, flush=True)
