"""Clocks of machines: compared by questions, and events corrected by what is known of them."""

from __future__ import annotations

import gzip
import json
import random
import time
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed.cluster.agents import AgentHandle
from testbed.cluster.clocks import WANDER, ClockComparison, ClockSample, correct_file, sample_of
from testbed.results.tables import read_part
from tests.for_each import for_each

S = 10**9


def asked(at_s: float, offset_s: float, there_s: float, back_s: float) -> ClockSample:
    """A question to a clock that is ahead by ``offset_s``, and the times that both directions took."""
    t1 = round(at_s * S)
    t2 = t1 + round((there_s + offset_s) * S)
    t3 = t2 + 1000
    return sample_of(t1, t2, t3, t3 + round((back_s - offset_s) * S))


@for_each(("there_s", "back_s"), [(0.001, 0.001), (0.003, 0.0), (0.0, 0.010)])
def test_one_question_bounds_the_offset(there_s: float, back_s: float) -> None:
    sample = asked(5.0, 0.05, there_s, back_s)
    assert abs(sample.offset_ns - 0.05 * S) <= sample.error_ns + 1
    assert sample.error_ns == pytest.approx((there_s + back_s) / 2 * S, abs=2)


def test_a_process_that_is_held_up_before_it_reads_an_answer_bounds_the_offset_all_the_same() -> None:
    """Here both ends have one clock, and the answer comes 20 ms after the driver has found that it can read."""

    class HeldUp:
        def clock_ns(self, limit_s: float) -> int:
            time.sleep(0.02)
            there_ns = time.monotonic_ns()
            time.sleep(0.02)
            return there_ns

    agent: Any = SimpleNamespace(started=HeldUp(), silence_s=1.0)
    sample = AgentHandle.sample(agent)
    assert abs(sample.offset_ns) <= sample.error_ns > 1e6


def test_slow_answers_do_not_count_beside_quick_ones() -> None:
    clock = ClockComparison()
    for number in range(100):
        slow = number % 10 != 0
        clock.add(asked(number * 0.25, -0.02, 0.02 if slow else 0.0001, 0.0001))
    assert abs(clock.offset_ns(10 * S) + 0.02 * S) < 2e-4 * S
    assert clock.report()["error_s"] < 2e-4


def test_a_drift_is_followed_all_the_time() -> None:
    """50 ms ahead and 80 ppm fast, asked over links that are slow now and then, for an hour: right to 1 ms."""
    rng, clock = random.Random(1), ClockComparison()

    def offset_s(at_s: float) -> float:
        return 0.05 + 80e-6 * at_s

    for number in range(3600 * 2):
        at_s = number * 0.5
        delays = [rng.expovariate(1 / 0.0004) + (rng.random() < 0.2) * rng.uniform(0, 0.1) for _ in range(2)]
        clock.add(asked(at_s, offset_s(at_s), *delays))
    corrected = clock.correction(0, offset_s(0) * S)
    worst = 0.0
    for at_s in range(0, 3600, 7):
        by_that_clock = at_s + offset_s(at_s) - offset_s(0)  # seconds since the epoch as that machine was told it
        worst = max(worst, abs(corrected(by_that_clock) - at_s))
    assert worst < 1e-3
    assert clock.report()["drift_ppm"] == pytest.approx(80, abs=1)


def test_a_time_is_looked_up_beside_two_questions_however_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of progress and every event asks; in some hours a machine is asked tens of thousands of times."""
    rng, clock, samples = random.Random(2), ClockComparison(), []
    for number in range(800):
        samples.append(ClockSample(number * S // 4, rng.randrange(10**6), rng.choice((10**5, 10**6, 10**9))))
        clock.add(samples[-1])
    useful = [
        one
        for one in samples
        if all(one.error_ns <= each.error_ns + WANDER * abs(each.at_ns - one.at_ns) for each in samples)
    ]
    assert clock._useful == useful and 240 < len(useful) < 800
    times, interp, looked = [rng.randrange(-S, 210 * S) for _ in range(100)], np.interp, []
    wanted = [interp(at, [each.at_ns for each in useful], [each.offset_ns for each in useful]) for at in times]
    monkeypatch.setattr(
        np, "interp", lambda at, times, offsets: looked.append(len(times)) or interp(at, times, offsets)
    )
    assert [clock.offset_ns(at) for at in times] == wanted
    corrected = clock.correction(0, 0)
    assert [corrected(at / S) for at in times] == [
        at / S - offset / S for at, offset in zip(times, wanted, strict=True)
    ]
    assert len(looked) == 200 and max(looked) == 2


def test_machines_with_one_clock_are_not_corrected() -> None:
    clock = ClockComparison(same=True)
    clock.add(asked(0.0, 0.0, 0.004, 0.001))
    assert clock.offset_ns(0) == 0 and clock.report()["error_s"] == 0
    assert clock.correction(0, 0)(1.5) == 1.5


def test_events_of_two_clocks_come_to_be_of_one(tmp_path: Path) -> None:
    path = tmp_path / "a.0000.jsonl.gz"
    events = [
        {"t": 2.0, "kind": "transfer", "node": "a", "t0": 1.0, "source": "b"},
        {"t": 3.0, "kind": "compute", "node": "a", "t0": 2.5},
        {"t": 4.0, "kind": "evaluate", "node": "a", "snapshot_t": 3.5, "loss": None},
        {"t": 5.0, "kind": "transfer", "node": "a", "t0": 4.5, "source": "b", "message": "gloo", "header_bytes": 0},
    ]
    path.write_bytes(gzip.compress(b"".join(json.dumps(event).encode() + b"\n" for event in events) + b'{"t": 5'))
    correct_file(path, lambda t: t - 0.25, {"b": lambda t: t + 0.5})
    assert [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()] == [
        events[0] | {"t": 1.75, "t0": 1.5},
        events[1] | {"t": 2.75, "t0": 2.25},
        events[2] | {"t": 3.75, "snapshot_t": 3.25},
        events[3] | {"t": 4.75, "t0": 4.25},
    ]


@for_each(("tail", "lost"), [(b"", 1), (b"\xff" * 40, 1)])
def test_what_is_damaged_is_still_reported_when_times_are_corrected(tmp_path: Path, tail: bytes, lost: int) -> None:
    path = tmp_path / "a.0000.jsonl.gz"
    lines = (b'{"t": 1.5, "node": "a", "kind": "start"}', b'{"t": 2.0, "kind": "sta')
    stream = zlib.compressobj(3, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    path.write_bytes(stream.compress(b"\n".join(lines) + b"\n") + stream.flush(zlib.Z_SYNC_FLUSH) + tail)
    correct_file(path, lambda t: t - 0.5, {})
    assert (b'"t":1.0' in gzip.decompress(path.read_bytes())) == (not tail)
    (warning,) = read_part(path)["warnings"].to_pylist()
    assert f"{lost} damaged line" in warning["message"]
