"""The report as a PDF: printed by a headless Chromium, as the page's own style says it prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from testbed.errors import CapabilityError
from testbed.results import atomic

BROWSERS = ("chromium", "chromium-browser", "chrome-headless-shell", "google-chrome")
# the browser's own traffic is off and no name can be resolved; a root user has no use for its sandbox
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
         "--disable-extensions", "--disable-domain-reliability", "--disable-dev-shm-usage",
         "--host-resolver-rules=MAP * ~NOTFOUND")  # fmt: skip
_TIMEOUT_S = 120


def browser() -> str | None:
    """Return the first of ``BROWSERS`` that is installed."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def printed(page: Path) -> Path:
    """Print ``page`` into the same folder; return the PDF. Raise ``CapabilityError`` without a working browser."""
    program = browser()
    if program is None:
        raise CapabilityError(f"a PDF needs a browser: install one of {', '.join(BROWSERS)}, or print {page} by hand")
    path = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory() as home, atomic.replacing(path) as temporary:
        command = [program, *QUIET, f"--user-data-dir={home}/profile", "--no-pdf-header-footer",
                   f"--print-to-pdf={Path(temporary).resolve()}", page.resolve().as_uri()]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
                              env={**os.environ, "HOME": home})  # fmt: skip
        if done.returncode or not Path(temporary).stat().st_size:
            raise CapabilityError(f"{program} could not print {page}: {done.stderr.strip()[-300:]}")
    return path
