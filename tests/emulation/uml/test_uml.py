"""The netem way on a kernel that has it: Debian's user-mode Linux, as one process, beside any kernel.

Its one processor and coarse timer say nothing about rates and late packets; what netem does to packets is exact there.
Needs ``apt-get install user-mode-linux``. Minutes, so marked slow.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.inside import ROOT

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("linux.uml") is None, reason="user-mode-linux is not installed"),
]
JOB = """export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
export OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={root}
ip link set dev lo up
cd {root}
timeout 700 {python} /tmp/job.py
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("uml")
    for name in ("init.sh", "load_modules.py", "job.py"):
        shutil.copy(HERE / name, folder / name)
    (folder / "init.sh").chmod(0o755)
    (folder / "job.sh").write_text(JOB.format(root=ROOT, python=sys.executable))
    argv = [
        "linux.uml", "mem=2G", "root=none", "rootfstype=hostfs", "rootflags=/", "ro", f"init={folder}/init.sh",
        "con=null", "con0=null,fd:2", "con1=null,fd:1", "quiet", f"UMLCMD={folder}",
    ]  # fmt: skip
    done = subprocess.run(argv, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=800, check=False, cwd=folder)
    found = {}
    for line in done.stderr.decode(errors="replace").splitlines():
        if line.startswith('{"case"'):
            said = json.loads(line)
            found[said["case"]] = said["result"]
    assert found, done.stderr.decode(errors="replace")[-2000:]
    return found


def test_this_kernel_has_netem(results: dict[str, Any]) -> None:
    assert results["probe"]["netem"] and results["probe"]["htb"]


def test_losses_and_their_account(results: dict[str, Any]) -> None:
    lossy, gaps = results["lossy"], results["bursts"]
    assert lossy["received"] + lossy["lost"] == 5000
    assert lossy["lost"] == pytest.approx(250, abs=65)
    assert sum(gaps) == pytest.approx(2000, rel=0.25) and statistics.mean(gaps) == pytest.approx(5.0, rel=0.25)


def test_what_else_happens_to_packets(results: dict[str, Any]) -> None:
    order = results["reordered"]
    ahead = sum(any(later < number for later in order[place + 1 :]) for place, number in enumerate(order))
    assert sorted(order) == list(range(500)) and 20 <= ahead <= 85
    assert results["duplicated"] == pytest.approx(550, abs=30)
    assert results["corrupted"] == pytest.approx(450, abs=30)  # a wrong bit is found by a checksum, and the packet lost


def test_outages_lans_and_live_changes(results: dict[str, Any]) -> None:
    outage, lan, live = results["outage"], results["slow_lan"], results["live_change"]
    assert 85 <= outage["answered"] <= 115 and (outage["down"], outage["up"]) == (0, 5)
    assert statistics.median(lan["lan_s"]) == pytest.approx(0.006, abs=0.003)
    assert live["backlog_before"] > 80_000 and live["dropped"] == 0
    assert statistics.median(live["fast_s"]) == pytest.approx(0.040, abs=0.006)
