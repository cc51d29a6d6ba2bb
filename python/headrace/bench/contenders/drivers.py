"""Database drivers under a Tornado handler: source 1's comparison, with the same row and answer for all."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.bench.model import Contender, Launch, Package

#: Contender, driver, options, service, package.
DRIVERS: tuple[tuple[str, str, tuple[str, ...], str, str], ...] = (
    ("asyncpg-connect", "asyncpg", ("--pool", "0"), "postgresql", "asyncpg"),
    ("asyncpg-pool", "asyncpg", (), "postgresql", "asyncpg"),
    ("aiomysql-pool", "aiomysql", (), "mariadb", "aiomysql"),
    ("asyncmy-pool", "asyncmy", (), "mariadb", "asyncmy"),
    ("motor-connect", "motor", ("--pool", "0"), "mongodb", "motor"),
    ("motor", "motor", (), "mongodb", "motor"),
    ("pymongo-async", "pymongo", (), "mongodb", "pymongo"),
    ("sqlite", "sqlite", (), "", ""),
)


def reading(driver: str, loop: str, options: tuple[str, ...]) -> Callable[[Launch], Sequence[str]]:
    """The program with a driver, on a loop."""
    words = ("db_read.py", "--driver", driver, "--loop", loop, *options)
    return lambda launch: replace(launch, workload=words).program()


CONTENDERS = [
    Contender(
        name=name + suffix,
        summary=f"{driver} on {loop}" + (", a connection for each request" if "0" in options else ""),
        hosts={"db-read": reading(driver, loop, options)},
        needs=(*((Package(package),) if package else ()), *needs),
        services=(service,) if service else (),
        minor=name == "motor-connect" and loop == "headrace",
    )
    for name, driver, options, service, package in DRIVERS
    for suffix, loop, needs in (("", "uvloop", (Package("uvloop"),)), ("-headrace", "headrace", ()))
]
