"""What a simulated run doubts of its own prediction."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.plan.packets import MOST_PACKETS, cure_of_flows, packets_of
from testbed.results import fidelity, tables
from testbed.scenario.load import loads
from testbed.simulation.run import simulate
from tests.for_each import for_each

SCENARIO = """
version: 1
name: validity
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 0}, {name: b, workers: 4}, {name: c, workers: 4}]
  routers: [hub]
  links: [{between: [a, hub], rate: 50 Mbit/s, delay: 10 ms}, {between: [b, hub], rate: 50 Mbit/s, delay: 10 ms},
          {between: [c, hub], rate: 50 Mbit/s, delay: 10 ms}]
training: {model: {kind: declared, name: resnet18}, data: none, batch: 1, rounds: 2, evaluate_every: 100,
           compute: modelled}
device: {step_time: 100 ms}
simulation: {network: flows, fold: false}
timeouts: {rendezvous: 1 h, step_deadline: 10 h, run_deadline: 30 h}
"""
SMALL = ("training.model={kind: mlp, hidden: 400}", "training.data=digits")


def warnings(directory: Path, *overrides: str, scenario: str = SCENARIO) -> list[str]:
    messages: list[str] = []

    def on_progress(event: dict[str, object]) -> None:
        if event["kind"] == "warning":
            messages.append(str(event["message"]))

    plan = build_plan(loads(scenario, overrides=overrides))
    exits = simulate(plan, make_role, directory, on_progress)
    assert [end.error for end in exits.values() if end.error] == []
    return messages


def test_long_transfers_on_even_paths_are_not_in_doubt(tmp_path: Path) -> None:
    assert warnings(tmp_path, "paradigm=ps") == []


def test_short_transfers_that_share_a_link_are_in_doubt(tmp_path: Path) -> None:
    (message,) = [found for found in warnings(tmp_path, *SMALL, "paradigm=ps") if "connections" in found]
    assert re.match(r"8 connections send short messages over (hub>a|a>hub) \(and 5 other link directions\)", message)


def test_transfers_of_some_bytes_share_a_link_without_doubt(tmp_path: Path) -> None:
    tiny = ("training.model={kind: mlp, hidden: 1}", "training.data=digits", "links[*].rate=1 Gbit/s")
    assert [found for found in warnings(tmp_path, *tiny, "paradigm=ps") if "connections" in found] == []


TWO_SITES = """
version: 1
name: small
seed: 7
run: {on: simulate}
topology:
  data_centers: [{name: a, workers: 1, central: true}, {name: b, workers: 1}]
  links: [{between: [a, b], rate: 6 Mbit/s, delay: 45 ms}]
training: {model: cnn, data: digits, batch: 8, rounds: 3, evaluate_every: 1000}
device: {step_time: 60 ms}
optimizer: {kind: sgd, learning_rate: 0.05}
simulation: {network: flows}
"""


@for_each(
    ("settings", "word"),
    [
        ((), "bursts overflow the queue of [ab]>"),  # 0.795 s a round, packet by packet 0.928, emulated 0.945
        (("topology.links[0].queue=500 KB",), ""),  # 0.845 and 0.843
        (("topology.links[0].queue=500 KB", "topology.links[0].loss=0.5 %"), "0.5 % of the packets are lost"),
        (("topology.links[0].delay=5 ms", "training.model={kind: mlp, hidden: 16}"), "the shaper of [ab]>[ab] passes"),
        (("simulation.network=packets",), ""),
        (("simulation.network=ideal",), ""),
    ],
)
def test_a_small_run_doubts_itself_where_it_is_off(settings: tuple[str, ...], word: str, tmp_path: Path) -> None:
    found = warnings(tmp_path, *settings, scenario=TWO_SITES)
    assert [bool(re.match(word, message)) for message in found] == [True] * (word != "")
    assert all(message.endswith("'simulation: {network: packets}'") for message in found)
    report = fidelity.assess(tables.read(tmp_path), {"back_end": "simulate", "warnings": []}, {})
    assert report["status"] == ("degraded" if word else "ok") and report["reasons"] == found


@for_each(("control", "warned"), [("cubic", 1), ("bbr", 0)])
def test_loss_based_algorithms_on_uneven_round_trips_are_in_doubt(control: str, warned: int, tmp_path: Path) -> None:
    far = ("topology.links[2].delay=60 ms", f"transport.congestion_control={control}", "topology.links[*].queue=1 MiB")
    found = [message for message in warnings(tmp_path, "paradigm=ps", *far) if "may share unevenly" in message]
    assert len(found) == warned


def test_what_is_too_large_for_packets_is_simulated_in_part(tmp_path: Path) -> None:
    plan = build_plan(loads(TWO_SITES))
    each = packets_of(plan) // 3
    long = replace(plan, training=replace(plan.training, rounds=1000 * MOST_PACKETS // each))
    told = re.match(
        r"simulate the first \d+ rounds packet by packet: 'training: \{rounds: (\d+)\}' with "
        r"'simulation: \{network: packets\}' \(all rounds may be [\d,]+ packets, which take \d+ \w+ of a processor\)",
        cure_of_flows([long]),
    )
    assert told is not None
    first = replace(plan, training=replace(plan.training, rounds=int(told[1])))
    assert packets_of(first) <= MOST_PACKETS
    assert cure_of_flows([plan]).startswith("simulate packet by packet")
