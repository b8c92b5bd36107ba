"""DSCP marks are on the wire, and the emulated bottleneck serves channels by them. Needs a kernel and privileges."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from emulation.sandbox import Sandbox
from testbed.results.events import read
from tests.emulation.inside import ROOT, finish

pytestmark = [pytest.mark.emulation, pytest.mark.wallclock]  # measures rates, which other processes disturb


def run(case: str, **arguments: Any) -> Any:
    argv = [sys.executable, "-m", "tests.emulation.priority_cases", case, json.dumps(arguments)]
    return finish(Sandbox(argv, cwd=ROOT, stdout=-1, text=True), 150.0)


def test_a_band_is_served_when_those_above_it_are_empty() -> None:  # 8 s
    seen = run("served_by_priority")
    sent, arrived = seen["sent"], seen["arrived"]
    assert arrived[0] == sent[0] and arrived[1] == sent[1]  # 8 of 10 Mbit/s
    room = (10e6 - 8e6) / 8 / (1000 + 42)
    queue = 30_000 / 1042
    assert arrived[2] == pytest.approx(room + queue, rel=0.2)
    assert arrived[3] <= queue * 1.2 < 0.1 * sent[3]
    assert sum(sent) == sum(arrived) + seen["dropped"]


def test_links_with_bands_pass_the_measuring_before_training() -> None:  # 5 s
    events = run("measured_with_bands")
    assert len([event for event in events if event["what"] == "rate"]) == 2
    assert not [event for event in events if not event["ok"]]


def test_a_capture_shows_the_mark_of_every_channel_and_no_fragments(tmp_path: Path) -> None:  # 18 s
    """Row 50. With three channels: 96 on TCP, 64, 32 and 0 on UDP, as the authors' code means to."""
    overrides = ["topology.links[*].loss=1 %", "order.adaptive=false", "order.k=0.4"]
    seen = run("dgt_run", directory=str(tmp_path), overrides=overrides)
    assert set(seen["marks"]) == {"tcp 96", "udp 64", "udp 32", "udp 0"}
    assert seen["fragments"] == 0
    assert seen["longest"] <= 1500
    events = list(read(tmp_path / "events", "hub/global0"))
    accounts = [event for event in events if event["kind"] == "blocks" and event["source"] == "left/server0"]
    assert sum(event["sent"] for event in accounts) > 12 * 30
    assert all(event["sent"] == event["delivered"] + event["late"] + event["lost"] for event in accounts)
    assert 0 < sum(event["lost"] for event in accounts) < 0.15 * sum(event["sent"] for event in accounts)
    channels = [seen["marks"][name] for name in ("udp 64", "udp 32", "udp 0")]
    assert min(channels) > 0.7 * max(channels)  # equal ranges
