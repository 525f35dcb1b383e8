"""Every public policy and sketch, in the variants worth testing; found automatically, so that none is forgotten."""

import inspect

import sketchbandits
from sketchbandits import (
    CBRAP,
    CBSCFD,
    CSLB,
    OFUL,
    SOFUL,
    UCB1,
    DBSLinUCB,
    HybridCSLB,
    LinTS,
    LinUCB,
    MultiscaleCSLB,
)
from sketchbandits.policies.base import Policy
from sketchbandits.sketches import DyadicBlocks, FrequentDirections, SpectralCompensation


def half_radius(n, logdet):
    return 0.5 + 0.1 * n**0.5


POLICIES = {
    "cslb": lambda arms: CSLB(arms, sketch_size=4),
    "cslb-logdet": lambda arms: CSLB(arms, sketch_size=3, radius="logdet", ridge=0.6),
    "cslb-sketch": lambda arms: CSLB(arms, sketch_size=4, engine="sketch"),
    "cslb-sketch-logdet": lambda arms: CSLB(arms, sketch_size=4, engine="sketch", radius="logdet"),
    "cslb-one": lambda arms: CSLB(arms, sketch_size=1, ridge=2.0),
    "cslb-all": lambda arms: CSLB(arms, sketch_size=100),
    "cslb-shortlist": lambda arms: CSLB(arms, sketch_size=100, scan="shortlist"),
    "cslb-shortlist-logdet": lambda arms: CSLB(arms, sketch_size=100, scan="shortlist", radius="logdet", ridge=0.6),
    "multiscale": lambda arms: MultiscaleCSLB(arms),
    "multiscale-logdet": lambda arms: MultiscaleCSLB(arms, sketch_size=3, radius="logdet", ridge=0.6),
    "multiscale-no-space": lambda arms: MultiscaleCSLB(arms, sketch_size=4, budget=0),
    "multiscale-tight": lambda arms: MultiscaleCSLB(arms, sketch_size=3, budget=50),
    "multiscale-one": lambda arms: MultiscaleCSLB(arms, sketch_size=1),
    "hybrid": lambda arms: HybridCSLB(arms),
    "hybrid-clusters": lambda arms: HybridCSLB(arms, sketch_size=2, explore="ucb"),
    "oful": lambda arms: OFUL(arms),
    "oful-logdet": lambda arms: OFUL(arms, radius="logdet", ridge=0.5),
    "oful-rare": lambda arms: OFUL(arms, switching=0.6),
    "oful-capped": lambda arms: OFUL(arms, radius="mixture", ridge=None, cap=True),
    "linucb": lambda arms: LinUCB(arms, alpha=0.7),
    "lints": lambda arms: LinTS(arms, seed=3),
    "lints-free": lambda arms: LinTS(arms, seed=3, scale=0.4),
    "lints-horizon": lambda arms: LinTS(arms, seed=3, radius="logdet", horizon=500),
    "soful": lambda arms: SOFUL(arms, sketch_size=4),
    "soful-every-round": lambda arms: SOFUL(arms, sketch_size=4, shrink="every-round", radius="logdet"),
    "soful-ts": lambda arms: SOFUL(arms, sketch_size=4, exploration="ts", seed=5),
    "cbscfd": lambda arms: CBSCFD(arms, sketch_size=4),
    "cbscfd-every-round": lambda arms: CBSCFD(arms, sketch_size=4, shrink="every-round", radius="logdet"),
    "dbslinucb": lambda arms: DBSLinUCB(arms, sketch_size=2, error=0.7),
    "dbslinucb-compensated": lambda arms: DBSLinUCB(arms, sketch_size=2, error=0.7, compensated=True, radius="logdet"),
    "cbrap": lambda arms: CBRAP(arms, sketch_size=4, seed=2),
    "ucb1": lambda arms: UCB1(arms),
    "ucb1-wide": lambda arms: UCB1(arms, exploration=8.0, noise=0.5),
}

CONTEXTUAL = {
    "oful": lambda dim: OFUL.contextual(dim=dim),
    "oful-logdet": lambda dim: OFUL.contextual(dim=dim, radius="logdet", ridge=0.5),
    "oful-mixture": lambda dim: OFUL.contextual(dim=dim, radius="mixture"),
    "linucb": lambda dim: LinUCB.contextual(dim=dim, alpha=0.7),
    "lints": lambda dim: LinTS.contextual(dim=dim, seed=3),
    "lints-free": lambda dim: LinTS.contextual(dim=dim, scale=0.3, seed=3),
    "soful": lambda dim: SOFUL.contextual(dim=dim, sketch_size=4),
    "soful-ts": lambda dim: SOFUL.contextual(dim=dim, sketch_size=4, exploration="ts", seed=5),
    "cbscfd": lambda dim: CBSCFD.contextual(dim=dim, sketch_size=4, radius="logdet"),
    "dbslinucb": lambda dim: DBSLinUCB.contextual(dim=dim, sketch_size=2, error=0.7),
    "cbrap": lambda dim: CBRAP.contextual(dim=dim, sketch_size=4, seed=2),
    "multiscale": lambda dim: MultiscaleCSLB.contextual(dim=dim),
    "multiscale-coarse": lambda dim: MultiscaleCSLB.contextual(
        dim=dim, sketch_size=4, tolerance=0.6, radius="logdet", ridge=0.5
    ),
    "multiscale-small": lambda dim: MultiscaleCSLB.contextual(dim=dim, sketch_size=3, tolerance=0.7, memory=2_500),
}

SKETCHES = {
    "frequent-directions": lambda dim: FrequentDirections(dim, sketch_size=4, ridge=0.7),
    "frequent-directions-every-round": lambda dim: FrequentDirections(dim, sketch_size=4, shrink="every-round"),
    "spectral-compensation": lambda dim: SpectralCompensation(dim, sketch_size=4, ridge=2.0),
    "dyadic-blocks": lambda dim: DyadicBlocks(dim, sketch_size=2, error=0.9),
    "dyadic-blocks-compensated": lambda dim: DyadicBlocks(dim, sketch_size=2, error=40.0, compensated=True),
}


def public_policies():
    """All policy classes that the package exports."""
    exported = (getattr(sketchbandits, name) for name in sketchbandits.__all__)
    return {value for value in exported if inspect.isclass(value) and issubclass(value, Policy)}
