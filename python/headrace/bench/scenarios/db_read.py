"""Source 1: one row from a database, driver against driver."""

from headrace.bench import checks
from headrace.bench.model import Case, Package, Scenario, Sweep

ROW = {"id": 7, "name": "user 7", "email": "user7@example.org"}

#: Contenders that have a pool.
POOLED = tuple(
    name + suffix
    for name in ("asyncpg-pool", "aiomysql-pool", "asyncmy-pool", "motor", "pymongo-async")
    for suffix in ("", "-headrace")
)

DB_READ = Scenario(
    name="db-read",
    summary="one row by its number as JSON from a Tornado handler, pool of 10, 100 connections",
    workloads={"db-read": ()},
    cases=(
        Case(
            name="one row",
            check=checks.http_answer("/user/7", checks.json_body(ROW), content_type="application/json"),
            url="http://{bind}/user/7",
            connections=100,
            options=("--expect-status", "200"),
        ),
    ),
    least_seconds=1.0,
    baseline="asyncpg-connect",
    needs=(Package("tornado"),),
    sweeps=(
        Sweep("connections", (1, 10, 50, 100, 500)),
        Sweep("pool size", (1, 2, 5, 10, 20, 50), "BENCH_POOL", POOLED),
    ),
)
