"""The report in a real browser: no error, no request to anywhere, nothing wider than a phone. Skipped without one."""

import json
import os
import re
import shutil
import subprocess
from html import escape
from pathlib import Path
from typing import Any

import pytest

from analysis.load import load_run
from analysis.report.page import page
from tests.for_each import for_each
from tests.results.fake_run import make_run

BROWSERS = ("chromium", "chromium-browser", "chrome-headless-shell", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
# the browser's own traffic is off and no name can be resolved; a root user has no use for its sandbox
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
         "--disable-extensions", "--disable-domain-reliability", "--disable-dev-shm-usage",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr")  # fmt: skip
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
# In a frame, as no window of Chromium is narrower than 500 px.
FRAMED = """<!DOCTYPE html><body style="margin:0">
<iframe id="f" style="border:0" width="{across}" height="{high}" srcdoc="{page}"></iframe>
<script>const f = document.getElementById("f");
f.onload = () => {{ document.body.dataset.wide = f.contentDocument.documentElement.scrollWidth }}</script></body>"""

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason=f"no browser here: none of {', '.join(BROWSERS)} is installed"),
    pytest.mark.slow,
]


def browse(html: str, folder: Path, *more: str) -> tuple[str, str, list[str]]:
    """The document after loading, what the browser complained about, and the addresses it asked for."""
    folder.mkdir(parents=True)
    (folder / "report.html").write_text(html)
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={folder / 'net.json'}",
               *more, (folder / "report.html").as_uri()]  # fmt: skip
    environment = {**os.environ, "HOME": str(folder), "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line or "Uncaught" in line]
    return done.stdout, "\n".join(console), requests(folder / "net.json")


def requests(log: Path) -> list[str]:
    """Addresses in the browser's own log of its network stack; files and data in the page never enter it."""
    events: list[dict[str, Any]] = json.loads(log.read_text())["events"]
    urls = [event.get("params", {}).get("url", "") for event in events if isinstance(event.get("params"), dict)]
    return sorted({url for url in urls if re.match(r"(https?|wss?|ftp):", str(url))} - own_services(urls))


def own_services(urls: list[Any]) -> set[str]:
    """What Chromium asks for itself, whatever page is open."""
    hosts = ("google.com/", "googleapis.com/", "gvt1.com/", "gstatic.com/", "gvt2.com/")
    return {url for url in urls if any(host in str(url) for host in hosts)}


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    return page([load_run(make_run(folder / "one", back_end="emulate")), load_run(make_run(folder / "two"))])


@for_each("width", WIDTHS)
def test_it_opens_without_errors_or_requests_and_fits(html: str, tmp_path: Path, width: str) -> None:
    across, high = WIDTHS[width]
    framed = FRAMED.format(across=across, high=high, page=escape(html))
    document, errors, asked = browse(framed, tmp_path / "page", f"--window-size={across},{high}", "--dump-dom")
    assert not errors
    assert not asked
    (wide,) = re.findall(r'data-wide="(\d+)"', document)
    assert int(wide) <= across
    assert "What ran on what" in document


def test_screenshots_are_not_blank(html: str, tmp_path: Path) -> None:
    from matplotlib.image import imread

    for name, (across, high) in WIDTHS.items():
        picture = tmp_path / f"{name}.png"
        browse(html, tmp_path / name, f"--window-size={across},{high}", f"--screenshot={picture}")
        pixels = imread(picture)
        assert pixels.shape[1] >= 0.9 * across
        assert len({tuple(pixel) for pixel in pixels[::7, ::7, :3].reshape(-1, 3).round(2).tolist()}) > 20


def test_errors_and_requests_would_be_seen(html: str, tmp_path: Path) -> None:
    bad = html.replace("</body>", '<img src="http://127.0.0.1:9/x.png"><script>undefined_name()</script></body>')
    _, errors, asked = browse(bad, tmp_path / "bad", "--dump-dom")
    assert "undefined_name" in errors
    assert asked == ["http://127.0.0.1:9/x.png"]
