"""What the bench is about: scenarios, contenders, services, and where a server listens.

A *scenario* is a workload with a check of the right answer. It offers its program under one or more
*interfaces* ("asgi", "wsgi", "loop.streams", ...). A *contender* is a stack that hosts some of these interfaces. So
neither names the other: a new contender is measured on every scenario that it can host, and the reverse.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

#: The folder of the small servers and applications that contenders run. They import nothing of Headrace's own
#: bench, because some run in environments and interpreters where Headrace is not installed.
PROGRAMS = Path(__file__).with_name("programs")


class WrongAnswer(Exception):
    """A server answered what it should not have; the text says what was wanted and what came."""


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens: a port on loopback or a Unix socket.

    :param port: TCP or UDP port; 0 where a path is used.
    :param path: path of the Unix socket; empty where a port is used.
    :param host: address of the port.
    """

    port: int = 0
    path: str = ""
    host: str = "127.0.0.1"

    @property
    def bind(self) -> str:
        """The endpoint as programs take it: ``HOST:PORT`` or ``unix:PATH``."""
        return f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Launch:
    """All that a contender needs to know to start.

    :param python: interpreter of the contender's environment.
    :param endpoint: where it has to listen.
    :param workload: the scenario's words for the interface that is hosted: a program and its options, or
        ``MODULE:ATTR`` of an application.
    :param folder: a temporary folder of its own.
    :param workers: how many worker processes the scenario asks for.
    :param services: URLs of the services that the scenario needs, by name.
    """

    python: str
    endpoint: Endpoint
    workload: Sequence[str]
    folder: Path
    workers: int = 1
    services: Mapping[str, str] = field(default_factory=dict)

    @property
    def app(self) -> str:
        """``MODULE:ATTR`` of the application."""
        return self.workload[0]

    def program(self, *more: str) -> list[str]:
        """The command line of a Python program in ``programs/``, told where to listen."""
        script, *options = self.workload
        return [self.python, str(PROGRAMS / script), *options, "--bind", self.endpoint.bind, *more]


@dataclass(frozen=True)
class Package:
    """A Python distribution that a contender needs.

    :param name: its name on the package index.
    :param spec: what to install when it is missing; by default the name.
    """

    name: str
    spec: str = ""

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f"pip install '{self.spec or self.name}'"

    def version(self) -> str | None:
        """The version that is installed beside Headrace, or None."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return None


@dataclass(frozen=True)
class Program:
    """A program of the system that a contender or a service needs.

    :param name: the command.
    :param install: the command that installs it.
    :param folders: where to look beside ``PATH``.
    """

    name: str
    install: str
    folders: tuple[str, ...] = ()

    def find(self) -> str | None:
        """Its path, or None."""
        return shutil.which(self.name) or shutil.which(self.name, path=":".join(self.folders))

    def version(self) -> str | None:
        """Its path: present or not is all that is asked here."""
        return self.find()


@dataclass(frozen=True)
class Environment:
    """A virtual environment for rivals that cannot live beside the others.

    :param name: its folder under the cache.
    :param packages: what is installed into it.
    :param python: ``"3.11"`` when another interpreter than the running one is needed.
    """

    name: str
    packages: tuple[str, ...]
    python: str = ""


@dataclass(frozen=True)
class Contender:
    """A stack that can host workloads.

    :param name: what the user calls it.
    :param summary: one line for ``bench list``.
    :param hosts: for each interface that it can host, what makes its command line.
    :param needs: packages and programs that must be there.
    :param environment: its own environment; None for the one that Headrace is installed in.
    :param variables: more environment variables for its process.
    :param prepare: run once before the first start (to compile, say); its text of an exception is shown.
    :param only: scenarios that it is meant for; empty for all that it can host.
    :param services: names of the services that it needs beside its scenario's.
    :param minor: a variant that ``bench run all`` leaves out unless it is named.
    """

    name: str
    summary: str
    hosts: Mapping[str, Callable[[Launch], Sequence[str]]]
    needs: tuple[Package | Program, ...] = ()
    environment: Environment | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] | None = None
    only: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    minor: bool = False


class Check(Protocol):
    """Asks a running server and raises ``WrongAnswer`` unless the answer is right to the last byte."""

    def __call__(self, endpoint: Endpoint) -> None:
        """Check the server at ``endpoint``."""


@dataclass(frozen=True)
class Case:
    """One size, or one rung, of a scenario.

    :param name: short label, such as ``1 KB``.
    :param check: the check of the right answer.
    :param url: what the load generator is given; ``{bind}``, ``{host}``, ``{port}``, ``{path}`` are filled in.
    :param connections: open connections.
    :param options: more options of the load generator.
    :param variables: environment variables that tell the server about this case.
    :param body: what is posted, when it is not only so many bytes of text.
    :param folder: where the contender is started, when not in a temporary folder: a user's application.
    """

    name: str
    check: Check
    url: str
    connections: int
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    folder: Path | None = None


@dataclass(frozen=True)
class Sweep:
    """A parameter that is varied to see where the knee lies and what fails beyond it.

    :param parameter: what it is called.
    :param values: its values, rising.
    :param variable: environment variable that tells the server; empty for the number of connections.
    :param contenders: those that the parameter means something for; empty for all.
    """

    parameter: str
    values: tuple[int, ...]
    variable: str = ""
    contenders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A workload with a check of the right answer.

    :param name: what the user calls it.
    :param summary: one line for ``bench list``.
    :param workloads: the program under each interface that it is offered for.
    :param cases: its sizes or rungs, at least one.
    :param baseline: the contender that the others are compared with unless the user names one.
    :param transport: ``tcp``, ``udp``, ``unix``, or ``none`` for a program that times itself.
    :param driver: who makes the load: ``load`` (``headrace load``), ``client`` (``programs/client.py``: lines, UDP
        echo), or ``self`` (the contender's program prints its own figures).
    :param workers: worker processes of each contender.
    :param services: names of the services it needs.
    :param sweeps: parameters that ``bench sweep`` varies.
    :param ladder: contenders are the rungs of a ladder: shown in their order, each against the one below.
    :param pinned: whether server and client have a core each; not where services are the larger part of the work.
    :param prepare: run once before the first contender starts, to make a file that the workload needs, say.
    :param unit: what one request is called.
    :param needs: packages that the workload itself needs beside its contender's.
    :param least_seconds: seconds of a round at least, where the bench chooses: many of its slowest latencies.
    """

    name: str
    summary: str
    workloads: Mapping[str, Sequence[str]]
    cases: tuple[Case, ...]
    baseline: str
    transport: str = "tcp"
    driver: str = "load"
    workers: int = 1
    services: tuple[str, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    pinned: bool = True
    ladder: bool = False
    prepare: Callable[[], None] | None = None
    unit: str = "request"
    needs: tuple[Package, ...] = ()
    least_seconds: float = 0.0

    def interface_of(self, contender: Contender) -> str | None:
        """The first interface of this scenario that the contender hosts."""
        if contender.only and self.name not in contender.only:
            return None
        return next((interface for interface in self.workloads if interface in contender.hosts), None)


@dataclass(frozen=True)
class Service:
    """A real server that scenarios need, started on loopback in a temporary folder.

    :param name: what scenarios call it.
    :param summary: one line for ``bench services check``.
    :param needs: the programs it is started with.
    :param start: starts it in a folder and gives its URL; what it starts goes through the ``Processes`` given.
    :param variable: environment variable with the URL of a server of the user's own, used in its place.
    :param setup: makes what the service needs and no package has; called by ``bench setup``.
    :param setup_words: what that installs, told before it is done.
    """

    name: str
    summary: str
    needs: tuple[Program, ...]
    start: Callable[[Any, Path], str]
    variable: str
    setup: Callable[[], None] | None = None
    setup_words: str = ""
