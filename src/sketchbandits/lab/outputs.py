"""The files that `reproduce` and `simulate` leave: tables, verdicts, figures and the page that shows them all."""

import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sketchbandits.lab import tables
from sketchbandits.lab.paper.claims.verdict import Verdict
from sketchbandits.lab.study import Experiment


def table_files(study: Mapping[str, Experiment], verdicts: Sequence[Verdict]) -> dict[str, bytes]:
    """``summary.csv``, ``curves.parquet``, ``claims.json``, and ``sweeps.csv`` where there are sweeps."""
    parquet = io.BytesIO()
    tables.curves(study).write_parquet(parquet)
    claims = json.dumps([verdict.as_json() for verdict in verdicts], indent=2, allow_nan=False)
    files = {
        "summary.csv": tables.summary(study).write_csv().encode(),
        "curves.parquet": parquet.getvalue(),
        "claims.json": claims.encode(),
    }
    if set(study) - {"regret", "time"}:
        files["sweeps.csv"] = tables.sweeps(study).write_csv().encode()
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
