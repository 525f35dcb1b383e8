"""The probing product of the warm-up on a GPU, through PyTorch: an extra, never required.

Products are float64 there, so the limit is the CPU's float64 one and no setting of PyTorch (such as reduced precision
in float32 products) can lose a member. What passes is settled on the CPU by the one exact routine: the partition is the
same, bit for bit.
"""

from typing import Any

import numpy as np
import torch

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.partition.first_fit import Clusters, joins

TILE = 2**26  # entries of a product at a time: half a GiB


def check_device(device: str) -> str:
    """A device that is there."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (torch.device(device).index or 0) >= count:
        seen = ", ".join(f"'cuda:{i}'" for i in range(count)) or "none"
        raise ValueError(f"device must be 'cpu' or one of the GPUs that PyTorch sees ({seen}), got {device!r}")
    return device


@kernel
def settle_pairs(
    clusters: Clusters, directions: Floats, compressed: Floats, arms: Ints, candidates: Ints, members: Ints
) -> None:
    """The first cluster that each arm joins, of candidates that come in order for each arm."""
    work = np.empty(directions.shape[1] + clusters.rank)
    for k in range(arms.size):
        i = arms[k]
        if members[i] < 0 and joins(clusters, candidates[k], directions[i], compressed[i], work):
            members[i] = candidates[k]


class TorchProber:
    """`first_fit.Prober` on a PyTorch device; probes of full clusters are sent there once."""

    def __init__(self, device: str, clusters: Clusters) -> None:
        self.clusters, self.device, self.sent = clusters, torch.device(device), 0
        self.probes: Any = torch.empty(clusters.probes.shape, dtype=torch.float64, device=self.device)

    def members(self, directions: Floats, compressed: Floats, full: int) -> Ints:
        """For every arm the first cluster below ``full`` that it joins, or -1."""
        if full > self.sent:
            self.probes[self.sent : full] = torch.from_numpy(self.clusters.probes[self.sent : full]).to(self.device)
            self.sent = full
        arms = torch.from_numpy(compressed).to(self.device)
        members = np.full(len(arms), -1)
        limit = self.clusters.limit * (1 + 1e-9)  # the product here and the sum on the CPU round differently
        width = max(1, TILE // len(arms))
        for start in range(0, full, width):
            values = arms @ self.probes[start : min(full, start + width)].T
            pairs = torch.nonzero(values.abs_() <= limit).cpu().numpy()
            if len(pairs):
                found = (np.ascontiguousarray(pairs[:, 0]), pairs[:, 1] + start)
                settle_pairs(self.clusters, directions, compressed, *found, members)
        return members
