"""The stall probe: it sees a codec that works in the event loop, and not one that works beside it."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time

import pytest

from analysis.benchmarks import stalls
from testbed.realtime.processor import Processor

OPTIONS = argparse.Namespace(codec=("none", "topk"), elements=2_000_000, repeats=1)


def test_a_row_for_the_idle_machine_and_for_each_codec_that_does_something() -> None:
    rows = list(stalls.measure(OPTIONS))
    assert [row["codec"] for row in rows] == ["idle", "topk"]
    assert all(0 <= row["median_s"] <= row["p99_s"] <= row["longest_s"] for row in rows)
    assert rows[1]["coding_s"] > 0


def test_it_sees_work_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def inline(self: Processor, row: str, elements: int, function: object) -> tuple[object, float]:
        time.sleep(0.1)
        await asyncio.sleep(0.002)
        return function(), 0.1  # type: ignore[operator]

    monkeypatch.setattr(Processor, "code", inline)
    _, row = stalls.measure(OPTIONS)
    assert row["longest_s"] > 0.09


@pytest.mark.parametrize(("waited_s", "held"), [(0.0, True), (1.0, False)])
def test_waits_for_a_core_are_not_the_codecs(waited_s: float, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    total_s = itertools.count(0.0, waited_s)
    monkeypatch.setattr(stalls, "_waited_for_cores_s", lambda: next(total_s))
    _, row = stalls.measure(OPTIONS)
    assert row["held_longest_s"] == (row["longest_s"] if held else 0.0)
