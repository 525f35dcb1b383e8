"""Claims that involve OFUL are judged under both readings of its radius, which the paper leaves open."""

from collections.abc import Mapping

from sketchbandits.lab.experiments.study import Experiment
from sketchbandits.lab.paper import setting as paper

RADIUS = "OFUL's radius"  # the property of a case that names the reading
NO_OFUL = "-"  # in a case without OFUL


def oful_readings(experiment: Experiment) -> Mapping[str, str]:
    """OFUL by radius, as far as it was played; where neither was, looking it up in the experiment says so."""
    names = {radius: str(policy) for radius, policy in paper.OFUL_READINGS.items()}
    played = {part for key in experiment for part in key}  # keys hold the policy, or the radius alone
    return {radius: name for radius, name in names.items() if {radius, name} & played} or {"closed": names["closed"]}
