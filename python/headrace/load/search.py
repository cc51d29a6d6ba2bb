"""The highest rate at which a server keeps its latency goal without errors.

A closed loop first shows what the server can do at most. Then rates below it are tried, each in an open loop,
and the interval between the highest that was kept and the lowest that was not is halved. A trial that fails
by little is repeated, and two of three decide: on a shared machine a single pause must not end the search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

#: Of the offered requests, the share that must be answered.
ACHIEVED = 0.99
#: The search ends when the interval is narrower than this share of its upper end.
PRECISION = 0.02
#: A trial is not repeated when its latency is so many times the goal.
HOPELESS = 5.0
#: More halvings than this are never needed: 2 % is reached in six.
MAX_TRIALS = 24


@dataclass(frozen=True)
class Trial:
    """One rate that was tried: requests a second, the 99th percentile in µs, errors, and whether it was kept."""

    rate: float
    p99_us: float | None
    errors: int
    achieved: float
    kept: bool


def judge(result: dict[str, Any], goal_us: float) -> Trial:
    """Whether a run in an open loop has kept the goal."""
    offered = result["offered"]
    achieved = result["requests"] / offered if offered else 0.0
    p99 = result["latency_us"]["p99"]
    errors = sum(result["errors"].values())
    kept = p99 is not None and p99 <= goal_us and errors == 0 and achieved >= ACHIEVED
    return Trial(result["rate"], p99, errors, achieved, kept)


def find_rate(
    load: Callable[[float | None], dict[str, Any]],
    goal_us: float,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Search the highest rate that keeps the goal.

    :param load: runs a load at a rate (``None``: a closed loop) and returns its result.
    :param goal_us: the 99th percentile of latency must not be above it, in µs.
    :param tell: is given a line for each trial.
    :returns: the result at the highest rate that was kept (or of the closed loop, when none was), with
        ``search``: the goal, the rate found (``None`` when none was kept), and all trials.
    """
    best = load(None)
    trials: list[Trial] = []
    ceiling = best["requests_per_second"]
    tell(f"closed loop: {ceiling:,.0f} requests/s")
    low, high, found = 0.0, ceiling, None
    rate = ceiling * 0.9
    while (
        ceiling > 0 and high - low > PRECISION * high and len(trials) < MAX_TRIALS and not best["interrupted"]
    ):
        result, trial = decide(load, rate, goal_us, trials, tell)
        if result["interrupted"]:
            best = best | {"interrupted": True}
            break
        if trial.kept:
            low, found, best = rate, rate, result
        else:
            high = rate
        # As long as nothing was kept, go down fast: the goal may be out of reach by far.
        rate = (low + high) / 2 if low else high / 2
        if not low and rate < max(1.0, ceiling / 1000):
            break
    search = {
        "goal_p99_us": goal_us,
        "rate": found,
        "ceiling": ceiling,
        "trials": [asdict(t) for t in trials],
    }
    return best | {"search": search}


def decide(
    load: Callable[[float | None], dict[str, Any]],
    rate: float,
    goal_us: float,
    trials: list[Trial],
    tell: Callable[[str], None],
) -> tuple[dict[str, Any], Trial]:
    """Try a rate until it is kept or has failed twice, or hopelessly once."""
    failed = 0
    while True:
        result = load(rate)
        trial = judge(result, goal_us)
        trials.append(trial)
        p99 = "no answer" if trial.p99_us is None else f"p99 {trial.p99_us / 1000:.2f} ms"
        verdict = "kept" if trial.kept else "not kept"
        tell(f"{rate:,.0f}/s: {p99}, {trial.errors} errors, {trial.achieved:.1%} answered: {verdict}")
        failed += not trial.kept
        hopeless = trial.p99_us is None or trial.p99_us > HOPELESS * goal_us or trial.achieved < 0.9
        if trial.kept or failed == 2 or hopeless or result["interrupted"]:
            return result, trial
