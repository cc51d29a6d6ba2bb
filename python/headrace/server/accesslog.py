"""The access log's file: opened, opened anew after a rotation, and what was lost of it. Lines are made natively."""

from __future__ import annotations

import contextlib
import logging
import os
import stat

from headrace._native import HttpServer
from headrace.cli import UsageError
from headrace.server.config import Config

logger = logging.getLogger("headrace.error")

#: Stands for standard output in the place of a file's name.
STDOUT = "-"


def attach(native: HttpServer, config: Config) -> None:
    """Have the server write its access log as configured; called again, to a file that is opened anew.

    :raises UsageError: when the file cannot be opened.
    """
    if not config.access_log:
        return
    fd = _open(config.access_log)
    try:
        native.log_to(fd, config.access_log_format)
    finally:
        os.close(fd)


def reattach(native: HttpServer, config: Config) -> None:
    """Open the file anew; where that fails the log goes on in the old one."""
    try:
        attach(native, config)
    except UsageError as error:
        logger.error("%s; it goes on where it was", error)


def check(config: Config) -> None:
    """Open the file and close it again.

    :raises UsageError: when that fails.
    """
    if config.access_log:
        os.close(_open(config.access_log))


def report(native: HttpServer) -> None:
    """Say how many lines were lost, if any were."""
    if lost := native.statistics()["unlogged"]:
        logger.warning("%d lines of the access log were dropped: nobody took them in time", lost)


def _open(name: str) -> int:
    # Appending, so that lines of several workers stay whole; not blocking, for what is a pipe in truth.
    flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
    if name == STDOUT:
        if stat.S_ISFIFO(os.fstat(1).st_mode):
            # A description of our own: not to block must not become a property of everybody's standard output.
            with contextlib.suppress(OSError):
                return os.open("/proc/self/fd/1", flags)
        return os.dup(1)
    try:
        return os.open(name, flags | os.O_CREAT, 0o640)
    except OSError as error:
        raise UsageError(f"cannot open the access log {name}: {error.strerror}") from error
