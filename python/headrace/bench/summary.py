"""From raw rounds to the rows of a report: medians, intervals, ratios to the baseline, marks and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from headrace.bench.rounds import AGAIN, FEWEST_ROUNDS, IDLE_LIMIT
from headrace.bench.statistics import Blocks, Interval, interval, noise_floor, ratio, verdict

#: Nothing is claimed of a contender of which more than this share of the rounds is noisy.
NOISY_SHARE = 0.5


def summarise(contenders: Sequence[Mapping[str, Any]], baseline: str, ladder: bool = False) -> dict[str, Any]:
    """The rows of one case.

    :param contenders: the contenders of the case as ``rounds.Bench.case`` gives them.
    :param baseline: the name of the one that the others are compared with.
    :param ladder: whether they are steps, to be kept in their order, each with its gain over the one before.
    :returns: ``rows``; ``floor``, the smallest difference that may be claimed, or None; ``steps``, a ladder's.
    """
    measured = {each["name"]: each for each in contenders if each["rounds"]}
    base = measured.get(baseline)
    again = measured.get(baseline + AGAIN)
    floor = None
    if base is not None and again is not None and len(base["rounds"]) >= FEWEST_ROUNDS:
        floor = noise_floor(
            ratio(blocks_of(base, "cpu_ns_per_request"), blocks_of(again, "cpu_ns_per_request"))
        )
    rows = [_row(each, base, floor) for each in contenders if not each["name"].endswith(AGAIN)]
    if ladder:
        return {"floor": floor, "rows": rows, "steps": _steps(list(measured.values()))}
    rows.sort(
        key=lambda row: (row["cpu_ns_per_request"] is None, (row["cpu_ns_per_request"] or {}).get("value", 0))
    )
    return {"floor": floor, "rows": rows, "steps": []}


def _steps(rungs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each rung of a ladder gains over the one below it, by goodput: the CPU of services is not in their CPU."""
    found = []
    for below, rung in pairwise(each for each in rungs if not each["name"].endswith(AGAIN)):
        gain = ratio(blocks_of(rung, "requests_per_second"), blocks_of(below, "requests_per_second"))
        if gain is None:
            continue
        limits = f"95 % interval {gain.low:.2f} to {gain.high:.2f}"
        if gain.low <= 1 <= gain.high:
            found.append(f"{rung['name']}: no gain over {below['name']} that can be told ({limits}).")
        else:
            found.append(f"{rung['name']}: {gain.value:.2f} times the goodput of {below['name']} ({limits}).")
    return found + ([what_is_in_the_way(rungs)] if any(services(each) for each in rungs) else [])


def what_is_in_the_way(rungs: Sequence[Mapping[str, Any]]) -> str:
    """Where the machine's CPU goes on the last rung: server, services, and the client that makes the load."""
    last = [each for each in rungs if not each["name"].endswith(AGAIN)][-1]
    rounds = [each for each in last["rounds"] if each["cpu_ns_per_request"]]
    if not rounds:
        return f"{last['name']}: no good answer."
    parts = {"server": median(each["cpu_ns_per_request"] for each in rounds)}
    for name in rounds[0].get("services_cpu_ns", {}):
        parts[name] = median(each["services_cpu_ns"].get(name, 0.0) for each in rounds)
    client = [(each["load"].get("client") or {}).get("cpu_ns_per_request") for each in rounds]
    parts["client"] = median(value or 0.0 for value in client)
    rate = median(each["requests_per_second"] for each in rounds)
    busy = sum(parts.values()) * rate / 1e9
    shares = ", ".join(
        f"{name} {cost / 1000:.0f}" for name, cost in sorted(parts.items(), key=lambda pair: -pair[1])
    )
    return (
        f"{last['name']}: at {rate:,.0f} a second {busy:.1f} cores are busy; us of CPU a request: {shares}."
    )


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The verdicts of a case for a reader: kind and sentence, those withheld for the same reason in one.

    :param rows: rows of ``summarise``.
    """
    found = []
    withheld: dict[str, list[str]] = {}
    for row in rows:
        if not row["verdict"]:
            continue
        kind, sentence = row["verdict"]["kind"], row["verdict"]["sentence"]
        reason = sentence.partition(": withheld, ")[2]
        if kind == "withheld" and reason and row["status"] != "failed":
            withheld.setdefault(reason, []).append(row["name"])
        elif row["status"] != "failed":
            # Of a contender that failed, its failure is told, with the end of its log.
            found.append((kind, sentence))
    found += [("withheld", f"withheld of {', '.join(names)}: {reason}") for reason, names in withheld.items()]
    return found


def blocks_of(contender: Mapping[str, Any], key: str) -> Blocks:
    """One figure of all rounds, grouped by block; a round without it counts as 0, so that pairs stay pairs."""
    blocks: dict[int, list[float]] = {}
    for each in contender["rounds"]:
        blocks.setdefault(each["block"], []).append(each[key] or 0.0)
    return [blocks[number] for number in sorted(blocks)]


def objections(contender: Mapping[str, Any]) -> list[str]:
    """Why no verdict may be given on a contender; empty when one may."""
    rounds = contender["rounds"]
    if contender["status"] != "measured":
        return [contender["reason"] or contender["status"]]
    if not rounds:
        return ["not measured"]
    marks = Counter(mark for each in rounds for mark in each["flags"])
    found = []
    if len(rounds) < FEWEST_ROUNDS:
        found.append(f"{len(rounds)} rounds are too few" if len(rounds) > 1 else "1 round is too few")
    if marks["errors"]:
        found.append(f"errors in {marks['errors']} of {len(rounds)} rounds")
    if marks["noisy"] > NOISY_SHARE * len(rounds):
        found.append(f"the machine was too noisy in {marks['noisy']} of {len(rounds)} rounds")
    return found


def _row(contender: Mapping[str, Any], base: Mapping[str, Any] | None, floor: float | None) -> dict[str, Any]:
    """One contender's row."""
    rounds = contender["rounds"]
    cpu = _positive(blocks_of(contender, "cpu_ns_per_request"))
    rate = _positive(blocks_of(contender, "requests_per_second"))
    found: Interval | None = None
    judged = None
    if base is not None and contender["name"] != base["name"] and rounds:
        found = ratio(blocks_of(contender, "cpu_ns_per_request"), blocks_of(base, "cpu_ns_per_request"))
        mine = objections(contender)
        against = [f"{base['name']}: {reason}" for reason in objections(base) if reason not in mine]
        judged = verdict(contender["name"], base["name"], found, floor, [*mine, *against])
    warmups = contender["warmups"]
    return {
        "name": contender["name"],
        "version": contender["version"],
        "status": contender["status"],
        "reason": contender["reason"],
        "log": contender["log"],
        "cpu_ns_per_request": cpu.json() if cpu else None,
        "requests_per_second": rate.json() if rate else None,
        "p50_us": _latency(rounds, "p50"),
        "p99_us": _latency(rounds, "p99"),
        "errors": sum(each["errors"] for each in rounds),
        "first_error": next(
            (each["load"]["first_error"] for each in rounds if each["load"].get("first_error")), None
        ),
        "memory_kb": contender["memory_kb"],
        "idle": idle(contender),
        "services": services(contender),
        "rounds": len(rounds),
        "flags": dict(Counter(mark for each in rounds for mark in each["flags"])),
        "steady": all(each["steady"] for each in warmups) if warmups else None,
        "ratio": found.json() if found else None,
        "verdict": judged.json() if judged else None,
    }


def services(contender: Mapping[str, Any]) -> str:
    """What the services used beside a contender's own CPU, dearest first: what is in the way; empty without any."""
    rounds = [each["services_cpu_ns"] for each in contender["rounds"] if each.get("services_cpu_ns")]
    if not rounds:
        return ""
    costs = {name: median(each.get(name, 0.0) for each in rounds) / 1000 for name in rounds[0]}
    parts = [
        f"{name} {cost:.0f}" for name, cost in sorted(costs.items(), key=lambda pair: -pair[1]) if cost >= 1
    ]
    return f"beside it {', '.join(parts)} us" if parts else ""


def idle(contender: Mapping[str, Any]) -> str:
    """What a reader should know of a contender that does not rest when it has nothing to do; else empty."""
    share: float = contender.get("idle_share", 0.0)
    return f"uses {share:.0%} of a core while idle" if share > IDLE_LIMIT else ""


def _positive(blocks: Blocks) -> Interval | None:
    """The interval over the rounds that have the figure."""
    return interval([[value for value in block if value > 0] for block in blocks])


def _latency(rounds: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The median over rounds of a percentile, in microseconds."""
    values = [each["load"]["latency_us"].get(name) for each in rounds]
    known = [value for value in values if value is not None]
    return median(known) if known else None
