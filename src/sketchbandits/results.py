"""What `simulate` returns: regret curves with bands over runs, play time, a tidy table, a figure, a notebook view."""

import base64
import html
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # submodules load on first use

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which colour-blind readers can tell apart, then the same with another line style.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLES = ("-", "--", ":", "-.")


def student_band(curves: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """A Student-t confidence band of the mean over the rows (runs) of ``curves``; with one run, that run twice."""
    mean = curves.mean(axis=0)
    if len(curves) < 2:
        return mean.copy(), mean.copy()
    error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
    half = scipy.special.stdtrit(len(curves) - 1, (1 + level) / 2) * error
    return mean - half, mean + half


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """The outcome of one call of `simulate`; every dictionary has the names that were passed to it as keys.

    A notebook shows a result as a table and a figure. Two results are equal when all of their fields are, measured
    times included.

    Attributes
    ----------
    checkpoints
        The rounds after which regret was recorded; the last one is the length of a run.
    regret
        Per policy an array of shape (runs, checkpoints): cumulative pseudo-regret, the sum of the gaps between the
        best expected reward and that of the arm played.
    seconds
        Per policy the play time of each run, without compilation and warm-up.
    warmup_seconds
        Per policy the seconds that building it took.
    seed
        What was passed to `simulate`.

    """

    checkpoints: Ints
    regret: dict[str, Floats]
    seconds: dict[str, Floats]
    warmup_seconds: dict[str, float]
    seed: Any = None

    def __repr__(self) -> str:
        regrets = ", ".join(f"{name} {self.mean(name)[-1]:,.1f}" for name in self.policies)
        runs = f"{self.runs} run" if self.runs == 1 else f"{self.runs} runs"
        return f"Result({self.rounds:,} rounds, {runs}, mean final regret: {regrets})"

    def _repr_html_(self) -> str:
        """What a notebook shows: a row per policy, the least regret first, and the figure of `plot`."""
        cells = "".join(f"<tr>{row}</tr>" for row in map(self._html_row, sorted(self.policies, key=self._final)))
        headings = "".join(f"<th>{text}</th>" for text in ("policy", "regret", "95 % interval", "seconds per run"))
        image = io.BytesIO()
        self.plot().savefig(image, format="png", dpi=96)
        encoded = base64.b64encode(image.getvalue()).decode("ascii")
        return (
            f"<p>{self.rounds:,} rounds, runs: {self.runs}</p>"
            f"<table><thead><tr>{headings}</tr></thead><tbody>{cells}</tbody></table>"
            f'<img alt="Cumulative regret against rounds" src="data:image/png;base64,{encoded}">'
        )

    def _html_row(self, policy: str) -> str:
        low, high = (side[-1] for side in self.band(policy))
        interval = f"{low:,.1f} to {high:,.1f}" if self.runs > 1 else "one run only"
        numbers = (f"{self._final(policy):,.1f}", interval, f"{self.seconds[policy].mean():.3g}")
        return f"<th>{html.escape(policy)}</th>" + "".join(f"<td>{number}</td>" for number in numbers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        return (
            np.array_equal(self.checkpoints, other.checkpoints)
            and _same_arrays(self.regret, other.regret)
            and _same_arrays(self.seconds, other.seconds)
            and self.warmup_seconds == other.warmup_seconds
            and np.array_equal(self.seed, other.seed)
        )

    @property
    def policies(self) -> list[str]:
        """The names, in the order in which they were passed."""
        return list(self.regret)

    @property
    def rounds(self) -> int:
        """The length of every run."""
        return int(self.checkpoints[-1])

    @property
    def runs(self) -> int:
        """How often every policy was played."""
        return len(next(iter(self.seconds.values())))

    @property
    def final_regret(self) -> dict[str, Floats]:
        """Regret at the end, one number per run."""
        return {name: curves[:, -1].copy() for name, curves in self.regret.items()}

    def mean(self, policy: str) -> Floats:
        """The mean curve over runs."""
        curve: Floats = self._curves(policy).mean(axis=0)
        return curve

    def band(self, policy: str, level: float = 0.95) -> tuple[Floats, Floats]:
        """A Student-t confidence band of the mean curve over runs; with one run it is the curve itself."""
        return student_band(self._curves(policy), validate.probability("level", level))

    def frame(self) -> "polars.DataFrame":
        """A tidy table of the curves: policy, run, round, regret."""
        import polars  # loading it takes a tenth of a second, which only a caller who wants a table should wait

        runs, points = self.runs, len(self.checkpoints)
        return polars.DataFrame(
            {
                "policy": np.repeat(self.policies, runs * points),
                "run": np.tile(np.repeat(np.arange(runs), points), len(self.policies)),
                "round": np.tile(self.checkpoints, len(self.policies) * runs),
                "regret": np.concatenate([self.regret[name].ravel() for name in self.policies]),
            }
        )

    def summary(self) -> "polars.DataFrame":
        """One row per policy and run: final regret, play time, warm-up time."""
        import polars  # as in `frame`

        names = np.repeat(self.policies, self.runs)
        return polars.DataFrame(
            {
                "policy": names,
                "run": np.tile(np.arange(self.runs), len(self.policies)),
                "rounds": np.full(len(names), self.rounds),
                "regret": np.concatenate([self.final_regret[name] for name in self.policies]),
                "seconds": np.concatenate([self.seconds[name] for name in self.policies]),
                "warmup_seconds": [self.warmup_seconds[name] for name in names],
            }
        )

    def plot(self, ax: "Axes | None" = None, *, level: float = 0.95) -> "Figure":
        """Draw regret against rounds, mean and band over runs, and return the figure.

        ``ax``: where to draw (default: a new figure). ``level``: the confidence level of the bands. The legend lists
        the highest curve first.
        """
        from matplotlib.figure import Figure  # drawing is optional and slow to load

        if ax is None:
            ax = Figure(figsize=(7.2, 4.4), layout="constrained").add_subplot()
        x = np.concatenate([[0], self.checkpoints])
        for i, name in enumerate(self.policies):
            colour, style = _COLOURS[i % len(_COLOURS)], _STYLES[i // len(_COLOURS) % len(_STYLES)]
            low, high = (np.concatenate([[0.0], side]) for side in self.band(name, level))
            ax.fill_between(x, np.maximum(low, 0.0), high, color=colour, alpha=0.15, linewidth=0)
            ax.plot(x, np.concatenate([[0.0], self.mean(name)]), style, color=colour, linewidth=1.8, label=name)
        self._finish(ax)
        figure = ax.get_figure(root=True)
        assert figure is not None
        return figure

    def _finish(self, ax: "Axes") -> None:
        """Axes, grid and legend."""
        ax.set(xlabel="round", ylabel="cumulative regret", xlim=(0, self.rounds))
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        handles = dict(zip(self.policies, ax.get_lines()[-len(self.policies) :], strict=True))
        # From the highest curve to the lowest, as they end at the right edge.
        order = sorted(self.policies, key=lambda name: -self._final(name))
        ax.legend([handles[n] for n in order], order, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)

    def _final(self, policy: str) -> float:
        """Mean regret at the end."""
        return float(self.mean(policy)[-1])

    def _curves(self, policy: str) -> Floats:
        if policy not in self.regret:
            raise ValueError(f"policy must be one of {', '.join(map(repr, self.policies))}, got {policy!r}")
        return self.regret[policy]


def _same_arrays(mine: Mapping[str, Floats], theirs: Mapping[str, Floats]) -> bool:
    return mine.keys() == theirs.keys() and all(np.array_equal(mine[name], theirs[name]) for name in mine)
