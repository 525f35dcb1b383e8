"""`advise`: look at arms, predict what every policy would cost and guarantee, recommend one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.lab.advice import report
from sketchbandits.lab.advice.bounds import Case
from sketchbandits.lab.advice.clusters import ClusterRow, cluster_table, sizes_to_try
from sketchbandits.lab.advice.look import Look, look
from sketchbandits.lab.advice.machine import Machine, measure
from sketchbandits.lab.advice.predictions import Prediction, predict
from sketchbandits.lab.advice.recommend import MULTISCALE, best_of, recommend, sentence
from sketchbandits.lab.advice.remarks import remarks
from sketchbandits.progress import Bar

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Advice:
    """What `advise` found. ``look`` and ``case`` are facts about arms and model, ``machine`` what was timed.

    ``clusters`` has a row for each sketch size, ``predictions`` one for each policy and size; ``choice`` is the one
    recommended. ``budget`` is what `MultiscaleCSLB` takes as ``budget=``: operations a round that are left for it.
    """

    look: Look
    case: Case
    machine: Machine
    budget_us: float | None
    clusters: tuple[ClusterRow, ...]
    predictions: tuple[Prediction, ...]
    choice: Prediction
    warnings: list[str]

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
    def budget(self) -> int:
        """Operations for ``MultiscaleCSLB(budget=...)``."""
        own = [found for found in self.predictions if found.policy == MULTISCALE]
        best = self.choice if self.choice.policy == MULTISCALE else best_of(own)
        return int(dict(best.options)["budget"])

    @property
    def notes(self) -> list[str]:
        """What was sampled, and how predictions are meant."""
        return report.notes(self)

    def text(self) -> str:
        """A report of 80 columns."""
        return report.text(self)

    def as_json(self) -> dict[str, Any]:
        """Everything as plain numbers and texts."""
        return report.as_json(self)

    def frame(self) -> "polars.DataFrame":
        """A tidy table of the predictions, one row a policy and sketch size."""
        import polars  # here and not above: a tenth of a second that a caller without tables need not wait

        rows = [found._asdict() | {"options": found.call} for found in self.predictions]
        return polars.DataFrame(rows, infer_schema_length=None).rename({"options": "call"})

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """The frontier of predicted cost and regret bound, with the budget; returns the figure."""
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
    machine: Machine | None = None,
    seed: Any = 0,
    progress: bool | Callable[[float, str], None] | None = None,
) -> Advice:
    """Advice on which policy to play on ``arms`` for ``rounds`` rounds, and on its sketch size and budget.

    ``budget_us`` is what a round may take on average, in microseconds, `select` and `update` called from Python; none
    sets no limit. ``noise``, ``theta_norm``, ``ridge`` and ``delta`` are R, S, lambda and the failure probability, as
    the policies take them. ``sketch_sizes`` are those to try (default: small ones, doublings, the rank). ``features``
    and ``ids`` name columns and arms in warnings. ``machine`` is timed here, in a tenth of a second, if not given; all
    else is the same for the same ``seed``, which draws samples where arms are too many (`Advice.notes` says of what).
    """
    array = validate.vectors("arms", arms)
    rounds = validate.whole("rounds", rounds)
    model = {name: validate.positive(name, value) for name, value in (("noise", noise), ("ridge", ridge))}
    model["theta_norm"] = validate.positive("theta_norm", theta_norm)
    limit = None if budget_us is None else validate.positive("budget_us", budget_us)
    delta, sizes, rng = validate.probability("delta", delta), _sizes(sketch_sizes), validate.generator(seed)
    with Bar(progress) as bar:
        seen = look(array, features=features, ids=ids, rng=rng, show=lambda s, what: bar.show(0.4 * s, what))
        case = Case(
            n_arms=seen.n_arms,
            dim=seen.dim,
            rank=seen.rank,
            n_rays=seen.n_rays,
            spectrum=seen.spectrum,
            arm_norm=seen.arm_norm,
            rounds=rounds,
            delta=delta,
            **model,
        )
        sizes = sizes or sizes_to_try(seen.rank)
        table = cluster_table(array, sizes, seen.rank, seen.rays, rng, lambda s, what: bar.show(0.4 + 0.55 * s, what))
        bar.show(0.95, "timing this machine")
        timed = machine or measure()
    found = predict(case, table, timed, limit)
    choice = recommend(found)
    words = remarks(seen, case, table)
    return Advice(seen, case, timed, limit, table, found, choice, words + _on_choice(choice, found, case, limit))


def _sizes(given: Sequence[int] | None) -> tuple[int, ...]:
    if given is None:
        return ()
    if isinstance(given, (str, bytes)) or not hasattr(given, "__len__") or not len(given):
        raise ValueError(f"sketch_sizes must be a sequence of one or more whole numbers >= 1, got {given!r}")
    return tuple(sorted({validate.whole("sketch_sizes", size) for size in given}))


def _on_choice(choice: Prediction, found: Sequence[Prediction], case: Case, budget_us: float | None) -> list[str]:
    words = []
    if not choice.fits:
        words.append(
            f"No policy with a guarantee fits {budget_us:g} us a round: the fastest takes {choice.microseconds:.3g} us."
        )
    if all(each.vacuous for each in found if each.bound is not None):
        words.append(
            f"After {case.rounds:,} rounds every bound is vacuous, at least 2 S L T = {case.trivial:,.0f}: they still "
            "order the policies, but promise nothing."
        )
    return words
