"""What acknowledgements take: a share of what comes the other way at the same time, and nothing of anything else."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.plan.build import build_plan
from testbed.scenario.load import loads
from testbed.simulation.acknowledgements import SHARE, Acknowledgements
from testbed.simulation.clock import Clock
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.paths import PathTable
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel

SIZE, RATE_BPS = 1e6, 10e6
SCENARIO = """
version: 1
name: acknowledgements
seed: 1
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]
training: {model: mlp, data: digits, rounds: 1, evaluate_every: 1}
"""
HOST = "simulation.host={cores: 2, message: 1 us, stream: 100 Gbit/s}"


def both_ways() -> tuple[Acknowledgements, Acknowledgements]:
    there, back = Acknowledgements(), Acknowledgements()
    there.other, back.other = back, there
    return there, back


def test_one_way_alone_has_none_to_carry() -> None:
    there, _ = both_ways()
    assert there.enter(SIZE) == 0.0
    assert there.enter(SIZE) == 0.0
    assert Acknowledgements().enter(SIZE) == 0.0, "of a link without a way back"


def test_what_meets_on_the_way_is_acknowledged_once() -> None:
    there, back = both_ways()
    assert there.enter(SIZE) == 0.0
    assert back.enter(SIZE / 4) == pytest.approx(SHARE * SIZE / 4), "as long as it is under way itself"
    assert back.enter(3 * SIZE) == pytest.approx(SHARE * SIZE), "no more than comes"
    there.leave(SIZE)
    assert back.enter(SIZE) == 0.0
    assert pytest.approx(0.0218, abs=1e-4) == SHARE, "66 of 3028 bytes"


def ends_s(senders: str, *overrides: str) -> dict[str, float]:
    """When 1 MB has arrived, of each of ``senders`` that send to each other at the same time."""
    plan = build_plan(loads(SCENARIO, overrides=list(overrides)), "simulate")
    clock, model = Clock(), TcpModel(slow_start=False, setup_round_trips=0.0)
    paths = PathTable(plan, model.goodput)
    network = FlowNetwork(clock, paths.capacities(), paths.longest)
    arrived: dict[str, float] = {}

    def deliver(item: Any) -> None:
        arrived[item] = clock.now

    for source in senders:
        path, links = paths.between(f"{source}/worker0", f"{'ab'.replace(source, '')}/worker0")
        TcpConnection(clock, network, path, links, model, deliver).send(SIZE, 0.0, source)
    clock.finish()
    return arrived


def test_two_transfers_that_meet_take_longer_by_their_acknowledgements() -> None:
    alone, both = ends_s("a", HOST), ends_s("ab", HOST)
    more_s = SHARE * SIZE / (RATE_BPS / 8 * TcpModel().goodput)
    assert both["a"] == pytest.approx(alone["a"], rel=1e-12)  # who comes first has nothing to acknowledge yet
    assert both["b"] == pytest.approx(alone["a"] + more_s, rel=1e-9)


def test_only_where_an_emulation_is_predicted() -> None:
    assert ends_s("ab") == pytest.approx(dict.fromkeys("ab", ends_s("a")["a"]), rel=1e-12)
