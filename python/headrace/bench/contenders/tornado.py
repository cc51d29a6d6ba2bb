"""Tornado applications: on Tornado's own server over each loop, and hosted by Headrace.

Tornado 6 has no loop of its own: its IOLoop is asyncio's, so that the first source's two rows are one here.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.bench.contenders.http_servers import HEADRACE, headrace
from headrace.bench.contenders.loops import UVLOOP_022
from headrace.bench.model import Contender, Launch, Package

TORNADO = Package("tornado")


def on(loop: str) -> Callable[[Launch], Sequence[str]]:
    """Tornado's own server on a loop."""
    return lambda launch: replace(launch, workload=("tornado_serve.py", launch.app)).program("--loop", loop)


CONTENDERS = [
    Contender(
        "tornado-asyncio",
        "Tornado's server on its default loop, asyncio's",
        {"tornado": on("asyncio")},
        (TORNADO,),
    ),
    Contender(
        "tornado-uvloop",
        "Tornado's server on uvloop",
        {"tornado": on("uvloop")},
        (TORNADO, Package("uvloop")),
    ),
    Contender(
        "tornado-uvloop-0.22",
        "Tornado's server on uvloop 0.22.1",
        {"tornado": on("uvloop")},
        (TORNADO,),
        UVLOOP_022,
        minor=True,
    ),
    Contender(
        "tornado-headrace", "Tornado's server on headrace's loop", {"tornado": on("headrace")}, (TORNADO,)
    ),
    Contender(
        "headrace-tornado", "headrace serve, Tornado", {"tornado": headrace("tornado")}, (HEADRACE, TORNADO)
    ),
]
