"""The two pages: that of `reproduce` and that of `simulate`.

Every statement about a result is computed from the runs at hand; only the description of the paper is fixed text.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from sketchbandits.lab.experiments.study import Study
from sketchbandits.lab.own_case import OwnPlan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.reproduce import PaperPlan
from sketchbandits.lab.report.captions import captioned
from sketchbandits.lab.report.data_tables import horizon_table, leaders_after, own_table, regret_table, time_tables
from sketchbandits.lab.report.making import (
    how_it_was_made,
    own_command,
    paper_command,
    readings,
    rules_history,
    scene_facts,
    scene_name,
)
from sketchbandits.lab.report.page import Section, render
from sketchbandits.lab.report.verdicts import shown_verdicts, tally
from sketchbandits.lab.report.wording import dataset_names, number, place_if_any, policy_names, runs_in_words
from sketchbandits.lab.verdict import Verdict

OWN_RULES = "The rules are part of the library: nothing in them was chosen for these runs."
QUICK_RUN = "This was a quick run, for a first impression: it judges no claim, since a full run may contradict it."
PAPER = "Yang, Xie and Lian, “Efficient Linear Bandits via Cluster-Aware Sketching”"


def paper_report(plan: PaperPlan, study: Study, verdicts: Sequence[Verdict], figures: Mapping[str, bytes]) -> bytes:
    """The page of `reproduce`; ``figures`` are files by name, of which the SVG ones are shown."""
    sweeps = {"sweeps.csv": "every run of the other experiments"}
    sections = [
        Section("Verdicts", "verdicts.html", shown_verdicts(verdicts, rules_history(plan))),
        Section("Figures", "figures.html", captioned(plan, study, figures)),
        Section("Regret", "tables.html", regret_table(plan, study)),
        Section("Time", "tables.html", time_tables(plan, study)),
        Section("What changes with the horizon", "tables.html", horizon_table(plan, study)),
        Section("What the paper leaves unsaid and how it was read", "definitions.html", readings(plan)),
        Section("How it was made", "making.html", how_it_was_made(study, paper_command(plan), sweeps)),
    ]
    return render("The CS-LB paper, rerun", _paper_abstract(plan, study, verdicts), sections)


def own_report(plan: OwnPlan, study: Study, verdicts: Sequence[Verdict], figures: Mapping[str, bytes]) -> bytes:
    """The page of `simulate`."""
    sections = [
        Section("What was played", "definitions.html", scene_facts(plan)),
        Section("Verdicts", "verdicts.html", shown_verdicts(verdicts, OWN_RULES)),
        Section("Figures", "figures.html", captioned(plan, study, figures)),
        Section("Regret and time", "tables.html", own_table(plan, study)),
        Section("How it was made", "making.html", how_it_was_made(study, own_command(plan), {})),
    ]
    return render(f"Policies compared on {scene_name(plan)}", _own_abstract(plan, study, verdicts), sections)


def _paper_abstract(plan: PaperPlan, study: Study, verdicts: Sequence[Verdict]) -> list[str]:
    norms = (
        "both readings of the normalisation" if len(plan.normalize) > 1 else f"the normalisation {plan.normalize[0]}"
    )
    short = f" (the rules are meant for {paper.HORIZON:,})" if plan.rounds < paper.HORIZON else ""
    judges = f", and judges {len(verdicts)} claims" if not plan.unjudged else ""
    return [
        f"This page reruns the numerical experiments of {PAPER}{judges}.",
        f"{policy_names(plan)} played {plan.rounds:,} rounds{short} of {dataset_names(plan.datasets)} under {norms}, "
        f"{runs_in_words(plan)} each; further experiments vary the number of arms, the sketch size and the dimension.",
        f"Of the claims, {tally(verdicts)}." if not plan.unjudged else QUICK_RUN,
        _leaders_sentence(study),
        _times_sentence(study),
    ]


def _own_abstract(plan: OwnPlan, study: Study, verdicts: Sequence[Verdict]) -> list[str]:
    return [
        f"{policy_names(plan)} played {plan.rounds:,} rounds on {scene_name(plan)}, {runs_in_words(plan)} each.",
        f"Of the claims, {tally(verdicts)}.",
        _leaders_sentence(study),
        _times_sentence(study),
    ]


def _leaders_sentence(study: Study) -> str:
    settings = study["regret"].places
    leads = Counter(label for place in settings for label in leaders_after(study, place, 1.0))
    (first, count), *others = leads.most_common()
    where = f" in {count} of {len(settings)} settings" if len(settings) > 1 else ""
    more = "".join(f", {label}{f' in {count}' if where else ''}" for label, count in others)
    return f"{first} has the least mean regret at the end{where}{more}."


def _times_sentence(study: Study) -> str:
    means = {key: float(runs.microseconds.mean()) for key, runs in study["time"].items()}
    ends = []
    for key in (min(means, key=means.__getitem__), max(means, key=means.__getitem__)):
        label = study["time"].groups[key][0].policy.label
        ends.append(f"{number(means[key])} µs ({' on '.join([label, *place_if_any(key)])})")
    return f"A round took from {ends[0]} to {ends[1]}, timed alone."
