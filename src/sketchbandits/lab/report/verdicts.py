"""The verdicts of a page: one row per claim with the figures that decide it, which opens to the rule and every case."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sketchbandits.lab.intervals import Interval
from sketchbandits.lab.report.page import Table
from sketchbandits.lab.report.wording import NONE, decimals, fixed, listed, named, number
from sketchbandits.lab.verdict import DEPENDS, FAILS, HOLDS, NOT_JUDGED, UNDECIDED, VACUOUS, Finding, Verdict

MARKS = {HOLDS: "✓", FAILS: "✕", DEPENDS: "◐", UNDECIDED: "?", VACUOUS: "○", NOT_JUDGED: NONE}
PHRASES = {
    HOLDS: ("holds", "hold"),
    FAILS: ("fails", "fail"),
    DEPENDS: ("depends on the case", "depend on the case"),
    UNDECIDED: ("is undecided", "are undecided"),
    VACUOUS: ("is vacuous", "are vacuous"),
    NOT_JUDGED: ("was not judged", "were not judged"),
}
LONG = 140  # characters; a longer explanation of a verdict goes below its row
LINE = 40  # characters; longer decisive figures have one line per group of cases
FEW = 3  # cases that the decisive figures name one by one


class DecisiveFigure(NamedTuple):
    """Which figure of a finding decides a claim: those whose name holds ``figure``, of several the one picked."""

    label: str
    figure: str
    pick: Callable[..., Any] = min
    by: str = ""  # the property of a case by which cases are grouped; if empty, their outcome


def _size(value: Any) -> float:
    return float(value.mean if isinstance(value, Interval) else value)


def _farthest_from_one(values: Iterable[Any], key: Callable[[Any], float]) -> Any:
    return max(values, key=lambda value: abs(math.log(max(key(value), 1e-300))))


_SLOPE, _CLOSEST = "regret gained late / in the middle", "closest rival minus CS-LB"
DECISIVE = {
    "lowest-regret": DecisiveFigure(_CLOSEST, " minus "),
    "beats-sketches": DecisiveFigure(_CLOSEST, " minus "),
    "sketches-do-not-converge": DecisiveFigure(_SLOPE, "slope", by="policy"),
    "cslb-sublinear": DecisiveFigure(_SLOPE, "late / middle", by="normalisation"),
    "linear-beats-ucb1": DecisiveFigure("UCB1 minus policy", " minus ", by="policy"),
    "largest-gains-where-clustered": DecisiveFigure("smallest gain on (4) / on another", "gain on (4) /"),
    "theorem-bound": DecisiveFigure("largest regret / bound", "largest regret", max),
    "clusters-at-most": DecisiveFigure("K, by data set", "K", by="data set"),
    "ucb1-grows-with-arms": DecisiveFigure("power of growth in N", "power", by="policy"),
    "l-sqrt-k-predicts": DecisiveFigure("l sqrt(K) / d", "l sqrt(K)"),
    "faster-than-oful": DecisiveFigure("CS-LB / OFUL", "cslb / oful", by="form"),
    "slightly-faster-than-sketches": DecisiveFigure("CS-LB / rival", "cslb / ", _farthest_from_one, "form"),
    "ucb1-fastest": DecisiveFigure("UCB1 / closest rival", "ucb1 / ", max, "form"),
    "search-saves-time": DecisiveFigure("µs that searching l arms would save", "searching", by="form"),
    "warmup-negligible": DecisiveFigure("warm-up's share at the horizon", "share of all time", by="form"),
    "dbslinucb-falls-back": DecisiveFigure("power of growth in d", "power of growth in d"),
    "less-regret": DecisiveFigure("rival minus first", " minus "),
    "less-time": DecisiveFigure("first / rival", " / "),
}


class DecisiveFigures(NamedTuple):
    """What decides a claim in words: the name of the figure, and its range over groups of cases."""

    label: str
    lines: Sequence[str]


class ShownVerdict(NamedTuple):
    """A claim as the page shows it: ``short`` follows the verdict's word, ``long`` is shown below the rule."""

    id: str
    statement: str
    rule: str
    word: str
    mark: str
    short: str
    long: str
    decisive: DecisiveFigures | None
    evidence: Table | None


class ShownVerdicts(NamedTuple):
    """All claims, after sentences that say how they are judged."""

    notes: Sequence[str]
    verdicts: Sequence[ShownVerdict]


HOW = (
    "A claim is judged case by case. It holds, or fails, where more than half of its cases do and none does the "
    "opposite; it depends on the case where some hold and others fail; else it is undecided. It is vacuous where the "
    "cases could not have failed. The numbers of cases follow the word.",
    "The intervals that decide one claim have a higher level each (Bonferroni), so that all of them together have 95 "
    "%: a claim with many cases is not refuted, or confirmed, by the one that chance makes stand out.",
)


def shown_verdicts(verdicts: Sequence[Verdict], history: str) -> ShownVerdicts:
    """Every claim with its verdict, decisive figures, rule and evidence; ``history`` says how old the rules are."""
    return ShownVerdicts((*HOW, history), [_shown(verdict) for verdict in verdicts])


def _shown(verdict: Verdict) -> ShownVerdict:
    text = named(verdict.text)
    short = text if len(text) <= LONG else named(verdict.phrase(short=True))
    return ShownVerdict(
        id=verdict.claim.id,
        statement=verdict.claim.statement,
        rule=verdict.claim.rule,
        word=verdict.word,
        mark=MARKS[verdict.word],
        short=short.removeprefix(verdict.word).lstrip(": "),
        long=text if short != text else "",
        decisive=_decisive(verdict) if verdict.findings else None,
        evidence=_evidence(verdict) if verdict.findings else None,
    )


def _decisive(verdict: Verdict) -> DecisiveFigures:
    """The figure that decides, from its least to its largest over similar cases."""
    rule = DECISIVE.get(verdict.claim.id) or _first_interval(verdict.findings[0])
    groups: dict[str, list[Any]] = {} if rule.by else {outcome: [] for outcome in MARKS}
    for finding in verdict.findings:
        few = len(verdict.findings) <= FEW
        name = " ".join(map(str, finding.case.values())) if few else finding.case.get(rule.by, finding.outcome)
        groups.setdefault(str(name), []).append(_deciding(finding, rule))
    parts = [f"{named(name)}: {_range(values)}" for name, values in groups.items() if values]
    return DecisiveFigures(rule.label, parts if len("; ".join(parts)) > LINE else ["; ".join(parts)])


def _first_interval(finding: Finding) -> DecisiveFigure:
    names = sorted(finding.figures, key=lambda name: not isinstance(finding.figures[name], Interval))
    return DecisiveFigure(named(names[0]), names[0])


def _deciding(finding: Finding, rule: DecisiveFigure) -> Any:
    matching = [value for name, value in finding.figures.items() if rule.figure in name]
    if not matching or isinstance(matching[0], str):
        return matching[0] if matching else NONE
    return rule.pick(matching, key=_size)


def _range(values: Sequence[Any]) -> str:
    if len(values) == 1 or isinstance(values[0], str):
        return ", ".join(dict.fromkeys(map(number, values)))
    low, high = min(map(_size, values)), max(map(_size, values))
    ends = dict.fromkeys(fixed(value, decimals(low, high)) for value in (low, high))
    return f"{' to '.join(ends)} ({len(values)} cases)"


def _evidence(verdict: Verdict) -> Table:
    """One row per case; where cases have different figures, these share a column."""
    case, names = list(verdict.findings[0].case), list(verdict.findings[0].figures)
    alike = all(list(finding.figures) == names for finding in verdict.findings)
    rows = []
    for finding in verdict.findings:
        figures = [number(value) for value in finding.figures.values()]
        if not alike:
            pairs = zip(finding.figures, figures, strict=True)
            figures = ["; ".join(f"{named(name)} {figure}" for name, figure in pairs)]
        rows.append([*map(named, finding.case.values()), finding.outcome, *figures])
    headings = [*case, "outcome", *(map(named, names) if alike else ["figures"])]
    return Table(f"Case by case{_about_intervals(verdict)}", headings, rows, text_columns=len(case) + 1)


def _about_intervals(verdict: Verdict) -> str:
    if verdict.level is None:
        return ""
    if verdict.family == 1:
        return f"; means with {verdict.level:.0%} intervals".replace("%", " %")
    level = f"{100 * verdict.level:.4g} %"
    return f"; means with intervals of level {level}: the {verdict.family} that decide hold together with 95 %"


def tally(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold, fail and so on."""
    counts = {word: sum(verdict.word == word for verdict in verdicts) for word in PHRASES}
    return listed(f"{count} {PHRASES[word][count > 1]}" for word, count in counts.items() if count)
