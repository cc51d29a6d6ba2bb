"""Event loops: each runs the same programs, by protocols, streams and ``sock_*``."""

from collections.abc import Callable, Sequence

from headrace.bench.model import Contender, Environment, Launch, Package


def on_loop(name: str) -> Callable[[Launch], Sequence[str]]:
    """Runs the workload's program on the loop named."""
    return lambda launch: launch.program("--loop", name)


#: uvloop 0.23 writes head and body in two system calls, 0.22 in one: both are measured.
UVLOOP_022 = Environment("uvloop-0.22", ("uvloop==0.22.1", "httptools", "hiredis", "tornado"))

#: What a loop's contenders are called, their loop, what they need, and where.
LOOPS: tuple[tuple[str, str, tuple[Package, ...], Environment | None], ...] = (
    ("asyncio", "asyncio", (), None),
    ("uvloop", "uvloop", (Package("uvloop"),), None),
    ("uvloop-0.22", "uvloop", (Package("uvloop"),), UVLOOP_022),
    ("headrace", "headrace", (Package("headrace"),), None),
)

#: For each way to program a loop: the suffix of the contender's name, its interfaces, and its words.
WAYS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("", ("loop.protocol", "loop.program"), "protocols"),
    ("-streams", ("loop.streams",), "streams"),
    ("-sock", ("loop.sock",), "sock_recv and sock_sendall"),
)

CONTENDERS = [
    Contender(
        name=name + suffix,
        summary=f"{name}, {words}",
        hosts={interface: on_loop(loop) for interface in interfaces},
        needs=needs,
        environment=environment,
        minor=environment is not None and suffix != "",
    )
    for name, loop, needs, environment in LOOPS
    for suffix, interfaces, words in WAYS
]

#: The other state of glibc's allocator: blocks of a large read are mapped and unmapped for each read.
CONTENDERS.append(
    Contender(
        name="asyncio-mmap",
        summary="asyncio, protocols, in the allocator state in which each large read maps memory anew",
        hosts={"loop.protocol": on_loop("asyncio")},
        variables={"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"},
        only=("tcp-echo",),
        minor=True,
    )
)

#: Loops and transports that are younger than uvloop: each with its loop and what it needs.
YOUNG: tuple[tuple[str, str, tuple[Package, ...]], ...] = (
    ("aiofastnet", "aiofastnet-asyncio", (Package("aiofastnet"),)),
    ("aiofastnet-uvloop", "aiofastnet-uvloop", (Package("aiofastnet"), Package("uvloop"))),
    ("rsloop", "rsloop", (Package("rsloop"),)),
)

CONTENDERS += [
    Contender(
        name=name + suffix,
        summary=f"{loop}, {words}",
        hosts={interface: on_loop(loop) for interface in interfaces},
        needs=needs,
        only=("tcp-echo", "tls-echo"),
        minor=suffix != "" or name == "aiofastnet-uvloop",
    )
    for name, loop, needs in YOUNG
    for suffix, interfaces, words in WAYS[:2]
]
