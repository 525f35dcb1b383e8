"""The loop: paired noise, independent runs, copies, user policies, contexts, results, refusals."""

import base64
import copy
import dataclasses
import html
import re

import numpy as np
import polars
import pytest
from conftest import rounds
from matplotlib.figure import Figure
from threadpoolctl import threadpool_info, threadpool_limits

from sketchbandits import CBSCFD, CSLB, OFUL, UCB1, LinTS, LinUCB, Result, simulate
from sketchbandits.environments import LabelledEnvironment, LinearEnvironment, correlated_arms, uniform_parameter
from sketchbandits.progress import Bar

T = rounds(3_000, 80)


@pytest.fixture
def env():
    arms = correlated_arms(n_arms=17, dim=6, seed=0)
    return LinearEnvironment(arms, uniform_parameter(6, seed=0))


class Mine:
    """A user's own policy: pure Python, no base class; by default the library's OFUL behind its two methods."""

    def __init__(self, policy):
        self.policy = policy

    def select(self):
        return self.policy.select()

    def update(self, arm, reward):
        self.policy.update(arm, reward)


def test_every_policy_meets_the_same_noise(env):
    result = simulate(env, {"a": OFUL(env.arms), "b": OFUL(env.arms)}, rounds=T, runs=3, seed=4)
    assert np.array_equal(result.regret["a"], result.regret["b"])
    assert len(set(result.final_regret["a"])) == 3  # runs differ


def test_same_seed_same_result_whichever_others_play(env):
    alone = simulate(env, {"a": LinTS(env.arms, seed=1)}, rounds=T, runs=2, seed=4)
    together = simulate(env, {"ucb": UCB1(env.arms), "a": LinTS(env.arms, seed=1)}, rounds=T, runs=2, seed=4)
    other = simulate(env, {"a": LinTS(env.arms, seed=1)}, rounds=T, runs=2, seed=5)
    assert np.array_equal(alone.regret["a"], together.regret["a"])
    assert not np.array_equal(alone.regret["a"], other.regret["a"])
    sequence = np.random.SeedSequence(9)
    twice = [simulate(env, {"a": OFUL(env.arms)}, rounds=50, seed=sequence).final_regret["a"] for _ in range(2)]
    assert np.array_equal(*twice)


def test_a_policy_that_draws_gets_a_stream_per_run(env):
    result = simulate(
        env, {"a": LinTS(env.arms, seed=1, scale=5.0)}, rounds=30, runs=2, seed=4, checkpoints=range(1, 31)
    )
    assert not np.array_equal(result.regret["a"][0], result.regret["a"][1])


def test_a_policys_own_seed_matters_too(env):
    policies = {"one": LinTS(env.arms, seed=1), "two": LinTS(env.arms, seed=2), "again": LinTS(env.arms, seed=1)}
    regret = simulate(env, policies, rounds=40, seed=4).final_regret
    assert regret["one"] == regret["again"] != regret["two"]


def test_checkpoints_do_not_change_the_run(env):
    policies = {"a": CSLB(env.arms, sketch_size=2)}
    every = simulate(env, policies, rounds=50, seed=1, checkpoints=range(1, 51))
    some = simulate(env, policies, rounds=50, seed=1, checkpoints=[7, 20])
    assert every.checkpoints.tolist() == list(range(1, 51))
    assert some.checkpoints.tolist() == [7, 20, 50]
    assert np.allclose(some.regret["a"][0], every.regret["a"][0, [6, 19, 49]], rtol=1e-12)
    assert (np.diff(every.regret["a"][0]) >= 0).all()


def test_regret_is_the_sum_of_gaps_of_the_arms_played(env):
    policy = UCB1(env.arms)
    result = simulate(env, {"a": policy}, rounds=env.n_arms, seed=1)  # every arm once
    assert result.final_regret["a"][0] == pytest.approx(env.gaps.sum())


def test_policies_passed_in_are_not_changed_and_may_have_learned(env):
    policy = OFUL(env.arms)
    simulate(env, {"a": policy}, rounds=T, seed=1)
    assert policy.counts.sum() == 0
    for arm in range(env.n_arms):
        for _ in range(200):
            policy.update(arm, float(env.means[arm]))
    taught = simulate(env, {"taught": policy, "new": OFUL(env.arms)}, rounds=T, seed=1).final_regret
    assert taught["taught"][0] < taught["new"][0]


def test_a_users_own_policy_plays_in_the_same_rounds(env):
    policies = {"library": OFUL(env.arms), "mine": Mine(OFUL(env.arms))}
    result = simulate(env, policies, rounds=T, runs=2, seed=2)
    assert np.allclose(result.regret["library"], result.regret["mine"], rtol=1e-12)
    assert policies["mine"].policy.counts.sum() == 0  # it was copied too


def test_a_subclass_that_overrides_select_is_not_bypassed(env):
    class Stubborn(OFUL):
        def select(self):
            return 3

    result = simulate(env, {"a": Stubborn(env.arms)}, rounds=10, seed=2)
    assert result.final_regret["a"][0] == pytest.approx(10 * env.gaps[3])


def test_a_radius_function_plays_too(env):
    policies = {"constant": LinUCB(env.arms, alpha=0.7), "function": OFUL(env.arms, radius=lambda n, logdet: 0.7)}
    result = simulate(env, policies, rounds=rounds(500, 60), seed=2)
    assert np.allclose(result.regret["constant"], result.regret["function"], rtol=1e-12)


def test_a_wrong_choice_is_reported(env):
    class Lost:
        def select(self):
            return 99

        def update(self, arm, reward):
            raise AssertionError("never reached")

    with pytest.raises(ValueError, match="selected arm 99, must be from 0 to 16"):
        simulate(env, {"lost": Lost()}, rounds=5)


def test_blas_has_one_thread_while_playing_and_its_own_afterwards(env):
    def blas():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    class Watcher(Mine):
        def select(self):
            seen.extend(blas())
            return 0

    seen = []
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas()
        simulate(env, {"a": Watcher(UCB1(env.arms))}, rounds=2)
        assert set(seen) == {1}
        assert blas()[: len(before)] == before


class TwoCoins:
    """A user's own environment: what the protocol of fixed arms asks for, and nothing else."""

    contextual = False
    n_arms = 2
    means = np.array([0.2, 0.7])
    gaps = np.array([0.5, 0.0])

    def draw_noise(self, generator, size):
        return generator.uniform(-0.2, 0.2, size)


class Signs:
    """The same for contexts: three in a round, worth their first entry."""

    contextual = True
    dim = 2

    def contexts(self, generator):
        rows = generator.choice([-0.5, 0.5], size=(3, 2))
        return rows, rows[:, 0]

    def draw_noise(self, generator, size):
        return np.zeros(size)


def test_a_users_own_environment_plays():
    n = rounds(300, 100)
    fixed = simulate(TwoCoins(), {"ucb1": UCB1(np.eye(2)), "mine": Mine(OFUL(np.eye(2)))}, rounds=n, seed=3)
    assert all(0.0 < regret.item() < 0.5 * 0.5 * n for regret in fixed.final_regret.values())
    contextual = simulate(Signs(), {"oful": OFUL.contextual(dim=2, noise=0.1)}, rounds=n, seed=3)
    assert contextual.final_regret["oful"].item() < 0.1 * n


# Labels are not linear in the pixels: what the fit leaves over is far more than this noise.
@pytest.mark.filterwarnings("ignore::sketchbandits.AssumptionWarning")
def test_digits_are_learned_as_a_contextual_bandit():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    env = LabelledEnvironment(digits.data, digits.target, target=3)
    policies = {
        "oful": OFUL.contextual(dim=64, noise=0.05, radius="logdet"),
        "cbscfd": CBSCFD.contextual(dim=64, sketch_size=20, noise=0.05),
    }
    n = rounds(600, 150)
    result = simulate(env, policies, rounds=n, runs=2, seed=1)
    chance = 0.9 * n
    assert (result.final_regret["oful"] < rounds(30, 60) / 100 * chance).all()
    assert (result.final_regret["cbscfd"] < rounds(40, 80) / 100 * chance).all()
    assert (result.seconds["oful"] > 0).all()


def test_times_and_tables(env):
    policies = {"cs-lb": CSLB(env.arms, sketch_size=2), "ucb1": UCB1(env.arms)}
    result = simulate(env, policies, rounds=T, runs=3, seed=0)
    assert (result.rounds, result.runs, result.policies) == (T, 3, ["cs-lb", "ucb1"])
    assert all((result.seconds[name] > 0).all() for name in policies)
    assert result.warmup_seconds["cs-lb"] == policies["cs-lb"].warmup_seconds > 0
    assert repr(result).startswith(f"Result({T:,} rounds, 3 runs, mean final regret: cs-lb ")
    frame, points = result.frame(), len(result.checkpoints)
    assert frame.columns == ["policy", "run", "round", "regret"]
    assert len(frame) == 2 * 3 * points
    last = frame.filter((polars.col("policy") == "ucb1") & (polars.col("run") == 2) & (polars.col("round") == T))
    assert last["regret"].to_list() == [result.final_regret["ucb1"][2]]
    summary = result.summary()
    assert summary.columns == ["policy", "run", "rounds", "regret", "seconds", "warmup_seconds"]
    assert summary.filter(polars.col("policy") == "cs-lb")["regret"].to_list() == result.final_regret["cs-lb"].tolist()


def test_results_are_equal_by_value(env):
    result = simulate(env, {"ucb1": UCB1(env.arms), "oful": OFUL(env.arms)}, rounds=20, runs=2, seed=[1, 2])
    same = Result(*copy.deepcopy([getattr(result, field.name) for field in dataclasses.fields(result)]))
    assert result == same
    changes = {
        "checkpoints": result.checkpoints + 1,
        "regret": {**result.regret, "oful": result.regret["oful"] + 1.0},
        "seconds": {"ucb1": result.seconds["ucb1"]},
        "warmup_seconds": {"ucb1": -1.0, "oful": -1.0},
        "seed": [1, 3],
    }
    for field, value in changes.items():
        assert result != dataclasses.replace(same, **{field: value}), field
    assert result != "a result"
    with pytest.raises(TypeError, match="unhashable"):
        hash(result)


def test_bands_cover_the_mean_and_widen_with_the_level(env):
    result = simulate(env, {"a": UCB1(env.arms)}, rounds=T, runs=4, seed=0)
    mean = result.regret["a"].mean(axis=0)
    low, high = result.band("a")
    wide_low, wide_high = result.band("a", level=0.999)
    assert np.allclose((low + high) / 2, mean)
    assert wide_low[-1] < low[-1] < high[-1] < wide_high[-1]
    t_quantile = 3.182446305  # Student, 3 degrees of freedom, 97.5 %
    assert np.allclose(high - mean, t_quantile * result.regret["a"].std(axis=0, ddof=1) / 2)
    single = simulate(env, {"a": UCB1(env.arms)}, rounds=20, seed=0)
    assert np.array_equal(*single.band("a"))
    with pytest.raises(ValueError, match="policy must be one of 'a', got 'b'"):
        result.band("b")


def test_plot_draws_a_curve_and_a_band_for_every_policy(env):
    result = simulate(env, {"one": UCB1(env.arms), "two": OFUL(env.arms)}, rounds=T, runs=3, seed=0)
    figure = result.plot()
    assert isinstance(figure, Figure)
    (ax,) = figure.axes
    assert [line.get_label() for line in ax.get_lines()] == ["one", "two"]
    assert len(ax.collections) == 2
    assert ax.get_lines()[0].get_ydata()[-1] == pytest.approx(result.mean("one")[-1])
    order = [text.get_text() for text in ax.get_legend().get_texts()]
    assert order == sorted(result.policies, key=lambda name: -result.mean(name)[-1])
    mine = Figure().add_subplot()
    assert result.plot(mine) is mine.get_figure()


def test_a_notebook_shows_a_table_and_a_figure(env):
    result = simulate(env, {"<ucb1>": UCB1(env.arms), "oful": OFUL(env.arms)}, rounds=T, runs=2, seed=0)
    page = result._repr_html_()
    assert page.startswith(f"<p>{T:,} rounds, runs: 2</p><table>")
    names = sorted(result.policies, key=lambda name: result.mean(name)[-1])
    places = [page.index(f"<th>{html.escape(name)}</th><td>{result.mean(name)[-1]:,.1f}</td>") for name in names]
    assert places == sorted(places)  # the least regret first
    assert "<ucb1>" not in page
    image = base64.b64decode(re.search(r'src="data:image/png;base64,([^"]+)"', page).group(1))
    assert image.startswith(b"\x89PNG")
    single = simulate(env, {"a": UCB1(env.arms)}, rounds=20, seed=0)
    assert "one run only" in single._repr_html_()
    assert repr(single).startswith("Result(20 rounds, 1 run, ")


def test_progress_is_the_share_of_all_rounds_and_a_function_gets_the_rounds(env, monkeypatch):
    shown, played = [], []
    monkeypatch.setattr(Bar, "show", lambda self, share, what: shown.append((share, what)))
    policies = {"ucb1": UCB1(env.arms), "oful": OFUL(env.arms)}
    simulate(env, policies, rounds=40, runs=2, checkpoints=[10, 40])
    assert [share for share, _ in shown] == [n / 160 for n in (10, 40, 50, 80, 90, 120, 130, 160)]
    assert [what for _, what in shown[::2]] == ["ucb1, run 1", "oful, run 1", "ucb1, run 2", "oful, run 2"]
    simulate(env, policies, rounds=40, runs=2, checkpoints=[10, 40], progress=played.append)
    assert played == [10, 30] * 4


@pytest.mark.parametrize("wanted", [True, False, None])
def test_progress_asks_for_the_bar_that_is_wanted(env, wanted, monkeypatch):
    asked, build = [], Bar.__init__
    monkeypatch.setattr(Bar, "__init__", lambda self, wanted: asked.append(wanted) or build(self, wanted))
    simulate(env, {"a": UCB1(env.arms)}, rounds=5, progress=wanted)
    assert asked == [wanted]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"rounds": 2.5}, "rounds must be a whole number >= 1, got 2.5"),
        ({"runs": -1}, "runs must be a whole number >= 1, got -1"),
        ({"policies": {}}, "policies must be a non-empty dictionary"),
        ({"policies": [1]}, "policies must be a non-empty dictionary"),
        ({"policies": {"x": 5}}, r"policies\['x'\] must have select and update, got 5"),
        ({"policies": {"x": UCB1(np.eye(3))}}, r"policies\['x'\] must have the environment's 17 arms, got 3"),
        ({"policies": {"x": OFUL.contextual(dim=6)}}, r"policies\['x'\] must be built on arms"),
        ({"checkpoints": [0, 5]}, "checkpoints must be whole numbers from 1 to rounds = 20"),
        ({"checkpoints": [30]}, "checkpoints must be whole numbers from 1 to rounds = 20"),
        ({"seed": "x"}, "seed must be a whole number >= 0, a SeedSequence"),
    ],
)
def test_bad_arguments_are_named(env, change, message):
    arguments = {"policies": {"a": UCB1(env.arms)}, "rounds": 20, **change}
    policies = arguments.pop("policies")
    with pytest.raises(ValueError, match=message):
        simulate(env, policies, **arguments)


def test_fixed_policies_are_refused_on_contexts():
    env = LabelledEnvironment(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"policies\['a'\] must be contextual"):
        simulate(env, {"a": UCB1(np.eye(4))}, rounds=5)
    with pytest.raises(ValueError, match=r"policies\['a'\] must have dim = 4, got 5"):
        simulate(env, {"a": OFUL.contextual(dim=5)}, rounds=5)
