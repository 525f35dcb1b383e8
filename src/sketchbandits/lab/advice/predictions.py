"""Every policy's predicted regret bound, operations, microseconds and memory, for every sketch size."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sketchbandits.lab.advice import bounds, costs
from sketchbandits.lab.advice.bounds import Case
from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.lab.advice.costs import Cost
from sketchbandits.lab.advice.machine import Machine

SWITCHING = 1.0  # of rarely switching OFUL
DEFAULT_BUDGET = 4096  # MultiscaleCSLB's own
PROVEN, EXPECTED, ESTIMATED, NONE = "proven", "expected", "estimate", "none"


class Prediction(NamedTuple):
    """A policy with its options, and what they come to.

    ``guarantee`` says what ``bound`` is: ``"proven"`` (with probability ``1 - delta``), ``"expected"`` (of the mean
    regret), ``"estimate"`` (what a sketch drops is guessed from the arms), ``"none"`` (``bound`` is then none).
    ``vacuous``: it says no less than ``2 S L T``. ``microseconds`` include the calls from Python; ``fits`` the budget.
    """

    policy: str
    options: tuple[tuple[str, Any], ...]
    sketch_size: int | None
    bound: float | None
    guarantee: str
    vacuous: bool
    operations: float
    microseconds: float
    memory: float
    fits: bool

    @property
    def call(self) -> str:
        """How to build it."""
        return f"{self.policy}({', '.join(['arms', *(f'{name}={value!r}' for name, value in self.options)])})"

    @property
    def name(self) -> str:
        """The policy, told apart from its other forms."""
        for option, words in _FORMS.get(self.policy, {}).items():
            if option in dict(self.options):
                return f"{self.policy}, {words}"
        return self.policy


_FORMS = {"CSLB": {"radius": "log-det"}, "OFUL": {"switching": "rare"}}


class _Code(str):
    """An expression, shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


class _Maker(NamedTuple):
    """Turns bounds and costs into predictions."""

    case: Case
    machine: Machine
    budget_us: float | None

    def __call__(
        self,
        policy: str,
        cost: Cost,
        bound: float | None,
        guarantee: str,
        size: int | None = None,
        more_us: float = 0.0,
        **options: Any,
    ) -> Prediction:
        taken = self.machine.microseconds(cost.operations, cost.touched, cost.arrays) + more_us
        return Prediction(
            policy=policy,
            options=tuple(options.items()),
            sketch_size=size,
            bound=bound,
            guarantee=guarantee,
            vacuous=bound is not None and bound >= self.case.trivial,
            operations=float(cost.operations) + float(options.get("budget", 0)),
            microseconds=float(taken),
            memory=float(cost.memory),
            fits=self.budget_us is None or bool(taken <= self.budget_us * (1.0 + 1e-9)),
        )


def predict(
    case: Case, table: Sequence[ClusterRow], machine: Machine, budget_us: float | None
) -> tuple[Prediction, ...]:
    """Policies without a sketch size, then the others at every size."""
    make = _Maker(case, machine, budget_us)
    return (*_plain(make), *(found for row in table for found in _sized(make, row)))


def _plain(make: _Maker) -> Iterator[Prediction]:
    case = make.case
    n, d = case.n_arms, case.dim
    logdet: dict[str, Any] = {"radius": "logdet"}
    switches = case.information(case.rank) / math.log1p(SWITCHING)
    rare = costs.rarely_switching(n, d, switches, case.rounds)
    yield make("UCB1", costs.ucb1(n, d), bounds.ucb1(case), EXPECTED, exploration=8.0)
    yield make("OFUL", costs.oful(n, d), bounds.oful(case), PROVEN, **logdet)
    late = bounds.rarely_switching(case, SWITCHING)
    yield make("OFUL", rare, late, PROVEN, **logdet, switching=SWITCHING)
    yield make("LinTS", costs.lints(n, d), bounds.lints(case), PROVEN, **logdet, horizon=case.rounds)
    yield make("LinUCB", costs.oful(n, d), None, NONE)


def _sized(make: _Maker, row: ClusterRow) -> Iterator[Prediction]:
    case, size = make.case, row.sketch_size
    n, d, rank = case.n_arms, case.dim, case.rank
    parts = _partition(row)
    cost = costs.cslb(n, d, row, case.rounds)
    yield make("CSLB", cost, bounds.cslb_paper(case, row), PROVEN, size, **parts)
    yield make("CSLB", cost, bounds.cslb_logdet(case, row), PROVEN, size, **parts, radius="logdet")
    yield _multiscale(make, row)
    sized: dict[str, Any] = {"sketch_size": size}
    kind = PROVEN if size >= rank else ESTIMATED
    yield make("SOFUL", costs.sketched(n, d, size, rank), bounds.soful(case, size), kind, size, **sized)
    yield make("CBSCFD", costs.sketched(n, d, size, rank), bounds.cbscfd(case, size), kind, size, **sized)
    yield make("DBSLinUCB", costs.dyadic(n, d, size, rank), bounds.dyadic(case, size), PROVEN, size, **sized)
    yield make("CBRAP", costs.cbrap(n, d, size), None, NONE, size, **sized)


def _multiscale(make: _Maker, row: ClusterRow) -> Prediction:
    """What the time leaves goes to the space's scale, up to a refresh every round."""
    case, machine, dims = make.case, make.machine, make.case.space_dims
    cost = costs.multiscale(case.n_arms, case.dim, dims, row)
    refresh, data = costs.space_refresh(case.n_arms, dims), costs.NUMBER * case.n_arms * dims
    budget, weight = DEFAULT_BUDGET if dims else 0, costs.budget_weight(dims)
    if make.budget_us is not None:
        left = make.budget_us - machine.microseconds(cost.operations, cost.touched, cost.arrays)
        budget = min(machine.operations(left / weight, data), math.ceil(refresh))
    # A fit that is published was begun one refresh earlier: in the worst case its data are two refreshes old.
    bound = bounds.multiscale(case, row, 2.0 * refresh / budget if budget else math.inf)
    options = {**_partition(row), "budget": budget}
    return make("MultiscaleCSLB", cost, bound, PROVEN, row.sketch_size, budget * weight * machine.rate(data), **options)


def _partition(row: ClusterRow) -> dict[str, Any]:
    """First-fit by the sketch size, or a partition made beforehand where that has fewer clusters."""
    if row.subspaces is not None and row.subspaces < row.clusters:
        return {"partition": _Code(f"Partition.subspaces(arms, {row.sketch_size})")}
    return {"sketch_size": row.sketch_size}
