"""``headrace bench``: what a user can ask of it."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.bench import (
    app,
    budget,
    compare,
    registry,
    report_html,
    report_markdown,
    report_terminal,
    sources,
)
from headrace.bench.curves import measure_latency, measure_sweeps
from headrace.bench.environments import cache_folder, folder_of, make, missing, versions_in
from headrace.bench.model import Environment, Scenario, Service
from headrace.bench.process import Processes
from headrace.bench.provision import Missing, Provision, lacking
from headrace.bench.rounds import Settings
from headrace.bench.run import INTERRUPTED, Plan, check_names, measure_rounds, merged, read, run_all
from headrace.cli import UsageError

#: ``--quick``: enough to see that all works, and differences of tens of percent.
QUICK = Settings(rounds=2, seconds=0.3, restart_every=2, warmup_step=0.2, warmup_limit=0.4)

#: Exit status of a run that the user broke off: that of a shell for a command ended by INT.
INTERRUPTED_STATUS = 130

#: What each measuring command does with a case.
MEASURES = {"run": measure_rounds, "latency": measure_latency, "sweep": measure_sweeps}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of ``headrace bench``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list scenarios, contenders, and what is missing")
    listing.add_argument("name", nargs="?", help="a scenario: list only its contenders")
    run_parser = actions.add_parser("run", help="measure scenarios")
    measuring(run_parser)
    latency = actions.add_parser("latency", help="measure latency at equal offered load, open loop")
    measuring(latency)
    sweep = actions.add_parser(
        "sweep", help="vary connections or pool sizes; find the knee and what fails beyond"
    )
    measuring(sweep)
    app_parser = actions.add_parser("app", help="your application on every server that can host it")
    app_parser.add_argument("app", metavar="MODULE:ATTR", help="the application")
    app_parser.add_argument("--path", default="/", metavar="/X", help="the path to ask for (/)")
    app_parser.add_argument(
        "--against", default="", metavar="A,B", help="servers, such as granian,gunicorn:gevent"
    )
    app_parser.add_argument("--app-dir", default=".", metavar="DIR", help="folder that it is loaded from (.)")
    app_parser.add_argument("-c", "--connections", type=int, default=64, metavar="N", help="connections (64)")
    amounts(app_parser)
    service_parser = actions.add_parser("services", help="say which services are there")
    service_parser.add_argument("what", choices=("check",), help="check: start each, ask it, stop it")
    comparing = actions.add_parser("compare", help="say what changed between two runs, for CI")
    comparing.add_argument("old", metavar="OLD.json")
    comparing.add_argument("new", metavar="NEW.json")
    comparing.add_argument(
        "--fail-above", metavar="SHARE", help="exit 1 when CPU rose by more, beyond doubt: 5%%"
    )
    source_parser = actions.add_parser("sources", help="each published figure beside what was measured here")
    source_parser.add_argument("files", nargs="*", metavar="RUN.json", help="runs to take figures from")
    source_parser.add_argument(
        "--run", action="store_true", help="measure all that the figures need, with real services"
    )
    source_parser.add_argument(
        "--minutes", type=float, default=8.0, metavar="N", help="how long --run measures, about (8)"
    )
    source_parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the order of measurements (1)"
    )
    source_parser.add_argument("--json", metavar="FILE", help="write what --run measured")
    source_parser.add_argument("--html", metavar="FILE", help="write the runs and the figures as one page")
    showing = actions.add_parser("report", help="show a run that was written as JSON")
    showing.add_argument("files", nargs="+", metavar="RUN.json")
    showing.add_argument("--html", metavar="FILE", help="write one page of all runs in place of the table")
    showing.add_argument("--markdown", metavar="FILE", help="write Markdown tables of all runs; - for stdout")
    showing.add_argument("--contenders", metavar="A,B", default="", help="only these in the Markdown tables")
    setting = actions.add_parser("setup", help="make the environments of rivals that need their own")
    setting.add_argument(
        "names", nargs="*", metavar="NAME", help="environments; by default all that are missing"
    )
    setting.add_argument("--yes", action="store_true", help="install without asking")


def measuring(parser: argparse.ArgumentParser) -> None:
    """Add the options that all measuring commands have."""
    add = parser.add_argument
    add("names", nargs="+", metavar="NAME", help="scenarios; all for every one")
    add("--contenders", metavar="A,B", default="", help="only these contenders")
    add("--cases", metavar="A,B", default="", help="only these cases of the scenarios")
    add(
        "--connections",
        type=int,
        metavar="N",
        help="this many connections, in place of each case's own number",
    )
    amounts(parser)


def amounts(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how much is measured, and where it is written."""
    add = parser.add_argument
    add("--baseline", metavar="NAME", help="compare with this contender (the scenario has its own default)")
    add("--rounds", type=int, metavar="N", help="measurements of each contender (8)")
    add("--seconds", type=float, metavar="S", help="seconds of a measurement (1)")
    add("--restart-every", type=int, metavar="N", help="rounds between fresh processes (4)")
    add("--seed", type=int, default=1, metavar="N", help="seed of the order of measurements (1)")
    add("--quick", action="store_true", help="short rounds: to see that it works")
    add("--json", metavar="FILE", help="write raw rounds, histograms and environment")
    add("--html", metavar="FILE", help="write one page with charts that needs no network")


def run(args: argparse.Namespace) -> int:
    """Run ``headrace bench``.

    :returns: 0 well; 1 when nothing could be measured or a gate failed; 130 when interrupted.
    :raises UsageError: for what cannot be done as asked.
    """
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": list_all,
        "run": run_scenarios,
        "latency": run_scenarios,
        "sweep": run_scenarios,
        "compare": compare_runs,
        "report": show,
        "setup": set_up,
        "services": check_services,
        "app": run_app,
        "sources": list_sources,
    }
    return actions[args.action](args)


def list_all(args: argparse.Namespace) -> int:
    """``bench list``: scenarios and who takes part in them."""
    known = registry.scenarios()
    chosen = registry.choose([args.name], known, "scenario") if args.name else list(known.values())
    for scenario in chosen:
        print(f"{scenario.name}: {scenario.summary}")
        print(f"  cases: {', '.join(case.name for case in scenario.cases)}; baseline: {scenario.baseline}")
        contenders = registry.hosts_of(scenario)
        width = max(len(contender.name) for contender in contenders)
        for contender in contenders:
            command = missing(contender, scenario)
            lack = f"; missing: {command}" if command else ""
            print(f"  {contender.name:<{width}}  {contender.summary}{lack}")
    return 0


def run_scenarios(args: argparse.Namespace) -> int:
    """``bench run``: measure, print, and write."""
    known = registry.scenarios()
    names = list(known) if args.names == ["all"] else args.names
    chosen = registry.choose(names, known, "scenario")
    settings = settings_of(args)
    cases = words(args.cases)
    check_cases(chosen, cases)
    check_names(chosen, words(args.contenders))
    if args.connections is not None:
        if args.connections < 1:
            raise UsageError("--connections must be 1 or more")
        chosen = [with_connections(scenario, args.connections) for scenario in chosen]
    writable(args.json)
    writable(args.html)
    plan = Plan(words(args.contenders), cases, args.baseline, MEASURES[args.action])
    pace: Settings | Callable[[Scenario], Settings] = settings
    if args.names == ["all"] and args.action == "run":
        plan = replace(plan, without_minor=not plan.contenders)
        if args.quick and not plan.contenders:
            plan = replace(plan, contenders_of=budget.leading, cases_of=lambda each: [each.cases[0].name])
        # Those that need services come last: what they take is no part of the others' time.
        chosen = sorted(chosen, key=budget.needs_services)
        if args.rounds is None and args.seconds is None:
            pace = fitted(chosen, plan, budget.QUICK if args.quick else budget.WHOLE, args.seed)
    progress = report_terminal.Progress()
    try:
        found = run_all(chosen, plan, progress, pace)
    finally:
        progress.clear()
    print(report_terminal.text(found))
    write(found, args.json)
    write_page(found, args.html)
    return status(found)


def with_connections(scenario: Scenario, count: int) -> Scenario:
    """The scenario with another number of connections in every case that has any."""
    cases = (replace(case, connections=count) if case.connections else case for case in scenario.cases)
    return replace(scenario, cases=tuple(cases))


def fitted(
    chosen: Sequence[Scenario], plan: Plan, seconds: float, seed: int
) -> Callable[[Scenario], Settings]:
    """How much of each scenario is measured so that all fit into a time; tells the user what that comes to."""
    sizes = {scenario.name: plan.size(scenario) for scenario in chosen}
    pace = budget.Pace(sizes, [each.name for each in chosen if budget.needs_services(each)], seconds, seed)
    without, served = pace.estimate()
    settings = pace.planned
    print(
        f"about {without / 60:.1f} minutes for scenarios without services, {served / 60:.1f} for those with: "
        f"{settings.rounds} rounds of {settings.seconds:g} s, {pace.slots} contenders and cases; "
        "name scenarios to measure them longer",
        file=sys.stderr,
    )
    return pace.settings


def status(document: Mapping[str, Any]) -> int:
    """The exit status of a run: 0, 1 when nothing could be measured, 130 when it was interrupted."""
    if any(each["reason"] == INTERRUPTED for each in document["left_out"]):
        return INTERRUPTED_STATUS
    return 0 if has_figures(document) else 1


def has_figures(document: Mapping[str, Any]) -> bool:
    """Whether anything could be measured."""
    cases = [case for scenario in document["scenarios"] for case in scenario["cases"]]
    rows = any(row["cpu_ns_per_request"] for case in cases for row in case["summary"]["rows"])
    swept = any(
        line["points"] for case in cases for sweep in case.get("sweeps", ()) for line in sweep["lines"]
    )
    return rows or swept


def compare_runs(args: argparse.Namespace) -> int:
    """``bench compare``: print what changed; 1 when the gate fails."""
    above = None if args.fail_above is None else compare.share(args.fail_above)
    old, new = read(args.old), read(args.new)
    found = list(compare.changes(old, new))
    for difference in compare.machines_differ(old, new):
        print(f"the machines differ, {difference}")
    for change in found:
        print(change.sentence)
    if above is None:
        return 0
    bad = compare.failing(found, above)
    print(f"{len(bad)} of {len(found)} rose by more than {above:.1%} beyond doubt")
    return 1 if bad else 0


def list_sources(args: argparse.Namespace) -> int:
    """``bench sources``: the published figures, and ours beside them."""
    documents = [read(file) for file in args.files]
    if args.json and not args.run:
        raise UsageError("--json writes what --run measures: add --run")
    if args.html and not args.run and not documents:
        raise UsageError("--html needs runs to show: name their files, or add --run")
    if args.run:
        documents.append(measure_sources(args))
    elif args.html:
        writable(args.html)
        write_page({**merged(documents), "sources": list(sources.lines(documents))}, args.html)
    for line in sources.lines(documents):
        print(line)
    return status(documents[-1]) if args.run else 0


def measure_sources(args: argparse.Namespace) -> dict[str, Any]:
    """Measure every counterpart of a published figure, and sweep what the first source ran out of."""
    if not math.isfinite(args.minutes) or not 1 <= args.minutes <= 24 * 60:
        raise UsageError("--minutes must be from 1 to 1440")
    for path in (args.json, args.html):
        writable(path)
    wanted = sources.wanted()
    known = registry.scenarios()
    chosen = sorted((known[name] for name in wanted), key=budget.needs_services)
    plan = Plan(contenders_of=lambda each: wanted[each.name][0], cases_of=lambda each: wanted[each.name][1])
    seconds = args.minutes * 60 * (1 - sources.SWEEP_SHARE)
    pace = budget.Pace({each.name: plan.size(each) for each in chosen}, [], seconds, args.seed)
    settings = pace.planned
    print(
        f"about {args.minutes:g} minutes: {settings.rounds} rounds of {settings.seconds:g} s, "
        f"{pace.slots} contenders and cases, and a sweep of {sources.SWEPT}",
        file=sys.stderr,
    )
    progress = report_terminal.Progress()
    try:
        found = run_all(chosen, plan, progress, pace.settings)
        if status(found) != INTERRUPTED_STATUS:
            sweep = Plan(sources.SWEEP_CONTENDERS, measure=measure_sweeps)
            short = replace(budget.CHOICES[-1], seconds=sources.SWEEP_SECONDS)
            swept = run_all([known[sources.SWEPT]], sweep, progress, short)
            found = {**merged([found, swept]), "took_s": found["took_s"] + swept["took_s"]}
    finally:
        progress.clear()
    write(found, args.json)
    print(report_terminal.text(found))
    write_page({**found, "sources": list(sources.lines([found]))}, args.html)
    return found


def show(args: argparse.Namespace) -> int:
    """``bench report``: the tables or the page of earlier runs."""
    found = [read(file) for file in args.files]
    if args.markdown is not None:
        text = report_markdown.page(found, words(args.contenders))
        if args.markdown == "-":
            print(text, end="")
        else:
            writable(args.markdown)
            Path(args.markdown).write_text(text)
    if args.html is not None:
        writable(args.html)
        write_page(merged(found), args.html)
    if args.html is None and args.markdown is None:
        print("\n\n".join(report_terminal.text(each) for each in found))
    return 0


def set_up(args: argparse.Namespace) -> int:
    """``bench setup``: say what is installed where, ask, and do it."""
    known: dict[str, Environment | Service] = {
        contender.environment.name: contender.environment
        for contender in registry.contenders().values()
        if contender.environment is not None
    }
    known.update(
        {name: service for name, service in registry.services().items() if service.setup is not None}
    )
    for name in args.names:
        if name not in known:
            raise UsageError(f"no environment {name!r}; there are: {', '.join(sorted(known))}")
    names = args.names or [name for name, each in known.items() if not _is_made(each)]
    if not names:
        print("all environments are there")
        return 0
    wanted = [known[name] for name in names]
    for each in wanted:
        print(_installs(each))
    if not args.yes:
        if not sys.stdin.isatty():
            raise UsageError("nothing was installed: add --yes to do so")
        if input("install these? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    failed = 0
    for each in wanted:
        try:
            if isinstance(each, Environment):
                make(each)
            elif each.setup is not None:
                each.setup()
            print(f"{each.name}: made")
        except UsageError as error:
            # One environment that cannot be made does not stop the others.
            print(error)
            failed += 1
    return 1 if failed else 0


def _is_made(each: Environment | Service) -> bool:
    """Whether an environment or what a service needs is there already."""
    return versions_in(each) is not None if isinstance(each, Environment) else lacking(each) is None


def _installs(each: Environment | Service) -> str:
    """What is going to be installed where."""
    if isinstance(each, Service):
        return f"{each.name}: in {cache_folder()}: {each.setup_words}"
    python = f"Python {each.python}" if each.python else "this Python"
    return f"{each.name}: {python} in {folder_of(each)}: pip install {' '.join(each.packages)}"


def check_services(args: argparse.Namespace) -> int:
    """``bench services check``: start each service that is there; say what the others need."""
    failed = 0
    with Processes() as processes:
        provision = Provision(processes, lambda line: None)
        for name, service in registry.services().items():
            try:
                provision.urls([name])
                print(f"{name:<12}works: {service.summary}")
            except Missing as error:
                failed += 1
                print(f"{name:<12}{error}")
    return 1 if failed else 0


def run_app(args: argparse.Namespace) -> int:
    """``bench app``: the user's application on every server, and where its time goes."""
    folder = Path(args.app_dir).resolve()
    if not folder.is_dir():
        raise UsageError(f"{args.app_dir} is not a folder")
    if not args.path.startswith("/") or any(character in args.path for character in " {}"):
        raise UsageError("--path begins with / and has no blanks or braces")
    if args.connections < 1:
        raise UsageError("--connections must be 1 or more")
    kind = app.inspect(args.app, folder)
    chosen = app.scenarios(args.app, kind, args.path, args.connections, folder)
    names = app.against(words(args.against), chosen[0])
    if args.baseline is not None and args.baseline not in names:
        names.append(args.baseline)
    check_names(chosen[:1], names)
    for path in (args.json, args.html):
        writable(path)
    settings = settings_of(args)
    progress = report_terminal.Progress()
    try:
        plan = Plan(names, baseline=args.baseline)
        found = run_all(chosen, plan, progress, settings)
    finally:
        progress.clear()
    found["where_time_goes"] = list(app.where_time_goes(found))
    found["gains"] = list(app.gains(found))
    print(
        f"{args.app}: {kind['interface'].upper()}" + (f", {kind['framework']}" if kind["framework"] else "")
    )
    print(report_terminal.text(found))
    print("\n".join(["", *found["where_time_goes"], *found["gains"]]))
    write(found, args.json)
    write_page(found, args.html)
    return status(found)


def settings_of(args: argparse.Namespace) -> Settings:
    """How much is measured, from the options."""
    base = QUICK if args.quick else Settings()
    rounds = base.rounds if args.rounds is None else args.rounds
    seconds = base.seconds if args.seconds is None else args.seconds
    restart = base.restart_every if args.restart_every is None else args.restart_every
    if rounds < 1 or restart < 1:
        raise UsageError("--rounds and --restart-every must be 1 or more")
    if not math.isfinite(seconds) or not 0.05 <= seconds <= 3600:
        raise UsageError("--seconds must be from 0.05 to 3600")
    return Settings(rounds, seconds, restart, base.warmup_step, base.warmup_limit, args.seed)


def words(text: str) -> list[str]:
    """The words of ``a,b``."""
    return [word.strip() for word in text.split(",") if word.strip()]


def check_cases(chosen: Sequence[Scenario], cases: Sequence[str]) -> None:
    """Refuse a case that none of the scenarios has."""
    known = {case.name for scenario in chosen for case in scenario.cases}
    for case in cases:
        if case not in known:
            raise UsageError(f"no case {case!r}; there are: {', '.join(sorted(known))}")


def writable(where: str | None) -> None:
    """Refuse a file that cannot be written before measuring for minutes, not after."""
    if where is None:
        return
    try:
        with Path(where).open("a"):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {where}: {error.strerror}") from None


def write(document: dict[str, Any], where: str | None) -> None:
    """Write a document as JSON."""
    if where is not None:
        Path(where).write_text(json.dumps(document, indent=1) + "\n")


def write_page(document: dict[str, Any], where: str | None) -> None:
    """Write a document as a page."""
    if where is not None:
        Path(where).write_text(report_html.page(document))
