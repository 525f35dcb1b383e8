"""Arms by file: what must be changed so that a bandit has the arms that a file lists."""

import numpy as np

from sketchbandits.policies.changing_arms import TakesArms
from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.requests import AddArms, CreateBandit, Operation, RemoveArms

_SHOWN = 5


def reconcile(bandit: Bandit, wanted: CreateBandit, *, remove: bool) -> tuple[list[Operation], list[str]]:
    """The operations, and what an operator should know.

    Rows that the bandit has never had are added. Arms that are missing in the file are removed only where that is
    asked for; without, they are named. Arms that were removed before stay removed, also where the file lists them.
    """
    operations: list[Operation] = []
    new = [i for i, arm_id in enumerate(wanted.ids) if arm_id not in bandit.index]
    listed = set(wanted.ids)
    missing = [bandit.ids[arm] for arm in bandit.active.tolist() if bandit.ids[arm] not in listed]
    if (new or (missing and remove)) and not isinstance(bandit.policy, TakesArms):
        allowed = f"the policy {bandit.config.policy!r} cannot take new arms or lose any"
        return [], [f"the file of arms has changed, but bandit {bandit.name!r} goes on with its own arms: {allowed}"]
    notes = _changed(bandit, wanted)
    if new:
        ids = tuple(wanted.ids[i] for i in new)
        operations.append(AddArms(bandit.name, ids, np.ascontiguousarray(wanted.features[new])))
        notes.append(f"{_named(list(ids))} new in the file: added to bandit {bandit.name!r}")
    if missing and remove:
        operations.append(RemoveArms(bandit.name, tuple(missing)))
        notes.append(f"{_named(missing)} not in the file: removed from bandit {bandit.name!r}")
    elif missing:
        notes.append(
            f"{_named(missing)} not in the file, and bandit {bandit.name!r} goes on playing them: remove them by "
            "DELETE /v1/arms, or start with --remove-missing-arms"
        )
    return operations, notes


def _changed(bandit: Bandit, wanted: CreateBandit) -> list[str]:
    """Arms whose features differ from those that the bandit has learned with."""
    active = set(bandit.active.tolist())
    rows = [(i, bandit.index[name]) for i, name in enumerate(wanted.ids) if bandit.index.get(name) in active]
    if not rows:
        return []
    places = bandit.places.all_of([arm for _, arm in rows])
    if wanted.features.shape[1] != bandit.policy.dim:
        raise ValueError(
            f"arms must have the {bandit.policy.dim} features that bandit {bandit.name!r} was created with, "
            f"got {wanted.features.shape[1]}"
        )
    same = (wanted.features[[i for i, _ in rows]] == bandit.policy.arms[places]).all(axis=1)
    differing = [wanted.ids[i] for (i, _), equal in zip(rows, same.tolist(), strict=True) if not equal]
    if not differing:
        return []
    return [
        f"{_named(differing)} other features in the file than bandit {bandit.name!r} has learned with, which stay: "
        "give changed arms new ids"
    ]


def _named(ids: list[str]) -> str:
    shown = ", ".join(map(repr, ids[:_SHOWN])) + (f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else "")
    return f"{'arm' if len(ids) == 1 else 'arms'} {shown}:"
