"""Files of results: figures as bytes, and writing several files so that none appears before all are complete."""

import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sketchbandits.lab import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG_DPI = 160


def render(figures: Mapping[str, "Figure"]) -> dict[str, bytes]:
    """Every figure as ``figures/<name>.png`` and ``figures/<name>.svg``; the same data give the same bytes."""
    files: dict[str, bytes] = {}
    with drawing.style():
        for name, figure in figures.items():
            for suffix, options in (("png", {"dpi": PNG_DPI}), ("svg", {"metadata": {"Date": None, "Title": name}})):
                file = io.BytesIO()
                figure.savefig(file, format=suffix, **options)
                files[f"figures/{name}.{suffix}"] = file.getvalue()
    return files


def write_together(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into ``folder``: each appears whole, and none before all of them are on the disk."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unfinished-") as staging:
        for name, content in contents.items():
            target = Path(staging) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        for name in contents:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(Path(staging) / name, folder / name)
