"""What `HybridCSLB` is timed against: the hybrid LinUCB of Li et al. in NumPy, and Vowpal Wabbit for users.

Algorithm 2 of Li, Chu, Langford and Schapire, WWW 2010: ``x`` is the user's context, ``z`` the products of its entries
with the arm's features, beta what all arms share and theta what an arm has of its own,

    reward = z . beta + x . theta_a + noise

Ridge 1 for both, as printed. ``A_0^-1`` is computed anew in every trial; ``A_a^-1`` is kept, since ``A_a`` changes for
the played arm only: an inverse of every arm in every trial would flatter whoever is compared with it.

This file needs NumPy only. Run as a script it is the driver of Vowpal Wabbit, in that library's own environment:

    python hybrid_linucb.py PROBLEM OUTPUT --seconds SECONDS
"""

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class HybridLinUCB:
    """Algorithm 2, one arm after the other in the order of its lines; ``stacked``: the same lines for all arms at once.

    The stacked form is what somebody who knows NumPy would write. Both choose the same arms.
    """

    def __init__(self, arms: Floats, p: int, *, alpha: float = 1.0, stacked: bool = False) -> None:
        n, q = arms.shape
        k = p * q
        self.arms, self.alpha = arms, alpha
        self.scores = self._scores_of_all if stacked else self._scores_in_turn
        self.A_0, self.b_0 = np.eye(k), np.zeros(k)
        self.A, self.b = np.tile(np.eye(p), (n, 1, 1)), np.zeros((n, p))
        self.B = np.full((n, p, k), 0.0)  # not np.zeros, whose pages are one page of zeros until written: too fast
        self.A_inverse = self.A.copy()

    def select(self, x: Floats) -> int:
        """Lines 4 to 16."""
        A_0_inverse = np.linalg.inv(self.A_0)
        return int(np.argmax(self.scores(x, A_0_inverse, A_0_inverse @ self.b_0)))

    def _scores_in_turn(self, x: Floats, A_0_inverse: Floats, beta: Floats) -> Floats:
        result = np.empty(len(self.arms))
        for a, features in enumerate(self.arms):
            z = np.outer(x, features).ravel()
            theta = self.A_inverse[a] @ (self.b[a] - self.B[a] @ beta)
            Ax = self.A_inverse[a] @ x
            BAx = self.B[a].T @ Ax
            s = z @ A_0_inverse @ z - 2.0 * (z @ A_0_inverse @ BAx) + x @ Ax + BAx @ A_0_inverse @ BAx
            result[a] = z @ beta + x @ theta + self.alpha * np.sqrt(s)
        return result

    def _scores_of_all(self, x: Floats, A_0_inverse: Floats, beta: Floats) -> Floats:
        z = (x[:, None] * self.arms[:, None, :]).reshape(len(self.arms), -1)
        Ax = self.A_inverse @ x
        mean = z @ beta + np.einsum("np,np->n", Ax, self.b - self.B @ beta)
        off = z - (Ax[:, None, :] @ self.B)[:, 0]  # the terms of s in A_0^-1 are one square
        s = np.einsum("nk,nk->n", off @ A_0_inverse, off) + Ax @ x
        scores: Floats = mean + self.alpha * np.sqrt(s)
        return scores

    def update(self, a: int, reward: float, x: Floats) -> None:
        """Lines 17 to 23."""
        z = np.outer(x, self.arms[a]).ravel()
        self._told(a, 1.0)
        self.A[a] += np.outer(x, x)
        self.B[a] += np.outer(x, z)
        self.b[a] += reward * x
        self.A_inverse[a] = np.linalg.inv(self.A[a])
        self.A_0 += np.outer(z, z)
        self.b_0 += reward * z
        self._told(a, -1.0)

    def _told(self, a: int, sign: float) -> None:
        """Add what the arm's own fit takes off the shared one, or take it off."""
        BA = self.B[a].T @ self.A_inverse[a]
        self.A_0 += sign * (BA @ self.B[a])
        self.b_0 += sign * (BA @ self.b[a])


class VowpalWabbit:
    """``--cb_explore_adf -q ua --squarecb``. All text is parsed off the clock, labels too."""

    OPTIONS = "--cb_explore_adf -q ua --squarecb --cb_min_cost=-10 --cb_max_cost=10 --quiet"

    def __init__(self, arms: Floats, contexts: Floats) -> None:
        import vowpalwabbit  # type: ignore[import-not-found]

        self.workspace = vowpalwabbit.Workspace(self.OPTIONS)
        self.lines = [_line("a", arm) for arm in arms.tolist()]
        self.arms = [self._parsed(line) for line in self.lines]
        self.users = [self._parsed(f"shared {_line('u', x)}") for x in contexts.tolist()]
        self.numbers, self.random = range(len(arms)), random.Random(0)

    def _parsed(self, line: str) -> Any:
        return self.workspace.parse([line])[0]

    def select(self, t: int) -> int:
        """An arm drawn from the predicted distribution."""
        self.distribution = self.workspace.predict([self.users[t], *self.arms])
        return self.random.choices(self.numbers, self.distribution)[0]

    def prepare(self, t: int, arm: int, reward: float) -> None:
        """The examples of this round, with the cost on the chosen arm's."""
        label = f"0:{-reward:.9g}:{self.distribution[arm]:.9g}"
        self.own = self._parsed(f"{label} {self.lines[arm]}")
        self.labelled = [self.users[t], *self.arms[:arm], self.own, *self.arms[arm + 1 :]]

    def update(self) -> None:
        """One step of online gradient descent."""
        self.workspace.learn(self.labelled)

    def tidy(self) -> None:
        """Give the labelled example back, off the clock."""
        self.workspace.finish_example([self.own])


def _line(name: str, values: list[float]) -> str:
    return f"|{name} " + " ".join(f"{number}:{value:.9g}" for number, value in enumerate(values))


def drive(problem: dict[str, Floats], seconds: float) -> dict[str, Any]:
    """Rounds until the time on the clock is used up; the clock runs in `select` and `update` only."""
    contexts, rewards, clock = problem["contexts"], problem["rewards"], time.thread_time
    player = VowpalWabbit(problem["arms"], contexts)
    played, spent, paid = 0, 0.0, 0.0
    for t in range(-2, len(contexts)):  # the first two rounds load what is loaded lazily
        started = clock()
        arm = player.select(t)
        chosen = clock() - started
        player.prepare(t, arm, rewards[t, arm])
        started = clock()
        player.update()
        taken = chosen + clock() - started
        player.tidy()
        if t >= 0:
            played, spent, paid = played + 1, spent + taken, paid + rewards[t, arm]
        if spent >= seconds:
            break
    return {"rounds": played, "microseconds": spent / played * 1e6, "mean_reward": paid / played}


def main() -> None:
    parser = argparse.ArgumentParser(description="Rounds of Vowpal Wabbit.")
    parser.add_argument("problem", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    with np.load(options.problem) as arrays:
        found = drive(dict(arrays), options.seconds)
    options.output.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
