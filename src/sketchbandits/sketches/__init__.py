"""Matrix sketches, one per file."""

from sketchbandits.sketches.dyadic_blocks import DyadicBlocks
from sketchbandits.sketches.frequent_directions import FrequentDirections
from sketchbandits.sketches.spectral_compensation import SpectralCompensation

__all__ = ["DyadicBlocks", "FrequentDirections", "SpectralCompensation"]
