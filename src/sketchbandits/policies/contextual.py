"""Policies for a fresh arm set each round: ``select(contexts) -> int``, ``update(context, reward)``, ``update_many``.

The exact ones (OFUL, LinUCB, LinTS, CBRAP) keep the triangular system ``R theta = z`` with ``R'R = V``, updated by
Givens rotations, which need no refit. O(d^2) per update, O(n d^2) to bound n contexts (O(n d + d^2) for a Thompson
draw), O(d^2) memory.
"""

import math
from collections.abc import Callable
from os import PathLike
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import snapshot, validate
from sketchbandits.confidence import CLOSED, RADIUS, SCALE, ellipsoid_radius, radius_at, radius_value, sampling_share
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import new_key, normals
from sketchbandits.kernels.linalg import Floats, tied_argmax
from sketchbandits.kernels.triangular import rotate, solve_upper, triangular_norms
from sketchbandits.policies.assumptions import ALPHA, Evidence, LeastSquares, Norm, least_norm
from sketchbandits.policies.format_1 import convert_radius
from sketchbandits.policies.format_2 import begin_to_watch
from sketchbandits.policies.guard import all_or_nothing, exclusive
from sketchbandits.policies.inputs import checked_rewards
from sketchbandits.policies.parameters import called_radius
from sketchbandits.policies.scatter import SEEN, nothing_seen
from sketchbandits.policies.watch import Watched

SAMPLES, LOGDET = range(2)


class ContextualPolicy(Watched):
    """Checked input and snapshots; subclasses say how to score contexts and how to learn from one."""

    state: Any
    settings: dict[str, Any]
    contextual_arms = True

    def __init__(self, dim: Any) -> None:
        self.dim = validate.whole("dim", dim)

    @exclusive
    def select(self, contexts: ArrayLike) -> int:
        """The row of ``contexts`` to play. No side effect."""
        return int(tied_argmax(self._scores(self._checked(contexts))))

    @exclusive
    def bounds(self, contexts: ArrayLike) -> Floats:
        """The upper confidence bound of every row of ``contexts``. No side effect."""
        return self._bounds(self._checked(contexts))

    @exclusive
    def estimates(self, contexts: ArrayLike) -> Floats:
        """The estimated mean reward of every row of ``contexts``; never above `bounds`. No side effect."""
        return self._estimates(self._checked(contexts))

    def update(self, context: ArrayLike, reward: float) -> None:
        """Record ``reward`` for the vector that was played: at any time, in any order."""
        vector = validate.vector("context", context, size=self.dim)
        self._check_norms("context", vector)
        self._learn(vector[None], np.array([validate.reward("reward", reward)]))
        self._watch(1)

    @exclusive
    def update_many(self, contexts: ArrayLike, rewards: ArrayLike) -> None:
        """Record ``rewards[t]`` for the row ``contexts[t]``, in order: bit-for-bit identical to `update`, compiled.

        All is checked before anything is recorded: a call that fails has changed nothing. An empty batch is allowed.
        """
        rows = self._checked_rows(contexts)
        numbers = checked_rewards(rewards, len(rows), "contexts")
        if type(self).update is ContextualPolicy.update:
            self._learn(rows, numbers)
            self._watch(numbers.size)
            return
        with all_or_nothing(self):
            for row, number in zip(rows, numbers.tolist(), strict=True):
                self.update(row, number)

    @exclusive
    def _learn(self, rows: Floats, rewards: Floats) -> None:
        if not callable(self.settings.get("radius")):
            self._absorb(rows, rewards)
            return
        with all_or_nothing(self):
            for t in range(rewards.size):
                self._absorb(rows[t : t + 1], rewards[t : t + 1])
                self._refresh_radius()

    def _checked(self, contexts: ArrayLike) -> Floats:
        rows = validate.matrix("contexts", contexts, columns=self.dim)
        self._check_norms("contexts", rows)
        return rows

    def _checked_rows(self, contexts: Any) -> Floats:
        """The contexts of a batch, perhaps none; of several that are wrong the first is named."""
        listed = isinstance(contexts, list | tuple)
        shape = (len(contexts),) if listed else getattr(contexts, "shape", ())
        if shape in ((0,), (0, self.dim)):
            return np.zeros((0, self.dim))
        try:
            return self._checked(contexts)
        except ValueError:
            if listed or len(shape) == 2:
                for i, row in enumerate(contexts if listed else np.asarray(contexts)):
                    validate.vector(f"contexts[{i}]", row, size=self.dim)
            raise

    def _check_norms(self, name: str, vectors: Floats) -> None:
        """A closed-form radius holds only for vectors within ``arm_norm``."""
        if self.state.radius["kind"][0] != CLOSED:
            return
        norms, allowed = np.linalg.norm(np.atleast_2d(vectors), axis=1), self.settings["arm_norm"]
        for i in np.flatnonzero(norms > allowed * (1 + 1e-9)):
            where = f" at [{i}]" if vectors.ndim > 1 else ""
            raise ValueError(f"{name} must have norm <= arm_norm = {allowed:g}, got {norms[i]:g}{where}")

    def _scores(self, contexts: Floats) -> Floats:
        raise NotImplementedError

    def _bounds(self, contexts: Floats) -> Floats:
        raise NotImplementedError

    def _estimates(self, contexts: Floats) -> Floats:
        raise NotImplementedError

    def _absorb(self, rows: Floats, rewards: Floats) -> None:
        """Learn a reward from each row, in order; ``rows`` may be used up."""
        raise NotImplementedError

    def _samples(self) -> tuple[float, float]:
        """Rewards recorded, and ln det(V/ridge)."""
        raise NotImplementedError

    def _least_squares(self) -> LeastSquares | None:
        """The fit of all rewards that assumptions are checked against; none where there is none."""
        raise NotImplementedError

    def _beta(self, log_share: float, noise: float, theta_norm: float) -> float:
        """The radius of that fit's ellipsoid with these parameters and ``ln(1/delta)``."""
        raise NotImplementedError

    @property
    def _seen(self) -> NDArray[Any]:
        seen: NDArray[Any] = self.state.seen
        return seen

    def _evidence(self) -> Evidence:
        fit, rewards = self._least_squares(), int(self._samples()[0])
        return fit.evidence(rewards, self.settings.get("theta_norm", 0.0)) if fit else Evidence(rewards, 0.0, 0, 0, 0)

    def _norm(self, noise: float, theta_norm: float, *, most: float) -> Norm | None:
        fit = self._least_squares()
        if fit is None or 10.0 * fit.theta.size**3 > most:
            return None
        return least_norm(fit.V, fit.theta, self._beta(-math.log(ALPHA), noise, theta_norm))

    def _known_means(self) -> int:
        return self.dim if self._samples()[0] else 0

    def _refresh_radius(self) -> None:
        if callable(self.settings.get("radius")):
            self.state.radius["value"] = called_radius(self.settings["radius"], *self._samples())

    @exclusive
    def copy(self) -> Self:
        """An independent policy in the same state."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        twin.settings = dict(self.settings)
        twin.state = snapshot.copy_state(self.state)
        return twin

    @exclusive
    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to ``path`` (NumPy's ``.npz``, no pickle), atomically."""
        snapshot.write(path, type(self).__name__, self.settings, self.state, {})

    @classmethod
    def load(cls, path: str | PathLike[str], *, radius: Callable[[int, float], float] | None = None) -> Self:
        """Read a policy that `save` wrote; it continues bit for bit. A function ``radius`` must be passed again."""
        return cls._from_saved(snapshot.with_radius(snapshot.read(path, cls.__name__), radius))

    @classmethod
    def _from_saved(cls, saved: snapshot.Saved) -> Self:
        saved = snapshot.converted(snapshot.of_kind(saved, cls.__name__), cls._converted)
        policy = cls.__new__(cls)
        ContextualPolicy.__init__(policy, saved.settings.get("dim"))
        policy.settings = saved.settings
        policy.state = snapshot.take_state(saved, cls._state_type(policy.settings), policy._sizes())
        policy._check_indices(saved)
        return policy

    @classmethod
    def _converted(cls, saved: snapshot.Saved) -> snapshot.Saved:
        """What an older format holds, in today's layout."""
        if saved.format == 1:
            convert_radius(saved)
        if saved.format < 3:
            cls._begin_to_watch(saved)
        return saved

    @classmethod
    def _begin_to_watch(cls, saved: snapshot.Saved) -> None:
        """Files of before format 3 say nothing of how rewards scatter."""
        begin_to_watch(saved, int(saved.settings["dim"]) if saved.arrays["state.level"][SAMPLES] else 0)

    def _sizes(self) -> dict[str, int]:
        """The names in the layout of the state's fields that have a known value."""
        return {"d": self.dim}

    def _check_indices(self, saved: snapshot.Saved) -> None:
        """Refuse a loaded state whose indices would lead compiled code out of bounds."""
        raise NotImplementedError

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        raise NotImplementedError

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.settings.items())
        return f"{type(self).__name__}({shown})"


class TriangularState(NamedTuple):
    """``factor' factor = V`` and ``factor theta_hat = target``."""

    factor: Annotated[Floats, "r r"]
    target: Annotated[Floats, "r"]
    level: Annotated[Floats, "2"]  # SAMPLES, LOGDET
    radius: Annotated[NDArray[Any], "1", RADIUS]
    sampling: Annotated[Floats, "draw"]  # empty unless the policy draws its parameter
    key: Annotated[NDArray[np.uint64], "2"]
    projection: Annotated[Floats, "projected columns"]  # empty unless contexts are projected first
    seen: Annotated[NDArray[Any], "1", SEEN]


@kernel
def absorb_rows(
    factor: Floats, target: Floats, level: Floats, projection: Floats, seen: NDArray[Any], rows: Floats, rewards: Floats
) -> None:
    """Rotate rewards in, in order, each with its row or the row's projection; ``rows`` are used up."""
    for t in range(rewards.size):
        x = rows[t]
        if projection.size > 0:
            x = np.dot(projection, x)
        growth, rest = rotate(factor, target, x, rewards[t])
        level[LOGDET] += growth
        level[SAMPLES] += 1.0
        seen[0]["squares"] += rest * rest
        seen[0]["freedom"] += 1.0


class ContextualRidge(ContextualPolicy):
    """OFUL, LinUCB, LinTS or CBRAP for contexts: built by their ``contextual``."""

    def __init__(
        self,
        name: str,
        dim: int,
        settings: dict[str, Any],
        radius: Floats,
        *,
        sampling: Floats | None = None,
        projection: Floats | None = None,
        seed: Any = None,
    ) -> None:
        super().__init__(dim)
        self.settings = {"name": name, "dim": self.dim, **settings}
        size = self.dim if projection is None else projection.shape[0]
        self.state = TriangularState(
            factor=np.eye(size) * np.sqrt(settings["ridge"]),
            target=np.zeros(size),
            level=np.zeros(2),
            radius=radius,
            sampling=np.zeros(0) if sampling is None else sampling,
            key=new_key(validate.generator(seed)),
            projection=np.zeros((0, 0)) if projection is None else projection,
            seen=nothing_seen(),
        )
        self._refresh_radius()

    @classmethod
    def _converted(cls, saved: snapshot.Saved) -> snapshot.Saved:
        """Format 1 showed parameters of OFUL also for LinUCB and CBRAP, and ``alpha`` under the name ``radius``."""
        saved = super()._converted(saved)
        old = saved.settings
        if saved.format > 1 or old.get("name") not in ("LinUCB", "CBRAP"):
            return saved
        size = {"sketch_size": len(saved.arrays["state.target"])} if old["name"] == "CBRAP" else {}
        settings = {"name": old["name"], "dim": old["dim"], **size, "alpha": old["radius"], "ridge": old["ridge"]}
        return saved._replace(settings=settings)

    @exclusive
    def reseed(self, seed: Any) -> None:
        """Draw from another stream from now on; what was learned stays."""
        self.state.key[:] = new_key(validate.generator(seed))

    def _samples(self) -> tuple[float, float]:
        return self.state.level[SAMPLES], self.state.level[LOGDET]

    def _project(self, rows: Floats) -> Floats:
        return rows @ self.state.projection.T if self.state.projection.size else rows

    def _theta(self, target: Floats) -> Floats:
        theta = np.empty_like(target)
        solve_upper(self.state.factor, target, theta)
        return theta

    def _bounds(self, contexts: Floats) -> Floats:
        rows = self._project(contexts)
        means, widths = rows @ self._theta(self.state.target), np.empty(len(rows))
        triangular_norms(self.state.factor, rows, widths)
        return means + radius_value(self.state.radius[0], *self._samples()) * widths

    def _estimates(self, contexts: Floats) -> Floats:
        return self._project(contexts) @ self._theta(self.state.target)

    def _scores(self, contexts: Floats) -> Floats:
        if not self.state.sampling.size:
            return self._bounds(contexts)
        samples, logdet = self._samples()
        v = self.state.sampling[SCALE]
        if np.isnan(v):
            v = radius_at(self.state.radius[0], samples, logdet, sampling_share(self.state.sampling, samples))
        eta = np.empty(self.state.target.size)
        normals(self.state.key, int(samples), eta)
        return contexts @ self._theta(self.state.target + v * eta)

    def _absorb(self, rows: Floats, rewards: Floats) -> None:
        state = self.state
        absorb_rows(state.factor, state.target, state.level, state.projection, state.seen, rows, rewards)

    def _least_squares(self) -> LeastSquares:
        state = self.state
        V, target2 = state.factor.T @ state.factor, float(state.target @ state.target)
        return LeastSquares(V, self._theta(state.target), target2, self.settings["ridge"], state.seen[0])

    def _beta(self, log_share: float, noise: float, theta_norm: float) -> float:
        bias = math.sqrt(self.settings["ridge"]) * theta_norm
        return ellipsoid_radius(self.state.level[LOGDET], noise, bias, log_share)

    def _check_indices(self, saved: snapshot.Saved) -> None:
        size, shape = self.state.target.size, self.state.projection.shape
        if shape != (size, self.dim) and (shape != (0, 0) or size != self.dim):
            raise ValueError(f"path must hold a fit of the contexts or of their projections, got one in {saved.path!r}")
        snapshot.within(saved, "state.sampling, its size", self.state.sampling.size % 3, 0, 0)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return TriangularState
