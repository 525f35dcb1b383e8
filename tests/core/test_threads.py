"""Several threads in one policy: calls wait for each other, no reward is lost, and nothing crashes."""

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from catalogue import CONTEXTUAL, POLICIES
from conftest import JIT

# In a process of its own: without the lock compiled code reads and writes out of bounds, and the process dies.
RACE = """
import threading
import numpy as np
from sketchbandits import CSLB, MultiscaleCSLB

arms = np.random.default_rng(0).normal(size=(60, 12))
for policy in (MultiscaleCSLB(arms, sketch_size=3), CSLB(arms, sketch_size=3, radius="logdet")):
    policy.update(0, 0.0), policy.select_many(3), policy.add_arms(arms[:1])

    def work(seed):
        generator = np.random.default_rng(seed)
        for t in range(1500):
            policy.update(policy.select(), float(generator.normal()))
            if t % 50 == seed:
                policy.select(pending=[0, 1]), policy.bounds(), policy.copy(), policy.counts
            if t % 100 == seed:
                policy.add_arms(generator.normal(size=(1, 12)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert policy.counts.sum() == 6001 and policy.n_arms == 61 + 60, (policy.counts.sum(), policy.n_arms)
"""


@pytest.mark.process
@pytest.mark.skipif(not JIT, reason="plain Python holds the global lock")
def test_racing_calls_wait_and_nothing_is_lost():
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-2000:]}"


@pytest.mark.parametrize("name", ["multiscale", "oful", "soful", "ucb1"])
def test_a_call_waits_for_the_one_that_is_inside(name):
    policy = POLICIES[name](np.random.default_rng(0).normal(size=(9, 4)))
    policy.update(0, 1.0)
    twin = policy.copy()
    twin.update(1, 0.5), twin.bounds(), twin.select_many(2)  # compiled before anybody waits for a thread
    finished = []
    calls = [lambda: policy.update(1, 0.5), policy.bounds, policy.copy, lambda: policy.select_many(2)]
    with policy._lock:
        threads = [threading.Thread(target=lambda call=call: finished.append(call())) for call in calls]
        for thread in threads:
            thread.start()
        assert policy.select() in range(9), "select() reads one number and waits for nobody"
        threads[0].join(0.05)
        assert not finished and policy.state.counts.sum() == 1
    for thread in threads:
        thread.join(60)
    assert len(finished) == 4 and policy.counts.sum() == 2


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
@pytest.mark.parametrize("name", ["multiscale", "oful", "contextual-oful"])
def test_copies_and_pickles_have_a_lock_of_their_own(name, make):
    if name.startswith("contextual"):
        policy = CONTEXTUAL["oful"](4)
        policy.update(np.eye(4)[0], 1.0)
    else:
        policy = POLICIES[name](np.random.default_rng(0).normal(size=(9, 4)))
        policy.update(0, 1.0)
    twin = make(policy)
    assert twin._lock is not policy._lock
    with policy._lock:
        thread = threading.Thread(target=twin.copy)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
