"""The product with the probes on a GPU, through PyTorch: an extra, never required.

Products are float64 there, so that the limit is the CPU's float64 one and no setting of PyTorch (such as reduced
precision in float32 products) can lose a member. What passes is decided on the CPU by the one exact routine: the
partition is the same, bit for bit.
"""

from typing import Any

import numpy as np
import torch

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, assign, remove_projection
from sketchbandits.partition.draft import Draft
from sketchbandits.partition.probe import Compression

TILE = 2**26  # entries of a product at a time: half a GiB


def check_device(device: str) -> str:
    """Refuse a device that PyTorch does not see."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (torch.device(device).index or 0) >= count:
        seen = ", ".join(f"'cuda:{i}'" for i in range(count)) or "none"
        raise ValueError(f"device must be 'cpu' or one of the GPUs that PyTorch sees ({seen}), got {device!r}")
    return device


@kernel
def settle_pairs(draft: Draft, directions: Floats, arms: Ints, candidates: Ints, members: Ints) -> None:
    """The first cluster that contains each arm, of candidates that come in order for each arm."""
    rest, z = np.empty(directions.shape[1]), np.empty(draft.rank)
    for k in range(arms.size):
        i, first = arms[k], draft.starts[candidates[k]]
        if members[i] < 0:
            assign(rest, directions[i])
            if remove_projection(draft.bases[first:], draft.rank, rest, z) <= draft.tolerance:
                members[i] = candidates[k]


class TorchProber:
    """`probe.Prober` on a PyTorch device; probes of full clusters are sent there once."""

    def __init__(self, device: str, draft: Draft, compression: Compression) -> None:
        self.draft, self.device, self.known = draft, torch.device(device), 0
        self.limit = compression.limit * (1 + 1e-9)  # products there and on the CPU round differently
        shape = (draft.ranks.size, compression.dim)
        self.probes: Any = torch.empty(shape, dtype=torch.float64, device=self.device)

    def append(self, probes: Floats) -> None:
        """Take the probes of the clusters that were filled next."""
        self.probes[self.known : self.known + len(probes)] = torch.from_numpy(probes).to(self.device)
        self.known += len(probes)

    def members(self, directions: Floats, compressed: Floats) -> Ints:
        """For every arm the first of the clusters known so far that contains it, or -1."""
        arms = torch.from_numpy(compressed).to(self.device)
        members = np.full(len(arms), -1)
        width = max(1, TILE // len(arms))
        for start in range(0, self.known, width):
            values = arms @ self.probes[start : min(self.known, start + width)].T
            pairs = torch.nonzero(values.abs_() <= self.limit).cpu().numpy()
            if len(pairs):
                settle_pairs(self.draft, directions, np.ascontiguousarray(pairs[:, 0]), pairs[:, 1] + start, members)
        return members
