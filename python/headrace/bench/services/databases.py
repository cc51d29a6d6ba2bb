"""PostgreSQL and MariaDB, each in a fresh folder with nothing durable: it is the client's side that is measured."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
from pathlib import Path

from headrace.bench.model import Program, Service
from headrace.bench.process import Processes, StartFailure, free_port

#: More connections than any scenario opens but the one that is meant to run out of them.
CONNECTIONS = 300
#: Seconds that a server may take to start on a busy machine.
PATIENCE = 60.0

APT = "apt-get install --no-install-recommends"
POSTGRES_FOLDERS = tuple(sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True))
INITDB = Program("initdb", f"{APT} postgresql", POSTGRES_FOLDERS)
POSTGRES = Program("postgres", f"{APT} postgresql", POSTGRES_FOLDERS)
PG_ISREADY = Program("pg_isready", f"{APT} postgresql", POSTGRES_FOLDERS)
MARIADB_INSTALL = Program("mariadb-install-db", f"{APT} mariadb-server")
MARIADB = Program("mariadbd", f"{APT} mariadb-server", ("/usr/sbin",))
MARIADB_ADMIN = Program("mariadb-admin", f"{APT} mariadb-server")


def path_of(program: Program) -> str:
    """The path of a program that must be there."""
    found = program.find()
    if found is None:
        raise StartFailure(f"{program.name} is missing: {program.install}")
    return found


def as_user(*names: str) -> list[str]:
    """The words that run a command as the first of these users that exists; none unless this is root."""
    if os.geteuid() != 0:
        return []
    for name in names:
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return ["setpriv", f"--reuid={name}", f"--regid={pwd.getpwnam(name).pw_gid}", "--init-groups"]
    raise StartFailure(f"none of the users {', '.join(names)} exists")


def give(folder: Path, words: list[str]) -> None:
    """Give a folder to the user that ``as_user`` chose."""
    if words:
        shutil.chown(folder, words[1].removeprefix("--reuid="))


def done(words: list[str], folder: Path) -> None:
    """Run a command to its end.

    :raises StartFailure: with its output, when it fails.
    """
    found = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if found.returncode:
        raise StartFailure(f"{Path(words[0]).name} failed", (found.stdout + found.stderr).strip())


def succeeds(*words: str) -> bool:
    """Whether a command exits with 0."""
    return subprocess.run(words, capture_output=True, check=False, timeout=PATIENCE).returncode == 0


def start_postgresql(processes: Processes, folder: Path) -> str:
    """Start PostgreSQL; it refuses to run as root."""
    user = as_user("postgres", "nobody")
    give(folder, user)
    data, port = str(folder / "data"), free_port()
    tongue = ["-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    done([*user, path_of(INITDB), "-D", data, *tongue], folder)
    settings = ("fsync=off", "synchronous_commit=off", f"max_connections={CONNECTIONS}")
    options = [word for setting in settings for word in ("-c", setting)]
    where = ["-D", data, "-p", str(port), "-k", str(folder), "-h", "127.0.0.1"]
    # INT is its fast shutdown; TERM waits for clients.
    running = processes.start(
        "postgresql", [*user, path_of(POSTGRES), *where, *options], folder=folder, stop_signal=2
    )
    ready = path_of(PG_ISREADY)
    processes.wait_ready(running, lambda: succeeds(ready, "-q", "-h", "127.0.0.1", "-p", str(port)), PATIENCE)
    return f"postgresql://bench@127.0.0.1:{port}/postgres"


def start_mariadb(processes: Processes, folder: Path) -> str:
    """Start MariaDB with a root user that needs no password."""
    user = as_user("mysql", "nobody")
    give(folder, user)
    data, socket, port = folder / "data", folder / "s", free_port()
    authentication = ["--auth-root-authentication-method=normal", "--skip-test-db"]
    name = user[1].removeprefix("--reuid=") if user else pwd.getpwuid(os.getuid()).pw_name
    done(
        [path_of(MARIADB_INSTALL), "--no-defaults", f"--user={name}", f"--datadir={data}", *authentication],
        folder,
    )
    words = [
        *(path_of(MARIADB), "--no-defaults", f"--user={name}", f"--datadir={data}", f"--socket={socket}"),
        *("--bind-address=127.0.0.1", f"--port={port}", f"--pid-file={folder / 'pid'}", "--skip-log-bin"),
        *("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M", "--skip-name-resolve"),
        f"--max-connections={CONNECTIONS}",
    ]
    running = processes.start("mariadb", words, folder=folder)
    admin = path_of(MARIADB_ADMIN)
    processes.wait_ready(
        running, lambda: succeeds(admin, "--no-defaults", "-uroot", "-S", str(socket), "ping"), PATIENCE
    )
    return f"mysql://root@127.0.0.1:{port}/test_bench"


SERVICES = [
    Service(
        "postgresql",
        "PostgreSQL, nothing durable, 300 connections",
        (INITDB, POSTGRES, PG_ISREADY),
        start_postgresql,
        "HEADRACE_BENCH_POSTGRESQL",
    ),
    Service(
        "mariadb",
        "MariaDB, nothing durable, 300 connections",
        (MARIADB_INSTALL, MARIADB, MARIADB_ADMIN),
        start_mariadb,
        "HEADRACE_BENCH_MARIADB",
    ),
]
