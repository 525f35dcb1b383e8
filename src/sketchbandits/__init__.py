"""Linear bandits under a fixed compute budget: CS-LB, its sketches and every baseline of the field."""

import importlib
from typing import TYPE_CHECKING, Any

from sketchbandits.features import Features
from sketchbandits.partition.partition import Partition
from sketchbandits.policies import (
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
from sketchbandits.policies.assumptions import AssumptionWarning, Diagnostics
from sketchbandits.results import Result
from sketchbandits.simulate import simulate

if TYPE_CHECKING:
    from sketchbandits.lab.advice import advise

__version__ = "0.1.0"

__all__ = [
    "CBRAP",
    "CBSCFD",
    "CSLB",
    "OFUL",
    "SOFUL",
    "UCB1",
    "AssumptionWarning",
    "DBSLinUCB",
    "Diagnostics",
    "Features",
    "HybridCSLB",
    "LinTS",
    "LinUCB",
    "MultiscaleCSLB",
    "Partition",
    "Result",
    "advise",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """`advise` is loaded when it is first used: whoever only plays policies need not load the lab."""
    if name == "advise":
        return importlib.import_module("sketchbandits.lab.advice").advise
    raise AttributeError(f"module 'sketchbandits' has no attribute {name!r}")
