"""Runs one case of ``tests.emulation.cases`` inside a sandbox and hands its JSON result back to the test outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from emulation.probe import Capabilities, probe
from emulation.sandbox import Sandbox

ROOT = Path(__file__).resolve().parent.parent.parent


def start(case: str, *, rootless: bool | None = None, **arguments: Any) -> Sandbox:
    """Start a case; its result is one line on the sandbox' standard output."""
    argv = [sys.executable, "-m", "tests.emulation.inside", case, json.dumps(arguments)]
    return Sandbox(argv, rootless=rootless, cwd=ROOT, stdout=-1, text=True)


def finish(sandbox: Sandbox, deadline_s: float = 60.0) -> Any:
    """The result of a started case."""
    with sandbox:
        output, _ = sandbox.process.communicate(timeout=deadline_s)
    assert sandbox.process.poll() == 0, f"the case ended with {sandbox.process.poll()}"
    return json.loads(output.splitlines()[-1])


def run(case: str, *, rootless: bool | None = None, **arguments: Any) -> Any:
    """Run a case to its end."""
    return finish(start(case, rootless=rootless, **arguments))


def skip_reason() -> str | None:
    """Why emulation cannot be tested on this machine; None if it can."""
    found: Capabilities = probe()
    missing = [gap for gap in found.gaps() if gap.needed]
    return f"no emulation on this machine: {missing[0].name}: {missing[0].why}" if missing else None


if __name__ == "__main__":
    from tests.emulation import cases

    print(json.dumps(getattr(cases, sys.argv[1])(**json.loads(sys.argv[2]))))  # noqa: T201 - read by finish()
