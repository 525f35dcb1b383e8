"""UCB1: optimism on each arm's own mean, blind to the features.

    play every arm once; then argmax_i  mean_i + R sqrt(c ln t / n_i) ,   t = 1 + rewards recorded

**Cost** O(N) per round, O(N) memory.
**Reference** Auer, Cesa-Bianchi and Fischer, Machine Learning 47, 2002, Figure 1.
**Departures** The noise scale ``R`` multiplies the width: the printed rule is for rewards in [0, 1]. ``exploration=2``
(default) is the printed constant; 8 is the calibration for R-sub-Gaussian noise.
**Pending** decisions count in ``n_i``; bounds are not inflated, and every pending pull counts.
**Guarantee** none is claimed for ``exploration=2`` under Gaussian-like noise: its intervals are too narrow there.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, add_exactly, tied_argmax
from sketchbandits.policies.changing_arms import OneFit, columns, widened
from sketchbandits.policies.format_2 import arms_with_rewards
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.pending.rule import PULLS, WIDTH2, PendingBounds, new_bounds, register_model
from sketchbandits.policies.rounds import DONE, LOST, SUM, register
from sketchbandits.policies.scatter import SEEN, note_between
from sketchbandits.snapshot import Saved, take

MEAN, SPREAD = range(2)  # SPREAD: 1/sqrt(n), +inf before the first reward
CLOCK = np.dtype([("round", np.int64), ("seen", SEEN)])  # 1 + rewards recorded, and how they scatter


class UCB1State(NamedTuple):
    """Per-arm means; nothing else is known."""

    choice: Annotated[Ints, "1"]
    counts: Annotated[Ints, "n"]
    stats: Annotated[Floats, "4 n"]  # per arm: MEAN, SPREAD, SUM, LOST
    clock: Annotated[NDArray[Any], "1", CLOCK]
    factor: Annotated[Floats, "1"]  # R sqrt(c)
    closed: Annotated[Floats, "n"]  # per arm 0, or -inf once it is removed
    work: Annotated[Floats, "n"]


@kernel
def absorb(state: UCB1State, arm: int, reward: float) -> int:
    """Record a reward in the arm's mean."""
    stats = state.stats
    clock = state.clock[0]
    clock["round"] += 1
    state.counts[arm] += 1
    n, before = state.counts[arm], stats[MEAN, arm]
    add_exactly(stats, SUM, arm, reward)
    stats[MEAN, arm] = (stats[SUM, arm] + stats[LOST, arm]) / n
    stats[SPREAD, arm] = 1.0 / np.sqrt(n)
    note_between(clock["seen"], n, before, stats[MEAN, arm], reward)
    return DONE


@kernel
def choose(state: UCB1State) -> int:
    """The largest upper bound; an arm without rewards comes first."""
    fill_bounds(state, state.work)
    for i in range(state.work.size):
        if state.closed[i] < 0.0:
            state.work[i] = -np.inf
    state.choice[0] = tied_argmax(state.work)
    return DONE


@kernel
def fill_bounds(state: UCB1State, out: Floats) -> None:
    """``mean + R sqrt(c ln t/n)``."""
    beta, mean, spread = radius_of(state), state.stats[MEAN], state.stats[SPREAD]
    for i in range(out.size):
        out[i] = mean[i] + beta * spread[i]


@kernel
def radius_of(state: UCB1State) -> float:
    """``R sqrt(c ln t)``."""
    # At t = 1 the width would be 0 times infinity; any positive factor leaves every bound at +inf.
    return state.factor[0] * np.sqrt(np.log(max(state.clock[0]["round"], 2)))


register(UCB1State, absorb=absorb, choose=choose)


def clock_at(start: int) -> NDArray[Any]:
    """The clock of a state that has seen nothing of how its rewards scatter."""
    clock = np.zeros(1, CLOCK)
    clock["round"] = start
    return clock


class Counts(NamedTuple):
    """Rewards recorded for each arm."""

    counts: Ints


@kernel
def discount(model: Counts, pending: PendingBounds, slot: int) -> None:
    """A pending pull counts as one that was played, also for an arm without rewards."""
    pending.stats[WIDTH2, slot] = 1.0 / (model.counts[slot] + pending.place[PULLS, slot])


@kernel
def always_fits(model: Counts, pending: PendingBounds, slot: int) -> bool:
    """No guarantee, no limit."""
    return True


register_model(Counts, discount=discount, fits=always_fits)


class UCB1(OneFit):
    """UCB1: each arm is judged by its own rewards alone.

    For few arms, or features that say nothing about rewards. It needs several rewards of every arm; where arms
    resemble each other, `LinUCB`, `OFUL` or `MultiscaleCSLB` learn from far fewer. Arms may be added, removed and
    freed. Pending decisions are passed to it by default: without them it repeats one arm until the next reward.

    Parameters
    ----------
    arms
        One row per arm; only the number of rows matters.
    noise
        R, the scale of the reward noise, in units of the reward, > 0 (default 1); 0.5 for rewards in [0, 1].
    exploration
        c in the width ``R sqrt(c ln t/n)``, > 0 (default 2, as printed for rewards in [0, 1]; 8 is calibrated for
        R-sub-Gaussian noise). Larger explores more.
    seed
        Accepted so that all policies can be built alike; nothing is random.

    """

    pending_by_default = True  # without them every decision of a delay repeats one arm: 2,088 against 1,176 regret

    def __init__(self, arms: ArrayLike, *, noise: float = 1.0, exploration: float = 2.0, seed: Any = None) -> None:
        super().__init__(arms)
        noise = validate.positive("noise", noise)
        exploration = validate.positive("exploration", exploration)
        validate.generator(seed)
        self.settings = {"noise": noise, "exploration": exploration}
        n = self.n_arms
        with self._warm_up():
            stats = np.zeros((4, n))
            stats[SPREAD] = np.inf
            self.state = UCB1State(
                choice=np.zeros(1, np.int64),
                counts=np.zeros(n, np.int64),
                stats=stats,
                clock=clock_at(1),
                factor=np.array([noise * np.sqrt(exploration)]),
                closed=np.zeros(n),
                work=np.zeros(n),
            )

    def _with_arms(self, arms: Floats) -> UCB1State:
        state, more = self.state, len(arms)
        stats = widened(state.stats, more)
        stats[SPREAD, -more:] = np.inf
        counts, closed, work = (widened(array, more) for array in (state.counts, state.closed, state.work))
        grown: UCB1State = state._replace(counts=counts, stats=stats, closed=closed, work=work)
        return grown

    def _without(self, kept: Ints, gone: Ints) -> tuple[UCB1State, Floats]:
        """No arm teaches about another: nothing of the freed ones is needed but the clock, which stays."""
        names = ("counts", "stats", "closed", "work")
        left: UCB1State = self.state._replace(**{name: columns(getattr(self.state, name), kept) for name in names})
        return left, np.zeros((0, self.dim))

    @property
    def _seen(self) -> NDArray[Any]:
        seen: NDArray[Any] = self.state.clock["seen"]
        return seen

    @exclusive
    def bounds(self) -> Floats:
        """``mean + R sqrt(c ln t/n)``, +inf for an arm without rewards."""
        out = np.empty(self.n_arms)
        fill_bounds(self.state, out)
        return out

    @exclusive
    def estimates(self) -> Floats:
        """The mean of every arm's own rewards, 0 for an arm without any."""
        return np.array(self.state.stats[MEAN])

    def _pending_bounds(self) -> PendingBounds:
        stats = np.stack([self.state.stats[MEAN], self.state.stats[SPREAD] ** 2])
        return new_bounds(Counts(self.state.counts), stats, radius_of(self.state))

    @classmethod
    def _converted(cls, saved: Saved) -> Saved:
        if saved.format < 3:
            saved.arrays["state.clock"] = clock_at(int(take(saved, "state.clock")[0]))
            saved.arrays["state.clock"]["seen"]["firsts"] = arms_with_rewards(saved)
        return saved

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return UCB1State
