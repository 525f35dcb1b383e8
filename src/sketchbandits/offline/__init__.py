"""What another policy would have earned, estimated from logged decisions: `replay` and `ips`.

With ``exploration`` e, each decision t drew its arm from the n_t available ones with probability e, and logged the
probability ``p_t(a) >= e/n_t`` of the arm that came out. Both estimators rest on these probabilities; a log without
exploration is refused. They assume that an arm's rewards have one distribution over time, and that the available arms
do not depend on earlier rewards.
"""

from sketchbandits.offline.estimates import Figure, OfflineResult
from sketchbandits.offline.ips_estimator import ips
from sketchbandits.offline.logged import LoggedDecisions
from sketchbandits.offline.replay_estimator import replay

__all__ = ["Figure", "LoggedDecisions", "OfflineResult", "ips", "replay"]
