"""Echo over TCP, Unix sockets, TLS and UDP, by lines and by ``sock_*``: source 2's workloads, and more."""

import subprocess

from headrace.bench import checks
from headrace.bench.environments import cache_folder
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
    summary="echo of 1, 10 and 100 KB messages over TCP, 10 connections; of 1 KB with 300 too",
    workloads=ECHO,
    cases=tuple(
        Case(
            name=f"{size} KB" + (f" x {connections}" if connections != 10 else ""),
            check=checks.echo(size * KB),
            url=f"tcp://{{bind}}?size={size * KB}",
            connections=connections,
        )
        for size, connections in ((1, 10), (10, 10), (100, 10), (1, 300))
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

READLINE = Scenario(
    name="readline",
    summary="five lines of 200 bytes a message, echoed line by line by streams, 10 connections",
    workloads={
        "loop.streams": ("echo.py", "--api", "readline"),
        "readline": (),
    },
    cases=(
        Case(
            name="5 x 200 B",
            check=checks.echo(1000, lines=5),
            url="tcp://{bind}?size=1000&lines=5",
            connections=10,
        ),
    ),
    baseline="uvloop-streams",
    driver="client",
    unit="message",
)

TWO_WRITES = Scenario(
    name="two-writes",
    summary="1 KB answered in two writes of one callback, as servers send head and body, 10 connections",
    workloads={"loop.protocol": ("echo.py", "--api", "two-writes")},
    cases=(Case(name="1 KB", check=checks.echo(KB), url="tcp://{bind}?size=1024", connections=10),),
    baseline="uvloop",
    unit="message",
)

UDP_ECHO = Scenario(
    name="udp-echo",
    summary="echo of 1 KB datagrams, 10 sockets (client in Python: CPU per message is the figure)",
    workloads={"loop.protocol": ("echo.py", "--api", "udp")},
    cases=(Case(name="1 KB", check=checks.datagram_echo(KB), url="udp://{bind}?size=1024", connections=10),),
    baseline="uvloop",
    transport="udp",
    driver="client",
    unit="message",
)

#: Key and self-signed certificate of the TLS echo, made once on this machine.
CERTIFICATE = cache_folder() / "certificate.pem"


def make_certificate() -> None:
    """Make key and certificate with the ``openssl`` command, unless they are there."""
    if CERTIFICATE.exists():
        return
    CERTIFICATE.parent.mkdir(parents=True, exist_ok=True)
    made = CERTIFICATE.with_suffix(".new")
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=localhost"]
    words = ["openssl", *request, "-keyout", str(made), "-out", str(made.with_suffix(".cert"))]
    subprocess.run(words, check=True, capture_output=True)
    with made.open("ab") as file:
        file.write(made.with_suffix(".cert").read_bytes())
    made.with_suffix(".cert").unlink()
    made.rename(CERTIFICATE)


TLS_ECHO = Scenario(
    name="tls-echo",
    summary="echo of 1 and 100 KB messages over TLS, 10 connections",
    workloads={
        "loop.protocol": ("echo.py", "--api", "protocol", "--certificate", str(CERTIFICATE)),
        "loop.streams": ("echo.py", "--api", "streams", "--certificate", str(CERTIFICATE)),
    },
    cases=tuple(
        Case(
            name=f"{size} KB",
            check=checks.echo(size * KB, tls=True),
            url=f"tls://{{bind}}?size={size * KB}",
            connections=10,
        )
        for size in (1, 100)
    ),
    baseline="uvloop",
    prepare=make_certificate,
    unit="message",
)
