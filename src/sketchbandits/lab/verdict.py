"""What a claim is, and how findings on single cases become a verdict on the whole.

A rule is fixed before anything is played. It says of each case (a data set under one normalisation, an engine, a
policy) whether the claim holds there; a case whose interval straddles the line is undecided.

- *holds*: in every case. *fails*: in no case, and in at least one it is refuted.
- *depends on …*: it holds in some cases and is refuted in others; what tells them apart is named.
- *undecided*: never refuted, but not shown everywhere. *vacuous*: it holds, but is too
  loose to be useful, since it could not have failed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sketchbandits.lab.experiments.study import Experiment, NotPlayedError, Study
from sketchbandits.lab.intervals import Interval

HOLDS, FAILS, UNDECIDED, VACUOUS, NOT_JUDGED = "holds", "fails", "undecided", "vacuous", "not judged"
_VERBS = {HOLDS: "hold", FAILS: "fail", UNDECIDED: "undecided", VACUOUS: "vacuous"}
LONG = 4  # cases that a verdict still names one by one


@dataclass(frozen=True)
class Finding:
    """One case: what tells it from the others, what was found, and the figures."""

    case: Mapping[str, Any]
    outcome: str
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """What the paper says, and the rule by which it is judged."""

    id: str
    statement: str
    rule: str
    judge: Callable[[Study], list[Finding]]


@dataclass(frozen=True)
class Verdict:
    """A claim with what was found."""

    claim: Claim
    findings: Sequence[Finding]
    missing: str = ""

    @property
    def word(self) -> str:
        """The verdict in one word."""
        outcomes = {finding.outcome for finding in self.findings}
        if not outcomes:
            return NOT_JUDGED
        if {HOLDS, FAILS} <= outcomes or {VACUOUS, FAILS} <= outcomes:
            return "depends"
        for word in (FAILS, UNDECIDED, HOLDS):
            if word in outcomes:
                return word
        return VACUOUS

    @property
    def text(self) -> str:
        """The verdict in a phrase; where cases differ, how many are of each kind."""
        if self.word == NOT_JUDGED:
            return f"not judged: {self.missing or 'what it needs'} was not played"
        counts = Counter(finding.outcome for finding in self.findings)
        if len(counts) == 1:
            return self.word
        shown = ", ".join(f"{counts[outcome]} {verb}" for outcome, verb in _VERBS.items() if counts[outcome])
        reason = f" on {_explanation(self.findings)}" if self.word == "depends" else ""
        return f"{self.word}{reason} ({shown})"

    def as_json(self) -> dict[str, Any]:
        """A line of ``claims.json``."""
        evidence = [{**f.case, "outcome": f.outcome, **_plain(f.figures)} for f in self.findings]
        claim = self.claim
        return {
            "id": claim.id,
            "statement": claim.statement,
            "rule": claim.rule,
            "verdict": self.text,
            "evidence": evidence,
        }


def judge(claim: Claim, study: Study) -> Verdict:
    """Apply a claim's rule; what was not played is said instead."""
    try:
        return Verdict(claim, claim.judge(study))
    except NotPlayedError as error:
        return Verdict(claim, (), str(error))


def played(experiment: Experiment, *, datasets: Sequence[int] = (1, 2, 3, 4)) -> list[tuple[int, str]]:
    """The data sets and normalisations that an experiment holds, of those asked for."""
    found = sorted({key[:2] for key in experiment if key[0] in datasets})
    if not found:
        raise NotPlayedError(f"data set {' or '.join(map(str, datasets))}")
    return found


def place_case(place: tuple[int, str]) -> dict[str, str]:
    """A data set under one normalisation, as findings name it."""
    return {"data set": f"({place[0]})", "normalisation": place[1]}


def outcome_of(sides: Sequence[str], *, good: str, bad: str) -> str:
    """Holds where every side is good, fails where one is bad, else undecided."""
    if bad in sides:
        return FAILS
    return HOLDS if all(side == good for side in sides) else UNDECIDED


def _explanation(findings: Sequence[Finding]) -> str:
    """The fewest properties of a case that tell its outcome, and where the claim holds and fails."""
    names = [name for name in findings[0].case if len({str(finding.case[name]) for finding in findings}) > 1]
    for size in range(1, len(names) + 1):
        for chosen in combinations(names, size):
            outcomes: dict[tuple[str, ...], set[str]] = {}
            for finding in findings:
                place = tuple(str(finding.case[name]) for name in chosen)
                outcomes.setdefault(place, set()).add(finding.outcome)
            if all(len(found) == 1 for found in outcomes.values()):
                return f"{' and '.join(chosen)}{_where(outcomes)}"
    return "what was not varied here"


def _where(outcomes: Mapping[tuple[str, ...], set[str]]) -> str:
    held = [" ".join(place) for place, found in outcomes.items() if found <= {HOLDS, VACUOUS}]
    failed = [" ".join(place) for place, found in outcomes.items() if found == {FAILS}]
    if len(held) + len(failed) > LONG:
        return ""
    return f": holds for {', '.join(held) or 'none'}; fails for {', '.join(failed)}"


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures as JSON knows them: an interval is a list of mean, low and high; a single run has no ends."""
    plain: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Interval):
            plain[name] = [None if number != number else number for number in value]
        else:
            plain[name] = value
    return plain
