"""The fourth source's API as a ladder: authenticate with several lookups in MySQL, broadcast by RabbitMQ, answer.

    broadcast_api.py --step NAME --bind HOST:PORT

Each step changes one thing against the one before it; ``STEPS`` says which. A request is
``POST /send {"token": ..., "channel": ..., "text": ...}``: the token gives a user, the user's role must be allowed on
the channel, the channel must be open, and the user's quota not used up. The message goes to a fanout exchange.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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
    :param indexed: tables have indexes.
    :param filtered: conditions are in the SQL, not in Python.
    :param merged: one query in place of four.
    :param driver: ``pymysql`` (blocking) or ``asyncmy`` (asynchronous, pooled).
    :param broker: ``each`` (a connection for each message), ``held`` (one connection and channel).
    """

    orm: bool = True
    threads: bool = False
    indexed: bool = False
    filtered: bool = False
    merged: bool = False
    driver: str = "pymysql"
    broker: str = "each"


STEPS = {
    "1-naive": Step(),
    "2-threads": Step(threads=True),
    "3-indexes": Step(threads=True, indexed=True),
    "4-raw-sql": Step(threads=True, indexed=True, orm=False),
    "5-filters-in-sql": Step(threads=True, indexed=True, orm=False, filtered=True),
    "6-one-query": Step(threads=True, indexed=True, orm=False, filtered=True, merged=True),
    "7-held-channel": Step(threads=True, indexed=True, orm=False, filtered=True, merged=True, broker="held"),
    "8-async-driver": Step(
        indexed=True, orm=False, filtered=True, merged=True, driver="asyncmy", broker="held"
    ),
}

TABLES = {
    "users": "id INT, token VARCHAR(40), role VARCHAR(20), name VARCHAR(40)",
    "channels": "id INT, name VARCHAR(40), open INT",
    "grants": "id INT, role VARCHAR(20), channel VARCHAR(40)",
    "quotas": "id INT, user INT, rest INT",
}
INDEXES = {"users": "token", "channels": "name", "grants": "role", "quotas": "user"}
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
        cursor.execute("CREATE DATABASE IF NOT EXISTS bench")
        cursor.execute("USE bench")
        for table, suffix in itertools.product(TABLES, ("", "_indexed")):
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {table}{suffix} ({TABLES[table]})")
            cursor.execute(f"SELECT count(*) FROM {table}{suffix}")
            if cursor.fetchone()[0]:
                continue
            marks = ", ".join(["%s"] * len(content(table)[0]))
            cursor.executemany(f"INSERT INTO {table}{suffix} VALUES ({marks})", content(table))
            if suffix:
                cursor.execute(
                    f"ALTER TABLE {table}{suffix} ADD PRIMARY KEY (id), ADD INDEX ({INDEXES[table]})"
                )


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


async def declare(exchange: str) -> None:
    """The exchange, and a queue that keeps every message for the proof."""
    import aiormq

    connection = await aiormq.connect(os.environ["BENCH_RABBITMQ_URL"])
    channel = await connection.channel()
    await channel.exchange_declare(exchange, exchange_type="fanout")
    await channel.queue_declare(exchange)
    await channel.queue_bind(exchange, exchange)
    await connection.close()


class Sender:
    """Authenticates and publishes by the means of a step."""

    def __init__(self, step: Step, exchange: str) -> None:
        self.step = step
        self.exchange = exchange
        self.numbers = itertools.count(1)
        self.sent = 0

    async def prepare(self) -> None:
        """Open what is held open."""
        suffix = "_indexed" if self.step.indexed else ""
        if self.step.driver == "asyncmy":
            self.async_authenticate = await async_authenticate(suffix)
        else:
            self.authenticate = (
                orm_authenticate(suffix) if self.step.orm else raw_authenticate(self.step, suffix)
            )
        if self.step.broker == "held":
            self.publish = await held_channel(self.exchange)

    async def send(self, token: str, channel: str, text: str) -> int | None:
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
        number = next(self.numbers)
        body = json.dumps({"number": number, "user": user, "channel": channel, "text": text}).encode()
        if self.step.broker == "held":
            await self.publish(body)
        elif self.step.threads:
            await loop.run_in_executor(None, publish_each, self.exchange, body)
        else:
            publish_each(self.exchange, body)
        self.sent += 1
        return number


class Send(web.RequestHandler):
    """Takes a message."""

    def initialize(self, sender: Sender) -> None:
        """Keep the sender."""
        self.sender = sender

    async def post(self) -> None:
        """Send it."""
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
        self.write({"sent": self.sender.sent, "queue": self.sender.exchange, "broker": broker})


async def serve(bind: str, step: Step) -> None:
    """Listen, and serve until the process is ended."""
    sender = Sender(step, f"bench-{bind}")
    fill()
    await declare(sender.exchange)
    await sender.prepare()
    server = HTTPServer(
        web.Application([("/send", Send, {"sender": sender}), ("/sent", Sent, {"sender": sender})])
    )
    sock = listener(bind)
    sock.setblocking(False)
    server.add_sockets([sock])
    await asyncio.Event().wait()


def main() -> None:
    """Run the program."""
    parser = arguments()
    parser.add_argument("--step", choices=STEPS, required=True)
    args = parser.parse_args()
    run(args.loop, serve(args.bind, STEPS[args.step]))


if __name__ == "__main__":
    main()
