"""Processes that the bench starts: pinned, in groups of their own, with a log, and always stopped again.

Each process leads its own session, so that its workers are stopped with it. A guard (``guard.py``) ends them all,
should the bench be killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

#: Lines of a log that are shown for a contender that failed.
LOG_LINES = 12
#: Seconds that a stopped process has before it is killed.
GRACE = 5.0
#: glibc returns and maps large blocks anew for each read below this size, unless told otherwise. Contenders differ
#: several fold by the state their allocator happens to be in, so all get the same fixed threshold.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "1073741824", "MALLOC_TRIM_THRESHOLD_": "1073741824"}


class StartFailure(Exception):
    """A process did not start, or ended; carries the end of its log."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.log = log


@dataclass
class Running:
    """A process that was started."""

    name: str
    process: subprocess.Popen[bytes]
    log_path: Path
    stop_signal: int
    #: Whether it is kept from running for now.
    suspended: bool = False

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its group."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def log(self, lines: int = LOG_LINES) -> str:
        """The end of what it printed."""
        try:
            text = self.log_path.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.rstrip().splitlines()[-lines:])


class Processes:
    """All processes and folders of one run; leaving the context stops and removes them."""

    def __init__(self) -> None:
        self._running: list[Running] = []
        self._folders: list[Path] = []
        self._count = 0

    def __enter__(self) -> Self:
        self.root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        # Servers that run as another user have to reach the folders that are theirs inside.
        self.root.chmod(0o711)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("guard.py"))],
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        self._tell(f"+folder {self.root}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for running in reversed(self._running.copy()):
            self.stop(running)
        shutil.rmtree(self.root, ignore_errors=True)
        if self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.close()
        self._guard.wait()

    def folder(self, name: str) -> Path:
        """A new empty folder, removed at the end."""
        self._count += 1
        path = self.root / f"{self._count}-{name}"
        path.mkdir()
        return path

    def start(
        self,
        name: str,
        words: Sequence[str],
        *,
        variables: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        cores: Sequence[int] = (),
        stop_signal: int = signal.SIGTERM,
    ) -> Running:
        """Start a process.

        :param name: what its log is called.
        :param words: its command line.
        :param variables: environment variables beside the bench's own.
        :param environment: the whole environment, in place of the bench's own.
        :param folder: its working folder.
        :param cores: the cores it may run on; empty for all.
        :param stop_signal: what ends it.
        :raises StartFailure: when the command cannot be run.
        """
        folder = folder or self.folder(name)
        self._count += 1
        log_path = self.root / f"{self._count}-{name}.log"
        whole = dict(os.environ if environment is None else environment)
        whole.update(ALLOCATOR)
        whole["PYTHONUNBUFFERED"] = "1"
        whole.update(variables or {})
        with log_path.open("wb") as log:
            try:
                process = subprocess.Popen(
                    list(words),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=whole,
                    start_new_session=True,
                    preexec_fn=self._before_program(cores),
                )
            except OSError as error:
                raise StartFailure(f"cannot run {words[0]}: {error.strerror}") from None
        running = Running(name, process, log_path, stop_signal)
        self._running.append(running)
        return running

    def wait_ready(self, running: Running, ready: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until a process answers.

        :param ready: says whether it does.
        :raises StartFailure: when it ends, or does not answer in time.
        """
        end = time.monotonic() + seconds
        while not ready():
            if not running.alive:
                reason = f"{running.name} ended at once, exit status {running.process.returncode}"
                raise StartFailure(reason, running.log())
            if time.monotonic() > end:
                raise StartFailure(f"{running.name} did not answer within {seconds:g} s", running.log())
            time.sleep(0.02)

    def named(self, name: str) -> Running | None:
        """The process that runs under a name, if one does."""
        return next((each for each in self._running if each.name == name), None)

    def suspend(self, running: Running) -> None:
        """Keep a process and its whole group from running until it is resumed."""
        with contextlib.suppress(OSError):
            os.killpg(running.pid, signal.SIGSTOP)
        running.suspended = True

    def resume(self, running: Running) -> None:
        """Let a suspended process run on."""
        if running.suspended:
            with contextlib.suppress(OSError):
                os.killpg(running.pid, signal.SIGCONT)
            running.suspended = False

    def stop(self, running: Running) -> None:
        """Stop a process and its whole group; kill what does not end in time."""
        self.resume(running)
        with contextlib.suppress(OSError):
            os.killpg(running.pid, running.stop_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.process.wait(GRACE)
        # Workers may outlive their master.
        with contextlib.suppress(OSError):
            os.killpg(running.pid, signal.SIGKILL)
        running.process.wait()
        if running in self._running:
            self._running.remove(running)
            self._tell(f"-group {running.pid}")

    def _before_program(self, cores: Sequence[int]) -> Callable[[], None]:
        """What a child does before it becomes the program: keep to the cores given, and name itself to the guard.

        Were it the bench that told the guard, a bench killed just after the child began would leave it running.
        """
        assert self._guard.stdin is not None
        pipe = self._guard.stdin.fileno()

        def prepare() -> None:
            if cores:
                os.sched_setaffinity(0, cores)
            os.write(pipe, f"+group {os.getpid()}\n".encode())

        return prepare

    def _tell(self, line: str) -> None:
        """Tell the guard what to end or to forget."""
        if self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.write(line + "\n")
                self._guard.stdin.flush()


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port of loopback that nothing listens on."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int = 0, path: str = "", host: str = "127.0.0.1") -> bool:
    """Whether something accepts connections on a port or a Unix socket."""
    family = socket.AF_UNIX if path else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path or (host, port))
        except OSError:
            return False
        return True
