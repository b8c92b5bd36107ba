"""Random losses that begin and end during a run: a loss-based window falls to what they allow, and grows again."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.simulation.congestion_window import CongestionWindow
from testbed.simulation.pacing import Pipe
from testbed.simulation.tcp_model import TcpModel
from tests.engine.runs import run
from tests.for_each import for_each

SEGMENT = 1448
QUICKSTART = Path(__file__).parents[2] / "scenarios/quickstart.yaml"
# seconds of rounds 9 to 30 in an exact run (the Linux kernel's own TCP) of the test below
EXACT_S = (0.674, 0.714, 1.481, 1.755, 1.586, 1.418, 1.271, 1.108, 0.945, 0.818, 0.818,
           0.820, 0.705, 0.703, 0.700, 0.698, 0.646, 0.625, 0.618, 0.610, 0.564, 0.509)  # fmt: skip


def opened(**model: object) -> CongestionWindow:
    """Return a window of 200 segments that fills its path of 100."""
    cwnd = CongestionWindow(TcpModel(**model), None, Pipe(100 * SEGMENT / 0.1, 0.1, 1e9))  # type: ignore[arg-type]
    cwnd.size_bytes, cwnd.open = 200.0 * SEGMENT, True
    return cwnd


@for_each(("control", "kept"), [("reno", 0.5), ("cubic", 0.7)])
def test_a_round_that_loses_any_packet_shrinks_the_window(control: str, kept: float) -> None:
    cwnd = opened(congestion_control=control, window_after_loss=kept)
    cwnd.path_loses(0.0, 0.01, 10.0 * SEGMENT)
    assert cwnd.shrinks
    cwnd.next_round(0.0, 0.0)
    any_lost = 1 - 0.99**100
    assert cwnd.arrival_delay_s(100 * SEGMENT) == pytest.approx(0.1 * any_lost), "the repair takes a round trip"
    assert not cwnd.next_round(0.1, 100.0 * SEGMENT)
    assert cwnd.size_bytes == pytest.approx(200 * SEGMENT * (1 - (1 - kept) * any_lost))


def test_it_falls_to_what_the_losses_allow_and_grows_when_they_end() -> None:
    cwnd = opened(congestion_control="cubic", window_after_loss=0.7)
    cwnd.path_loses(0.0, 0.05, 10.0 * SEGMENT)
    rounds = 0
    while not cwnd.next_round(0.1 * rounds, 200.0 * SEGMENT * rounds):
        rounds += 1
    assert cwnd.size_bytes == 10 * SEGMENT and not cwnd.shrinks
    assert 8 <= rounds <= 10, "0.7^8.4 is a twentieth"
    cwnd.path_loses(5.0, 0.0, 10.0 * SEGMENT)
    sizes = []
    for second in range(6, 16):
        cwnd.after_idle(float(second), 0.0, 0.3, 0.0)
        sizes.append(cwnd.size_bytes)
    assert sizes == sorted(sizes) and sizes[0] < 20 * SEGMENT and sizes[-1] > 200 * SEGMENT


def test_rounds_during_and_after_losses_are_those_of_the_kernel(tmp_path: Path) -> None:
    """Two connections of a worker's data centre, 2 % of the packets lost for 3 s: CUBIC needs 20 s to recover."""
    ended = run(
        tmp_path, "training.rounds=31", "training.evaluate_every=31", "training.target_accuracy=null",
        "links[*].rate_trace=null", "links[*].queue=null", "device.step_time=50 ms",
        'faults=[{kind: loss, link: "virginia<>tokyo", at: 5 s, for: 3 s, loss: 2 %}]', scenario=QUICKSTART,
    )  # fmt: skip
    found_s = [event["t"] - event["t0"] for event in ended.of_kind("round", "tokyo/worker0")][9:31]
    assert sum(found_s) == pytest.approx(sum(EXACT_S), rel=0.15)
    assert all(found == pytest.approx(exact, rel=0.3) for found, exact in zip(found_s, EXACT_S, strict=True))
