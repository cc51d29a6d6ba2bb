"""Fits a run of all scenarios into a time that one is willing to wait, and keeps it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.bench import registry
from headrace.bench.model import Contender, Scenario
from headrace.bench.rounds import FEWEST_ROUNDS, Settings
from headrace.bench.run import baseline_of, select

#: Seconds of a run of all scenarios that need no service: the default, and with ``--quick``.
WHOLE, QUICK = 15 * 60.0, 2 * 60.0
#: What is planned for, so that the last scenario ends in time: this share of it.
PLANNED = 0.93
#: Seconds to start a contender, check its answer and see whether it rests, and those that a load takes beside its own.
START, LOAD = 0.7, 0.18
#: Seconds to start a service: that of the slowest, RabbitMQ.
SERVICE = 10.0
#: Warm-up steps that a contender takes as a rule.
STEPS = 3
#: By how much a machine is taken to be slower than planned at most, when what was measured so far says so.
SLOWEST = 3.0
#: How much can be measured of each contender, the best first. Below three rounds no verdict is given.
CHOICES = tuple(
    Settings(rounds, seconds, every, step, step * limit)
    for rounds, seconds, every, step, limit in (
        (8, 1.0, 4, 0.3, 10),
        (8, 0.5, 4, 0.3, 8),
        (6, 0.5, 3, 0.2, 6),
        (6, 0.3, 3, 0.2, 4),
        (4, 0.3, 2, 0.15, 3),
        (4, 0.25, 4, 0.15, 3),
        (4, 0.2, 4, 0.1, 2),
        (4, 0.2, 4, 0.1, 1),
        (3, 0.2, 3, 0.1, 1),
        (2, 0.15, 2, 0.1, 1),
        (1, 0.15, 1, 0.1, 1),
    )
)


def seconds_of(settings: Settings) -> float:
    """About how long one contender takes in one case."""
    blocks = -(-settings.rounds // settings.restart_every)
    steps = min(STEPS, settings.warmup_limit / settings.warmup_step)
    return blocks * (START + steps * (settings.warmup_step + LOAD)) + settings.rounds * (
        settings.seconds + LOAD
    )


def length(slots: int, cases: int, settings: Settings) -> float:
    """About how long contenders take in their cases; the baseline takes part twice where verdicts are given.

    :param slots: contenders times cases.
    :param cases: how many cases these are.
    """
    return (slots + (cases if settings.rounds >= FEWEST_ROUNDS else 0)) * seconds_of(settings)


class Pace:
    """Gives each scenario of a whole run the settings with which what is left still fits into its time.

    A slow machine, or contenders that warm up for long, so make later measurements shorter and not the run longer.
    Scenarios that need services come on top: they get the settings that the run was planned with.

    :param sizes: contenders times cases, and cases, of each scenario by its name.
    :param served: names of the scenarios that need services.
    :param seconds: what the others may take.
    :param seed: of the order of measurements.
    :param clock: seconds that only rise.
    """

    def __init__(
        self,
        sizes: Mapping[str, tuple[int, int]],
        served: Sequence[str],
        seconds: float,
        seed: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sizes, self._served = dict(sizes), set(served)
        self._limit, self._seed, self._clock = seconds * PLANNED, seed, clock
        self._left = [name for name in sizes if name not in self._served]
        self._expected = 0.0
        self._began: float | None = None
        self.planned = self._fit(self._left, self._limit)

    @property
    def slots(self) -> int:
        """Contenders times cases of all scenarios."""
        return sum(slots for slots, _ in self._sizes.values())

    def estimate(self) -> tuple[float, float]:
        """Seconds of the scenarios that need no service, and of those that do."""
        without = self._length(self._left, self.planned)
        return without, self._length(self._served, self.planned) + (SERVICE * len(self._served))

    def settings(self, scenario: Scenario) -> Settings:
        """The settings for the scenario that comes next."""
        if scenario.name in self._served:
            return self._at_least(scenario.name, self.planned)
        now = self._clock()
        if self._began is None:
            self._began = now
        spent = now - self._began
        slower = min(max(spent / self._expected, 1.0), SLOWEST) if self._expected else 1.0
        chosen = self._at_least(scenario.name, self._fit(self._left, (self._limit - spent) / slower))
        self._left.remove(scenario.name)
        self._expected += self._length([scenario.name], chosen)
        return chosen

    def _fit(self, names: Sequence[str], seconds: float) -> Settings:
        """The best settings with which these scenarios take no longer, or the shortest of all."""
        fitting = (choice for choice in CHOICES if self._length(names, choice) <= seconds)
        return replace(next(fitting, CHOICES[-1]), seed=self._seed)

    def _length(self, names: Iterable[str], settings: Settings) -> float:
        """How long these scenarios take."""
        return sum(length(*self._sizes[name], self._at_least(name, settings)) for name in names)

    @staticmethod
    def _at_least(name: str, settings: Settings) -> Settings:
        """The settings with rounds as long as a scenario needs."""
        scenario = registry.scenarios().get(name)
        least = scenario.least_seconds if scenario is not None else 0.0
        # What takes long to answer takes long to warm up: pools of connections are filled by the first requests.
        return replace(
            settings,
            seconds=max(settings.seconds, least),
            warmup_step=max(settings.warmup_step, least / 2),
            warmup_limit=max(settings.warmup_limit, least * 1.5),
        )


def needs_services(scenario: Scenario) -> bool:
    """Whether a scenario, or all contenders of it but a few, need a service that has to be installed."""
    own = any(registry.services()[name].needs for name in scenario.services)
    return own or any(contender.services for contender in registry.hosts_of(scenario))


def leading(scenario: Scenario) -> list[str]:
    """The contenders of a scenario for a quick look: ours, and the baseline."""
    ready: list[Contender] = select(scenario, (), without_minor=True)[0]
    base = baseline_of(scenario, ready, None)
    return [each.name for each in ready if "headrace" in each.name or each.name == base]
