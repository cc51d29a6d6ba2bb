"""``bench compare OLD NEW``: what changed between two runs, and whether a build should fail for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.bench.statistics import Interval
from headrace.cli import UsageError


@dataclass(frozen=True)
class Change:
    """How one contender's CPU per request changed in one case.

    :param ratio: new over old, with the widest interval that the two intervals allow.
    :param kind: ``worse``, ``better`` or ``cannot tell``.
    """

    where: str
    contender: str
    ratio: Interval
    kind: str

    @property
    def sentence(self) -> str:
        """The change in words."""
        spread = f"{self.ratio.low - 1:+.1%} to {self.ratio.high - 1:+.1%}"
        if self.kind == "cannot tell":
            return f"{self.where}, {self.contender}: cannot tell ({spread} CPU)"
        return f"{self.where}, {self.contender}: {self.kind}, {self.ratio.value - 1:+.1%} CPU ({spread})"


def share(text: str) -> float:
    """The share of ``5%`` or ``0.05``.

    :raises UsageError: for anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text.strip())
    if found is None:
        raise UsageError(f"--fail-above takes a share such as 5%, not {text!r}")
    return float(found[1]) / (100 if found[2] else 1)


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """The changes of all that both runs have.

    The two runs were not interleaved, so that their machines' states differ: the interval of the ratio is taken from
    the far ends of both intervals, which is wider than a paired one.

    :raises UsageError: when the runs have nothing in common.
    """
    before = _rows(old)
    common = False
    for key, row in _rows(new).items():
        if key not in before:
            continue
        common = True
        was, now = (Interval.from_json(each["cpu_ns_per_request"]) for each in (before[key], row))
        ratio = Interval(now.value / was.value, now.low / was.high, now.high / was.low)
        kind = "worse" if ratio.low > 1 else "better" if ratio.high < 1 else "cannot tell"
        yield Change(f"{key[0]} {key[1]}", key[2], ratio, kind)
    if not common:
        raise UsageError("the two files have no scenario, case and contender in common")


def failing(found: list[Change], above: float) -> list[Change]:
    """The changes for the worse that are above a share, beyond doubt: the whole interval is above it.

    :param above: share such as 0.05.
    """
    return [change for change in found if change.ratio.low > 1 + above]


def machines_differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between the machines of two runs, in words."""
    keys = ("cpu", "cores", "kernel", "python", "pinning")
    pairs = [(key, old["environment"].get(key), new["environment"].get(key)) for key in keys]
    return [f"{key}: {was} then, {now} now" for key, was, now in pairs if was != now]


def _rows(document: Mapping[str, Any]) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """All rows with a figure, by scenario, case and contender."""
    return {
        (scenario["name"], case["name"], row["name"]): row
        for scenario in document["scenarios"]
        for case in scenario["cases"]
        for row in case["summary"]["rows"]
        if row["cpu_ns_per_request"]
    }
