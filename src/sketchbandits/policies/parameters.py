"""Checked parameters that linear policies share, and their radius as kernels take it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits import confidence, validate
from sketchbandits.kernels.linalg import Floats

Radius = str | Callable[[int, float], float]


class Shared(NamedTuple):
    """The checked parameters that every linear policy has."""

    ridge: float
    noise: float
    theta_norm: float
    arm_norm: float
    delta: float


def check_shared(
    ridge: float, noise: float, theta_norm: float, arm_norm: float | None, delta: float, arms: Floats | None
) -> Shared:
    """Check the common parameters; ``arm_norm=None`` means the largest norm among ``arms`` (1 without arms)."""
    largest = float(np.linalg.norm(arms, axis=1).max()) if arms is not None else 0.0
    bound = (largest or 1.0) if arm_norm is None else validate.positive("arm_norm", arm_norm)
    if bound < largest * (1 - 1e-9):
        raise ValueError(f"arm_norm must be at least the largest arm norm {largest:.12g}, got {arm_norm!r}")
    return Shared(
        validate.positive("ridge", ridge),
        validate.number("noise", noise, least=0.0),
        validate.positive("theta_norm", theta_norm),
        bound,
        validate.probability("delta", delta),
    )


def check_sketched(
    arms: Floats | None, *, sketch_size: int, shrink: str, radius: Radius, **shared: Any
) -> dict[str, Any]:
    """The checked settings that policies on a sketch of fixed size have."""
    return {
        "sketch_size": validate.whole("sketch_size", sketch_size),
        **check_shared(**shared, arms=arms)._asdict(),
        "radius": check_radius(radius),
        "shrink": validate.option("shrink", shrink, ("buffered", "every-round")),
    }


def radius_record(radius: Radius, shared: Shared, *, dim: int, log_share: float) -> NDArray[Any]:
    """A radius as kernels take it: one by name (``"closed"``, ``"logdet"``, ...), or a function's value."""
    record = constant_radius(0.0, shared.ridge)
    if isinstance(radius, str):
        record["kind"] = {
            "closed": confidence.CLOSED,
            "logdet": confidence.LOGDET,
            "mixture": confidence.MIXTURE,
            "unbiased": confidence.UNBIASED,
        }[radius]
    record["noise"], record["theta_norm"] = shared.noise, shared.theta_norm
    record["bias"] = math.sqrt(shared.ridge) * shared.theta_norm
    record["rate"] = shared.arm_norm**2 / shared.ridge
    record["log_share"], record["dim"] = log_share, dim
    return record


def linear_radius(settings: dict[str, Any], dim: int) -> NDArray[Any]:
    """The radius of one ellipsoid for all arms, from a policy's settings."""
    shared = Shared(**{name: settings[name] for name in Shared._fields})
    return radius_record(settings["radius"], shared, dim=dim, log_share=-math.log(shared.delta))


def constant_radius(alpha: float, ridge: float) -> NDArray[Any]:
    """A radius that never changes."""
    record = np.zeros(1, confidence.RADIUS)
    record["kind"], record["ridge"], record["value"] = confidence.FIXED, ridge, alpha
    return record


def check_radius(radius: Radius, names: tuple[str, ...] = ("closed", "logdet")) -> Radius:
    """A known name, or any function of (samples, ln det)."""
    if callable(radius):
        return radius
    allowed = ", ".join(map(repr, names))
    if not isinstance(radius, str) or radius not in names:
        raise ValueError(f"radius must be one of {allowed}, or a function (n, logdet) -> beta, got {radius!r}")
    return radius


def called_radius(radius: Callable[[int, float], float], n: float, logdet: float) -> float:
    """What a user's radius function says, checked."""
    return validate.number(f"the value of radius({int(n)}, {logdet:g})", radius(int(n), logdet), least=0.0)
