"""Each test of this folder that asks for ``new_loop`` runs on asyncio's own loop and on ours."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import headrace
import pytest
from headrace import _native

Factory = Callable[[], asyncio.AbstractEventLoop]
FACTORIES: dict[str, Factory] = {"asyncio": asyncio.SelectorEventLoop, "headrace": headrace.new_event_loop}


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


#: What must not outlive the test that made it.
KINDS = (
    asyncio.AbstractEventLoop,
    asyncio.BaseTransport,
    asyncio.StreamReader,
    asyncio.Task,
    _native.Channel,
)


def _alive() -> Counter[str]:
    return Counter(type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, KINDS))


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No test leaves a descriptor, a loop, a transport, a reader, a task or a native handle behind.

    What asyncio's own loop leaves for the collector to find later is not ours to hold it to.
    """
    gc.collect()
    descriptors, handles, alive = _descriptors(), _native._handles_alive(), _alive()
    yield
    caplog.get_records("call").clear()  # a record keeps the exception that it tells of, and that its frames
    caplog.clear()
    gc.collect()
    callspec = getattr(request.node, "callspec", None)
    theirs = callspec is not None and callspec.params.get("new_loop") == "asyncio"
    left = Counter[str]() if theirs else _alive() - alive
    assert not left, f"left alive: {dict(left)}"
    assert _descriptors() <= descriptors, "descriptors were left open"
    assert _native._handles_alive() <= handles, "handles were left alive"


@pytest.fixture(params=sorted(FACTORIES))
def new_loop(request: pytest.FixtureRequest) -> Iterator[Factory]:
    """A factory of loops; whatever it made is closed in the end."""
    made: list[asyncio.AbstractEventLoop] = []

    def factory() -> asyncio.AbstractEventLoop:
        loop = FACTORIES[request.param]()
        made.append(loop)
        return loop

    yield factory
    for loop in made:
        if not loop.is_closed():
            with contextlib.suppress(RuntimeError):
                loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    made.clear()


@pytest.fixture
def run(new_loop: Factory) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Run a coroutine function on a fresh loop, in at most 20 seconds."""

    def run(main: Callable[[], Awaitable[Any]]) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(main(), 20)

        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(bounded())

    return run
