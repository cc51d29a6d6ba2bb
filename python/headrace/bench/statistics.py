"""Medians, ratios with bootstrap intervals, warm-up, and verdicts.

Rounds are nested: a *block* is one start of the processes, a *round* one measurement within it. What differs from
start to start (memory layout, hash seeds) does not average out within a block, so blocks are resampled first and
rounds inside them second (Kalibera and Jones, "Rigorous benchmarking in reasonable time").
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

#: Resamples of the bootstrap: enough for 95 % limits that move by less than the limits' own width.
RESAMPLES = 2000
#: How far apart, at most, the CPU per request of the last warm-up steps may be.
STEADY_SPREAD = 0.06
#: How many steps in a row must agree.
STEADY_STEPS = 3

Blocks = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval.

    :param value: the median.
    :param low: lower limit.
    :param high: upper limit.
    """

    value: float
    low: float
    high: float

    def json(self) -> dict[str, float]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, float]) -> Interval:
        """Back from JSON."""
        return cls(data["value"], data["low"], data["high"])


def interval(blocks: Blocks, seed: int = 1, level: float = 0.95) -> Interval | None:
    """The median over all rounds with a bootstrap interval.

    :param blocks: the values of each block's rounds; empty blocks are passed over.
    :param seed: seed of the resampling, so that the same data gives the same interval.
    :param level: probability that the interval is for.
    :returns: None when there is no value.
    """
    blocks = [block for block in blocks if block]
    if not blocks:
        return None
    pooled = [value for block in blocks for value in block]
    return _limits(median(pooled), _resample(blocks, seed), level)


def ratio(ours: Blocks, theirs: Blocks, seed: int = 1, level: float = 0.95) -> Interval | None:
    """The ratio of two contenders measured in the same rounds.

    Values are paired by block and round, so that what disturbed a round disturbs both sides of its ratio.

    :param ours: the values above the line.
    :param theirs: the values below it, in the same shape.
    :returns: None when no round has both.
    """
    pairs = [
        [a / b for a, b in zip(our, their, strict=False) if b > 0 and a > 0]
        for our, their in zip(ours, theirs, strict=False)
    ]
    return interval(pairs, seed, level)


def steady(steps: Sequence[float]) -> bool:
    """Whether the last warm-up steps agree, and do not all go down."""
    last = list(steps[-STEADY_STEPS:])
    if len(last) < STEADY_STEPS or min(last) <= 0:
        return False
    return (max(last) - min(last)) / min(last) <= STEADY_SPREAD


def noise_floor(pair: Interval | None) -> float | None:
    """The smallest difference that may be claimed, from the ratio of a contender to itself.

    :param pair: the ratio of the A/A pair; None when it was not measured.
    :returns: a share such as 0.012; the limit of the interval that is further from 1.
    """
    if pair is None:
        return None
    return max(abs(pair.low - 1), abs(pair.high - 1), abs(pair.value - 1))


@dataclass(frozen=True)
class Verdict:
    """What may be said of a contender against the baseline.

    :param kind: ``better``, ``worse``, ``cannot tell`` or ``withheld``.
    :param sentence: the same as a sentence with its interval.
    """

    kind: str
    sentence: str

    def json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def verdict(
    name: str, baseline: str, found: Interval | None, floor: float | None, objections: Sequence[str] = ()
) -> Verdict:
    """The verdict on CPU per request; less is better.

    :param name: the contender.
    :param baseline: what it is compared with.
    :param found: the ratio of its CPU per request to the baseline's.
    :param floor: the noise floor from the A/A pair.
    :param objections: why nothing may be said, if so.
    """
    if objections:
        return Verdict("withheld", f"{name} against {baseline}: withheld, {'; '.join(objections)}.")
    if found is None:
        return Verdict("withheld", f"{name} against {baseline}: withheld, no round has both.")
    change = f"{abs(found.value - 1):.1%}"
    limits = sorted((abs(found.low - 1), abs(found.high - 1)))
    shown = f"95 % interval {limits[0]:.1%} to {limits[1]:.1%}"
    if found.low <= 1 <= found.high:
        signed = f"{found.low - 1:+.1%} to {found.high - 1:+.1%}"
        return Verdict("cannot tell", f"{name} against {baseline}: cannot tell ({signed} CPU per request).")
    if floor is not None and abs(found.value - 1) <= floor:
        reason = f"{change} is within the {floor:.1%} by which {baseline} differs from itself"
        return Verdict("cannot tell", f"{name} against {baseline}: cannot tell, {reason}.")
    if found.value < 1:
        return Verdict("better", f"{name} needs {change} less CPU per request than {baseline} ({shown}).")
    if found.value >= 2:
        times = f"{found.low:.2f} to {found.high:.2f}"
        sentence = (
            f"{name} needs {found.value:.1f} times the CPU per request of {baseline} (95 % interval {times})."
        )
        return Verdict("worse", sentence)
    return Verdict("worse", f"{name} needs {change} more CPU per request than {baseline} ({shown}).")


def _resample(blocks: Blocks, seed: int) -> list[float]:
    """Medians of resampled rounds in resampled blocks."""
    # Not for secrets: the same seed must give the same interval.
    source = random.Random(seed)
    found = []
    for _ in range(RESAMPLES):
        values: list[float] = []
        for block in source.choices(blocks, k=len(blocks)):
            values.extend(source.choices(block, k=len(block)))
        found.append(median(values))
    return found


def _limits(value: float, found: list[float], level: float) -> Interval:
    """The interval that holds ``level`` of the resampled medians."""
    found = sorted(found)
    tail = (1 - level) / 2
    pick: Callable[[float], float] = lambda share: found[min(len(found) - 1, int(share * len(found)))]  # noqa: E731
    return Interval(value, min(value, pick(tail)), max(value, pick(1 - tail)))
