"""Figures say what the runs say: drawn from outcomes made by hand, and read back from the artists."""

from itertools import combinations, product

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.text import Annotation, Text

from sketchbandits.lab import drawing, outputs, palette
from sketchbandits.lab.experiments.scenes import FileScene, Scene
from sketchbandits.lab.experiments.tasks import Outcome, checkpoints
from sketchbandits.lab.intervals import ratio
from sketchbandits.lab.own_case import OwnPlan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.reproduce import (
    ARM_COUNTS,
    AS_PRINTED,
    DIMS,
    SIZE_SCENES,
    TYPICAL_DIM,
    TYPICAL_WIDTH,
    WIDTHS,
    PaperPlan,
)
from sketchbandits.lab.report import figures
from sketchbandits.policies.registry import POLICIES, PolicySpec, parse_policies

FOUR = "cslb,cslb:radius=logdet,oful,ucb1"
SPEED = {"ucb1": 0.1, "cslb": 0.2, "multiscale": 0.5, "oful": 2.0, "cbscfd": 9.0, "soful": 12.0}
SLOW = {str(AS_PRINTED["cslb"]): 70.0, str(AS_PRINTED["soful"]): 60.0, str(AS_PRINTED["cbscfd"]): 50.0}


def made(task, *, scale=1.0):
    """A curve like a square root; no two of scene, policy and run have the same regret or the same time."""
    rank = list(POLICIES).index(task.policy.name) + 0.2 * len(task.policy.options)
    rank += 5.3 * (str(task.policy) == "oful:radius=logdet")  # its name has two lines
    points = np.array([task.rounds]) if task.timed else checkpoints(task.rounds)
    if isinstance(task.scene, Scene):
        scale *= dict(task.scene.options)["n_arms"] / 60 * (1.25 if task.scene.normalize == "unit" else 1.0)
    regret = scale * (1 + rank) * (1 + 0.1 * task.run**2) * np.sqrt(points)
    speed = SLOW.get(str(task.policy), SPEED.get(task.policy.name, 1.0 + rank))
    seconds = scale * 1e-6 * speed * (1 + 0.1 * task.run**2) * task.rounds
    clusters = 60 / dict(task.policy.options).get("sketch_size", 5)
    return Outcome(points, regret, seconds, 0.1, {"clusters": clusters})


def study_of(plan, outcome=made, **options):
    return plan.study({task: outcome(task, **options) for task in plan.tasks()})


def own_plan(policies=FOUR, **options):
    policies = parse_policies(policies) if isinstance(policies, str) else policies
    scene = Scene("mine", paper.model(5), "heavy-tailed", (("n_arms", 30), ("dim", 7)), "unit")
    return OwnPlan(**{"scene": scene, "policies": policies, "rounds": 2000, "runs": 3} | options)


@pytest.fixture(scope="module")
def played():
    plan = PaperPlan(rounds=2000, runs=3, datasets=(1, 2))
    study = study_of(plan)
    return plan, study, figures.paper_figures(plan, study)


def panels(figure):
    """Axes by row and column, with what the reader finds above and beside them."""
    columns = [ax.get_title() for ax in figure.axes if ax.get_title()]
    return np.array(figure.axes).reshape(-1, len(columns)), columns


def row_labels(figure):
    return [text.get_text() for text in figure.findobj(Annotation) if text.get_fontweight() == "bold"]


def names(ax):
    """The names at the ends of the curves."""
    return [text for text in ax.texts if isinstance(text, Annotation) and text.arrow_patch is not None]


def boxes(texts):
    return [Text.get_window_extent(text) for text in texts]


def apart(texts):
    return not any(one.overlaps(other) for one, other in combinations(boxes(texts), 2))


def whole(figure):
    """Nothing drawn outside the figure's area."""
    box, size = figure.get_tightbbox(), figure.get_size_inches()
    return box.x0 >= 0 and box.y0 >= 0 and box.x1 <= size[0] and box.y1 <= size[1]


# ---- regret


def test_regret_has_a_column_a_data_set_and_a_row_a_normalisation(played):
    _, _, drawn = played
    assert list(drawn) == ["regret-1-2", "time-1-2", "arms", "sizes", "growth"]
    for name in ("regret-1-2", "time-1-2"):
        grid, columns = panels(drawn[name])
        assert grid.shape == (2, 2)
        assert columns == ["(1) N = 60, d = 50, l = 5", "(2) N = 100, d = 50, l = 10"]
        assert row_labels(drawn[name]) == ["max norm", "unit norm"]


def test_curves_are_the_means_in_their_policies_colours(played):
    plan, study, drawn = played
    grid, _ = panels(drawn["regret-1-2"])
    for row, normalize in enumerate(("max", "unit")):
        for column, number in enumerate((1, 2)):
            lines = {line.get_label(): line for line in grid[row, column].get_lines()}
            assert set(lines) == {policy.label for policy in plan.policies}
            for policy in plan.policies:
                runs, line = study["regret"][number, normalize, str(policy)], lines[policy.label]
                np.testing.assert_array_equal(line.get_xdata(), [0, *runs.checkpoints])
                np.testing.assert_allclose(line.get_ydata(), [0, *runs.curves.mean(axis=0)])
                assert line.get_color() == palette.COLOURS[policy.name]
                assert line.get_linestyle() == palette.line_of(policy)


def test_the_band_is_students_and_stays_above_nothing(played):
    _, study, drawn = played
    ax, curves = drawn["regret-1-2"].axes[0], study["regret"][1, "max", "cslb"].curves
    half = 4.302653 * curves.std(axis=0, ddof=1) / np.sqrt(3)  # Student's t, 2 degrees of freedom
    band = next(band for band in ax.collections if to_hex(band.get_facecolor()[0]) == palette.COLOURS["cslb"].lower())
    corners = band.get_paths()[0].vertices
    assert np.isclose(corners[:, 1].max(), (curves.mean(axis=0) + half).max())
    wide = own_plan("cslb", runs=2)
    (band,) = figures.own_figures(wide, study_of(wide, _one_good_run))["regret"].axes[0].collections
    assert band.get_paths()[0].vertices[:, 1].min() == 0.0


def _one_good_run(task):
    outcome = made(task)
    return Outcome(outcome.checkpoints, outcome.regret * 50**task.run, outcome.seconds, 0.1, {})


def test_one_run_has_no_band():
    plan = own_plan("ucb1", runs=1, rounds=100)
    drawn = figures.own_figures(plan, study_of(plan))  # a single time, too: no axis may collapse
    assert not drawn["regret"].findobj(PolyCollection)
    assert len(drawn["regret"].axes[0].get_lines()) == 1


def test_names_stand_at_the_ends_and_apart(played):
    _, _, drawn = played
    for ax in drawn["regret-1-2"].axes:
        assert {text.get_text().replace("\n", " ") for text in names(ax)} == {p.label for p in PaperPlan().policies}
        assert apart(names(ax))
    ax = drawn["regret-1-2"].axes[0]
    for text, line in zip(names(ax), ax.get_lines(), strict=True):
        assert text.xy == (2000, pytest.approx(line.get_ydata()[-1]))
        box = Text.get_window_extent(text)
        assert box.x0 > ax.bbox.x1
        assert np.isclose((box.y0 + box.y1) / 2, ax.transData.transform(text.xy)[1], atol=8)
        assert not text.arrow_patch.get_visible()  # these ends are far from each other


def _same_end(task):
    outcome = made(task)
    return Outcome(outcome.checkpoints, np.sqrt(outcome.checkpoints), outcome.seconds, 0.1, outcome.facts)


def test_names_of_equal_curves_are_moved_and_led():
    plan = own_plan("all")
    drawn = figures.own_figures(plan, study_of(plan, _same_end))["regret"]
    texts = names(drawn.axes[0])
    assert len(texts) == len(POLICIES) and apart(texts) and whole(drawn)
    assert all(text.arrow_patch.get_visible() for text in texts)
    tops = [box.y1 for box in boxes(texts)]
    assert max(tops) <= drawn.axes[0].bbox.y1 + 1


def test_apart_moves_no_more_than_needed():
    wanted, heights = np.array([10.0, 100.0, 12.0, 50.0]), np.full(4, 8.0)
    found = drawing.apart(wanted, heights, 0.0, 104.0)
    np.testing.assert_allclose(found, [7.0, 100.0, 15.0, 50.0])
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 9):
        wanted, heights = rng.uniform(0, 200, n), rng.uniform(8, 20, n)
        found = drawing.apart(wanted, heights, 0.0, 200.0)
        order = np.argsort(wanted)
        gaps = np.diff(found[order]) - (heights[order][1:] + heights[order][:-1]) / 2
        assert (gaps > -1e-9).all()
        assert (found - heights / 2).min() > -1e-9 and (found + heights / 2).max() < 200 + 1e-9


def test_many_policies_have_a_legend_instead():
    plan = own_plan(policies=(*parse_policies("all"), *parse_policies("cslb:sketch_size=2,cslb:sketch_size=3")))
    drawn = figures.own_figures(plan, study_of(plan))["regret"]
    assert not names(drawn.axes[0])
    (legend,) = drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == [policy.label for policy in plan.policies]
    assert whole(drawn)


def test_rounds_and_regret_are_written_short(played):
    assert [drawing.thousands(value) for value in (0, 0.5, 250, 5000, 12_500, 200_000, 1_500_000)] == [
        *("0", "0.5", "250", "5k", "12.5k", "200k", "1.5M")
    ]
    _, _, drawn = played
    ax = drawn["regret-1-2"].axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "500", "1k", "1.5k", "2k"]
    assert ax.get_ylim()[0] == 0.0


# ---- running time


def test_time_rows_are_sorted_and_the_same_everywhere(played):
    _, _, drawn = played
    for ax in drawn["time-1-2"].axes:
        assert ax.get_xscale() == "log" and ax.yaxis_inverted()  # the fastest is on top
        assert len(ax.get_yticks()) == 10
    labels = [label.get_text() for label in drawn["time-1-2"].axes[0].get_yticklabels()]
    slow = ["CBSCFD (shrink every-round)", "SOFUL (shrink every-round)", "CS-LB (engine sketch)"]
    assert labels == ["UCB1", "CS-LB", "multi-scale", "OFUL", "OFUL (radius logdet)", "CBSCFD", "SOFUL", *slow]
    assert drawn["time-1-2"].axes[-1].get_xlabel() == "microseconds per round, log scale"


def test_time_shows_every_run_their_mean_and_spread(played):
    _, study, drawn = played
    ax = drawn["time-1-2"].axes[0]
    rows = {label.get_text(): place for place, label in enumerate(ax.get_yticklabels())}
    places = [(1, "max"), (2, "max"), (1, "unit"), (2, "unit")]
    for (panel, place), policy in product(
        zip(drawn["time-1-2"].axes, places, strict=True), (PolicySpec("cslb"), AS_PRINTED["soful"])
    ):
        times = study["time"][*place, str(policy)].microseconds
        line, mean, runs = (line for line in panel.get_lines() if line.get_ydata()[0] == rows[policy.label])
        np.testing.assert_allclose(line.get_xdata(), [times.min(), times.max()])
        np.testing.assert_allclose(mean.get_xdata(), times.mean())
        np.testing.assert_allclose(runs.get_xdata(), times)
        assert {line.get_color(), mean.get_color(), runs.get_color()} == {palette.colour_of(policy)}
        assert mean.get_markersize() > runs.get_markersize() and runs.get_alpha() < 1
        assert mean.get_markerfacecolor() == ("white" if policy in AS_PRINTED.values() else palette.colour_of(policy))
    numbers = [text.get_text() for text in ax.texts if text.get_text()[0].isdigit()]
    assert numbers == ["0.12", "0.23", "0.58", "2.3", "2.3", "11", "14", "58", "70", "82"]
    assert apart([text for text in ax.texts if text.get_text()[0].isdigit()])


def test_time_ticks_are_plain_numbers(played):
    _, _, drawn = played
    low, high = drawn["time-1-2"].axes[0].get_xlim()
    ticks = [
        label.get_text()
        for tick, label in zip(
            drawn["time-1-2"].axes[2].get_xticks(), drawn["time-1-2"].axes[2].get_xticklabels(), strict=True
        )
        if low <= tick <= high
    ]
    assert ticks == ["0.1", "1", "10", "100"]
    assert [drawing.two_digits(value) for value in (0.0456, 0.1, 0.996, 1.23, 12.3, 1234.5)] == [
        *("0.046", "0.10", "1.0", "1.2", "12", "1,234")
    ]


# ---- sweeps


def curves(ax):
    """Points with bars, by label."""
    return {bars.get_label(): bars for bars in ax.containers}


def reference(ax):
    """The slope of the grey line."""
    (line,) = (line for line in ax.get_lines() if line.get_color() == "#BDBDBD")
    x, y = np.log(line.get_xdata()), np.log(line.get_ydata())
    return (y[1] - y[0]) / (x[1] - x[0])


def test_arms_shows_regret_against_n(played):
    _, study, drawn = played
    grid, columns = panels(drawn["arms"])
    assert columns == ["arms in 20 directions", "arms in general position"]
    assert row_labels(drawn["arms"]) == ["max norm", "unit norm"]
    ax = grid[1, 0]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert [label.get_text() for label in grid[1, 0].get_xticklabels()] == ["20", "40", "80", "160"]
    for kind in ("ucb1", "cslb", "oful"):
        line, _, (bars,) = curves(ax)[POLICIES[kind].label].lines
        regrets = [study["arms"]["20 directions", n, "unit", kind].regret for n in ARM_COUNTS]
        np.testing.assert_allclose(line.get_ydata(), [values.mean() for values in regrets])
        np.testing.assert_allclose(line.get_xdata() / ARM_COUNTS, 1.0, atol=0.07)  # side by side, not on each other
        spans = np.array([segment[:, 1] for segment in bars.get_segments()])
        np.testing.assert_allclose(spans, [(values.min(), values.max()) for values in regrets])
        assert line.get_color() == palette.COLOURS[kind]
    assert np.isclose(reference(ax), 1.0)
    assert {text.get_text() for text in names(ax)} == {"UCB1", "CS-LB", "OFUL", "OFUL\n(radius logdet)", "linear in N"}
    assert apart(names(ax))


def test_sizes_shows_paired_ratios_and_where_the_paper_expects_less(played):
    _, study, drawn = played
    grid, columns = panels(drawn["sizes"])
    assert columns == ["(1) N = 60, d = 50", "(4) N = 200, d = 50, m = 10", "N = 400, d = 20"]
    sizes = study["sizes"]
    for ax, name, used in zip(grid[0], SIZE_SCENES, ([1, 2, 5, 10, 20, 50],) * 2 + ([1, 2, 5, 10, 20],), strict=True):
        assert ax.get_xscale() == ax.get_yscale() == "log"
        *others, points = ax.get_lines()
        assert any(list(line.get_ydata()) == [1.0, 1.0] for line in others)
        np.testing.assert_array_equal(points.get_xdata(), used)
        found = [ratio(sizes[name, l, "max"].regret, sizes[name, "closed", "max"].regret) for l in used]
        np.testing.assert_allclose(points.get_ydata(), [value.mean for value in found])
        bars = {line.get_xdata()[0]: line.get_ydata() for line in others if len(set(line.get_xdata())) == 1}
        np.testing.assert_allclose([bars[l] for l in used], [(value.low, value.high) for value in found])
    (shade,) = grid[0, 2].patches
    # K = 60 / l: l sqrt(60 / l) = 20 at l = 400 / 60
    assert np.isclose(shade.get_x() + shade.get_width(), 400 / 60, rtol=0.01)
    assert any("the paper\nexpects CS-LB to win" in text.get_text() for text in grid[0, 2].texts)


def test_growth_has_both_engines_and_the_expected_powers(played):
    _, study, drawn = played
    left, right = drawn["growth"].axes
    for ax, cells, sizes in (
        (left, [(d, TYPICAL_WIDTH) for d in DIMS], DIMS),
        (right, [(TYPICAL_DIM, l) for l in WIDTHS], WIDTHS),
    ):
        assert ax.get_xscale() == ax.get_yscale() == "log"
        for engine in ("coordinates", "sketch"):
            line = curves(ax)[f"CS-LB (engine {engine})"].lines[0]
            np.testing.assert_array_equal(line.get_xdata(), sizes)
            means = [study["growth"][engine, *cell].microseconds.mean() for cell in cells]
            np.testing.assert_allclose(line.get_ydata(), means)
        assert apart(names(ax))
    assert np.isclose(reference(left), 1.0) and np.isclose(reference(right), 2.0)
    assert {"∝ d", "engine sketch", "engine coordinates"} == {text.get_text() for text in names(left)}
    assert "∝ l²" in {text.get_text() for text in names(right)}


# ---- all of them


def test_nothing_is_drawn_outside(played):
    _, _, drawn = played
    assert [name for name, figure in drawn.items() if not whole(figure)] == []


def test_type_is_large_enough(played):
    _, _, drawn = played
    for figure in drawn.values():
        assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 9
        assert figure.get_size_inches()[0] == 9.0


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_little_is_enough(scale):
    """One data set, one normalisation, one run, two policies; and then no regret and no time at all."""
    policies = parse_policies("cslb,ucb1")
    plan = PaperPlan(policies=policies, rounds=100, runs=1, datasets=(3,), normalize=("unit",))
    drawn = figures.paper_figures(plan, study_of(plan, scale=scale))
    assert list(drawn) == ["regret-3-4", "time-3-4", "arms", "sizes", "growth"]
    assert len(drawn["regret-3-4"].axes) == len(drawn["time-3-4"].axes) == 1
    assert row_labels(drawn["regret-3-4"]) == ["unit norm"]
    outputs.render({name: drawn[name] for name in ("arms", "sizes") if not scale})  # no warning


def test_own_figures_name_the_scene():
    plan = own_plan()
    drawn = figures.own_figures(plan, study_of(plan))
    assert list(drawn) == ["regret", "time"]
    assert [figure.axes[0].get_title() for figure in drawn.values()] == ["mine, unit norm"] * 2
    assert "CS-LB\n(radius logdet)" in {text.get_text() for text in names(drawn["regret"].axes[0])}
    assert len(drawn["time"].axes[0].get_yticks()) == 4
    long = "cslb:engine=sketch,radius=logdet,sketch_size=8"
    plan = own_plan(f"{long},ucb1", scene=FileScene("$5$.csv", paper.model(5), "items.csv", ""))
    drawn = figures.own_figures(plan, study_of(plan))
    assert drawn["time"].axes[0].get_title() == "$5$.csv, arms as they are"
    assert not drawn["time"].axes[0].title.get_parse_math()  # dollars are no formula
    assert all(map(whole, drawn.values()))


def test_the_same_outcomes_give_the_same_bytes():
    plan, settings = own_plan("cslb,ucb1", rounds=200), dict(matplotlib.rcParams)
    first, second = (outputs.render(figures.own_figures(plan, study_of(plan))) for _ in range(2))
    assert first == second
    assert dict(matplotlib.rcParams) == settings  # the user's stay as they are
    assert list(first) == [f"figures/{name}.{suffix}" for name in ("regret", "time") for suffix in ("png", "svg")]
    assert first["figures/regret.png"].startswith(b"\x89PNG")
    assert b"<svg" in first["figures/regret.svg"] and b"<dc:date>" not in first["figures/regret.svg"]
    other = figures.own_figures(plan, study_of(plan, scale=2.0))["regret"]
    assert all(first[name] != content for name, content in outputs.render({"regret": other}).items())
