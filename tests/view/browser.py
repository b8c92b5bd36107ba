"""The browser of this machine, driven by Playwright; tests that need one are skipped where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser of this machine. Skip the test, with the reason, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (setup.sh --tests)")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(PROGRAMS)} is installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Any, url: str, *, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    """Open a page, wait until it is drawn, and check at the end that its console has no error."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: _keep_foreign(request.url, url, errors))
    page.goto(url)
    page.wait_for_selector("body.ready")
    yield page
    assert not errors, errors
    context.close()


def _keep_foreign(asked: str, url: str, errors: list[str]) -> None:
    if not asked.startswith((f"{urlsplit(url).scheme}://{urlsplit(url).netloc}/", "data:", "blob:")):
        errors.append(f"asks for {asked}")


def until(page: Any, expression: str) -> None:
    """Wait until the expression is true. Playwright's own way is a script that the page's policy refuses."""
    for _ in range(600):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")


def clock(page: Any) -> float:
    """The moment that the page shows, in seconds."""
    return float(page.evaluate("page.clock.t"))
