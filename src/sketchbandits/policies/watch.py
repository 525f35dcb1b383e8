"""Watching a policy's assumptions while it learns: one warning per policy and parameter, and `diagnostics` at any time.

The compiled round only adds up how much rewards scatter (`policies.scatter`). Python compares it with what was assumed
after `FIRST_CHECK` rewards and whenever their number has doubled since (`policies.assumptions`). A loaded policy goes
on in between, so that one which is loaded, learns a few rewards and is saved again, is checked as often.

**Once** A copy does not repeat what the original has reported. A state file does not hold it: a loaded policy may warn
again. The warning comes last in a call: where warnings are errors, the call has recorded its rewards and raises.
"""

import sys
import warnings
from typing import Any

from numpy.typing import NDArray

from sketchbandits.policies.assumptions import (
    CHEAP,
    LEAST_FREEDOM,
    PER_REWARD,
    AssumptionWarning,
    Diagnostics,
    Evidence,
    Norm,
    diagnose,
    message,
)
from sketchbandits.policies.guard import Guarded, exclusive
from sketchbandits.policies.scatter import begin_again

FIRST_CHECK = LEAST_FREEDOM + 2
_PACKAGE = __name__.partition(".")[0]


class Watched(Guarded):
    """A policy that compares ``noise`` and ``theta_norm`` with the rewards that it has recorded."""

    settings: dict[str, Any]
    #: Whether a violated assumption is reported as an `AssumptionWarning`; the service reports it in its own ways.
    assumption_warnings: bool = True
    #: What the last check has found, none before the first.
    diagnosed: Diagnostics | None = None
    _until_check: int = 0  # rewards
    _planned: bool = False  # whether `_until_check` knows how many rewards there were at first, of a loaded policy
    _warned: frozenset[str] = frozenset()

    @exclusive
    def diagnostics(self) -> Diagnostics:
        """Whether ``noise`` and ``theta_norm`` fit the rewards recorded so far. No side effect.

        O(N d min(N, d)) for N arms with rewards. A policy also checks by itself, whenever the number of its rewards has
        doubled, and says once for each parameter that it looks too small (`AssumptionWarning`).
        """
        return self._diagnosis(float("inf"))

    def _diagnosis(self, most: float) -> Diagnostics:
        evidence = self._evidence()
        return diagnose(evidence, self._assumed(), lambda *given: self._norm(*given, most=most))

    def _evidence(self) -> Evidence:
        """What is known of the noise."""
        raise NotImplementedError

    def _norm(self, noise: float, theta_norm: float, *, most: float) -> Norm | None:
        """What the rewards say of the parameter's norm, in at most so many operations; none where nothing."""
        raise NotImplementedError

    @property
    def _seen(self) -> NDArray[Any] | None:
        """The record of `policies.scatter` in the state; none where a subclass keeps none."""
        raise NotImplementedError

    def _assumed(self) -> dict[str, float]:
        """The parameters that bounds rest on; a user's function in place of a radius need not rest on any."""
        if callable(self.settings.get("radius")):
            return {}
        return {name: self.settings[name] for name in ("noise", "theta_norm") if name in self.settings}

    def _watch(self, rewards: int) -> None:
        """So many rewards were recorded: check where it is time."""
        self._until_check -= rewards
        if self._until_check <= 0:
            self._check_assumptions()

    @exclusive
    def _check_assumptions(self) -> None:
        if self._seen is None:
            self._until_check = FIRST_CHECK
        if self._until_check > 0 or not self._due():  # another thread was here first, or it is too early
            return
        self.renew_diagnosis()
        self._warn()

    def _due(self) -> bool:
        """Whether it is time; at the first reward of a new or loaded policy, plan when it will be."""
        if self._planned:
            return True
        recorded = self._evidence().rewards
        before, limit = recorded + self._until_check, FIRST_CHECK
        while limit <= before:
            limit *= 2
        self._planned, self._until_check = True, limit - recorded
        return self._until_check <= 0

    @exclusive
    def renew_diagnosis(self) -> Diagnostics:
        """Check now, without a warning; at most about as long as a few thousand rewards take to record."""
        recorded = self._evidence().rewards
        self._planned, self._until_check = True, max(FIRST_CHECK, recorded)
        self.diagnosed = self._diagnosis(max(CHEAP, PER_REWARD * recorded))
        return self.diagnosed

    def _warn(self) -> None:
        """Warn of each parameter once; where warnings are errors, a second one is left to a later check."""
        if not self.assumption_warnings or self.diagnosed is None:
            return
        for violation in self.diagnosed.violated:
            if violation.parameter not in self._warned:
                self._warned |= {violation.parameter}
                text = f"{self.settings.get('name', type(self).__name__)}: {message(violation)}"
                warnings.warn(text, AssumptionWarning, stacklevel=_level_of_caller())

    @exclusive
    def restart_watch(self) -> None:
        """Forget how rewards have scattered: those in the state are not the ones that were seen, only as many."""
        self.diagnosed = None
        if self._seen is not None:
            begin_again(self._seen, self._known_means())

    def _known_means(self) -> int:
        """How many means later rewards are compared with."""
        raise NotImplementedError


def _level_of_caller() -> int:
    """How many calls above `warnings.warn` the first one outside the package is."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    return level
