"""The page that `reproduce` and `simulate` leave: well formed, complete in itself, and every number from the runs."""

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from sketchbandits.lab import own_case, report
from sketchbandits.lab.experiments.scenes import Model
from sketchbandits.lab.experiments.tasks import Outcome, Task, checkpoints
from sketchbandits.lab.intervals import Interval, interval
from sketchbandits.lab.paper.claims import CLAIMS, judge, judged
from sketchbandits.lab.paper.reproduce import QUICK, SEEN, PaperPlan
from sketchbandits.lab.report.wording import MINUS, NONE, number
from sketchbandits.lab.verdict import Claim, Finding, Verdict
from sketchbandits.policies.registry import PolicySpec, parse_policies

VOID = {"meta", "link", "img", "br"}
LEVEL = {"cslb": 3.0, "oful": 5.0, "soful": 6.0, "cbscfd": 7.0, "ucb1": 2.0, "dbslinucb": 4.0, "multiscale": 8.0}
NAMES = ("regret-1-2", "time-1-2", "regret-3-4", "time-3-4", "arms", "sizes", "growth")
FIGURES = {f"figures/{name}.{end}": b"<svg/>" for name in NAMES for end in ("png", "svg")}
HOSTILE = "<script>alert('1')<script>&\".npy"


class Page(HTMLParser):
    """Elements with their attributes, all text, and tables as lists of rows; refuses tags that do not match."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text, self.tables, self.inside = "", [], []
        self.source = page.decode()
        self.feed(self.source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
            self.inside.append(self.tables[-1])
        if tag == "tr":
            self.inside[-1].append([])
        if tag in ("th", "td"):
            self.inside[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"
        if tag == "table":
            self.inside.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
            between_tags = data.isspace() and "\n" in data
            if {"th", "td"} & set(self.open) and "caption" not in self.open and not between_tags:
                self.inside[-1][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def table(self, heading: str) -> list[list[str]]:
        """The rows of the first table whose header starts with these words."""
        return next(rows for rows in self.tables if rows[0][: len(heading.split("|"))] == heading.split("|"))


def invented(task: Task) -> Outcome:
    """An outcome that nobody played: regret grows as sqrt(t), faster for CS-LB after a tenth of the rounds."""
    points = checkpoints(task.rounds)
    level = LEVEL[task.policy.name] * (1 + 0.1 * task.run + 0.01 * len(str(task.scene.normalize)))
    regret = level * np.sqrt(points)
    if task.policy.name == "cslb":
        regret = np.where(points <= task.rounds // 10, 0.3, 1.5) * regret
    seconds = 1e-6 * task.rounds * level * (7 if task.policy.options else 1)
    facts = {"clusters": 4, "sketch_rank": 10, "largest_gap": 0.5, "mean_gap": 0.25}
    return Outcome(points, regret, seconds, 1e-3 * level, facts)


def paper_page(**options) -> tuple[Page, PaperPlan, dict, list[Verdict]]:
    plan = PaperPlan(**{"rounds": 1000, "runs": 3, **options})
    study = plan.study({task: invented(task) for task in plan.tasks()})
    verdicts = [judge(claim, study) for claim in CLAIMS]
    return Page(report.paper_report(plan, study, verdicts, FIGURES)), plan, study, verdicts


def own_page(tmp_path: Path, name: str = "arms.npy", policies=None, **options) -> Page:
    np.save(tmp_path / "plain.npy", np.random.default_rng(0).normal(size=(9, 4)))
    path = (tmp_path / "plain.npy").rename(tmp_path / name)
    scene = own_case.file_scene(Model(2), str(path), None, None, None, "max")
    policies = policies or parse_policies("cslb,oful,cslb:sketch_size=3")
    plan = own_case.OwnPlan(**{"scene": scene, "policies": policies, "rounds": 1000, "runs": 3, **options})
    study = plan.study({task: invented(task) for task in plan.tasks()})
    figures = {"figures/regret.svg": b"<svg/>", "figures/time.svg": b"<svg/>"}
    return Page(report.own_report(plan, study, [judge(claim, study) for claim in own_case.claims(plan)], figures))


@pytest.fixture(scope="module")
def played():
    return paper_page()


def check_page(page: Page) -> None:
    assert page.source.startswith('<!DOCTYPE html>\n<html lang="en">')
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings.count(1) == 1 and headings[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert any("width=device-width" in meta.get("content", "") for meta in page.all("meta"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all("scope" in cell for cell in page.all("th"))
    assert not page.all("script")
    words = page.text + " ".join(image["alt"] for image in page.all("img"))
    assert re.search(r"\b(nan|inf|None)\b", words) is None


def check_loads_nothing(page: Page) -> None:
    for _, attributes in page.elements:
        assert not set(attributes) & {"srcset", "poster", "data", "action", "onclick", "onload"}
        if "src" in attributes:
            assert attributes["src"].startswith("data:image/svg+xml;base64,")
        if "href" in attributes:
            assert re.fullmatch(r"data:,|#[a-z0-9-]+|[a-z]+(/[a-z0-9-]*)?(\.[a-z]+)?", attributes["href"])
    assert "://" not in page.source
    assert "url(" not in page.source and "@import" not in page.source
    targets = {attributes.get("id") for _, attributes in page.elements}
    assert all(link["href"][1:] in targets for link in page.all("a") if link["href"].startswith("#"))


def test_the_papers_page_is_well_formed_and_loads_nothing(played):
    check_page(played[0])
    check_loads_nothing(played[0])


def test_a_users_page_is_well_formed_and_loads_nothing(tmp_path):
    page = own_page(tmp_path)
    check_page(page)
    check_loads_nothing(page)


def test_figures_stand_in_order_with_real_descriptions(played):
    page, _, study, _ = played
    links = [link["href"] for link in page.all("a") if link["href"].endswith(".svg")]
    assert links == [f"figures/{name}.svg" for name in NAMES]
    images = page.all("img")
    assert len(images) == len(page.all("figcaption")) == len(NAMES)
    assert all(len(image["alt"]) > 100 for image in images)
    assert f"OFUL {study['regret'][1, 'max', 'oful'].regret.mean():,.0f}" in images[0]["alt"]
    assert images[0]["alt"].index("UCB1") < images[0]["alt"].index("CS-LB")  # from the least
    assert "3 runs" in page.text and "95 % interval" in page.text


def test_every_claim_is_there_with_its_verdict(played):
    page, _, _, verdicts = played
    assert len(verdicts) == len(CLAIMS)
    for verdict in verdicts:
        assert escape(verdict.claim.statement) in page.source
        assert escape(verdict.claim.rule) in page.source
        row = next(row for row in page.table("Claim|Verdict") if row[0] == verdict.claim.statement)
        assert verdict.word in row[1]
        assert f'id="{verdict.claim.id}"' in page.source


def test_words_are_counted_and_coloured(played):
    _, plan, study, _ = played
    outcomes = {"holds": ["holds"], "fails": ["fails"], "depends": ["holds", "fails"], "undecided": ["undecided"]}
    outcomes |= {"vacuous": ["vacuous"], "not judged": []}
    verdicts = []
    for word, found in outcomes.items():
        claim = Claim(word.replace(" ", "-"), f"A claim that is {word}.", "A rule.", lambda study, level: [])
        cases = [Finding({"case": str(i)}, outcome, {"x": Interval(1.0, 0.5, 2.0)}) for i, outcome in enumerate(found)]
        verdicts.append(Verdict(claim, cases, "not judged: data set 9 was not played"))
    page = Page(report.paper_report(plan, study, verdicts, {}))
    counted = "1 holds, 1 fails, 1 depends on the case, 1 is undecided, 1 is vacuous and 1 was not judged"
    assert f"Of the claims, {counted}." in page.text
    assert [strong["class"] for strong in page.all("strong")[:6]] == [
        f"word {word.replace(' ', '-')}" for word in outcomes
    ]
    assert "data set 9 was not played" in page.text


def test_the_numbers_of_cases_stand_in_the_row_and_the_level_above_the_evidence(played):
    page, _, _, verdicts = played
    for verdict in verdicts:
        row = next(row for row in page.table("Claim|Verdict") if row[0] == verdict.claim.statement)
        assert verdict.tally in row[1]
    lowest = next(verdict for verdict in verdicts if verdict.claim.id == "lowest-regret")
    assert lowest.family == 6  # the invented runs are alike on all data sets: that gives three rivals in two settings
    assert "means with intervals of level 99.17 %: the 6 that decide hold together with 95 %" in page.source
    assert "holds, or fails, where more than half of its cases do and none does the opposite" in page.text


def test_the_page_does_not_claim_that_rules_are_older_than_all_results(played):
    page, plan, study, verdicts = played
    assert "fixed before" not in page.text
    assert "Seven were changed after a first full run, with seed 0" in page.text
    assert f"the seed of this run, {plan.seed}, is none of them" in page.text
    assert PaperPlan().seed not in SEEN
    seen = Page(report.paper_report(replace(plan, seed=2026), study, verdicts, {}))
    assert "the seed of this run, 2026, is one of them" in seen.text


def test_a_quick_page_has_no_verdicts_and_says_so():
    plan = PaperPlan(**QUICK)
    study = plan.study({task: invented(task) for task in plan.tasks()})
    page = Page(report.paper_report(plan, study, judged(CLAIMS, plan, study), FIGURES))
    check_page(page)
    assert "it judges no claim" in page.text and "Of the claims" not in page.text
    rows = page.table("Claim|Verdict")[1:]
    shown = [row[1] for row in rows if len(row) == 3]
    assert len(shown) == len(CLAIMS) and all(text.endswith("not judged in a quick run") for text in shown)
    words = {strong["class"] for strong in page.all("strong") if "class" in strong}
    assert words == {"word not-judged"}
    assert "--seed 8191 --quick" in page.text


def test_regrets_are_those_of_the_runs(played):
    page, plan, study, _ = played
    rows = page.table("data set|norm")
    assert rows[0][2:] == ["CS-LB", "OFUL", "SOFUL", "CBSCFD", "UCB1", "OFUL (radius logdet)", "multi-scale"]
    assert len(rows) == 1 + 8
    for row, place in zip(rows[1:], [(n, norm) for n in plan.datasets for norm in plan.normalize], strict=True):
        assert row[0].startswith(f"({place[0]}) N") and row[1] == place[1]
        for cell, policy in zip(row[2:], plan.policies, strict=True):
            mean, low, high = interval(study["regret"][*place, str(policy)].regret)
            digits = 0 if high >= 100 else 1
            assert cell == f"{mean:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"
    bold = re.findall("<strong>([^<]*)</strong>", page.source[page.source.index('id="regret"') :])
    assert bold[:8] == [row[-3].split(" ")[0] for row in rows[1:]]  # UCB1 was given the least


def test_times_are_those_of_the_runs_slow_forms_included(played):
    page, _, study, _ = played
    rounds, warmup = [rows for rows in page.tables if rows[0][0] == "policy"][:2]
    assert rounds[0][1:3] == ["(1) max", "(1) unit"]
    labels = [row[0] for row in rounds]
    assert "CS-LB (engine sketch)" in labels and "SOFUL (shrink every-round)" in labels
    row = rounds[labels.index("CS-LB (engine sketch)")]
    assert row[1] == f"{study['time'][1, 'max', 'cslb:engine=sketch'].microseconds.mean():.1f}"
    assert warmup[1][1] == f"{1e3 * study['time'][1, 'max', 'cslb'].warmup_seconds.mean():.2f}"


def test_the_horizon_table_says_who_leads_when(played):
    page, _, study, _ = played
    rows = page.table("setting|T/100 = 10")
    assert rows[0][1:] == ["T/100 = 10", "T/10 = 100", "T/2 = 500", "T = 1,000"]
    runs = {policy: study["regret"][1, "max", policy] for policy in ("cslb", "ucb1")}
    early = runs["cslb"].regret_at(10).mean() / runs["ucb1"].regret_at(10).mean()
    late = runs["cslb"].regret.mean() / runs["ucb1"].regret.mean()
    assert rows[1] == [
        "(1) max",
        f"CS-LB CS-LB / best other {early:.3f}",
        f"CS-LB CS-LB / best other {early:.3f}",
        f"UCB1 CS-LB / best other {late:.2f}",
        f"UCB1 CS-LB / best other {late:.2f}",
    ]
    assert "In 8 of 8 settings the policy that leads after T/100 rounds does not lead after T." in page.text
    assert "CS-LB leads in 8, 8, 0 and 0 of 8 after T/100, T/10, T/2 and T." in page.text
    assert "UCB1 has the least mean regret at the end in 8 of 8 settings." in page.text


def test_how_it_was_made(played):
    page, plan, _, _ = played
    command = (
        "--rounds 1000 --runs 3 --datasets 1,2,3,4 --policies cslb,oful,soful,cbscfd,ucb1,oful:radius=logdet,multiscale"
    )
    assert f"sketchbandits reproduce {command} --normalize max,unit --seed 8191" in page.text
    for word in ("numpy", "scipy", "numba", "Python", "UTC", "claims.json", "sweeps.csv", "0.973", "10⁻⁹"):
        assert word in page.text
    assert f"{plan.as_printed_rounds:,} rounds of CS-LB (engine sketch), SOFUL (shrink every-round)" in page.text
    assert str(Path.home()) not in page.source and str(Path.cwd()) not in page.source


def test_what_was_not_played_is_said():
    page, _, _, verdicts = paper_page(datasets=(3,), policies=parse_policies("oful,ucb1"), normalize=("max",))
    check_page(page)
    assert {verdict.word for verdict in verdicts} >= {"not judged"}
    assert "was not played" in page.text
    assert "CS-LB leads" not in page.text


def test_one_run_has_no_interval(tmp_path):
    page, *_ = paper_page(runs=1)
    check_page(page)
    assert "one run" in page.text and "(one run)" in page.table("data set|norm")[1][2]
    own = own_page(tmp_path, runs=1)
    check_page(own)
    assert "(one run)" in own.table("policy|regret after 1,000 rounds")[1][1]


def test_a_users_table_goes_from_the_least_regret(tmp_path):
    page = own_page(tmp_path)
    rows = page.table("policy|regret after 1,000 rounds")
    assert [row[0] for row in rows[1:]] == ["CS-LB", "CS-LB (sketch size 3)", "OFUL"]
    assert "arms.npy: N = 9, d = 4, divided by the largest norm" in page.text
    assert "--policies cslb,oful,cslb:sketch_size=3 --arms arms.npy" in page.text
    assert str(tmp_path) not in page.source


def test_a_single_policy_and_generated_arms(tmp_path):
    scene = own_case.generated_scene(Model(2), "subspaces", {"n_arms": 30, "dim": 8}, "unit")
    page = own_page(tmp_path, scene=scene, policies=parse_policies("ucb1"))
    check_page(page)
    assert "subspaces arms: N = 30, d = 8, each divided by its own norm" in page.text
    assert "--generator subspaces --n-arms 30 --dim 8" in page.text


def test_names_are_escaped_wherever_they_come_from(tmp_path):
    hostile = (PolicySpec("cslb", (("radius", "<script>alert(2)</script>"),)), PolicySpec("oful"))
    page = own_page(tmp_path, HOSTILE, hostile)
    check_page(page)
    assert "<script" not in page.source.lower()
    assert escape(HOSTILE) in page.source
    assert "alert(2)" in page.text


def test_what_is_no_number_is_a_dash(played):
    _, plan, study, verdicts = played
    figures = {"a": Interval(np.inf, np.nan, np.nan), "b": float("nan"), "c": Interval(1.0, -np.inf, np.inf)}
    strange = replace(verdicts[0], findings=[Finding({"case": "x"}, "undecided", figures)])
    page = Page(report.paper_report(plan, study, [strange], {}))
    check_page(page)
    assert NONE in page.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Interval(12345.4, 11900.0, 12800.0), "12,345 (11,900 to 12,800)"),
        (Interval(-0.5, -1.25, 0.25), f"{MINUS}0.50 ({MINUS}1.25 to 0.25)"),
        (Interval(3.0, np.nan, np.nan), "3.00 (one run)"),
        (Interval(1e-17, -1e-17, 1e-17), "0 (0 to 0)"),
        (1234567, "1,234,567"),
        (0.000118, "0.000118"),
        (-0.0, "0"),
        (np.inf, NONE),
        (True, "yes"),
        ("12 to 12", "12"),
        ("4 to 5", "4 to 5"),
        ("cslb:sketch_size=8,radius=logdet minus oful", "CS-LB (sketch size 8, radius logdet) minus OFUL"),
    ],
)
def test_numbers_have_separators_and_sensible_digits(value, text):
    assert number(value) == text
