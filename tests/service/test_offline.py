"""Offline estimates are unbiased where they claim to be, and controls that leave out what makes them so are not."""

import numpy as np
import pytest
from conftest import rounds

from sketchbandits import OFUL, UCB1, LinTS
from sketchbandits.offline import ips, replay, replay_estimator
from sketchbandits.offline.estimates import TOO_FEW, Figure, bounded_mean
from sketchbandits.offline.logged import EVERY_ARM, LoggedDecisions

MEANS = np.array([0.9, 0.8, 0.1, 0.2, 0.4])
SETS = (np.array([0, 1]), np.array([2, 3, 4]))
EXPLORATION = 0.6
ARMS = np.eye(5, 7) + 0.1


class Optimist:
    """A small learning policy in plain Python: the largest mean plus a width, among the arms available."""

    n_arms = MEANS.size

    def __init__(self):
        self.sums, self.counts = [0.0] * self.n_arms, [0] * self.n_arms

    def copy(self):
        twin = Optimist()
        twin.sums, twin.counts = self.sums.copy(), self.counts.copy()
        return twin

    def bound(self, arm):
        n = self.counts[arm]
        return self.sums[arm] / n + 0.3 / n**0.5 if n else 10.0 - arm

    def select(self, available=None):
        return max(range(self.n_arms) if available is None else available.tolist(), key=self.bound)

    def update(self, arm, reward):
        self.sums[arm] += reward
        self.counts[arm] += 1

    def update_many(self, arms, rewards):
        for arm, reward in zip(arms.tolist(), rewards.tolist(), strict=True):
            self.update(arm, reward)

    def play(self, batch, *, learn):
        choices = []
        for arm, reward in zip(*map(np.ndarray.tolist, batch), strict=True):
            choices.append(self.select())
            if choices[-1] == arm:
                self.update(arm, reward)
        return np.array(choices, np.int64)


def adaptive_logs(count, size, seed):
    """Logs of a learning policy: with exploration, whatever arm has the best mean so far. All logs side by side."""
    generator = np.random.default_rng(seed)
    n, every = MEANS.size, np.arange(count)
    sums, pulls = np.zeros((count, n)), np.ones((count, n))
    arms, probabilities, rewards = np.empty((3, count, size))
    for t in range(size):
        own = np.argmax(sums / pulls, axis=1)
        chosen = np.where(generator.random(count) < EXPLORATION, generator.integers(n, size=count), own)
        reward = MEANS[chosen] + generator.normal(size=count) * 0.3
        sums[every, chosen] += reward
        pulls[every, chosen] += 1
        arms[:, t], rewards[:, t] = chosen, reward
        probabilities[:, t] = EXPLORATION / n + (1 - EXPLORATION) * (chosen == own)
    parts = zip(arms.astype(np.int64), probabilities, rewards, strict=True)
    return [LoggedDecisions(*part, n_arms=n, exploration=EXPLORATION) for part in parts]


def logs_among_sets(count, size, seed):
    """Two or three arms to choose from; the logging policy's own are the best of two and the worst of three."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        chosen_from = generator.integers(2, size=size)
        own, sizes = np.array([0, 2])[chosen_from], np.array([2, 3])[chosen_from]
        drawn = np.array([0, 2])[chosen_from] + (generator.random(size) * sizes).astype(np.int64)
        arms = np.where(generator.random(size) < EXPLORATION, drawn, own)
        probabilities = EXPLORATION / sizes + (1 - EXPLORATION) * (arms == own)
        rewards = MEANS[arms] + generator.normal(size=size) * 0.3
        yield LoggedDecisions(arms, probabilities, rewards, MEANS.size, EXPLORATION, SETS, chosen_from)


def live_mean(generator, size, sets):
    """What the policy earns in rounds of its own, as many as a log of ``size`` decisions gives it."""
    policy, total = Optimist(), 0.0
    played = generator.binomial(size, EXPLORATION / (3 if sets else MEANS.size))
    for _ in range(played):
        arm = policy.select(SETS[generator.integers(2)] if sets else None)
        total += MEANS[arm]
        policy.update(arm, MEANS[arm] + generator.normal() * 0.3)
    return total / played


def live(count, size, sets=False):
    generator = np.random.default_rng(99)
    return Figure.of(np.array([live_mean(generator, size, sets) for _ in range(count)]))


def distance(estimates, truth):
    """In standard errors."""
    found = Figure.of(np.array(estimates))
    return abs(found.mean - truth.mean) / np.hypot(found.error, truth.error)


def test_replay_is_unbiased_and_its_interval_covers():
    truth = live(400, 500)
    figures = [replay(log, Optimist, name="optimist").estimate for log in adaptive_logs(120, 500, 1)]
    assert distance([figure.mean for figure in figures], truth) < 4
    covered = np.mean([figure.low <= truth.mean <= figure.high for figure in figures])
    assert covered > 0.95
    spread = np.std([figure.mean for figure in figures])
    assert spread < np.mean([figure.error for figure in figures]) < 2.5 * spread


def test_replay_among_sets_is_unbiased():
    truth = live(400, 600, sets=True)
    found = [
        replay(log, Optimist, name="optimist", repetitions=2).estimate.mean for log in logs_among_sets(150, 600, 2)
    ]
    assert distance(found, truth) < 4


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda log, places: 1.0, id="no rejection"),
        pytest.param(lambda log, places: log.exploration / log.sizes[places], id="uniform, but not across sizes"),
    ],
)
def test_control_replay_with_wrong_rejection_is_biased(monkeypatch, wrong):
    monkeypatch.setattr(replay_estimator, "least_probability", wrong)
    truth = live(400, 600, sets=True)
    found = [
        replay(log, Optimist, name="optimist", repetitions=2).estimate.mean for log in logs_among_sets(150, 600, 2)
    ]
    assert distance(found, truth) > 8


def ips_errors(logs):
    """How far each estimate is from the mean reward of what the frozen policy chooses."""
    for log in logs:
        policy = Optimist()
        half = log.arms.size // 2
        policy.update_many(log.arms[:half], log.rewards[:half])
        if log.chosen_from is None:
            truth = MEANS[policy.select()]
        else:
            truth = MEANS[np.array([policy.select(chosen) for chosen in SETS])[log.chosen_from[half:]]].mean()
        result = ips(log, Optimist, name="optimist", reward_range=(-2.0, 3.0))
        yield np.array([*result.figures.values()])[:2] - truth


@pytest.mark.parametrize("logs", [adaptive_logs, logs_among_sets])
def test_ips_is_unbiased_and_its_interval_covers(logs):
    errors = np.array(list(ips_errors(logs(200, 500, 3))))  # log, self-normalised or IPS, field of a Figure
    for estimator in range(2):
        assert distance(errors[:, estimator, 0], Figure.normal(0.0, 0.0)) < 4
    low, high = errors[:, 1, 2], errors[:, 1, 3]
    assert np.mean((low <= 0) & (high >= 0)) > 0.95


def test_control_ips_that_takes_the_log_for_uniform_is_biased():
    errors = []
    for log in adaptive_logs(200, 500, 3):
        policy, half = Optimist(), 250
        policy.update_many(log.arms[:half], log.rewards[:half])
        choice = policy.select()
        weights = (log.arms[half:] == choice) * MEANS.size
        errors.append(np.mean(weights * log.rewards[half:]) - MEANS[choice])
    assert distance(errors, Figure.normal(0.0, 0.0)) > 8


def test_the_interval_of_bounded_means_narrows_and_covers():
    generator = np.random.default_rng(0)
    draws = generator.binomial(1, 0.3, size=(100, 2_000)) * 4.0 - 1.0  # -1 or 3, mean 0.2
    ends = np.array([bounded_mean(row, -1.0, 3.0) for row in draws])
    assert ((ends[:, 0] <= 0.2) & (ends[:, 1] >= 0.2)).mean() > 0.95
    assert (ends[:, 1] - ends[:, 0]).max() < 0.25  # the normal interval has 0.16
    assert bounded_mean(np.ones(10), 1.0, 1.0) == (1.0, 1.0)


def test_among_sets_a_policy_plays_as_it_plays_compiled():
    [log] = adaptive_logs(1, rounds(3_000, 300), 5)
    for policy in (OFUL(ARMS), UCB1(ARMS), LinTS(ARMS, seed=1)):
        twin, everything = policy.copy(), np.arange(log.arms.size)
        compiled = policy.play((log.arms, log.rewards), learn="matches") == log.arms
        plain = replay_estimator._play_among_sets(twin, log, everything, np.full(log.arms.size, EVERY_ARM))
        assert np.array_equal(plain, compiled) and 0 < plain.sum() < plain.size
        np.testing.assert_array_equal(twin.bounds(), policy.bounds())


def test_available_sets_are_respected():
    [log] = logs_among_sets(1, 200, 6)
    asked = []

    class Watched(Optimist):
        def copy(self):
            return Watched()

        def select(self, available=None):
            if available is not None:
                asked.append(available.tolist())
            return super().select(available)

    replay(log, Watched, name="watched", repetitions=1)
    assert {tuple(one) for one in asked} <= {(0, 1), (2, 3, 4)} and (2, 3, 4) in {tuple(one) for one in asked}


def test_the_same_seed_gives_the_same_report():
    [log] = adaptive_logs(1, 800, 7)
    reports = [replay(log, lambda: OFUL(ARMS), name="oful", seed=seed).text() for seed in (1, 1, 2)]
    assert reports[0] == reports[1] != reports[2]


@pytest.mark.parametrize("estimator", [replay, ips])
def test_a_deterministic_log_is_refused(estimator):
    log = LoggedDecisions(np.array([0, 0, 1]), np.ones(3), np.ones(3), n_arms=2, exploration=0.0)
    with pytest.raises(
        ValueError, match=r"deterministic log.*only of what the logging policy chose.*--exploration 0.05"
    ):
        estimator(log, lambda: UCB1(np.eye(2)), name="ucb1")


@pytest.mark.parametrize("estimator", [replay, ips])
def test_a_report_says_what_is_missing_and_fits_the_page(estimator):
    [log] = adaptive_logs(1, 6_000, 8)
    rewards = log.rewards.copy()
    rewards[::50] = np.nan
    some = LoggedDecisions(log.arms, log.probabilities, rewards, 5, EXPLORATION)
    result = estimator(some, lambda: OFUL(ARMS, noise=0.3), name="oful")
    report = result.text()
    assert result.enough and result.missing == pytest.approx(0.02)
    assert "2.00% of the decisions have no reward" in report and "missing at random" in " ".join(report.split())
    assert "Too few" not in report
    assert max(map(len, report.splitlines())) <= 80
    assert result.estimate.low < MEANS.max() and result.estimate.high > 0.5


def final_until(index, size=1_000):
    return np.arange(size) < index


def with_missing(log, *missing, final):
    rewards = log.rewards.copy()
    rewards[list(missing)] = np.nan
    return LoggedDecisions(log.arms, log.probabilities, rewards, 5, EXPLORATION, final=final)


def test_with_a_deadline_decisions_that_still_wait_are_left_out():
    [log] = adaptive_logs(1, 1_000, 9)
    whole = LoggedDecisions(log.arms[:900], log.probabilities[:900], log.rewards[:900], 5, EXPLORATION)
    early = ips(whole, Optimist, name="optimist")
    for final in (final_until(900), final_until(400)):  # all before the first that waits are kept, however young
        late = ips(with_missing(log, 900, 950, final=final), Optimist, name="optimist")
        assert late.figures == early.figures
        assert "100 decisions are left out" in late.text() and "missing at random" not in late.text()


def test_an_outstanding_decision_drops_only_those_within_one_deadline():
    """A decision of a clock that was ahead waits although later ones are older than the deadline."""
    [log] = adaptive_logs(1, 1_000, 9)
    final = final_until(900)
    final[0] = False
    kept = slice(1, 900)
    whole = LoggedDecisions(log.arms[kept], log.probabilities[kept], log.rewards[kept], 5, EXPLORATION)
    late = ips(with_missing(log, 0, 950, final=final), Optimist, name="optimist")
    assert late.figures == ips(whole, Optimist, name="optimist").figures


def test_a_log_younger_than_its_deadline_is_refused_with_the_reason():
    [log] = adaptive_logs(1, 1_000, 9)
    young = with_missing(log, 0, final=final_until(0))
    with pytest.raises(ValueError, match=r"^the log must hold .* older than the bandit's deadline; 999 younger ones"):
        replay(young, Optimist, name="optimist")


@pytest.mark.parametrize(("estimator", "needed"), [(replay, "834"), (ips, "1,667")])
def test_too_few_is_said(estimator, needed):
    [log] = adaptive_logs(1, 40, 10)
    result = estimator(log, lambda: UCB1(ARMS), name="ucb1")
    assert not result.enough and result.effective < TOO_FEW
    assert "Too few" in result.text() and f"about {needed} decisions" in " ".join(result.text().split())


@pytest.mark.parametrize("estimator", [replay, ips])
def test_no_match_at_all_is_no_number(estimator):
    log = LoggedDecisions(np.array([1, 1]), np.full(2, 0.75), np.ones(2), n_arms=2, exploration=0.5)
    result = estimator(log, lambda: UCB1(np.eye(2)), name="ucb1")
    assert result.effective == 0 and np.isnan(result.estimate.mean)
    assert "Too few" in result.text() and "nan" not in result.text()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arms": np.array([0, 5])}, r"arms\[1\] must be a whole number from 0 to 2"),
        ({"probabilities": np.array([0.5])}, "probabilities must have one entry for each of 2 decisions"),
        ({"probabilities": np.array([0.5, 0.2])}, "probabilities must be 0.25 or 0.75 .* got 0.5 at decision 0"),
        ({"rewards": np.array([1.0, np.inf])}, "rewards must be finite"),
        ({"exploration": 1.5}, "exploration must be a number from 0 to 1"),
        ({"chosen_from": np.array([0, 3])}, "chosen_from must be from -1 to 0"),
        ({"sets": (np.array([1, 2]),)}, "arms must be among those available, got 0 at decision 0"),
        ({"final": np.array([True])}, "final must have one entry for each of 2 decisions"),
        (
            {"final": np.array([True, True])},
            "rewards must be given for decisions that are final.*decision 1",
        ),
    ],
)
def test_a_log_that_cannot_be_is_refused(changed, message):
    good = {
        "arms": np.array([0, 2]),
        "probabilities": np.array([0.75, 0.25]),
        "rewards": np.array([1.0, np.nan]),
        "n_arms": 3,
        "exploration": 0.5,
        "sets": (np.array([0, 2]),),
        "chosen_from": np.array([0, 0]),
    }
    LoggedDecisions(**good)
    with pytest.raises(ValueError, match=message):
        LoggedDecisions(**good | changed)


def test_refused_arguments_are_named():
    [log] = adaptive_logs(1, 50, 11)
    with pytest.raises(ValueError, match="build must make a policy on the log's 5 arms, got one on 7"):
        replay(log, lambda: UCB1(np.eye(7)), name="ucb1")
    with pytest.raises(ValueError, match="repetitions must be a whole number >= 1"):
        replay(log, Optimist, name="optimist", repetitions=0)
    with pytest.raises(ValueError, match="reward_range must hold the log's rewards"):
        ips(log, Optimist, name="optimist", reward_range=(0.0, 0.1))
    empty = LoggedDecisions(log.arms, log.probabilities, np.full(50, np.nan), 5, EXPLORATION)
    with pytest.raises(ValueError, match="at least 2 decisions with rewards, got 0"):
        replay(empty, Optimist, name="optimist")
