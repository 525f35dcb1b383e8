"""The paper's claims, each with the rule by which it is judged, and their verdicts."""

from sketchbandits.lab.paper.claims import cost, regret, structure
from sketchbandits.lab.verdict import Claim, Finding, Verdict, judge, judged

__all__ = ["CLAIMS", "Claim", "Finding", "Verdict", "judge", "judged"]

CLAIMS = (*regret.CLAIMS, *structure.CLAIMS, *cost.CLAIMS)
