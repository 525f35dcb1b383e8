"""Warm-up at scale: whatever the blocks, tiles, threads and plans, the partition is plain first-fit's, bit for bit."""

import threading
import tracemalloc

import naive
import numpy as np
import pytest
from conftest import JIT, rounds
from hypothesis import given
from hypothesis import strategies as st
from test_properties import SEED, arm_sets, examples, unit
from threadpoolctl import threadpool_info, threadpool_limits

from sketchbandits import CSLB, Partition
from sketchbandits.kernels.linalg import remove_projection
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.partition import first_fit as module
from sketchbandits.partition import probe

TOL = 1e-8


def fit(arms, l, tol=TOL, workers=1):
    """The library's own, with any tolerance."""
    options = {"check": lambda rows, start: None, "workers": workers, "device": "cpu", "show": lambda share: None}
    return module.first_fit(np.asarray(arms), l, tol, **options)


def same(found, expected):
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.fixture
def tiny(monkeypatch):
    """Blocks of few arms, tiles of few clusters, threads always: a small input then passes through everything."""

    def shrink(block=16, tile=64):
        monkeypatch.setattr(module, "BLOCK", (1, block))
        monkeypatch.setattr(probe, "TILE", tile)
        for threshold in ("PLANNED", "PARALLEL"):
            monkeypatch.setattr(module, threshold, 0)
        monkeypatch.setattr(module, "SERIAL", 0)

    shrink()
    return shrink


def near(start, shares, rng):
    """For each share an arm that far (in tolerances) from the span of ``start``."""
    l, d = start.shape
    complement = np.linalg.qr(start.T, mode="complete")[0][:, l:]
    inside = unit(rng.normal(size=(len(shares), l)) @ unit(start))
    return inside + TOL * np.array(shares)[:, None] * unit(rng.normal(size=(len(shares), d - l)) @ complement.T)


def adversarial(name, seed=0):
    """Arms that tempt a shortcut, and a sketch size."""
    rng = np.random.default_rng([seed, len(name)])
    n, d, l = rounds(300, 90), 23, 4
    if name == "general position":
        return rng.normal(size=(n, d)), l
    if name == "near-dependent":
        parts = [start := rng.normal(size=(40, d))]
        for _ in range(n // 20):
            first = l * int(rng.integers(10))
            parts += [near(start[first : first + l], rng.permutation([0.1, 0.9, 1.1, 10.0]), rng)]
            parts += [rng.normal(size=(int(rng.integers(3)), d))]
        return np.vstack(parts), l
    if name == "near every cluster":  # low rank and noise of ten tolerances: every probe is passed, no span contains
        return unit(rng.normal(size=(n // 2, 3)) @ rng.normal(size=(3, d))) + 1e-7 * rng.normal(size=(n // 2, d)), l
    if name == "duplicates":
        return rng.normal(size=(n // 5, d))[rng.integers(n // 5, size=n)], l
    if name == "parallel groups shuffled":
        base = np.repeat(rng.normal(size=(n // 6, d)), 6, axis=0)
        return rng.permutation(base * 10.0 ** rng.uniform(-9, 9, size=(len(base), 1))), l
    if name == "subspaces interleaved":
        spaces = rng.normal(size=(5, l, d))
        return np.array([rng.normal(size=l) @ spaces[i % 5] for i in range(n)]), l
    if name == "subspaces in turn":
        spaces = rng.normal(size=(6, l, d))
        return np.vstack([rng.normal(size=(n // 6, l)) @ space for space in spaces]), l
    if name == "one subspace":
        return rng.normal(size=(n, l)) @ rng.normal(size=(l, d)), l
    if name == "zeros and a shared direction":
        arms = rng.normal(size=(n, d))
        arms[::5] = arms[0]
        arms[::7] = 0.0
        return arms, l
    if name == "zero first":
        return np.vstack([np.zeros((3, d)), rng.normal(size=(n // 3, d))]), l
    if name == "no compression":
        return rng.normal(size=(n, 9)), 8
    if name == "the probes' own direction":  # the vector that probes are made from is an arm: nothing of it is left
        omega = module.FirstFit(1, 6, 3, TOL, block=1, threads=module.Threads(), device="cpu").draft.omega
        start = np.vstack([0.3 * omega, rng.normal(size=(2, 6))])
        return np.vstack([start, rng.normal(size=(n // 4, 6)), rng.normal(size=(n // 4, 3)) @ start]), 3
    if name == "whole space":
        return rng.normal(size=(n // 2, 7)), 12
    assert name == "rank one"
    return rng.normal(size=(n // 3, d))[rng.integers(n // 6, size=n // 3)], 1


NAMES = (
    "general position",
    "near-dependent",
    "near every cluster",
    "duplicates",
    "parallel groups shuffled",
    "subspaces interleaved",
    "subspaces in turn",
    "one subspace",
    "zeros and a shared direction",
    "zero first",
    "no compression",
    "the probes' own direction",
    "whole space",
    "rank one",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("block", "tile", "workers"), [(1, 1, 1), (16, 64, 3), (37, 50, 2), (1024, 2**20, 1)])
def test_adversarial_arms_give_the_plain_partition(name, block, tile, workers, tiny):
    tiny(block, tile)
    arms, l = adversarial(name)
    expected = naive.plain_first_fit(arms, l)
    assert same(fit(arms, l, workers=workers), expected)
    assert expected[0].tolist() == naive.first_fit(arms, l).tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block", [7, 1024])
def test_adversarial_arms_without_plans_and_compression(name, block, tiny, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", (block, block))
    for threshold in ("PLANNED", "PARALLEL"):
        monkeypatch.setattr(module, threshold, np.inf)
    arms, l = adversarial(name)
    assert same(fit(arms, l), naive.plain_first_fit(arms, l))


@pytest.mark.skipif(not JIT, reason="as above, with many more seeds")
@pytest.mark.parametrize("name", NAMES)
def test_more_adversarial_arms(name, tiny):
    for seed in range(1, 6):
        arms, l = adversarial(name, seed)
        tiny(block=[3, 8, 21, 64, 200][seed - 1], tile=[1, 9, 80, 400, 3000][seed - 1])
        assert same(fit(arms, l, workers=seed), naive.plain_first_fit(arms, l))


@pytest.mark.parametrize("compressed", [True, False])
def test_near_dependent_arms_fall_on_their_side_of_the_tolerance(compressed, monkeypatch):
    """0.1 and 0.9 of the tolerance are in, 1.1 and 10 are out."""
    for threshold in ("PLANNED", "PARALLEL"):
        monkeypatch.setattr(module, threshold, 0 if compressed else np.inf)
    rng, d, l = np.random.default_rng(5), 61, 6
    start = rng.normal(size=(rounds(40, 5) * l, d))
    shares = np.tile([0.1, 0.9, 1.1, 10.0], 8)
    for c in range(0, len(start) // l, 4):
        arms = near(start[c * l : (c + 1) * l], shares, rng)
        labels, _, _ = fit(np.vstack([start, arms]), l)
        assert np.array_equal(labels[len(start) :] == c, shares < 1)


def test_at_exactly_the_tolerance_both_paths_ask_the_one_routine(tiny, monkeypatch):
    """The tolerance is set to the very residual that the routine returns: in; one step below it: out."""
    rng, d, l = np.random.default_rng(6), 31, 5
    start = rng.normal(size=(8 * l, d))
    arms = np.vstack([start, near(start[2 * l : 3 * l], [1.0], rng)])
    _, _, bases = fit(start, l)
    x = np.empty((1, d))
    module.unit_rows(arms[-1:], x, np.zeros(1, np.int64), 0, 1)
    residual = remove_projection(bases[2 * l : 3 * l], l, x[0], np.empty(l))
    assert residual == pytest.approx(TOL, rel=1e-3)
    for tol, label in ((residual, 2), (np.nextafter(residual, 0), 8)):
        found = fit(arms, l, tol)
        assert found[0][-1] == label
        assert same(found, naive.plain_first_fit(arms, l, tol))


@examples(40)
@given(arm_sets(), st.integers(1, 9), st.integers(1, 40), st.integers(1, 3), SEED)
def test_any_arms_in_any_blocks(given_arms, block, tile, workers, seed):
    arms, l = given_arms
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", (1, block))
        patch.setattr(probe, "TILE", tile)
        for threshold in ("PLANNED", "PARALLEL"):
            patch.setattr(module, threshold, 0)
        patch.setattr(module, "SERIAL", 0)
        assert same(fit(arms, l, workers=workers), naive.plain_first_fit(arms, l))


def test_no_member_fails_its_probe(tiny):
    """|p.Gx| <= limit for members at nearly the tolerance: with a limit of tol alone a third would be missed."""
    rng, d, l = np.random.default_rng(7), 64, 6
    start = rng.normal(size=(l, d))
    fitted = module.FirstFit(l, d, l, TOL, block=l, threads=module.Threads(), device="cpu")
    assert fitted.add(start, np.zeros(l, np.int64))
    members = unit(near(start, [0.999] * rounds(4000, 400), rng))
    values = np.abs(members @ fitted.compression.G.T @ fitted.prober.probes[0])
    assert fitted.compression.dim < d
    assert values.max() <= fitted.compression.limit
    assert np.mean(values > TOL) > 0.2
    strangers = unit(rng.normal(size=(1000, d))) @ fitted.compression.G.T @ fitted.prober.probes[0]
    assert np.mean(np.abs(strangers) <= fitted.compression.limit) < 0.01


@pytest.mark.parametrize(("dim", "l"), [(30, 4), (9, 4), (6, 6)])
def test_probes_are_orthogonal_to_their_spans(dim, l):
    """In d dimensions and compressed; zero where a span is everything or holds omega."""
    rng = np.random.default_rng(dim)
    draft = module.Draft.empty(60, dim, l, 60, TOL)
    compression = probe.Compression(draft, min(l + 8, dim))
    G = np.eye(dim) if compression.G is None else compression.G
    bases = np.linalg.qr(rng.normal(size=(5, dim, l)))[0].transpose(0, 2, 1)
    bases[2] = np.linalg.qr(np.column_stack([draft.omega, rng.normal(size=(dim, l - 1))]))[0].T
    compressed = compression.probes(bases.reshape(-1, dim))
    plain = np.ones(dim)
    for c, basis in enumerate(bases):
        probe.make_probe(np.ascontiguousarray(basis), l, draft.omega, plain)
        for found, span in ((plain, basis), (compressed[c], basis @ G.T)):
            assert np.linalg.norm(found) == (0.0 if c == 2 or l == dim else pytest.approx(1.0))
            assert np.abs(span @ found).max() < 1e-12 * np.linalg.norm(G, 2)


def test_plans_that_break_are_given_up_for_a_while(tiny, monkeypatch):
    plans = []
    own = module.FirstFit._follow_plan
    monkeypatch.setattr(module.FirstFit, "_follow_plan", lambda self, *rest: (plans.append(1), own(self, *rest))[1])
    rng = np.random.default_rng(8)
    general = rng.normal(size=(160, 23))
    fit(general, 4)
    assert len(plans) == 10  # one per block of 16
    plans.clear()
    fit(np.repeat(general, 2, axis=0), 4)  # every second arm is a duplicate
    assert len(plans) <= 4


# -------------------------------------------------------------------------------------------------- what comes and goes
def test_float32_and_memory_mapped_arms_are_read_in_blocks(tmp_path, tiny):
    arms, l = adversarial("duplicates")
    single = arms.astype(np.float32)
    np.save(tmp_path / "arms.npy", single)
    mapped = np.load(tmp_path / "arms.npy", mmap_mode="r")
    expected = naive.plain_first_fit(single, l, 1e-6)
    for given_arms in (single, mapped, np.asfortranarray(single), np.repeat(single, 2, axis=1)[:, ::2]):
        part = Partition.first_fit(given_arms, sketch_size=l)
        assert same((part.labels, part.ranks, part.bases), expected)
        assert part.tolerance == 1e-6
    whole = np.round(arms * 10).astype(np.int32)
    assert same(fit(whole, l), naive.plain_first_fit(whole, l))


@pytest.mark.skipif(not JIT, reason="tracemalloc in plain Python counts every object")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["general position", "one subspace"])
def test_memory_stays_within_the_bound(dtype, kind):
    n, d, l = 20_000, 64, 16
    rng = np.random.default_rng(9)
    arms = rng.normal(size=(n, d)) if kind == "general position" else rng.normal(size=(n, l)) @ rng.normal(size=(l, d))
    arms = arms.astype(dtype)
    Partition.first_fit(arms[:100], sketch_size=l)  # compiled, or loaded, beforehand
    tracemalloc.start()
    part = Partition.first_fit(arms, sketch_size=l)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 1.5 * n * d * 8
    if kind == "one subspace":
        assert part.n_clusters == 1 and part.bases.nbytes == l * d * 8 and part.bases.base is None


@pytest.mark.skipif(not JIT, reason="tracemalloc in plain Python counts every object")
def test_few_arms_of_many_dimensions_take_memory_by_the_arm():
    """Nothing as large as a matrix of d x d entries is made, nor decomposed."""
    arms = np.random.default_rng(9).normal(size=(9, 2_000))
    Partition.first_fit(arms[:, :30], sketch_size=4)  # compiled, or loaded, beforehand
    tracemalloc.start()
    Partition.first_fit(arms, sketch_size=4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 10 * arms.nbytes


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200, 1e-200])
def test_bad_entries_are_named_by_their_place(bad, tiny):
    arms = np.random.default_rng(10).normal(size=(50, 7))
    arms[43] = 0.0
    arms[43, 2] = bad
    with pytest.raises(ValueError, match="arms must be") as error:
        Partition.first_fit(arms, sketch_size=3)
    if not np.isfinite(bad):
        assert "[43, 2]" in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be a whole number >= 1, got 0"),
        ({"workers": 1.5}, "workers must be a whole number >= 1, got 1.5"),
        ({"device": "gpu"}, "device must be 'cpu', 'cuda' or"),
        ({"device": None}, "device must be 'cpu', 'cuda' or"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Partition.first_fit(np.eye(3), sketch_size=1, **options)


def test_a_missing_gpu_is_named():
    torch = pytest.importorskip("torch") if module.importlib.util.find_spec("torch") else None
    if torch is not None and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match=r"device must be 'cpu'.*, got 'cuda'"):
        Partition.first_fit(np.eye(3), sketch_size=1, device="cuda")


@pytest.mark.parametrize("name", NAMES)
def test_the_gpu_gives_the_same_partition(name, tiny):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    arms, l = adversarial(name)
    part = Partition.first_fit(arms, sketch_size=l, device="cuda")
    assert same((part.labels, part.ranks, part.bases), naive.plain_first_fit(arms, l))


def test_an_arm_along_the_direction_that_probes_are_made_from():
    """An arm that was the direction of all probes: its probe was NaN, and no parallel arm found it."""
    for d, l in ((2, 1), (3, 2), (4, 3), (6, 5), (9, 1), (9, 8), (23, 4), (40, 2)):  # the last two are compressed
        omega = module.FirstFit(1, d, l, TOL, block=1, threads=module.Threads(), device="cpu").draft.omega
        start = np.random.default_rng(d).normal(size=(4 * l + 1, d))
        start[0] = 2.5 * omega
        arms = np.vstack([start, -3.0 * start[:l], 0.5 * start[:1]])
        assert same(fit(arms, l), naive.plain_first_fit(arms, l))


def test_blas_gets_its_threads_back_when_the_last_of_several_is_out():
    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = threads()
    with threadpool_limits(2, user_api="blas"):
        many = threads()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert set(threads()) == {1}
        first.__exit__(None, None, None)
        assert set(threads()) == {1}
        second.__exit__(None, None, None)
        assert threads() == many
    assert threads() == before


def test_progress_is_reported_in_growing_shares(tiny):
    shares = []
    Partition.first_fit(
        np.random.default_rng(11).normal(size=(200, 23)),
        sketch_size=4,
        progress=lambda share, what: shares.append((share, what)),
    )
    values = [share for share, _ in shares]
    assert len(values) >= 10 and values == sorted(values) and values[-1] == 1.0
    assert all(what == "partitioning 200 arms" for _, what in shares)


def test_an_error_in_a_thread_reaches_the_caller_and_no_thread_stays(tiny, monkeypatch):
    def fails(*arguments):
        raise RuntimeError("in a part")

    monkeypatch.setattr(module, "plan", fails)
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="in a part"):
        fit(np.random.default_rng(12).normal(size=(200, 23)), 4, workers=3)
    assert threading.active_count() == before


def test_cslb_takes_a_partition_made_beforehand(tiny):
    arms, l = adversarial("duplicates")
    partition = Partition.first_fit(arms, sketch_size=l, workers=2)
    policy, own = CSLB(arms, partition=partition), CSLB(arms, sketch_size=l)
    assert policy.partition is partition and policy.settings == own.settings
    assert same(policy.state, own.state)
