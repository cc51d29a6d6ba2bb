"""Child processes, on asyncio's loop and on ours; and what ours adds: no thread, no signal, on every CPython."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from headrace import _native, new_event_loop

Run = Callable[[Callable[[], Awaitable[Any]]], Any]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def zombies() -> list[str]:
    """Children of this process that have ended and were not waited for."""
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError):  # a thread, or a child, that has gone meanwhile
            with open(f"/proc/self/task/{task}/children") as file:
                children = file.read().split()
            for pid in children:
                with open(f"/proc/{pid}/stat") as stat:
                    if stat.read().rpartition(")")[2].split()[0] == "Z":
                        found.append(pid)
    return found


def target(number: str) -> str:
    """What a descriptor of this process is; it may be closed by now."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


def on_ours(main: Callable[[], Awaitable[Any]]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(main(), 30)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(bounded())


def test_standard_streams(run: Run) -> None:
    async def main() -> None:
        script = "read line; echo out $line; echo err $line >&2; exit 3"
        process = await asyncio.create_subprocess_shell(script, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert await process.communicate(b"words\n") == (b"out words\n", b"err words\n")
        assert process.returncode == 3
        both = await asyncio.create_subprocess_shell("echo a; echo b >&2", stdout=PIPE, stderr=STDOUT)
        assert (await both.communicate())[0] == b"a\nb\n"
        silent = await asyncio.create_subprocess_exec("true", stdin=DEVNULL, stdout=DEVNULL)
        assert await silent.wait() == 0

    run(main)
    assert not zombies()


def test_much_through_a_pipe(run: Run) -> None:
    async def main() -> None:
        data = os.urandom(3_000_000)
        process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        assert (await process.communicate(data))[0] == data
        assert process.returncode == 0

    run(main)


def test_signals(run: Run) -> None:
    async def main() -> None:
        for action, number in (
            (lambda process: process.terminate(), signal.SIGTERM),
            (lambda process: process.kill(), signal.SIGKILL),
            (lambda process: process.send_signal(signal.SIGINT), signal.SIGINT),
        ):
            process = await asyncio.create_subprocess_exec("sleep", "60")
            action(process)
            assert await process.wait() == -number
            with pytest.raises(ProcessLookupError):
                process.kill()

    run(main)
    assert not zombies()


def test_many_wait_for_one(run: Run) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_shell("sleep 0.1; exit 7")
        assert await asyncio.gather(*(process.wait() for _ in range(5))) == [7] * 5
        assert await process.wait() == 7

    run(main)


def test_a_program_that_is_not_there(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/none/such")
        with pytest.raises(ValueError):
            await asyncio.get_running_loop().subprocess_exec(
                asyncio.SubprocessProtocol, "true", universal_newlines=True
            )
        with pytest.raises(ValueError):
            await asyncio.get_running_loop().subprocess_shell(asyncio.SubprocessProtocol, ["list"])

    run(main)


def test_a_child_that_reads_nothing(run: Run) -> None:
    """It ends with much of what it was sent unread: that is no error."""

    async def main() -> None:
        process = await asyncio.create_subprocess_exec("true", stdin=PIPE)
        assert await process.communicate(bytes(1_000_000)) == (None, None)
        assert process.returncode == 0

    run(main)


def test_protocol_calls(run: Run) -> None:
    class Protocol(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.calls: list[Any] = []
            self.gone = asyncio.get_running_loop().create_future()

        def connection_made(self, transport: Any) -> None:
            self.calls.append("made")

        def pipe_data_received(self, fd: int, data: bytes) -> None:
            self.calls.append((fd, data))

        def pipe_connection_lost(self, fd: int, exc: Any) -> None:
            self.calls.append((fd, exc))

        def process_exited(self) -> None:
            self.calls.append("exited")

        def connection_lost(self, exc: Any) -> None:
            self.calls.append("lost")
            self.gone.set_result(None)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_shell(
            Protocol, "echo one; exit 5", stdin=None, stderr=None
        )
        await protocol.gone
        assert transport.get_returncode() == 5 and transport.get_pid() > 0
        assert protocol.calls[0] == "made" and protocol.calls[-1] == "lost"
        assert sorted(map(str, protocol.calls[1:-1])) == sorted(
            map(str, [(1, b"one\n"), (1, None), "exited"])
        )
        transport.close()

    run(main)


def test_closing_the_transport_kills(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.subprocess_exec(asyncio.SubprocessProtocol, "sleep", "60")
        pid = transport.get_pid()
        transport.close()
        await transport._wait()
        assert transport.get_returncode() == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    run(main)


def test_two_hundred_at_once() -> None:
    """No thread for a child, no handler of SIGCHLD, and nothing left when they have ended."""
    before, handler = threading.active_count(), signal.getsignal(signal.SIGCHLD)
    most = 0

    async def main() -> None:
        nonlocal most

        async def one(number: int) -> None:
            nonlocal most
            process = await asyncio.create_subprocess_shell(
                f"read line; echo $line; exit {number % 100}", stdin=PIPE, stdout=PIPE
            )
            most = max(most, threading.active_count())
            assert await process.communicate(b"%d\n" % number) == (b"%d\n" % number, None)
            assert process.returncode == number % 100

        await asyncio.gather(*(one(number) for number in range(200)))

    on_ours(main)
    assert most == before and signal.getsignal(signal.SIGCHLD) is handler
    assert not zombies()


def test_in_another_thread() -> None:
    results: list[Any] = []

    async def main() -> None:
        process = await asyncio.create_subprocess_shell("echo out; exit 4", stdout=PIPE)
        results.append((await process.communicate())[0])
        results.append(process.returncode)

    thread = threading.Thread(target=on_ours, args=(main,))
    thread.start()
    thread.join(30)
    assert results == [b"out\n", 4]
    assert not zombies()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSYS], ids=["no descriptor left", "no pidfds"])
def test_without_a_pidfd_a_thread_waits(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    async def main() -> None:
        process = await asyncio.create_subprocess_shell("sleep 0.2; echo out; exit 4", stdout=PIPE)
        assert any("waitpid" in thread.name for thread in threading.enumerate())
        assert ((await process.communicate())[0], process.returncode) == (b"out\n", 4)

    monkeypatch.setattr(_native, "_pidfd_open", fail)
    on_ours(main)
    assert not zombies()


def test_a_child_that_somebody_else_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "0.2")
        os.waitpid(process.pid, 0)
        assert await process.wait() == 255

    on_ours(main)
    assert "exit status already read" in caplog.text


def test_children_that_the_kernel_reaps(caplog: pytest.LogCaptureFixture) -> None:
    """SIGCHLD ignored: the status is lost, the end is not."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    async def main() -> None:
        process = await asyncio.create_subprocess_exec("true")
        assert await process.wait() == 255

    try:
        on_ours(main)
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_closed_before_its_child_ends_leaves_no_descriptor() -> None:
    pids = []

    async def main() -> None:
        transport, _ = await asyncio.get_running_loop().subprocess_exec(
            asyncio.SubprocessProtocol, "sleep", "60", stdin=None, stdout=None, stderr=None
        )
        pids.append(transport.get_pid())

    on_ours(main)
    assert not [number for number in os.listdir("/proc/self/fd") if "pidfd" in target(number)]
    with contextlib.suppress(ProcessLookupError, ChildProcessError):  # the transport kills it, once collected
        os.kill(pids[0], signal.SIGKILL)
        os.waitpid(pids[0], 0)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="CPython 3.14 has no child watchers to set")
def test_a_watcher_that_the_program_set_is_left_in_charge() -> None:
    watched = []

    class Watcher(asyncio.ThreadedChildWatcher):
        def add_child_handler(self, pid: int, callback: Any, *args: Any) -> None:
            watched.append(pid)
            super().add_child_handler(pid, callback, *args)

    async def main() -> None:
        process = await asyncio.create_subprocess_exec("true")
        assert await process.wait() == 0
        assert watched == [process.pid]

    before = asyncio.get_child_watcher()
    asyncio.set_child_watcher(Watcher())
    try:
        on_ours(main)
    finally:
        asyncio.set_child_watcher(before)
