"""DSCP marks are on the wire, and the emulated bottleneck serves channels by them. Needs a kernel and privileges."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from emulation.sandbox import Sandbox
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
