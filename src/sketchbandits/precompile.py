"""Every kernel of a policy used once, on a few small arms: compiled, and kept in Numba's cache on disk.

A process compiles a kernel the first time it calls it, which takes seconds, unless the cache has it. `precompile` fills
the cache ahead of that, for example while an image is built.
"""

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba.core import event
from numba.core.dispatcher import Dispatcher

from sketchbandits.environments import LinearEnvironment, correlated_arms, fixed_delay, uniform_parameter
from sketchbandits.kernels.linalg import Floats
from sketchbandits.partition.first_fit import BLOCK, PLANNED
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.base import Policy
from sketchbandits.policies.registry import POLICIES
from sketchbandits.simulate import simulate

DIM, N_ARMS = 7, 23
PARALLEL = 16  # of them, so that one cluster has more arms than twice its rank, which has a form of its own
Show = Callable[[str, float], None]


class Kernels(NamedTuple):
    """Names of the kernels that were compiled, how many were found in the cache, and the folders that hold it."""

    compiled: tuple[str, ...]
    found: int
    folders: tuple[Path, ...]


def precompile(names: Iterable[str] = (), show: Show = lambda what, share: None) -> Kernels:
    """Use every kernel of the named policies (default: all of the registry); ``show`` gets what is done, and a share.

    Names are those of the registry, such as ``"multiscale"``; one that it does not have raises ``ValueError``.
    """
    wanted = tuple(dict.fromkeys(names)) or tuple(POLICIES)
    for name in wanted:
        if name not in POLICIES:
            raise ValueError(f"policies must be some of {', '.join(POLICIES)}, got {name!r}")
    before = _found_in_cache()
    with event.install_recorder("numba:compile") as recorder:
        for i, name in enumerate(wanted):
            show(POLICIES[name].label, i / len(wanted))
            use_everything(POLICIES[name].policy)
    functions = [e.data["dispatcher"].py_func for _, e in recorder.buffer if e.is_start]
    compiled = sorted(f"{function.__module__}.{function.__qualname__}" for function in functions)
    return Kernels(tuple(compiled), _found_in_cache() - before, cache_folders())


def use_everything(policy: Callable[..., Policy]) -> None:
    """All that a caller or the service may do with a policy, in every variant that has kernels of its own."""
    arms = correlated_arms(n_arms=N_ARMS, dim=DIM, group_size=2, seed=0).copy()
    arms[:PARALLEL] = parallel(arms[0])
    env = LinearEnvironment(arms, uniform_parameter(DIM, seed=1))
    built = [policy(arms, seed=0, **options) for options in variants(policy)]
    with tempfile.TemporaryDirectory() as folder:
        for each in built:
            _use(each, env, Path(folder) / "state.npz")
        _use_contextual(policy, Path(folder) / "state.npz")
        _use_user_contexts(policy, arms)
    both = {str(i): each for i, each in enumerate(built)}
    simulate(env, both, rounds=50, runs=2, progress=False)
    simulate(env, both, rounds=30, batch=2, delay=fixed_delay(3), progress=False)
    if hasattr(built[0], "partition") or _takes_contexts(policy):  # with a sketch size the latter has clusters, too
        for make in (Partition.first_fit, Partition.subspaces):
            for precision in (np.float64, np.float32):
                make(arms.astype(precision), sketch_size=3, progress=False)
        use_partition()


def parallel(arm: Floats) -> Floats:
    """`PARALLEL` arms on one line."""
    return arm * np.linspace(1.0, 0.1, PARALLEL)[:, None]


def use_partition(*, blocks: bool = True, plans: bool = True) -> None:
    """First-fit of arms that may not be written to, which is another type to Numba; of so many that it works in blocks;
    and of so many that it plans whole blocks.
    """
    cases = [((N_ARMS, DIM), 3)]
    cases += [((BLOCK[0] + 32, DIM), 3)] if blocks else []
    cases += [((PLANNED // (64 * 16) + 1, 64), 16)] if plans else []
    for shape, sketch_size in cases:
        arms = np.random.default_rng([20_061_012, 1_732]).standard_normal(shape)
        arms.setflags(write=False)
        Partition.first_fit(arms, sketch_size=sketch_size, progress=False)


def variants(policy: Callable[..., Policy]) -> list[dict[str, Any]]:
    """Keyword arguments that lead to a policy's different kernels, found by its signature."""
    known = inspect.signature(policy).parameters
    base: dict[str, Any] = {"sketch_size": 3} if "sketch_size" in known else {}
    takes_function = "radius" in known and known["radius"].annotation is not str
    choices: dict[str, tuple[Any, ...]] = {
        "radius": ("logdet", _constant_radius) if takes_function else ("logdet",),
        "engine": ("sketch",),
        "scan": ("shortlist",),
        "switching": (0.5,),
        "cap": (True,),
        "exploration": ("ts",) if "scale" in known else (),
        "shrink": ("every-round",),
        "compensated": (True,),
        "half_life": ("auto",),
        "explore": ("ts",) if _takes_contexts(policy) else (),  # all rules are one kernel, but not all that it is asked
    }
    return [base] + [base | {name: value} for name, values in choices.items() if name in known for value in values]


def _use(policy: Any, env: LinearEnvironment, path: Path) -> None:
    for _ in range(30):  # long enough for sketches to fill and for refits
        policy.update(policy.select(), 0.5)
    policy.bounds()
    policy.estimates()
    policy.select(available=[0, 1], pending=[2])
    policy.select_many(3, pending=[0, 1])
    policy.save(path)
    radius = policy.settings.get("radius")
    loaded = type(policy).load(path, radius=radius if callable(radius) else None)
    loaded.update(loaded.select(), 0.5)
    loaded.copy().update(0, 0.5)
    loaded.update_many([0, 1], [0.5, 0.5])
    loaded.play((np.arange(3, dtype=np.uint8), np.zeros(3, np.float32)), learn="matches")
    if policy.runs_compiled:
        loaded.play_rounds(env.means, env.gaps, np.zeros(30))
        loaded.play_rounds(env.means.copy(), env.gaps.copy(), np.zeros(30))  # writable arrays are another type to Numba
    _change_arms(loaded, env)


def _change_arms(policy: Any, env: LinearEnvironment) -> None:
    """Add, remove and free arms where the policy and its options allow it, then play on."""
    try:
        policy.add_arms(env.arms[:2] / 2)
    except (AttributeError, ValueError):  # the policy, or this variant of it, has a fixed set of arms
        return
    policy.update(policy.n_arms - 1, 0.5)
    policy.remove_arms([0])
    policy.select_many(3, pending=[1])
    for _ in range(30):
        policy.update(policy.select(), 0.5)
    if hasattr(policy, "free_arms"):
        policy.free_arms([0])
    policy.update(policy.select(), 0.5)
    policy.bounds()


def _takes_contexts(policy: Callable[..., Policy]) -> bool:
    """Whether the class has a form for contexts and arms."""
    return "context_dim" in inspect.signature(policy).parameters


def _use_user_contexts(policy: Any, arms: Floats) -> None:
    """Decisions for users, one at a time and in a loop; and arms that come with requests."""
    if not _takes_contexts(policy):
        return
    contexts, rewards = np.random.default_rng(3).random((30, 2)), np.random.default_rng(4).random((30, len(arms)))
    for options in ({}, {"half_life": "auto"}, {"explore": "ts"}):
        built = policy(arms, context_dim=2, seed=0, **options)
        built.play_user_rounds(contexts, rewards, None)
        built.update(built.select(contexts[0]), 0.5, context=contexts[0])
        built.update_many([0, 1], [0.5, 0.25], contexts=contexts[:2])
        built.bounds(contexts[0])
        built.probabilities(contexts[0])
    offered = policy(feature_dim=DIM, context_dim=2, max_arms=3, seed=0)
    for i in range(8):  # more than have a fit of their own
        offer = {"arms": [i, i + 1], "features": arms[i : i + 2]}
        one = offered.select(contexts[i], **offer)
        offered.update(one, rewards[i, 0], context=contexts[i], features=arms[one])
    offered.bounds(contexts[0], **offer)


def _use_contextual(policy: Any, path: Path) -> None:
    make = getattr(policy, "contextual", None)
    if make is None:
        return
    sized = {"sketch_size": 3} if "sketch_size" in inspect.signature(make).parameters else {}
    contexts = np.random.default_rng(2).random((5, DIM)) / DIM
    built = make(dim=DIM, seed=0, **sized)
    for _ in range(30):
        built.update(contexts[built.select(contexts)], 0.5)
    built.update_many(contexts, np.zeros(5))
    built.bounds(contexts)
    built.estimates(contexts)
    built.save(path)
    loaded = policy.load(path)
    loaded.update(contexts[loaded.select(contexts)], 0.5)
    loaded.copy().update(contexts[0], 0.5)


def _constant_radius(samples: int, logdet: float) -> float:
    return 1.0


def _kernels() -> list[Dispatcher]:
    """Every kernel that the loaded modules of the library hold."""
    modules = [module for name, module in sys.modules.items() if name.startswith("sketchbandits")]
    found = {id(k): k for module in modules for k in vars(module).values() if isinstance(k, Dispatcher)}
    return list(found.values())


def _found_in_cache() -> int:
    return sum(sum(kernel.stats.cache_hits.values()) for kernel in _kernels())


def cache_folders() -> tuple[Path, ...]:
    """Where the cache is: none where Numba found no folder that can be written to."""
    return tuple(sorted({Path(kernel.stats.cache_path) for kernel in _kernels() if kernel.stats.cache_path}))


def compiles() -> bool:
    """Whether kernels are compiled at all: not where NUMBA_DISABLE_JIT is set."""
    return bool(_kernels())


def cache_advice() -> str | None:
    """What to do where kernels are compiled, but nothing that is compiled can be kept; None where all is well."""
    if not compiles() or cache_folders():
        return None
    return (
        "every process compiles its kernels again, which takes seconds to minutes, since neither the library's folder "
        "nor one in a home can be written: set NUMBA_CACHE_DIR to a folder that can"
    )
