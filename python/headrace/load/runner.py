"""One run of the native load generator: started, shown while it goes, stopped by Ctrl-C, described at the end."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace._native import LoadRun
from headrace.cli import UsageError
from headrace.load.hdr_log import lines as hdr_lines

#: Seconds between two looks at a run: how soon Ctrl-C is noticed.
LOOK = 0.1


def run_load(
    url: str, *, progress: bool = False, hdr_log: Path | None = None, **options: Any
) -> dict[str, Any]:
    """Run a load and describe it.

    :param url: what to load.
    :param progress: whether to keep a line of progress on standard error.
    :param hdr_log: where to write an HDR histogram log.
    :param options: the keyword arguments of ``headrace._native.LoadRun``.
    :returns: the result, ready for JSON; its keys are described in ``docs/load.md``.
    :raises UsageError: for what cannot be done as asked.
    """
    try:
        run = LoadRun(url, log=hdr_log is not None, **options)
    except ValueError as error:
        raise UsageError(str(error)) from None
    line = ProgressLine(options.get("warmup", 0.0), options.get("duration", 10.0)) if progress else None
    try:
        try:
            while not run.wait(LOOK):
                if line is not None:
                    line.show(run.snapshot())
        except KeyboardInterrupt:
            # What was measured until now is worth having; a second Ctrl-C ends that too.
            run.stop()
        try:
            report = run.report()
        except OSError as error:
            raise UsageError(f"cannot set the load up: {error}") from None
    finally:
        if line is not None:
            line.clear()
    report["histogram"] = base64.b64encode(report["histogram"]).decode("ascii")
    intervals = report.pop("intervals")
    if hdr_log is not None:
        write_log(hdr_log, hdr_lines(intervals, report["duration_s"], time.time()))
    return {"tool": "headrace load", "version": __version__, **report}


def write_log(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a file that the user named."""
    try:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


class ProgressLine:
    """One line on the terminal that is written over and over.

    :param warmup: seconds before counting begins.
    :param seconds: seconds that are counted.
    """

    def __init__(self, warmup: float, seconds: float) -> None:
        self._warmup = warmup
        self._seconds = seconds
        self._before: tuple[float, int] = (0.0, 0)

    def show(self, snapshot: tuple[int, int, int, float | None]) -> None:
        """Show how far the run is.

        :param snapshot: open connections, good answers, errors, seconds since the first request.
        """
        connections, good, errors, elapsed = snapshot
        if elapsed is None:
            text = f"opening connections: {connections}"
        elif elapsed < self._warmup:
            text = f"warming up: {elapsed:.1f} of {self._warmup:g} s   {connections} connections"
        else:
            then, counted = self._before
            rate = (good - counted) / (elapsed - then) if elapsed > then else 0.0
            self._before = (elapsed, good)
            text = f"{elapsed - self._warmup:5.1f} of {self._seconds:g} s   {rate:9,.0f} requests/s"
            text += f"   {connections} connections" + (f"   {errors} errors" if errors else "")
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away."""
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
