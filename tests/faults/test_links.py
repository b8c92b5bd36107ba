"""Links that are down, crawl, or come and go in any order: it costs time, and nothing else, until it lasts too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import NodeLost
from tests.faults.runs import Ended, faults, run
from tests.for_each import for_each


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run(tmp_path_factory.mktemp("calm"))


def end_s(ended: Ended) -> float:
    return float(ended.events("round", node="hub/worker0")[-1]["t"])


@for_each("cut", ["data_center: west", "link: west>hub"])
def test_an_outage_costs_its_time_and_the_finding_out(tmp_path: Path, calm: Ended, cut: str) -> None:
    """One way or both: no node trains alone meanwhile, and nobody is declared dead."""
    ended = run(tmp_path, faults(f"kind: down, {cut}, at: 300 ms, for: 5 s"))
    assert ended.error is None and ended.hashes() == calm.hashes()
    assert 4.5 < end_s(ended) - end_s(calm) < 2 * 5 + 1, "TCP's next retransmission may be as far off as it has waited"
    during = [event for event in ended.events("update") if 0.9 < event["t"] - ended.events("train")[0]["t"] < 5]
    assert during == [], "FSA waits for the side that is cut off"


@for_each("kind", ["loss, loss: 100 %", "corrupt, share: 100 %"])
def test_a_link_that_loses_every_packet_is_down(tmp_path: Path, kind: str) -> None:
    texts = (f"kind: {each}, link: west>hub, at: 200 ms, for: 2 s" for each in ("down", kind))
    large = ("training.model={kind: mlp, hidden: 750}", "training.rounds=4")  # something is under way then
    down, lossy = (run(tmp_path / str(number), *large, faults(text)) for number, text in enumerate(texts))
    assert lossy.error is None
    assert end_s(lossy) == end_s(down)
    silent = run(tmp_path / "silent", faults(f"kind: {kind}, link: west>hub, at: 300 ms"))
    assert isinstance(silent.error, NodeLost) and "no sign of life for 10 s" in str(silent.error)


def test_mixedsync_goes_on_meanwhile(tmp_path: Path) -> None:
    ended = run(tmp_path, "sync=mixedsync", faults("kind: down, data_center: west, at: 300 ms, for: 5 s"))
    assert ended.error is None
    train_s = ended.events("train")[0]["t"]
    during = {event["contributors"][0] for event in ended.events("update") if 0.5 < event["t"] - train_s < 5}
    assert during == {"hub/server0", "east/server0"}


def test_slow_is_not_dead(tmp_path: Path, calm: Ended) -> None:
    """A WAN at 15 kbit/s, for as long as it takes: far longer than ``dead_after``."""
    ended = run(tmp_path, faults("kind: rate, link: '*', at: 300 ms, rate: 15 kbit/s"))
    assert ended.error is None and ended.hashes() == calm.hashes()
    assert end_s(ended) > 2 * ended.plan.timeouts.dead_after_s


def test_nothing_at_all_is(tmp_path: Path) -> None:
    ended = run(tmp_path, faults("kind: down, link: '*', at: 300 ms"))
    assert isinstance(ended.error, NodeLost) and "no sign of life for 10 s" in str(ended.error)
    assert end_s(ended) < 1
