"""The one progress meter, so that every long call and command shows alike; rich is loaded only once a bar opens."""

import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

STEPS = 4  # lines per stage where there is no terminal to redraw

# Called with the stage, what is being done, and the share of the stage that is done; a stage begins with a share of 0.
Watch = Callable[[str, str, float], None]


class Bar:
    """A bar with the time left on stderr, gone when its ``with`` ends; or a function called in its place.

    ``wanted``: True, False, a function called with ``(share, what)`` at every `show`, or None for a bar only where
    stderr is a terminal; a worker process shares its parent's terminal and shows none. The bar opens with the first
    `show` after ``delay`` seconds, so that short work stays quiet, and not inside another's: two would garble the line.
    """

    _shown: ClassVar["Bar | None"] = None

    def __init__(self, wanted: bool | Callable[[float, str], None] | None = None, *, delay: float = 1.0) -> None:
        self.report = wanted if callable(wanted) else None
        self.wanted = wanted is True or (wanted is None and _owns_a_terminal())
        self.opens = time.monotonic() + delay
        self.display: Any = None  # rich's, once open

    def show(self, share: float, what: str) -> None:
        """A ``share`` from 0 to 1 is done, now of ``what``; at 0 the clock starts again."""
        if self.report is not None:
            self.report(share, what)
        if self.wanted and Bar._shown is None and time.monotonic() >= self.opens:
            self._open(what)
        if self.display is None:
            return
        if share == 0.0:
            self.display.reset(self.task, description=what)
        else:
            self.display.update(self.task, completed=share, description=what)

    def _open(self, what: str) -> None:
        from rich.console import Console  # only where a bar is shown: start-up stays short
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.percentage:.0f}%"))
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self.display = Progress(*columns, *times, console=Console(stderr=True), transient=True, expand=True)
        self.task = self.display.add_task(what, total=1.0)
        self.display.start()
        Bar._shown = self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.display is not None:
            Bar._shown = None
            self.display.stop()
            self.display = None


def _owns_a_terminal() -> bool:
    return sys.stderr.isatty() and multiprocessing.parent_process() is None


@contextlib.contextmanager
def stages() -> Iterator[Watch]:
    """The progress of a command: one bar with the time left on a terminal, elsewhere a few lines on stderr."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with Bar(True, delay=0.0) as bar:
        bar.show(0.0, "starting")
        yield lambda stage, what, share: bar.show(share, f"{stage}: {what}")


class _Lines:
    """A line when a stage begins and at every quarter."""

    def __init__(self) -> None:
        self.stage, self.step = "", 0

    def __call__(self, stage: str, what: str, share: float) -> None:
        step = int(share * STEPS)
        if stage != self.stage or (step > self.step and step < STEPS):
            shown = f" ({share:.0%})" if share > 0.0 else ""
            sys.stderr.write(f"{stage}: {what}{shown} ...\n")
            sys.stderr.flush()
        self.stage, self.step = stage, step
