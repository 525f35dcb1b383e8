"""``report.html``: one page with the verdicts, figures and tables of `reproduce` or `simulate`, complete in itself.

Every statement about a result is made from the runs at hand; only the description of the paper is fixed text. Text is
escaped unless it is `Markup`, so that a file or policy may have any name.
"""

import base64
import math
import os
import platform
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from sketchbandits import __version__
from sketchbandits.experiments import paper
from sketchbandits.experiments.claims.verdict import FAILS, HOLDS, NOT_JUDGED, UNDECIDED, VACUOUS, Finding, Verdict
from sketchbandits.experiments.contenders import KINDS, Contender
from sketchbandits.experiments.intervals import Interval, interval
from sketchbandits.experiments.own_case import OwnPlan
from sketchbandits.experiments.reproduce import ARM_COUNTS, DIMS, SKETCH_SIZES, TYPICAL_DIM, WIDTHS, PaperPlan
from sketchbandits.experiments.reproduce import ENGINES, SIZE_SCENES, STRUCTURES, TYPICAL_WIDTH
from sketchbandits.experiments.runs import machine
from sketchbandits.experiments.scenes import FileScene, Scene
from sketchbandits.experiments.study import Plan
from sketchbandits.experiments.tables import Study, contenders, places, scene_of
from sketchbandits.linalg import TIE
from sketchbandits.partition import TOLERANCE

PAPER = "Yang, Xie and Lian, “Efficient Linear Bandits via Cluster-Aware Sketching”"
MARKS = {HOLDS: "✓", FAILS: "✕", "depends": "◐", UNDECIDED: "?", VACUOUS: "○", NOT_JUDGED: "–"}
SHARES = {"T/100": 0.01, "T/10": 0.1, "T/2": 0.5, "T": 1.0}
LONG = 100  # characters; a longer explanation of a verdict goes below its row
FEW = 3  # cases that the line of decisive figures names one by one


class Markup(str):
    """Text that is HTML already."""


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
    "cslb-sublinear": Decisive(_SLOPE, "slope", by="normalisation"),
    "linear-beats-ucb1": Decisive("UCB1 minus policy", " minus ", by="policy"),
    "largest-gains-where-clustered": Decisive("smallest gain on (4) / on another", "gain on (4) /"),
    "theorem-bound": Decisive("largest regret / bound", "largest regret", max),
    "clusters-at-most": Decisive("K strictly below", "strictly below"),
    "ucb1-grows-with-arms": Decisive("power of growth in N", "power", by="policy"),
    "l-sqrt-k-predicts": Decisive("l sqrt(K) / d", "l sqrt(K)"),
    "faster-than-oful": Decisive("CS-LB / OFUL", "cslb / oful", by="form"),
    "slightly-faster-than-sketches": Decisive("CS-LB / rival", "cslb / ", _farthest_from_one, "form"),
    "ucb1-fastest": Decisive("UCB1 / closest rival", "ucb1 / ", max, "form"),
    "search-saves-time": Decisive("CS-LB / rival", "cslb / rival", by="form"),
    "warmup-negligible": Decisive("warm-up’s share at the horizon", "share of all time", by="form"),
    "dbslinucb-falls-back": Decisive("directions held", "directions"),
    "less-regret": Decisive("rival minus first", " minus "),
    "less-time": Decisive("first / rival", " / "),
}


def paper_report(plan: PaperPlan, study: Study, verdicts: Sequence[Verdict], figures: Mapping[str, bytes]) -> bytes:
    """The page of `reproduce`; ``figures`` are files by name, of which the SVG ones are shown."""
    sections = {
        "Verdicts": _verdict_table(verdicts),
        "Figures": _figures(plan, study, figures),
        "Regret": _regret_table(plan, study),
        "Time": _time_tables(plan, study),
        "What changes with the horizon": _horizon(plan, study),
        "What the paper leaves unsaid and how it was read": _definitions(_readings(plan)),
        "How it was made": _made(plan, _paper_command(plan), {"sweeps.csv": "every run of the other experiments"}),
    }
    return _page("The CS-LB paper, rerun", _paper_abstract(plan, study, verdicts), sections)


def own_report(plan: OwnPlan, study: Study, verdicts: Sequence[Verdict], figures: Mapping[str, bytes]) -> bytes:
    """The page of `simulate`."""
    sections = {
        "What was played": _definitions(_scene_facts(plan)),
        "Verdicts": _verdict_table(verdicts),
        "Figures": _figures(plan, study, figures),
        "Regret and time": _own_table(plan, study),
        "How it was made": _made(plan, _own_command(plan), {}),
    }
    return _page(f"Policies compared on {_scene_name(plan)}", _own_abstract(plan, study, verdicts), sections)


# HTML


def _html(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def _join(parts: Iterable[Any], between: str = "") -> Markup:
    return Markup(between.join(map(_html, parts)))


def _tag(name: str, *content: Any, **attributes: Any) -> Markup:
    given = "".join(f' {key.strip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>{_join(content)}</{name}>")


def _page(title: str, abstract: Sequence[str], sections: Mapping[str, Markup]) -> bytes:
    style = Markup(files("sketchbandits.experiments").joinpath("report.css").read_text("utf-8"))
    # Nothing is loaded from anywhere: the policy holds a browser to it, the empty icon saves it from asking for one.
    head = Markup(
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
        "style-src 'unsafe-inline'\"><link rel=\"icon\" href=\"data:,\">"
    )
    links = [_tag("li", _tag("a", name, href=f"#{_anchor(name)}")) for name in sections]
    parts = [_tag("section", _tag("h2", name), body, id=_anchor(name)) for name, body in sections.items()]
    summary = _tag("div", _tag("p", " ".join(abstract)), class_="abstract")
    navigation = _tag("nav", _tag("ul", *links), aria_label="Contents")
    body = _tag("body", _tag("main", _tag("h1", title), summary, navigation, *parts))
    page = _tag("html", _tag("head", head, _tag("title", title), _tag("style", style)), body, lang="en")
    return f"<!DOCTYPE html>\n{page}\n".encode()


def _anchor(name: str) -> str:
    return re.sub("[^a-z]+", "-", name.lower())


def _table(caption: Any, headings: Sequence[Any], rows: Iterable[Sequence[Any]], *, text: int = 1) -> Markup:
    """Rows with a heading each; the first ``text`` columns are words, the others figures. Scrolls inside itself."""
    kinds = ["text" if i < text else "number" for i in range(len(headings))]
    head = _tag("tr", *(_tag("th", _html(h), scope="col", class_=kind) for h, kind in zip(headings, kinds, strict=True)))
    body = []
    for first, *others in rows:
        cells = [_tag("td", cell, class_=kind) for cell, kind in zip(others, kinds[1:], strict=True)]
        body.append(_tag("tr", _tag("th", first, scope="row", class_=kinds[0]), *cells))
    table = _tag("table", _tag("caption", caption), _tag("thead", head), _tag("tbody", *body))
    return _tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=_plain(caption))


def _plain(html: Any) -> str:
    return re.sub("<[^>]*>", "", html) if isinstance(html, Markup) else str(html)


def _definitions(items: Mapping[str, Any]) -> Markup:
    return _tag("dl", *(_join([_tag("dt", term), _tag("dd", text)]) for term, text in items.items()))


# Numbers and words


def _decimals(*values: float) -> int:
    """Three digits of the largest, and none behind the point from 100 on."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 0 if largest == 0.0 else min(9, max(0, 2 - math.floor(math.log10(largest))))


def _fixed(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return "–"
    text = f"{value:,.{decimals}f}"
    return text.replace("-", "−" if text.strip("-0.") else "")


def _number(value: Any) -> str:
    """Any figure of a finding."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Interval):
        return f"{_mean(value)} {_ends(value)}".strip()
    if isinstance(value, float):
        return _fixed(value, _decimals(value))
    return f"{value:,}" if isinstance(value, int) else _named(value)


def _mean(value: Interval) -> str:
    return _fixed(value.mean, _decimals(*value))


def _ends(value: Interval) -> str:
    if not math.isfinite(value.mean):
        return ""
    if not (math.isfinite(value.low) and math.isfinite(value.high)):
        return "(one run)"
    return f"({_fixed(value.low, _decimals(*value))} to {_fixed(value.high, _decimals(*value))})"


def _band(value: Interval, *, best: bool = False) -> Markup:
    """A cell with the mean, and its interval in smaller type."""
    mean = _tag("strong" if best else "span", _mean(value))
    return _join([mean, _tag("span", _ends(value), class_="ends")], " ")


def _named(text: Any) -> str:
    """Policies by their labels instead of their names on the command line."""
    return re.sub(rf"\b({'|'.join(KINDS)})\b", lambda found: KINDS[found[0]].label, str(text))


def _list(words: Iterable[Any]) -> str:
    *others, last = map(str, words)
    return f"{', '.join(others)} and {last}" if others else last


def _runs(plan: Plan) -> str:
    return "one run" if plan.runs == 1 else f"{plan.runs:,} runs"


def _place(place: tuple[Any, str]) -> str:
    return f"({place[0]}) {place[1]}"


# Verdicts


def _verdict_table(verdicts: Sequence[Verdict]) -> Markup:
    head = _tag("tr", *(_tag("th", name, scope="col") for name in ("Claim", "Verdict", "Decisive figures")))
    caption = _tag("caption", "Each rule was fixed before the runs were looked at; every claim opens to its evidence.")
    return _tag("table", caption, _tag("thead", head), *map(_verdict_rows, verdicts), class_="verdicts")


def _verdict_rows(verdict: Verdict) -> Markup:
    text = _named(verdict.text)
    short = text if len(text) <= LONG else text.split(":")[0]
    mark = _tag("span", MARKS[verdict.word], aria_hidden="true")
    word = _tag("strong", mark, f" {verdict.word}", class_=f"word {verdict.word.replace(' ', '-')}")
    statement = _tag("th", verdict.claim.statement, scope="row")
    row = _tag("tr", statement, _tag("td", word, short.removeprefix(verdict.word)), _tag("td", _decisive(verdict)))
    evidence = [_tag("p", "Rule: ", verdict.claim.rule)]
    if short != text:
        evidence.append(_tag("p", "Verdict: ", text))
    if verdict.findings:
        evidence.append(_evidence(verdict))
    summary = _tag("summary", "Rule and evidence: ", _tag("code", verdict.claim.id))
    details = _tag("tr", _tag("td", _tag("details", summary, *evidence), colspan=3), class_="more")
    return _tag("tbody", row, details, id=verdict.claim.id)


def _decisive(verdict: Verdict) -> str:
    """One line: the figure that decides, between its ends over cases that are alike."""
    if not verdict.findings:
        return ""
    rule = DECISIVE.get(verdict.claim.id) or _first_interval(verdict.findings[0])
    groups: dict[str, list[Any]] = {}
    for finding in verdict.findings:
        few = len(verdict.findings) <= FEW
        name = " ".join(map(str, finding.case.values())) if few else finding.case.get(rule.by, finding.outcome)
        groups.setdefault(str(name), []).append(_deciding(finding, rule))
    return f"{rule.label}: {'; '.join(f'{_named(name)} {_range(values)}' for name, values in groups.items())}"


def _first_interval(finding: Finding) -> Decisive:
    names = sorted(finding.figures, key=lambda name: not isinstance(finding.figures[name], Interval))
    return Decisive(_named(names[0]), names[0])


def _deciding(finding: Finding, rule: Decisive) -> Any:
    matching = [value for name, value in finding.figures.items() if rule.figure in name]
    return matching[0] if isinstance(matching[0], str) else rule.pick(matching, key=_size)


def _range(values: Sequence[Any]) -> str:
    if isinstance(values[0], bool | np.bool_):
        return f"in {sum(map(bool, values))} of {len(values)} cases"
    if len(values) == 1 or isinstance(values[0], str):
        return ", ".join(map(_number, values))
    ends = sorted(map(_size, values))
    low, high = (_fixed(value, _decimals(ends[0], ends[-1])) for value in (ends[0], ends[-1]))
    return f"between {low} and {high} ({len(values)} cases)"


def _evidence(verdict: Verdict) -> Markup:
    """One row a case; where cases have different figures these share a column."""
    names = list(verdict.findings[0].figures)
    alike = all(list(finding.figures) == names for finding in verdict.findings)
    case = list(verdict.findings[0].case)
    rows = []
    for finding in verdict.findings:
        figures = [f"{_number(value)}" if alike else f"{_named(name)} {_number(value)}" for name, value in finding.figures.items()]
        rows.append([*map(_named, finding.case.values()), finding.outcome, *(figures if alike else ["; ".join(figures)])])
    headings = [*case, "outcome", *(map(_named, names) if alike else ["figures"])]
    return _table("Mean and 95 % interval, case by case", headings, rows, text=len(case) + 1)


def _tally(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold, fail and so on."""
    counts = {word: sum(verdict.word == word for verdict in verdicts) for word in PHRASES}
    return _list(f"{count} {PHRASES[word][count > 1]}" for word, count in counts.items() if count)


# What was found, in sentences


def _paper_abstract(plan: PaperPlan, study: Study, verdicts: Sequence[Verdict]) -> list[str]:
    readings = "both readings of the normalisation" if len(plan.normalize) > 1 else f"the normalisation {plan.normalize[0]}"
    numbers = _list(f"({number})" for number in plan.datasets)
    sentences = [
        f"This page reruns the numerical experiments of {PAPER}, and judges {len(verdicts)} claims, each by a rule fixed "
        "before the runs were looked at.",
        f"{_list(policy.label for policy in plan.policies)} played {plan.rounds:,} rounds of data set {numbers} under "
        f"{readings}, {_runs(plan)} each; shorter experiments vary the number of arms, the sketch size and the dimension.",
        f"Of the claims {_tally(verdicts)}.",
        _leaders_sentence(study),
        _times_sentence(study),
    ]
    if plan.rounds < paper.HORIZON:
        sentences.append(f"The rules are meant for {paper.HORIZON:,} rounds; these runs are shorter.")
    return sentences


def _own_abstract(plan: OwnPlan, study: Study, verdicts: Sequence[Verdict]) -> list[str]:
    return [
        f"{_list(policy.label for policy in plan.policies)} played {plan.rounds:,} rounds on {_scene_name(plan)}, "
        f"{_runs(plan)} each.",
        f"Of the claims, whose rules were fixed before the runs were looked at, {_tally(verdicts)}.",
        _leaders_sentence(study),
        _times_sentence(study),
    ]


def _leaders_sentence(study: Study) -> str:
    settings = places(study["regret"])
    leads: dict[str, int] = {}
    for place in settings:
        for label in _leaders(study, place, 1.0):
            leads[label] = leads.get(label, 0) + 1
    if len(settings) == 1:
        return f"The least mean regret at the end has {_list(leads)}."
    shares = [f"{label} in {count}" for label, count in sorted(leads.items(), key=lambda item: -item[1])]
    return f"Of {len(settings)} settings, the least mean regret at the end has {_list(shares)}."


def _leaders(study: Study, place: tuple[Any, str], share: float) -> list[str]:
    """The policies with the least mean regret after a share of the rounds: one, or several that are equal."""
    means = _means(study, place, share)
    return [policy.label for policy, mean in means.items() if mean <= min(means.values())]


def _means(study: Study, place: tuple[Any, str], share: float) -> dict[Contender, float]:
    found = {}
    for policy in contenders(study["regret"]):
        runs = study["regret"][*place, str(policy)]
        found[policy] = float(runs.regret_at(share * float(runs.checkpoints[-1])).mean())
    return found


def _times_sentence(study: Study) -> str:
    means = {key: float(runs.microseconds.mean()) for key, runs in study["time"].items()}
    ends = []
    for key in (min(means, key=means.__getitem__), max(means, key=means.__getitem__)):
        label = study["time"].groups[key][0].contender.label
        ends.append(f"{_number(means[key])} µs ({' on '.join([label, *_where(key)])})")
    return f"A round took from {ends[0]} to {ends[1]}, timed alone."


def _where(key: tuple[Any, ...]) -> list[str]:
    """Which of the paper's data sets; nothing where there is one only."""
    return [_place((key[0], key[1]))] if isinstance(key[0], int) else []


# Figures


def _figures(plan: Plan, study: Study, figures: Mapping[str, bytes]) -> Markup:
    shown = []
    for name in sorted((name for name in figures if name.endswith(".svg")), key=_figure_order):
        caption, reading = _about(_kind(name), re.findall(r"\d", name), plan, study)
        data = base64.b64encode(figures[name]).decode()
        alt = escape(_plain(f"{caption} {reading}"))
        image = Markup(f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}">')
        label = _tag("b", f"Figure {len(shown) + 1}.")
        shown.append(_tag("figure", _tag("a", image, href=name), _tag("figcaption", label, " ", caption)))
    return _join(shown)


def _kind(name: str) -> str:
    """The first word of a figure's name; digits in it are data sets."""
    return re.split("[^a-z]", os.path.basename(name))[0]


def _figure_order(name: str) -> tuple[bool, list[str], int]:
    kind = _kind(name)
    return kind not in ("regret", "time"), re.findall(r"\d", name), list(ABOUT).index(kind) if kind in ABOUT else len(ABOUT)


def _about(kind: str, numbers: Sequence[str], plan: Plan, study: Study) -> tuple[str, str]:
    """A figure's caption, and what it shows at first sight."""
    if kind not in ABOUT:
        return kind, ""
    on = f" on data sets {_list(f'({number})' for number in numbers)}" if numbers else ""
    band = "" if plan.runs == 1 else " The band is the 95 % interval of the mean."
    shown = [place for place in places(study["regret"]) if not numbers or str(place[0]) in numbers]
    return ABOUT[kind](plan, study, shown, on, band)
