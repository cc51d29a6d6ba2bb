"""A load generator in Python for what ``headrace load`` does not speak: echo of lines, and over UDP.

    client.py URL -c CONNECTIONS -d SECONDS [--warmup S] [--pid PID] --json -

It is slower than a native client, so that fast servers idle under it: their CPU per request is measured, their
highest rate is not, and its rounds are marked as client-bound. It prints what ``headrace load`` prints.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: Seconds without any answer after which the server counts as hung.
TIMEOUT = 10.0


class Exchange:
    """One connection that sends a message and waits for all of its echo.

    :param sock: connected, any handshake done.
    :param message: the bytes to send, which must come back.
    """

    def __init__(self, sock: Any, message: bytes) -> None:
        self.sock = sock
        self.message = message
        self.got = bytearray()
        self.sent_at = 0
        self.unsent = memoryview(b"")

    def send(self, now: int) -> None:
        """Send the message; what the kernel does not take goes later."""
        self.sent_at = now
        self.got.clear()
        self.unsent = memoryview(self.message)
        self.flush()

    def flush(self) -> None:
        """Send what is left."""
        while self.unsent:
            try:
                count = self.sock.send(self.unsent)
            except BlockingIOError:
                return
            self.unsent = self.unsent[count:]

    def receive(self) -> bool:
        """Read what is there; True when the echo is whole and right."""
        while len(self.got) < len(self.message):
            try:
                data = self.sock.recv(262144)
            except BlockingIOError:
                return False
            if not data:
                raise ConnectionError("the server closed the connection")
            self.got += data
        if self.got != self.message:
            raise ValueError("the echo is not what was sent")
        return True


def connect(url: str) -> tuple[Any, bytes]:
    """A connected socket and the message to send on it."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    size, lines = int(query.get("size", ["1024"])[0]), int(query.get("lines", ["1"])[0])
    message = os.urandom(size // 2).hex().encode().ljust(size, b"x")
    if "lines" in query:
        each = size // lines
        message = b"".join(message[i * each : (i + 1) * each - 1] + b"\n" for i in range(lines))
    address = (parts.hostname, parts.port)
    if parts.scheme == "udp":
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.connect(address)
        return sock, message
    sock = socket.create_connection(address, TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock, message


def cpu_ns(pid: int) -> tuple[int, int]:
    """Nanoseconds of CPU of a process tree, and how many processes there are."""
    total, count, unseen = 0, 0, [pid]
    while unseen:
        current = unseen.pop()
        try:
            tasks = list(Path(f"/proc/{current}/task").iterdir())
        except OSError:
            continue
        count += 1
        for task in tasks:
            try:
                total += int((task / "schedstat").read_text().split()[0])
                unseen.extend(int(child) for child in (task / "children").read_text().split())
            except OSError:
                continue
    return total, count


def percentile(values: list[int], share: float) -> float | None:
    """A percentile of sorted nanoseconds, in microseconds."""
    return values[min(len(values) - 1, int(share * len(values)))] / 1000 if values else None


def drive(exchanges: list[Exchange], seconds: float, latencies: list[int], errors: dict[str, int]) -> None:
    """Keep every connection busy for a while."""
    clock = time.perf_counter_ns
    end = clock() + int(seconds * 1e9)
    selector = selectors.DefaultSelector()
    for exchange in exchanges:
        selector.register(exchange.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, exchange)
        exchange.send(clock())
        if not exchange.unsent:
            selector.modify(exchange.sock, selectors.EVENT_READ, exchange)
    open_ones = set(exchanges)
    while open_ones:
        ready = selector.select(TIMEOUT)
        if not ready:
            errors["timeout"] += len(open_ones)
            return
        for key, events in ready:
            exchange = key.data
            try:
                if events & selectors.EVENT_WRITE:
                    exchange.flush()
                    if not exchange.unsent:
                        selector.modify(exchange.sock, selectors.EVENT_READ, exchange)
                if not exchange.receive():
                    continue
            except ValueError:
                errors["body"] += 1
                selector.unregister(exchange.sock)
                open_ones.discard(exchange)
                continue
            except OSError:
                errors["read"] += 1
                selector.unregister(exchange.sock)
                open_ones.discard(exchange)
                continue
            now = clock()
            latencies.append(now - exchange.sent_at)
            if now >= end:
                # The last answer is waited for, so that none of one round is read in the next.
                selector.unregister(exchange.sock)
                open_ones.discard(exchange)
                continue
            exchange.send(now)
            if exchange.unsent:
                selector.modify(exchange.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, exchange)


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-c", dest="connections", type=int, default=10)
    parser.add_argument("-d", dest="duration", type=float, default=1.0)
    parser.add_argument("--warmup", type=float, default=0.0)
    parser.add_argument("--pid", type=int, default=0)
    parser.add_argument("--json")
    args = parser.parse_args()
    errors = dict.fromkeys(("connect", "read", "write", "timeout", "status", "body", "protocol"), 0)
    try:
        exchanges = [Exchange(*connect(args.url)) for _ in range(args.connections)]
    except OSError as error:
        print(f"cannot connect: {error}", file=sys.stderr)
        return 1
    for exchange in exchanges:
        exchange.sock.setblocking(False)
    if args.warmup:
        drive(exchanges, args.warmup, [], errors)
    latencies: list[int] = []
    before, began, own = cpu_ns(args.pid), time.perf_counter(), time.process_time_ns()
    drive(exchanges, args.duration, latencies, errors)
    took, own = time.perf_counter() - began, time.process_time_ns() - own
    after = cpu_ns(args.pid)
    latencies.sort()
    count = len(latencies)
    used = after[0] - before[0]
    named = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    result = {
        "tool": "headrace bench client",
        "url": args.url,
        "protocol": urlsplit(args.url).scheme,
        "connections": args.connections,
        "duration_s": took,
        "requests": count,
        "requests_per_second": count / took,
        "errors": errors,
        "latency_us": {name: percentile(latencies, share) for name, share in named.items()},
        "client": {"cpu_share": own / (took * 1e9), "bound": own > 0.8 * took * 1e9},
        "server": {
            "pid": args.pid,
            "cpu_ns": used,
            "cpu_ns_per_request": used / count if count else None,
            "processes": after[1],
        },
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
