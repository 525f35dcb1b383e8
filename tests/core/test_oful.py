"""OFUL's options: the mixture radius, the ridge that suits the arms, the cap, and what goes together."""

import numpy as np
import pytest

from sketchbandits import OFUL
from sketchbandits.environments import correlated_arms, low_rank_arms
from sketchbandits.policies.effective_rank import suited_ridge
from sketchbandits.policies.fits.ridge import RidgeState

N, D = 23, 7
ARMS = correlated_arms(n_arms=N, dim=D, seed=3)
NORMS = np.linalg.norm(ARMS, axis=1)


def taught(policy, count=80):
    generator = np.random.default_rng(1)
    for _ in range(count):
        policy.update(policy.select(), float(generator.normal()))
    return policy


def test_the_defaults_have_no_cap_and_the_ridge_that_they_had():
    policy = OFUL(ARMS)
    assert type(policy.state) is RidgeState and policy.settings["cap"] is False
    assert policy.state.radius["ridge"][0] == policy.settings["ridge"] == 1.0


def test_bounds_are_capped_at_the_prior_and_estimates_never_above_them():
    for policy in (OFUL(ARMS, cap=True, theta_norm=0.3), taught(OFUL(ARMS, cap=True, theta_norm=0.3))):
        bounds = policy.bounds()
        assert (bounds <= 0.3 * NORMS).all() and (policy.estimates() <= bounds).all()
    assert np.allclose(OFUL(ARMS, cap=True).bounds(), NORMS, rtol=1e-14)


def test_ties_at_the_cap_go_to_the_largest_bound_without_it():
    arms = np.diag([1.0, 1.0, 1.0])
    policy = OFUL(arms, cap=True)
    chosen = []
    for _ in range(3):  # all bounds stay above the caps, all equal to 1
        chosen.append(policy.select())
        policy.update(chosen[-1], 0.0)
        assert policy.bounds().tolist() == [1.0, 1.0, 1.0]
    assert chosen == [0, 1, 2]


def test_added_arms_have_caps_of_their_own(tmp_path):
    grown, whole = (OFUL(rows, cap=True, radius="mixture", theta_norm=0.4) for rows in (ARMS[:9], ARMS))
    grown.add_arms(ARMS[9:])
    np.testing.assert_array_equal(grown.state.cap, whole.state.cap)
    taught(grown).save(tmp_path / "state.npz")
    loaded = OFUL.load(tmp_path / "state.npz")
    assert loaded.select() == grown.select() and np.array_equal(loaded.bounds(), grown.bounds())


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_no_ridge_is_the_one_that_suits_the_arms(noise):
    near_plane = low_rank_arms(n_arms=60, dim=D, rank=2, noise=0.003, seed=1)
    policy = OFUL(near_plane, ridge=None, noise=noise, theta_norm=2.0)
    expected = suited_ridge(near_plane, noise, 2.0, 1.0)
    assert policy.settings["ridge"] is None and policy.state.radius["ridge"][0] == expected
    assert expected < 3 * (noise / 2.0) ** 2  # of rank 7, but in effect 2
    np.testing.assert_allclose(policy.bounds(), taught(policy, 0).bounds())


def test_the_mixture_radius_is_never_above_the_classical_one():
    classical, mixture = (OFUL(ARMS, radius=name) for name in ("logdet", "mixture"))
    for t in range(50):
        for policy in (classical, mixture):
            policy.update(t % N, float(t % 3))
        assert (mixture.bounds() <= classical.bounds()).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OFUL(ARMS, cap=True, switching=0.5), "cap must be False with switching = 0.5, got True"),
        (lambda: OFUL(ARMS, cap=2), "cap must be"),
        (lambda: OFUL(ARMS, radius="paper"), "radius must be one of 'closed', 'logdet', 'mixture'"),
        (lambda: OFUL(ARMS, ridge=0.0), "ridge must be"),
        (lambda: OFUL.contextual(dim=3, cap=True), "cap must be False without fixed arms, got True"),
        (lambda: OFUL.contextual(dim=3, ridge=None), "ridge must be a number > 0 without fixed arms, got None"),
    ],
)
def test_what_does_not_go_together_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
