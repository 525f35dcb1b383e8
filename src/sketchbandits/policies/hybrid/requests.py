"""Arms that come with a request, known by their ids: news, prompts, auctions.

An id that got a reward has a slot of the state, with a fit of its own; any other arm is predicted from its features by
what all arms share, ``u . Phi z`` with variance ``u.u/c + (u x z)' A_0^-1 (u x z)``. When all slots are taken, the id
whose last reward is the oldest gives up its own: its rows ``sqrt(d) (U't, s W' x z)`` (`statistics`) are added to a
triangular factor of the shared fit, which therefore does not change by that. They keep the own ridge c of that moment.
An id whose features change begins anew in the same way. O((p r)^2) per new arm and decision, O(p (p r)^2) per arm that
is dropped.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import snapshot, validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.guard import all_or_nothing, exclusive
from sketchbandits.policies.hybrid.half_life import checked_time
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.hybrid.model import HybridModel
from sketchbandits.policies.hybrid.parameters import is_vectors
from sketchbandits.policies.hybrid.record import rotate_in
from sketchbandits.policies.inputs import checked_rewards

Id = str | int


class Offer(NamedTuple):
    """The arms of a request, and the model of them alone."""

    ids: list[Id]
    state: HybridState


class RequestModel(HybridModel):
    """`HybridModel` for arms that are fixed, or that come with requests."""

    _slots: dict[Id, int]  # ids with a fit of their own, the one whose last reward is the oldest first

    @property
    def _comes(self) -> bool:
        """Whether arms come with requests."""
        return self.settings["feature_dim"] is not None

    @property
    def known_arms(self) -> list[Id]:
        """The ids that have a fit of their own, the one that was rewarded last at the end."""
        return list(self._slots)

    def _refuse_requests(self, arms: Any, features: Any) -> None:
        for name, value in (("arms", arms), ("features", features)):
            if value is not None:
                raise ValueError(f"{name} must be None where the arms are fixed (feature_dim=None), got {value!r}")

    def _offer(self, arms: Any, features: Any, at: Any) -> Offer:
        """The arms of a request as a model of their own, in their order."""
        if arms is None or not (ids := checked_ids("arms", arms)):
            raise ValueError(f"arms must be the ids of the arms that this request offers, got {arms!r}")
        if len(set(ids)) < len(ids):
            raise ValueError(f"arms must be different ids, got {_twice(ids)!r} twice")
        state = self._at(at)
        return Offer(ids, self._model_of(state, ids, self._features_of(ids, features)))

    def _features_of(self, ids: list[Id], features: Any) -> Floats:
        """One row per id; those that are known may be left out all together."""
        if features is not None:
            rows = self._encoded_features(features)
            if len(rows) != len(ids):
                raise ValueError(f"features must have one row per arm, {len(ids)}, got {len(rows)}")
            return rows
        if unknown := [one for one in ids if one not in self._slots]:
            raise ValueError(f"features must be given for arms without a fit of their own, got None for {unknown[0]!r}")
        rows = self.arms[[self._slots[one] for one in ids]]
        return rows

    def _encoded_features(self, features: Any) -> Floats:
        if self.arm_features is not None and not is_vectors(features):
            return self.arm_features.transform([features] if isinstance(features, Mapping) else features)
        return validate.matrix("features", features, columns=self.settings["feature_dim"])

    def _model_of(self, state: HybridState, ids: list[Id], features: Floats) -> HybridState:
        """The state restricted to these arms; those without a fit of their own are predicted."""
        n, (_, p, r) = len(ids), state.shared.shape
        slots = np.array([self._slot(one, row) for one, row in zip(ids, features, strict=True)])
        new = slots < 0
        z = np.empty((n, r))
        z[:, :-1], z[:, -1] = features * state.level["unit"], state.coordinates[0, -1]
        own, spread, inverse = state.own[slots], state.spread[slots], state.inverse[slots]
        own[new], spread[new], inverse[new] = predicted(state, z[new])
        counts = np.where(new, 0, state.counts[slots])
        return state._replace(
            choice=np.zeros(1, np.int64),
            counts=counts,
            cluster=np.zeros(n, np.int64),
            members=np.arange(n),
            starts=np.array([0, n]),
            coordinates=z,
            factors=np.zeros((n, p + 1, p + 1)),
            own=own,
            spread=spread,
            inverse=inverse,
            active=np.ones(n, np.bool_),
        )

    def _slot(self, one: Id, features: Floats) -> int:
        """The slot of an id with these features, or -1."""
        slot = self._slots.get(one, -1)
        return slot if slot >= 0 and np.array_equal(self.arms[slot], features) else -1

    def _learn_offered(self, one: Any, x: Floats, reward: float, features: Any, at: Any) -> None:
        """Record a reward of an id."""
        one, when = checked_id("arm", one), checked_time(at, timed=self._timed)
        with self._lock:
            row = self._features_of([one], None if features is None else _one_row(features))[0]
            if (slot := self._slot(one, row)) >= 0:
                self._learn_in(slot, x, reward, when)
            else:
                with all_or_nothing(self):
                    slot = self._take_slot(one, row)
                    self._learn_in(slot, x, reward, when)
            self._slots[one] = self._slots.pop(one)

    @exclusive
    def update_many(
        self, arms: Any, rewards: ArrayLike, *, contexts: Any = None, features: Any = None, at: ArrayLike | None = None
    ) -> None:
        """Record ``rewards[t]`` for ``arms[t]`` and ``contexts[t]``, in order: identical to calls of `update`.

        ``contexts``: one row per arm, or with ``context_features`` a data frame or a list of mappings. ``features``:
        the same, of arms that came with requests. ``at``: one time per arm. All is checked before anything is recorded.
        """
        if not self._comes:
            if features is not None:
                self._refuse_requests(None, features)
            super().update_many(arms, rewards, contexts=contexts, at=at)
            return
        ids = checked_ids("arms", arms)
        numbers = checked_rewards(rewards, len(ids), "arms")
        rows, times = self._checked_contexts(contexts, len(ids)), self._checked_times(at, len(ids))
        known = None if features is None else self._encoded_features(features)
        if known is not None and len(known) != len(ids):
            raise ValueError(f"features must have one row per arm, {len(ids)}, got {len(known)}")
        with all_or_nothing(self):
            for t, one in enumerate(ids):
                when = times[t] if self._timed else None
                self._learn_offered(one, rows[t], float(numbers[t]), None if known is None else known[t], when)

    def _take_slot(self, one: Id, features: Floats) -> int:
        """A slot for an id that has none with these features."""
        if one in self._slots:
            slot = self._drop(one)
        elif len(self._slots) < self.n_arms:
            slot = len(self._slots)
        else:
            slot = self._drop(next(iter(self._slots)))
        self._slots[one] = slot
        self.arms[slot] = features
        for copy in self._copies():
            copy.starts[1] = max(int(copy.starts[1]), slot + 1)
            copy.coordinates[slot, :-1] = features * copy.level["unit"]
            z = copy.coordinates[slot : slot + 1]
            (copy.own[slot],), (copy.spread[slot],), (copy.inverse[slot],) = predicted(copy, z)
        return slot

    def _drop(self, one: Id) -> int:
        """Give up an id's own fit; its slot."""
        slot = self._slots.pop(one)
        for copy in self._copies():
            fold(copy, slot, np.append(self.arms[slot], 1.0))
        return slot

    @exclusive
    def remove_arms(self, ids: Any) -> None:
        """Never play these arms again; what they taught stays. Their ids are not given out a second time.

        Where arms come with requests: give up the fits of these ids now. They may be offered again, as new ones.
        """
        if not self._comes:
            super().remove_arms(ids)
            return
        for one in (gone := checked_ids("ids", ids)):
            if one not in self._slots:
                raise ValueError(f"ids must be arms with a fit of their own, got {one!r}")
        if len(set(gone)) < len(gone):
            raise ValueError(f"ids must be different, got {_twice(gone)!r} twice")
        self._later = None
        with all_or_nothing(self):
            for one in gone:
                self._close_gap(self._drop(one))

    def _close_gap(self, slot: int) -> None:
        """Move the last slot into one that has become free: the slots in use are the first ones."""
        last = len(self._slots)
        mover = next((one for one, at in self._slots.items() if at == last), None)
        if mover is not None:
            self._slots[mover] = slot
            self.arms[slot] = self.arms[last]
        for copy in self._copies():
            for name in ("counts", "coordinates", "factors", "own", "spread", "inverse"):
                array = getattr(copy, name)
                if mover is not None:
                    array[slot] = array[last]
            copy.counts[last], copy.factors[last], copy.starts[1] = 0, 0.0, last

    @exclusive
    def add_arms(self, arms: Any) -> Any:
        """Add arms, as they were given at first; returns their ids, which continue those of the arms there are.

        The shared fit is made anew for all arms, exactly; nothing that was recorded is lost. Where arms come with
        requests there is nothing to add.
        """
        if self._comes:
            raise ValueError("add_arms is for fixed arms; with feature_dim arms come with requests: select(arms=...)")
        return super().add_arms(arms)

    @exclusive
    def copy(self) -> Self:
        """An independent policy in the same state."""
        twin = super().copy()
        twin._slots = dict(self._slots)
        if self._comes:
            twin.arms = self.arms.copy()
        return twin

    def _extra(self) -> dict[str, NDArray[Any]]:
        return {"slots": np.array(json.dumps(list(self._slots.items())))} if self._comes else {}

    def _restore(self, saved: snapshot.Saved, sizes: dict[str, int]) -> None:
        self._slots = {}
        if self._comes:
            self.arms = self.arms.copy()
            self._slots = _read_slots(saved, self.n_arms)

    def _check_indices(self, saved: snapshot.Saved) -> None:
        super()._check_indices(saved)
        if self._comes and any(copy.starts[1] != len(self._slots) for copy in self._copies()):
            raise ValueError(f"path must hold as many slots as its state uses, got others in {saved.path!r}")


def predicted(state: HybridState, z: Floats) -> tuple[Floats, Floats, Floats]:
    """Coefficients, their covariance over R^2, and the inverse of the own precision, of arms without rewards."""
    _, p, r = state.shared.shape
    inverse = np.tile(np.eye(p) / float(state.level["own_ridge"][0]), (len(z), 1, 1))
    whole = state.shared_inverse[0].reshape(p, r, p, r)
    between: Floats = np.einsum("na,iajb,nb->nij", z, whole, z, optimize=True)
    return z @ state.shared[0].T, inverse + between, inverse


def fold(state: HybridState, slot: int, raw: Floats) -> None:
    """Add what a slot's arm tells the shared part to the factor of dropped arms, and clear the slot."""
    p, c = state.scale.size, float(state.level["own_ridge"][0])
    factor = state.factors[slot]
    left, singular, _ = np.linalg.svd(factor[:p, :p] * state.scale)
    rows = np.sqrt(c / (singular**2 + c))[:, None] * (left.T @ factor[:p])
    shared = np.einsum("ij,a->ija", rows[:, :p], raw).reshape(p, -1)
    for row in np.column_stack([shared, rows[:, p - 1], rows[:, p]]):
        rotate_in(state.gone, row)
    rotate_in(state.gone, np.append(np.zeros(shared.shape[1] + 1), factor[p, p]))
    for row in factor.copy():
        rotate_in(state.moments, row)
    state.counts[slot], state.factors[slot] = 0, 0.0


def checked_id(name: str, value: Any) -> Id:
    """An arm's id: a text or a whole number."""
    if isinstance(value, str):
        return str(value)
    try:
        return validate.whole(name, value, least=-(2**63), most=2**63 - 1)
    except ValueError:
        raise ValueError(f"{name} must be ids, texts or whole numbers, got {value!r}") from None


def checked_ids(name: str, values: Any) -> list[Id]:
    """A list of ids."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise ValueError(f"{name} must be a list of ids, texts or whole numbers, got {values!r}")
    return [checked_id(name, one) for one in values]


def _twice(ids: Sequence[Id]) -> Id:
    return next(one for place, one in enumerate(ids) if one in ids[:place])


def _one_row(features: Any) -> Any:
    """The features of one arm as a table of one row."""
    if isinstance(features, Mapping):
        return [features]
    return validate.vector("features", features)[None]


def _read_slots(saved: snapshot.Saved, n: int) -> dict[Id, int]:
    allowed = f"path must hold slots, pairs of ids and numbers below {n}, got others in {saved.path!r}"
    try:
        slots = dict(json.loads(str(snapshot.take(saved, "slots"))))
        for one in slots:
            checked_id("path", one)
    except (ValueError, TypeError, RecursionError):
        raise ValueError(allowed) from None
    if not all(type(at) is int for at in slots.values()):
        raise ValueError(allowed)
    if sorted(slots.values()) != list(range(len(slots))) or len(slots) > n:
        raise ValueError(allowed)
    return slots
