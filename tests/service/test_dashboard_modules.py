"""The dashboard's modules one by one, its colours and its files."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Visit, chromium, visit
from fake_service import DASHBOARD, NOW, FakeService, minute

pytestmark = pytest.mark.process

DASH = "\N{EN DASH}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def modules(browser: Any) -> Iterator[Visit]:
    """A page whose modules are called one by one: `module`."""
    fake = FakeService()
    fake.start()
    with visit(browser) as tab:
        tab.page.goto(fake.url)
        yield tab
    fake.stop()


def module(tab: Visit, name: str, call: str, *arguments: Any) -> Any:
    """What a function of one of the page's modules returns."""
    return tab.page.evaluate(f"async (a) => (await import('/dashboard/{name}.js')).{call}(...a)", list(arguments))


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast(scheme: int) -> None:
    theme = (DASHBOARD / "theme.css").read_text().split("@media")[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", theme))
    texts = [(name, ground, 4.5) for name in ("ink", "soft", "bad") for ground in ("ground", "panel")]
    texts += [("on-accent", "accent", 4.5), ("on-warning", "warning", 4.5)]
    marks = [(name, "panel", 3.0) for name in ("decisions", "rewards", "mean", "edge", "accent")]
    for name, ground, least in texts + marks:
        high, low = sorted((luminance(colours[name]), luminance(colours[ground])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= least, (name, ground)


def test_history_shows_the_minute_that_is_running_as_a_rate(modules: Visit) -> None:
    def history(minutes: list[dict[str, Any]], span: int = 86_400, now: int = NOW + 30) -> list[dict[str, Any]]:
        return module(modules, "history", "history", minutes, span, now)["points"]

    points = history([minute(2, decisions=5), minute(0, decisions=1)])
    assert [point["decisions"] for point in points] == [0] * 7 + [5, 0, 2]  # one in half a minute
    assert [point["time"] for point in points[-3:]] == [NOW - 120, NOW - 60, NOW]
    assert history([minute(0, decisions=3)])[-1]["decisions"] == 6
    assert history([minute(0, decisions=3)], now=NOW + 1)[-1]["decisions"] == 36  # of five seconds at least
    assert history([minute(0, decisions=3)], now=NOW - 1_000)[-1]["decisions"] == 36  # the browser's clock is behind
    assert history([minute(3)])[-1]["decisions"] == 0
    day = history([minute(ago, decisions=ago % 7, rewards=2, reward_sum=1.0) for ago in range(1_439, -1, -1)])
    assert len(day) <= 150 and {point["mean"] for point in day} == {0.5}
    total = sum(point["decisions"] * point["minutes"] for point in day)
    assert total == pytest.approx(sum(ago % 7 for ago in range(1_440)))
    assert len(history([minute(ago) for ago in range(1_440, 0, -1)], 3_600)) == 60


def test_axes_enclose_what_they_show(modules: Visit) -> None:
    for low, high in [(0, 0), (0, 1), (0, 347), (-3.2, 5), (0.2871, 0.2873), (7, 7), (-5, -5), (0, 3e9)]:
        heights = module(modules, "scale", "marks", low, high, 4)
        assert heights[0] <= low <= high <= heights[-1] and 2 <= len(heights) <= 7
        assert heights == sorted(set(heights))
    times = module(modules, "scale", "timeMarks", NOW - 86_400, NOW, 8)
    assert 5 <= len(times) <= 9 and all((time + 7_200) % 10_800 == 0 for time in times)  # whole hours in Berlin


def test_numbers_as_people_read_them(modules: Visit) -> None:
    for value, words in [(0, "0.000"), (0.93, "0.930"), (-12.3456, "-12.346"), (123.45, "123.5"), (12_345.6, "12,346")]:
        assert module(modules, "numbers", "decimal", value) == words
    assert module(modules, "numbers", "decimal", 1.234e-5) == "1.23e-5"
    assert module(modules, "numbers", "bound", None) == "∞"
    assert module(modules, "numbers", "share", 0, 0) == DASH
    assert [module(modules, "numbers", "bytes", n) for n in (0, 999, 1_500, 2.5e9)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 GB",
    ]
    assert [module(modules, "numbers", "setting", x) for x in (0.01, 3_600, 1e-9)] == ["0.01", "3,600", "1e-9"]


def test_files_hold_nothing_inline_and_nothing_foreign() -> None:
    page = (DASHBOARD / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", page)
    for path in DASHBOARD.iterdir():
        content = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|innerHTML|outerHTML|insertAdjacentHTML|@import|\beval\b|url\(", content), (
            path.name
        )
    named = set(re.findall(r'(?:href|src)="dashboard/([^"]+)"', page))
    named |= {name for path in DASHBOARD.glob("*.js") for name in re.findall(r'from "\./([^"]+)"', path.read_text())}
    assert named | {"index.html"} == {path.name for path in DASHBOARD.iterdir()}
