"""Arrays without reference counts, for the loops in which counting would take longer than the work.

Numba counts a reference to every array that a compiled function receives, slices or passes on, by an atomic operation.
An array that a caller keeps alive anyway needs none of that: `borrowed` hides its owner, and the compiler then leaves
the counting out. A borrowed array must never leave the function that borrowed it.
"""

from typing import Any

from numba.core import config
from numba.extending import intrinsic

if vars(config)["DISABLE_JIT"]:

    def borrowed(array: Any) -> Any:
        """The array itself."""
        return array

else:

    @intrinsic
    def borrowed(typingctx, array):  # type: ignore[no-untyped-def]
        """The same array, of which no references are counted."""

        def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
            view = context.make_array(signature.return_type)(context, builder, value=args[0])
            view.meminfo, view.parent = view.meminfo.type(None), view.parent.type(None)
            return view._getvalue()

        return array(array), codegen
