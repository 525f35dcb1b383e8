"""Advice before the first round: what arms are like, and which policy, sketch size and budget suit them.

    facts (groups, spectrum) → remarks
    clusters → bounds → candidates → recommend, timing → advisor, report, figure → files

`facts` examines the arms and `remarks` warns of what costs regret or time; `clusters` counts ``K(l)``; `candidates` are
policies with their `bounds`, which `timing` plays for a few hundred rounds; `recommend` chooses. `hybrid` is about the
policy that has no bound.
"""

from sketchbandits.lab.advice.advisor import Advice, advise

__all__ = ["Advice", "advise"]
