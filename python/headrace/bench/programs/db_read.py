"""The first source's database handler: one row by its number, as JSON, from a Tornado handler on any loop.

Every driver reads the same row by the same condition and answers the same bytes; the source compared an unlimited
SELECT, a LIMIT 1 and a Mongo client made for each request.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from bench_support import arguments, listener, run
from tornado import web
from tornado.httpserver import HTTPServer

#: Rows of the table.
ROWS = 1000
CREATE = "CREATE TABLE IF NOT EXISTS bench_users (id INT PRIMARY KEY, name VARCHAR(40), email VARCHAR(80))"
#: Errors that were logged already: one line each says what a database refuses.
TOLD: set[str] = set()
Read = Callable[[int], Awaitable[tuple[Any, ...]]]


def rows() -> list[tuple[int, str, str]]:
    """The content of the table."""
    return [(i, f"user {i}", f"user{i}@example.org") for i in range(1, ROWS + 1)]


async def asyncpg_driver(pool_size: int) -> Read:
    """asyncpg: a pool, or with size 0 a connection for each request."""
    import asyncpg

    url = os.environ["BENCH_POSTGRESQL_URL"]
    query = "SELECT id, name, email FROM bench_users WHERE id = $1"
    connection = await asyncpg.connect(url)
    await connection.execute(CREATE)
    if not await connection.fetchval("SELECT count(*) FROM bench_users"):
        await connection.executemany("INSERT INTO bench_users VALUES ($1, $2, $3)", rows())
    await connection.close()
    if not pool_size:

        async def read_once(number: int) -> tuple[Any, ...]:
            fresh = await asyncpg.connect(url)
            try:
                return tuple(await fresh.fetchrow(query, number))
            finally:
                await fresh.close()

        return read_once
    pool = await asyncpg.create_pool(url, min_size=pool_size, max_size=pool_size)

    async def read(number: int) -> tuple[Any, ...]:
        async with pool.acquire() as held:
            return tuple(await held.fetchrow(query, number))

    return read


async def mysql_driver(module: Any, pool_size: int) -> Read:
    """aiomysql or asyncmy, with a pool: they have the same interface."""
    parts = urlsplit(os.environ["BENCH_MARIADB_URL"])
    where = {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
    }
    first = await module.connect(**where, autocommit=True)
    async with first.cursor() as cursor:
        await cursor.execute("CREATE DATABASE IF NOT EXISTS bench")
        await cursor.execute("USE bench")
        await cursor.execute(CREATE)
        await cursor.execute("SELECT count(*) FROM bench_users")
        if (await cursor.fetchone())[0] == 0:
            await cursor.executemany("INSERT INTO bench_users VALUES (%s, %s, %s)", rows())
    first.close()
    pool = await module.create_pool(
        **where, db="bench", autocommit=True, minsize=pool_size, maxsize=pool_size
    )

    async def read(number: int) -> tuple[Any, ...]:
        async with pool.acquire() as held, held.cursor() as cursor:
            await cursor.execute("SELECT id, name, email FROM bench_users WHERE id = %s", (number,))
            return tuple(await cursor.fetchone())

    return read


async def mongo_driver(client: Any) -> Read:
    """motor or PyMongo's own asynchronous client, one for the whole process."""
    users = client["bench"]["users"]
    if await users.count_documents({}) == 0:
        await users.insert_many([{"_id": i, "name": name, "email": email} for i, name, email in rows()])

    async def read(number: int) -> tuple[Any, ...]:
        found = await users.find_one({"_id": number})
        return found["_id"], found["name"], found["email"]

    return read


async def client_each(make: Callable[[], Any]) -> Read:
    """A client for each request, as the first source used motor: each opens connections and threads of its own."""
    first = make()
    await mongo_driver(first)
    first.close()

    async def read(number: int) -> tuple[Any, ...]:
        client = make()
        try:
            found = await client["bench"]["users"].find_one({"_id": number})
        finally:
            client.close()
        return found["_id"], found["name"], found["email"]

    return read


def sqlite_driver() -> Read:
    """The standard library's SQLite, called in the loop's own thread: a read takes microseconds."""
    connection = sqlite3.connect("bench.sqlite")
    connection.execute(CREATE)
    connection.executemany("INSERT INTO bench_users VALUES (?, ?, ?)", rows())

    async def read(number: int) -> tuple[Any, ...]:
        query = "SELECT id, name, email FROM bench_users WHERE id = ?"
        found: tuple[Any, ...] = connection.execute(query, (number,)).fetchone()
        return found

    return read


async def driver(name: str, pool_size: int) -> Read:
    """The read function of a driver."""
    if name == "asyncpg":
        return await asyncpg_driver(pool_size)
    if name == "aiomysql":
        import aiomysql

        return await mysql_driver(aiomysql, pool_size)
    if name == "asyncmy":
        import asyncmy

        return await mysql_driver(asyncmy, pool_size)
    if name == "motor":
        from motor.motor_asyncio import AsyncIOMotorClient

        url = os.environ["BENCH_MONGODB_URL"]
        if pool_size == 0:
            return await client_each(lambda: AsyncIOMotorClient(url))
        return await mongo_driver(AsyncIOMotorClient(url, maxPoolSize=pool_size))
    if name == "pymongo":
        from pymongo import AsyncMongoClient

        return await mongo_driver(AsyncMongoClient(os.environ["BENCH_MONGODB_URL"], maxPoolSize=pool_size))
    return sqlite_driver()


class User(web.RequestHandler):
    """One row."""

    def initialize(self, read: Read) -> None:
        """Keep the driver's read function."""
        self.read = read

    async def get(self, number: str) -> None:
        """The row as JSON; a database that refuses gives 503 and says why."""
        try:
            found = await self.read(int(number))
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            if said not in TOLD:
                TOLD.add(said)
                print(said, file=sys.stderr, flush=True)
            self.set_status(503)
            self.write({"error": said})
            return
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps(dict(zip(("id", "name", "email"), found, strict=True))))


async def serve(bind: str, name: str, pool_size: int) -> None:
    """Listen, and serve until the process is ended."""
    read = await driver(name, pool_size)
    server = HTTPServer(web.Application([(r"/user/(\d+)", User, {"read": read})]))
    sock = listener(bind)
    sock.setblocking(False)
    server.add_sockets([sock])
    await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    parser = arguments()
    parser.add_argument("--driver", choices=("asyncpg", "aiomysql", "asyncmy", "motor", "pymongo", "sqlite"))
    pool = int(os.environ.get("BENCH_POOL", "10"))
    parser.add_argument("--pool", type=int, default=pool, help="connections; 0 for one a request")
    args = parser.parse_args()
    run(args.loop, serve(args.bind, args.driver, args.pool))


if __name__ == "__main__":
    main()
