"""CPython's own asyncio tests, from the interpreter's ``test`` package, against a loop of our choice.

    python tests/loop/conformance.py [--loop headrace|asyncio] [--group mixins|modules] [PATTERN...]

Each test runs in a process of its own (forked, so that the imports are paid once), two at a time, and is killed
when it takes too long. One line of JSON for each test: ``{"test", "outcome", "seconds", "detail"}``; the exit
status is 1 if any has failed.

- *mixins*: the parameterised test classes, which make the loop by a method of the test case;
- *modules*: whole modules that make loops by ``asyncio.new_event_loop()``, which is rebound to ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fnmatch
import importlib
import io
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

#: Seconds after which a test is killed.
TIME_LIMIT = 60.0

#: Parameterised test classes: module, classes, and the method by which the test case makes its loop.
MIXINS = (
    ("test_events", "EventLoopTestsMixin SubprocessTestsMixin", "create_event_loop"),
    ("test_sock_lowlevel", "BaseSockTestsMixin", "create_event_loop"),
    ("test_sendfile", "SendfileTestsBase", "create_event_loop"),
    ("test_server", "BaseStartServer", "new_loop"),
    ("test_buffered_proto", "BaseTestBufferedProtocol", "new_loop"),
    ("test_sslproto", "BaseStartTLS", "new_loop"),
)

#: Modules whose tests make loops by ``asyncio.new_event_loop()``, and the classes in them that do.
MODULES: dict[str, tuple[str, ...]] = {
    "test_context": ("*",),
    "test_eager_task_factory": ("*",),
    "test_events": ("TestServer", "TestCGetEventLoop"),
    "test_futures2": ("*",),
    "test_locks": ("*",),
    "test_pep492": ("StreamReaderTests", "CoroutineTests"),
    "test_queues": ("*",),
    "test_server": ("TestServer2", "UnixServerCleanupTests"),
    "test_ssl": ("TestSSL",),
    "test_streams": ("*",),
    "test_subprocess": (
        "SubprocessPidfdWatcherTests",
        "SubprocessThreadedWatcherTests",
        "SubprocessWatcherTests",
    ),
    "test_taskgroups": ("*",),
    "test_tasks": ("CTask_CFuture_Tests", "RunCoroutineThreadsafeTests", "SleepTests", "CompatibilityTests"),
    "test_threads": ("*",),
    "test_timeouts": ("*",),
    "test_unix_events": ("TestFork",),
    "test_waitfor": ("*",),
}

#: Tests that do not apply, each with its reason. Patterns on ``Class.test``.
SKIPS: dict[str, str] = {
    "*.test_timeout_rounding": "replaces the private _run_once by a counter; ours runs all turns in one call",
    "*.test_remote_shutdown_receives_trailing_data_on_slow_socket": (
        "white box: asks the transport for its private _read_ready_cb, and replaces its private socket"
    ),
    "*.test_internal_fds": "white box: counts the private _internal_fds of the selector loop",
}


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.SelectorEventLoop
    import headrace

    return headrace.new_event_loop


def _import(name: str) -> Any:
    return importlib.import_module(f"test.test_asyncio.{name}")


def _mixin_cases(factory: Callable[[], asyncio.AbstractEventLoop]) -> Iterator[unittest.TestCase]:
    for module_name, class_names, method in MIXINS:
        module = _import(module_name)
        bases = tuple(getattr(module, name) for name in class_names.split())
        if not issubclass(bases[0], unittest.TestCase):
            bases += (_import("utils").TestCase if method == "create_event_loop" else unittest.TestCase,)
        attributes = {method: lambda self: factory(), "__module__": module.__name__}
        concrete = type(class_names.split()[0], bases, attributes)
        yield from unittest.defaultTestLoader.loadTestsFromTestCase(concrete)  # type: ignore[misc]


def _module_cases() -> Iterator[unittest.TestCase]:
    for module_name, classes in MODULES.items():
        try:
            module = _import(module_name)
        except ImportError:
            continue  # not in this CPython
        for name, value in sorted(vars(module).items()):
            own = isinstance(value, type) and issubclass(value, unittest.TestCase)
            if own and value.__module__ == module.__name__ and any(fnmatch.fnmatch(name, c) for c in classes):
                yield from unittest.defaultTestLoader.loadTestsFromTestCase(value)  # type: ignore[misc]


def _name(case: unittest.TestCase) -> str:
    return f"{type(case).__name__}.{case._testMethodName}"


def collect(loop: str, group: str, patterns: list[str]) -> list[unittest.TestCase]:
    """The tests of a group, in a stable order. Rebinds ``asyncio.new_event_loop`` where the group needs it."""
    factory = _loop_factory(loop)
    if group == "mixins":
        cases = list(_mixin_cases(factory))
    else:
        asyncio.new_event_loop = asyncio.events.new_event_loop = factory  # type: ignore[assignment]
        cases = list(_module_cases())
    wanted = [f"*{p}*" for p in patterns] or ["*"]
    return [c for c in cases if any(fnmatch.fnmatch(_name(c), p) for p in wanted)]


def skip_reason(case: unittest.TestCase) -> str | None:
    """Why a test does not apply, if it does not."""
    return next((reason for p, reason in SKIPS.items() if fnmatch.fnmatch(_name(case), p)), None)


def _run_in_child(case: unittest.TestCase, report: int) -> None:
    """Run one test and write its outcome; never returns."""
    stream = io.StringIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            # A suite of one: it runs the fixtures of class and module too.
            result = unittest.TextTestRunner(stream, verbosity=0).run(unittest.TestSuite([case]))
        problems = [text for _, text in result.errors + result.failures]
        if problems or result.unexpectedSuccesses:
            outcome, detail = "failed", "\n".join(problems) or "unexpected success"
        elif result.skipped:
            outcome, detail = "skipped", result.skipped[0][1]
        else:
            outcome, detail = "passed", ""
    except BaseException:
        outcome, detail = "failed", traceback.format_exc()
    os.write(report, json.dumps({"outcome": outcome, "detail": detail[-8000:]}).encode())
    os._exit(0)


class _Running:
    """A test's process, and what it has reported so far."""

    def __init__(self, case: unittest.TestCase) -> None:
        self.case = case
        self.start = time.monotonic()
        self.report, writer = os.pipe()
        self.folder = tempfile.TemporaryDirectory(prefix="headrace-conformance-")
        self.text = b""
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            os.chdir(self.folder.name)
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os.close(self.report)
            _run_in_child(case, writer)
        os.close(writer)

    def finish(self, timed_out: bool) -> dict[str, Any]:
        # The group, so that a test's own children go too.
        for target in (-self.pid, self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.report)
        self.folder.cleanup()
        if timed_out:
            outcome = {"outcome": "failed", "detail": f"killed after {TIME_LIMIT:.0f} s"}
        elif not self.text:
            outcome = {"outcome": "failed", "detail": f"the process died: status {status}"}
        else:
            outcome = json.loads(self.text)
        return {"test": _name(self.case), "seconds": round(time.monotonic() - self.start, 3), **outcome}


def run(cases: list[unittest.TestCase], jobs: int = 2) -> Iterator[dict[str, Any]]:
    """Run tests, ``jobs`` at a time; the result of each as it ends."""
    waiting = list(reversed(cases))
    running: list[_Running] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            case = waiting.pop()
            reason = skip_reason(case)
            if reason is not None:
                yield {"test": _name(case), "seconds": 0.0, "outcome": "skipped", "detail": reason}
            else:
                running.append(_Running(case))
        ready, _, _ = select.select([r.report for r in running], [], [], 0.5)
        for process in list(running):
            ended = False
            if process.report in ready:
                chunk = os.read(process.report, 65536)
                process.text += chunk
                ended = not chunk
            late = time.monotonic() - process.start > TIME_LIMIT
            if ended or late:
                running.remove(process)
                yield process.finish(late and not ended)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loop", choices=("headrace", "asyncio"), default="headrace")
    parser.add_argument("--group", choices=("mixins", "modules"), default="mixins")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time (default: 2)")
    parser.add_argument("patterns", nargs="*", help="run only tests whose name contains one of these")
    args = parser.parse_args()
    failed = 0
    for result in run(collect(args.loop, args.group, args.patterns), args.jobs):
        failed += result["outcome"] == "failed"
        print(json.dumps(result), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
