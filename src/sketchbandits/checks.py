"""Public conformance checks: what every policy and every sketch must obey.

    check_policy(lambda arms: MyPolicy(arms, …))          # fixed arms: select(), update(arm, reward), bounds(), …
    check_contextual_policy(lambda dim: MyPolicy(dim))    # select(contexts), update(context, reward), bounds(contexts)
    check_sketch(lambda dim: MySketch(dim))               # update(x), matrix, shrunk_mass, inverse_norms(X)

Each raises ``AssertionError`` with a sentence on the first rule that is broken. The library runs them over all its own
classes; run them over yours. ``save``, ``load``, ``copy`` and, together, ``update_many`` and ``play`` are checked where
they exist.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.snapshot import leaves

N_ARMS, DIM = 23, 11  # never equal, so that a transposed loop shows
ROUNDS = 300

Make = Callable[[Any], Any]


def check_policy(make: Make) -> None:
    """Run every check of a policy on fixed arms; ``make(arms)`` builds one, the same each time."""
    for check in POLICY_CHECKS:
        check(make)


def check_contextual_policy(make: Make) -> None:
    """Run every check of a policy on contexts; ``make(dim)`` builds one, the same each time."""
    for check in CONTEXTUAL_CHECKS:
        check(make)


def check_sketch(make: Make) -> None:
    """Run every check of a matrix sketch; ``make(dim)`` builds one."""
    for check in SKETCH_CHECKS:
        check(make)


def _arms(seed: int = 0) -> Floats:
    """Arms of different norms, with parallel, repeated and zero ones among them."""
    arms = np.random.default_rng(seed).normal(size=(N_ARMS, DIM))
    arms[5], arms[9], arms[14] = 2.0 * arms[4], arms[8], 0.0
    scaled: Floats = arms / np.linalg.norm(arms, axis=1).max()
    return scaled


def _rewards(arms: Floats, seed: int = 1) -> tuple[Floats, np.random.Generator]:
    generator = np.random.default_rng(seed)
    return arms @ generator.normal(size=arms.shape[1]), generator


def _play(policy: Any, arms: Floats, rounds: int = ROUNDS, seed: int = 1) -> list[int]:
    means, generator = _rewards(arms, seed)
    chosen = []
    for _ in range(rounds):
        arm = policy.select()
        chosen.append(arm)
        policy.update(arm, means[arm] + generator.normal())
    return chosen


def _snapshot(policy: Any) -> dict[str, Any]:
    """Everything that a call could have changed: the state's arrays, or what the policy shows of itself."""
    if hasattr(getattr(policy, "state", None), "_fields"):
        # Scratch space means nothing between two calls.
        return {k: v.copy() for k, v in leaves(policy.state) if not k.endswith(".work")}
    shown: dict[str, Any] = {"select": policy.select()}
    if hasattr(policy, "bounds"):
        shown["bounds"] = np.array(policy.bounds())
    return shown


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() == after.keys() and all(np.array_equal(before[k], after[k], equal_nan=True) for k in before)


def _refuses(call: Callable[[], Any], word: str, why: str) -> None:
    message = None
    try:
        call()
    except ValueError as error:
        message = str(error)
    assert message is not None, f"{why} must raise ValueError"
    assert word in message, f"{why} must be refused by a message that names {word!r}, it says: {message}"


def selects_valid_arms(make: Make) -> None:
    """`select` gives a Python int that indexes an arm, also before any reward."""
    arms = _arms()
    for arm in _play(make(arms), arms):
        assert type(arm) is int and 0 <= arm < N_ARMS, f"select() must give an int from 0 to {N_ARMS - 1}, gave {arm!r}"


def reading_is_pure(make: Make) -> None:
    """`select` and `bounds` change nothing, and repeat themselves."""
    arms = _arms()
    policy = make(arms)
    for _ in range(3):
        _play(policy, arms, 40)
        before = _snapshot(policy)
        first, bounds = policy.select(), policy.bounds()
        bounds_again = policy.bounds()
        assert policy.select() == first, "select() must repeat itself until the next update"
        assert np.array_equal(bounds, bounds_again), "bounds() must repeat itself"
        bounds_again[:] = -1.0
        assert np.array_equal(policy.bounds(), bounds), "bounds() must hand out its own array"
        assert _same(before, _snapshot(policy)), "select() and bounds() must not change the state"


def bounds_have_one_value_an_arm(make: Make) -> None:
    """`bounds` is a float array with one value an arm, never NaN; with data on every arm it is finite."""
    arms = _arms()
    policy = make(arms)
    assert policy.bounds().shape == (N_ARMS,), "bounds() must have one value an arm"
    assert not np.isnan(policy.bounds()).any(), "bounds() must not be NaN before the first reward"
    for arm in range(N_ARMS):
        policy.update(arm, 0.1)
    assert np.isfinite(policy.bounds()).all(), "bounds() must be finite once every arm has a reward"


def input_is_not_aliased(make: Make) -> None:
    """The caller's arms are neither kept nor changed."""
    arms = _arms()
    mine = arms.copy()
    policy = make(mine)
    _play(policy, arms, 20)
    assert np.array_equal(mine, arms), "arms must not be changed"
    twin = make(arms)
    _play(twin, arms, 20)
    mine[:] = 7.0
    assert _play(policy, arms, 20, seed=2) == _play(twin, arms, 20, seed=2), "arms must be copied, not kept"


def same_seed_same_arms(make: Make) -> None:
    """Two policies built alike choose alike."""
    arms = _arms()
    assert _play(make(arms), arms) == _play(make(arms), arms), "the same policy and rewards must give the same arms"


def rewards_may_be_late(make: Make) -> None:
    """Any arm may be updated at any time, in any order, and every reward is counted."""
    arms = _arms()
    means, generator = _rewards(arms)
    policy = make(arms)
    pairs = [(int(a), float(means[a] + generator.normal())) for a in generator.integers(0, N_ARMS, 200)]
    for arm, reward in pairs:
        policy.update(arm, reward)
        assert not np.isnan(policy.bounds()).any(), "bounds() must not be NaN after a late reward"
    if hasattr(policy, "counts"):
        expected = np.bincount([arm for arm, _ in pairs], minlength=N_ARMS)
        assert np.array_equal(policy.counts, expected), "counts must say how many rewards each arm got"


def refused_calls_change_nothing(make: Make) -> None:
    """Bad input raises ``ValueError`` that names the argument, and leaves the state alone."""
    arms = _arms()
    policy = make(arms)
    _play(policy, arms, 50)
    before = _snapshot(policy)
    for bad in (-1, N_ARMS, 1.5, "3", None, True):
        _refuses(partial(policy.update, bad, 0.5), "arm", f"update({bad!r}, 0.5)")
    for bad in (np.nan, np.inf, -np.inf, "1", None, 1e300):
        _refuses(partial(policy.update, 0, bad), "reward", f"update(0, {bad!r})")
    assert _same(before, _snapshot(policy)), "a refused call must leave the state alone"


def bad_arms_are_refused(make: Make) -> None:
    """NaN, infinite, empty or wrongly shaped arms are refused."""
    arms = _arms()
    spoiled = [np.where(np.arange(DIM) == 3, bad, arms) for bad in (np.nan, np.inf, 1e200)]
    for bad in (*spoiled, arms[0], np.zeros((0, DIM)), np.zeros((N_ARMS, 0)), [["a", "b"], ["c", "d"]]):
        _refuses(partial(make, bad), "arms", "a bad arm set")


def saving_continues_bit_for_bit(make: Make) -> None:
    """A policy that was saved and loaded in the middle of a run goes on exactly as the one that was not."""
    arms = _arms()
    policy = make(arms)
    if not hasattr(policy, "save"):
        return
    _play(policy, arms)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        policy.save(path)
        loaded = type(policy).load(path)
        assert sorted(p.name for p in Path(folder).iterdir()) == ["state.npz"], (
            "save must leave one file, under its name"
        )
    assert np.array_equal(loaded.bounds(), policy.bounds()), "load must give the same bounds, bit for bit"
    assert _play(loaded, arms, seed=2) == _play(policy, arms, seed=2), "load must go on with the same arms"
    assert np.array_equal(loaded.bounds(), policy.bounds()), "load must go on bit for bit"


def copies_are_independent(make: Make) -> None:
    """What a copy learns does not reach the original."""
    arms = _arms()
    policy = make(arms)
    if not hasattr(policy, "copy"):
        return
    _play(policy, arms, 60)
    before = _snapshot(policy)
    twin = policy.copy()
    assert _same(before, _snapshot(twin)), "a copy must start in the same state"
    _play(twin, arms, 60, seed=2)
    assert _same(before, _snapshot(policy)), "playing a copy must not change the original"


def memory_is_bounded(make: Make) -> None:
    """The state does not grow with the number of rewards."""
    arms = _arms()
    policy = make(arms)
    if not hasattr(getattr(policy, "state", None), "_fields"):
        return
    size = sum(part.nbytes for _, part in leaves(policy.state))
    _play(policy, arms, 3 * ROUNDS)
    after = sum(part.nbytes for _, part in leaves(policy.state))
    assert after == size, f"the state must not grow, it went from {size} to {after} bytes"


def _log(policy: Any, arms: Floats, matches: bool) -> tuple[list[int], list[float], list[int]]:
    """Arms, rewards and the choices before them, of a slow replay; about half of the log's arms are the choice."""
    means, generator = _rewards(arms, seed=3)
    logged, rewards, choices = [], [], []
    for _ in range(ROUNDS):
        choice = policy.select()
        arm = choice if generator.random() < 0.5 else int(generator.integers(0, N_ARMS))
        reward = float(means[arm] + generator.normal())
        if arm == choice or not matches:
            policy.update(arm, reward)
        logged.append(arm)
        rewards.append(reward)
        choices.append(choice)
    return logged, rewards, choices


def _twins(policy: Any) -> tuple[Any, Any]:
    """Two policies in one state; even one that never draws may hold a random key of its own."""
    return policy, policy.copy() if hasattr(policy, "copy") else copy.deepcopy(policy)


def batches_are_single_updates(make: Make) -> None:
    """`update_many` leaves, bit for bit, what `update` leaves after the same rewards; an empty batch leaves nothing."""
    arms = _arms()
    single, batch = _twins(make(arms))
    if not hasattr(batch, "update_many"):
        return
    logged, rewards, _ = _log(single, arms, matches=False)
    half = ROUNDS // 3
    batch.update_many(logged[:half], rewards[:half])
    batch.update_many([], [])
    batch.update_many(np.array(logged[half:]), np.array(rewards[half:]))
    assert _same(_snapshot(single), _snapshot(batch)), "update_many must leave what the same calls of update leave"
    assert _play(single, arms, 60) == _play(batch, arms, 60), "after update_many the same arms must follow"


def replays_are_loops(make: Make) -> None:
    """`play` gives the choices of a loop of `select` and `update` over the log, and leaves the same state."""
    arms = _arms()
    for learn in ("all", "matches"):
        slow, fast = _twins(make(arms))
        if not hasattr(fast, "update_many"):
            return
        logged, rewards, expected = _log(slow, arms, matches=learn == "matches")
        choices = fast.play((logged, rewards), learn=learn)
        assert choices.dtype == np.int64, f"play must give int64, gave {choices.dtype}"
        assert choices.tolist() == expected, f"play(learn={learn!r}) must give what select gave before each event"
        assert _same(_snapshot(slow), _snapshot(fast)), f"play(learn={learn!r}) must leave what the loop leaves"


def _bad_batches() -> Iterator[tuple[Any, Any, str]]:
    """Arms, rewards, and what their refusal must name."""
    for bad in (-1, N_ARMS, 1.5, True, None):
        yield [0, 1, bad], [0.5, 0.5, 0.5], "arms[2]"
    for bad in (np.nan, np.inf, 1e300, None):
        yield [0, 1, 2], [0.5, bad, 0.5], "rewards[1]"
    yield np.array([0.0, 1.0]), [0.5, 0.5], "arms[0]"
    yield np.zeros((2, 2), int), [0.5, 0.5], "arms"
    yield [0, 1], [0.5], "rewards"


def refused_batches_change_nothing(make: Make) -> None:
    """One bad entry refuses a whole batch, by the argument's name and the entry's position; nothing is recorded."""
    arms = _arms()
    policy = make(arms)
    if not hasattr(policy, "update_many"):
        return
    _play(policy, arms, 50)
    before = _snapshot(policy)
    for logged, rewards, word in _bad_batches():
        _refuses(partial(policy.update_many, logged, rewards), word, f"update_many({logged!r}, {rewards!r})")
        _refuses(partial(policy.play, (logged, rewards)), word, f"play(({logged!r}, {rewards!r}))")
    _refuses(partial(policy.play, [0, 1, 2]), "batch", "a batch that is no pair")
    _refuses(partial(policy.play, ([0], [0.5]), learn="some"), "learn", "learn='some'")
    assert _same(before, _snapshot(policy)), "a refused batch must leave the state alone"


POLICY_CHECKS: tuple[Callable[[Make], None], ...] = (
    selects_valid_arms,
    reading_is_pure,
    bounds_have_one_value_an_arm,
    input_is_not_aliased,
    same_seed_same_arms,
    rewards_may_be_late,
    refused_calls_change_nothing,
    bad_arms_are_refused,
    memory_is_bounded,
    saving_continues_bit_for_bit,
    copies_are_independent,
    batches_are_single_updates,
    replays_are_loops,
    refused_batches_change_nothing,
)


def _play_contexts(policy: Any, rounds: int = 120, seed: int = 1) -> list[int]:
    generator = np.random.default_rng(seed)
    theta = generator.normal(size=DIM)
    chosen = []
    for _ in range(rounds):
        contexts = generator.normal(size=(int(generator.integers(1, 7)), DIM))
        contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
        choice = policy.select(contexts)
        assert type(choice) is int and 0 <= choice < len(contexts), (
            f"select(contexts) must index a row, gave {choice!r}"
        )
        chosen.append(choice)
        policy.update(contexts[choice], float(contexts[choice] @ theta + generator.normal()))
    return chosen


def contextual_rounds(make: Make) -> None:
    """Fresh contexts each round; two policies built alike choose alike; reading is pure."""
    policy = make(DIM)
    assert _play_contexts(policy) == _play_contexts(make(DIM)), (
        "the same contexts and rewards must give the same choices"
    )
    contexts = np.eye(DIM)[:4]
    before, bounds = _snapshot(policy), policy.bounds(contexts)
    assert bounds.shape == (4,) and np.isfinite(bounds).all(), "bounds(contexts) must have one finite value a row"
    assert policy.select(contexts) == policy.select(contexts), "select(contexts) must repeat itself"
    assert np.array_equal(policy.bounds(contexts), bounds), "bounds(contexts) must repeat itself"
    assert _same(before, _snapshot(policy)), "select and bounds must not change the state"
    assert np.array_equal(contexts, np.eye(DIM)[:4]), "contexts must not be changed"


def contextual_refusals(make: Make) -> None:
    """Bad contexts and rewards are refused by name, and leave the state alone."""
    policy = make(DIM)
    _play_contexts(policy, 30)
    before, good = _snapshot(policy), np.eye(DIM)[0]
    for bad in (np.zeros((0, DIM)), np.ones((3, DIM + 1)), np.full((3, DIM), np.nan), good, "contexts"):
        _refuses(partial(policy.select, bad), "contexts", "bad contexts")
        _refuses(partial(policy.bounds, bad), "contexts", "bad contexts")
    for bad in (np.ones(DIM + 1), np.full(DIM, np.inf), np.eye(DIM)):
        _refuses(partial(policy.update, bad, 0.5), "context", "a bad context")
    for bad in (np.nan, np.inf, "1", None):
        _refuses(partial(policy.update, good, bad), "reward", "a bad reward")
    assert _same(before, _snapshot(policy)), "a refused call must leave the state alone"


def contextual_saving(make: Make) -> None:
    """Saved, loaded and copied policies go on exactly as the original, and do not touch it."""
    policy = make(DIM)
    _play_contexts(policy)
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "state.npz")
        loaded = type(policy).load(Path(folder) / "state.npz")
    before, twin = _snapshot(policy), policy.copy()
    chosen = _play_contexts(twin, seed=2)
    assert _same(before, _snapshot(policy)), "playing a copy must not change the original"
    assert chosen == _play_contexts(loaded, seed=2) == _play_contexts(policy, seed=2), "all three must go on alike"
    assert np.array_equal(loaded.bounds(np.eye(DIM)), policy.bounds(np.eye(DIM))), "load must go on bit for bit"


def _contextual_batch() -> tuple[Floats, Floats]:
    generator = np.random.default_rng(4)
    contexts, rewards = generator.normal(size=(90, DIM)), generator.normal(size=90)
    return contexts / np.linalg.norm(contexts, axis=1, keepdims=True), rewards


def contextual_batches(make: Make) -> None:
    """`update_many` leaves, bit for bit, what `update` leaves after the same rewards; an empty batch leaves nothing."""
    single, batch = _twins(make(DIM))
    if not hasattr(batch, "update_many"):
        return
    contexts, rewards = _contextual_batch()
    for context, reward in zip(contexts, rewards.tolist(), strict=True):
        single.update(context, reward)
    given = contexts.copy()
    batch.update_many(given[:30], rewards[:30])
    batch.update_many([], [])
    batch.update_many(given[30:].tolist(), rewards[30:].tolist())
    assert np.array_equal(given, contexts), "update_many must not change the caller's contexts"
    assert _same(_snapshot(single), _snapshot(batch)), "update_many must leave what the same calls of update leave"
    assert _play_contexts(single, 30) == _play_contexts(batch, 30), "after update_many the same choices must follow"


def contextual_refused_batches(make: Make) -> None:
    """One bad row or reward refuses a whole batch by name; nothing is recorded."""
    policy = make(DIM)
    if not hasattr(policy, "update_many"):
        return
    _play_contexts(policy, 30)
    before, (contexts, rewards) = _snapshot(policy), _contextual_batch()
    for bad in (np.where(np.arange(90)[:, None] == 7, np.nan, contexts), np.ones((90, DIM + 1)), contexts[0]):
        _refuses(partial(policy.update_many, bad, rewards), "contexts", "a batch with bad contexts")
    for bad in (np.where(np.arange(90) == 7, np.inf, rewards), rewards[1:], "rewards"):
        _refuses(partial(policy.update_many, contexts, bad), "rewards", "a batch with bad rewards")
    assert _same(before, _snapshot(policy)), "a refused batch must leave the state alone"


CONTEXTUAL_CHECKS: tuple[Callable[[Make], None], ...] = (
    contextual_rounds,
    contextual_refusals,
    contextual_saving,
    contextual_batches,
    contextual_refused_batches,
)


def sketch_bounds_its_loss(make: Make) -> None:
    """``0 <= X'X - S'S <= rho I`` at every row, with the measured ``rho``."""
    sketch, rows = make(DIM), np.random.default_rng(0).normal(size=(120, DIM))
    for t, row in enumerate(rows, start=1):
        sketch.update(row)
        exact, kept = rows[:t].T @ rows[:t], sketch.matrix.T @ sketch.matrix
        lost = np.linalg.eigvalsh(exact - kept)
        slack = 1e-9 * np.trace(exact)
        assert lost[0] >= -slack, "S'S must not exceed X'X"
        assert lost[-1] <= sketch.shrunk_mass + slack, "X'X - S'S must stay below the shrunk mass"


def sketch_inverts_itself(make: Make) -> None:
    """`inverse_norms` is that of ``S'S + alpha I``."""
    sketch, generator = make(DIM), np.random.default_rng(1)
    queries = generator.normal(size=(N_ARMS, DIM))
    for _ in range(60):
        sketch.update(generator.normal(size=DIM))
        V = sketch.matrix.T @ sketch.matrix + sketch.alpha * np.eye(DIM)
        expected = np.sqrt((queries * np.linalg.solve(V, queries.T).T).sum(axis=1))
        assert np.allclose(sketch.inverse_norms(queries), expected, rtol=1e-9), "inverse_norms must match S'S + alpha I"


def sketch_refuses_bad_rows(make: Make) -> None:
    """Bad rows are refused by name and change nothing; a zero row changes nothing."""
    sketch = make(DIM)
    sketch.update(np.arange(1.0, DIM + 1))
    before = sketch.matrix
    for bad in (np.full(DIM, np.nan), np.ones(DIM + 1), np.eye(DIM), "row"):
        _refuses(partial(sketch.update, bad), "x", "a bad row")
    sketch.update(np.zeros(DIM))
    assert np.array_equal(before, sketch.matrix), "refused and zero rows must change nothing"


SKETCH_CHECKS: tuple[Callable[[Make], None], ...] = (
    sketch_bounds_its_loss,
    sketch_inverts_itself,
    sketch_refuses_bad_rows,
)
