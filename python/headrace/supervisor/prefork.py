"""Fork N workers, keep N alive, end them in time."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

#: A worker that dies this young, in seconds, makes its successor wait.
YOUNG = 1.0
#: The first such wait, and the longest: each is twice the one before.
BACKOFF = 0.1
MAX_BACKOFF = 5.0

#: Seconds that workers are given beyond the grace time before they are killed: they end by themselves at it.
KILL_MARGIN = 2.0

#: Signals that the master acts on.
SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGCHLD,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGUSR1,
)


@dataclass(frozen=True, slots=True)
class Worker:
    """What a forked worker is handed."""

    #: To be written to once the application is loaded and connections are accepted.
    ready_fd: int
    #: Readable (end of file) once the master has died: then the worker ends, too.
    lifeline_fd: int

    def ready(self) -> None:
        """Tell the master that this worker serves."""
        os.write(self.ready_fd, b"1")


@dataclass(slots=True)
class Child:
    """A worker, as its master sees it."""

    ready_fd: int
    started: float
    ready: bool = False
    #: It may still say that it is ready; the pipe's end without a word says that it will not.
    mute: bool = False


@dataclass(slots=True)
class Prefork:
    """A master over a number of equal workers.

    :param work: run in each forked worker; its result is the worker's exit status. It must end on SIGTERM.
    :param workers: how many to keep alive; SIGTTIN and SIGTTOU add and take away one.
    :param grace: seconds that workers take at the most to end after SIGTERM.
    :param say: prints a line for the user.
    """

    work: Callable[[Worker], int]
    workers: int
    grace: float
    say: Callable[[str], None]
    _children: dict[int, Child] = field(default_factory=dict)
    #: Workers that were told to end, and when they are killed.
    _retired: dict[int, float] = field(default_factory=dict)
    _backoff: float = 0.0
    _not_before: float = 0.0
    _deadline: float | None = None
    _status: int = 0
    _served: bool = False

    def run(self) -> int:
        """Keep the workers alive until SIGTERM or SIGINT.

        :returns: 0; or the status of a worker that could not start, when none ever could.
        """
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        lifeline_read, lifeline_write = os.pipe()
        before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
        before_fd = signal.set_wakeup_fd(wake_write)
        try:
            while self._deadline is None or self._children:
                self._start_missing(lifeline_read, lifeline_write, (wake_read, wake_write))
                self._wait(wake_read)
                self._turn()
        finally:
            signal.set_wakeup_fd(before_fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            for fd in (wake_read, wake_write, lifeline_read, lifeline_write):
                os.close(fd)
        return self._status

    def _turn(self) -> None:
        """What is to be done after each wait."""
        self._reap()
        self._kill_late()

    def _start_missing(self, lifeline_read: int, lifeline_write: int, wake: tuple[int, int]) -> None:
        while (
            self._deadline is None
            and len(self._children) - len(self._retired) < self.workers
            and time.monotonic() >= self._not_before
        ):
            ready_read, ready_write = os.pipe()
            sys.stdout.flush()
            sys.stderr.flush()
            # A signal between the fork and the worker's own handlers would be taken by the master's, and lost.
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            try:
                pid = os.fork()
            except OSError as error:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                os.close(ready_read)
                os.close(ready_write)
                self._pause()
                self.say(f"cannot start a worker ({error.strerror}); trying again in {self._backoff:g} s")
                return
            if pid == 0:
                for fd in (ready_read, lifeline_write, *wake, *(c.ready_fd for c in self._children.values())):
                    os.close(fd)
                self._become_worker(Worker(ready_write, lifeline_read))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            os.close(ready_write)
            os.set_blocking(ready_read, False)
            self._children[pid] = Child(ready_read, time.monotonic())

    def _become_worker(self, worker: Worker) -> None:
        """Run the work in the forked process, and end it without the master's own clean-up."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # Until the worker has logs to reopen, there is nothing to do; by default it would end the process.
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            status = self.work(worker)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except KeyboardInterrupt:
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _wait(self, wake_read: int) -> None:
        """Sleep until a signal, a worker that is ready, or the next thing that is due."""
        waiting = [child for child in self._children.values() if not child.ready and not child.mute]
        fds = [wake_read, *(child.ready_fd for child in waiting)]
        readable, _, _ = select.select(fds, [], [], self._timeout())
        for child in waiting:
            if child.ready_fd in readable:
                child.ready = bool(os.read(child.ready_fd, 1))
                child.mute = not child.ready
                if child.ready:
                    self._served = True
                    self._backoff = 0.0
        if wake_read in readable:
            for number in os.read(wake_read, 64):
                self._signalled(signal.Signals(number))

    def _timeout(self) -> float | None:
        now = time.monotonic()
        if self._deadline is not None:
            return max(0.0, self._deadline - now)
        due = list(self._retired.values())
        if len(self._children) - len(self._retired) < self.workers and self._not_before < math.inf:
            due.append(self._not_before)
        return max(0.0, min(due) - now) if due else None

    def _signalled(self, number: signal.Signals) -> None:
        match number:
            case signal.SIGTERM | signal.SIGINT | signal.SIGQUIT:
                # The second one ends the wait for running requests: the workers take it so, too.
                self._stop(0)
            case signal.SIGUSR1:
                for pid in self._children:
                    os.kill(pid, signal.SIGUSR1)
            case signal.SIGTTIN:
                self.workers += 1
            case signal.SIGTTOU if self.workers > 1:
                self.workers -= 1
                youngest = max(set(self._children) - set(self._retired), default=None)
                if youngest is not None:
                    self._retire(youngest)
            case _:
                pass

    def _retire(self, pid: int) -> None:
        """Have a worker end; it answers what it runs."""
        self._retired[pid] = time.monotonic() + self.grace + KILL_MARGIN
        os.kill(pid, signal.SIGTERM)

    def _stop(self, status: int) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self.grace + KILL_MARGIN
            self._status = status
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)

    def _reap(self) -> None:
        """Take note of children that ended; children of others (we may be PID 1) are only collected."""
        while True:
            try:
                pid, encoded = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is None:
                continue
            os.close(child.ready_fd)
            if pid in self._retired:
                del self._retired[pid]
            elif self._deadline is None:
                self._died(pid, child, os.waitstatus_to_exitcode(encoded))

    def _died(self, pid: int, child: Child, code: int) -> None:
        if not child.ready and code > 0 and not self._served:
            # It cannot be started as it is, and has said why.
            self.say("the workers do not start; giving up")
            self._stop(code)
            return
        how = f"signal {-code}" if code < 0 else f"status {code}"
        pause = ""
        if not child.ready or time.monotonic() - child.started < YOUNG:
            self._pause()
            pause = f" in {self._backoff:g} s"
        self.say(f"worker {pid} died ({how}); starting another{pause}")

    def _pause(self) -> None:
        """Start no worker for a while, each time for longer."""
        self._backoff = min(max(self._backoff * 2, BACKOFF), MAX_BACKOFF)
        self._not_before = time.monotonic() + self._backoff

    def _kill_late(self) -> None:
        now = time.monotonic()
        for pid, deadline in self._retired.items():
            if now >= deadline:
                os.kill(pid, signal.SIGKILL)
                self._retired[pid] = now + KILL_MARGIN
        if self._deadline is not None and now >= self._deadline:
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)
            self._deadline = now + KILL_MARGIN
