"""A user's own case: any arms, any policies with parameters, judged in the same way as the paper's.

The policy named first is the one in question; the others are its rivals. That is declared before the runs are looked
at: to ask which of ten policies looks best and then to test that one would flatter it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits import validate
from sketchbandits.arms_file import read_arms, read_npy
from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.experiments.scenes import GENERATORS, FileScene, Model, Scene, file_digest
from sketchbandits.lab.experiments.study import Groups, Plan, Study
from sketchbandits.lab.growth import LINEAR_ABOVE, slope_ratio
from sketchbandits.lab.intervals import interval, ratio
from sketchbandits.lab.verdict import Claim, Finding, outcome_of
from sketchbandits.policies.registry import PolicySpec

# What each generator takes, and its defaults: the paper's first data set and its relatives.
GENERATOR_OPTIONS: dict[str, dict[str, Any]] = {
    "correlated": {"n_arms": 60, "dim": 50, "group_size": 1},
    "heavy-tailed": {"n_arms": 60, "dim": 50, "decay": 0.5},
    "subspaces": {"n_arms": 60, "dim": 50, "n_subspaces": 5, "rank": 4},
}


def generated_scene(model: Model, generator: str, options: Mapping[str, Any], normalize: str) -> Scene:
    """Arms from a generator; an option that it does not have is refused."""
    allowed = GENERATOR_OPTIONS[validate.option("generator", generator, tuple(GENERATORS))]
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
    features: tuple[str, ...] | None,
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

    @cached_property
    def experiments(self) -> dict[str, Groups]:
        """``regret`` and ``time``, by (scene, normalize, policy)."""
        place = (self.scene.name, self.scene.normalize)
        return {
            "regret": {(*place, str(policy)): self.group(self.scene, policy) for policy in self.policies},
            "time": {
                (*place, str(policy)): self.group(self.scene, policy, self.timed_rounds, timed=True)
                for policy in self.policies
            },
        }


def claims(plan: OwnPlan) -> tuple[Claim, ...]:
    """What is judged: the first policy's regret and time against every other's, and which regrets are sublinear."""
    first, *rivals = plan.policies
    place = (plan.scene.name, plan.scene.normalize)

    def less_regret(study: Study) -> list[Finding]:
        findings = []
        for rival in rivals:
            margin = interval(study["regret"][*place, str(rival)].regret - study["regret"][*place, str(first)].regret)
            outcome = outcome_of([margin.side(0.0)], good="above", bad="below")
            findings.append(Finding({"rival": str(rival)}, outcome, {f"{rival} minus {first}": margin}))
        return findings

    def less_time(study: Study) -> list[Finding]:
        findings = []
        for rival in rivals:
            times = [study["time"][*place, str(policy)].microseconds for policy in (first, rival)]
            quotient = ratio(*times)
            outcome = outcome_of([quotient.side(1.0)], good="below", bad="above")
            findings.append(Finding({"rival": str(rival)}, outcome, {f"{first} / {rival}": quotient}))
        return findings

    def sublinear(study: Study) -> list[Finding]:
        return [_sublinear(study, place, policy) for policy in plan.policies]

    against = (
        Claim(
            "less-regret",
            f"{first.label} has less regret than every other policy.",
            "Final regret, paired by run. Holds where the 95 % interval of the mean of (rival - first) is above 0, "
            "fails where it is below.",
            less_regret,
        ),
        Claim(
            "less-time",
            f"{first.label} takes less time a round than every other policy.",
            "Geometric mean of the paired ratios. Holds where its 95 % interval is below 1, fails where it is above.",
            less_time,
        ),
    )
    alone = Claim(
        "sublinear",
        "Regret is sublinear at this horizon.",
        f"Regret gained in the last quarter over that gained in the second. Holds where the 95 % interval of its mean "
        f"is below {LINEAR_ABOVE} (linear regret gives 1, sqrt(T) 0.65), fails where it is above.",
        sublinear,
    )
    return (*against, alone) if rivals else (alone,)


def _sublinear(study: Study, place: tuple[str, str], policy: PolicySpec) -> Finding:
    slopes = interval(slope_ratio(study["regret"][*place, str(policy)]))
    outcome = outcome_of([slopes.side(LINEAR_ABOVE)], good="below", bad="above")
    return Finding({"policy": str(policy)}, outcome, {"late / middle slope": slopes})
