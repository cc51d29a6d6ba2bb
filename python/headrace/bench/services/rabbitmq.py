"""RabbitMQ: a node of its own with its own epmd, everything in a temporary folder."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from headrace.bench.model import Program, Service
from headrace.bench.process import Processes, accepts, free_port
from headrace.bench.services.databases import APT, as_user, give, path_of

#: The script itself: the one on PATH changes the user and writes under /var.
RABBITMQ = Program("rabbitmq-server", f"{APT} rabbitmq-server", ("/usr/lib/rabbitmq/bin",))
SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"
EPMD = Program("epmd", f"{APT} rabbitmq-server")
#: Seconds: it takes four to ten on an idle machine.
PATIENCE = 90.0


def greets(port: int) -> bool:
    """Whether an AMQP 0-9-1 server answers the protocol header with a method frame."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2.0) as stream:
            stream.sendall(b"AMQP\0\0\x09\x01")
            return stream.recv(1) == b"\x01"
    except OSError:
        return False


def start_rabbitmq(processes: Processes, folder: Path) -> str:
    """Start RabbitMQ."""
    user = as_user("nobody")
    port, epmd_port, distribution_port = free_port(), free_port(), free_port()
    cookie = folder / ".erlang.cookie"
    cookie.write_text(secrets.token_hex(16))
    cookie.chmod(0o400)
    (folder / "enabled_plugins").write_text("[].\n")
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\ndisk_free_limit.absolute = 50MB\n"
    )
    for path in (folder, *folder.iterdir()):
        give(path, user)
    epmd = processes.start("epmd", [*user, path_of(EPMD), "-port", str(epmd_port), "-address", "127.0.0.1"])
    processes.wait_ready(epmd, lambda: accepts(epmd_port))
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        # Makes the script become the virtual machine, so that stopping the process stops the broker.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
    running = processes.start("rabbitmq", [*user, SCRIPT], environment=environment, folder=folder)
    processes.wait_ready(running, lambda: greets(port), PATIENCE)
    return f"amqp://guest:guest@127.0.0.1:{port}/"


SERVICE = Service(
    "rabbitmq", "RabbitMQ, a node of its own", (RABBITMQ, EPMD), start_rabbitmq, "HEADRACE_BENCH_RABBITMQ"
)
