"""A whole run fits into its time, measures as much as fits, and keeps its time on a machine slower than planned."""

from __future__ import annotations

import importlib.util

import pytest
from headrace.bench import budget, registry
from headrace.bench.rounds import FEWEST_ROUNDS
from headrace.bench.run import Plan


@pytest.mark.parametrize("slots", [10, 60, 120, 280])
def test_the_best_choice_that_fits_is_taken(slots: int):
    pace = budget.Pace({"a": (slots, 10)}, [], budget.WHOLE, seed=3)
    limit = budget.WHOLE * budget.PLANNED
    seconds = budget.length(slots, 10, pace.planned)
    assert seconds <= limit and pace.planned.seed == 3
    lengths = [budget.length(slots, 10, each) for each in budget.CHOICES]
    assert all(length <= seconds or length > limit for length in lengths)


def test_choices_are_ordered_from_long_to_short():
    lengths = [budget.seconds_of(each) for each in budget.CHOICES]
    assert lengths == sorted(lengths, reverse=True)


def test_a_quick_look_has_ours_and_the_baseline():
    names = budget.leading(registry.scenarios()["tcp-echo"])
    # The scenario's own baseline, or what stands in its place where that is not installed.
    base = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
    assert set(names) == {"headrace", "headrace-streams", base}


def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every contender for installed: no machine has more to measure."""
    monkeypatch.setattr("headrace.bench.run.missing", lambda contender, scenario=None: None)


@pytest.mark.parametrize("slower", [0.5, 1.0, 1.5, 2.0])
def test_a_whole_run_of_every_contender_keeps_its_time(slower: float, monkeypatch: pytest.MonkeyPatch):
    everything(monkeypatch)
    chosen = [each for each in registry.scenarios().values() if not budget.needs_services(each)]
    plan = Plan(without_minor=True)
    now = 0.0
    pace = budget.Pace({each.name: plan.size(each) for each in chosen}, [], budget.WHOLE, 1, lambda: now)
    if slower == 1.0:
        assert pace.planned.rounds >= FEWEST_ROUNDS, "a default run has to give verdicts"
        assert pace.estimate()[0] <= budget.WHOLE
    for scenario in chosen:
        settings = pace.settings(scenario)
        now += slower * budget.length(*plan.size(scenario), settings)
    assert now <= budget.WHOLE
    assert slower > 1 or now > budget.WHOLE / 2, "the time is there to be used"


def test_a_quick_run_keeps_its_time(monkeypatch: pytest.MonkeyPatch):
    everything(monkeypatch)
    chosen = [each for each in registry.scenarios().values() if not budget.needs_services(each)]
    plan = Plan(contenders_of=budget.leading, cases_of=lambda each: [each.cases[0].name])
    pace = budget.Pace({each.name: plan.size(each) for each in chosen}, [], budget.QUICK, 1)
    assert pace.estimate()[0] <= budget.QUICK


def test_scenarios_with_services_come_on_top():
    sizes = {"a": (300, 30), "with": (300, 30)}
    pace = budget.Pace(sizes, ["with"], budget.WHOLE, 1)
    without, served = pace.estimate()
    assert 0 < without <= budget.WHOLE
    assert served == without + budget.SERVICE
    # Their time is not taken from the others', however long they need.
    scenario = registry.scenarios()["broadcast-api"]
    pace = budget.Pace({**sizes, scenario.name: (1000, 1)}, ["with", scenario.name], budget.WHOLE, 1)
    chosen = pace.settings(scenario)
    assert chosen.rounds == pace.planned.rounds
    assert chosen.seconds == scenario.least_seconds > pace.planned.seconds
    assert chosen.warmup_limit > pace.planned.warmup_limit
    assert pace.estimate()[0] == without
