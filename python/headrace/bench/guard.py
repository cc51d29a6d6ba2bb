"""Ends what the bench started when the bench itself dies: run as a process of its own, told by a pipe.

    python guard.py < PIPE

Each line says ``+group PID``, ``-group PID``, ``+folder PATH`` or ``-folder PATH``. When the pipe closes, because
the bench ended in any way (``SIGKILL`` included), the process groups that are left are killed and the folders
removed. It imports nothing of Headrace.
"""

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Read until the pipe closes, then clear up."""
    # Ctrl-C reaches the whole foreground group; this process must outlive the bench's own clearing up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    left: dict[tuple[str, str], None] = {}
    for line in sys.stdin:
        kind, _, name = line.strip().partition(" ")
        if kind[:1] == "+":
            left[kind[1:], name] = None
        else:
            left.pop((kind[1:], name), None)
    for kind, name in reversed(left):
        if kind == "group":
            with contextlib.suppress(OSError):
                os.killpg(int(name), signal.SIGKILL)
    for kind, name in reversed(left):
        if kind == "folder":
            shutil.rmtree(name, ignore_errors=True)


if __name__ == "__main__":
    main()
