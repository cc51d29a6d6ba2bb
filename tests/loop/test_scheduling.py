"""Callbacks, timers, handles, contexts, threads, errors: as on asyncio's own loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import pytest

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_a_callback_gets_its_arguments(new_loop: Any, count: int) -> None:
    loop, got = new_loop(), []
    handle = loop.call_soon(lambda *args: got.append(args), *range(count))
    assert handle._args == tuple(range(count))
    turn(loop)
    assert got == [tuple(range(count))]


def test_callbacks_run_in_order_and_those_they_schedule_in_the_next_turn(new_loop: Any) -> None:
    loop, seen = new_loop(), []

    def first() -> None:
        seen.append("first")
        loop.call_soon(seen.append, "third")

    loop.call_soon(first)
    loop.call_soon(seen.append, "second")
    turn(loop)
    assert seen == ["first", "second"]
    turn(loop)
    assert seen == ["first", "second", "third"]


def test_stop_before_running_runs_one_turn(new_loop: Any) -> None:
    loop, seen = new_loop(), []
    loop.stop()
    loop.call_soon(seen.append, 1)
    loop.run_forever()
    assert seen == [1]
    assert not loop.is_running()


def test_handles_are_asyncios(new_loop: Any) -> None:
    loop = new_loop()
    handle, timer = loop.call_soon(print), loop.call_later(60, print)
    assert isinstance(handle, asyncio.Handle) and not isinstance(handle, asyncio.TimerHandle)
    assert isinstance(timer, asyncio.TimerHandle)
    assert isinstance(loop.call_later(0, print), asyncio.TimerHandle)
    assert timer.when() == pytest.approx(loop.time() + 60, abs=1)
    assert timer == timer and timer != loop.call_later(90, print) and timer < loop.call_later(90, print)
    assert hash(timer) == hash(timer.when())
    assert not handle.cancelled()
    handle.cancel()
    handle.cancel()
    assert handle.cancelled() and "cancelled" in repr(handle)
    assert weakref.ref(handle)() is handle


def test_cancelling_lets_the_callback_go_at_once(new_loop: Any) -> None:
    class Callback:
        def __call__(self) -> None:
            raise AssertionError("cancelled callbacks do not run")

    loop = new_loop()
    for schedule in (loop.call_soon, lambda c: loop.call_later(0, c), lambda c: loop.call_later(60, c)):
        callback = Callback()
        gone = weakref.ref(callback)
        handle = schedule(callback)
        del callback
        handle.cancel()
        assert gone() is None
    turn(loop)


def test_a_callback_may_cancel_itself_and_its_neighbour(new_loop: Any) -> None:
    loop, seen = new_loop(), []

    def first(*args: Any) -> None:
        handles[0].cancel()
        handles[1].cancel()
        gc.collect()
        seen.append(args)

    handles = [loop.call_soon(first, object(), object()), loop.call_soon(seen.append, "never")]
    turn(loop)
    assert len(seen) == 1 and len(seen[0]) == 2


def test_timers_fire_in_order_of_time_not_of_making(new_loop: Any) -> None:
    loop, seen = new_loop(), []
    now = loop.time()
    for delay in (0.03, 0.01, 0.02, 0.0, 0.01):
        loop.call_at(now + delay, seen.append, delay)
    loop.call_at(now + 0.04, loop.stop)
    loop.run_forever()
    assert seen == [0.0, 0.01, 0.01, 0.02, 0.03]


@pytest.mark.parametrize("delay", [0.0002, 0.001, 0.0123])
def test_a_timer_is_never_early(new_loop: Any, delay: float) -> None:
    loop = new_loop()
    for _ in range(5):
        start = loop.time()
        loop.run_until_complete(asyncio.sleep(delay))
        assert loop.time() - start >= delay - 1e-6


def test_cancelled_timers_do_not_pile_up() -> None:
    import headrace

    loop = headrace.new_event_loop()
    kept = [loop.call_later(600, print) for _ in range(100)]
    for _ in range(10_000):
        loop.call_later(600, print).cancel()
    _, timers, _ = loop._counts()
    assert timers <= 300
    assert not any(handle.cancelled() for handle in kept)
    loop.close()


def test_each_callback_runs_in_its_own_copy_of_the_context(new_loop: Any) -> None:
    loop, seen = new_loop(), []

    def outer() -> None:
        VARIABLE.set("outer")
        loop.call_soon(lambda: seen.append(VARIABLE.get()))
        loop.call_soon(lambda: seen.append(VARIABLE.get()), context=other)

    other = contextvars.copy_context()
    other.run(VARIABLE.set, "other")
    loop.call_soon(outer)
    loop.call_soon(lambda: seen.append(VARIABLE.get()))
    turn(loop)
    turn(loop)
    assert seen == ["unset", "outer", "other"]


def test_call_soon_threadsafe_from_many_threads_wakes_the_loop(new_loop: Any) -> None:
    loop, seen = new_loop(), []
    threads, each = 8, 500

    def call() -> None:
        for number in range(each):
            loop.call_soon_threadsafe(arrive, number)

    def arrive(number: int) -> None:
        seen.append(number)
        if len(seen) == threads * each:
            loop.stop()

    workers = [threading.Thread(target=call) for _ in range(threads)]
    watchdog = loop.call_later(20, loop.stop)
    for worker in workers:
        worker.start()
    loop.run_forever()
    for worker in workers:
        worker.join()
    watchdog.cancel()
    assert len(seen) == threads * each


def test_a_wake_up_ends_a_long_wait(new_loop: Any) -> None:
    loop = new_loop()
    threading.Timer(0.05, loop.call_soon_threadsafe, (loop.stop,)).start()
    start = time.monotonic()
    loop.call_later(20, loop.stop).cancel()
    loop.run_forever()
    assert time.monotonic() - start < 10


def test_an_exception_goes_to_the_handler_and_the_loop_goes_on(new_loop: Any) -> None:
    loop, contexts, seen = new_loop(), [], []
    loop.set_exception_handler(lambda _, context: contexts.append(context))

    def fail() -> None:
        raise ZeroDivisionError("on purpose")

    handle = loop.call_soon(fail)
    loop.call_soon(seen.append, "after")
    turn(loop)
    (context,) = contexts
    assert isinstance(context["exception"], ZeroDivisionError)
    assert context["handle"] is handle
    assert context["message"].startswith("Exception in callback ")
    assert seen == ["after"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_run_leaves_the_rest_for_the_next(new_loop: Any, error: type[BaseException]) -> None:
    loop, seen = new_loop(), []

    def fail() -> None:
        raise error

    loop.call_soon(fail)
    loop.call_soon(seen.append, "after")
    with pytest.raises(error):
        loop.run_forever()
    assert seen == [] and not loop.is_running()
    turn(loop)
    assert seen == ["after"]


def test_a_signal_ends_a_wait(new_loop: Any) -> None:
    loop, seen = new_loop(), []
    loop.add_signal_handler(signal.SIGUSR1, lambda: (seen.append(1), loop.stop()))
    loop.call_later(20, loop.stop)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    loop.run_forever()
    assert seen == [1]
    assert loop.remove_signal_handler(signal.SIGUSR1)


def test_ctrl_c_cancels_the_main_task(new_loop: Any) -> None:
    cancelled = []

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(KeyboardInterrupt):
        runner.run(main())
    assert cancelled == [True]


def test_debug_mode_logs_slow_callbacks_and_checks_the_thread(
    new_loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    loop = new_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.01
    loop.call_soon(time.sleep, 0.03)
    with caplog.at_level(logging.WARNING, logger="asyncio"):
        turn(loop)
    assert any("took 0.0" in record.getMessage() for record in caplog.records)

    errors: list[BaseException] = []

    def call() -> None:
        try:
            loop.call_soon(print)
        except RuntimeError as error:
            errors.append(error)

    async def main() -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    loop.run_until_complete(main())
    assert len(errors) == 1
    with pytest.raises(TypeError):
        loop.call_soon(main)


@pytest.mark.parametrize(
    "call",
    [
        lambda loop: loop.call_soon(),
        lambda loop: loop.call_later(None, print),
        lambda loop: loop.call_later("1", print),
        lambda loop: loop.call_at(None, print),
        lambda loop: loop.call_soon(print, no_such=1),
        lambda loop: loop.add_reader("x", print),
        lambda loop: loop.add_reader(-1, print),
        lambda loop: loop.add_reader(object(), print),
        lambda loop: loop.run_until_complete(None),
        lambda loop: loop.add_signal_handler(9, print),
        lambda loop: loop.add_signal_handler(1000, print),
        lambda loop: (loop.close(), loop.call_soon(print)),
        lambda loop: (loop.close(), loop.call_later(1, print)),
        lambda loop: (loop.close(), loop.call_soon_threadsafe(print)),
        lambda loop: (loop.close(), loop.add_reader(0, print)),
        lambda loop: (loop.close(), loop.run_forever()),
    ],
)
def test_wrong_use_raises_what_asyncio_raises(call: Any) -> None:
    import headrace

    raised = []
    for factory in (asyncio.SelectorEventLoop, headrace.new_event_loop):
        loop = factory()
        try:
            call(loop)
        except Exception as error:
            raised.append(type(error))
        loop.close()
    assert len(raised) == 2 and raised[0] is raised[1], raised


def test_a_loop_made_before_fork_runs_in_both_processes(new_loop: Any) -> None:
    loop = new_loop()
    reader, writer = os.pipe()
    done, report = os.pipe()
    got: list[bytes] = []

    def ready() -> None:
        got.append(os.read(reader, 1))
        loop.stop()

    loop.add_reader(reader, ready)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            loop.call_later(10, loop.stop)
            os.write(writer, b"c")
            loop.run_forever()
            status = 0 if got == [b"c"] else 2
            loop.close()
        finally:
            os.write(report, b"x")
            os._exit(status)
    os.read(done, 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if type(loop).__module__.startswith("headrace"):
        # asyncio's loops share one epoll instance after a fork, and the child's close() disarms it.
        os.write(writer, b"p")
        loop.call_later(10, loop.stop)
        loop.run_forever()
        assert got == [b"p"]
    loop.remove_reader(reader)
    for fd in (reader, writer, done, report):
        os.close(fd)


@pytest.mark.parametrize("used", [False, True])
def test_a_child_that_only_closes_the_loop_takes_nothing_from_its_parent(new_loop: Any, used: bool) -> None:
    loop = new_loop()
    if not type(loop).__module__.startswith("headrace"):
        pytest.skip(
            "asyncio's loops share one epoll instance after a fork, and the child's close() disarms it"
        )
    reader, writer = os.pipe()
    loop.add_reader(reader, loop.stop)
    if used:
        turn(loop)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            loop.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.write(writer, b"p")
    late = loop.call_later(10, os._exit, 1)
    loop.run_forever()
    late.cancel()
    # The wake-up for signals is still watched, too.
    loop.add_signal_handler(signal.SIGUSR2, loop.stop)
    loop.remove_reader(reader)
    loop.call_soon(os.kill, os.getpid(), signal.SIGUSR2)
    late = loop.call_later(10, os._exit, 1)
    loop.run_forever()
    late.cancel()
    for fd in (reader, writer):
        os.close(fd)


def test_closing_gives_the_descriptors_back_at_once(new_loop: Any) -> None:
    before = len(os.listdir("/proc/self/fd"))
    loops = [new_loop() for _ in range(20)]
    for loop in loops:
        turn(loop)
        loop.close()
    assert len(os.listdir("/proc/self/fd")) == before
    for loop in loops:
        loop.close()
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            loop.call_soon_threadsafe(print)


LEFT_TO_THE_END = """
import asyncio, socket, sys
from headrace import new_event_loop
class Late:
    def __del__(self):
        for call in self.calls:
            call()
loop = new_event_loop()
ours, theirs = socket.socketpair()
async def connect():
    return await asyncio.open_connection(sock=ours)
reader, writer = loop.run_until_complete(connect())
late = Late()
timer = loop.call_later(60, print)
late.calls = [timer.cancel, writer.transport.abort, writer.transport.is_closing, loop.time, reader.readline]
unawaited = reader.read(1)
sys.late = late  # the last to go
print("end")
"""


def test_what_is_called_while_the_interpreter_finalises_does_no_harm() -> None:
    command = [sys.executable, "-W", "ignore", "-c", LEFT_TO_THE_END]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, "end\n"), result.stderr


def test_a_closed_loop_that_nobody_holds_is_freed(new_loop: Any) -> None:
    loop = new_loop()
    loop.call_later(60, loop.stop)
    loop.call_soon(loop.stop)
    gone = weakref.ref(loop)
    loop.close()
    # The fixture's list holds it too.
    for cell in new_loop.__closure__:
        if isinstance(cell.cell_contents, list):
            cell.cell_contents.clear()
    del loop
    gc.collect()
    assert gone() is None
