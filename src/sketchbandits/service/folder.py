"""What lies where in the state folder, and how its names are made durable."""

import os
import shutil
from pathlib import Path

LOG_FILE, SNAPSHOTS, KEYS, CLOCK = "events.db", "snapshots", "keys.json", "clock.json"


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk: a file that was renamed into it is then there after a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def snapshot_numbers(folder: Path) -> list[int]:
    """The numbers of the snapshots in a folder, which are those of the log's records; newest first."""
    names = (entry.name for entry in folder.iterdir()) if folder.exists() else iter(())
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def set_snapshots_aside(folder: Path, first: int) -> int:
    """Rename the snapshots of record ``first`` and later ones, so that recovery does not use them; returns how many."""
    later = [number for number in snapshot_numbers(folder) if number >= first]
    for number in later:
        shutil.rmtree(folder / f"{number}.aside", ignore_errors=True)
        (folder / str(number)).rename(folder / f"{number}.aside")
    return len(later)
