"""Fits a run of all scenarios into a time that one is willing to wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.bench.model import Contender, Scenario
from headrace.bench.rounds import Settings
from headrace.bench.run import baseline_of, select

#: Seconds of a run of all scenarios: the default, and with ``--quick``.
WHOLE, QUICK = 15 * 60.0, 2 * 60.0
#: Seconds to start a contender and check its answer, and those that a load takes beside its own.
START, LOAD = 0.5, 0.18
#: Warm-up steps that a contender takes as a rule.
STEPS = 3
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
        (3, 0.2, 3, 0.1, 1),
        (2, 0.15, 2, 0.1, 1),
    )
)


def seconds_of(settings: Settings) -> float:
    """About how long one contender takes in one case."""
    blocks = -(-settings.rounds // settings.restart_every)
    steps = min(STEPS, settings.warmup_limit / settings.warmup_step)
    return blocks * (START + steps * (settings.warmup_step + LOAD)) + settings.rounds * (
        settings.seconds + LOAD
    )


def fit(slots: int, budget: float, seed: int) -> tuple[Settings, float]:
    """The best settings with which a run of scenarios takes no longer than a budget.

    :param slots: contenders times cases, over all scenarios.
    :param budget: seconds.
    :returns: the settings, and about how many seconds the run will take.
    """
    fitting = [choice for choice in CHOICES if slots * seconds_of(choice) <= budget]
    chosen = fitting[0] if fitting else CHOICES[-1]
    return replace(chosen, seed=seed), slots * seconds_of(chosen)


def slots_of(scenarios: Sequence[Scenario], names: Sequence[str]) -> int:
    """Contenders times cases of a whole run, the baseline counted twice."""
    return sum((len(select(each, names, True)[0]) + 1) * len(each.cases) for each in scenarios)


def quick_slots_of(scenarios: Sequence[Scenario]) -> int:
    """The same of a quick look."""
    return sum(len(leading(each)) + 1 for each in scenarios)


def leading(scenario: Scenario) -> list[str]:
    """The contenders of a scenario for a quick look: ours, and the baseline."""
    ready: list[Contender] = select(scenario, ())[0]
    base = baseline_of(scenario, ready, None)
    return [each.name for each in ready if "headrace" in each.name or each.name == base]
