"""``testbed`` on a machine whose GPU is a stand-in: ``python -m tests.devices.command run SCENARIO …``."""

from __future__ import annotations

import sys

from testbed.cli.main import main
from testbed.execution import session
from tests.devices import stand_in

if __name__ == "__main__":
    session.HOST = "tests.devices.host"
    with stand_in.standing_in():
        sys.exit(main(sys.argv[1:]))
