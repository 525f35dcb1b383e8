"""How a page came about: readings of what the paper leaves unsaid, what was played, and the command to repeat it."""

import math
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

from sketchbandits.arms_file import SchemaFile
from sketchbandits.kernels.linalg import TIE
from sketchbandits.lab.experiments.scenes import FileScene, Scene
from sketchbandits.lab.experiments.sources import machine
from sketchbandits.lab.experiments.study import Study
from sketchbandits.lab.own_case import OwnPlan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.reproduce import SEEN, TIMED_RUNS, PaperPlan
from sketchbandits.lab.report.wording import SCALES, policy_names, runs_in_words, timed_lengths
from sketchbandits.partition.partition import TOLERANCE

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def readings(plan: PaperPlan) -> dict[str, str]:
    """The gaps of the paper's description, each with the reading that was played."""
    model = paper.model(1)
    both = "Both are played" if len(plan.normalize) > 1 else f"Played here: {plan.normalize[0]}"
    return {
        "Horizon": f"Not printed. Here T = {plan.rounds:,}; the table above says what a shorter one would have shown.",
        "δ": f"Not printed. Here {model.delta:g} for every policy.",
        "Coefficients": "“A random integer coefficient”, later “real-valued”, without a law. Here integers uniform on "
        "1 to 10, and reals uniform on (0.1, 1) where arms share a direction, on data sets (3) and (4).",
        "θ*": "“Generated in the same manner” as an arm. Here every component is uniform on (0, 1), and the whole is "
        f"scaled to norm S = {model.theta_norm:g}.",
        "Normalisation": "Printed as a scaling “to ensure that ‖x‖ ≤ 1” and as x/‖x‖; the second erases the "
        f"coefficients and makes a group of arms one vector, repeated. {both}. {SCALES}",
        "“Variance R = 1”": "Read as the scale of the Gaussian before it is cut off at ±3R; that leaves a variance of "
        "0.973.",
        "K < ⌈N/l⌉": "Printed as strict; elsewhere the paper counts N/l clusters at most. Here K ≤ ⌈N/l⌉ is judged; "
        "the evidence says where < holds too.",
        "Rank test": "Printed as the rank of a matrix, without a tolerance. Here an arm joins the first cluster, in "
        f"order, that can take its direction or whose span it leaves by at most {_power(TOLERANCE)} of its norm.",
        "Ties": f"Not mentioned; unit arms all tie at the start. Here values within {_power(TIE)} of the largest, "
        "relatively, are equal, and the lowest index wins, of clusters and of arms.",
        "Running time": "“Seconds”, for a number of rounds, a machine and a program that are not named. Here "
        "microseconds per round in compiled code, without the warm-up. CS-LB, SOFUL and CBSCFD run as printed and in "
        "cheaper forms: CS-LB in coordinates, which chooses the same arms, the sketches with a buffer.",
        "OFUL": "Cited, its radius not printed. CS-LB's own grows with the number of rounds alone, as OFUL's closed "
        f"one does; the log-det one measures what was learned and is never larger. {_radii(plan)}",
        "Runs": "Five, “independent”. Here a run draws new arms, a new θ* and new noise, the same for all policies. "
        f"Here {runs_in_words(plan)}, of which {min(plan.runs, TIMED_RUNS)} are timed: intervals that are simultaneous "
        "need more than five.",
    }


def _radii(plan: PaperPlan) -> str:
    both = set(paper.OFUL_READINGS.values()) <= set(plan.policies)
    return "Both are played, and a claim that involves OFUL is judged under both." if both else "One is played here."


def rules_history(plan: PaperPlan) -> str:
    """When the rules were changed, and whether the results of this seed had been seen by then."""
    seeds = " and ".join(map(str, SEEN))
    seen = "one of them" if plan.seed in SEEN else "none of them"
    return (
        "The rules are older than this run, but not older than every result. Seven were changed after a first full "
        f"run, with seed {SEEN[0]}. After a review of a published run, with seed {SEEN[1]}, came the word that treats "
        "both sides alike, the simultaneous intervals, the second reading of OFUL and ten runs for five. "
        f"Rules were changed after the results of seeds {seeds} had been seen; the seed of this run, {plan.seed}, is "
        f"{seen}."
    )


def _power(value: float) -> str:
    """A power of ten: 10⁻⁹."""
    return f"10{str(round(math.log10(value))).translate(SUPERSCRIPTS)}"


def scene_name(plan: OwnPlan) -> str:
    """The file without its folders, or the generator."""
    scene = plan.scene
    return os.path.basename(scene.path) if isinstance(scene, FileScene) else f"{scene.generator} arms"


def scene_facts(plan: OwnPlan) -> dict[str, str]:
    """What was played on a user's own arms."""
    scene, model = plan.scene, plan.scene.model
    n_arms, dim = scene.draw(plan.seed).arms.shape
    norms = {"none": "as they are", "max": "divided by the largest norm", "unit": "each divided by its own norm"}
    drawn = f"drawn anew for every run, {scene.parameter}, of norm {model.theta_norm:g}"
    given = isinstance(scene, FileScene) and scene.theta is not None
    facts = {
        "Arms": f"{scene_name(plan)}: N = {n_arms:,}, d = {dim:,}, {norms[scene.normalize]}",
        "Hidden parameter": "given, the same in every run" if given else drawn,
        "Passed to policies": f"λ = {model.ridge:g}, R = {model.noise:g}, S = {model.theta_norm:g}, "
        f"δ = {model.delta:g}, l = {model.sketch_size}, where a policy takes them and is not given its own",
        "Policies": policy_names(plan),
        "Length": f"{plan.rounds:,} rounds, {runs_in_words(plan)}, seed {plan.seed}",
    }
    if isinstance(scene, Scene):
        facts["Generator"] = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in scene.options)
    return facts


def _command(name: str, flags: Mapping[str, Any]) -> list[str]:
    words = ["sketchbandits", name]
    for flag, value in flags.items():
        if value is not None:
            words += [f"--{flag}", f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words).split(" ")


def paper_command(plan: PaperPlan) -> list[str]:
    """The words of the command that makes the paper's page again."""
    lists = {name: ",".join(map(str, getattr(plan, name))) for name in ("datasets", "policies", "normalize")}
    words = _command("reproduce", {"rounds": plan.rounds, "runs": plan.runs, **lists, "seed": plan.seed})
    return [*words, "--quick"] if plan.quick else words


def own_command(plan: OwnPlan) -> list[str]:
    """The words of the command that makes a user's page again; files without their folders."""
    scene = plan.scene
    if isinstance(scene, FileScene):
        features = _features(scene)
        theta = None if scene.theta is None else "THETA.npy"
        flags = {"arms": scene_name(plan), "id-column": scene.id_column, "features": features, "theta": theta}
    else:
        flags = {"generator": scene.generator} | {name.replace("_", "-"): value for name, value in scene.options}
    passed = {name.replace("_", "-"): value for name, value in vars(scene.model).items() if name != "arm_norm"}
    length = {"rounds": plan.rounds, "runs": plan.runs, "seed": plan.seed}
    policies = ",".join(map(str, plan.policies))
    return _command("simulate", {"policies": policies, **flags, "normalize": scene.normalize, **passed, **length})


def _features(scene: FileScene) -> str | None:
    """Of a user's arms: names of columns, or the file of a schema without its folder."""
    if isinstance(scene.features, SchemaFile):
        return os.path.basename(scene.features.path)
    return None if scene.features is None else ",".join(scene.features)


class Making(NamedTuple):
    """How a page was made: the words of the command, facts by name, and what is in each file."""

    command: Sequence[str]
    facts: Mapping[str, str]
    files: Mapping[str, str]


def how_it_was_made(study: Study, command: Sequence[str], more_files: Mapping[str, str]) -> Making:
    """The command, versions, machine and files behind a page."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba"))
    facts = {
        "Versions": f"sketchbandits {version('sketchbandits')}, Python {platform.python_version()}, {packages}",
        "Machine": machine(),
        "Date": f"{datetime.now(UTC):%Y-%m-%d} (UTC)",
        "Times": "Every timed run was played alone, after all others, on one thread; the policies took turns, run by "
        f"run. Compilation is not timed. Timed are the first {timed_lengths(study['time'])}.",
    }
    files = {
        "claims.json": "the verdicts with their evidence",
        "summary.csv": "regret and time of every run",
        "curves.parquet": "regret at every checkpoint",
        **more_files,
        "figures/": "every figure as PNG and SVG",
        "runs.jsonl": "the journal of finished runs",
    }
    return Making(command, facts, files)
