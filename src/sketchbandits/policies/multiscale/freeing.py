"""Freeing removed arms of multi-scale CS-LB: what rays and the space's fit keep of them.

*Rays* keep sums, not arms: a ray of which an arm is kept stays as it is. One without goes, and if it had rewards its
part of delta is not given out again: a later arm on that line opens a ray of its own.

*The space's fit* has every reward up to some round. Those of freed arms that still wait in its queue, or in the batch
that is being processed, must enter it with the others: leaving them out would make a fit of rewards that were chosen
after they were known. A remainder (`policies.remainder`) carries them, one for the queue and one for the rest of the
batch: at most twice as many internal arms as the space has dimensions, which the next call takes away or merges.

**Guarantee** That of the policy: every scale's set is what it was.
**Departures** Fewer rows of a batch, smaller clusters and fewer of them cost less of the budget, so that a new fit of
the space may be published sooner, and be asked about more arms, than without freeing.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.cslb.freeing import Plan
from sketchbandits.policies.cslb.layout import SLOT, Records
from sketchbandits.policies.multiscale.state import OUTSIDE, RAY, RAY_RECORD, SPACE, WAITING_RECORD
from sketchbandits.policies.remainder import Remainder, remainder_of


def waiting_parts(state: Any, gone: NDArray[np.bool_]) -> list[Remainder]:
    """What arms that go have in the queue of the space's fit, and in the part of its batch that is not processed."""
    queue, batch = _queue_and_batch(state)
    return [_waiting_part(state, queue[gone[queue]], "queued"), _waiting_part(state, batch[gone[batch]], "batched")]


def _waiting_part(state: Any, arms: Ints, where: str) -> Remainder:
    own = state.waiting[arms]
    return remainder_of(state.features[arms].T, own[f"n_{where}"], own[f"sum_{where}"])


def _queue_and_batch(state: Any) -> tuple[Ints, Ints]:
    space, waiting = state.space[0], state.waiting
    return waiting["queue"][: space["in_queue"]], waiting["batch"][space["at"] : space["in_batch"]]


def with_scales(old: Any, new: Any, plan: Plan) -> Any:
    """``new``, whose clusters hold the arms of ``plan``, with the rays and the space of ``old``."""
    kept, space = plan.kept.size, old.space.copy()
    internal = np.ones(new.stats.shape[1], np.bool_)
    internal[new.place[SLOT, :kept]] = False
    new.stats[RAY, internal], new.stats[SPACE, internal] = -1, np.inf
    rays = _kept_rays(old, new.stats, ~internal, space)
    waiting, features = np.zeros(plan.labels.size, WAITING_RECORD), np.zeros((plan.labels.size, old.features.shape[1]))
    features[:kept] = old.features[plan.kept]
    carriers = np.concatenate([part.columns.T for part in plan.others])
    features[plan.labels.size - len(carriers) :] = carriers
    _keep_waiting(old, plan, waiting, space)
    return new._replace(rays=rays, space=space, waiting=waiting, features=features)


def _kept_rays(old: Any, stats: Floats, own: NDArray[np.bool_], space: Records) -> Records:
    """The rays of the slots ``own``, numbered anew in their order."""
    numbers = np.unique(stats[RAY, own]).astype(np.int64)
    numbers = numbers[numbers >= 0]
    on_ray = own & (stats[RAY] >= 0)
    stats[RAY, on_ray] = np.searchsorted(numbers, stats[RAY, on_ray])
    rays = np.zeros(max(numbers.size, 1), RAY_RECORD)
    rays[: numbers.size] = old.rays[numbers]
    space["n_rays"], space["untaught"] = numbers.size, (rays["information"][: numbers.size] == 0.0).sum()
    return rays


def _keep_waiting(old: Any, plan: Plan, waiting: Records, space: Records) -> None:
    """Queue and batch of the kept arms in their order, then those of the remainders, the last arms of all."""
    kept, queue_and_batch = plan.kept.size, _queue_and_batch(old)
    waiting[:kept] = old.waiting[plan.kept]
    space["outside"] = int((waiting["stamp"][:kept] == OUTSIDE).sum())
    waiting["queue"] = waiting["batch"] = 0  # entries of these two belong to places, not to arms
    waiting["stamp"][kept:] = OUTSIDE
    number = np.full(old.waiting.size, -1)
    number[plan.kept] = np.arange(kept)
    first = plan.labels.size - sum(part.counts.size for part in plan.others)
    for name, waits, part in zip(("queue", "batch"), queue_and_batch, plan.others, strict=True):
        carriers = np.arange(first, first + part.counts.size)
        arms = np.concatenate([number[waits][number[waits] >= 0], carriers])
        waiting[name][: arms.size] = arms
        space[f"in_{name}"] = arms.size
        past = "queued" if name == "queue" else "batched"
        waiting[f"n_{past}"][carriers], waiting[f"sum_{past}"][carriers] = part.counts, part.sums
        first += part.counts.size
    waiting["queued"][waiting["queue"][: int(space["in_queue"][0])]] = 1
    space["at"] = 0
