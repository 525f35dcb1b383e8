"""What lies where in the state folder, and how its names are made durable."""

import os
from pathlib import Path

LOG_FILE, SNAPSHOTS, KEYS = "events.db", "snapshots", "keys.json"


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk: a file that was renamed into it is then there after a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
