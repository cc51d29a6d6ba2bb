"""For development: new workers when a file of the application has changed."""

from __future__ import annotations

import fnmatch
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headrace.supervisor.prefork import Child, Prefork

#: Seconds between two looks at the files.
INTERVAL = 0.5

#: Folders that are not looked into, besides hidden ones and virtual environments.
SKIPPED = {"__pycache__", "node_modules"}

#: Files that are watched whatever is asked for besides.
ALWAYS = "*.py"

#: What is remembered of a file: when it was changed, in nanoseconds, and its size.
Stamp = tuple[int, int]


def stamps(folders: Sequence[str], patterns: Sequence[str]) -> dict[str, Stamp]:
    """The files in these folders, and in those below, whose names fit a pattern."""
    found = {}
    for folder in folders:
        for path in _walk(folder, patterns):
            try:
                status = os.stat(path)
            except OSError:
                continue
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _walk(folder: str, patterns: Sequence[str]) -> Iterator[str]:
    for root, inner, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            inner.clear()
            continue
        inner[:] = [name for name in inner if name not in SKIPPED and not name.startswith(".")]
        for name in names:
            if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                yield os.path.join(root, name)


@dataclass(slots=True)
class Reloading(Prefork):
    """A master whose workers are replaced when a file changes, and only then: what is broken waits for its mending.

    The sockets stay open all the while, so a connection that comes meanwhile waits and is served by the new ones; the
    old ones answer what they run.

    :param folders: where files are watched.
    :param patterns: names of further files than Python's.
    """

    folders: Sequence[str] = (".",)
    patterns: Sequence[str] = ()
    _stamps: dict[str, Stamp] = field(default_factory=dict)
    _next_look: float = 0.0

    def run(self) -> int:
        """Serve, and look at the files, until SIGTERM or SIGINT."""
        self._stamps = self._look()
        return super(Reloading, self).run()

    def _look(self) -> dict[str, Stamp]:
        self._next_look = time.monotonic() + INTERVAL
        return stamps(self.folders, (ALWAYS, *self.patterns))

    def _turn(self) -> None:
        super(Reloading, self)._turn()
        if self._deadline is not None or time.monotonic() < self._next_look:
            return
        before, self._stamps = self._stamps, self._look()
        if before == self._stamps:
            return
        changed = sorted(path for path, _ in before.items() ^ self._stamps.items())
        more = f" and {len(set(changed)) - 1} more" if len(set(changed)) > 1 else ""
        self.say(f"{os.path.relpath(changed[0])}{more} changed; reloading")
        self._not_before = 0.0
        for pid in set(self._children) - set(self._retired):
            self._retire(pid)

    def _timeout(self) -> float | None:
        due = super(Reloading, self)._timeout()
        if self._deadline is not None:
            return due
        look = max(0.0, self._next_look - time.monotonic())
        return look if due is None else min(due, look)

    def _died(self, pid: int, child: Child, code: int) -> None:
        how = f"signal {-code}" if code < 0 else f"status {code}"
        self.say(f"worker {pid} ended ({how}); waiting for a change")
        self._not_before = math.inf
