"""Runs scenarios from their selection to the document that is written as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace import __version__
from headrace.bench import machine, registry
from headrace.bench.environments import missing
from headrace.bench.model import Case, Contender, Package, Scenario
from headrace.bench.process import ALLOCATOR, Processes
from headrace.bench.provision import Missing, Provision
from headrace.bench.rounds import Bench, Progress, Settings
from headrace.bench.summary import summarise
from headrace.cli import UsageError

#: What a document of this bench says of itself; raised when its shape changes.
FORMAT = 1

#: Why a scenario that the user broke off is left out, with all that would have come after it.
INTERRUPTED = "interrupted; it and what would have come after it were not measured"


def select(
    scenario: Scenario, names: Sequence[str], without_minor: bool = False
) -> tuple[list[Contender], list[tuple[Contender, str]]]:
    """The contenders of a scenario that are there, and those that are not with what installs them.

    :param names: what the user asked for; empty for all that can host the scenario.
    :param without_minor: leave out variants that nobody named.
    """
    able = registry.hosts_of(scenario)
    if names:
        able = [contender for contender in able if contender.name in names]
    elif without_minor:
        able = [contender for contender in able if not contender.minor]
    ready, absent = [], []
    for contender in able:
        command = missing(contender, scenario)
        if command is None:
            ready.append(contender)
        else:
            absent.append((contender, command))
    return ready, absent


def check_names(scenarios: Sequence[Scenario], names: Sequence[str]) -> None:
    """Refuse a contender that is unknown, or that can run none of the scenarios.

    :raises UsageError: with the nearest names, or those that can.
    """
    able = {contender.name for scenario in scenarios for contender in registry.hosts_of(scenario)}
    for contender in registry.choose(names, registry.contenders(), "contender"):
        if contender.name not in able:
            what = " or ".join(scenario.name for scenario in scenarios)
            raise UsageError(f"{contender.name} cannot run {what}; these can: {', '.join(sorted(able))}")


def baseline_of(scenario: Scenario, ready: Sequence[Contender], wanted: str | None) -> str:
    """The name of the contender that the others are compared with.

    :param wanted: what the user asked for.
    :raises UsageError: when that one does not take part.
    """
    names = [contender.name for contender in ready]
    if wanted is not None:
        if wanted not in names:
            raise UsageError(f"the baseline {wanted!r} does not take part; these do: {', '.join(names)}")
        return wanted
    if scenario.baseline in names or not names:
        return scenario.baseline
    return next((name for name in names if not name.startswith("headrace")), names[0])


def run_scenario(
    plan: Plan,
    processes: Processes,
    provision: Provision,
    progress: Progress,
    settings: Settings,
    scenario: Scenario,
) -> dict[str, Any]:
    """Measure a scenario and describe it.

    :raises Missing: when a service that the scenario needs cannot be had.
    """
    services = provision.urls(scenario.services)
    names = plan.contenders_of(scenario) if plan.contenders_of is not None else plan.contenders
    ready, absent = select(scenario, names, plan.without_minor)
    able = []
    for contender in ready:
        try:
            services.update(provision.urls(contender.services))
            able.append(contender)
        except Missing as error:
            absent.append((contender, str(error)))
    base = baseline_of(scenario, able, plan.baseline)
    if scenario.prepare is not None:
        scenario.prepare()
    bench = Bench(processes, settings, services, progress)
    described = []
    for case in plan.cases_in(scenario):
        described.append(plan.measure(bench, scenario, case, able, base))
    return {
        "name": scenario.name,
        "summary": scenario.summary,
        "unit": scenario.unit,
        "baseline": base,
        "pinned": scenario.pinned,
        "settings": asdict(settings),
        "missing": [{"name": contender.name, "install": command} for contender, command in absent],
        "cases": described,
    }


def measure_rounds(
    bench: Bench, scenario: Scenario, case: Case, contenders: Sequence[Contender], baseline: str
) -> dict[str, Any]:
    """Measure a case by interleaved rounds, closed loop: what ``bench run`` does."""
    found = bench.case(scenario, case, contenders, baseline)
    return {
        **describe_case(case),
        "contenders": found,
        "summary": summarise(found, baseline, scenario.ladder),
    }


def describe_case(case: Case) -> dict[str, Any]:
    """What a document says of a case itself."""
    return {
        "name": case.name,
        "url": case.url,
        "connections": case.connections,
        "options": list(case.options),
    }


@dataclass(frozen=True)
class Plan:
    """What a user asked for.

    :param contenders: names; empty for all.
    :param cases: names; empty for all.
    :param baseline: the contender that the others are compared with; None for the scenario's own.
    :param measure: what is done with each case.
    :param without_minor: leave out variants that nobody named.
    :param contenders_of: gives the contenders of each scenario, in place of ``contenders``.
    :param cases_of: gives the names of the cases of each scenario, in place of ``cases``.
    """

    contenders: Sequence[str] = ()
    cases: Sequence[str] = ()
    baseline: str | None = None
    measure: Callable[[Bench, Scenario, Case, Sequence[Contender], str], dict[str, Any]] = measure_rounds
    without_minor: bool = False
    contenders_of: Callable[[Scenario], Sequence[str]] | None = None
    cases_of: Callable[[Scenario], Sequence[str]] | None = None

    def cases_in(self, scenario: Scenario) -> list[Case]:
        """The cases of a scenario that are measured."""
        names = self.cases_of(scenario) if self.cases_of is not None else self.cases
        return [case for case in scenario.cases if not names or case.name in names]

    def size(self, scenario: Scenario) -> tuple[int, int]:
        """Contenders times cases that are measured of a scenario, and cases."""
        names = self.contenders_of(scenario) if self.contenders_of is not None else self.contenders
        cases = len(self.cases_in(scenario))
        return len(select(scenario, names, self.without_minor)[0]) * cases, cases


def document(
    settings: Settings, scenarios: Sequence[Mapping[str, Any]], left_out: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """The whole result of a run, ready for JSON."""
    packages = [
        need.name
        for contender in registry.contenders().values()
        for need in contender.needs
        if isinstance(need, Package)
    ]
    return {
        "tool": "headrace bench",
        "format": FORMAT,
        "version": __version__,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": sys.argv[1:],
        "settings": {**asdict(settings), "allocator": ALLOCATOR},
        "environment": machine.describe(packages),
        "left_out": list(left_out),
        "scenarios": list(scenarios),
    }


def read(path: str) -> dict[str, Any]:
    """A document of an earlier run.

    :raises UsageError: for a file that is not there, not JSON, not of this tool, or of another format.
    """
    try:
        found = json.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path} is not JSON") from None
    if not isinstance(found, dict) or found.get("tool") != "headrace bench":
        raise UsageError(f"{path} was not written by headrace bench")
    if found.get("format") != FORMAT:
        raise UsageError(
            f"{path} has format {found.get('format')}, this version reads {FORMAT}: run the bench again"
        )
    return found


def merged(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several documents as one: each case once, with its rounds, its latencies and its sweeps from wherever they are.

    Of two that have rounds of the same case, the later one counts. Machine and settings are the first one's.
    """
    found: dict[str, Any] = {**documents[0], "scenarios": [], "left_out": []}
    scenarios: dict[str, dict[str, Any]] = {}
    for document in documents:
        found["left_out"] += (each for each in document["left_out"] if each not in found["left_out"])
        for scenario in document["scenarios"]:
            if scenario["name"] not in scenarios:
                scenarios[scenario["name"]] = {**scenario, "cases": []}
                found["scenarios"].append(scenarios[scenario["name"]])
            cases = scenarios[scenario["name"]]["cases"]
            for case in scenario["cases"]:
                at = next((i for i, known in enumerate(cases) if known["name"] == case["name"]), None)
                if at is None:
                    cases.append(dict(case))
                else:
                    cases[at] = _joined(cases[at], case)
    return found


def _joined(known: Mapping[str, Any], case: Mapping[str, Any]) -> dict[str, Any]:
    """Two documents of one case; of a latency measurement or a sweep, the plain rounds of the other are kept."""
    extra = {key: case[key] for key in ("latency", "sweeps") if key in case}
    return {**known, **extra} if extra else {**case, **{k: known[k] for k in known if k not in case}}


def run_all(
    chosen: Sequence[Scenario],
    plan: Plan,
    progress: Progress,
    settings: Settings | Callable[[Scenario], Settings],
) -> dict[str, Any]:
    """Run scenarios one after the other; services are started once and shared.

    :param chosen: the scenarios.
    :param settings: how much of each is measured, or what says so when its turn comes.
    :returns: the document.
    """
    results: list[dict[str, Any]] = []
    left_out: list[dict[str, str]] = []
    first: Settings | None = None
    began = time.monotonic()
    with Processes() as processes:
        provision = Provision(processes, progress)
        for scenario in chosen:
            each = settings if isinstance(settings, Settings) else settings(scenario)
            first = first or each
            started = time.monotonic()
            try:
                found = run_scenario(plan, processes, provision, progress, each, scenario)
                results.append({**found, "took_s": time.monotonic() - started})
            except Missing as error:
                left_out.append({"name": scenario.name, "reason": str(error)})
            except KeyboardInterrupt:
                # What was measured until now is not lost.
                left_out.append({"name": scenario.name, "reason": INTERRUPTED})
                break
    made = document(first or Settings(), results, left_out)
    return {**made, "took_s": time.monotonic() - began}
