"""Options of a training job that do not go together, and the tables that a scenario reads."""

from __future__ import annotations

import subprocess
import sys


def test_options_need_no_torch() -> None:
    code = "import sys, testbed.training.options, testbed.training.declared; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert result.stdout.strip() == "False"
