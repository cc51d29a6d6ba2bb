"""The machine: what it is, and how disturbed it was while something was measured."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

#: Kernel settings that change what a network server can do.
SYSCTLS = (
    "net/core/somaxconn",
    "net/ipv4/tcp_max_syn_backlog",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_congestion_control",
    "kernel/sched_autogroup_enabled",
)


@dataclass(frozen=True)
class Cores:
    """Who runs where. With two cores or more, the server has one and the client another.

    :param server: cores of the server; empty for any.
    :param client: cores of the client and of services; empty for any.
    """

    server: tuple[int, ...] = ()
    client: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """The pinning in words."""
        if not self.server:
            return "server and client share one core: not pinned"
        return f"server on core {self.server[0]}, client and services on core {self.client[0]}"


def cores() -> Cores:
    """The pinning on this machine."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cores((allowed[0],), (allowed[1],)) if len(allowed) > 1 else Cores()


@dataclass(frozen=True)
class Disturbance:
    """Counters that tell whether others used the machine.

    :param steal: ticks that the hypervisor took from all cores.
    :param total: ticks of all kinds, of all cores.
    :param psi_us: microseconds in which something runnable waited for a CPU, of the whole machine; None without PSI.
    :param busy: ticks in which the server's core ran anything; None where the server has no core of its own.
    """

    steal: int
    total: int
    psi_us: int | None
    busy: int | None

    def since(self, before: Disturbance, seconds: float, server_ns: int) -> dict[str, float | None]:
        """Shares of the time since ``before``, each from 0 to 1.

        :param seconds: how long that is.
        :param server_ns: CPU time that the server used in it.
        :returns: ``steal``; ``psi``; and ``foreign``: the share of the server's core that others used.
        """
        total = self.total - before.total
        psi = None
        if self.psi_us is not None and before.psi_us is not None and seconds > 0:
            psi = (self.psi_us - before.psi_us) / (seconds * 1e6)
        foreign = None
        if self.busy is not None and before.busy is not None and seconds > 0:
            busy = (self.busy - before.busy) / os.sysconf("SC_CLK_TCK")
            foreign = max(0.0, (busy - server_ns / 1e9) / seconds)
        return {
            "steal": (self.steal - before.steal) / total if total else 0.0,
            "psi": psi,
            "foreign": foreign,
        }


def disturbance(server: Sequence[int] = ()) -> Disturbance:
    """The counters now.

    :param server: the cores of the server.
    """
    # cpu  user nice system idle iowait irq softirq steal guest guest_nice (guest is in user already)
    lines = {
        line.split()[0]: [int(word) for word in line.split()[1:9]]
        for line in _read("/proc/stat").splitlines()
        if line.startswith("cpu")
    }
    ticks = lines["cpu"]
    busy = sum(sum(lines[f"cpu{core}"]) - lines[f"cpu{core}"][3] - lines[f"cpu{core}"][4] for core in server)
    psi = None
    for line in _read("/proc/pressure/cpu").splitlines():
        if line.startswith("some"):
            psi = int(line.rpartition("total=")[2])
    return Disturbance(ticks[7], sum(ticks), psi, busy if server else None)


def describe(packages: list[str]) -> dict[str, Any]:
    """The machine, the system and the versions of the packages named, ready for JSON."""
    versions = {}
    for name in sorted(set(packages)):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_kb": int((_field("/proc/meminfo", "MemTotal") or "0").split()[0]),
        "kernel": platform.release(),
        "system": _field("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        "cgroup_cpu_max": _read("/sys/fs/cgroup/cpu.max").strip() or None,
        "python": sys.version.split()[0],
        "load_average": os.getloadavg(),
        "pinning": cores().words,
        "sysctl": {name.replace("/", "."): _read(f"/proc/sys/{name}").strip() for name in SYSCTLS},
        "packages": versions,
    }


def _read(path: str) -> str:
    """A file's text; empty when there is none."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _field(path: str, name: str, mark: str = ":") -> str:
    """The value of the first line ``NAME: value`` of a file."""
    for line in _read(path).splitlines():
        key, _, value = line.partition(mark)
        if key.strip() == name:
            return value.strip()
    return ""
