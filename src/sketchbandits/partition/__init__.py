"""Arms in clusters of low rank: `Partition` and the ways to make one."""

from sketchbandits.partition.partition import COARSE_TOLERANCE, TOLERANCE, Partition

__all__ = ["COARSE_TOLERANCE", "TOLERANCE", "Partition"]
