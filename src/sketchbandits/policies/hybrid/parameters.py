"""What a user gives to `HybridCSLB`, checked together: settings for `building`, and the arms as a matrix."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sketchbandits import validate
from sketchbandits.features import Features
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.hybrid.building import RIDGES, RULES, Shape, check_memory
from sketchbandits.policies.hybrid.half_life import plain

LEAST, LARGEST = RIDGES
LEAST_SHARE = 1e-9
DELTA = 0.01
MAX_ARMS = 1_000


def checked_settings(given: dict[str, Any]) -> dict[str, Any]:
    """The settings that are saved with the policy."""
    settings: dict[str, Any] = {
        "explore": validate.option("explore", given["explore"], tuple(RULES)),
        "sketch_size": _whole(given, "sketch_size"),
        "noise": None if given["noise"] is None else validate.positive("noise", given["noise"]),
        "ridge": None if given["ridge"] is None else _within("ridge", given["ridge"], LEAST, LARGEST),
        "own_share": _share(given["own_share"]),
        "half_life": plain(given["half_life"]),
        "counted": is_count(given["arms"]),
    }
    _check_own_ridge(settings)
    settings["context_features"], settings["context_dim"] = _schema(given, "context_features", "context_dim")
    settings["arm_features"], dim = _schema(given, "arm_features", "feature_dim")
    settings["feature_dim"] = dim if given["arms"] is None else None
    _check_arms(given, settings)
    settings["max_arms"] = (_whole(given, "max_arms") or MAX_ARMS) if settings["feature_dim"] else None
    return settings | _guarantee(given)


def is_count(arms: Any) -> bool:
    """Whether arms are given as their number."""
    return isinstance(arms, int | np.integer) and not isinstance(arms, bool | np.bool_)


def _whole(given: dict[str, Any], name: str) -> int | None:
    return None if given[name] is None else validate.whole(name, given[name])


def _share(value: Any) -> float | None:
    return None if value is None else _within("own_share", value, LEAST_SHARE, 1.0 - LEAST_SHARE)


def _check_own_ridge(settings: dict[str, Any]) -> None:
    ridge, share = settings["ridge"], settings["own_share"]
    if ridge is not None and share is not None and ridge * (1.0 - share) / share < LEAST:
        most = 1.0 / (1.0 + LEAST / ridge)
        raise ValueError(f"own_share must be at most {most:.12g} with ridge={ridge:g}, got {share!r}")


def _schema(given: dict[str, Any], name: str, dim_name: str) -> tuple[dict[str, Any] | None, int | None]:
    """A schema as it is saved, and the length of its vectors or that which was given without one."""
    schema, dim = given[name], _whole(given, dim_name)
    if schema is None:
        return None, dim
    if not isinstance(schema, Features):
        raise ValueError(f"{name} must be a Features schema, got {schema!r} of type {type(schema).__name__}")
    if dim not in (None, schema.dim):
        raise ValueError(f"{dim_name} must be that of {name}, {schema.dim}, or None, got {dim}")
    return schema.to_dict(), schema.dim


def _check_arms(given: dict[str, Any], settings: dict[str, Any]) -> None:
    fixed = given["arms"] is not None
    if fixed and given["feature_dim"] is not None:
        raise ValueError(f"feature_dim must be None where arms are given, got {given['feature_dim']!r}")
    if not fixed and settings["feature_dim"] is None:
        raise ValueError("arms must be given, or feature_dim where arms come with requests, got None for both")
    if fixed and given["max_arms"] is not None:
        raise ValueError(f"max_arms must be None where arms are given, got {given['max_arms']!r}")
    if not fixed and settings["sketch_size"] is not None:
        raise ValueError(
            f"sketch_size must be None where arms come with requests, which are one cluster, got {given['sketch_size']}"
        )
    if settings["counted"] and settings["arm_features"] is not None:
        raise ValueError(f"arms must be a table for arm_features, got the number {given['arms']}")


def _guarantee(given: dict[str, Any]) -> dict[str, Any]:
    """The settings of ``explore="theory"``, which others refuse."""
    names = ("delta", "theta_norm", "own_norm")
    if given["explore"] != "theory":
        for name in names:
            if given[name] is not None:
                raise ValueError(f'{name} must be None unless explore="theory", got {given[name]!r}')
        return dict.fromkeys(names)
    for name in ("noise", "theta_norm", "own_norm"):
        if given[name] is None:
            raise ValueError(f'{name} must be given for explore="theory", got None')
    for name in ("half_life", "feature_dim"):
        if given[name] is not None:
            raise ValueError(
                f'{name} must be None for explore="theory", which has no guarantee then, got {given[name]!r}'
            )
    if given["arms"] is None:
        raise ValueError('arms must be given for explore="theory", got None')
    return {
        "delta": DELTA if given["delta"] is None else validate.probability("delta", given["delta"]),
        "theta_norm": validate.positive("theta_norm", given["theta_norm"]),
        "own_norm": validate.number("own_norm", given["own_norm"], least=0.0),
    }


def _within(name: str, value: float, least: float, most: float) -> float:
    """A number in an interval beyond which fits lose their digits."""
    number = validate.number(name, value, above=0.0)
    if not least <= number <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:.15g}, got {value!r}")
    return number


def is_vectors(table: Any) -> bool:
    """Whether a table has vectors already, not records that a schema has to encode."""
    if isinstance(table, list | tuple):
        return len(table) > 0 and not isinstance(table[0], Mapping)
    return isinstance(table, np.ndarray)


def given_arms(arms: Any, settings: dict[str, Any], schema: Features | None) -> Any:
    """The matrix of arms; with requests that of the slots, which are still empty."""
    p = (settings["context_dim"] or 0) + 1
    if settings["counted"]:
        n = validate.whole("arms", arms)
        check_memory(Shape(n, 1, 1, p, False, 1, False), f"{n} arms and context_dim={settings['context_dim']}")
        return np.ones((n, 1))
    if (q := settings["feature_dim"]) is not None:
        n = settings["max_arms"]
        given = f"max_arms={n} of {q} features and context_dim={settings['context_dim']}"
        check_memory(Shape(n, 1, q + 1, p, settings["explore"] == "ts", 1, True), given)
        return np.zeros((n, q))
    if schema is None:
        return arms
    result: Floats = validate.matrix("arms", arms, columns=schema.dim) if is_vectors(arms) else schema.transform(arms)
    return result
