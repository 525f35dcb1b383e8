"""What protects a policy's state: calls from several threads take turns, and a call that fails changes nothing.

Compiled code releases Python's global lock and does not check indices, so two threads inside one state could crash the
process. Every public call except the plain ``select()``, which reads one number, therefore holds the policy's own lock.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Owner = TypeVar("Owner", bound="Guarded")


class Guarded:
    """An object with a lock of its own, which copies and pickles do not share."""

    _lock: Any  # re-entrant: a subclass's `update` may run inside `update_many`

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Also where ``__init__`` does not run: in copies, pickles and `load`."""
        guarded = super().__new__(cls)
        guarded._lock = threading.RLock()
        return guarded

    def copy(self) -> Self:
        """An independent object in the same state, taken while no call is inside."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles and deep copies are made of a copy: another thread cannot change it halfway."""
        return object.__reduce_ex__(self.copy(), protocol)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}


def exclusive(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Let a method wait until no other thread is inside one of the same object."""

    @functools.wraps(method)
    def alone(self: Owner, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with self._lock:
            return method(self, *args, **kwargs)

    return alone


@contextmanager
def all_or_nothing(policy: Any) -> Iterator[None]:
    """Whatever fails inside, a user's function or an interrupt, leaves the policy as it was."""
    before, lock = policy.copy(), policy._lock
    try:
        yield
    except BaseException:
        policy.__dict__ = {**before.__dict__, "_lock": lock}
        raise
