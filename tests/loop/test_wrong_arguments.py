"""Every public method of a loop, called with arguments of the wrong kind: the same type of error on both loops.

The table is generated: from the signature of asyncio's method comes a call that is right but for one argument, and
that one takes each of the wrong values in turn. What a call returns is waited for where it can be.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import headrace
import pytest

#: Kinds of wrong values; each method's parameters take all of them, right or wrong: both loops must agree.
WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "-1": lambda: -1,
    "text": lambda: "text",
    "bytes": lambda: b"bytes",
    "float": lambda: 1.5,
    "list": list,
    "object": object,
    "huge": lambda: 2**70,
    "coroutine function": lambda: coroutine_function,
}

#: Not called: they run or close the loop, or wait for what is not there.
LEFT_OUT = {
    "close",
    "run_forever",
    "run_until_complete",
    "stop",
    "shutdown_asyncgens",
    "shutdown_default_executor",
}

#: Values of a type's own repr do not matter, their type does.
Outcome = tuple[str, str]


async def coroutine_function() -> None:
    """Takes nothing and does nothing."""


def connection() -> Any:
    """One end of a connection, non-blocking, whose other end is closed."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.close()
    return ours


def right_value(method: str, parameter: str) -> Any:
    """A value that a parameter may have."""
    values: dict[str, Callable[[], Any]] = {
        "callback": lambda: lambda *_: None,
        "func": lambda: lambda *_: None,
        "delay": lambda: 0.001,
        "when": lambda: 0.001,
        "coro": coroutine_function,
        "executor": lambda: None,
        "protocol_factory": lambda: (
            asyncio.SubprocessProtocol if "subprocess" in method else asyncio.Protocol
        ),
        "fd": lambda: 0 if "remove" in method else connection(),
        "sig": lambda: 10,
        "sock": connection,
        "pipe": lambda: os.fdopen(os.open("/dev/null", os.O_RDONLY), "rb"),
        "n": lambda: 10,
        "nbytes": lambda: 0,
        "bufsize": lambda: 10,
        "buf": lambda: bytearray(10),
        "data": lambda: b"data",
        "address": lambda: ("127.0.0.1", 1),
        "file": lambda: os.fdopen(os.open("/dev/null", os.O_RDONLY), "rb"),
        "fallback": lambda: True,
        "host": lambda: "127.0.0.1",
        "port": lambda: 0,
        "path": lambda: "/none/such",
        "cmd": lambda: "true",
        "program": lambda: "true",
        "sockaddr": lambda: ("127.0.0.1", 1),
        "enabled": lambda: False,
        "factory": lambda: None,
        "handler": lambda: None,
        "context": lambda: {"message": "said by a test"},
        "transport": lambda: None,
        "protocol": asyncio.Protocol,
        "sslcontext": lambda: None,
    }
    return values[parameter]() if parameter in values else None


def parameters(method: str) -> list[str]:
    """The names of the parameters that a method must be given."""
    signature = inspect.signature(getattr(asyncio.SelectorEventLoop, method))
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        name
        for name, parameter in signature.parameters.items()
        if name != "self" and parameter.kind in kinds and parameter.default is parameter.empty
    ]


def methods() -> Iterator[str]:
    for name in sorted(dir(asyncio.SelectorEventLoop)):
        if not name.startswith("_") and name not in LEFT_OUT:
            yield name


def calls(method: str) -> Iterator[tuple[str, Callable[[], tuple[Any, ...]], dict[str, Any]]]:
    """Calls of a method: what is wrong, what makes the positional arguments, the keyword arguments."""
    names = parameters(method)
    for count in range(len(names)):
        yield f"only {count}", lambda count=count: tuple(right_value(method, n) for n in names[:count]), {}
    yield "unknown keyword", lambda: tuple(right_value(method, n) for n in names), {"no_such": 1}
    for index, name in enumerate(names):
        for wrong, make in WRONG.items():

            def arguments(index: int = index, make: Callable[[], Any] = make) -> tuple[Any, ...]:
                return tuple(make() if at == index else right_value(method, n) for at, n in enumerate(names))

            yield f"{name}={wrong}", arguments, {}


async def settle(loop: Any) -> None:
    """End what the call has begun."""
    await asyncio.sleep(0.002)
    for transport in list(loop._transports.values()):
        transport.abort()
    for task in asyncio.all_tasks(loop) - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0.002)
    await loop.shutdown_default_executor()


def outcome(
    factory: Any, method: str, make: Callable[[], tuple[Any, ...]], keywords: dict[str, Any]
) -> Outcome:
    """What a call on a fresh loop comes to: the type of the error at the call or at waiting, or no error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop = factory()
        loop.set_exception_handler(lambda *_: None)
        arguments = make()
        stage = "call"

        async def main() -> Any:
            nonlocal stage
            result = getattr(loop, method)(*arguments, **keywords)
            if inspect.isawaitable(result):
                stage = "wait"
                return await asyncio.wait_for(result, 2)
            return result

        try:
            loop.run_until_complete(main())
            found = "no error"
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            found = type(exc).__name__
        loop.set_task_factory(None)
        with contextlib.suppress(Exception):  # asyncio's loop does not survive each wrong timer
            loop.run_until_complete(settle(loop))
        for argument in arguments:
            if hasattr(argument, "close"):
                argument.close()
        loop.close()
        return stage, found


#: Calls on which the two differ, each with its reason.
DIFFERENT: dict[tuple[str, str], str] = {
    **{
        ("call_at", f"when={wrong}"): "asyncio takes it, and its run cycle dies of it; ours refuses it"
        for wrong in ("text", "bytes", "list", "object", "coroutine function")
    },
    ("call_at", "when=huge"): "asyncio compares whole numbers of any size; ours are floats",
    ("subprocess_exec", "protocol_factory=coroutine function"): "the child's end races with the error",
    ("subprocess_shell", "protocol_factory=coroutine function"): "as above",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", list(methods()))
def test_both_loops_raise_the_same(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)  # records keep what they tell of
    differing = []
    seen = 0
    for what, make, keywords in calls(method):
        seen += 1
        if (method, what) in DIFFERENT:
            continue
        theirs = outcome(asyncio.SelectorEventLoop, method, make, keywords)
        ours = outcome(headrace.new_event_loop, method, make, keywords)
        if theirs[1] != ours[1]:
            differing.append(f"{what}: asyncio {theirs}, headrace {ours}")
    gc.collect()  # unclosed pipes and transports warn here
    assert seen
    assert not differing, "\n".join(differing)
