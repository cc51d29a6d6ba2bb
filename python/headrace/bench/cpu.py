"""CPU time of a process and its children, from the scheduler's accounts.

``/proc/PID/task/TID/schedstat`` counts nanoseconds on the CPU and nanoseconds waiting for one; ``utime`` and
``stime`` of ``/proc/PID/stat`` come in ticks of 10 ms, too coarse for a round of half a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class CpuTime:
    """What a process tree has used until now.

    :param ns: nanoseconds on a CPU.
    :param wait_ns: nanoseconds ready to run, waiting for a CPU.
    :param processes: how many processes there are.
    :param user_ticks: its user time in ticks: good for shares of a second and more, too coarse for less.
    :param system_ticks: its system time in ticks.
    """

    ns: int = 0
    wait_ns: int = 0
    processes: int = 0
    user_ticks: int = 0
    system_ticks: int = 0

    def __sub__(self, before: CpuTime) -> CpuTime:
        return CpuTime(
            self.ns - before.ns,
            self.wait_ns - before.wait_ns,
            self.processes,
            self.user_ticks - before.user_ticks,
            self.system_ticks - before.system_ticks,
        )

    @property
    def system_share(self) -> float:
        """The kernel's share, from 0 to 1."""
        return self.system_ticks / max(self.user_ticks + self.system_ticks, 1)


def tree(pid: int) -> list[int]:
    """A process and all its descendants that are alive."""
    found, unseen = [], [pid]
    while unseen:
        current = unseen.pop()
        if not (PROC / str(current)).exists():
            continue
        found.append(current)
        for task in _tasks(current):
            try:
                # Children are listed under the thread that made them.
                unseen.extend(int(child) for child in (task / "children").read_text().split())
            except (OSError, ValueError):
                continue
    return found


def cpu_time(pid: int) -> CpuTime:
    """What the tree under a process has used until now; processes that have ended are not in it."""
    ns = wait = user = system = 0
    pids = tree(pid)
    for each in pids:
        try:
            # Fields 14 and 15, counted from the state, which follows the name in its parentheses.
            fields = (PROC / str(each) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        user += int(fields[11])
        system += int(fields[12])
        for task in _tasks(each):
            try:
                on_cpu, waiting, _slices = (task / "schedstat").read_text().split()
            except (OSError, ValueError):
                continue
            ns += int(on_cpu)
            wait += int(waiting)
    return CpuTime(ns, wait, len(pids), user, system)


def memory_kb(pid: int) -> int:
    """Proportional set size of the tree, in KB: pages shared by several processes are counted once."""
    total = 0
    for each in tree(pid):
        try:
            text = (PROC / str(each) / "smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total


def _tasks(pid: int) -> list[Path]:
    """The threads of a process; none when it has gone."""
    try:
        return list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return []
