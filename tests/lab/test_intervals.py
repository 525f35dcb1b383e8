"""Intervals over few runs: coverage, what a single run gives, ratios and powers of known value."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchbandits.lab import intervals
from sketchbandits.lab.growth import exponent
from sketchbandits.lab.intervals import Interval, interval, ratio


def percentile_interval(values, resamples=4_000):
    """What a textbook's bootstrap gives: the control of the test below."""
    chosen = np.random.default_rng(1).integers(len(values), size=(resamples, len(values)))
    return np.quantile(values[chosen].mean(axis=1), [0.025, 0.975])


def coverage(samples, mean, of):
    ends = np.array([of(values) for values in samples])
    return ((ends[:, 0] <= mean) & (mean <= ends[:, 1])).mean()


def test_five_normal_runs_are_covered_as_promised_and_a_plain_bootstrap_would_not(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 5_000)  # two thousand intervals in a second
    samples = 7.0 + 3.0 * np.random.default_rng(1).standard_normal((2_000, 5))
    # Student's alone would give 0.95; these two thousand have a standard error of 0.005.
    assert 0.93 <= coverage(samples, 7.0, lambda values: interval(values)[1:]) <= 0.995
    assert coverage(samples, 7.0, percentile_interval) < 0.88


@pytest.mark.parametrize("n", [2, 3, 4, 10])
def test_other_numbers_of_runs_are_covered_too(monkeypatch, n):
    monkeypatch.setattr(intervals, "RESAMPLES", 2_000)
    samples = 7.0 + 3.0 * np.random.default_rng(n).standard_normal((1_000, n))
    assert 0.92 <= coverage(samples, 7.0, lambda values: interval(values)[1:]) <= 0.99


def test_three_runs_by_hand():
    mean, low, high = interval([1.0, 2.0, 6.0])
    half = 4.302652729749464 * math.sqrt(7.0 / 3.0)  # Student, 2 degrees of freedom, 97.5 %
    assert (mean, low, high) == pytest.approx((3.0, 3.0 - half, 3.0 + half))


def test_it_leaves_the_data_where_student_does_and_follows_it():
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    mean, low, high = interval(values)
    half = 2.7764451052 * math.sqrt(37.2 / 5)  # Student, 4 degrees of freedom, 97.5 %
    assert mean == 6.2
    assert low == pytest.approx(mean - half) and low < 1.0
    assert mean + half < high <= 16.0  # the bootstrap knows that the data are skewed
    moved = interval(3.0 * values + 10.0)
    assert moved == pytest.approx((3.0 * mean + 10.0, 3.0 * low + 10.0, 3.0 * high + 10.0))
    wider = interval(np.append(values, 100.0))
    assert wider.high - wider.low > high - low


def test_five_runs_by_enumeration():
    values = np.array([0.0, 1.0, 2.3, 4.1, 7.9])
    means = np.array(list(itertools.product(values, repeat=5))).mean(axis=1)  # all resamples there are
    tail = 9.541e-4  # of a normal law beyond 2.776445 sqrt(5/4): Student's quantile, and n instead of n - 1
    half = 2.7764451052 * values.std(ddof=1) / math.sqrt(5)
    for end, side in ((interval(values).low, 1.0), (interval(values).high, -1.0)):
        nearer, farther = np.minimum(np.quantile(side * means, [1.7 * tail, 0.5 * tail]), side * values.mean() - half)
        assert farther - 1e-8 <= side * end <= nearer + 1e-8


def test_more_runs_narrow_it():
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    widths = [interval(np.tile(values, times)).high - interval(np.tile(values, times)).low for times in (1, 2, 8)]
    assert widths[0] > 1.4 * widths[1] > 1.4 * 1.9 * widths[2]


def test_the_same_runs_give_the_same_interval():
    values = np.random.default_rng(0).standard_normal(6)
    assert interval(values) == interval(values.tolist()) == interval(values)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_equal_runs_give_a_point(n):
    assert interval([0.75] * n) == (0.75, 0.75, 0.75)


def test_a_single_run_has_no_ends_and_takes_no_side():
    for single in (interval([3.0]), ratio([6.0], [2.0]), exponent([1, 2, 4], np.array([[1.0, 8.0, 64.0]]))):
        assert single.mean == pytest.approx(3.0)
        assert math.isnan(single.low) and math.isnan(single.high)
        assert single.side(-100.0) == single.side(100.0) == "unclear"
        assert single.inside(-100.0, 100.0) == single.inside(50.0, 100.0) == "unclear"


def test_sides():
    found = Interval(2.0, 1.0, 3.0)
    assert [found.side(value) for value in (0.9, 1.0, 2.0, 3.0, 3.1)] == [
        "above", "unclear", "unclear", "unclear", "below",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.9, 3.1, "inside"),
        (1.0, 3.1, "unclear"),
        (0.9, 3.0, "unclear"),
        (1.5, 2.5, "unclear"),
        (0.0, 2.0, "unclear"),
        (0.0, 0.9, "outside"),
        (0.0, 1.0, "unclear"),
        (3.1, 4.0, "outside"),
        (3.0, 4.0, "unclear"),
    ],
)
def test_inside(low, high, expected):
    assert Interval(2.0, 1.0, 3.0).inside(low, high) == expected


def test_a_ratio_is_the_geometric_mean_of_paired_ratios():
    denominator = np.array([1.0, 10.0, 100.0, 1000.0, 10_000.0])  # pairing matters: alone they spread by decades
    factors = np.array([1.9, 2.0, 2.1, 2.0, 2.0])
    found = ratio(denominator * factors, denominator)
    assert found.mean == pytest.approx(math.exp(np.log(factors).mean()), rel=1e-12)
    assert 1.85 < found.low < found.mean < found.high < 2.15
    upside_down = ratio(denominator, denominator * factors)
    assert upside_down == pytest.approx((1 / found.mean, 1 / found.high, 1 / found.low), rel=0.01)
    assert ratio([3.0] * 4, [3.0] * 4) == (1.0, 1.0, 1.0)


def test_no_regret_at_all_is_less_than_any():
    zero, some = np.zeros(5), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    for found, side in ((ratio(zero, some), "below"), (ratio(some, zero), "above")):
        assert np.isfinite(found).all() and found.side(1.0) == side
    assert ratio(zero, zero) == (1.0, 1.0, 1.0)
    assert np.isfinite(exponent([1, 2, 4], np.array([[0.0, 1.0, 2.0]] * 5))).all()


@settings(deadline=None, max_examples=30)
@given(st.floats(-3.0, 3.0), st.floats(0.01, 100.0), st.sampled_from([1, 2, 5]))
def test_the_power_of_a_power_law_is_found(power, factor, runs):
    sizes = (3, 7, 20, 31)
    values = factor * np.outer(np.arange(1, runs + 1), np.array(sizes, dtype=float) ** power)
    assert exponent(sizes, values).mean == pytest.approx(power, abs=1e-9)


def test_the_power_has_an_interval_over_runs():
    sizes, powers = np.array([64, 256, 1024]), np.array([0.9, 0.95, 1.0, 1.05, 1.1])
    found = exponent(sizes, sizes[None, :] ** powers[:, None])
    assert found.mean == pytest.approx(1.0)
    assert 0.9 <= found.low < 0.96 and 1.04 < found.high <= 1.1
