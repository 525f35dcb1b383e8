"""The verdicts of a page: a row a claim with the figures that decide it, opening to the rule and every case."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sketchbandits.lab.intervals import Interval
from sketchbandits.lab.paper.claims.verdict import FAILS, HOLDS, NOT_JUDGED, UNDECIDED, VACUOUS, Finding, Verdict
from sketchbandits.lab.report.markup import (
    NONE,
    Markup,
    decimals,
    fixed,
    join,
    listed,
    named,
    number,
    table,
    tag,
)

MARKS = {HOLDS: "✓", FAILS: "✕", "depends": "◐", UNDECIDED: "?", VACUOUS: "○", NOT_JUDGED: NONE}
PHRASES = {
    HOLDS: ("holds", "hold"),
    FAILS: ("fails", "fail"),
    "depends": ("depends on the case", "depend on the case"),
    UNDECIDED: ("is undecided", "are undecided"),
    VACUOUS: ("is vacuous", "are vacuous"),
    NOT_JUDGED: ("was not judged", "were not judged"),
}
LONG = 100  # characters; a longer explanation of a verdict goes below its row
LINE = 40  # characters; decisive figures that are longer have a line for each group of cases
FEW = 3  # cases that the line of decisive figures names one by one


class Decisive(NamedTuple):
    """Which figure of a finding decides a claim: those whose name holds ``figure``, of several the one picked."""

    label: str
    figure: str
    pick: Callable[..., Any] = min
    by: str = ""  # the property of a case that the line tells apart; none: the outcome


def _size(value: Any) -> float:
    return float(value.mean if isinstance(value, Interval) else value)


def _farthest_from_one(values: Iterable[Any], key: Callable[[Any], float]) -> Any:
    return max(values, key=lambda value: abs(math.log(max(key(value), 1e-300))))


_SLOPE, _CLOSEST = "regret gained late / in the middle", "closest rival minus CS-LB"
DECISIVE = {
    "lowest-regret": Decisive(_CLOSEST, " minus "),
    "beats-sketches": Decisive(_CLOSEST, " minus "),
    "sketches-do-not-converge": Decisive(_SLOPE, "slope", by="policy"),
    "cslb-sublinear": Decisive(_SLOPE, "late / middle", by="normalisation"),
    "linear-beats-ucb1": Decisive("UCB1 minus policy", " minus ", by="policy"),
    "largest-gains-where-clustered": Decisive("smallest gain on (4) / on another", "gain on (4) /"),
    "theorem-bound": Decisive("largest regret / bound", "largest regret", max),
    "clusters-at-most": Decisive("K, by data set", "K", by="data set"),
    "ucb1-grows-with-arms": Decisive("power of growth in N", "power", by="policy"),
    "l-sqrt-k-predicts": Decisive("l sqrt(K) / d", "l sqrt(K)"),
    "faster-than-oful": Decisive("CS-LB / OFUL", "cslb / oful", by="form"),
    "slightly-faster-than-sketches": Decisive("CS-LB / rival", "cslb / ", _farthest_from_one, "form"),
    "ucb1-fastest": Decisive("UCB1 / closest rival", "ucb1 / ", max, "form"),
    "search-saves-time": Decisive("µs that searching l arms would save", "searching", by="form"),
    "warmup-negligible": Decisive("warm-up's share at the horizon", "share of all time", by="form"),
    "dbslinucb-falls-back": Decisive("power of growth in d", "power of growth in d"),
    "less-regret": Decisive("rival minus first", " minus "),
    "less-time": Decisive("first / rival", " / "),
}


def verdict_table(verdicts: Sequence[Verdict]) -> Markup:
    """Every claim with its verdict and decisive figures, opening to the rule and the evidence."""
    head = tag("tr", *(tag("th", name, scope="col") for name in ("Claim", "Verdict", "Decisive figures")))
    caption = tag("caption", "Each rule was fixed before the runs were looked at; every claim opens to its evidence.")
    return tag("table", caption, tag("thead", head), *map(_verdict_rows, verdicts), class_="verdicts")


def _verdict_rows(verdict: Verdict) -> Markup:
    text = named(verdict.text)
    short = text if len(text) <= LONG else text.split(":")[0]
    mark = tag("span", MARKS[verdict.word], aria_hidden="true")
    word = tag("strong", mark, f" {verdict.word}", class_=f"word {verdict.word.replace(' ', '-')}")
    statement = tag("th", verdict.claim.statement, scope="row")
    row = tag(
        "tr",
        statement,
        tag("td", word, " ", short.removeprefix(verdict.word).lstrip(": ")),
        tag("td", _decisive(verdict)),
    )
    evidence = [tag("p", "Rule: ", verdict.claim.rule)]
    if short != text:
        evidence.append(tag("p", "Verdict: ", text))
    if verdict.findings:
        evidence.append(_evidence(verdict))
    summary = tag("summary", "Rule and evidence: ", tag("code", verdict.claim.id))
    details = tag("tr", tag("td", tag("details", summary, *evidence), colspan=3), class_="more")
    return tag("tbody", row, details, id=verdict.claim.id)


def _decisive(verdict: Verdict) -> Markup:
    """The figure that decides, from its least to its largest over cases that are alike."""
    if not verdict.findings:
        return Markup()
    rule = DECISIVE.get(verdict.claim.id) or _first_interval(verdict.findings[0])
    groups: dict[str, list[Any]] = {} if rule.by else {outcome: [] for outcome in MARKS}
    for finding in verdict.findings:
        few = len(verdict.findings) <= FEW
        name = " ".join(map(str, finding.case.values())) if few else finding.case.get(rule.by, finding.outcome)
        groups.setdefault(str(name), []).append(_deciding(finding, rule))
    parts = [f"{named(name)}: {_range(values)}" for name, values in groups.items() if values]
    lines = parts if len("; ".join(parts)) > LINE else ["; ".join(parts)]
    return join([tag("b", rule.label), *(tag("span", line) for line in lines)], " ")


def _first_interval(finding: Finding) -> Decisive:
    names = sorted(finding.figures, key=lambda name: not isinstance(finding.figures[name], Interval))
    return Decisive(named(names[0]), names[0])


def _deciding(finding: Finding, rule: Decisive) -> Any:
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


def _evidence(verdict: Verdict) -> Markup:
    """One row a case; where cases have different figures these share a column."""
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
    return table("Case by case; means with their 95 % intervals", headings, rows, text=len(case) + 1)


def tally(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold, fail and so on."""
    counts = {word: sum(verdict.word == word for verdict in verdicts) for word in PHRASES}
    return listed(f"{count} {PHRASES[word][count > 1]}" for word, count in counts.items() if count)
