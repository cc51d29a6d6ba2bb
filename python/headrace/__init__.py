"""Headrace: a native runtime for Python network services.

The loop and the server are imported when they are first asked for: the supervisor and the command line do
without them.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from headrace._native import ClientDisconnected as ClientDisconnected
from headrace._native import build_info as build_info

if TYPE_CHECKING:
    from headrace.loop import EventLoopPolicy as EventLoopPolicy
    from headrace.loop import Loop as Loop
    from headrace.loop import install as install
    from headrace.loop import new_event_loop as new_event_loop
    from headrace.loop import run as run
    from headrace.server.embedded import serve as serve

__version__: str = build_info()["version"]

#: Public names that are imported when they are first asked for, and the module that has each.
_LATER = dict.fromkeys(("Loop", "new_event_loop", "run"), "headrace.loop")
if sys.version_info < (3, 16):
    _LATER |= dict.fromkeys(("EventLoopPolicy", "install"), "headrace.loop")
_LATER["serve"] = "headrace.server.embedded"


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
