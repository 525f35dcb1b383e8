"""Every policy at every sketch size, with its regret bound; `timing` adds what a round takes and what is kept."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits import policies
from sketchbandits.lab.advice import bounds
from sketchbandits.lab.advice.bounds import Case
from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.base import Policy
from sketchbandits.policies.multiscale.changing_scales import auto_budget
from sketchbandits.policies.multiscale.policy import RULES, default_size
from sketchbandits.policies.multiscale.randomised import CAUTION

SWITCHING = 1.0  # of rarely switching OFUL
MULTISCALE = "MultiscaleCSLB"
RANDOMISED, OPTIMISM = RULES
MODEL = ("ridge", "noise", "theta_norm", "delta")
PROVEN, EXPECTED, ESTIMATED, NONE = "proven", "expected", "estimate", "none"
_FORMS = {"CSLB": {"radius": "log-det"}, "OFUL": {"switching": "rare"}, MULTISCALE: {"explore": "optimism"}}


class Candidate(NamedTuple):
    """A policy with its options, its bound and, where it was timed, what a round takes.

    ``guarantee`` says what ``bound`` is: ``"proven"`` (with probability ``1 - delta``), ``"expected"`` (of the mean
    regret), ``"estimate"`` (what a sketch drops is estimated from the arms), ``"none"`` (``bound`` is then none).
    ``vacuous``: it says no less than ``2 S L T``. ``microseconds`` of a `select` and an `update` from Python and
    ``memory`` in bytes are none where the policy was not timed, and extrapolated from ``sampled`` arms where that is
    above 0. ``fits``: a round is known to take no longer than the budget, if there is one.
    """

    policy: str
    options: tuple[tuple[str, Any], ...]
    sketch_size: int | None
    bound: float | None
    guarantee: str
    vacuous: bool
    microseconds: float | None = None
    memory: float | None = None
    sampled: int = 0
    fits: bool = False

    @property
    def call(self) -> str:
        """The expression that builds it."""
        return f"{self.policy}({', '.join(['arms', *(f'{name}={value!r}' for name, value in self.options)])})"

    @property
    def name(self) -> str:
        """The policy and, where it has several forms here, the form."""
        for option, words in _FORMS.get(self.policy, {}).items():
            if option in dict(self.options):
                return f"{self.policy}, {words}"
        return self.policy

    @property
    def is_default(self) -> bool:
        """Whether the sketch size is the one that the class takes by itself."""
        return self.policy == MULTISCALE and not {"sketch_size", "partition"} & set(dict(self.options))

    def build(self, arms: NDArray[Any], explore: str | None = None) -> Policy:
        """The policy on these arms; on a sample of them ``explore`` is what MultiscaleCSLB takes by itself for all."""
        options: dict[str, Any] = dict(self.options)
        if self.policy == MULTISCALE:
            options.setdefault("explore", explore)
        if "partition" in options:
            options["partition"] = Partition.subspaces(arms, int(self.sketch_size or 1), progress=False)
        built: Policy = getattr(policies, self.policy)(arms, seed=0, **options)
        return built


class _Code(str):
    """An expression, shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def candidates(case: Case, table: Sequence[ClusterRow]) -> tuple[Candidate, ...]:
    """Policies without a sketch size, then the others at every size of the table."""
    return (*_unsized(case), *(found for row in table for found in _sized(case, row)))


def multiscale(case: Case, row: ClusterRow, budget: int | None = None, optimism: bool = False) -> Candidate:
    """`MultiscaleCSLB` as the class takes it, or with another budget of operations, or with ``explore="optimism"``."""
    default = row.sketch_size == default_size(0 if budget == 0 else case.space_dims)
    options = {} if default and not _by_subspaces(row) else _partition(row)
    if budget is not None:
        options["budget"] = budget
    if optimism:
        options["explore"] = OPTIMISM
    bound = bounds.multiscale(case, row, default_budget(case) if budget is None else budget)
    factor = CAUTION if case.draws and not optimism else 1.0
    return _make(case, MULTISCALE, factor * bound, PROVEN, row.sketch_size, options)


def default_budget(case: Case) -> int:
    """The operations that MultiscaleCSLB takes by itself."""
    return auto_budget(case.n_arms, case.space_dims)


def _unsized(case: Case) -> Iterator[Candidate]:
    logdet: dict[str, Any] = {"radius": "logdet"}
    yield _make(case, "UCB1", bounds.ucb1(case), EXPECTED, None, {"exploration": 8.0})
    yield _make(case, "OFUL", bounds.oful(case), PROVEN, None, logdet)
    rare = bounds.rarely_switching(case, SWITCHING)
    yield _make(case, "OFUL", rare, PROVEN, None, {**logdet, "switching": SWITCHING})
    yield _make(case, "LinTS", bounds.lints(case), PROVEN, None, {**logdet, "horizon": case.rounds})
    yield _make(case, "LinUCB", None, NONE, None, {})


def _sized(case: Case, row: ClusterRow) -> Iterator[Candidate]:
    size, parts = row.sketch_size, _partition(row)
    yield _make(case, "CSLB", bounds.cslb_paper(case, row), PROVEN, size, parts)
    yield _make(case, "CSLB", bounds.cslb_logdet(case, row), PROVEN, size, {**parts, "radius": "logdet"})
    yield multiscale(case, row)
    if case.draws:  # else that is what the class does by itself
        yield multiscale(case, row, optimism=True)
    kind, sized = PROVEN if size >= case.rank else ESTIMATED, {"sketch_size": size}
    yield _make(case, "SOFUL", bounds.soful(case, size), kind, size, sized)
    yield _make(case, "CBSCFD", bounds.cbscfd(case, size), kind, size, sized)
    yield _make(case, "DBSLinUCB", bounds.dyadic(case, size), PROVEN, size, sized)
    yield _make(case, "CBRAP", None, NONE, size, sized)


def _make(
    case: Case, policy: str, bound: float | None, guarantee: str, size: int | None, options: dict[str, Any]
) -> Candidate:
    vacuous = bound is not None and bool(bound >= case.trivial)
    return Candidate(policy, tuple({**options, **_model(case, policy)}.items()), size, bound, guarantee, vacuous)


def _model(case: Case, policy: str) -> dict[str, float]:
    """What the policy takes of the model, but for its defaults; where the default is None, the policy knows best."""
    known = inspect.signature(getattr(policies, policy)).parameters
    given = {name: getattr(case, name) for name in MODEL if name in known}
    return {name: value for name, value in given.items() if known[name].default not in (None, value)}


def _by_subspaces(row: ClusterRow) -> bool:
    return row.subspaces is not None and row.subspaces < row.clusters


def _partition(row: ClusterRow) -> dict[str, Any]:
    """First-fit by the sketch size, or a partition made beforehand where that has fewer clusters."""
    if _by_subspaces(row):
        return {"partition": _Code(f"Partition.subspaces(arms, {row.sketch_size})")}
    return {"sketch_size": row.sketch_size}


def state_bytes(policy: Policy) -> int:
    """The memory of a policy's arms and state."""
    arrays = [policy.arms, *(field for field in policy.state if isinstance(field, np.ndarray))]
    return sum(array.nbytes for array in arrays)
