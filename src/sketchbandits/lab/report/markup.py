"""The bottom of a page: HTML elements, and numbers and names as a reader sees them.

Text is escaped unless it is `Markup`, so that a file or policy may have any name.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np

from sketchbandits.lab.intervals import Interval
from sketchbandits.lab.study import Plan
from sketchbandits.policies.registry import POLICIES

MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"
SCALES = "max: all arms divided by the largest norm; unit: each by its own."


class Markup(str):
    """Text that is HTML already."""


def _html(value: Any) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def join(parts: Iterable[Any], between: str = "") -> Markup:
    """The parts in a row, each escaped unless it is markup."""
    return Markup(between.join(map(_html, parts)))


def tag(name: str, *content: Any, **attributes: Any) -> Markup:
    """An element; an underscore at the end of an attribute's name is dropped, others become hyphens."""
    given = "".join(f' {key.strip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>{join(content)}</{name}>")


def page(title: str, abstract: Sequence[str], sections: Mapping[str, Markup]) -> bytes:
    """A whole page: a title, an abstract of sentences, and sections by their headings."""
    style = Markup(files("sketchbandits.lab.report").joinpath("style.css").read_text("utf-8"))
    # Nothing is loaded from anywhere: the policy holds a browser to it, the empty icon saves it from asking for one.
    head = Markup(
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        'style-src \'unsafe-inline\'"><link rel="icon" href="data:,">'
    )
    links = [tag("li", tag("a", name, href=f"#{_anchor(name)}")) for name in sections]
    parts = [tag("section", tag("h2", name), body, id=_anchor(name)) for name, body in sections.items()]
    summary = tag("div", tag("p", " ".join(abstract)), class_="abstract")
    navigation = tag("nav", tag("ul", *links), aria_label="Contents")
    body = tag("body", tag("main", tag("h1", title), summary, navigation, *parts))
    html = tag("html", tag("head", head, tag("title", title), tag("style", style)), body, lang="en")
    return f"<!DOCTYPE html>\n{html}\n".encode()


def _anchor(name: str) -> str:
    return re.sub("[^a-z]+", "-", name.lower())


def table(caption: Any, headings: Sequence[Any], rows: Iterable[Sequence[Any]], *, text: int = 1) -> Markup:
    """Rows with a heading each; the first ``text`` columns are words, the others figures. Scrolls inside itself."""
    kinds = ["text" if i < text else "number" for i in range(len(headings))]
    head = tag("tr", *(tag("th", _html(h), scope="col", class_=kind) for h, kind in zip(headings, kinds, strict=True)))
    body = []
    for first, *others in rows:
        cells = [tag("td", cell, class_=kind) for cell, kind in zip(others, kinds[1:], strict=True)]
        body.append(tag("tr", tag("th", first, scope="row", class_=kinds[0]), *cells))
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=plain(caption))


def plain(html: Any) -> str:
    """Markup without its tags; other text as it is."""
    return re.sub("<[^>]*>", "", html) if isinstance(html, Markup) else str(html)


def definitions(items: Mapping[str, Any]) -> Markup:
    """A list of terms with what is said of each."""
    return tag("dl", *(join([tag("dt", term), tag("dd", text)]) for term, text in items.items()))


# Numbers and words


def decimals(*values: float) -> int:
    """Three digits of the largest, none behind the point from 100 on or for what rounding leaves of a zero."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 0 if largest < 1e-9 else min(9, max(0, 2 - math.floor(math.log10(largest))))


def fixed(value: float, digits: int) -> str:
    """A number with separators and so many digits behind the point; a dash for what is no number."""
    if not math.isfinite(value):
        return NONE
    text = f"{value:,.{digits}f}"
    return text.replace("-", MINUS if text.strip("-0.") else "")


def number(value: Any) -> str:
    """Any figure of a finding."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Interval):
        return f"{_mean(value)} {_ends(value)}".strip()
    if isinstance(value, float):
        return fixed(value, decimals(value))
    if isinstance(value, int):
        return f"{value:,}"
    return re.sub(r"^(\S+) to \1$", r"\1", named(value))


def _mean(value: Interval) -> str:
    return fixed(value.mean, decimals(*value))


def _ends(value: Interval) -> str:
    if not math.isfinite(value.mean):
        return ""
    if not (math.isfinite(value.low) and math.isfinite(value.high)):
        return "(one run)"
    return f"({fixed(value.low, decimals(*value))} to {fixed(value.high, decimals(*value))})"


def band(value: Interval, *, best: bool = False) -> Markup:
    """A cell with the mean, and its interval in smaller type."""
    mean = tag("strong" if best else "span", _mean(value))
    return join([mean, tag("span", _ends(value), class_="ends")], " ")


def times(before: float, after: float) -> str:
    """What the first is multiplied by to make the second."""
    return number(float(after / before)) if before > 0 else NONE


def named(text: Any) -> str:
    """Policies by their labels instead of what the command line calls them."""

    def label(found: re.Match[str]) -> str:
        options = (found[2] or "").replace("=", " ").replace("_", " ").replace(",", ", ")
        return f"{POLICIES[found[1]].label} ({options})" if options else POLICIES[found[1]].label

    return re.sub(rf"\b({'|'.join(POLICIES)})\b(?::([^\s;]*[^\s;,.)]))?", label, str(text))


def listed(words: Iterable[Any]) -> str:
    """Words with commas, and “and” before the last."""
    *others, last = map(str, words)
    return f"{', '.join(others)} and {last}" if others else last


def runs_in_words(plan: Plan) -> str:
    """How many runs a plan has."""
    return "one run" if plan.runs == 1 else f"{plan.runs:,} runs"


def mean_of(plan: Plan, spread: str) -> str:
    """What a figure or table shows of the runs: their mean, and how it shows their spread."""
    return "one run" if plan.runs == 1 else f"the mean of {runs_in_words(plan)}{spread}"


def policy_names(plan: Plan) -> str:
    """The labels of a plan's policies."""
    return listed(policy.label for policy in plan.policies)


def dataset_names(numbers: Iterable[Any]) -> str:
    """The paper's data sets by their numbers in parentheses."""
    names = [f"({each})" for each in numbers]
    return f"data set{'s' if len(names) > 1 else ''} {listed(names)}"


def place_name(place: tuple[Any, str]) -> str:
    """A data set and its normalisation."""
    return f"({place[0]}) {place[1]}"


def place_if_any(key: tuple[Any, ...]) -> list[str]:
    """Which of the paper's data sets; nothing where there is one only."""
    return [place_name((key[0], key[1]))] if isinstance(key[0], int) else []
