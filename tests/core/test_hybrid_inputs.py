"""Hybrid CS-LB: calls and settings that are refused where arms come with requests, and schemas of features."""

import numpy as np
import pytest
from hybrid_tools import CONTEXTS, FEATURES, FILMS, OFFERED, PEOPLE, SCHEMA, memory, offered, same

from sketchbandits import Features, HybridCSLB

# ------------------------------------------------------------------------------------------------------------- refusals
ROW, ROWS = FEATURES[0], FEATURES[:2]
REFUSED = {
    "no arms": (lambda p, u: p.select(u), r"arms must be the ids of the arms that this request offers, got None"),
    "empty": (lambda p, u: p.select(u, arms=[], features=ROWS), r"arms must be the ids .*, got \[\]"),
    "a text": (lambda p, u: p.select(u, arms="ab", features=ROWS), r"arms must be a list of ids, .*, got 'ab'"),
    "a number": (lambda p, u: p.select(u, arms=3, features=ROWS), r"arms must be a list of ids, .*, got 3"),
    "a mapping": (lambda p, u: p.select(u, arms={"a": 1}, features=ROW), r"arms must be a list of ids"),
    "twice": (lambda p, u: p.select(u, arms=["a", "a"], features=ROWS), r"arms must be different ids, got 'a' twice"),
    "1 and True": (lambda p, u: p.select(u, arms=[1, True], features=ROWS), r"arms must be ids, .* got True"),
    "float ids": (lambda p, u: p.select(u, arms=[1.0, 2.0], features=ROWS), r"arms must be ids, .* got 1\.0"),
    "None as id": (lambda p, u: p.select(u, arms=["a", None], features=ROWS), r"arms must be ids, .* got None"),
    "bytes": (lambda p, u: p.select(u, arms=[b"a"], features=ROW[None]), r"arms must be ids, .* got b'a'"),
    "huge id": (lambda p, u: p.select(u, arms=[2**63], features=ROW[None]), r"arms must be ids"),
    "lists as ids": (lambda p, u: p.select(u, arms=[["a"]], features=ROW[None]), r"arms must be ids"),
    "unknown": (lambda p, u: p.select(u, arms=[0, "a"]), r"features must be given for arms without .* for 'a'"),
    "few rows": (
        lambda p, u: p.select(u, arms=["a", "b", "c"], features=ROWS),
        r"features must have one row per arm, 3",
    ),
    "columns": (lambda p, u: p.select(u, arms=["a", "b"], features=ROWS[:, :3]), r"features must be .* 4 columns"),
    "a vector": (lambda p, u: p.select(u, arms=["a"], features=ROW), r"features must be a non-empty 2-D array"),
    "NaN": (lambda p, u: p.select(u, arms=["a", "b"], features=ROWS * np.nan), r"features must be finite"),
    "texts": (lambda p, u: p.select(u, arms=["a"], features=[["x"] * 4]), r"features must be"),
    "mappings": (lambda p, u: p.select(u, arms=["a"], features=[{"x": 1.0}]), r"features must be"),
    "available": (lambda p, u: p.select(u, arms=["a"], features=ROWS[:1], available=[0]), r"available must be None"),
    "slate": (
        lambda p, u: p.select(u, arms=["a", "b"], features=ROWS, slate=3),
        r"slate must be .* from 1 to 2, got 3",
    ),
    "cost": (lambda p, u: p.select(u, arms=["a", "b"], features=ROWS, cost=[1.0]), r"cost must be .* length 2"),
    "NaN cost": (lambda p, u: p.select(u, arms=["a"], features=ROWS[:1], cost=[np.nan]), r"cost must be finite"),
    "pending": (lambda p, u: p.select(u, arms=["a"], features=ROWS[:1], pending=[1.5]), r"pending must be ids"),
    "decision": (lambda p, u: p.select(u, arms=["a"], features=ROWS[:1], decision=-1), r"decision must be"),
    "at": (lambda p, u: p.select(u, arms=["a"], features=ROWS[:1], at=1.0), r"at must be None unless"),
    "count": (lambda p, u: p.select_many(-1, u, arms=["a"], features=ROWS[:1]), r"count must be"),
    "estimates": (lambda p, u: p.estimates(u), r"arms must be the ids"),
    "bounds": (lambda p, u: p.bounds(u, arms=["a"]), r"features must be given"),
    "probabilities": (lambda p, u: p.probabilities(u, arms=[0, 0]), r"arms must be different ids, got 0 twice"),
    "context": (lambda p, u: p.select([1.0], arms=["a"], features=ROWS[:1]), r"context must be"),
    "mapping of context": (
        lambda p, u: p.select({"a": 1}, arms=["a"], features=ROWS[:1]),
        r"context must be .*mapping",
    ),
    "update id": (lambda p, u: p.update(True, 1.0, context=u, features=ROW), r"arm must be ids, .* got True"),
    "update float": (lambda p, u: p.update(0.0, 1.0, context=u, features=ROW), r"arm must be ids"),
    "update unknown": (lambda p, u: p.update("a", 1.0, context=u), r"features must be given .* for 'a'"),
    "update rows": (lambda p, u: p.update("a", 1.0, context=u, features=ROWS), r"features must be a 1-D array"),
    "update columns": (lambda p, u: p.update("a", 1.0, context=u, features=ROW[:3]), r"features must be .* 4 columns"),
    "update known columns": (lambda p, u: p.update(0, 1.0, context=u, features=ROW[:3]), r"features must be .* 4 col"),
    "update NaN": (lambda p, u: p.update("a", 1.0, context=u, features=ROW * np.nan), r"features must be finite"),
    "update mapping": (lambda p, u: p.update("a", 1.0, context=u, features={"x": 1.0}), r"features must be"),
    "update reward": (lambda p, u: p.update("a", np.nan, context=u, features=ROW), r"reward must be a number"),
    "update context": (
        lambda p, u: p.update("a", 1.0, features=ROW),
        r"context must be a vector of length 3, got None",
    ),
    "update at": (lambda p, u: p.update("a", 1.0, context=u, features=ROW, at=3.0), r"at must be None unless"),
    "remove unknown": (lambda p, u: p.remove_arms([0, "a"]), r"ids must be arms with a fit of their own, got 'a'"),
    "remove twice": (lambda p, u: p.remove_arms([0, 1, 0]), r"ids must be different, got 0 twice"),
    "remove bool": (lambda p, u: p.remove_arms([True]), r"ids must be ids, .* got True"),
    "add": (lambda p, u: p.add_arms(ROWS), r"add_arms is for fixed arms"),
    "user rounds": (
        lambda p, u: p.play_user_rounds(CONTEXTS[:2], np.ones((2, 9)), None),
        r"feature_dim must be None to play rounds, got 4",
    ),
    "pending number": (
        lambda p, u: p.select(u, arms=["a"], features=ROWS[:1], pending=5),
        r"pending must be a list of",
    ),
    "pending text": (lambda p, u: p.select(u, arms=["a"], features=ROWS[:1], pending="ab"), r"pending must be a list"),
    "remove a number": (lambda p, u: p.remove_arms(5), r"ids must be a list of ids, .* got 5"),
    "remove a text": (lambda p, u: p.remove_arms("ab"), r"ids must be a list of ids, .* got 'ab'"),
    "batch of new ids": (
        lambda p, u: p.update_many(["a"], [1.0], contexts=CONTEXTS[:1]),
        r"features must be given .* for 'a'",
    ),
}


@pytest.fixture(scope="module")
def asked():
    policy = HybridCSLB(feature_dim=4, context_dim=3, max_arms=9)
    offered(policy, 12, ids=4)
    return policy


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_calls_name_the_argument_and_change_nothing(call, message, asked):
    policy = asked.copy()
    before = memory(policy)
    with pytest.raises(ValueError, match=message):
        call(policy, CONTEXTS[0])
    assert same(before, memory(policy))


def test_rounds_are_refused_where_arms_come_with_requests():
    policy = HybridCSLB(feature_dim=4, max_arms=5)
    before = memory(policy)
    with pytest.raises(ValueError, match=r"feature_dim must be None to play rounds, got 4"):
        policy.play_rounds(np.zeros(5), np.zeros(5), np.arange(9.0))
    assert same(before, memory(policy))


def test_requests_are_refused_by_policies_of_fixed_arms():
    policy = HybridCSLB(FEATURES[:5], context_dim=3)
    before = memory(policy)
    for name in ("select", "estimates", "bounds", "probabilities"):
        with pytest.raises(ValueError, match=r"arms must be None where the arms are fixed"):
            getattr(policy, name)(CONTEXTS[0], arms=[1, 2])
        with pytest.raises(ValueError, match=r"features must be None where the arms are fixed"):
            getattr(policy, name)(CONTEXTS[0], features=ROWS)
    with pytest.raises(ValueError, match=r"features must be None where the arms are fixed"):
        policy.update(0, 1.0, context=CONTEXTS[0], features=ROW)
    with pytest.raises(ValueError, match=r"features must be None where the arms are fixed"):
        policy.update_many([0], [1.0], contexts=CONTEXTS[:1], features=ROWS[:1])
    assert same(before, memory(policy))


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({}, r"arms must be given, or feature_dim where arms come with requests, got None for both"),
        ({"context_dim": 3}, r"arms must be given, or feature_dim"),
        ({"arms": ROWS, "feature_dim": 4}, r"feature_dim must be None where arms are given, got 4"),
        ({"arms": 3, "feature_dim": 4}, r"feature_dim must be None where arms are given, got 4"),
        ({"arms": ROWS, "max_arms": 4}, r"max_arms must be None where arms are given, got 4"),
        ({"feature_dim": 4, "max_arms": 0}, r"max_arms must be a whole number >= 1, got 0"),
        ({"feature_dim": 4, "max_arms": True}, r"max_arms must be a whole number"),
        ({"feature_dim": 4, "max_arms": 10**12}, r"arms must be few enough for the memory, .* max_arms=1000000000000"),
        ({"feature_dim": 10**8}, r"arms must be few enough for the memory"),
        ({"feature_dim": 0}, r"feature_dim must be a whole number >= 1, got 0"),
        ({"feature_dim": 4.0}, r"feature_dim must be a whole number"),
        ({"feature_dim": 4, "sketch_size": 2}, r"sketch_size must be None where arms come with requests"),
        ({"feature_dim": 4, "explore": "theory"}, r"noise must be given"),
        (
            {"feature_dim": 4, "explore": "theory", "noise": 1.0, "theta_norm": 1.0, "own_norm": 1.0},
            r'feature_dim must be None for explore="theory"',
        ),
        (
            {"arms": 3, "explore": "theory", "noise": 1.0, "theta_norm": 1.0, "own_norm": 1.0, "half_life": "auto"},
            r'half_life must be None for explore="theory"',
        ),
        ({"arms": 3, "theta_norm": 1.0}, r'theta_norm must be None unless explore="theory"'),
        ({"arms": 3, "context_features": {"age": 1}}, r"context_features must be a Features schema, got .* type dict"),
        ({"arms": 3, "context_features": Features}, r"context_features must be a Features schema"),
        (
            {"arms": 3, "context_features": SCHEMA, "context_dim": 7},
            rf"context_dim must be that of context_features, {SCHEMA.dim}, or None, got 7",
        ),
        ({"arm_features": SCHEMA, "feature_dim": 7}, r"feature_dim must be that of arm_features"),
        ({"arm_features": "x", "feature_dim": 7}, r"arm_features must be a Features schema"),
        ({"arms": 3, "arm_features": SCHEMA}, r"arms must be a table for arm_features, got the number 3"),
        ({"arms": [{"age": "old"}], "arm_features": SCHEMA}, r"age"),
        ({"arms": [{"agee": 3.0}], "arm_features": SCHEMA}, r"agee"),
        ({"arms": np.ones((3, 7)), "arm_features": SCHEMA}, r"arms must be .* 5 columns"),
    ],
)
def test_settings_that_do_not_go_together_are_refused_by_name(given_, message):
    with pytest.raises(ValueError, match=message):
        HybridCSLB(**given_)


# -------------------------------------------------------------------------------------------------------------- schemas


def test_mappings_are_as_the_vectors_that_the_schema_makes_of_them():
    named = HybridCSLB(context_features=SCHEMA, arm_features=FILMS, seed=1)
    plain = HybridCSLB(context_dim=SCHEMA.dim, feature_dim=FILMS.dim, seed=1)
    people, films = SCHEMA.transform(PEOPLE), FILMS.transform(OFFERED)
    assert (named.context_dim, named.settings["feature_dim"]) == (SCHEMA.dim, FILMS.dim)
    for t in range(25):
        ids = [t % 9, 9, 10 + t % 7]
        one = named.select(PEOPLE[t], arms=ids, features=[OFFERED[i] for i in ids])
        assert plain.select(people[t], arms=ids, features=films[ids]) == one
        assert named.select(people[t], arms=ids, features=films[ids]) == one
        named.update(one, float(t % 4), context=PEOPLE[t], features=OFFERED[one])
        plain.update(one, float(t % 4), context=people[t], features=films[one])
    assert same(memory(named), memory(plain))
    one = named.known_arms[-1]
    named.update(one, 1.0, context=PEOPLE[3], features=films[one].tolist())  # a vector is one, whoever encoded it
    assert named.known_arms == plain.known_arms
    assert named.bounds(PEOPLE[3], arms=[one], features=OFFERED[one]).shape == (1,)


def test_frames_are_as_lists_of_mappings():
    import pandas
    import polars

    policy = HybridCSLB(context_features=SCHEMA, arm_features=FILMS, seed=1)
    policy.update("a", 1.0, context=PEOPLE[0], features=OFFERED[1])
    policy.update("b", 0.0, context=PEOPLE[1], features=OFFERED[2])
    ids = ["a", "b", "c"]
    wanted = policy.bounds(PEOPLE[0], arms=ids, features=OFFERED[1:4])
    for frame in (pandas.DataFrame(OFFERED[1:4]), polars.DataFrame(OFFERED[1:4])):
        assert np.array_equal(policy.bounds(PEOPLE[0], arms=ids, features=frame), wanted)


def test_fixed_arms_and_batches_of_contexts_may_be_tables():
    import polars

    named = HybridCSLB(OFFERED[:8], arm_features=FILMS, context_features=SCHEMA)
    plain = HybridCSLB(FILMS.transform(OFFERED[:8]), context_dim=SCHEMA.dim)
    arms, rewards = np.arange(16) % 8, np.random.default_rng(0).normal(size=16)
    named.update_many(arms, rewards, contexts=PEOPLE[:16])
    plain.update_many(arms, rewards, contexts=SCHEMA.transform(PEOPLE[:16]))
    named.update_many(arms, rewards, contexts=polars.DataFrame(PEOPLE[:16]))
    plain.update_many(arms, rewards, contexts=SCHEMA.transform(PEOPLE[:16]))
    assert named.add_arms(OFFERED[8:10]).tolist() == plain.add_arms(FILMS.transform(OFFERED[8:10])).tolist() == [8, 9]
    assert np.array_equal(named.bounds(PEOPLE[0]), plain.bounds(SCHEMA.vector(PEOPLE[0])))
    assert named.select(PEOPLE[0]) == plain.select(SCHEMA.vector(PEOPLE[0]))


def test_lists_of_vectors_are_as_arrays_also_with_a_schema():
    policy = HybridCSLB(context_features=SCHEMA, arm_features=FILMS)
    rows = FILMS.transform(OFFERED[:2])
    assert policy.select(SCHEMA.vector(PEOPLE[0]).tolist(), arms=["a", "b"], features=rows.tolist()) in ("a", "b")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.select({"age": 3.0, "land": "NL"}, arms=["a"], features=OFFERED[:1]), r"land"),
        (lambda p: p.select({"age": "old", "country": "NL"}, arms=["a"], features=OFFERED[:1]), r"age"),
        (lambda p: p.select([1.0], arms=["a"], features=OFFERED[:1]), r"context must be a 1-D array"),
        (lambda p: p.select(PEOPLE[0], arms=["a"], features=[{"year": 1.0, "size": 2.0}]), r"size"),
        (
            lambda p: p.select(PEOPLE[0], arms=["a", "b"], features=OFFERED[:3]),
            r"features must have one row per arm, 2",
        ),
        (lambda p: p.select(PEOPLE[0], arms=["a"], features=np.ones((1, 9))), r"features must be .* 3 columns"),
        (lambda p: p.select(PEOPLE[0], arms=["a"], features=5), r"must be"),
        (lambda p: p.update("a", 1.0, context=PEOPLE[0], features={"year": None}), r"year"),
        (lambda p: p.update("a", 1.0, context=PEOPLE[0], features=OFFERED[:1]), r"features must be"),
        (lambda p: p.update("a", 1.0, context="NL", features=OFFERED[0]), r"context must be"),
    ],
)
def test_records_that_a_schema_refuses_change_nothing(call, message):
    policy = HybridCSLB(context_features=SCHEMA, arm_features=FILMS)
    policy.update("x", 1.0, context=PEOPLE[0], features=OFFERED[0])
    before = memory(policy)
    with pytest.raises(ValueError, match=message):
        call(policy)
    assert same(before, memory(policy))
