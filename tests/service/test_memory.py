"""A policy's memory is estimated before anything of it is allocated."""

import pytest
from conftest import JIT

from sketchbandits import snapshot
from sketchbandits.environments import correlated_arms
from sketchbandits.policies.registry import POLICIES
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.memory import FIXED, check_quota, estimated_bytes, shown

SHAPES = [(200, 20), (2_000, 30), (60, 200), (700, 64)]
VARIANTS = [(name, {}) for name in POLICIES]
VARIANTS += [
    ("multiscale", {"sketch_size": 4}),
    ("multiscale", {"budget": 0}),
    ("hybrid", {"sketch_size": 3}),
    ("hybrid", {"half_life": "auto", "explore": "ts"}),
    ("cslb", {"engine": "sketch"}),
    ("cslb", {"scan": "shortlist", "sketch_size": 3}),
    ("oful", {"switching": 0.5}),
    ("soful", {"shrink": "every-round", "exploration": "ts"}),
    ("cbrap", {"sketch_size": 12}),
    ("dbslinucb", {"sketch_size": 2}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@pytest.mark.parametrize("shape", SHAPES if JIT else SHAPES[:1])
def test_the_estimate_is_never_below_what_a_policy_holds_and_rarely_far_above(name, options, shape):
    n, d = shape
    config = BanditConfig(policy=name, options=options)
    policy = config.build(correlated_arms(n_arms=n, dim=d, group_size=1, seed=4))
    held = policy.arms.nbytes + sum(array.nbytes for _, array in snapshot.leaves(policy.state))
    estimate = estimated_bytes(config, n, d)
    assert held <= estimate <= 4.0 * held + FIXED


def test_a_small_body_with_a_large_policy_is_known_beforehand():
    estimate = estimated_bytes(BanditConfig(policy="oful"), 4, 8_000)
    assert 0.9 * 2**30 < estimate < 1.2 * 2**30
    with pytest.raises(ValueError, match=r"^policy must fit into 512 MiB of memory \(--memory\), got about 978 MiB"):
        check_quota(estimate, 2**29)
    check_quota(estimate, estimate)
    with pytest.raises(ValueError, match=r"^bandit 'x' must fit"):
        check_quota(2, 1, "bandit 'x'")


@pytest.mark.parametrize("size", [0, -1, "many", 2.5, None, True, 10**30])
@pytest.mark.parametrize("name", ["multiscale", "hybrid", "cslb", "soful", "cbrap", "dbslinucb"])
def test_options_that_the_policy_will_refuse_do_no_harm(name, size):
    assert estimated_bytes(BanditConfig(policy=name, options={"sketch_size": size}), 50, 6) > 0


def test_sizes_are_shown_in_binary_units():
    assert [shown(size) for size in (5, 2048, 3 << 20, 3 << 29, 1 << 40)] == [
        "5 bytes",
        "2 KiB",
        "3 MiB",
        "1.5 GiB",
        "1 TiB",
    ]
