"""The paper's claims, each with a rule fixed before anything was played, and their verdicts."""

from sketchbandits.lab.paper.claims import cost, regret, structure
from sketchbandits.lab.verdict import Claim, Finding, Verdict, judge

__all__ = ["CLAIMS", "Claim", "Finding", "Verdict", "judge"]

CLAIMS = (*regret.CLAIMS, *structure.CLAIMS, *cost.CLAIMS)
