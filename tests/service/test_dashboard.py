"""The dashboard in a real Chromium, against a stand-in for the service; no complaint of the browser is overlooked."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import Visit, chromium, playwright, visit
from fake_service import NOW, FakeService, arm, bandit, minute

pytestmark = pytest.mark.process

DASH = "\N{EN DASH}"
KEY = "sb_0123456789ab_" + "k" * 43
HOSTILE = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'
PHONE = {"viewport": {"width": 360, "height": 740}}
POLL = 2_100  # milliseconds: longer than the pause between two polls
HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""
expect = playwright.expect
expect.set_options(timeout=15_000)
OpenDashboard = Callable[..., Visit]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def service() -> Iterator[FakeService]:
    fake = FakeService()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def open_dashboard(browser: Any, service: FakeService) -> Iterator[OpenDashboard]:
    """Opens a dashboard, by default the stand-in's; in the end, nothing went wrong in any of them."""
    with ExitStack() as stack:
        opened: list[Visit] = []

        def open_at(fragment: str = "", *, url: str = service.url, **options: Any) -> Visit:
            tab = stack.enter_context(visit(browser, **options))
            opened.append(tab)
            tab.page.clock.install(time=NOW + 30)
            tab.page.goto(url + fragment)
            return tab

        yield open_at
        for tab in opened:
            assert tab.complaints == []
            assert {urlsplit(request)[:2] for request in tab.requests} == {urlsplit(service.url)[:2]}


def tick(tab: Visit) -> None:
    """Let the next poll be due: waiting for it would take as long, and no more is learned."""
    tab.page.clock.fast_forward(POLL)


def polls(tab: Visit, service: FakeService) -> int:
    """How often the page asks for the list of bandits while three polls fall due."""
    barrier = "fetch('/healthz')"  # what the page sent before has arrived when this is answered
    tab.page.evaluate(barrier)
    service.asked.clear()
    for _ in range(3):
        tick(tab)
        tab.page.evaluate(barrier)
    return sum(path == "/v1/bandits" for path, _ in service.asked)


def text(tab: Visit, selector: str, words: str | re.Pattern[str]) -> None:
    """The element says this, now or soon."""
    expect(tab.page.locator(selector)).to_have_text(words)


def arms_asked(service: FakeService) -> dict[str, str]:
    """The latest query for arms."""
    return next(query for path, query in reversed(service.asked) if path == "/v1/arms")


def refusals(tab: Visit) -> None:
    """The browser itself reports answers that are no success: these were wanted."""
    wanted = ("Failed to load resource", "net::ERR_")
    tab.complaints[:] = [each for each in tab.complaints if not any(words in each for words in wanted)]


def test_shows_the_numbers(open_dashboard: OpenDashboard) -> None:
    tab = open_dashboard()
    text(tab, "#name", "default")
    text(tab, "#summary", "multiscale on 3 arms in 16 dimensions")
    tiles = {
        "decisions": ("1,234,567", "60 last minute"),
        "rewards": ("1,200,000", "50 last minute"),
        "mean": ("0.314", "of all rewards"),
        "outstanding": ("34,567", "2.8% of decisions"),
        "defaults": ("12,000", "1% of rewards"),
        "p50": ("0.42 ms", "2K requests"),
        "p99": ("12.3 ms", "99.9%: 1.25 s"),
        "queue": ("3", "at most 1,024 per bandit"),
    }
    for name, (value, note) in tiles.items():
        text(tab, f"#tile-{name} .value", value)
        text(tab, f"#tile-{name} .note", note)
    rows = tab.page.locator("#arms tbody tr")
    first, second = (rows.nth(i).locator("th, td").all_inner_texts() for i in range(2))
    assert first == ["first", "0", DASH, "0.900", "untried", "0", "active"]
    assert second == ["second", "1,000", "0.250", "0.500", "0.250 to 0.750", "0", "active"]
    clusters = tab.page.locator("#clusters tbody tr")
    assert clusters.locator("th, td").all_inner_texts() == ["7", "second", "0.750", "3", "2", "5,000"]
    facts = tab.page.locator("#log-facts, #policy-facts").all_inner_texts()
    for words in (
        "2,468,135",
        "at record 2,400,000, 68,135 since",
        "1,234,567 of 2,468,135",
        "1.2 MB",
        "0 to 1",
        "Sketch size",
        "Jun 14, 2025, 17:06",
    ):
        assert words in " ".join(facts)
    assert not re.search("Damaged|Cut back|Cannot be written", " ".join(facts))
    expect(tab.page.locator(".warning")).to_have_count(4)
    for warning in tab.page.locator(".warning").all():
        expect(warning).to_be_hidden()
    text(tab, "#status", "Live")
    text(tab, "#updated", re.compile(r"updated 17:06:3\d"))
    expect(tab.page).to_have_title("default · sketchbandits")


def test_charts_read_by_pointer_keys_and_table(open_dashboard: OpenDashboard, service: FakeService) -> None:
    service.minutes[-2] = minute(2, decisions=90, rewards=0, reward_sum=0.0)
    tab = open_dashboard()
    rates, means = tab.page.locator("#rates svg"), tab.page.locator("#means svg")
    text(tab, "#rates .readout", "Decisions 0Rewards 0latest, 17:06")
    rates.focus()
    tab.page.keyboard.press("ArrowLeft")
    text(tab, "#rates .readout", "Decisions 60Rewards 5017:05")
    tab.page.keyboard.press("ArrowLeft")
    text(tab, "#rates .readout", "Decisions 90Rewards 017:04")
    expect(rates).to_have_attribute("aria-valuetext", "17:04, Decisions 90, Rewards 0")
    tick(tab)
    text(tab, "#rates .readout", "Decisions 90Rewards 017:04")
    tab.page.keyboard.press("Home")
    text(tab, "#rates .readout", "Decisions 60Rewards 5016:36")
    box = means.bounding_box()
    means.hover(position={"x": box["width"] - 12, "y": 80})
    text(tab, "#means .readout", f"Mean {DASH}17:06")
    tab.page.mouse.move(0, 0)
    text(tab, "#means .readout", f"Mean {DASH}latest, 17:06")
    tab.page.locator("#means summary").click()
    rows = tab.page.locator("#means tbody tr")
    expect(rows).to_have_count(31)
    assert [row.split("\t")[1] for row in rows.all_inner_texts()[:4]] == [DASH, "0.500", DASH, "0.500"]
    labels = tab.page.locator("#rates .label").all_text_contents()
    assert labels[:5] == ["0", "25", "50", "75", "100"] and "16:50" in labels
    # The minute without rewards is a gap in the mean, not a zero; the one after it is alone.
    assert tab.page.locator("#means .curve").get_attribute("d").count("M") == 2
    assert tab.page.locator("#means .curve").get_attribute("d").endswith("m-2 0h4")


def test_updates_without_a_reload(open_dashboard: OpenDashboard, service: FakeService) -> None:
    tab = open_dashboard()
    text(tab, "#tile-decisions .value", "1,234,567")
    tab.page.evaluate("window.same = true")
    curve = tab.page.locator("#rates .decisions.curve").get_attribute("d")
    service.bandits = [bandit(decisions=1_234_999, mean_reward=None)]
    service.arms["default"][1]["pulls"] = 4_321
    service.arms["default"][0]["active"] = False
    service.minutes = [minute(ago, decisions=ago) for ago in range(30, 0, -1)]
    service.log |= {"records": 2_500_000, "snapshot": 0}
    service.clusters = None
    text(tab, "#tile-decisions .value", "1,234,999")  # by its own clock: two seconds
    text(tab, "#tile-mean .value", DASH)
    assert tab.page.locator("#arms tbody tr").nth(1).locator("td").first.inner_text() == "4,321"
    removed = tab.page.locator("#arms tbody tr").first.locator("td").all_inner_texts()
    assert removed == ["0", DASH, "0.900", DASH, "0", "removed"]
    assert tab.page.locator("#rates .decisions.curve").get_attribute("d") != curve
    expect(tab.page.get_by_text("This policy has no clusters.")).to_be_visible()
    expect(tab.page.locator("#clusters table")).to_be_hidden()
    assert "none yet" in tab.page.locator("#log-facts").inner_text()
    assert tab.page.evaluate("window.same")


def test_says_what_is_wrong_with_the_log(open_dashboard: OpenDashboard, service: FakeService) -> None:
    tab = open_dashboard()
    text(tab, "#status", "Live")
    service.log |= {"refusing": "database or disk is full", "damaged": 2, "cut": 1, "scrubbed": 9_000_000}
    service.bandits = [bandit(retracted=17, reward_range=None)]
    tick(tab)
    text(tab, "#refusing", re.compile("^The log cannot be written: decisions and rewards are refused"))
    text(tab, "#damaged", re.compile("Requests that need them are refused, .* “sketchbandits log” says what to do"))
    text(tab, "#cut", re.compile("The end of the log was damaged and was cut off"))
    for warning in ("#refusing", "#damaged", "#cut"):
        expect(tab.page.locator(warning)).to_be_visible()
    facts = tab.page.locator("#log-facts").inner_text()
    for words in ("Cannot be written\ndatabase or disk is full", "Damaged places\n2", "9,000,000 since the start"):
        assert words in facts
    text(tab, "#tile-rewards .note", "50 last minute, 17 taken back")
    assert "Rewards accepted\nany" in tab.page.locator("#policy-facts").inner_text()
    # A reason that changes with every attempt is not read out again.
    tab.page.evaluate(
        "new MutationObserver(() => { window.again = true }).observe("
        "document.querySelector('#warnings'), {subtree: true, childList: true, characterData: true})"
    )
    service.log["refusing"] = "no file of 65,536 bytes"
    tick(tab)
    expect(tab.page.locator("#log-facts")).to_contain_text("no file of 65,536 bytes")
    assert tab.page.evaluate("window.again") is None
    service.log |= {"refusing": None, "damaged": 0, "cut": 0}
    tick(tab)
    for warning in ("#refusing", "#damaged", "#cut"):
        expect(tab.page.locator(warning)).to_be_hidden()


def test_says_which_parameter_looks_too_small(open_dashboard: OpenDashboard, service: FakeService) -> None:
    tab = open_dashboard()
    warning = tab.page.locator("#assumptions")
    expect(warning).to_be_hidden()
    noise = {"parameter": "noise", "given": 0.1, "seen": 0.412, "suggestion": 0.5}
    norm = {"parameter": "theta_norm", "given": 1.0, "seen": 2.5, "suggestion": 3.0}
    service.bandits = [
        bandit(assumptions={"noise": 0.1, "noise_seen": 0.4, "theta_norm": 1.0, "violated": [noise, norm]})
    ]
    tick(tab)
    expect(warning).to_be_visible()
    for words in (
        "noise = 0.1 looks too small: rewards of one arm scatter by 0.412",
        "noise = 0.5 would fit",
        "theta_norm = 1 looks too small: the rewards imply a norm of at least 2.5",
        "theta_norm = 3 would fit",
    ):
        expect(warning).to_contain_text(words)
    service.bandits = [bandit()]
    tick(tab)
    expect(warning).to_be_hidden()


def test_a_key_above_its_limit_waits(open_dashboard: OpenDashboard, service: FakeService) -> None:
    tab = open_dashboard()
    text(tab, "#status", "Live")
    service.bandits, service.retry_after, service.limited = [bandit(decisions=9)], "30", 1
    tick(tab)
    text(tab, "#status", re.compile(r"^Waits until 17:07:\d\d: the key's limit$"))
    expect(tab.page.locator("#content")).not_to_have_class("stale")
    assert polls(tab, service) == 0
    tab.page.evaluate(HIDE, True)
    tab.page.evaluate(HIDE, False)
    assert polls(tab, service) == 0  # the wait outlives a change of tabs
    tab.page.clock.fast_forward(30_000)
    text(tab, "#tile-decisions .value", "9")
    text(tab, "#status", "Live")
    # One request per second: the three that are sent together go on one after the other.
    service.bandits, service.retry_after, service.limited = [bandit(decisions=10)], "1", 5
    service.asked.clear()
    for _ in range(9):
        tick(tab)
        tab.page.evaluate("fetch('/healthz')")
    text(tab, "#tile-decisions .value", "10")
    text(tab, "#status", "Live")
    refusals(tab)


def test_polls_do_not_overlap(open_dashboard: OpenDashboard, service: FakeService) -> None:
    tab = open_dashboard()
    text(tab, "#status", "Live")
    service.slow.clear()
    try:
        assert polls(tab, service) == 1  # it waits for its answer
    finally:
        service.slow.set()
    service.bandits = [bandit(decisions=12)]
    text(tab, "#tile-decisions .value", "12")


def test_asks_for_the_key_and_keeps_it_in_the_tab(open_dashboard: OpenDashboard, service: FakeService) -> None:
    service.key = KEY
    tab = open_dashboard()
    expect(tab.page.locator("#key-form")).to_be_visible()
    expect(tab.page.locator("#content")).to_be_hidden()
    expect(tab.page.locator("#key")).to_be_focused()
    text(tab, "#status", "Key needed")
    assert polls(tab, service) == 0
    tab.page.keyboard.type("sb_wrong")
    tab.page.keyboard.press("Enter")
    text(tab, "#key-refused", "The service refused this key.")
    assert tab.page.evaluate("sessionStorage.length") == 0
    tab.page.locator("#key").fill(KEY)
    tab.page.get_by_role("button", name="Open").click()
    text(tab, "#tile-decisions .value", "1,234,567")
    expect(tab.page.locator("#key-form")).to_be_hidden()
    service.key = "another"  # revoked while the page is open
    tick(tab)
    expect(tab.page.locator("#content")).to_be_hidden()
    service.key = KEY
    tab.page.locator("#key").fill(KEY)
    tab.page.keyboard.press("Enter")
    text(tab, "#tile-decisions .value", "1,234,567")
    stores = tab.page.evaluate("[Object.values(sessionStorage), localStorage.length, document.cookie, location.href]")
    assert stores == [[KEY], 0, "", service.url + "#default"]
    tab.page.reload()
    text(tab, "#tile-decisions .value", "1,234,567")
    tab.page.get_by_role("button", name="Forget key").click()
    expect(tab.page.locator("#key-form")).to_be_visible()
    assert tab.page.evaluate("sessionStorage.length") == 0
    assert not any(KEY in url for url in tab.requests)
    refusals(tab)


def test_says_when_the_service_is_gone_and_recovers(open_dashboard: OpenDashboard, service: FakeService) -> None:
    tab = open_dashboard()
    text(tab, "#status", "Live")
    service.stop()
    tick(tab)
    text(tab, "#status", re.compile(r"^Not reachable since 17:06:\d\d \(no answer\)$"))
    expect(tab.page.locator("#content")).to_have_class("stale")
    text(tab, "#tile-decisions .value", "1,234,567")
    since = tab.page.locator("#status").inner_text()
    failed = len(tab.complaints)
    while len(tab.complaints) < failed + 2:  # the browser reports each poll that fails
        tick(tab)
        tab.page.wait_for_timeout(20)
    assert tab.page.locator("#status").inner_text() == since
    service.bandits = [bandit(decisions=7)]
    service.start()
    tick(tab)
    text(tab, "#status", "Live")
    text(tab, "#tile-decisions .value", "7")
    expect(tab.page.locator("#content")).not_to_have_class("stale")
    words = {"x": "it answered 503", "storage": "its log cannot be written", "not_ready": "it is starting or stopping"}
    for code, said in words.items():
        service.status, service.code = 503, code
        tick(tab)
        text(tab, "#status", re.compile(rf"^Not reachable since .* \({said}\)$"))
    service.retry_after = "20"
    tick(tab)
    tab.page.evaluate("fetch('/healthz')")
    assert polls(tab, service) == 0
    service.status = 200
    tab.page.clock.fast_forward(20_000)
    text(tab, "#status", "Live")
    refusals(tab)


def test_a_hidden_tab_asks_nothing(open_dashboard: OpenDashboard, service: FakeService) -> None:
    tab = open_dashboard()
    text(tab, "#status", "Live")
    tab.page.evaluate(HIDE, True)
    assert polls(tab, service) == 0
    service.bandits = [bandit(decisions=8)]
    tab.page.evaluate(HIDE, False)
    text(tab, "#tile-decisions .value", "8")
    assert polls(tab, service) > 0


def test_sorts_searches_and_pages_by_the_service(open_dashboard: OpenDashboard, service: FakeService) -> None:
    service.arms["default"] = [arm(f"arm-{i:03}", pulls=i, mean=-i, estimate=i, bound=i + 1 / 7) for i in range(60)]
    tab = open_dashboard()
    first = "#arms tbody tr:first-child th"
    text(tab, first, "arm-059")
    assert arms_asked(service) == {"bandit": "default", "limit": "25", "offset": "0", "sort": "estimate"}
    expect(tab.page.locator("[aria-sort]")).to_have_attribute("aria-sort", "descending")
    tab.page.get_by_role("button", name="Next").click()
    text(tab, ".where", f"26{DASH}50 of 60")
    text(tab, first, "arm-034")
    tab.page.get_by_role("button", name="Next").click()
    text(tab, ".where", f"51{DASH}60 of 60")
    expect(tab.page.get_by_role("button", name="Next")).to_be_disabled()
    tab.page.get_by_role("button", name="Previous").click()
    text(tab, ".where", f"26{DASH}50 of 60")
    tab.page.get_by_role("button", name="Mean", exact=True).focus()
    tab.page.keyboard.press("Enter")
    text(tab, first, "arm-000")
    assert arms_asked(service) == {"bandit": "default", "limit": "25", "offset": "0", "sort": "mean"}
    tab.page.get_by_role("button", name="Arm", exact=True).click()
    expect(tab.page.locator("[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    tab.page.get_by_label("Search arms by id").press_sequentially("-05")
    text(tab, ".where", f"1{DASH}10 of 10")
    assert arms_asked(service)["search"] == "-05" and arms_asked(service)["sort"] == "id"
    tab.page.get_by_label("Search arms by id").fill("a&b#ü")
    expect(tab.page.get_by_text("No arm has “a&b#ü” in its id.")).to_be_visible()
    assert arms_asked(service)["search"] == "a&b#ü"
    # A page that is gone when arms are: the last that there is.
    tab.page.get_by_label("Search arms by id").fill("")
    text(tab, ".where", f"1{DASH}25 of 60")
    tab.page.get_by_role("button", name="Next").click()
    text(tab, ".where", f"26{DASH}50 of 60")
    del service.arms["default"][20:]
    tick(tab)
    text(tab, ".where", f"1{DASH}20 of 20")


def test_hostile_text_is_only_text(open_dashboard: OpenDashboard, service: FakeService) -> None:
    service.arms["default"] = [arm(HOSTILE)]
    service.settings = {HOSTILE: HOSTILE}
    service.bandits = [bandit(HOSTILE, policy=HOSTILE)]
    service.arms[HOSTILE] = [arm(HOSTILE)]
    service.clusters["shown"][0]["sentinel"]["arm"] = HOSTILE
    tab = open_dashboard()
    text(tab, "#arms tbody th", HOSTILE)
    text(tab, "#clusters tbody .id", HOSTILE)
    text(tab, "#name", HOSTILE)
    tab.page.get_by_label("Search arms by id").fill(HOSTILE + "?")
    expect(tab.page.locator("#arms .nothing")).to_contain_text(HOSTILE)
    assert tab.page.evaluate("window.harmed") is None
    assert tab.page.locator("main img, main script").count() == 0


def test_several_bandits(open_dashboard: OpenDashboard, service: FakeService) -> None:
    service.bandits = [bandit("default"), bandit("news", decisions=22), bandit("shop", decisions=33)]
    service.arms |= {"news": [arm("headline")], "shop": [arm("shoe")]}
    tab = open_dashboard("#news")
    text(tab, "#tile-decisions .value", "22")
    picker = tab.page.get_by_label("Bandit")
    assert picker.locator("option").all_inner_texts() == ["default", "news", "shop"]
    expect(picker).to_have_value("news")
    tab.page.get_by_label("Search arms by id").fill("head")
    picker.select_option("shop")
    text(tab, "#tile-decisions .value", "33")
    text(tab, "#arms tbody th", "shoe")
    assert arms_asked(service)["bandit"] == "shop" and "search" not in arms_asked(service)
    assert tab.page.url.endswith("#shop")
    tab.page.reload()
    text(tab, "#name", "shop")
    tab.page.go_back()
    text(tab, "#name", "news")
    tab.page.evaluate("location.hash = '#%nobody'")
    text(tab, "#name", "default")
    assert tab.page.url.endswith("#default")


def test_no_bandits_no_minutes_and_a_bandit_without_arms(open_dashboard: OpenDashboard, service: FakeService) -> None:
    service.bandits, full = [], service.bandits
    service.minutes, service.arms["default"] = [], []
    service.latency = {"count": 0, "p50_ms": None, "p99_ms": None, "p999_ms": None}
    tab = open_dashboard()
    expect(tab.page.locator("#empty")).to_be_visible()
    expect(tab.page.locator("#content")).to_be_hidden()
    service.bandits = full
    tick(tab)
    expect(tab.page.locator("#rates svg")).to_have_text("Nothing yet")
    expect(tab.page.get_by_text("This bandit has no arms.")).to_be_visible()
    text(tab, "#tile-p99 .value", DASH)
    expect(tab.page.locator("#empty")).to_be_hidden()


def test_fits_a_phone(open_dashboard: OpenDashboard, service: FakeService) -> None:
    long = "homepage/" * 12
    service.arms["default"] = [arm(f"{long}{i}", pulls=123_456_789, active=i % 2 > 0) for i in range(30)]
    service.clusters["shown"][0]["sentinel"]["arm"] = long * 3
    service.bandits = [bandit(decisions=98_765_432_101, rewards=99_999_999), bandit("b" * 64)]
    service.arms["b" * 64] = []
    service.settings["options"] = {"a": ["x" * 90]}
    service.log |= {"cut": 1, "damaged": 3, "refusing": "/a/very/long/path" * 9}
    service.bandits[0] |= {"retracted": 12_345_678}
    tab = open_dashboard(**PHONE)
    text(tab, "#tile-decisions .value", "98.8B")
    text(tab, "#tile-rewards .value", "99,999,999")
    for details in tab.page.locator("summary").all():
        details.click()
    wide = "document.documentElement.scrollWidth"
    assert tab.page.evaluate(wide) == 360
    clipped = "[...document.querySelectorAll('.tiles .value')].every(e => e.scrollWidth <= e.clientWidth)"
    assert tab.page.evaluate(clipped)
    assert tab.page.evaluate("(e => e.scrollWidth > e.clientWidth)(document.querySelector('#arms .scroll'))")
    tab.page.evaluate(f"location.hash = '{'b' * 64}'")
    text(tab, "#name", "b" * 64)
    assert tab.page.evaluate(wide) == 360
    service.key = KEY
    tick(tab)
    expect(tab.page.locator("#key-form")).to_be_visible()
    assert tab.page.evaluate(wide) == 360
    refusals(tab)


def test_dark_and_light(open_dashboard: OpenDashboard) -> None:
    tab = open_dashboard()
    ground, text_colour = (tab.page.locator(name) for name in ("html", "#summary"))
    for scheme, colours in {"light": ("245, 245, 242", "90, 96, 106"), "dark": ("16, 18, 22", "161, 168, 179")}.items():
        tab.page.emulate_media(color_scheme=scheme)
        expect(ground).to_have_css("background-color", f"rgb({colours[0]})")
        expect(text_colour).to_have_css("color", f"rgb({colours[1]})")
