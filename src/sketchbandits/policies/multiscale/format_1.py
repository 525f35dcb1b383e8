"""State files of multi-scale CS-LB of version 0.1.0 (format 1): rows of numbers become the records of `state`."""

import numpy as np

from sketchbandits.policies.format_1 import radius_of
from sketchbandits.policies.multiscale.state import RAY_RECORD, SPACE_RECORD, TARGET, THETA, WAITING_RECORD
from sketchbandits.snapshot import Saved, take

_RAY = ("information", "information_lost", "reward", "reward_lost", "share")
_METER = ("bank", "budget", "most", "news", "logdet_shown", "logdet_made")
_TICKS = ("version", "in_queue", "in_batch", "at", "n_rays", "first_rays")


def convert_scales(saved: Saved) -> None:
    """Replace the arrays of the rays and of the space."""
    old = {name: take(saved, f"state.{name}") for name in ("rays", "waiting", "owed", "meter", "ticks", "factor")}
    rays, waiting = np.zeros(old["rays"].shape[1], RAY_RECORD), np.zeros(old["waiting"].shape[1], WAITING_RECORD)
    for name, row in zip(_RAY, old["rays"], strict=True):
        rays[name] = row
    for name, row in zip(WAITING_RECORD.names or (), [*old["waiting"], *old["owed"]], strict=True):
        waiting[name] = row
    space = np.zeros(1, SPACE_RECORD)
    for name, value in zip((*_METER, *_TICKS), [*old["meter"], *old["ticks"]], strict=True):
        space[name] = value
    space["direction"] = radius_of(take(saved, "state.direction"))
    space["radius"] = radius_of(take(saved, "state.space"))
    factor = np.concatenate([old["factor"], np.zeros((2, 2, old["factor"].shape[2]))], axis=1)
    factor[:, TARGET] = take(saved, "state.target")
    factor[0, THETA] = take(saved, "state.theta")
    saved.arrays.update({"state.rays": rays, "state.waiting": waiting, "state.space": space})
    saved.arrays["state.factor"] = factor
