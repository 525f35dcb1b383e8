"""A page in this machine's Chromium; where there is none, the tests that ask for it are skipped with the reason."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="the dashboard is tested with the package playwright")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Refusals by the page's Content-Security-Policy, also those that the console does not show.
TELL_VIOLATIONS = """
    addEventListener("securitypolicyviolation", e => console.error(`CSP: ${e.violatedDirective} ${e.blockedURI}`))
"""
PATIENCE = 15_000  # milliseconds: for a busy machine; what is waited for usually comes immediately


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser, closed in the end."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"needs a browser: none of {', '.join(NAMES)} is on the path")
    with playwright.sync_playwright() as engine:
        running = engine.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield running
        finally:
            running.close()


class Visit:
    """A fresh tab, and all that it asked for and complained of."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.add_init_script(TELL_VIOLATIONS)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)


@contextmanager
def visit(running: Any, **options: Any) -> Iterator[Visit]:
    """A tab of its own in ``running``: nothing stored, ``options`` as Playwright's ``new_context`` takes them."""
    context = running.new_context(locale="en-US", timezone_id="Europe/Berlin", **options)
    try:
        yield Visit(context)
    finally:
        context.close()
