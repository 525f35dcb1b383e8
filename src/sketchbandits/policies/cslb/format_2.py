"""State files of format 2 of policies with clusters: their own record says nothing of how rewards scatter."""

from sketchbandits.policies.cslb.layout import CONTROL_RECORD, COUNT
from sketchbandits.policies.format_2 import begin_to_watch_in
from sketchbandits.snapshot import Saved


def watch_clusters(saved: Saved) -> None:
    """Begin to watch; arms that have rewards stand in the row COUNT of their slots."""
    known = int((saved.arrays["state.place"][COUNT] > 0).sum())
    begin_to_watch_in(saved, "state.control", CONTROL_RECORD, known)
