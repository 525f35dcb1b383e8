"""Progress through the records of a log."""

from collections.abc import Callable, Iterator

from sketchbandits.service.log.events import Record

Progress = Callable[[int, int], None]  # records that are done, and how many there are

_REPORT_EVERY = 10_000  # records


def with_progress(records: Iterator[Record], total: int, progress: Progress) -> Iterator[Record]:
    """The records themselves; ``progress`` is called now and then with how many have passed."""
    for done, record in enumerate(records):
        if done % _REPORT_EVERY == 0:
            progress(done, total)
        yield record
