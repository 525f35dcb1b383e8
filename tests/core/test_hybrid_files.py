"""Hybrid CS-LB: copies, interrupts and threads where arms come with requests, and files that were damaged."""

import copy
import functools
import json
import pickle
import tempfile
import threading

import numpy as np
import pytest
from conftest import rounds
from hybrid_tools import CONTEXTS, FEATURES, FILMS, OFFERED, PEOPLE, SCHEMA, memory, offered, same

from sketchbandits import HybridCSLB
from sketchbandits.policies.hybrid import refit
from sketchbandits.snapshot import leaves

# ----------------------------------------------------------------------------------------------------- files and copies
KINDS = {
    "randomised": {},
    "ts": {"explore": "ts"},
    "forgetting": {"half_life": 60},
    "auto": {"half_life": "auto"},
    "time": {"half_life": "1h", "explore": "ucb"},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def schemas_of(policy, size, seed, kind):
    rng = np.random.default_rng(seed)
    for t in range(size):
        one = int(rng.integers(0, 9))
        at = float(60 * t) if kind.get("half_life") == "1h" else None
        policy.update(f"film {one}", float(rng.normal()), context=PEOPLE[t % 30], features=OFFERED[one], at=at)


@every_kind
def test_saved_loaded_copied_and_pickled_it_goes_on_bit_for_bit(kind, tmp_path):
    policy = HybridCSLB(context_features=SCHEMA, arm_features=FILMS, max_arms=5, seed=4, **kind)
    schemas_of(policy, 25, 0, kind)
    policy.remove_arms([policy.known_arms[1]])
    policy.save(tmp_path / "state.npz")
    others = [
        HybridCSLB.load(tmp_path / "state.npz"),
        policy.copy(),
        pickle.loads(pickle.dumps(policy)),
        copy.deepcopy(policy),
    ]
    before = memory(policy)
    for one in others:
        assert same(memory(one), before)
        assert (one.known_arms, one.settings) == (policy.known_arms, policy.settings)
        assert one.context_features == SCHEMA and one.arm_features == FILMS
        schemas_of(one, 12, 1, kind)
        assert same(memory(policy), before), "copies are independent"
    schemas_of(policy, 12, 1, kind)
    asked = {"arms": ["film 0", "film 1", "new"], "features": OFFERED[:3]}
    for one in others:
        assert same(memory(one), memory(policy))
        assert one.select(PEOPLE[0], **asked) == policy.select(PEOPLE[0], **asked)
        assert np.array_equal(one.bounds(PEOPLE[0], **asked), policy.bounds(PEOPLE[0], **asked))
        one.remove_arms(one.known_arms)
    assert len(policy.known_arms) == 5


@every_kind
@pytest.mark.parametrize("nth", range(2))
def test_an_interrupt_leaves_what_there_was_or_a_recorded_reward(kind, nth, monkeypatch):
    at = 9e4 if kind.get("half_life") == "1h" else None
    for one, features in (("film 3", OFFERED[3]), ("new", OFFERED[15])):
        policy = HybridCSLB(context_features=SCHEMA, arm_features=FILMS, max_arms=3, **kind)
        schemas_of(policy, 6, 0, kind)
        calls, whole, samples = [], refit.shared_fits, int(policy._main.level["samples"][0])
        before, known = memory(policy), policy.known_arms

        def interrupted(*given_, calls=calls, whole=whole):
            calls.append(1)
            if len(calls) > nth:
                raise KeyboardInterrupt
            return whole(*given_)

        monkeypatch.setattr(refit, "shared_fits", interrupted)
        stopped = False
        try:
            policy.update(one, 1.0, context=PEOPLE[0], features=features, at=at)
        except KeyboardInterrupt:
            stopped = True
        monkeypatch.undo()
        if stopped and one not in known:
            assert same(memory(policy), before), "an id that is new is recorded as a whole or not at all"
        assert int(policy._main.level["samples"][0]) in (samples, samples + 1)
        policy.update("film 8", 0.5, context=PEOPLE[2], features=OFFERED[8], at=at)
        assert np.isfinite(policy.bounds(PEOPLE[0], arms=["a"], features=OFFERED[4:5])).all()
        assert len(policy.known_arms) <= 3
        assert sorted(policy._slots.values()) == list(range(len(policy.known_arms)))


@every_kind
def test_threads_take_turns_and_no_reward_is_lost(kind):
    policy = HybridCSLB(feature_dim=4, max_arms=4, **kind)
    failed, size = [], rounds(40, 5)

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            for t in range(size):
                at = float(t) if kind.get("half_life") == "1h" else None
                ids = rng.choice(9, 3, replace=False)
                one = policy.select(arms=ids, features=FEATURES[ids], at=at)
                policy.update(one, float(rng.normal()), features=FEATURES[one], at=at)
                if t % 10 == seed:
                    policy.copy()
                    policy.probabilities(arms=ids, features=FEATURES[ids], at=at)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert policy._main.level["samples"][0] == 4 * size
    assert len(policy.known_arms) == 4
    for one, slot in policy._slots.items():
        assert np.array_equal(policy.arms[slot], FEATURES[one])


def test_features_are_looked_up_while_no_other_thread_is_inside(monkeypatch):
    policy = HybridCSLB(feature_dim=4, max_arms=1)
    policy.update("a", 1.0, features=FEATURES[0])
    inside, whole = [], policy._features_of

    def looked_up(*given_):
        inside.append(policy._lock._is_owned())
        return whole(*given_)

    monkeypatch.setattr(policy, "_features_of", looked_up)
    policy.update("a", 2.0)
    assert inside == [True]


# -------------------------------------------------------------------------------------------------------- damaged files
@functools.cache
def saved_ts():
    policy = HybridCSLB(FEATURES[:6], context_dim=3, explore="ts", sketch_size=2)
    for t in range(20):
        policy.update(t % 6, float(t % 4), context=CONTEXTS[t])
    return policy


@functools.cache
def saved_auto():
    policy = HybridCSLB(FEATURES[:6], half_life="auto")
    for t in range(20):
        policy.update(t % 6, float(t % 4))
    return policy


@functools.cache
def saved_requests(**more):
    policy = HybridCSLB(feature_dim=4, context_dim=3, max_arms=5, **more)
    offered(policy, 20, times=np.arange(20) if more.get("half_life") == "1h" else None)
    return policy


@functools.cache
def saved_schemas():
    return HybridCSLB(context_features=SCHEMA, arm_features=FILMS)


@functools.cache
def file_of(policy):
    """The arrays of a saved policy, and its header."""
    with tempfile.TemporaryDirectory() as folder:
        policy.save(f"{folder}/whole.npz")
        with np.load(f"{folder}/whole.npz") as file:
            arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(str(arrays.pop("header")))


SAVED = {
    "ts": saved_ts,
    "auto": saved_auto,
    "requests": saved_requests,
    "requests, auto": lambda: saved_requests(half_life="auto", explore="ts"),
    "requests, time": lambda: saved_requests(half_life="1h"),
    "schemas": saved_schemas,
}
every_file = pytest.mark.parametrize("make", SAVED.values(), ids=SAVED)


@pytest.fixture
def damaged(tmp_path):
    """Save a policy, let a function change the arrays and the settings, and write both again."""

    def write(policy, change=None, **settings_):
        arrays, header = file_of(policy)
        arrays, header = dict(arrays), {**header, "settings": header["settings"] | settings_}
        if change is not None:
            change(arrays)
        np.savez(tmp_path / "damaged.npz", header=np.array(json.dumps(header)), **arrays)
        return tmp_path / "damaged.npz"

    return write


def names_of(policy):
    return [name for name, _ in leaves(policy.state)] + ["arms"] + (["slots"] if policy._comes else [])


@every_file
def test_a_whole_file_written_by_hand_is_read(make, damaged):
    policy = make()
    assert same(memory(HybridCSLB.load(damaged(policy))), memory(policy))


@every_file
def test_files_without_one_of_their_arrays_are_refused(make, damaged):
    policy = make()
    for name in names_of(policy):
        with pytest.raises(ValueError, match=r"path must hold"):
            HybridCSLB.load(damaged(policy, lambda arrays, name=name: arrays.pop(name)))


@every_file
def test_arrays_of_another_type_or_shape_are_refused(make, damaged):
    policy = make()
    for name, array in leaves(policy.state):
        if array.size == 0:
            continue
        others = [np.concatenate([array, array]) if array.size == 1 else array[:-1], array[None]]
        if array.dtype.names is None:
            others.append(array.astype(np.float32 if array.dtype.kind == "f" else np.int16))
        for other in others:
            with pytest.raises(ValueError, match=r"path must hold|arms must"):
                HybridCSLB.load(damaged(policy, lambda arrays, name=name, other=other: arrays.update({name: other})))


def put(name, value, field=None, at=-1):
    def change(arrays):
        array = arrays[name].copy()
        if field is None:
            array.flat[at] = value
        else:
            array[field] = value
        arrays[name] = array

    return change


@every_file
def test_indices_out_of_bounds_are_refused(make, damaged):
    policy = make()
    inner = ("choice",) if policy._main is not policy.state else ()
    for name, array in leaves(policy.state):
        kind = name.rsplit(".", 1)[-1]
        if array.dtype.kind == "i" and array.size and not (kind in inner and name.count(".") > 1):
            for value in (-1, 2**40, 2**63 - 1):
                with pytest.raises(ValueError, match=r"path must hold"):
                    HybridCSLB.load(damaged(policy, put(name, value)))
        for field in array.dtype.names or ():
            if array.dtype[field].kind == "i" and field not in ("due", "learns", "unlearned"):
                for value in (-1, 2**40):
                    with pytest.raises(ValueError, match=r"path must hold"):
                        HybridCSLB.load(damaged(policy, put(name, value, field)))


NUMBERS = (
    *("factors", "gone", "moments", "coordinates", "own", "spread", "inverse"),
    *("shared", "shared_inverse", "shared_factor", "logdet", "scale"),
)
LEVELS = (
    *("floor", "boldness", "unit", "centre", "noise", "scatter"),
    *("ridge", "own_ridge", "half_life", "faded"),
)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_none_are_refused(name, value, damaged):
    policy = saved_ts() if name == "shared_factor" else saved_requests()
    with pytest.raises(ValueError, match=r"path must hold"):
        HybridCSLB.load(damaged(policy, put(f"state.{name}", value)))


@pytest.mark.parametrize("field", [*LEVELS, "shortest", "now"])
def test_levels_that_are_no_numbers_are_refused(field, damaged):
    with pytest.raises(ValueError, match=r"path must hold"):
        HybridCSLB.load(damaged(saved_requests(half_life="1h"), put("state.level", np.nan, field)))


@pytest.mark.parametrize("field", ["boldness", "unit", "noise", "ridge", "own_ridge", "half_life"])
def test_levels_that_are_negative_are_refused(field, damaged):
    with pytest.raises(ValueError, match=r"path must hold"):
        HybridCSLB.load(damaged(saved_requests(half_life="1h"), put("state.level", -1.0, field)))


def test_requests_without_the_factor_of_dropped_ids_are_refused(damaged):
    """Compiled code would write out of bounds as soon as an id is dropped: the process dies."""
    nothing = {"state.gone": np.zeros((0, 0)), "state.moments": np.zeros((0, 0))}
    with pytest.raises(ValueError, match=r"path must hold"):
        HybridCSLB.load(damaged(saved_requests(), lambda arrays: arrays.update(nothing)))


@pytest.mark.parametrize("columns", [1, 3, 40])
def test_requests_whose_slots_have_other_features_are_refused(columns, damaged):
    """With more columns compiled code would write out of bounds as soon as an id is dropped: the process dies."""
    with pytest.raises(ValueError, match=r"path must hold"):
        HybridCSLB.load(damaged(saved_requests(), lambda arrays: arrays.update(arms=np.ones((5, columns)))))


@pytest.mark.parametrize(
    "slots",
    [
        "",
        "7",
        "null",
        "{}[]",
        '[["a", 0]',
        '[["a", 1]]',
        '[["a", -1]]',
        '[["a", 0], ["b", 0]]',
        '[["a", 0], ["a", 1]]',
        '[["a", 0.0]]',
        '[["a", true]]',
        '[[["a"], 0]]',
        "[[1.5, 0]]",
        "[[null, 0]]",
        json.dumps([[i, i] for i in range(6)]),
    ],
)
def test_slots_that_are_none_are_refused(slots, damaged):
    with pytest.raises(ValueError, match=r"path must hold slots"):
        HybridCSLB.load(damaged(saved_requests(), lambda arrays: arrays.update(slots=np.array(slots))))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"slots": np.array("[]")}, "fewer slots than fits"),
        ({"slots": np.array('[["a", 0]]')}, "fewer slots than fits"),
        ({"state.starts": np.array([0, 0])}, "fewer fits than slots"),
        ({"slots": np.array("[" * 100_000)}, "json.loads: RecursionError"),
        ({"slots": np.array("[[true, 0], [2, 1], [3, 2], [4, 3], [5, 4]]")}, "an id that is a truth value"),
        ({"slots": np.array(f"[[{2**70}, 0], [2, 1], [3, 2], [4, 3], [5, 4]]")}, "an id that no call can name"),
        ({"state.active": np.zeros(5, bool)}, "no arm that may be played"),
        ({"state.members": np.zeros(5, np.int64)}, "arms that are listed twice"),
    ],
    ids=["no slots", "one slot", "starts", "deep", "bool", "huge", "active", "members"],
)
def test_slots_that_do_not_fit_to_the_state_are_refused(changes, reason, damaged):
    with pytest.raises(ValueError, match=r"path must hold"):
        HybridCSLB.load(damaged(saved_requests(), lambda arrays: arrays.update(changes)))


def test_settings_that_do_not_fit_to_the_state_are_refused(damaged):
    policy = saved_requests()
    for wrong in (
        {"context_dim": None},
        {"context_dim": 4},
        {"context_dim": 0},
        {"context_dim": True},
        {"context_dim": 3.0},
        {"feature_dim": 0},
        {"feature_dim": "4"},
        {"max_arms": -1},
        {"explore": "greedy"},
        {"explore": None},
        {"half_life": "auto"},
        {"half_life": "soon"},
        {"half_life": -1},
        {"sketch_size": 0},
        {"colour": "red"},
    ):
        with pytest.raises(ValueError, match=r"path must|half_life must"):
            HybridCSLB.load(damaged(policy, **wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"explore": ["ts"]},
        {"explore": "ucb"},
        {"half_life": "6h"},
        {"half_life": 7},
        {"feature_dim": None},
        {"feature_dim": 7},
        {"max_arms": 7},
        {"max_arms": None},
        {"noise": "loud"},
        {"noise": 3.0},
        {"ridge": -1},
        {"own_share": 2.0},
        {"delta": 0.1},
        {"counted": 7},
        {"counted": True},
        {"sketch_size": 3},
    ],
    ids=repr,
)
def test_settings_that_contradict_the_state_are_refused(wrong, damaged):
    with pytest.raises(ValueError, match=r"path must"):
        HybridCSLB.load(damaged(saved_requests(), **wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"context_features": 5},
        {"context_features": "age"},
        {"context_features": {}},
        {"context_features": {"version": 1, "columns": []}},
        {"arm_features": []},
        {"arm_features": {"version": 99, "columns": FILMS.to_dict()["columns"]}},
        {"arm_features": {"version": 1, "columns": 3}},
        {"arm_features": {"version": 1, "columns": [{"kind": "numeric"}]}},
        {"context_features": FILMS.to_dict() | {"columns": FILMS.to_dict()["columns"][:1]}},
        {"arm_features": {"version": 1, "columns": FILMS.to_dict()["columns"][:1]}},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_schemas_that_are_none_are_refused(wrong, damaged):
    with pytest.raises(ValueError, match=r"must|columns|version"):
        HybridCSLB.load(damaged(saved_schemas(), **wrong))


def test_files_of_fixed_arms_and_of_requests_are_told_apart(damaged, tmp_path):
    fixed = HybridCSLB(FEATURES[:5], context_dim=3)
    with pytest.raises(ValueError, match=r"path must hold"):
        HybridCSLB.load(damaged(fixed, feature_dim=4, max_arms=5))
