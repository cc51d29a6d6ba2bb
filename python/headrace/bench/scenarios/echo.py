"""Echo over TCP, Unix sockets, lines and ``sock_*``: source 2's workloads, and more of the loop's."""

from headrace.bench import checks
from headrace.bench.model import Case, Scenario

KB = 1024

#: Echo of messages as they come, under each interface of a loop; other stacks' own programs host ``echo``.
ECHO = {
    "loop.protocol": ("echo.py", "--api", "protocol"),
    "loop.streams": ("echo.py", "--api", "streams"),
    "echo": (),
}

TCP_ECHO = Scenario(
    name="tcp-echo",
    summary="echo of 1, 10 and 100 KB messages over TCP, 10 connections",
    workloads=ECHO,
    cases=tuple(
        Case(
            name=f"{size} KB",
            check=checks.echo(size * KB),
            url=f"tcp://{{bind}}?size={size * KB}",
            connections=10,
        )
        for size in (1, 10, 100)
    ),
    baseline="uvloop",
    unit="message",
)

UNIX_ECHO = Scenario(
    name="unix-echo",
    summary="echo of 1, 10 and 100 KB messages over a Unix socket, 10 connections",
    workloads=ECHO,
    cases=tuple(
        Case(
            name=f"{size} KB",
            check=checks.echo(size * KB),
            url=f"{{bind}}?size={size * KB}",
            connections=10,
        )
        for size in (1, 10, 100)
    ),
    baseline="uvloop",
    transport="unix",
    unit="message",
)

SOCK_ECHO = Scenario(
    name="sock-echo",
    summary="echo of 1 KB messages by loop.sock_recv and loop.sock_sendall, 10 connections",
    workloads={"loop.sock": ("echo.py", "--api", "sock")},
    cases=(Case(name="1 KB", check=checks.echo(KB), url="tcp://{bind}?size=1024", connections=10),),
    baseline="uvloop-sock",
    unit="message",
)
