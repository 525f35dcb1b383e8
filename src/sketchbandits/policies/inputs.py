"""Checked batches of arms and rewards: fresh arrays of one dtype, whatever the caller has."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.pending.rule import Mask


def checked_arms(arms: ArrayLike, n_arms: int, name: str = "arms") -> Ints:
    """A batch's arms as a fresh int64 array: kernels are compiled for one kind of array, whatever the caller has."""
    array = _entries(name, arms, "whole numbers")
    if array.dtype.kind in "iu":
        result = np.array(array, dtype=np.int64)
        if result.view(np.uint64).max(initial=0) < n_arms:  # there a negative number is a huge one
            return result
    entries = enumerate(array.tolist())
    return np.array([validate.whole(f"{name}[{i}]", v, least=0, most=n_arms - 1) for i, v in entries], np.int64)


def checked_mask(available: ArrayLike, n_arms: int) -> Mask:
    """A mask, or ids of arms, as a fresh mask."""
    array = _entries("available", available, "arm ids or a mask")
    if array.dtype.kind != "b":
        mask = np.zeros(n_arms, np.bool_)
        mask[checked_arms(available, n_arms, "available")] = True
        return mask
    if array.size != n_arms:
        raise ValueError(f"available must be arm ids or a mask of {n_arms} entries, got a mask of {array.size}")
    return np.array(array, np.bool_)


def checked_rewards(rewards: ArrayLike, size: int, other: str) -> Floats:
    """A batch's rewards as a fresh float64 array, one for each of ``size`` entries of the argument ``other``."""
    array = _entries("rewards", rewards, "numbers")
    if array.size != size:
        raise ValueError(f"rewards must have as many entries as {other}, {size}, got {array.size}")
    if array.dtype.kind in "iufb" and array.itemsize <= 8:
        result = np.array(array, dtype=np.float64)
        if np.abs(result).max(initial=0.0) <= validate.LARGEST:
            return result
    return np.array([validate.reward(f"rewards[{i}]", v) for i, v in enumerate(array.tolist())], np.float64)


def _entries(name: str, value: ArrayLike, kind: str) -> NDArray[Any]:
    """A 1-D array; entries of several types stay what they are, where NumPy would make True a 1 and 2 a 2.0."""
    several = isinstance(value, list | tuple) and len(set(map(type, value))) > 1
    try:
        array = np.asarray(value, dtype=object if several else None)
    except ValueError:
        raise ValueError(f"{name} must be a 1-D array of {kind}, got a ragged sequence") from None
    if array.ndim != 1:
        given = f"shape {array.shape}" if array.ndim else repr(value)
        raise ValueError(f"{name} must be a 1-D array of {kind}, got {given}")
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must be a 1-D array of {kind} without masked entries, got a masked array")
    if array.dtype.kind in "mM":
        raise ValueError(f"{name} must be a 1-D array of {kind}, got an array of {array.dtype}")
    return array


def checked_pair(batch: Any) -> tuple[Any, Any]:
    """Arms and rewards of a batch, themselves still to be checked."""
    try:
        arms, rewards = batch
    except (TypeError, ValueError):
        raise ValueError(f"batch must be a pair (arms, rewards), got a {type(batch).__name__}") from None
    return arms, rewards
