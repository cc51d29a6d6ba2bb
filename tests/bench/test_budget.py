"""A whole run fits into its time, and measures as much as fits."""

from __future__ import annotations

import importlib.util

import pytest
from headrace.bench import budget, registry


@pytest.mark.parametrize("slots", [10, 60, 120, 280])
def test_the_best_choice_that_fits_is_taken(slots: int):
    settings, seconds = budget.fit(slots, budget.WHOLE, seed=3)
    assert seconds <= budget.WHOLE and settings.seed == 3
    lengths = [slots * budget.seconds_of(each) for each in budget.CHOICES]
    assert all(length <= seconds or length > budget.WHOLE for length in lengths)


def test_choices_are_ordered_from_long_to_short():
    lengths = [budget.seconds_of(each) for each in budget.CHOICES]
    assert lengths == sorted(lengths, reverse=True)


def test_a_quick_look_has_ours_and_the_baseline():
    names = budget.leading(registry.scenarios()["tcp-echo"])
    # The scenario's own baseline, or what stands in its place where that is not installed.
    base = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
    assert set(names) == {"headrace", "headrace-streams", base}
