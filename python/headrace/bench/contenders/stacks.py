"""Stacks beside asyncio's: gevent, Twisted, Tornado, curio, Node.js, Go, aiohttp, httptools, redis-server."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.bench.environments import cache_folder
from headrace.bench.model import PROGRAMS, Contender, Environment, Launch, Package, Program

Hosting = Callable[[Launch], Sequence[str]]


def program(script: str, *words: str) -> Hosting:
    """Runs a program of ``programs/`` that is the contender's own."""
    return lambda launch: replace(launch, workload=(script, *words)).program()


def echoes(stack: str) -> dict[str, Hosting]:
    """Echo and line echo on a stack."""
    script = "stacks_echo.py"
    return {"echo": program(script, stack), "readline": program(script, stack, "--lines")}


def node(what: str) -> Hosting:
    """Runs the program for Node.js."""
    return lambda launch: ["node", str(PROGRAMS / "echo.js"), what, launch.endpoint.bind]


GO_PROGRAM = cache_folder() / "bench-go"


def build_go() -> None:
    """Compile the program in Go, unless it is newer than its source."""
    source = PROGRAMS / "go" / "main.go"
    if GO_PROGRAM.exists() and GO_PROGRAM.stat().st_mtime > source.stat().st_mtime:
        return
    GO_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    words = [GO.find() or "go", "build", "-o", str(GO_PROGRAM), str(source)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"go build: {done.stderr.strip()}")


def go(what: str) -> Hosting:
    """Runs the program in Go on one core, as the second source did."""
    return lambda launch: [str(GO_PROGRAM), what, launch.endpoint.bind]


def redis_server(launch: Launch) -> Sequence[str]:
    """redis-server itself, filled with the keys that the scenario reads before it listens where clients look."""
    fill, socket = launch.folder / "keys.lua", launch.folder / "s"
    fill.write_text(
        "for i = 0, ARGV[1] - 1 do redis.call('SET', string.format('key:%012d', i), string.rep('v', 32)) end"
    )
    where = [
        "--port",
        "0",
        "--unixsocket",
        str(socket),
        "--bind",
        launch.endpoint.host,
        "--dir",
        str(launch.folder),
    ]
    start = ["redis-server", *where, "--save", "", "--appendonly", "no", "--daemonize", "no"]
    ask = f"redis-cli -s {socket}"
    script = (
        '"$@" & pid=$!; trap "kill $pid" TERM; '
        f"until {ask} ping >/dev/null 2>&1; do sleep 0.02; done; "
        f"{ask} --eval {fill} , $BENCH_KEYS >/dev/null; {ask} config set port {launch.endpoint.port}; wait $pid"
    )
    return ["sh", "-c", script, "sh", *start]


#: curio is not kept up with the interpreters: it imports up to 3.11.
CURIO = Environment("curio", ("curio==1.6",), python="3.11")
GO = Program("go", "apt-get install golang-go", ("/usr/local/go/bin", str(Path.home() / "go" / "bin")))
NODE = Program("node", "apt-get install nodejs")

CONTENDERS = [
    Contender("gevent", "gevent's StreamServer", echoes("gevent"), (Package("gevent"),)),
    Contender("twisted", "Twisted's epoll reactor", echoes("twisted"), (Package("twisted"),)),
    Contender("tornado", "Tornado's TCPServer and IOStream", echoes("tornado"), (Package("tornado"),)),
    Contender("curio", "curio's sockets", {"echo": echoes("curio")["echo"]}, (Package("curio"),), CURIO),
    Contender(
        "curio-streams", "curio's streams", echoes("curio-streams"), (Package("curio"),), CURIO, minor=True
    ),
    Contender("nodejs", "Node.js, net and http", {"echo": node("echo"), "http": node("http")}, (NODE,)),
    Contender(
        "go",
        "Go's net and net/http, GOMAXPROCS=1",
        {"echo": go("echo"), "http": go("http")},
        (GO,),
        variables={"GOMAXPROCS": "1"},
        prepare=build_go,
    ),
    Contender(
        "gevent-redis",
        "the third source's program on gevent",
        {"redis": program("redis_server.py", "--loop", "gevent")},
        (Package("gevent"), Package("hiredis")),
    ),
    Contender(
        "redis-server",
        "Redis itself",
        {"redis": redis_server},
        (
            Program("redis-server", "apt-get install redis-server"),
            Program("redis-cli", "apt-get install redis-tools"),
        ),
    ),
    *(
        Contender(
            f"{name}-{loop}",
            f"{name} on {loop}",
            {"http": program(script, "--loop", loop)},
            (Package(name), *needs),
            minor=loop == "headrace",
        )
        for name, script in (("httptools", "httptools_server.py"), ("aiohttp", "aiohttp_server.py"))
        for loop, needs in (("asyncio", ()), ("uvloop", (Package("uvloop"),)), ("headrace", ()))
    ),
]
