"""Made-up water levels: a database of them, and a file of them of any length.

`sqlite3` blocks, so the connection lives in a thread of its own and the event loop only waits for answers.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

STATIONS = ("upper weir", "headrace", "wheel pit", "tailrace")

#: Rows in the database: a week of hourly readings at each station.
HOURS = 7 * 24

#: Bytes of CSV in one block of the download.
BLOCK = 1 << 16

Result = TypeVar("Result")


def level(station: int, hour: float) -> float:
    """The water level at a station in centimetres: a daily tide of the mill's sluice over a slow flood."""
    return round(
        80 - 12 * station + 9 * math.sin(hour / 24 * math.tau) + 5 * math.sin(hour / 61 + station), 1
    )


def csv_blocks(size: int) -> Iterator[bytes]:
    """CSV text of `size` bytes or a line more, in blocks."""
    block = bytearray(b"minute,station,level_cm\n")
    sent = 0
    minute = 0
    while sent + len(block) < size:
        for station, name in enumerate(STATIONS):
            block += f"{minute},{name},{level(station, minute / 60)}\n".encode()
        minute += 1
        if len(block) >= BLOCK:
            sent += len(block)
            yield bytes(block)
            block.clear()
    yield bytes(block)


class Readings:
    """An SQLite database in a temporary folder, from `open` to `close`."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._database: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Create the database and fill it."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        await self._in_thread(self._create)

    async def rows(self, after: int, limit: int) -> list[dict[str, Any]]:
        """The first `limit` rows whose id is above `after`."""
        return await self._in_thread(lambda: self._select(after, limit))

    async def close(self) -> None:
        """Remove the database."""
        await self._in_thread(self._remove)
        if self._thread:
            self._thread.shutdown()

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        if self._thread is None:
            raise RuntimeError("the server has not run the application's lifespan startup")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _create(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-demo-")
        self._database = sqlite3.connect(Path(self._folder.name, "readings.sqlite"))
        self._database.row_factory = sqlite3.Row
        with self._database as transaction:
            transaction.execute(
                "CREATE TABLE readings (id INTEGER PRIMARY KEY, hour INTEGER, station TEXT, level_cm REAL)"
            )
            transaction.executemany(
                "INSERT INTO readings (hour, station, level_cm) VALUES (?, ?, ?)",
                ((hour, name, level(i, hour)) for hour in range(HOURS) for i, name in enumerate(STATIONS)),
            )

    def _select(self, after: int, limit: int) -> list[dict[str, Any]]:
        assert self._database is not None  # _in_thread ran _create first
        query = "SELECT id, hour, station, level_cm FROM readings WHERE id > ? ORDER BY id LIMIT ?"
        return [dict(row) for row in self._database.execute(query, (after, limit))]

    def _remove(self) -> None:
        if self._database:
            self._database.close()
        if self._folder:
            self._folder.cleanup()
