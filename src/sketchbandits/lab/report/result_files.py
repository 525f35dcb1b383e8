"""The files with results: tables with one row per run or per point of a curve, and the verdicts."""

import io
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sketchbandits.lab.experiments.scenes import Scene
from sketchbandits.lab.experiments.study import Experiment, Study
from sketchbandits.lab.verdict import Verdict

if TYPE_CHECKING:
    import polars


def table_files(study: Study, verdicts: Sequence[Verdict]) -> dict[str, bytes]:
    """``summary.csv``, ``curves.parquet``, ``claims.json``, and ``sweeps.csv`` where there are sweeps."""
    parquet = io.BytesIO()
    curves(study).write_parquet(parquet)
    claims = json.dumps([verdict.as_json() for verdict in verdicts], indent=2, allow_nan=False)
    files = {
        "summary.csv": summary(study).write_csv().encode(),
        "curves.parquet": parquet.getvalue(),
        "claims.json": claims.encode(),
    }
    if set(study) - {"regret", "time"}:
        files["sweeps.csv"] = sweeps(study).write_csv().encode()
    return files


def summary(study: Study) -> "polars.DataFrame":
    """``summary.csv``: dataset, normalize, policy, run, rounds, regret, timed_rounds, seconds, warmup_seconds.

    ``seconds`` is the play time of ``timed_rounds`` rounds, played alone; empty for a run that was not timed. A policy
    as the paper prints it, which is slow, is played in the timed runs only, and its regret is the one at their end.
    """
    import polars  # a tenth of a second that `--help` need not wait

    return polars.DataFrame(list(_summary_rows(study)), orient="row", infer_schema_length=None)


def _summary_rows(study: Study) -> Iterator[dict[str, Any]]:
    for key, timed in study["time"].items():
        dataset, normalize, policy = key
        played = study["regret"][key] if key in study["regret"].groups else timed
        for run, outcome in enumerate(played.outcomes):
            clock = timed.outcomes[run] if run < len(timed.outcomes) else None
            yield {
                "dataset": str(dataset),
                "normalize": normalize,
                "policy": policy,
                "run": run,
                "rounds": outcome.rounds,
                "regret": float(outcome.regret[-1]),
                "timed_rounds": clock and clock.rounds,
                "seconds": clock and clock.seconds,
                "warmup_seconds": clock and clock.warmup_seconds,
            }


def curves(study: Study) -> "polars.DataFrame":
    """``curves.parquet``: dataset, normalize, policy, run, round, regret."""
    import polars  # as in `summary`

    parts = []
    for (dataset, normalize, policy), runs in study["regret"].items():
        for run, outcome in enumerate(runs.outcomes):
            labels = {"dataset": str(dataset), "normalize": normalize, "policy": policy, "run": run}
            points = polars.DataFrame({"round": outcome.checkpoints, "regret": outcome.regret})
            parts.append(
                points.select(*(polars.lit(value).alias(name) for name, value in labels.items()), polars.all())
            )
    return polars.concat(parts)


def sweeps(study: Study) -> "polars.DataFrame":
    """``sweeps.csv``: the runs of all other experiments, with what was varied."""
    import polars  # as in `summary`

    others = {name: experiment for name, experiment in study.items() if name not in ("regret", "time")}
    return polars.DataFrame(
        [row for name in others for row in _sweep_rows(name, others[name])], orient="row", infer_schema_length=None
    )


def _sweep_rows(name: str, experiment: Experiment) -> Iterator[dict[str, Any]]:
    for key, group in experiment.groups.items():
        for task, outcome in zip(group, experiment[key].outcomes, strict=True):
            assert isinstance(task.scene, Scene)
            sizes = dict(task.scene.options)
            yield {
                "experiment": name,
                "n_arms": sizes["n_arms"],
                "dim": sizes["dim"],
                "group_size": sizes["group_size"],
                "sketch_size": dict(task.policy.options).get("sketch_size", task.scene.model.sketch_size),
                "normalize": task.scene.normalize,
                "policy": str(task.policy),
                "run": task.run,
                "rounds": task.rounds,
                "timed_alone": task.timed,
                "regret": float(outcome.regret[-1]),
                "microseconds": 1e6 * outcome.seconds / outcome.rounds,
                "clusters": outcome.facts.get("clusters"),
                "sketch_rank": outcome.facts.get("sketch_rank"),
            }
