"""`advise`: examine arms, bound the regret of every policy, time the best ones, recommend one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.lab.advice import report
from sketchbandits.lab.advice.bounds import Case
from sketchbandits.lab.advice.candidates import MULTISCALE, Candidate, candidates
from sketchbandits.lab.advice.clusters import ClusterRow, cluster_table, sizes_to_try
from sketchbandits.lab.advice.facts import ArmFacts, examine
from sketchbandits.lab.advice.hybrid import HybridAdvice, hybrid_advice
from sketchbandits.lab.advice.recommend import microseconds_of, recommend, sentence
from sketchbandits.lab.advice.remarks import remarks
from sketchbandits.lab.advice.timing import Stopwatch, finalists
from sketchbandits.policies.multiscale.policy import default_size
from sketchbandits.progress import Bar

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Advice:
    """What `advise` found. ``facts`` and ``case`` describe the arms and the model.

    ``clusters`` has one row per sketch size, ``candidates`` one per policy and size, ``finalists`` one per policy: its
    best size, timed. ``choice`` is the finalist that is recommended. ``hybrid``: about HybridCSLB, which has no bound.
    """

    facts: ArmFacts
    case: Case
    budget_us: float | None
    clusters: tuple[ClusterRow, ...]
    candidates: tuple[Candidate, ...]
    finalists: tuple[Candidate, ...]
    choice: Candidate
    warnings: list[str]
    hybrid: HybridAdvice

    def __repr__(self) -> str:
        return f"Advice({self.sentence!r})"

    def __str__(self) -> str:
        return self.text()

    @property
    def sentence(self) -> str:
        """The recommendation in one sentence."""
        return sentence(self.choice, self.case, self.budget_us)

    @property
    def sketch_size(self) -> int:
        """The sketch size that makes ``l^2 K(l)`` least."""
        return min(self.clusters, key=lambda row: row.score).sketch_size

    @property
    def budget(self) -> int | str:
        """Operations for ``MultiscaleCSLB(budget=...)``: ``"auto"``, the default of the class, where that fits.

        That of the choice or, where another policy is recommended, of multi-scale as it plays by default.
        """
        own = next(found for found in (self.choice, *self.finalists) if found.policy == MULTISCALE)
        budget: int | str = dict(own.options).get("budget", "auto")
        return budget

    @property
    def notes(self) -> list[str]:
        """What was sampled, and what bounds and times mean."""
        return report.notes(self)

    def text(self) -> str:
        """A report of 80 columns."""
        return report.text(self)

    def as_json(self) -> dict[str, Any]:
        """Everything as plain numbers and texts."""
        return report.as_json(self)

    def frame(self) -> "polars.DataFrame":
        """A tidy table of all candidates, one row per policy and sketch size; finalists with their times."""
        import polars  # here and not above: a tenth of a second that a caller without tables need not wait

        rows = [found._asdict() | {"options": found.call} for found in report.all_candidates(self)]
        return polars.DataFrame(rows, infer_schema_length=None).rename({"options": "call"})

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Time per round and regret bound of every policy, with the frontier and the budget; returns the figure."""
        from sketchbandits.lab.advice.figure import draw  # drawing is optional and slow to load

        return draw(self, ax)


def advise(
    arms: ArrayLike,
    *,
    rounds: int,
    budget_us: float | None = None,
    noise: float = 1.0,
    theta_norm: float = 1.0,
    ridge: float = 1.0,
    delta: float = 0.01,
    sketch_sizes: Sequence[int] | None = None,
    features: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    seed: Any = 0,
    progress: bool | Callable[[float, str], None] | None = None,
) -> Advice:
    """Advice on which policy to play on ``arms`` for ``rounds`` rounds, and on its sketch size and budget.

    ``budget_us``: the microseconds that a round may take on average, `select` and `update` called from Python; by
    default there is no limit. ``noise``, ``theta_norm``, ``ridge`` and ``delta``: R, S, lambda and the failure
    probability, as the policies take them; MultiscaleCSLB chooses its own ridges. ``sketch_sizes``: those to try
    (default: small ones, doublings, the rank). ``features`` and ``ids``: names of columns and arms for warnings.
    ``seed`` draws samples where arms are too many; `Advice.notes` says of what. Every policy is played for a few
    hundred rounds at its best sketch size: the times differ from call to call, all else is the same for the same seed.
    Policies without a guarantee are not recommended; `Advice.hybrid` says when HybridCSLB is the one to take.
    """
    array = validate.vectors("arms", arms)
    limit = None if budget_us is None else validate.positive("budget_us", budget_us)
    model = {"rounds": validate.whole("rounds", rounds), "delta": validate.probability("delta", delta)}
    model |= {name: validate.positive(name, value) for name, value in (("noise", noise), ("ridge", ridge))}
    model["theta_norm"] = validate.positive("theta_norm", theta_norm)
    sizes, rng = _sizes(sketch_sizes), validate.generator(seed)
    with Bar(progress) as bar:
        facts = examine(array, features=features, ids=ids, rng=rng, show=_part(bar, 0.0, 0.3))
        case = _case(facts, model)
        sizes = sizes or tuple(sorted({*sizes_to_try(facts.rank), default_size(case.space_dims)}))
        table = cluster_table(array, sizes, facts.rank, facts.rays, rng, _part(bar, 0.3, 0.7))
        found = candidates(case, table)
        stopwatch = Stopwatch(array, case, rng)
        timed = finalists(found, table, stopwatch, limit, _part(bar, 0.7, 0.95))
        bar.show(0.95, "timing HybridCSLB, kernels compile once")
        hybrid = hybrid_advice(facts.n_arms, facts.rank, table, stopwatch)
    choice = recommend(timed)
    words = remarks(facts, case, table) + _on_choice(choice, found, case, limit)
    return Advice(facts, case, limit, table, found, tuple(timed), choice, words, hybrid)


def _case(facts: ArmFacts, model: dict[str, Any]) -> Case:
    return Case(
        n_arms=facts.n_arms,
        dim=facts.dim,
        rank=facts.rank,
        n_rays=facts.n_rays,
        ray_spread=facts.ray_spread,
        spectrum=facts.spectrum,
        arm_norm=facts.arm_norm,
        **model,
    )


def _part(bar: Bar, start: float, end: float) -> Callable[[float, str], None]:
    """Progress of a step that takes the bar from one share to another."""
    return lambda share, what: bar.show(start + (end - start) * share, what)


def _sizes(given: Sequence[int] | None) -> tuple[int, ...]:
    if given is None:
        return ()
    if isinstance(given, (str, bytes)) or not hasattr(given, "__len__") or not len(given):
        raise ValueError(f"sketch_sizes must be a sequence of one or more whole numbers >= 1, got {given!r}")
    return tuple(sorted({validate.whole("sketch_sizes", size) for size in given}))


def _on_choice(choice: Candidate, found: Sequence[Candidate], case: Case, budget_us: float | None) -> list[str]:
    words = []
    if not choice.fits:
        fastest = f"{microseconds_of(choice):.3g} us"
        words.append(f"No policy with a guarantee fits {budget_us:g} us per round: the fastest takes {fastest}.")
    if all(each.vacuous for each in found if each.bound is not None):
        words.append(
            f"After {case.rounds:,} rounds every bound is vacuous, at least 2 S L T = {case.trivial:,.0f}: the bounds "
            "still order the policies, but they are too loose to promise anything."
        )
    return words
