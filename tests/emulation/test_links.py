"""Emulated links do what the Plan says, follow it live, and say so when they do not. Needs a kernel and privileges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pytest

from emulation.bulk import GOODPUT_SHARE
from testbed.settings.run import Background
from testbed.traffic import bursts
from tests.emulation.inside import WarmSandbox

BURSTS = Background(kind="on_off", source="dc1", target="dc2", rate_bps=8e6, on_s=0.2, off_s=0.2, seed="x")

pytestmark = pytest.mark.emulation


SANDBOXES: list[WarmSandbox] = []  # the one of these tests; after a failure, another


@pytest.fixture(scope="module", autouse=True)
def _sandbox() -> Iterator[None]:
    yield
    _close()


def _close() -> None:
    while SANDBOXES:
        SANDBOXES.pop().close()


def run(case: str, **arguments: Any) -> Any:
    """Run one of ``tests.emulation.cases``."""
    if not SANDBOXES:
        SANDBOXES.append(WarmSandbox())
    try:
        return SANDBOXES[0].run(case, **arguments)
    except BaseException:
        _close()
        raise


@pytest.mark.wallclock
def test_every_link_and_path_is_measured_and_right() -> None:
    events = run("measured")
    values = [event for event in events if event["kind"] == "measured"]
    assert {event["link"] for event in values if event["what"] == "rate"} == {
        f"dc{a}>dc{b}" for a in range(3) for b in range(3) if a != b
    }
    assert len([event for event in values if event["what"] == "rtt"]) == 15  # six links, six paths, three LANs
    wrong = [event for event in values if not event["ok"]]
    assert not wrong
    assert next(event["seconds"] for event in events if event["kind"] == "bring_up") < 3.0


def test_what_links_carry_is_recorded_from_the_first_echo_on_and_apart_from_training() -> None:
    seen = run("seen_before_training")
    links = [event for event in seen["monitor"] if event["kind"] in ("probe", "link")]
    kinds = [event["kind"] for event in links]
    assert kinds == sorted(kinds, reverse=True)  # probes come first
    for name, sent in seen["sent"].items():
        probes = [event["bytes"] for event in links if event["link"] == name and event["kind"] == "probe"]
        assert probes == sorted(probes) and probes[0] < 1000 and probes[-1] >= sent > 200_000
        since = [event["bytes"] for event in links if event["link"] == name and event["kind"] == "link"]
        assert since and max(since) < 1000  # not what it was measured with


@pytest.mark.wallclock
def test_a_link_that_differs_from_the_plan_refuses_the_run() -> None:
    rate, delay = run("refused")
    assert "dc0>dc1: rate planned 20.00 Mbit/s, measured 10." in rate
    assert "dc0>dc1: round-trip time planned 20.00 ms, measured 60." in delay


def test_settings_are_read_back() -> None:
    rate, delay, loss = run("read_back")
    assert "dc0>dc1: the kernel has 1e+07 bit/s" in rate
    assert "delay_s of 0.05, the plan says" in delay
    assert "loss of 0.02, the plan says 0.01" in loss


def test_a_seed_loses_the_same_packets_again() -> None:
    lost = run("lost_numbers", burst=1.0)
    assert len(lost) == pytest.approx(3000 * 0.05, rel=0.3)
    assert run("lost_numbers", burst=1.0) == lost


@pytest.mark.wallclock
def test_traces_are_followed_on_time() -> None:
    seen = run("traced")
    for measured, planned in zip(seen["steps"], (5e6, 10e6, 30e6, 20e6, 5e6, 10e6), strict=True):
        assert measured == pytest.approx(planned * GOODPUT_SHARE, rel=0.2), seen["steps"]
    changes = [event for event in seen["replay"] if event["kind"] == "replay" and event["what"] == "rate"]
    assert [event["value"] for event in changes[:6]] == [20e6, 5e6, 10e6, 30e6, 20e6, 5e6]
    assert changes[0]["planned_t"] == pytest.approx(0.6, abs=0.01)
    late = sorted(event["late_s"] for event in changes)
    assert late[0] >= 0 and late[len(late) // 2] < 0.01
    assert seen["rtt_s"][0] == pytest.approx(0.025, abs=0.003)
    links = [event for event in seen["monitor"] if event["kind"] == "link" and event["link"] == "dc0>dc1"]
    assert {event["configured_bps"] for event in links} >= {5e6, 10e6, 30e6}
    assert links[-1]["bytes"] > 4e6
    assert [event["bytes"] for event in links] == sorted(event["bytes"] for event in links)
    assert [event for event in seen["monitor"] if event["kind"] == "machine"]


def test_loss_is_as_planned_and_accounted_for() -> None:
    packets, loss = 5_000, 0.03
    seen = run("lossy", loss=loss, packets=packets)
    assert seen["received"] + seen["lost"] == packets
    sigma = (packets * loss * (1 - loss)) ** 0.5
    assert abs(seen["lost"] - packets * loss) < 4 * sigma


@pytest.mark.wallclock
def test_background_traffic_takes_its_share() -> None:
    seen = run("background")
    assert seen["beside_bps"] == pytest.approx(12e6 * GOODPUT_SHARE, rel=0.15)
    assert seen["took_bps"]["dc0>dc1"] == pytest.approx(20e6, rel=0.1)
    assert seen["took_bps"]["dc2>dc0"] == pytest.approx(20e6, rel=0.1)
    # the constant flow ends, the bursts take half of the time, TCP goes on
    last = {event["number"]: event for event in seen["log"]}
    assert last[0]["sent_bytes"] == pytest.approx(2.0 * 1e6, rel=0.1)
    planned = sum(min(end, 4.0) - begin for begin, end in takewhile(lambda burst: burst[0] < 4.0, bursts(BURSTS)))
    assert seen["bytes"]["dc1>dc2"] == pytest.approx(planned * 1e6, rel=0.2)
    assert last[2]["received_bytes"] > 5e6


@pytest.mark.wallclock  # 8 s
def test_a_band_is_served_when_those_above_it_are_empty() -> None:
    seen = run("served_by_priority")
    sent, arrived = seen["sent"], seen["arrived"]
    assert arrived[0] == sent[0] and arrived[1] == sent[1]  # 8 of 10 Mbit/s
    room, queue = (10e6 - 8e6) / 8 / (1000 + 42), 30_000 / 1042
    assert arrived[2] == pytest.approx(room + queue, rel=0.2)
    assert arrived[3] <= queue * 1.2 < 0.1 * sent[3]
    assert sum(sent) == sum(arrived) + seen["dropped"]


@pytest.mark.wallclock
def test_paths_part_by_their_source() -> None:
    seen = run("routed")
    for pair, planned_s in (("0>1", 0.006), ("0>2", 0.042), ("1>2", 0.084), ("2>0", 0.042), ("2>1", 0.084)):
        assert len(seen[pair]) == 10
        assert planned_s <= seen[pair][0] < planned_s + 0.0025, pair  # the fastest: others may wait for a core


@pytest.mark.parametrize(
    "name", ["bbr", *(pytest.param(each, marks=pytest.mark.slow) for each in ("reno", "cubic"))]
)  # 3 s
def test_congestion_control_is_the_plans(name: str) -> None:
    assert run("congestion_control", name=name) == [name, "0", "1"]


def test_without_the_delay_line_the_link_breaks_and_is_noticed() -> None:
    seen = run("broken_delay_line")
    if seen == ["netem"]:
        pytest.skip("this kernel has netem, so there is no delay line")
    assert seen[0] == "0 answers"
    assert "emulation.shaping.delay_line ended with -9" in seen[1]


def test_the_host_stays_single_threaded() -> None:
    assert run("no_threads") == 1
