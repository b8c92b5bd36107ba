"""Inside the sandbox: brings the plan's network up, then runs one command in a node, or a shell.

``python -m emulation.shell PLAN [NODE COMMAND…]``, where PLAN is an inherited file descriptor. Ends with the command's
exit status.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from emulation.hosts import write_hosts
from emulation.network import Emulation
from emulation.probe import probe
from emulation.shell.commands import Shell
from emulation.shell.session import ShellSession
from testbed.errors import TestbedError
from testbed.plan.model import from_json


def main(arguments: list[str]) -> int:
    """Run the command or the shell; return the exit status."""
    with os.fdopen(int(arguments[0]), "rb") as file:
        plan = from_json(file.read())
    try:
        found = probe()
        found.require_emulation()
        with Emulation(plan, found, _record) as network:
            write_hosts(network)
            session = ShellSession(network)
            now_s = time.monotonic()
            network.helpers.begin(now_s, now_s)
            if len(arguments) > 1:
                return session.run(arguments[1], arguments[2:])
            return Shell(session, sys.stdin.isatty()).loop()
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)  # noqa: T201 - a command
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _record(kind: str, **fields: Any) -> None:
    if kind == "warning":
        print(f"warning: {fields['message']}", file=sys.stderr)  # noqa: T201 - a command


if __name__ == "__main__":
    assert Path("/run/testbed/sandbox").exists(), "this module is started by `testbed shell`"
    sys.exit(main(sys.argv[1:]))
