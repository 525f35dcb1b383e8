"""Advice before the first round: what arms are like, and which policy, sketch size and budget suit them.

`look` (with `groups` and `spectrum`) finds facts, `remarks` puts them into words, `clusters` counts ``K(l)``;
`bounds`, `costs` and `machine` predict regret and time, `predictions` joins them; `recommend` chooses, `report` and
`figure` show.
"""

from sketchbandits.lab.advice.advise import Advice, advise
from sketchbandits.lab.advice.machine import Machine

__all__ = ["Advice", "Machine", "advise"]
