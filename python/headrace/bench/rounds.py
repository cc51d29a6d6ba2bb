"""Measures one scenario: contenders interleaved in shuffled rounds, fresh processes in each block of rounds."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headrace.bench import load, machine
from headrace.bench.cpu import CpuTime, cpu_time, memory_kb
from headrace.bench.environments import python_of, version_of
from headrace.bench.model import PROGRAMS, Case, Contender, Endpoint, Launch, Scenario, WrongAnswer
from headrace.bench.process import Processes, Running, StartFailure, accepts, free_port
from headrace.bench.statistics import steady

#: A round is noisy when the hypervisor took more than this share of it,
STEAL_LIMIT = 0.02
#: or when others used more than this share of the server's core. (That the server waited for its core says less:
#: its own threads and processes wait for each other there.)
FOREIGN_LIMIT = 0.08
#: A contender that uses more than this share of a core while nobody asks anything of it is stopped while others are
#: measured: it would take the core that they share.
IDLE_LIMIT = 0.05
#: How long it is left alone to find that out: the end of its last connections first, in seconds; and how often it is
#: looked at, since a server may have a queue of requests to work off whose clients are gone.
IDLE_PAUSE, IDLE_LOOK, IDLE_LOOKS = 0.05, 0.15, 8
#: Seconds that a server may take to work off what a load left behind, and between looks at it.
SETTLE, SETTLE_LOOK = 3.0, 0.05
#: A busy client is the limit only where the server was not: below this share of its core.
SERVER_BUSY = 0.95
#: With fewer rounds no verdict is given: an interval of two values says nothing.
FEWEST_ROUNDS = 3
#: What the second half of the A/A pair is called.
AGAIN = " (again)"

T = TypeVar("T")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """How much is measured.

    :param rounds: measurements of each contender and case.
    :param seconds: seconds of a measurement.
    :param restart_every: rounds after which all processes are started anew.
    :param warmup_step: seconds of a warm-up step.
    :param warmup_limit: seconds after which warming up is given up.
    :param seed: seed of the order.
    """

    rounds: int = 8
    seconds: float = 1.0
    restart_every: int = 4
    warmup_step: float = 0.3
    warmup_limit: float = 3.0
    seed: int = 1


@dataclass
class Entry:
    """One contender in one case, and what was found of it."""

    label: str
    contender: Contender
    status: str = "measured"
    reason: str = ""
    log: str = ""
    rounds: list[dict[str, Any]] = field(default_factory=list)
    warmups: list[dict[str, Any]] = field(default_factory=list)
    memory_kb: int = 0
    #: Share of a core that it used while idle.
    idle_share: float = 0.0
    command: list[str] = field(default_factory=list)

    def fail(self, reason: str, log: str = "") -> None:
        """Take it out of the running; the others go on."""
        self.status, self.reason, self.log = "failed", reason, log

    def json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "name": self.label,
            "version": version_of(self.contender),
            "status": self.status,
            "reason": self.reason,
            "log": self.log,
            "command": self.command,
            "memory_kb": self.memory_kb,
            "idle_share": self.idle_share,
            "warmups": self.warmups,
            "rounds": self.rounds,
        }


class Bench:
    """Runs scenarios.

    :param processes: what starts and stops processes.
    :param settings: how much is measured.
    :param services: URLs of running services by name.
    :param progress: told what goes on, a line at a time.
    """

    def __init__(
        self, processes: Processes, settings: Settings, services: Mapping[str, str], progress: Progress
    ) -> None:
        self._processes = processes
        self.settings = settings
        self._services = services
        self.progress = progress
        self._cores = machine.Cores()
        self._loads = processes.folder("loads")
        # Not for secrets: the order can be repeated by its seed.
        self._random = random.Random(settings.seed)

    def case(
        self, scenario: Scenario, case: Case, contenders: Sequence[Contender], baseline: str
    ) -> list[dict[str, Any]]:
        """Measure all contenders on one case, with the baseline twice where verdicts are given: the A/A pair."""
        self._cores = machine.cores() if scenario.pinned else machine.Cores()
        entries = [Entry(contender.name, contender) for contender in contenders]
        settings = self.settings
        if settings.rounds >= FEWEST_ROUNDS:
            entries += [Entry(c.name + AGAIN, c) for c in contenders if c.name == baseline]
        done = 0
        block = 0
        while done < settings.rounds and any(entry.status == "measured" for entry in entries):
            count = min(settings.restart_every, settings.rounds - done)
            self._block(scenario, case, entries, block, range(done, done + count))
            done += count
            block += 1
        return [entry.json() for entry in entries]

    def _block(
        self, scenario: Scenario, case: Case, entries: list[Entry], block: int, numbers: range
    ) -> None:
        """Start everything, measure some rounds, stop everything."""
        live: dict[str, tuple[Entry, Running | None, Endpoint]] = {}
        try:
            for entry in self._shuffled([e for e in entries if e.status == "measured"]):
                self.progress(f"{scenario.name} {case.name}: starting {entry.label}")
                try:
                    live[entry.label] = (entry, *self.launch(scenario, case, entry))
                    self.warm_up(scenario, case, block, *live[entry.label])
                    self._look_at_idle(*live[entry.label][:2])
                except StartFailure as error:
                    entry.fail(str(error), error.log)
                except (WrongAnswer, load.LoadFailure, OSError) as error:
                    log = self._log_of(live.get(entry.label))
                    entry.fail(f"{'wrong answer: ' if isinstance(error, WrongAnswer) else ''}{error}", log)
            for number in numbers:
                for entry, running, endpoint in self._shuffled(list(live.values())):
                    if entry.status != "measured":
                        continue
                    self.progress(f"{scenario.name} {case.name}: round {number + 1}, {entry.label}")
                    self._round(scenario, case, block, number, entry, running, endpoint)
            for entry, running, endpoint in live.values():
                if entry.status == "measured" and running is not None:
                    self._processes.resume(running)
                    entry.memory_kb = max(entry.memory_kb, memory_kb(running.pid))
                    try:
                        case.check(endpoint)
                    except (WrongAnswer, OSError) as error:
                        entry.fail(f"wrong answer after the load: {error}", running.log())
        finally:
            for _entry, running, _endpoint in live.values():
                if running is not None:
                    self._processes.stop(running)

    def launch(self, scenario: Scenario, case: Case, entry: Entry) -> tuple[Running | None, Endpoint]:
        """Start a contender, wait until it answers, and check its answer in full.

        :raises StartFailure: when it does not start; ``WrongAnswer`` when it answers wrongly.
        """
        contender = entry.contender
        folder = self._processes.folder(contender.name)
        endpoint = _endpoint(scenario.transport, folder)
        entry.command = self._command(scenario, contender, endpoint, folder)
        if scenario.driver == "self":
            return None, endpoint
        running = self._processes.start(
            contender.name,
            entry.command,
            variables=self._variables(case, contender),
            folder=case.folder or folder,
            cores=self._cores.server,
        )
        try:
            ready = (
                (lambda: _answers(endpoint))
                if scenario.transport == "udp"
                else lambda: accepts(endpoint.port, endpoint.path)
            )
            self._processes.wait_ready(running, ready)
            try:
                case.check(endpoint)
            except OSError as error:
                raise WrongAnswer(f"{type(error).__name__}: {error}") from None
        except WrongAnswer as error:
            self._processes.stop(running)
            raise StartFailure(f"wrong answer: {error}", running.log()) from None
        except StartFailure:
            self._processes.stop(running)
            raise
        return running, endpoint

    def _command(
        self, scenario: Scenario, contender: Contender, endpoint: Endpoint, folder: Path
    ) -> list[str]:
        """The command line of a contender."""
        interface = scenario.interface_of(contender)
        if interface is None:
            raise StartFailure(f"{contender.name} cannot host {scenario.name}")
        if contender.prepare is not None:
            try:
                contender.prepare()
            except Exception as error:
                raise StartFailure(f"cannot prepare {contender.name}: {error}") from None
        launch = Launch(
            python=python_of(contender.environment),
            endpoint=endpoint,
            workload=scenario.workloads[interface],
            folder=folder,
            workers=scenario.workers,
            services=self._services,
        )
        return list(contender.hosts[interface](launch))

    def _variables(self, case: Case, contender: Contender) -> dict[str, str]:
        """The environment variables of a contender's process."""
        urls = {f"BENCH_{name.upper()}_URL": url for name, url in self._services.items()}
        own = [str(case.folder)] if case.folder else []
        theirs = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and case.folder]
        apps = {"PYTHONPATH": os.pathsep.join([*own, *theirs, str(PROGRAMS / "apps")])}
        return {**apps, **urls, **case.variables, **contender.variables}

    def _look_at_idle(self, entry: Entry, running: Running | None) -> None:
        """Find out whether a contender leaves the core alone while idle; suspend one that does not."""
        if running is None:
            return
        time.sleep(IDLE_PAUSE)
        for _ in range(IDLE_LOOKS):
            before = cpu_time(running.pid)
            time.sleep(IDLE_LOOK)
            share = (cpu_time(running.pid) - before).ns / (IDLE_LOOK * 1e9)
            if share <= IDLE_LIMIT:
                break
        entry.idle_share = max(entry.idle_share, share)
        if share > IDLE_LIMIT:
            self._processes.suspend(running)

    def stop(self, running: Running) -> None:
        """Stop a contender's process."""
        self._processes.stop(running)

    def warm_up(
        self,
        scenario: Scenario,
        case: Case,
        block: int,
        entry: Entry,
        running: Running | None,
        endpoint: Endpoint,
    ) -> None:
        """Load a fresh process until its CPU per request is steady, and record whether it became so."""
        if running is None:
            return
        steps: list[float] = []
        limit = self.settings.warmup_limit
        while not steady(steps) and len(steps) * self.settings.warmup_step < limit:
            result = self.measure(scenario, case, entry, running, endpoint, self.settings.warmup_step)
            steps.append(_cpu_per_request(result["load"]) or 0.0)
        entry.warmups.append({"block": block, "steady": steady(steps), "cpu_ns_per_request": steps})

    def _round(
        self,
        scenario: Scenario,
        case: Case,
        block: int,
        number: int,
        entry: Entry,
        running: Running | None,
        endpoint: Endpoint,
    ) -> None:
        """One measurement, kept with its marks."""
        suspended = running if running is not None and running.suspended else None
        if suspended is not None:
            self._processes.resume(suspended)
        try:
            found = self.measure(scenario, case, entry, running, endpoint, self.settings.seconds)
        except load.LoadFailure as error:
            entry.fail(str(error), self._log_of((entry, running, endpoint)))
            return
        finally:
            if suspended is not None:
                self._processes.suspend(suspended)
        entry.rounds.append({"block": block, "round": number, **found})
        if running is not None and not running.alive:
            entry.fail(f"died under load, exit status {running.process.returncode}", running.log())

    def measure(
        self,
        scenario: Scenario,
        case: Case,
        entry: Entry,
        running: Running | None,
        endpoint: Endpoint,
        seconds: float,
        *,
        connections: int | None = None,
        rate: float | None = None,
    ) -> dict[str, Any]:
        """Load a server once.

        :param running: the server's process; None for a program that times itself.
        :param connections: in place of the case's.
        :param rate: requests a second, open loop; None for closed loop.
        :returns: the load generator's result and what the machine did meanwhile.
        """
        pid = running.pid if running is not None else 0
        before, machine_before, began = (
            cpu_time(pid) if pid else CpuTime(),
            machine.disturbance(self._cores.server),
            time.monotonic(),
        )
        services = self._services_cpu()
        warmup = min(0.1, seconds / 5)
        if running is None:
            command = [*entry.command, "--seconds", f"{seconds:g}"]
            client = machine.Cores(self._cores.server, self._cores.server)
            variables_case = self._variables(case, entry.contender)
            result = load.run_self(self._processes, command, seconds, client, self._loads, variables_case)
        else:
            command = load.words(
                scenario,
                case,
                endpoint,
                pid,
                seconds,
                self._loads,
                warmup=warmup,
                connections=connections,
                rate=rate,
            )
            result = load.run(self._processes, command, seconds, self._cores, self._loads)
        elapsed = time.monotonic() - began
        used = cpu_time(pid) - before if pid else CpuTime()
        # Of a program that times itself, its start too: it is no neighbour's.
        used_ns = used.ns if pid else result["server"]["process_cpu_ns"]
        disturbed = machine.disturbance(self._cores.server).since(machine_before, elapsed, used_ns)
        if pid and scenario.least_seconds and entry.idle_share <= IDLE_LIMIT:
            _settle(pid)
        wait_share = used.wait_ns / max(used.ns + used.wait_ns, 1)
        found = {
            "cpu_ns_per_request": _cpu_per_request(result),
            "requests_per_second": result["requests_per_second"],
            "errors": sum(result["errors"].values()),
            "wait_share": wait_share,
            "system_share": used.system_share,
            "services_cpu_ns": self._services_share(services, result["requests"], seconds, warmup),
            **disturbed,
        }
        return {**found, "flags": flags(found, result), "load": result}

    def _services_cpu(self) -> dict[str, CpuTime]:
        """The CPU time of the services that the bench runs itself."""
        known = {name: self._processes.named(name) for name in self._services}
        return {name: cpu_time(each.pid) for name, each in known.items() if each is not None}

    def _services_share(
        self, before: Mapping[str, CpuTime], requests: int, seconds: float, warmup: float
    ) -> dict[str, float]:
        """CPU nanoseconds of each service for each request: about, since the warm-up's part is taken by its length."""
        if not requests:
            return {}
        counted = requests * (seconds + warmup) / seconds
        now = self._services_cpu()
        return {name: (now[name] - before[name]).ns / counted for name in before if name in now}

    def _shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in another order."""
        return self._random.sample(list(items), len(items))

    @staticmethod
    def _log_of(live: tuple[Entry, Running | None, Endpoint] | None) -> str:
        """The end of a live contender's log."""
        return live[1].log() if live is not None and live[1] is not None else ""


def _settle(pid: int) -> None:
    """Wait until a server has worked off the requests whose clients are gone, or for ``SETTLE`` seconds.

    They would take the cores from whoever is measured next, and its own next round would begin behind them.
    """
    end = time.monotonic() + SETTLE
    while time.monotonic() < end:
        before = cpu_time(pid)
        time.sleep(SETTLE_LOOK)
        if (cpu_time(pid) - before).ns <= IDLE_LIMIT * SETTLE_LOOK * 1e9:
            return


def flags(found: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    """The marks of a round: what speaks against believing it.

    :param found: the round's figures.
    :param result: the load generator's own result.
    """
    marks = []
    if found["errors"]:
        marks.append("errors")
    if (found["steal"] or 0) > STEAL_LIMIT or (found["foreign"] or 0) > FOREIGN_LIMIT:
        marks.append("noisy")
    server = result.get("server") or {}
    seconds = result.get("duration_s") or 0
    busy = (server.get("cpu_ns") or 0) / (seconds * 1e9) if seconds else 0.0
    if (result.get("client") or {}).get("bound") and busy < SERVER_BUSY:
        marks.append("client-bound")
    return marks


def _cpu_per_request(result: Mapping[str, Any]) -> float | None:
    """The server's CPU nanoseconds per good answer."""
    value: float | None = (result.get("server") or {}).get("cpu_ns_per_request")
    return value


def _endpoint(transport: str, folder: Path) -> Endpoint:
    """A free place to listen."""
    if transport == "unix":
        return Endpoint(path=str(folder / "s"))
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    return Endpoint(port=free_port(kind))


def _answers(endpoint: Endpoint) -> bool:
    """Whether a server without connections answers yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(0.2)
        probe.sendto(b"?", (endpoint.host, endpoint.port))
        try:
            return bool(probe.recv(16))
        except OSError:
            return False
