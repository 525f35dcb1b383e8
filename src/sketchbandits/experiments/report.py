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
from collections import Counter
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
from sketchbandits.experiments.reproduce import (
    ARM_COUNTS,
    DIMS,
    ENGINES,
    SIZE_SCENES,
    SKETCH_SIZES,
    STRUCTURES,
    TYPICAL_DIM,
    TYPICAL_WIDTH,
    WIDTHS,
    PaperPlan,
)
from sketchbandits.experiments.runs import machine
from sketchbandits.experiments.scenes import FileScene, Scene
from sketchbandits.experiments.study import Plan, Runs
from sketchbandits.experiments.tables import Study, contenders, places, scene_of
from sketchbandits.linalg import TIE, Floats
from sketchbandits.partition import TOLERANCE

PAPER = "Yang, Xie and Lian, “Efficient Linear Bandits via Cluster-Aware Sketching”"
MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"
MARKS = {HOLDS: "✓", FAILS: "✕", "depends": "◐", UNDECIDED: "?", VACUOUS: "○", NOT_JUDGED: NONE}
SHARES = {"T/100": 0.01, "T/10": 0.1, "T/2": 0.5, "T": 1.0}
LONG = 100  # characters; a longer explanation of a verdict goes below its row
BARS = ", bars from the least to the most"
SCALES = "max: all arms divided by the largest norm; unit: each by its own."
PHRASES = {
    HOLDS: ("holds", "hold"),
    FAILS: ("fails", "fail"),
    "depends": ("depends on the case", "depend on the case"),
    UNDECIDED: ("is undecided", "are undecided"),
    VACUOUS: ("is vacuous", "are vacuous"),
    NOT_JUDGED: ("was not judged", "were not judged"),
}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LINE = 40  # characters; decisive figures that are longer have a line for each group of cases
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
    "cslb-sublinear": Decisive(f"{_SLOPE}, by rounds", "slope", by="rounds"),
    "linear-beats-ucb1": Decisive("UCB1 minus policy", " minus ", by="policy"),
    "largest-gains-where-clustered": Decisive("smallest gain on (4) / on another", "gain on (4) /"),
    "theorem-bound": Decisive("largest regret / bound", "largest regret", max),
    "clusters-at-most": Decisive("K, by data set", "K", by="data set"),
    "ucb1-grows-with-arms": Decisive("power of growth in N", "power", by="policy"),
    "l-sqrt-k-predicts": Decisive("l sqrt(K) / d", "l sqrt(K)"),
    "faster-than-oful": Decisive("CS-LB / OFUL", "cslb / oful", by="form"),
    "slightly-faster-than-sketches": Decisive("CS-LB / rival", "cslb / ", _farthest_from_one, "form"),
    "ucb1-fastest": Decisive("UCB1 / closest rival", "ucb1 / ", max, "form"),
    "search-saves-time": Decisive("search's share of the saving", "share of the saving", by="form"),
    "warmup-negligible": Decisive("warm-up's share at the horizon", "share of all time", by="form"),
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
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        'style-src \'unsafe-inline\'"><link rel="icon" href="data:,">'
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
    head = _tag(
        "tr", *(_tag("th", _html(h), scope="col", class_=kind) for h, kind in zip(headings, kinds, strict=True))
    )
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
    """Three digits of the largest, none behind the point from 100 on or for what rounding leaves of a zero."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 0 if largest < 1e-9 else min(9, max(0, 2 - math.floor(math.log10(largest))))


def _fixed(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return NONE
    text = f"{value:,.{decimals}f}"
    return text.replace("-", MINUS if text.strip("-0.") else "")


def _number(value: Any) -> str:
    """Any figure of a finding."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Interval):
        return f"{_mean(value)} {_ends(value)}".strip()
    if isinstance(value, float):
        return _fixed(value, _decimals(value))
    if isinstance(value, int):
        return f"{value:,}"
    return re.sub(r"^(\S+) to \1$", r"\1", _named(value))


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
    """Policies by their labels instead of what the command line calls them."""

    def label(found: re.Match[str]) -> str:
        options = (found[2] or "").replace("=", " ").replace("_", " ").replace(",", ", ")
        return f"{KINDS[found[1]].label} ({options})" if options else KINDS[found[1]].label

    return re.sub(rf"\b({'|'.join(KINDS)})\b(?::([^\s;]*[^\s;,.)]))?", label, str(text))


def _list(words: Iterable[Any]) -> str:
    *others, last = map(str, words)
    return f"{', '.join(others)} and {last}" if others else last


def _runs(plan: Plan) -> str:
    return "one run" if plan.runs == 1 else f"{plan.runs:,} runs"


def _mean_of(plan: Plan, spread: str) -> str:
    """What a figure or table shows of the runs: their mean, and how it shows their spread."""
    return "one run" if plan.runs == 1 else f"the mean of {_runs(plan)}{spread}"


def _policies(plan: Plan) -> str:
    return _list(policy.label for policy in plan.policies)


def _datasets(numbers: Iterable[Any]) -> str:
    names = [f"({number})" for number in numbers]
    return f"data set{'s' if len(names) > 1 else ''} {_list(names)}"


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
    row = _tag(
        "tr",
        statement,
        _tag("td", word, " ", short.removeprefix(verdict.word).lstrip(": ")),
        _tag("td", _decisive(verdict)),
    )
    evidence = [_tag("p", "Rule: ", verdict.claim.rule)]
    if short != text:
        evidence.append(_tag("p", "Verdict: ", text))
    if verdict.findings:
        evidence.append(_evidence(verdict))
    summary = _tag("summary", "Rule and evidence: ", _tag("code", verdict.claim.id))
    details = _tag("tr", _tag("td", _tag("details", summary, *evidence), colspan=3), class_="more")
    return _tag("tbody", row, details, id=verdict.claim.id)


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
    parts = [f"{_named(name)}: {_range(values)}" for name, values in groups.items() if values]
    lines = parts if len("; ".join(parts)) > LINE else ["; ".join(parts)]
    return _join([_tag("b", rule.label), *(_tag("span", line) for line in lines)], " ")


def _first_interval(finding: Finding) -> Decisive:
    names = sorted(finding.figures, key=lambda name: not isinstance(finding.figures[name], Interval))
    return Decisive(_named(names[0]), names[0])


def _deciding(finding: Finding, rule: Decisive) -> Any:
    matching = [value for name, value in finding.figures.items() if rule.figure in name]
    if not matching or isinstance(matching[0], str):
        return matching[0] if matching else NONE
    return rule.pick(matching, key=_size)


def _range(values: Sequence[Any]) -> str:
    if len(values) == 1 or isinstance(values[0], str):
        return ", ".join(dict.fromkeys(map(_number, values)))
    low, high = min(map(_size, values)), max(map(_size, values))
    ends = dict.fromkeys(_fixed(value, _decimals(low, high)) for value in (low, high))
    return f"{' to '.join(ends)} ({len(values)} cases)"


def _evidence(verdict: Verdict) -> Markup:
    """One row a case; where cases have different figures these share a column."""
    case, names = list(verdict.findings[0].case), list(verdict.findings[0].figures)
    alike = all(list(finding.figures) == names for finding in verdict.findings)
    rows = []
    for finding in verdict.findings:
        figures = [_number(value) for value in finding.figures.values()]
        if not alike:
            named = zip(finding.figures, figures, strict=True)
            figures = ["; ".join(f"{_named(name)} {figure}" for name, figure in named)]
        rows.append([*map(_named, finding.case.values()), finding.outcome, *figures])
    headings = [*case, "outcome", *(map(_named, names) if alike else ["figures"])]
    return _table("Case by case; means with their 95 % intervals", headings, rows, text=len(case) + 1)


def _tally(verdicts: Sequence[Verdict]) -> str:
    """How many claims hold, fail and so on."""
    counts = {word: sum(verdict.word == word for verdict in verdicts) for word in PHRASES}
    return _list(f"{count} {PHRASES[word][count > 1]}" for word, count in counts.items() if count)


# What was found, in sentences


def _paper_abstract(plan: PaperPlan, study: Study, verdicts: Sequence[Verdict]) -> list[str]:
    norms = (
        "both readings of the normalisation" if len(plan.normalize) > 1 else f"the normalisation {plan.normalize[0]}"
    )
    short = f" (the rules are meant for {paper.HORIZON:,})" if plan.rounds < paper.HORIZON else ""
    return [
        f"This page reruns the numerical experiments of {PAPER}, and judges {len(verdicts)} claims by rules fixed "
        "before the runs were looked at.",
        f"{_policies(plan)} played {plan.rounds:,} rounds{short} of {_datasets(plan.datasets)} under {norms}, "
        f"{_runs(plan)} each; further experiments vary the number of arms, the sketch size and the dimension.",
        f"Of the claims, {_tally(verdicts)}.",
        _leaders_sentence(study),
        _times_sentence(study),
    ]


def _own_abstract(plan: OwnPlan, study: Study, verdicts: Sequence[Verdict]) -> list[str]:
    return [
        f"{_policies(plan)} played {plan.rounds:,} rounds on {_scene_name(plan)}, {_runs(plan)} each.",
        f"Of the claims, whose rules were fixed before the runs were looked at, {_tally(verdicts)}.",
        _leaders_sentence(study),
        _times_sentence(study),
    ]


def _leaders_sentence(study: Study) -> str:
    settings = places(study["regret"])
    leads = Counter(label for place in settings for label in _leaders(study, place, 1.0))
    (first, count), *others = leads.most_common()
    where = f" in {count} of {len(settings)} settings" if len(settings) > 1 else ""
    more = "".join(f", {label}{f' in {count}' if where else ''}" for label, count in others)
    return f"{first} has the least mean regret at the end{where}{more}."


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
    shown: list[Markup] = []
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
    return (
        kind not in ("regret", "time"),
        re.findall(r"\d", name),
        list(ABOUT).index(kind) if kind in ABOUT else len(ABOUT),
    )


def _about(kind: str, numbers: Sequence[str], plan: Any, study: Study) -> tuple[str, str]:
    """A figure's caption, and what it shows at first sight."""
    shown = [place for place in places(study["regret"]) if not numbers or str(place[0]) in numbers]
    return ABOUT[kind](plan, study, shown) if kind in ABOUT else (kind, "")


def _on(shown: Sequence[tuple[Any, str]]) -> str:
    numbers = dict.fromkeys(place[0] for place in shown if isinstance(place[0], int))
    return f" on {_datasets(numbers)}" if numbers else ""


def _about_regret(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    mean = _mean_of(plan, "; the band is its 95 % interval (Student's t)")
    caption = f"Cumulative regret{_on(shown)} over {plan.rounds:,} rounds: {mean}."
    readings = []
    for place in shown:
        ranking = sorted(_means(study, place, 1.0).items(), key=lambda item: item[1])
        ranks = ", ".join(f"{policy.label} {_number(mean)}" for policy, mean in ranking)
        readings.append(": ".join([*_where(place), ranks]))
    return caption, f"At the end, from the least: {'; '.join(readings)}."


def _about_time(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    twins = ""
    if isinstance(plan, PaperPlan) and len(contenders(study["time"])) > len(plan.policies):
        twins = f"; hollow, policies as the paper prints them, on the first {plan.twin_rounds:,}"
    caption = (
        f"Time a round{_on(shown)}, timed alone on the first {plan.timed_rounds:,} rounds{twins}. "
        f"Shown is {_mean_of(plan, ' (large dots), the runs (small) and lines from the least to the most')}."
    )
    readings = []
    for place in shown:
        means = {key[2]: float(runs.microseconds.mean()) for key, runs in study["time"].items() if key[:2] == place}
        fast, slow = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        ends = f"from {_number(means[fast])} µs ({_named(fast)}) to {_number(means[slow])} µs ({_named(slow)})"
        readings.append(": ".join([*_where(place), ends]))
    return caption, f"{'; '.join(readings)}."


def _about_arms(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    arms, few, many = study["arms"], ARM_COUNTS[0], ARM_COUNTS[-1]
    readings = []
    for structure, normalize in dict.fromkeys((key[0], key[2]) for key in arms):
        grown = []
        for kind in dict.fromkeys(key[3] for key in arms):
            ends = [arms[structure, n, normalize, kind].regret.mean() for n in (few, many)]
            grown.append(f"{_named(kind)} {_times(*ends)}")
        readings.append(f"{structure}, {normalize}: {', '.join(grown)}")
    rounds = next(iter(arms.groups.values()))[0].rounds
    caption = (
        f"Regret after {rounds:,} rounds with {few} to {many} arms, in {_list(STRUCTURES)}: "
        f"{_mean_of(plan, BARS)}. Grey: linear in N."
    )
    return caption, f"From {few} to {many} arms regret is multiplied by: {'; '.join(readings)}."


def _times(before: float, after: float) -> str:
    return _number(float(after / before)) if before > 0 else NONE


def _about_sizes(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    sizes, readings = study["sizes"], []
    for name, normalize in dict.fromkeys((key[0], key[-1]) for key in sizes):
        means = {key[1]: sizes[key].regret.mean() for key in sizes if len(key) == 3 and key[::2] == (name, normalize)}
        best = min(means, key=means.__getitem__)
        share = _times(sizes[name, normalize].regret.mean(), means[best])
        scene = f"({name})" if name.isdigit() else "N = {}, d = {}".format(*SIZE_SCENES[name])
        readings.append(f"{scene} {normalize}: least at l = {best}, {share} of OFUL's")
    caption = (
        f"Regret of CS-LB over that of OFUL after {plan.rounds:,} rounds, for l = {_list(SKETCH_SIZES)} as far as "
        f"l ≤ d: {_mean_of(plan, ' (geometric) with its 95 % interval')}. Shaded: l√K < d."
    )
    return caption, f"{'; '.join(readings)}."


def _about_growth(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    time = {key: float(runs.microseconds.mean()) for key, runs in study["growth"].items()}
    readings = []
    for engine in ENGINES:
        in_d = _times(time[engine, DIMS[0], TYPICAL_WIDTH], time[engine, DIMS[-1], TYPICAL_WIDTH])
        in_l = _times(time[engine, TYPICAL_DIM, WIDTHS[0]], time[engine, TYPICAL_DIM, WIDTHS[-1]])
        readings.append(f"engine {engine}: {in_d} in d, {in_l} in l")
    caption = (
        f"Time a round of CS-LB, timed alone, as the dimension grows (left, l = {TYPICAL_WIDTH}) and as the sketch "
        f"size does (right, d = {TYPICAL_DIM}): {_mean_of(plan, BARS)}. Grey: the "
        "cost that the paper prints."
    )
    ends = f"from d = {DIMS[0]} to {DIMS[-1]} and from l = {WIDTHS[0]} to {WIDTHS[-1]}"
    return caption, f"Time is multiplied, {ends}, by: {'; '.join(readings)}."


ABOUT: dict[str, Callable[[Any, Study, Sequence[tuple[Any, str]]], tuple[str, str]]] = {
    "regret": _about_regret,
    "time": _about_time,
    "arms": _about_arms,
    "sizes": _about_sizes,
    "growth": _about_growth,
}


# Tables


def _regret_table(plan: PaperPlan, study: Study) -> Markup:
    policies = contenders(study["regret"])
    rows = []
    for place in places(study["regret"]):
        bands = [interval(study["regret"][*place, str(policy)].regret) for policy in policies]
        least = min(band.mean for band in bands)
        scene = scene_of(study["regret"], place)
        assert isinstance(scene, Scene)
        cells = [_band(band, best=band.mean == least) for band in bands]
        title = paper.title(scene).replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
        rows.append([f"({place[0]}) {title}", place[1], *cells])
    caption = (
        f"Regret after {plan.rounds:,} rounds: {_mean_of(plan, ' and its 95 % interval')}; the least in bold. {SCALES}"
    )
    return _table(caption, ["data set", "norm", *(policy.label for policy in policies)], rows, text=2)


def _time_tables(plan: PaperPlan, study: Study) -> Markup:
    extra = len(contenders(study["time"])) > len(plan.policies)
    twins = f" ({plan.twin_rounds:,} for policies as printed)" if extra else ""
    played = f"{_mean_of(plan, '')}, timed alone on the first {plan.timed_rounds:,} rounds{twins}"
    rounds = _time_table(f"Microseconds a round: {played}; the least in bold.", study, lambda runs: runs.microseconds)
    before = "Warm-up in milliseconds, before the first round: the mean; the least in bold."
    return _join([rounds, _time_table(before, study, lambda runs: 1e3 * runs.warmup_seconds)])


def _time_table(caption: str, study: Study, measure: Callable[[Runs], Floats]) -> Markup:
    shown, policies = places(study["time"]), contenders(study["time"])
    means = np.array([[measure(study["time"][*place, str(policy)]).mean() for place in shown] for policy in policies])
    rows = []
    for policy, line in zip(policies, means, strict=True):
        best = line <= means.min(axis=0)
        cells = [_tag("strong" if b else "span", _number(float(mean))) for mean, b in zip(line, best, strict=True)]
        rows.append([policy.label, *cells])
    return _table(caption, ["policy", *map(_place, shown)], rows)


def _own_table(plan: OwnPlan, study: Study) -> Markup:
    rows = []
    for key, runs in sorted(study["regret"].items(), key=lambda item: item[1].regret.mean()):
        timed = study["time"][key]
        label = study["regret"].groups[key][0].contender.label
        measured = (runs.regret, timed.microseconds, 1e3 * timed.warmup_seconds)
        rows.append([label, *(_band(interval(values)) for values in measured)])
    caption = f"From the least regret: {_mean_of(plan, ' and its 95 % interval')}."
    headings = ["policy", f"regret after {plan.rounds:,} rounds", "microseconds a round", "warm-up, milliseconds"]
    return _table(caption, headings, rows)


def _horizon(plan: PaperPlan, study: Study) -> Markup:
    """Who leads after a hundredth, a tenth and half of the rounds, and at the end."""
    settings = places(study["regret"])
    leaders = {place: [_leaders(study, place, share) for share in SHARES.values()] for place in settings}
    changed = sum(not set(found[0]) & set(found[-1]) for found in leaders.values())
    sentence = (
        f"In {changed} of {len(settings)} settings the policy that leads after T/100 rounds does not lead after T."
    )
    own = Contender("cslb")
    if own in contenders(study["regret"]):
        counts = [sum(own.label in found[i] for found in leaders.values()) for i in range(len(SHARES))]
        sentence += f" CS-LB leads in {_list(counts)} of {len(settings)} after {_list(SHARES)}."
    rows = [[_place(place), *(_leader_cell(study, place, share) for share in SHARES.values())] for place in settings]
    rounds = [f"{name} = {plan.rounds * share:,.10g}" for name, share in SHARES.items()]
    caption = "The policy with the least mean regret after so many rounds; below it CS-LB's mean over the best other's."
    return _join([_tag("p", sentence), _table(caption, ["setting", *rounds], rows)])


def _leader_cell(study: Study, place: tuple[Any, str], share: float) -> Markup:
    means = _means(study, place, share)
    own = means.pop(Contender("cslb"), None)
    ratio = f"CS-LB / best other {_times(min(means.values()), own)}" if means and own is not None else ""
    leader = _tag("span", _list(_leaders(study, place, share)))
    return _join([leader, _tag("span", ratio, class_="ends")], " ")


# What was played, and how


def _readings(plan: PaperPlan) -> dict[str, str]:
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
        f"order, that has room for its direction or whose span it leaves by at most {_power(TOLERANCE)} of its norm.",
        "Ties": f"Not mentioned; unit arms all tie at the start. Here values within {_power(TIE)} of the largest, "
        "relatively, are equal, and the lowest index wins, of clusters and of arms.",
        "Running time": "“Seconds”, for a number of rounds, a machine and a program that are not named. Here "
        "microseconds a round in compiled code, the warm-up apart. CS-LB, SOFUL and CBSCFD run as printed and in "
        "cheaper forms: CS-LB in coordinates, which chooses the same arms, the sketches with a buffer.",
        "Runs": "“Independent”. Here a run draws new arms, a new θ* and new noise, the same for all policies.",
    }


def _power(value: float) -> str:
    """A power of ten: 10⁻⁹."""
    return f"10{str(round(math.log10(value))).translate(SUPERSCRIPTS)}"


def _scene_name(plan: OwnPlan) -> str:
    """The file without its folders, or the generator."""
    scene = plan.scene
    return os.path.basename(scene.path) if isinstance(scene, FileScene) else f"{scene.generator} arms"


def _scene_facts(plan: OwnPlan) -> dict[str, str]:
    scene, model = plan.scene, plan.scene.model
    n_arms, dim = scene.draw(plan.seed).arms.shape
    norms = {"none": "as they are", "max": "divided by the largest norm", "unit": "each divided by its own norm"}
    drawn = f"drawn anew for every run, {scene.parameter}, of norm {model.theta_norm:g}"
    given = isinstance(scene, FileScene) and scene.theta is not None
    facts = {
        "Arms": f"{_scene_name(plan)}: N = {n_arms:,}, d = {dim:,}, {norms[scene.normalize]}",
        "Hidden parameter": "given, the same in every run" if given else drawn,
        "Told to policies": f"λ = {model.ridge:g}, R = {model.noise:g}, S = {model.theta_norm:g}, δ = {model.delta:g}, "
        f"l = {model.sketch_size}, as far as they take it and are not given their own",
        "Policies": _policies(plan),
        "Length": f"{plan.rounds:,} rounds, {_runs(plan)}, seed {plan.seed}",
    }
    if isinstance(scene, Scene):
        facts["Generator"] = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in scene.options)
    return facts


def _command(name: str, flags: Mapping[str, Any]) -> Markup:
    words = ["sketchbandits", name]
    for flag, value in flags.items():
        if value is not None:
            words += [f"--{flag}", f"{value:g}" if isinstance(value, float) else str(value)]
    return _tag("code", _join((_tag("span", word) for word in shlex.join(words).split(" ")), " "))


def _paper_command(plan: PaperPlan) -> Markup:
    lists = {name: ",".join(map(str, getattr(plan, name))) for name in ("datasets", "policies", "normalize")}
    return _command("reproduce", {"rounds": plan.rounds, "runs": plan.runs, **lists, "seed": plan.seed})


def _own_command(plan: OwnPlan) -> Markup:
    scene = plan.scene
    if isinstance(scene, FileScene):
        features = None if scene.features is None else ",".join(scene.features)
        theta = None if scene.theta is None else "THETA.npy"
        flags = {"arms": _scene_name(plan), "id-column": scene.id_column, "features": features, "theta": theta}
    else:
        flags = {"generator": scene.generator} | {name.replace("_", "-"): value for name, value in scene.options}
    told = {name.replace("_", "-"): value for name, value in vars(scene.model).items() if name != "arm_norm"}
    length = {"rounds": plan.rounds, "runs": plan.runs, "seed": plan.seed}
    policies = ",".join(map(str, plan.policies))
    return _command("simulate", {"policies": policies, **flags, "normalize": scene.normalize, **told, **length})


def _made(plan: Plan, command: Markup, more_files: Mapping[str, str]) -> Markup:
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba"))
    names = {
        "claims.json": "the verdicts with their evidence",
        "summary.csv": "regret and time of every run",
        "curves.parquet": "regret at every checkpoint",
        **more_files,
        "figures/": "every figure as PNG and SVG",
        "runs.jsonl": "the journal of finished runs",
    }
    links = [_join([_tag("a", name, href=name), f": {what}"]) for name, what in names.items()]
    facts = {
        "Command": command,
        "Versions": f"sketchbandits {__version__}, Python {platform.python_version()}, {packages}",
        "Machine": machine(),
        "Date": f"{datetime.now(UTC):%Y-%m-%d} (UTC)",
        "Times": "Every timed run was played alone, after all others, on one thread; the policies took turns, run by "
        f"run. Timed are the first {plan.timed_rounds:,} rounds; compiling is not.",
        "Files": _tag("ul", *(_tag("li", link) for link in links)),
    }
    return _definitions(facts)
