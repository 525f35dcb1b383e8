"""What a saved state of multi-scale CS-LB must obey beyond its layout: compiled code checks no index."""

from typing import Any

import numpy as np

from sketchbandits.policies.cslb.saved import check_numbers
from sketchbandits.policies.multiscale.state import ALL_LISTED, LISTED, OUTSIDE, RAY
from sketchbandits.snapshot import Saved, within


def check_scales(saved: Saved, state: Any, n_arms: int) -> None:
    """Rays, queue, batch and shortlist name what exists."""
    space, waiting = state.space[0], state.waiting
    within(saved, "state.space[n_rays]", space["n_rays"], 0, state.rays.size)
    untaught = int((state.rays["information"][: space["n_rays"]] == 0.0).sum())
    within(saved, "state.space[untaught]", space["untaught"], untaught, untaught)
    within(saved, "state.stats[RAY]", state.stats[RAY], -1, state.rays.size - 1)
    within(saved, "capacity for all arms", waiting.size - n_arms, 0, 2**62)
    within(saved, "state.waiting[stamp]", waiting["stamp"][:n_arms], OUTSIDE, space["version"])
    for name, length in (("queue", "in_queue"), ("batch", "in_batch")):
        within(saved, f"state.space[{length}]", space[length], 0, waiting.size)
        within(saved, f"state.waiting[{name}]", waiting[name][: space[length]], 0, n_arms - 1)
    within(saved, "state.space[at]", space["at"], 0, space["in_batch"])
    queued, left = np.sort(waiting["queue"][: space["in_queue"]]), waiting["batch"][space["at"] :]
    if not np.array_equal(queued, np.flatnonzero(waiting["queued"])):
        raise ValueError(f"path must hold a queue of the arms that are marked as queued, got another in {saved.path!r}")
    within(saved, "state.waiting[n_batched]", waiting["n_batched"][left[: space["in_batch"] - space["at"]]], 1, 2**62)
    within(saved, "state.space[listed]", space["listed"], ALL_LISTED, state.stats.shape[1])
    listed = state.stats[LISTED, : max(0, int(space["listed"]))]
    within(saved, "state.stats[LISTED]", listed, 0, state.stats.shape[1] - 1)
    check_numbers(saved, state, "rays", "space", "waiting", "features", "factor")
