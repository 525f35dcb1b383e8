"""One way to a policy's contextual form: ``OFUL.contextual(dim=8, ridge=0.5)``, and `load` for both forms.

The contextual form takes the keyword parameters of the policy's own constructor, with the same defaults, and ``dim`` in
place of ``arms``. A parameter that means nothing without fixed arms is refused by the policy's ``_contextual``.
"""

import inspect
from collections.abc import Callable
from os import PathLike
from typing import Any, ClassVar

from sketchbandits import snapshot
from sketchbandits.policies.base import Policy
from sketchbandits.policies.contextual import ContextualPolicy


class OwnParameters:
    """A class attribute that calls the owner's ``_contextual(dim=..., **settings)``, with a signature for `help`."""

    def __get__(self, instance: Any, owner: type) -> Callable[..., ContextualPolicy]:
        parameters = [p for p in inspect.signature(owner).parameters.values() if p.name != "arms"]
        dim = inspect.Parameter("dim", inspect.Parameter.KEYWORD_ONLY, annotation=int)
        signature = inspect.Signature([dim, *parameters], return_annotation=ContextualPolicy)

        def contextual(**given: Any) -> ContextualPolicy:
            bound = signature.bind(**given)
            bound.apply_defaults()
            made: ContextualPolicy = owner._contextual(**bound.arguments)  # type: ignore[attr-defined]
            return made

        name = owner.__name__
        contextual.__doc__ = (
            f"{name} for contexts that arrive each round: ``select(contexts)``, ``update(context, reward)``.\n\n"
            f"``dim`` is the length of a context; the other parameters are those of `{name}`."
        )
        contextual.__qualname__ = f"{name}.contextual"
        contextual.__signature__ = signature  # type: ignore[attr-defined]
        return contextual


class ContextualForm(Policy):
    """A policy on fixed arms that also exists for contexts; a subclass gives ``contextual`` and its class."""

    contextual: Any  # a class, or `OwnParameters`
    contextual_class: ClassVar[type[ContextualPolicy]]

    @classmethod
    def load(cls, path: str | PathLike[str], *, radius: Callable[[int, float], float] | None = None) -> Any:
        """Read a policy that `save` wrote, of either form; it continues bit for bit.

        A function ``radius`` must be passed again. The types, shapes and indices of everything in the file are checked
        before any of it is used.
        """
        saved = snapshot.with_radius(snapshot.read(path, cls.__name__), radius)
        contextual = cls.contextual_class
        if saved.kind == contextual.__name__ and saved.settings.get("name") == cls.__name__:
            return contextual._from_saved(saved)
        return cls._from_saved(saved)
