"""Policies: one file or folder per policy."""

from sketchbandits.policies.cbrap import CBRAP
from sketchbandits.policies.cbscfd import CBSCFD
from sketchbandits.policies.contextual import ContextualRidge
from sketchbandits.policies.cslb.policy import CSLB
from sketchbandits.policies.dbslinucb import DBSLinUCB
from sketchbandits.policies.fits.contextual_sketched import ContextualSketch
from sketchbandits.policies.hybrid.policy import HybridCSLB
from sketchbandits.policies.lints import LinTS
from sketchbandits.policies.linucb import LinUCB
from sketchbandits.policies.multiscale.policy import MultiscaleCSLB
from sketchbandits.policies.oful import OFUL
from sketchbandits.policies.soful import SOFUL
from sketchbandits.policies.streaming.policy import ContextualMultiscale
from sketchbandits.policies.ucb1 import UCB1

__all__ = [
    "CBRAP",
    "CBSCFD",
    "CSLB",
    "OFUL",
    "SOFUL",
    "UCB1",
    "ContextualMultiscale",
    "ContextualRidge",
    "ContextualSketch",
    "DBSLinUCB",
    "HybridCSLB",
    "LinTS",
    "LinUCB",
    "MultiscaleCSLB",
]
