"""A user's own case: any arms, any policies with parameters, judged in the same way as the paper's.

The policy named first is the one in question; the others are its rivals. That is fixed before anything is played: to
see first which of ten policies is best and then to test that one would favour it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits import validate
from sketchbandits.arms_file import SchemaFile, read_arms, read_npy
from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.experiments.scenes import FileScene, Model, Scene, file_digest
from sketchbandits.lab.experiments.study import Groups, Plan, Study
from sketchbandits.lab.growth import LINEAR_ABOVE, slope_ratio
from sketchbandits.lab.intervals import interval, ratio
from sketchbandits.lab.verdict import Claim, Finding, outcome_of

# What each generator takes, and its defaults: the paper's first data set and its relatives.
GENERATOR_OPTIONS: dict[str, dict[str, Any]] = {
    "correlated": {"n_arms": 60, "dim": 50, "group_size": 1},
    "heavy-tailed": {"n_arms": 60, "dim": 50, "decay": 0.5},
    "subspaces": {"n_arms": 60, "dim": 50, "n_subspaces": 5, "rank": 4},
}


def generated_scene(model: Model, generator: str, options: Mapping[str, Any], normalize: str) -> Scene:
    """Arms from a generator; an option that it does not have is refused."""
    allowed = GENERATOR_OPTIONS[validate.option("generator", generator, tuple(GENERATOR_OPTIONS))]
    for name, value in options.items():
        if name not in allowed:
            others = " or ".join(known for known, has in GENERATOR_OPTIONS.items() if name in has) or "(none has it)"
            raise ValueError(f"{name} must come with the generator {others}, got {value!r} with {generator}")
    parameter = "uniform" if generator == "correlated" else "isotropic"
    scene = Scene(generator, model, generator, tuple({**allowed, **options}.items()), normalize, parameter)
    scene.draw(0)  # what the generator refuses is refused now
    return scene


def file_scene(
    model: Model,
    path: str,
    id_column: str | None,
    features: tuple[str, ...] | SchemaFile | None,
    theta: str | None,
    normalize: str,
) -> FileScene:
    """A user's arms; ``theta`` is a ``.npy`` file with the parameter, if it is known."""
    dim = read_arms(path, id_column=id_column, features=features).arms.shape[1]
    known = None if theta is None else tuple(_read_parameter(theta, dim, model.theta_norm).tolist())
    name, digest = os.path.basename(path), file_digest(path)
    return FileScene(name, model, os.path.abspath(path), digest, id_column, features, known, normalize)


def _read_parameter(path: str, dim: int, norm: float) -> Floats:
    shape = f"a .npy file with a vector of length {dim}, as the arms have"
    values = read_npy(Path(path))
    if values is None:
        raise ValueError(f"theta must be {shape}, got {path!r}")
    try:
        theta = validate.vector("theta", values, size=dim)
    except ValueError as error:
        raise ValueError(f"theta must be {shape}, got {path!r}: {error}") from None
    if np.linalg.norm(theta) > norm * (1 + 1e-9):
        length = f"{np.linalg.norm(theta):g}"
        raise ValueError(f"theta must have a norm of at most --theta-norm {norm:g}, got {length}")
    return theta


@dataclass(frozen=True, kw_only=True)
class OwnPlan(Plan):
    """Policies in one scene; a field that is not allowed raises ``ValueError`` naming it."""

    scene: Scene | FileScene

    @property
    def place(self) -> tuple[str, str]:
        """The scene and its normalisation, as keys of the experiments."""
        return (self.scene.name, self.scene.normalize)

    @cached_property
    def experiments(self) -> dict[str, Groups]:
        """``regret`` and ``time``, by (scene, normalize, policy)."""
        regret, time = {}, {}
        for policy in self.policies:
            regret[*self.place, str(policy)] = self.group(self.scene, policy)
            time[*self.place, str(policy)] = self.group(self.scene, policy, self.timed_rounds, timed=True)
        return {"regret": regret, "time": time}


def claims(plan: OwnPlan) -> tuple[Claim, ...]:
    """What is judged: the first policy's regret and time against every other's, and which regrets are sublinear."""
    first, *rivals = plan.policies
    sublinear = Claim(
        "sublinear",
        "Regret is sublinear at this horizon.",
        "Regret gained in the last quarter over that gained in the second. Holds where the simultaneous 95 % interval "
        f"of its mean is below {LINEAR_ABOVE} (linear regret gives 1, sqrt(T) 0.65), fails where it is above.",
        partial(_sublinear, plan),
    )
    if not rivals:
        return (sublinear,)
    less_regret = Claim(
        "less-regret",
        f"{first.label} has less regret than every other policy.",
        "Final regret, paired by run. Holds where the simultaneous 95 % interval of the mean of (rival - first) is "
        "above 0, fails where it is below.",
        partial(_less_regret, plan),
    )
    less_time = Claim(
        "less-time",
        f"{first.label} takes less time per round than every other policy.",
        "Geometric mean of the paired ratios. Holds where its simultaneous 95 % interval is below 1, fails where it is "
        "above.",
        partial(_less_time, plan),
    )
    return (less_regret, less_time, sublinear)


def _less_regret(plan: OwnPlan, study: Study, level: float) -> list[Finding]:
    (first, *rivals), findings = plan.policies, []
    own = study["regret"][*plan.place, str(first)].regret
    for rival in rivals:
        margin = interval(study["regret"][*plan.place, str(rival)].regret - own, level)
        outcome = outcome_of([margin.side(0.0)], good="above", bad="below")
        findings.append(Finding({"rival": str(rival)}, outcome, {f"{rival} minus {first}": margin}, [margin]))
    return findings


def _less_time(plan: OwnPlan, study: Study, level: float) -> list[Finding]:
    (first, *rivals), findings = plan.policies, []
    own = study["time"][*plan.place, str(first)].microseconds
    for rival in rivals:
        quotient = ratio(own, study["time"][*plan.place, str(rival)].microseconds, level)
        outcome = outcome_of([quotient.side(1.0)], good="below", bad="above")
        findings.append(Finding({"rival": str(rival)}, outcome, {f"{first} / {rival}": quotient}, [quotient]))
    return findings


def _sublinear(plan: OwnPlan, study: Study, level: float) -> list[Finding]:
    findings = []
    for policy in plan.policies:
        slopes = interval(slope_ratio(study["regret"][*plan.place, str(policy)]), level)
        outcome = outcome_of([slopes.side(LINEAR_ABOVE)], good="below", bad="above")
        findings.append(Finding({"policy": str(policy)}, outcome, {"late / middle slope": slopes}, [slopes]))
    return findings
