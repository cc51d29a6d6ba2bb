"""The rungs of source 4's ladder; each changes one thing against the one before it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.bench.contenders.http_servers import headrace
from headrace.bench.model import Contender, Launch, Package

#: Name, the program's step, loop, what is new.
RUNGS: tuple[tuple[str, str, str, str], ...] = (
    (
        "01-naive",
        "1-naive",
        "asyncio",
        "blocking driver, ORM, four queries, no index, a broker connection each",
    ),
    ("02-threads", "2-threads", "asyncio", "blocking work in threads"),
    ("03-indexes", "3-indexes", "asyncio", "indexes"),
    ("04-raw-sql", "4-raw-sql", "asyncio", "rows in place of ORM objects"),
    ("05-filters-in-sql", "5-filters-in-sql", "asyncio", "conditions in SQL"),
    ("06-one-query", "6-one-query", "asyncio", "four queries merged into one"),
    ("07-held-channel", "7-held-channel", "asyncio", "one broker channel, held open, with confirms"),
    (
        "08-async-driver",
        "8-async-driver",
        "asyncio",
        "an asynchronous driver with a pool in place of threads",
    ),
    ("09-fitting-indexes", "9-fitting-indexes", "asyncio", "indexes that hold all that the query asks for"),
    ("10-batched-confirms", "10-batched", "asyncio", "one write and one confirm for many messages"),
    ("11-uvloop", "10-batched", "uvloop", "uvloop"),
    ("12-headrace", "10-batched", "headrace", "headrace's loop"),
)
#: The last rungs are hosted: name, worker processes, what is new.
HOSTED: tuple[tuple[str, int, str], ...] = (
    ("13-headrace-serve", 1, "the same application hosted by headrace serve"),
    ("14-two-workers", 2, "two worker processes"),
)
DRIVERS = ("tornado", "pymysql", "asyncmy", "sqlalchemy", "pika", "aiormq")


def rung(step: str, loop: str) -> Callable[[Launch], Sequence[str]]:
    """The program at a step."""
    words = ("broadcast_api.py", "--step", step, "--loop", loop)
    return lambda launch: replace(launch, workload=words).program()


def hosted(workers: int) -> Callable[[Launch], Sequence[str]]:
    """The application under ``headrace serve``."""
    host = headrace("tornado")
    return lambda launch: host(replace(launch, workload=("app_broadcast:app",), workers=workers))


CONTENDERS = [
    Contender(
        name=f"broadcast-{name}",
        summary=summary,
        hosts={"broadcast": rung(step, loop)},
        needs=tuple(Package(each) for each in (*DRIVERS, *(("uvloop",) if loop == "uvloop" else ()))),
    )
    for name, step, loop, summary in RUNGS
]
CONTENDERS += [
    Contender(
        name=f"broadcast-{name}",
        summary=summary,
        hosts={"broadcast": hosted(workers)},
        needs=tuple(Package(each) for each in DRIVERS),
        variables={"BENCH_STEP": "10-batched"},
    )
    for name, workers, summary in HOSTED
]
