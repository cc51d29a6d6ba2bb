"""``headrace serve``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import headrace
from headrace.cli import UsageError
from headrace.server import accesslog, binding, greenlets, loading
from headrace.server.config import Config
from headrace.server.lifespan import StartupFailed
from headrace.server.options import OPTIONS
from headrace.server.settings import config_of, report, resolve
from headrace.server.worker import Server, serve_until_stopped
from headrace.supervisor import Prefork, Reloading, Worker

#: Exit status when the application says that it cannot start; uvicorn's.
EXIT_STARTUP_FAILED = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``headrace serve``. Their texts are read later, with those of variables and files."""
    parser.allow_abbrev = False
    parser.epilog = (
        "Every option may also be a variable (HEADRACE_HEAD_SIZE for --head-size) or a key of headrace.toml or of "
        "[tool.headrace] in pyproject.toml. The option wins, then the variable, then the file."
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the file of settings (default: headrace.toml or pyproject.toml, if here)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="load the application, open the sockets, say which settings are not the default's, and exit",
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in OPTIONS:
        if option.name == "application":
            parser.add_argument("application", nargs="?", metavar=option.metavar, help=option.help)
            continue
        group = groups.get(option.group) or groups.setdefault(
            option.group, parser.add_argument_group(option.group)
        )
        if option.flag:
            group.add_argument(
                "--" + option.name, action=argparse.BooleanOptionalAction, default=None, help=option.help
            )
            continue
        default = ", ".join(option.default) if isinstance(option.default, tuple) else option.default
        if isinstance(default, float):
            default = f"{default:g}"
        group.add_argument(
            "--" + option.name,
            action="append" if option.many else "store",
            metavar=option.metavar,
            help=f"{option.help} (default: {default})" if default else option.help,
        )


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop.

    :returns: 0, or 3 when the application says that it cannot start.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("headrace").setLevel(logging.INFO)
    settings = resolve(args, os.environ, Path.cwd())
    config = config_of(settings)
    if config.concurrency == "gevent":
        greenlets.require()
    accesslog.check(config)
    sockets: list[socket.socket] = []
    try:
        for bind in config.bind:
            sockets.append(binding.listen(bind, config.backlog))
        if args.check:
            application = loading.load(config.application, factory=config.factory)
            kind = loading.interface(application) if config.interface == "auto" else config.interface
            print(f"headrace: {config.application} loads ({kind}), and its addresses are free")
            for line in report(settings):
                print(f"  {line}")
            return 0
        places = ", ".join(binding.url(sock) for sock in sockets)
        serving = f"serving {config.application} on {places}"
        if config.workers == 1 and not config.reload:
            return work(config, sockets, lambda: say(f"{serving} (Ctrl-C stops it)"))
        if config.reload:
            # Bytecode knows its source's time by the second: an edit right after another could be overlooked.
            sys.dont_write_bytecode = True
            say(f"{serving} and anew after each change (Ctrl-C stops it)")
        else:
            say(f"{serving} with {config.workers} workers (Ctrl-C stops it)")

        def work_forked(worker: Worker) -> int:
            try:
                return work(config, sockets, worker.ready, worker.lifeline_fd)
            except UsageError as error:
                say(str(error))
                return 2

        if config.reload:
            return Reloading(
                work_forked,
                config.workers,
                config.grace,
                say,
                folders=config.reload_dir,
                patterns=config.reload_include,
            ).run()
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
