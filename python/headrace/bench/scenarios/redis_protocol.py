"""Source 3: a Redis-protocol server in Python, against redis-server itself.

The source read a key space of 10^8 that nobody had filled, so that every reply was nil: here keys that exist and keys
that do not are cases of their own.
"""

from headrace.bench import checks
from headrace.bench.model import Case, Package, Scenario

VALUE = b"v" * 32
KEYS = 10_000

GET = checks.redis_commands(
    ((b"GET", b"key:%012d" % 7), b"$32\r\n" + VALUE + b"\r\n"),
    ((b"GET", b"key:%012d" % (KEYS - 1)), b"$32\r\n" + VALUE + b"\r\n"),
    ((b"GET", b"key:%012d" % KEYS), b"$-1\r\n"),
)
MISSING = checks.redis_commands(((b"GET", b"key:%012d" % 7), b"$-1\r\n"))
SET = checks.redis_commands(
    ((b"SET", b"key:%012d" % KEYS, VALUE), b"+OK\r\n"),
    ((b"GET", b"key:%012d" % KEYS), b"$32\r\n" + VALUE + b"\r\n"),
)

#: Tells servers how many keys to hold from the start.
FILLED = {"BENCH_KEYS": str(KEYS)}
EMPTY = {"BENCH_KEYS": "0"}
URL = f"redis://{{bind}}?get&keys={KEYS}&size=32"

REDIS = Scenario(
    name="redis",
    summary="GET and SET by the Redis protocol, 50 connections, one and sixteen in a piece",
    workloads={"loop.streams": ("redis_server.py",), "redis": ()},
    cases=(
        Case("GET existing", GET, URL, 50, variables=FILLED),
        Case("GET missing", MISSING, URL, 50, variables=EMPTY),
        Case("SET", SET, URL.replace("?get", "?set"), 50, variables=FILLED),
        Case("GET existing pipelined", GET, URL, 50, ("--pipeline", "16"), FILLED),
    ),
    baseline="uvloop-streams",
    needs=(Package("hiredis"),),
    unit="command",
)
