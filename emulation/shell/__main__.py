"""Inside the sandbox: brings the plan's network up, then runs one command in a node, or a shell.

``python -m emulation.shell PLAN EVENTS [NODE COMMAND…]``, where PLAN is an inherited file descriptor and EVENTS the
directory for the shell's events. Ends with the command's exit status.
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
from emulation.shell.recording import Recording
from testbed.errors import TestbedError
from testbed.plan.model import from_json


def main(arguments: list[str]) -> int:
    with os.fdopen(int(arguments[0]), "rb") as file:
        plan = from_json(file.read())
    try:
        found = probe()
        found.require_emulation()
        events = Path(arguments[1])
        recording = Recording(events)

        def record(kind: str, **fields: Any) -> None:
            recording.network_event(kind, **fields)
            if kind == "warning":
                print(f"warning: {fields['message']}", file=sys.stderr)  # noqa: T201 - a command

        with Emulation(plan, found, record, events) as network:
            write_hosts(network)
            recording.begin(network, measured=plan.program is not None)  # of a recorded shell
            shell = Shell(network, recording, sys.stdin.isatty())
            now_s = time.monotonic()
            network.helpers.begin(now_s, now_s)
            try:
                if len(arguments) > 2:
                    return shell.run(arguments[2], arguments[3:])
                return shell.loop()
            finally:
                recording.end(network)
    except TestbedError as error:
        print(f"testbed: {error}", file=sys.stderr)  # noqa: T201 - a command
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    assert Path("/run/testbed/sandbox").exists(), "this module is started by `testbed shell`"
    sys.exit(main(sys.argv[1:]))
