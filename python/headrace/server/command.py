"""``headrace serve``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

import headrace
from headrace.server import binding, loading
from headrace.server.config import Config
from headrace.server.lifespan import StartupFailed
from headrace.server.worker import Server, serve_until_stopped

#: Exit status when the application says that it cannot start; uvicorn's.
EXIT_STARTUP_FAILED = 3


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
        choices=("auto", "asgi", "wsgi"),
        default=defaults.interface,
        help="the interface that the application speaks (default: by a look at it)",
    )
    parser.add_argument(
        "--factory", action="store_true", help="the attribute is a function that makes the application"
    )
    parser.add_argument(
        "--root-path", default=defaults.root_path, metavar="PATH", help="path prefix that a proxy took off"
    )
    parser.add_argument(
        "--backlog",
        type=int,
        default=defaults.backlog,
        metavar="N",
        help=f"connections that wait to be accepted (default: {defaults.backlog})",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=defaults.grace,
        metavar="SECONDS",
        help=f"time that running requests are given at the end (default: {defaults.grace:g})",
    )


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
        factory=args.factory,
        root_path=args.root_path,
        backlog=args.backlog,
        grace=args.grace,
    )
    application = loading.load(config.application, factory=config.factory)
    sockets = []
    try:
        for bind in config.bind:
            sockets.append(binding.listen(bind, config.backlog))
        server = Server(application, sockets, config)

        def announce() -> None:
            places = ", ".join(binding.url(sock) for sock in sockets)
            print(f"headrace: serving {config.application} on {places} (Ctrl-C stops it)", file=sys.stderr)

        with asyncio.Runner(loop_factory=headrace.new_event_loop) as runner:
            runner.run(serve_until_stopped(server, announce))
    except StartupFailed as error:
        raise SystemExit(_startup_failed(error)) from error
    finally:
        binding.close_all(sockets)
    return 0


def _startup_failed(error: StartupFailed) -> int:
    print(f"headrace: the application did not start: {error}", file=sys.stderr)
    return EXIT_STARTUP_FAILED
