"""The dashboard of a real service, in a real browser."""

import signal

import pytest
from browser import chromium, playwright, visit
from service_tools import Process, write_arms
from test_serve import ask

from sketchbandits.service.keys import ADMIN, CLIENT, KeyRing

expect = playwright.expect


@pytest.mark.process
def test_the_page_follows_a_real_service(tmp_path):
    state = tmp_path / "state"
    rules = ("--policy", "multiscale:sketch_size=2", "--reward-range", "0:3")
    service = Process(state, "--arms", write_arms(tmp_path / "arms.npy"), *rules)
    ring = KeyRing(state / "keys.json")
    key, slow = ring.create("this test", ADMIN), ring.create("the page", CLIENT, rate=3)  # a poll has four requests
    try:
        with chromium() as running, visit(running) as tab:
            tab.page.goto(service.address)
            tab.page.locator("#key").fill(slow)
            tab.page.locator("#key").press("Enter")
            expect(tab.page.locator("#name")).to_have_text("default")
            expect(tab.page.locator("#arms tbody tr")).to_have_count(12)
            assert tab.page.locator("#clusters tbody tr").count() > 1
            made = ask(service.address, "/v1/decisions", {"count": 7}, key=key)["decisions"]
            ask(service.address, "/v1/rewards", {"decision_id": made[0]["decision_id"], "reward": 2.5}, key=key)
            tiles = tab.page.locator("#tiles")
            expect(tiles).to_contain_text("2.500")  # the mean reward, without a reload
            for word in ("Decisions", "7", "Rewards", "1", "Outstanding", "6"):
                expect(tiles).to_contain_text(word)
            assert all(url.startswith(service.address) for url in tab.requests)
            expect(tab.page.locator("#policy-facts")).to_contain_text("0 to 3")
            retracted = {"decision_ids": [made[0]["decision_id"]]}
            ask(service.address, "/v1/retractions", retracted, key=key)
            expect(tiles).to_contain_text("1 taken back")
            assert [text for text in tab.complaints if "401" not in text and "429" not in text] == []
            assert any("429" in text for text in tab.complaints)
            tab.page.set_viewport_size({"width": 360, "height": 700})
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
    finally:
        service.stop(signal.SIGTERM)
