"""What a claim is, and how findings on single cases become a verdict on the whole.

A rule says of each case (a data set under one normalisation, an engine, a policy) whether the claim holds there or is
refuted; a case whose interval contains the limit is undecided. The word of the verdict treats both sides alike:

- *depends on …*: it holds in some cases and is refuted in others; what tells them apart is named.
- *holds* and *fails*: it does so in more than half of all cases, and the opposite is found in none.
- *vacuous*: in more than half of all cases it holds, but could not have failed; no case decides for or against it.
- *undecided*: none of these.

If every case that holds were refuted and the reverse, *holds* would become *fails* and the other words would stay. The
numbers of cases always follow the word.

A claim with many cases has many chances to be wrong by accident. The intervals that decide one claim are therefore
widened (Bonferroni): with a probability of 95 % all of them hold what they estimate, so a claim decides not one case
wrongly.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sketchbandits.lab.experiments.study import Experiment, NotPlayedError, Plan, Study
from sketchbandits.lab.intervals import LEVEL, Interval, simultaneous

HOLDS, FAILS, UNDECIDED, VACUOUS, NOT_JUDGED = "holds", "fails", "undecided", "vacuous", "not judged"
DEPENDS = "depends"
NAMED_CASES = 4  # that a verdict still names one by one


@dataclass(frozen=True)
class Finding:
    """One case: what tells it from the others, what was found, the figures, and the intervals that decide it."""

    case: Mapping[str, Any]
    outcome: str
    figures: Mapping[str, Any]
    decided_by: Sequence[Interval] = ()


@dataclass(frozen=True)
class Claim:
    """What the paper says, and the rule by which it is judged, given the level of every interval."""

    id: str
    statement: str
    rule: str
    judge: Callable[[Study, float], list[Finding]]


@dataclass(frozen=True)
class Verdict:
    """A claim with what was found; ``family`` intervals of one ``level`` decide it, none where cases are counted."""

    claim: Claim
    findings: Sequence[Finding]
    unjudged: str = "not judged: nothing was played"
    family: int = 0

    @property
    def level(self) -> float | None:
        """The level of every interval, so that all of them together have `intervals.LEVEL`."""
        return simultaneous(self.family) if self.family else None

    @property
    def word(self) -> str:
        """The verdict in one word."""
        counts = Counter(finding.outcome for finding in self.findings)
        if not counts:
            return NOT_JUDGED
        if counts[HOLDS] and counts[FAILS]:
            return DEPENDS
        candidates = (HOLDS, FAILS) if counts[HOLDS] or counts[FAILS] else (VACUOUS,)
        found = [word for word in candidates if 2 * counts[word] > len(self.findings)]
        return found[0] if found else UNDECIDED

    @property
    def tally(self) -> str:
        """How many cases hold, fail and are undecided, and how many that decides."""
        counts = Counter(finding.outcome for finding in self.findings)
        vacuous = f", {counts[VACUOUS]} vacuous" if counts[VACUOUS] else ""
        decided, total = counts[HOLDS] + counts[FAILS], len(self.findings)
        shown = f"{counts[HOLDS]} hold, {counts[FAILS]} fail, {counts[UNDECIDED]} undecided{vacuous}"
        return f"{shown}; {decided} of {total} decided"

    @property
    def text(self) -> str:
        """The verdict in a phrase."""
        return self.phrase()

    def phrase(self, *, short: bool = False) -> str:
        """The verdict with the numbers of cases; where they differ also by what, and unless ``short`` which ones."""
        if self.word == NOT_JUDGED:
            return self.unjudged
        if self.word != DEPENDS:
            return f"{self.word} ({self.tally})"
        reason, where = _explanation(self.findings)
        return f"depends on {reason}{'' if short else where} ({self.tally})"

    def as_json(self) -> dict[str, Any]:
        """A line of ``claims.json``."""
        evidence = [{**f.case, "outcome": f.outcome, "level": self.level, **_plain(f.figures)} for f in self.findings]
        claim = self.claim
        return {
            "id": claim.id,
            "statement": claim.statement,
            "rule": claim.rule,
            "verdict": self.text,
            "intervals": self.family,
            "evidence": evidence,
        }


def judge(claim: Claim, study: Study) -> Verdict:
    """Apply a claim's rule with simultaneous intervals; what was not played is said instead.

    The same comparison may decide several cases, as that with SOFUL does under each reading of OFUL: it gives the same
    interval each time and counts once.
    """
    try:
        alone = claim.judge(study, LEVEL)
        family = len({tuple(found) for finding in alone for found in finding.decided_by})
        findings = claim.judge(study, simultaneous(family)) if family > 1 else alone
    except NotPlayedError as error:
        return Verdict(claim, (), f"not judged: {error} was not played")
    return Verdict(claim, findings, family=family)


def judged(claims: Sequence[Claim], plan: Plan, study: Study) -> list[Verdict]:
    """A verdict on every claim, none where the plan is for a first impression only."""
    if plan.unjudged:
        return [Verdict(claim, (), plan.unjudged) for claim in claims]
    return [judge(claim, study) for claim in claims]


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


def _explanation(findings: Sequence[Finding]) -> tuple[str, str]:
    """The fewest properties of a case that tell its outcome, and where the claim holds and fails."""
    names = [name for name in findings[0].case if len({str(finding.case[name]) for finding in findings}) > 1]
    for size in range(1, len(names) + 1):
        for chosen in combinations(names, size):
            outcomes: dict[tuple[str, ...], set[str]] = {}
            for finding in findings:
                place = tuple(str(finding.case[name]) for name in chosen)
                outcomes.setdefault(place, set()).add(finding.outcome)
            if all(len(found) == 1 for found in outcomes.values()):
                return _listed(chosen), _where(outcomes)
    return "what was not varied here", ""


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _where(outcomes: Mapping[tuple[str, ...], set[str]]) -> str:
    held, failed = (
        [" ".join(place) for place, found in outcomes.items() if found == {word}] for word in (HOLDS, FAILS)
    )
    if len(held) + len(failed) > NAMED_CASES:
        return ""
    return f": holds for {', '.join(held)}; fails for {', '.join(failed)}"


def _plain(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures as JSON knows them: an interval is a list of mean, low and high; a single run has no ends."""
    plain: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, Interval):
            plain[name] = [None if number != number else number for number in value]
        else:
            plain[name] = value
    return plain
