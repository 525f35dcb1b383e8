"""What protects a policy's state: a call that fails changes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def all_or_nothing(policy: Any) -> Iterator[None]:
    """Whatever fails inside, a user's function or an interrupt, leaves the policy as it was."""
    before = policy.copy()
    try:
        yield
    except BaseException:
        policy.__dict__ = before.__dict__
        raise
