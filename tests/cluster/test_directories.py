"""Temporary directories of agents and of points of sweeps."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.for_each import for_each

CODE = """
import os
from testbed.cluster.directories import temporary_directory
with temporary_directory("testbed-x-") as path:
    print(path, flush=True)
"""


@for_each("ends", ["pass", "os.kill(os.getpid(), 9)"])
def test_a_temporary_directory_is_removed_however_its_process_ends(ends: str) -> None:
    command = [sys.executable, "-c", f"{CODE}    {ends}"]
    path = Path(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())
    assert path.name.startswith("testbed-x-")
    while path.exists():
        time.sleep(0.05)
