"""Child processes by pidfd: the loop itself sees one end, with neither SIGCHLD nor a thread for each.

asyncio does this from 3.12 on; here it holds on 3.11 too, for this loop alone, and in any thread. A child watcher
that the program has set itself (up to 3.13) is left in charge. A kernel or sandbox without pidfds, or a process out
of descriptors, gets a thread for each child, as asyncio has it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio import events, unix_events
from asyncio.log import logger
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import _native

if TYPE_CHECKING:
    from headrace.loop import Loop

#: Called with the process's number, its exit status and more.
Callback = Callable[..., object]

#: What is reported of a child that somebody else has waited for: asyncio's.
STATUS_UNKNOWN = 255

_Threads: Any = getattr(unix_events, "ThreadedChildWatcher", None) or unix_events._ThreadedChildWatcher  # type: ignore[attr-defined]


def program_has_its_own() -> bool:
    """Whether the program has set a child watcher that is none of asyncio's two that need no signals."""
    if sys.version_info >= (3, 14):
        return False
    policy = events._event_loop_policy  # type: ignore[attr-defined]
    if policy is None:
        return False
    default: Any = asyncio.DefaultEventLoopPolicy
    if type(policy).get_child_watcher is not default.get_child_watcher:
        return True
    watcher = policy._watcher
    return watcher is not None and type(watcher) not in (
        unix_events.ThreadedChildWatcher,
        unix_events.PidfdChildWatcher,
    )


class Children:
    """The children of one loop whose end is waited for."""

    def __init__(self, loop: Loop) -> None:
        self._loop: Any = loop
        self._pidfds: set[int] = set()
        self._threads: Any = None

    def watch(self, pid: int, callback: Callback, *args: Any) -> None:
        """Call ``callback(pid, status, *args)`` when the child has ended, and leave no zombie.

        :param pid: the process, a child that nobody else waits for.
        """
        try:
            pidfd = _native._pidfd_open(pid)
        except ProcessLookupError:
            # It has ended and is gone: SIGCHLD is ignored, or somebody has waited for any child.
            self._loop.call_soon(self._ended, pid, callback, args)
        except OSError:  # no pidfds here, or no descriptor left
            if self._threads is None:
                self._threads = _Threads()
            self._threads.add_child_handler(pid, callback, *args)
        else:
            self._pidfds.add(pidfd)
            self._loop._add_reader(pidfd, self._readable, pidfd, pid, callback, args)

    def close(self) -> None:
        """Wait no more. The children live on."""
        for pidfd in self._pidfds:
            self._loop._remove_reader(pidfd)
            os.close(pidfd)
        self._pidfds.clear()

    def _readable(self, pidfd: int, pid: int, callback: Callback, args: tuple[Any, ...]) -> None:
        self._loop._remove_reader(pidfd)
        self._pidfds.discard(pidfd)
        os.close(pidfd)
        self._ended(pid, callback, args)

    def _ended(self, pid: int, callback: Callback, args: tuple[Any, ...]) -> None:
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:
            status = STATUS_UNKNOWN
            logger.warning(
                "child process pid %d exit status already read:  will report returncode %d", pid, status
            )
        callback(pid, status, *args)
