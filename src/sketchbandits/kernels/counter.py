"""Random numbers as a function of (key, round): Philox-4x64-10, so that a draw is no side effect.

A policy that samples keeps only a key. The draw of a round is ``normals(key, round, out)``: the same whenever and
however often it is asked for, in a compiled loop, after a restart, or in a replay. The generator is the counter-based
Philox of Salmon, Moraes, Dror and Shaw (SC 2011), bit-equal to `numpy.random.Philox`; normals by Box and Muller (1958).
"""

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF, _DROP = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(11)
_ROUNDS = 10


def new_key(generator: np.random.Generator) -> NDArray[np.uint64]:
    """A fresh Philox key."""
    return generator.integers(0, 2**64, size=2, dtype=np.uint64)


@kernel
def _high_product(a: np.uint64, b: np.uint64) -> np.uint64:
    """The upper 64 bits of a 128-bit product."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    low = (middle & _LOW) + a0 * b1
    return a1 * b1 + (middle >> _HALF) + (low >> _HALF)


@kernel
def philox(key: NDArray[np.uint64], block: np.uint64, round_: np.uint64, out: NDArray[np.uint64]) -> None:
    """Four words for the counter ``(block, round_, 0, 0)``."""
    c0, c1, c2, c3 = block, round_, np.uint64(0), np.uint64(0)
    k0, k1 = key[0], key[1]
    for _ in range(_ROUNDS):
        high0, low0 = _high_product(_M0, c0), _M0 * c0
        high1, low1 = _high_product(_M1, c2), _M1 * c2
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _W0, k1 + _W1
    out[0], out[1], out[2], out[3] = c0, c1, c2, c3


@kernel
def normals(key: NDArray[np.uint64], round_: int, out: NDArray[np.float64]) -> None:
    """Fill ``out`` with standard normals that depend on nothing but ``key``, ``round_`` and the position."""
    words = np.empty(4, np.uint64)
    for start in range(0, out.size, 4):
        philox(key, np.uint64(start // 4), np.uint64(round_), words)
        for pair in range(2):
            # Uniform on (0, 1]: 53 bits, never 0, so the logarithm is finite.
            uniform = (float(words[2 * pair] >> _DROP) + 1.0) * 2.0**-53
            angle = 2.0 * np.pi * float(words[2 * pair + 1] >> _DROP) * 2.0**-53
            length = np.sqrt(-2.0 * np.log(uniform))
            i = start + 2 * pair
            if i < out.size:
                out[i] = length * np.cos(angle)
            if i + 1 < out.size:
                out[i + 1] = length * np.sin(angle)
