"""The dashboard of a real service, in a real browser."""

import signal

import pytest
from browser import chromium, playwright, visit
from service_tools import Process, write_arms
from test_serve import ask

from sketchbandits.service.keys import ADMIN, KeyRing

expect = playwright.expect


@pytest.mark.process
def test_the_page_follows_a_real_service(tmp_path):
    state = tmp_path / "state"
    service = Process(state, "--arms", write_arms(tmp_path / "arms.npy"), "--policy", "multiscale:sketch_size=2")
    key = KeyRing(state / "keys.json").create("the page", ADMIN)
    try:
        with chromium() as running, visit(running) as tab:
            tab.page.goto(service.address)
            tab.page.locator("#key").fill(key)
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
            assert [text for text in tab.complaints if "401" not in text] == []
            tab.page.set_viewport_size({"width": 360, "height": 700})
            assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
    finally:
        service.stop(signal.SIGTERM)
