"""Delays and losses by netem and by NFQUEUE, both in one kernel that has both, in virtual time: they are alike.

In virtual time nothing is late, so what is measured is what the two make of a link.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emulation.bulk import GOODPUT_SHARE
from emulation.exact import kernel
from emulation.exact.command import Guest, exact_command, fixed_environment
from emulation.exact.guest_init import PROGRESS
from tests.emulation.inside import ROOT
from tests.for_each import for_each

pytestmark = [
    pytest.mark.slow,  # 150 s, all of it in the fixture
    pytest.mark.timeout(900),
    pytest.mark.skipif(kernel.find() is None, reason="the kernel is not built: testbed exact build"),
]
both = pytest.mark.parametrize("method", ["netem", "nfqueue"])
Results = dict[tuple[str, str], Any]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("guest")
    environment = {**fixed_environment({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}), "PYTHONPATH": str(ROOT)}
    job = [sys.executable, str(Path(__file__).with_name("job.py"))]
    command, outer = exact_command(kernel.require(), Guest(1, 200, 2 << 30), folder, job, environment)
    subprocess.run(command, stdin=subprocess.DEVNULL, env=outer, timeout=800, check=False, capture_output=True)
    said = [json.loads(line) for line in (folder / PROGRESS).read_text().splitlines()]
    assert said, (folder / "host.log").read_text()
    return {(line["method"], line["case"]): line["result"] for line in said}


@both
def test_losses_and_their_account(results: Results, method: str) -> None:
    lossy, gaps = results[method, "lossy"], results[method, "bursts"]
    assert lossy["received"] + lossy["lost"] == 5000
    assert lossy["lost"] == pytest.approx(250, abs=65)
    assert sum(gaps) == pytest.approx(2000, rel=0.25) and statistics.mean(gaps) == pytest.approx(5.0, rel=0.25)


@for_each("case", ["lost_numbers", "lost in bursts"])
def test_both_lose_the_same_packets(results: Results, case: str) -> None:
    assert results["netem", case] == results["nfqueue", case] and 100 < len(results["netem", case]) < 300


@both
def test_settings_are_read_back(results: Results, method: str) -> None:
    assert [message.split(" of ")[0].rpartition(" ")[2] for message in results[method, "read_back"][1:]] == [
        "delay_s",
        "loss",
    ]


@both
def test_packets_overtake_others_where_the_scenario_says_so_and_never_by_jitter(results: Results, method: str) -> None:
    order = results[method, "reordered"]
    ahead = sum(any(later < number for later in order[place + 1 :]) for place, number in enumerate(order))
    assert sorted(order) == list(range(500)) and 20 <= ahead <= 85
    assert results[method, "ordered"] == list(range(500))
    delays = results[method, "jittered"]
    assert delays[0] < 0.035 and delays[-1] > 0.045 and statistics.mean(delays) == pytest.approx(0.04, abs=0.004)


def test_goodput_under_jitter_is_alike(results: Results) -> None:
    netem, nfqueue = (results[method, "goodput"] for method in ("netem", "nfqueue"))
    assert netem == pytest.approx(nfqueue, rel=0.03)
    assert netem == pytest.approx(50e6 * GOODPUT_SHARE, rel=0.05)


@both
def test_what_else_happens_to_packets(results: Results, method: str) -> None:
    assert results[method, "corrupted"] == pytest.approx(450, abs=30)  # a checksum finds a wrong bit
    if method == "netem":
        assert results[method, "duplicated"] == pytest.approx(550, abs=30)


@both
def test_outages_lans_and_live_changes(results: Results, method: str) -> None:
    outage, lan, live = (results[method, case] for case in ("outage", "slow_lan", "live_change"))
    assert 90 <= outage["answered"] <= 110 and (outage["down"], outage["up"]) == (0, 5)
    assert statistics.median(lan["lan_s"]) == pytest.approx(0.006, abs=0.001)
    assert live["backlog_before"] > 80_000 and live["dropped"] == 0
    assert statistics.median(live["fast_s"]) == pytest.approx(0.040, abs=0.001)
