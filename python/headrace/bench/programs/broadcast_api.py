"""The fourth source's API as a ladder: authenticate with several lookups in MySQL, broadcast by RabbitMQ, answer.

    broadcast_api.py --step NAME --bind HOST:PORT

``apps/app_broadcast.py`` has the same as an application, for servers that host one. Each step changes one thing
against the one before it; ``STEPS`` says which. A request is
``POST /send {"token": ..., "channel": ..., "text": ...}``: the token gives a user, the user's role must be allowed on
the channel, the channel must be open, and the user's quota not used up. The message goes to a fanout exchange.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import mmap
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench_support import arguments, listener, run
from tornado import web
from tornado.httpserver import HTTPServer

#: Rows of the tables: without an index a look-up reads them all.
USERS = 2000
Authenticate = Callable[[str, str], Any]


@dataclass(frozen=True)
class Step:
    """One rung.

    :param orm: rows become objects of SQLAlchemy's ORM.
    :param threads: blocking work runs in a pool of threads.
    :param index: ``none``; ``plain``, one column each; ``fitting``, all columns that the look-ups ask for.
    :param filtered: conditions are in the SQL, not in Python.
    :param merged: one query in place of four.
    :param driver: ``pymysql`` (blocking) or ``asyncmy`` (asynchronous, pooled).
    :param broker: ``each`` (a connection for each message), ``held`` (one connection and channel), ``batched`` (the
        same, with one write and one confirm for many messages).
    """

    orm: bool = True
    threads: bool = False
    index: str = "none"
    filtered: bool = False
    merged: bool = False
    driver: str = "pymysql"
    broker: str = "each"


STEPS = {
    "1-naive": Step(),
    "2-threads": Step(threads=True),
    "3-indexes": Step(threads=True, index="plain"),
    "4-raw-sql": Step(threads=True, index="plain", orm=False),
    "5-filters-in-sql": Step(threads=True, index="plain", orm=False, filtered=True),
    "6-one-query": Step(threads=True, index="plain", orm=False, filtered=True, merged=True),
    "7-held-channel": Step(threads=True, index="plain", orm=False, filtered=True, merged=True, broker="held"),
    "8-async-driver": Step(
        index="plain", orm=False, filtered=True, merged=True, driver="asyncmy", broker="held"
    ),
    "9-fitting-indexes": Step(
        index="fitting", orm=False, filtered=True, merged=True, driver="asyncmy", broker="held"
    ),
    "10-batched": Step(
        index="fitting", orm=False, filtered=True, merged=True, driver="asyncmy", broker="batched"
    ),
}

TABLES = {
    "users": "id INT, token VARCHAR(40), role VARCHAR(20), name VARCHAR(40)",
    "channels": "id INT, name VARCHAR(40), open INT",
    "grants": "id INT, role VARCHAR(20), channel VARCHAR(40)",
    "quotas": "id INT, user INT, rest INT",
}
#: The columns of each table's index, by the end of the tables' names.
INDEXES: dict[str, dict[str, str]] = {
    "": {},
    "_plain": {"users": "token", "channels": "name", "grants": "role", "quotas": "user"},
    "_fitting": {
        "users": "token, role, id",
        "channels": "name, open",
        "grants": "role, channel",
        "quotas": "user, rest",
    },
}
#: How long a process waits for another one that makes the tables, in seconds.
PATIENCE = 60
MERGED = (
    "SELECT u.id FROM users{0} u JOIN grants{0} g ON g.role = u.role AND g.channel = %s "
    "JOIN channels{0} c ON c.name = g.channel AND c.open = 1 JOIN quotas{0} q ON q.user = u.id AND q.rest > 0 "
    "WHERE u.token = %s"
)


def content(table: str) -> list[tuple[Any, ...]]:
    """The rows of a table."""
    tables: dict[str, list[tuple[Any, ...]]] = {
        "users": [(i, f"token-{i}", f"role-{i % 20}", f"user {i}") for i in range(USERS)],
        "channels": [(i, f"channel-{i}", 1) for i in range(50)],
        "grants": [(i, f"role-{i % 20}", f"channel-{i // 20}") for i in range(1000)],
        "quotas": [(i, i, 1_000_000) for i in range(USERS)],
    }
    return tables[table]


def where() -> dict[str, Any]:
    """How MySQL is reached."""
    parts = urlsplit(os.environ["BENCH_MARIADB_URL"])
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
    }


def fill() -> None:
    """Make the tables, plain and indexed, unless they are there."""
    import pymysql

    with pymysql.connect(**where(), autocommit=True) as connection, connection.cursor() as cursor:
        # Workers of one server start together.
        cursor.execute("SELECT GET_LOCK('bench', %s)", PATIENCE)
        cursor.execute("CREATE DATABASE IF NOT EXISTS bench")
        cursor.execute("USE bench")
        for table, suffix in itertools.product(TABLES, INDEXES):
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {table}{suffix} ({TABLES[table]})")
            cursor.execute(f"SELECT count(*) FROM {table}{suffix}")
            if cursor.fetchone()[0]:
                continue
            marks = ", ".join(["%s"] * len(content(table)[0]))
            cursor.executemany(f"INSERT INTO {table}{suffix} VALUES ({marks})", content(table))
            if suffix:
                columns = INDEXES[suffix][table]
                cursor.execute(f"ALTER TABLE {table}{suffix} ADD PRIMARY KEY (id), ADD INDEX ({columns})")
                cursor.execute(f"ANALYZE TABLE {table}{suffix}")


def orm_authenticate(suffix: str) -> Authenticate:
    """Four queries through SQLAlchemy's ORM, filtered in Python."""
    from sqlalchemy import create_engine, select
    from sqlalchemy.orm import Session, declarative_base
    from sqlalchemy.schema import Column, Table
    from sqlalchemy.types import Integer, String

    parts = where()
    url = f"mysql+pymysql://{parts['user']}@{parts['host']}:{parts['port']}/bench"
    engine = create_engine(url, pool_size=40)
    base: Any = declarative_base()
    kinds: dict[str, Any] = {}
    for table, columns in TABLES.items():
        named = [column.strip().split()[:2] for column in columns.split(",")]
        made = [
            Column(name, Integer if kind == "INT" else String(40), primary_key=name == "id")
            for name, kind in named
        ]
        kinds[table] = type(
            table.title(), (base,), {"__table__": Table(f"{table}{suffix}", base.metadata, *made)}
        )

    def authenticate(token: str, channel: str) -> int | None:
        with Session(engine) as session:
            users = session.scalars(select(kinds["users"]).where(kinds["users"].token == token)).all()
            if not users:
                return None
            user = users[0]
            grants = session.scalars(select(kinds["grants"]).where(kinds["grants"].role == user.role)).all()
            if channel not in [grant.channel for grant in grants]:
                return None
            channels = session.scalars(select(kinds["channels"])).all()
            if not any(each.name == channel and each.open for each in channels):
                return None
            quotas = session.scalars(select(kinds["quotas"]).where(kinds["quotas"].user == user.id)).all()
            return int(user.id) if quotas and quotas[0].rest > 0 else None

    return authenticate


def raw_authenticate(step: Step, suffix: str) -> Authenticate:
    """Raw SQL by PyMySQL, a connection for each thread."""
    import threading

    import pymysql

    local = threading.local()

    def rows(query: str, *values: Any) -> list[tuple[Any, ...]]:
        if not hasattr(local, "connection"):
            local.connection = pymysql.connect(**where(), database="bench", autocommit=True)
        with local.connection.cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall())

    def authenticate(token: str, channel: str) -> int | None:
        if step.merged:
            found = rows(MERGED.format(suffix), channel, token)
            return found[0][0] if found else None
        users = rows(f"SELECT id, role FROM users{suffix} WHERE token = %s", token)
        if not users:
            return None
        number, role = users[0]
        if step.filtered:
            granted = rows(f"SELECT 1 FROM grants{suffix} WHERE role = %s AND channel = %s", role, channel)
            opened = rows(f"SELECT 1 FROM channels{suffix} WHERE name = %s AND open = 1", channel)
        else:
            granted = [
                r
                for r in rows(f"SELECT channel FROM grants{suffix} WHERE role = %s", role)
                if r[0] == channel
            ]
            opened = [r for r in rows(f"SELECT name, open FROM channels{suffix}") if r == (channel, 1)]
        quota = rows(f"SELECT rest FROM quotas{suffix} WHERE user = %s", number)
        return number if granted and opened and quota and quota[0][0] > 0 else None

    return authenticate


async def async_authenticate(suffix: str) -> Callable[[str, str], Awaitable[int | None]]:
    """The merged query by asyncmy's pool."""
    import asyncmy

    pool = await asyncmy.create_pool(**where(), db="bench", autocommit=True, minsize=10, maxsize=10)
    query = MERGED.format(suffix)

    async def authenticate(token: str, channel: str) -> int | None:
        async with pool.acquire() as connection, connection.cursor() as cursor:
            await cursor.execute(query, (channel, token))
            found = await cursor.fetchone()
            return found[0] if found else None

    return authenticate


def publish_each(exchange: str, body: bytes) -> None:
    """A connection and a channel for each message, as the source left it."""
    import pika

    with pika.BlockingConnection(pika.URLParameters(os.environ["BENCH_RABBITMQ_URL"])) as connection:
        connection.channel().basic_publish(exchange, "", body)


async def held_channel(exchange: str) -> Callable[[bytes], Awaitable[None]]:
    """One connection and one channel with publisher confirms: an answer means that the broker has the message."""
    import aiormq

    connection = await aiormq.connect(os.environ["BENCH_RABBITMQ_URL"])
    channel = await connection.channel(publisher_confirms=True)

    async def publish(body: bytes) -> None:
        await channel.basic_publish(body, exchange=exchange, routing_key="")

    return publish


async def batching_channel(exchange: str) -> Callable[[bytes], Awaitable[None]]:
    """The same by a publisher that sends what one turn of the loop publishes in one piece."""
    from amqp_publisher import connect

    return (await connect(os.environ["BENCH_RABBITMQ_URL"], exchange)).publish


async def declare(exchange: str) -> None:
    """The exchange, and a queue that keeps every message for the proof."""
    import aiormq

    connection = await aiormq.connect(os.environ["BENCH_RABBITMQ_URL"])
    channel = await connection.channel()
    await channel.exchange_declare(exchange, exchange_type="fanout")
    await channel.queue_declare(exchange)
    await channel.queue_bind(exchange, exchange)
    await connection.close()


class Count:
    """How many messages were sent, by this process and by the server's others: each has a file in the folder.

    :param folder: the working folder of the server.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / f"sent.{os.getpid()}"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._mine = mmap.mmap(file.fileno(), 8)
        self._numbers = 0

    def add(self) -> None:
        """Count one message."""
        self._numbers += 1
        self._mine[:8] = self._numbers.to_bytes(8)

    def total(self) -> int:
        """The messages of all processes."""
        return sum(int.from_bytes(path.read_bytes()) for path in self._folder.glob("sent.*"))


class Sender:
    """Authenticates and publishes by the means of a step."""

    def __init__(self, step: Step) -> None:
        self.step = step
        folder = Path.cwd()
        # The bench gives each server a folder of its own: its name is the queue's.
        self.exchange = f"bench-{folder.parent.name}-{folder.name}"
        self.numbers = itertools.count(1)
        self.count = Count(folder)
        self._preparing: asyncio.Task[None] | None = None
        self.ready = False

    async def prepare(self) -> None:
        """Make the tables and the queue, and open what is held open: once, whoever asks."""
        if self._preparing is None:
            self._preparing = asyncio.get_running_loop().create_task(self._prepare())
        await self._preparing

    async def _prepare(self) -> None:
        """Do it."""
        fill()
        await declare(self.exchange)
        suffix = {"none": "", "plain": "_plain", "fitting": "_fitting"}[self.step.index]
        if self.step.driver == "asyncmy":
            self.async_authenticate = await async_authenticate(suffix)
        else:
            self.authenticate = (
                orm_authenticate(suffix) if self.step.orm else raw_authenticate(self.step, suffix)
            )
        if self.step.broker == "held":
            self.publish = await held_channel(self.exchange)
        elif self.step.broker == "batched":
            self.publish = await batching_channel(self.exchange)
        self.ready = True

    async def send(self, token: str, channel: str, text: str) -> str | None:
        """Send a message; its number, or None when it is not allowed."""
        loop = asyncio.get_running_loop()
        if self.step.driver == "asyncmy":
            user = await self.async_authenticate(token, channel)
        elif self.step.threads:
            user = await loop.run_in_executor(None, self.authenticate, token, channel)
        else:
            user = self.authenticate(token, channel)
        if user is None:
            return None
        number = f"{os.getpid()}-{next(self.numbers)}"
        body = json.dumps({"number": number, "user": user, "channel": channel, "text": text}).encode()
        if self.step.broker != "each":
            await self.publish(body)
        elif self.step.threads:
            await loop.run_in_executor(None, publish_each, self.exchange, body)
        else:
            publish_each(self.exchange, body)
        self.count.add()
        return number


class Send(web.RequestHandler):
    """Takes a message."""

    def initialize(self, sender: Sender) -> None:
        """Keep the sender."""
        self.sender = sender

    async def post(self) -> None:
        """Send it."""
        if not self.sender.ready:
            await self.sender.prepare()
        asked = json.loads(self.request.body)
        number = await self.sender.send(asked["token"], asked["channel"], asked["text"])
        if number is None:
            self.set_status(403)
        self.write({"sent": number is not None})


class Sent(web.RequestHandler):
    """How many messages were sent, for the proof."""

    def initialize(self, sender: Sender) -> None:
        """Keep the sender."""
        self.sender = sender

    def get(self) -> None:
        """The count, and where the messages went."""
        broker = os.environ["BENCH_RABBITMQ_URL"]
        self.write({"sent": self.sender.count.total(), "queue": self.sender.exchange, "broker": broker})


def application(step: str) -> web.Application:
    """The API at a step."""
    sender = {"sender": Sender(STEPS[step])}
    return web.Application([("/send", Send, sender), ("/sent", Sent, sender)])


async def serve(bind: str, step: str) -> None:
    """Listen, and serve until the process is ended."""
    server = HTTPServer(application(step))
    sock = listener(bind)
    sock.setblocking(False)
    server.add_sockets([sock])
    await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    parser = arguments()
    parser.add_argument("--step", choices=STEPS, required=True)
    args = parser.parse_args()
    run(args.loop, serve(args.bind, args.step))


if __name__ == "__main__":
    main()
