"""Headrace: a native runtime for Python network services.

The loop is imported when it is first asked for: the supervisor and the command line do without it.
"""

import sys
from typing import TYPE_CHECKING, Any

from headrace._native import build_info as build_info

if TYPE_CHECKING:
    from headrace.loop import EventLoopPolicy as EventLoopPolicy
    from headrace.loop import Loop as Loop
    from headrace.loop import install as install
    from headrace.loop import new_event_loop as new_event_loop
    from headrace.loop import run as run

__version__: str = build_info()["version"]

_FROM_LOOP = {"Loop", "new_event_loop", "run"}
if sys.version_info < (3, 16):
    _FROM_LOOP |= {"EventLoopPolicy", "install"}


def __getattr__(name: str) -> Any:
    if name not in _FROM_LOOP:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headrace import loop

    value = globals()[name] = getattr(loop, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FROM_LOOP})
