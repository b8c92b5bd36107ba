"""The host process of a run on a stand-in; it ends with an error if it has used the GPU itself."""

from __future__ import annotations

import os
import sys

from testbed.execution import host
from tests.devices import stand_in

if __name__ == "__main__":
    with stand_in.standing_in():
        code = host.main(sys.argv[1:])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
