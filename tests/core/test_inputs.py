"""Arms and rewards as people have them: booleans, sparse matrices, data frames; refusals name what is wrong."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from sketchbandits import CSLB, OFUL, UCB1, MultiscaleCSLB

DENSE = np.random.default_rng(0).normal(size=(8, 3)).round(2)


@pytest.mark.parametrize("true", [True, np.True_, 1, 1.0, np.float32(1.0)])
def test_a_boolean_reward_is_zero_or_one(true):
    one, other = UCB1(DENSE), UCB1(DENSE)
    one.update(2, true)
    other.update(2, 1.0)
    assert np.array_equal(one.state.stats, other.state.stats)
    contextual = OFUL.contextual(dim=3)
    contextual.update(np.eye(3)[0], true)
    assert contextual.bounds(np.eye(3)).shape == (3,)


@pytest.mark.parametrize(
    "rewards",
    [[True, False, True], np.array([True, False, True]), [1.0, False, np.True_], pl.Series([True, False, True])],
)
def test_boolean_rewards_of_a_batch(rewards):
    batch, single = UCB1(DENSE), UCB1(DENSE)
    batch.update_many([0, 1, 2], rewards)
    for arm, reward in enumerate([1.0, 0.0, 1.0]):
        single.update(arm, reward)
    assert np.array_equal(batch.state.stats, single.state.stats)


FRAME = {"a": DENSE[:, 0], "b": DENSE[:, 1], "c": DENSE[:, 2]}
GIVEN = {
    "sparse matrix": scipy.sparse.csr_matrix(DENSE),
    "sparse array": scipy.sparse.coo_array(DENSE),
    "polars": pl.DataFrame(FRAME),
    "pandas": pd.DataFrame(FRAME),
    "objects": DENSE.astype(object),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("make", [UCB1, OFUL, lambda arms: CSLB(arms, sketch_size=2), MultiscaleCSLB])
def test_arms_of_every_kind_are_the_same_dense_numbers(given, make):
    policy = make(GIVEN[given])
    assert policy.arms.dtype == np.float64 and np.array_equal(policy.arms, DENSE)
    assert np.array_equal(policy.bounds(), make(DENSE).bounds())


def test_booleans_and_whole_numbers_are_features():
    flags = DENSE > 0
    wanted = flags.astype(float)
    nullable = pd.DataFrame(flags).astype("Int64")
    mixed = pl.DataFrame({"a": flags[:, 0], "b": flags[:, 1].astype(np.int8), "c": wanted[:, 2]})
    for given in (flags, flags.tolist(), scipy.sparse.csr_matrix(flags), pl.DataFrame(flags), nullable, mixed):
        assert np.array_equal(OFUL(given).arms, wanted)


WHOLE = [1, 2, 3]
DAYS = pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 1, 3), eager=True)
LAST_NULL = pd.array([1, 2, None], "Int64")
REFUSED = {
    "text in polars": (pl.DataFrame({"x": WHOLE, "city": ["Oslo", "Rome", "Lima"]}), "column 'city' of type String"),
    "text in pandas": (pd.DataFrame({"x": WHOLE, "city": ["Oslo", "Rome", "Lima"]}), "column 'city' of type"),
    "dates": (pl.DataFrame({"x": WHOLE, "day": DAYS}), "'day' of type Date"),
    "null among integers": (pl.DataFrame({"x": WHOLE, "y": [1, None, 3]}), "1 missing .* 'y' of type Int64, .* row 1"),
    "nullable integers": (pd.DataFrame({"x": WHOLE, "y": LAST_NULL}), "1 missing .* 'y' of type Int64, .* row 2"),
    "NaN": (pd.DataFrame({"x": WHOLE, "y": [1, np.nan, 3]}), "column 'y' of type Float64, the first in row 1"),
    "LazyFrame": (pl.LazyFrame({"x": WHOLE}), r"got a LazyFrame: call its collect\(\) first"),
    "a word among numbers": ([[1.0, 2.0], [3.0, None]], r"got None of type NoneType at \[1, 1\]"),
    "objects": (np.array([[1, "2"], [3, 4]], dtype=object), r"got '2' of type str at \[0, 1\]"),
    "text": ([["a", "b"], ["c", "d"]], "got an array of <U1"),
}


@pytest.mark.parametrize("given", REFUSED)
def test_a_refusal_names_the_column_and_its_type(given):
    arms, sentence = REFUSED[given]
    with pytest.raises(ValueError, match=f"^arms must .*{sentence}"):
        UCB1(arms)
