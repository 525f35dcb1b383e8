"""Linear bandits under a fixed compute budget: CS-LB, its sketches and every baseline of the field."""

from sketchbandits.lab.advice import advise
from sketchbandits.partition.partition import Partition
from sketchbandits.policies import CBRAP, CBSCFD, CSLB, OFUL, SOFUL, UCB1, DBSLinUCB, LinTS, LinUCB, MultiscaleCSLB
from sketchbandits.results import Result
from sketchbandits.simulate import simulate

__version__ = "0.1.0"

__all__ = [
    "CBRAP",
    "CBSCFD",
    "CSLB",
    "OFUL",
    "SOFUL",
    "UCB1",
    "DBSLinUCB",
    "LinTS",
    "LinUCB",
    "MultiscaleCSLB",
    "Partition",
    "Result",
    "advise",
    "simulate",
]
