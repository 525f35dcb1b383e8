"""`benchmarks/embeddings.py`: disjoint LinUCB on sketches is what it says, and the quick run prints its table."""

import numpy as np
import pytest
from conftest import rounds

import embeddings
from suite.linear_rivals import LinUCBForUsers
from suite.sketched_rivals import SketchedLinUCBForUsers

N, P, ROUNDS, ALPHA = 4, 6, 200, 0.5


def game(length=P):
    rng = np.random.default_rng(length)
    contexts = rng.normal(size=(ROUNDS, length)) / np.sqrt(np.arange(1.0, length + 1.0))
    return contexts, contexts @ rng.normal(size=(length, N)) + ALPHA * rng.normal(size=(ROUNDS, N))


@pytest.mark.parametrize("ridge", [0.05, 1.0])
@pytest.mark.parametrize("size", [P, P + 3])
def test_a_sketch_as_large_as_contexts_is_exact(size, ridge):
    contexts, rewards = game()
    exact = LinUCBForUsers(np.eye(N), P, shared=False, alpha=ALPHA)
    expected = exact.play_user_rounds(contexts / ridge**0.5, rewards, None)
    policy = SketchedLinUCBForUsers(N, P, sketch_size=size, ridge=ridge, alpha=ALPHA)
    pieces = [policy.play_user_rounds(contexts[half], rewards[half]) for half in (slice(0, 70), slice(70, None))]
    assert np.concatenate(pieces).tolist() == expected.tolist()
    assert len(set(expected.tolist())) == N
    assert policy.theta == pytest.approx(exact.fit.means / ridge**0.5, abs=1e-11)


class Slow:
    """Frequent Directions with spectral compensation as matrices, and V inverted anew for every question."""

    def __init__(self, p, size, ridge):
        self.rows, self.size, self.alpha, self.sum = np.zeros((0, p)), size, ridge, np.zeros(p)

    def learn(self, u, reward):
        self.sum = self.sum + reward * u
        self.rows = np.vstack([self.rows, u])
        if len(self.rows) == 2 * self.size:
            _, sigma, vectors = np.linalg.svd(self.rows, full_matrices=False)
            self.alpha += sigma[self.size] ** 2
            left = sigma[: self.size] ** 2 - sigma[self.size] ** 2
            self.rows = np.sqrt(left)[:, None] * vectors[: self.size]

    def fit(self):
        inverse = np.linalg.inv(self.rows.T @ self.rows + self.alpha * np.eye(self.sum.size))
        return inverse @ self.sum, inverse


@pytest.mark.parametrize("size", [1, 3])
def test_a_small_sketch_is_that_of_every_arm(size):
    contexts, rewards = game(11)
    slow, expected = [Slow(11, size, 0.3) for _ in range(N)], []
    for u, paid in zip(contexts, rewards, strict=True):
        fits = [arm.fit() for arm in slow]
        bounds = [u @ theta + ALPHA * np.sqrt(u @ inverse @ u) for theta, inverse in fits]
        expected.append(int(np.argmax(np.round(bounds, 12))))  # arms that have not been played yet tie
        slow[expected[-1]].learn(u, paid[expected[-1]])
    policy = SketchedLinUCBForUsers(N, 11, sketch_size=size, ridge=0.3, alpha=ALPHA)
    assert policy.play_user_rounds(contexts, rewards).tolist() == expected
    assert policy.theta == pytest.approx(np.array([arm.fit()[0] for arm in slow]), abs=1e-10)
    assert policy.bytes > 8 * N * 4 * size * 11


def test_the_quick_run_prints_a_whole_table(monkeypatch, capsys):
    sizes = embeddings.quick()
    monkeypatch.setattr(embeddings, "quick", lambda: sizes._replace(rounds=rounds(sizes.rounds, 12)))
    embeddings.main(["--quick"])
    head, line, *rows = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in (head, *rows)]
    assert {len(row) for row in cells} == {len(cells[0])} == {line.count("|") - 1}
    found = {row[0]: row[1:] for row in cells[1:]}
    assert found[embeddings.EXACT][:3] == ["1.00", "1.00", ""]
    assert found[embeddings.RANDOM_CHOICE][2] == "1.00"
    blank = {name for name, row in found.items() if "" in row}
    largest = f"k={sizes.projected[-1]}"
    assert {name for name in blank if "k=" in name} == {name for name in found if name.endswith(largest)}
    assert len(found) == 2 + 3 * len(sizes.projected) + len(sizes.sketches)


@pytest.mark.parametrize("leading", [True, False])
def test_worlds_are_as_described(leading):
    scene = embeddings.Scene(40, 3, 1.0, leading)
    world = embeddings.drawn(scene, 0, embeddings.quick()._replace(rounds=3_000))
    assert np.linalg.norm(world.contexts, axis=1) == pytest.approx(1.0)
    assert world.means.std(axis=0) == pytest.approx(1.0, abs=0.01)  # earlier contexts count too
    assert (world.rewards - world.means).std() == pytest.approx(embeddings.NOISE, rel=0.05)
    values, vectors = np.linalg.eigh(world.contexts.T @ world.contexts)
    assert values[-1] / values[-8] == pytest.approx(8.0, rel=0.4)
    coefficients = np.linalg.lstsq(world.contexts, world.means, rcond=None)[0]
    assert world.contexts @ coefficients == pytest.approx(world.means, abs=1e-9)
    share = ((vectors[:, -12:].T @ coefficients) ** 2).sum() / (coefficients**2).sum()
    assert (share > 0.95) == leading
    again = embeddings.drawn(scene, 0, embeddings.quick()._replace(rounds=3_000))
    assert np.array_equal(again.rewards, world.rewards)
