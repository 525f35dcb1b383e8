"""Every public policy and sketch against the public checks; and the checks themselves against broken ones."""

import numpy as np
import pytest
from catalogue import CONTEXTUAL, POLICIES, SKETCHES, half_radius, public_policies

import sketchbandits.sketches
from sketchbandits import CSLB, OFUL, SOFUL, UCB1, LinTS, checks


def test_catalogue_holds_every_public_policy_and_sketch():
    arms = np.eye(4)[:3]
    assert {type(make(arms)) for make in POLICIES.values()} == public_policies()
    exported = {getattr(sketchbandits.sketches, name) for name in sketchbandits.sketches.__all__}
    assert {type(make(5)) for make in SKETCHES.values()} == exported
    linear = {cls.__name__ for cls in public_policies() if hasattr(cls, "contextual")}
    assert {make(5).settings["name"] for make in CONTEXTUAL.values()} == linear
    assert linear == {"OFUL", "LinUCB", "LinTS", "SOFUL", "CBSCFD", "DBSLinUCB", "CBRAP", "MultiscaleCSLB"}


@pytest.mark.parametrize("check", checks.POLICY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", POLICIES)
def test_policy(name, check):
    check(POLICIES[name])


@pytest.mark.parametrize("check", checks.CONTEXTUAL_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CONTEXTUAL)
def test_contextual_policy(name, check):
    check(CONTEXTUAL[name])


@pytest.mark.parametrize("check", checks.SKETCH_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SKETCHES)
def test_sketch(name, check):
    check(SKETCHES[name])


class Forgetful(UCB1):
    """Loses a reward now and then."""

    def update(self, arm, reward):
        super().update(arm, reward)
        if self.counts.sum() % 7 == 0:
            self.state.counts[arm] -= 1


class Restless(UCB1):
    """Its bounds change what it chooses."""

    def bounds(self):
        self.state.counts[0] += 1
        return super().bounds()


class Trusting(UCB1):
    """Records whatever it is given."""

    def update(self, arm, reward):
        super().update(int(arm or 0) % self.n_arms, 0.0 if reward is None else float(np.nan_to_num(float(reward))))


class Keeper(UCB1):
    """Keeps the caller's array and reads it later."""

    def __init__(self, arms):
        super().__init__(arms)
        self.mine = arms

    def select(self):
        return int(np.argmin(self.counts)) if self.mine[0, 0] == 7.0 else super().select()


class Hoarder(UCB1):
    """Remembers every reward."""

    def update(self, arm, reward):
        super().update(arm, reward)
        self.state = self.state._replace(factor=np.append(self.state.factor, reward))


class Hurried(UCB1):
    """Records a batch arm by arm, not in its order."""

    def update_many(self, arms, rewards):
        order = np.argsort(arms, kind="stable")[::-1] if len(arms) else []
        super().update_many(np.asarray(arms)[order], np.asarray(rewards)[order])


class Foresighted(UCB1):
    """Its replay says what it chose after each event."""

    def play(self, batch, *, learn="all"):
        choices = super().play(batch, learn=learn)
        return np.append(choices[1:], self.select())


class Eager(UCB1):
    """Records a batch up to its first bad entry."""

    def update_many(self, arms, rewards):
        for arm, reward in zip(arms, rewards, strict=True):
            self.update(arm, reward)


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (Forgetful, "counts must say"),
        (Restless, "must not change the state|must repeat itself"),
        (Trusting, "must raise ValueError"),
        (Keeper, "must be copied"),
        (Hoarder, "must not grow"),
        (Hurried, "what the same calls of update leave"),
        (Foresighted, "what select gave before each event"),
        (Eager, r"must be refused by a message that names 'arms\[2\]'"),
    ],
)
def test_checks_find_broken_policies(broken, sentence):
    with pytest.raises((AssertionError, ValueError), match=sentence):
        checks.check_policy(broken)


def test_check_policy_passes_a_good_one_and_all_of_a_kind():
    checks.check_policy(POLICIES["ucb1"])
    checks.check_contextual_policy(CONTEXTUAL["linucb"])
    checks.check_sketch(SKETCHES["frequent-directions"])


def test_a_lossy_sketch_that_hides_its_loss_is_found():
    class Liar(sketchbandits.sketches.FrequentDirections):
        shrunk_mass = 0.0

    with pytest.raises(AssertionError, match="shrunk mass"):
        checks.check_sketch(lambda dim: Liar(dim, sketch_size=3))


@pytest.mark.parametrize("cls", [OFUL, CSLB, SOFUL])
def test_a_radius_function_is_called_again_and_must_be_passed_to_load(cls, tmp_path):
    arms = np.random.default_rng(0).normal(size=(9, 5))
    extra = {} if cls is OFUL else {"sketch_size": 2}
    policy = cls(arms, radius=half_radius, **extra)
    for t in range(40):
        policy.update(t % 9, float(t % 3))
    policy.save(tmp_path / "p.npz")
    with pytest.raises(ValueError, match="radius must be the function"):
        cls.load(tmp_path / "p.npz")
    twin = cls.load(tmp_path / "p.npz", radius=half_radius)
    assert np.array_equal(twin.bounds(), policy.bounds())
    with pytest.raises(ValueError, match=r"the value of radius\(0, 0\) must be"):
        cls(arms, radius=lambda n, logdet: float("nan"), **extra)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 torn"])
def test_load_refuses_what_save_did_not_write(content, tmp_path):
    path = tmp_path / "state.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"path must be a file written by OFUL\.save"):
        OFUL.load(path)


def test_load_refuses_another_policy_a_torn_file_and_pickles(tmp_path):
    path = tmp_path / "state.npz"
    UCB1(np.eye(3)[:2]).save(path)
    with pytest.raises(ValueError, match="path must be a saved OFUL, got a UCB1"):
        OFUL.load(path)
    whole = path.read_bytes()
    for cut in (10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="path must be"):
            UCB1.load(path)
    np.savez(path, header=np.array({"format": 1}, dtype=object))
    with pytest.raises(ValueError, match="path must be"):
        UCB1.load(path)


def test_save_replaces_the_old_file_whole_or_not_at_all(tmp_path, monkeypatch):
    path, policy = tmp_path / "state.npz", UCB1(np.eye(3)[:2])
    policy.save(path)
    old = path.read_bytes()
    policy.update(0, 1.0)

    def full_disk(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="no space"):
        policy.save(path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]


@pytest.mark.parametrize("make", [OFUL, lambda arms, radius: CSLB(arms, sketch_size=2, radius=radius)])
def test_a_radius_function_that_fails_leaves_the_reward_unrecorded(make):
    def fragile(n, logdet):
        return float("nan") if n >= 3 else 1.0

    policy = make(np.random.default_rng(0).normal(size=(9, 5)), radius=fragile)
    for _ in range(2):
        policy.update(0, 1.0)
    before = policy.bounds(), policy.select(), policy.counts
    with pytest.raises(ValueError, match=r"the value of radius\(3, "):
        policy.update(0, 1.0)
    after = policy.bounds(), policy.select(), policy.counts
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    contextual = OFUL.contextual(dim=5, radius=fragile)
    for _ in range(2):
        contextual.update(np.eye(5)[0], 1.0)
    bounds = contextual.bounds(np.eye(5))
    with pytest.raises(ValueError, match="the value of radius"):
        contextual.update(np.eye(5)[1], 1.0)
    assert np.array_equal(bounds, contextual.bounds(np.eye(5)))


def test_settings_of_numpy_types_are_saved_and_files_can_be_read_by_others(tmp_path):
    policy = LinTS(np.eye(4)[:3], horizon=np.int64(100), scale=np.float32(0.5))
    policy.save(tmp_path / "p.npz")
    assert LinTS.load(tmp_path / "p.npz").settings == policy.settings
    assert (tmp_path / "p.npz").stat().st_mode & 0o777 == 0o644
    with pytest.raises(ValueError, match="radius must be left out"):
        LinTS.load(tmp_path / "p.npz", radius=half_radius)
