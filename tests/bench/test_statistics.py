"""Statistics of the bench: intervals that hold the truth, ratios by pairs, verdicts that do not overclaim."""

from __future__ import annotations

import random

import pytest
from headrace.bench.statistics import Interval, interval, noise_floor, ratio, steady, verdict


def sample(source: random.Random, centre: float, blocks: int = 3, rounds: int = 4) -> list[list[float]]:
    """Rounds about a centre, with a shift for each block."""
    return [
        [centre * source.gauss(1, 0.01) * shift for _ in range(rounds)]
        for shift in [source.gauss(1, 0.01) for _ in range(blocks)]
    ]


def test_the_interval_holds_the_median_and_grows_with_the_spread():
    narrow = interval([[10.0, 10.1, 9.9], [10.0, 10.05, 9.95]])
    wide = interval([[10.0, 14.0, 6.0], [9.0, 13.0, 8.0]])
    assert narrow is not None and wide is not None
    assert narrow.low <= narrow.value <= narrow.high
    assert wide.high - wide.low > narrow.high - narrow.low


def test_the_interval_of_equal_values_is_a_point():
    assert interval([[5.0, 5.0], [5.0]]) == Interval(5.0, 5.0, 5.0)


def test_no_values_have_no_interval():
    assert interval([]) is None
    assert interval([[], []]) is None


def test_the_interval_of_a_ratio_holds_the_truth_about_as_often_as_it_says():
    source = random.Random(7)
    held = 0
    for trial in range(60):
        found = ratio(sample(source, 12.0, 6), sample(source, 10.0, 6), seed=trial)
        assert found is not None
        held += found.low <= 1.2 <= found.high
    # 95 % promised; a bootstrap over six blocks gives somewhat less.
    assert held >= 48


def test_a_ratio_pairs_rounds_so_that_shared_disturbance_cancels():
    theirs = [[10.0, 20.0, 10.0], [40.0, 10.0]]
    ours = [[value * 0.8 for value in block] for block in theirs]
    found = ratio(ours, theirs)
    assert found is not None
    assert found.low == pytest.approx(0.8) and found.high == pytest.approx(0.8)


def test_a_ratio_passes_over_rounds_that_one_side_lacks():
    found = ratio([[8.0, 0.0]], [[10.0, 10.0]])
    assert found == Interval(0.8, 0.8, 0.8)
    assert ratio([[0.0]], [[10.0]]) is None


def test_blocks_are_the_outer_level():
    # All spread lies between blocks: resampling rounds alone would see twelve values and claim too much.
    blocks = [[10.0] * 6, [12.0] * 6]
    found = interval(blocks)
    assert found is not None
    assert (found.low, found.high) == (10.0, 12.0)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([10.0, 10.1, 10.2], True),
        ([30.0, 20.0, 10.0, 10.1, 10.2], True),
        ([30.0, 20.0, 10.0], False),
        ([10.0, 10.0], False),
        ([10.0, 0.0, 10.0], False),
    ],
)
def test_steady_wants_three_steps_that_agree(steps: list[float], expected: bool):
    assert steady(steps) is expected


def test_the_noise_floor_is_the_furthest_limit():
    assert noise_floor(Interval(1.005, 0.98, 1.01)) == pytest.approx(0.02)
    assert noise_floor(None) is None


@pytest.mark.parametrize(
    ("found", "floor", "objections", "kind", "part"),
    [
        (Interval(0.57, 0.55, 0.59), 0.01, [], "better", "43.0% less"),
        (Interval(1.30, 1.25, 1.35), 0.01, [], "worse", "30.0% more"),
        (Interval(5.00, 4.80, 5.20), 0.01, [], "worse", "5.0 times"),
        (Interval(0.99, 0.97, 1.01), 0.001, [], "cannot tell", "-3.0% to +1.0%"),
        (Interval(0.98, 0.97, 0.99), 0.03, [], "cannot tell", "differs from itself"),
        (Interval(0.57, 0.55, 0.59), 0.01, ["errors in 2 of 8 rounds"], "withheld", "errors in 2 of 8"),
        (None, None, [], "withheld", "no round"),
    ],
)
def test_a_verdict_is_a_sentence_with_its_interval(found, floor, objections, kind, part):
    said = verdict("ours", "theirs", found, floor, objections)
    assert said.kind == kind
    assert part in said.sentence
    assert "ours" in said.sentence and "theirs" in said.sentence
