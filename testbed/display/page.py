"""Shows the page of a run in a browser, and serves it while the run runs."""

from __future__ import annotations

import subprocess
import sys
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path

from testbed.execution.session import Follower
from testbed.plan.model import Plan


def show(url: str, *, browser: bool) -> None:
    """Print the page's address and, if ``browser``, open it in a browser."""
    _tell(f"view: {url}")
    if browser:
        webbrowser.open(url)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class Page(Follower):
    """The page of a run that begins, served by a separate process, which ends when this process ends."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "analysis.view"]
        self._server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True
        )

    def start(self, plan: Plan, directory: Path) -> None:
        del plan
        assert self._server.stdin is not None
        self._server.stdin.write(f"{directory.absolute()}\n")
        self._server.stdin.flush()
        threading.Thread(target=self._show, daemon=True).start()  # the run does not wait for it

    def _show(self) -> None:
        assert self._server.stdout is not None
        if url := self._server.stdout.readline().strip():
            show(url, browser=True)

    def stay(self) -> None:
        """Keep the page until Ctrl-C."""
        _tell("view: the page stays until Ctrl-C")
        with suppress(KeyboardInterrupt):
            self._server.wait()

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()  # the server ends at this
        self._server.wait()
