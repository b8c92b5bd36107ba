"""Which model of the network a simulation takes, and why."""

from __future__ import annotations

import math
from pathlib import Path

from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.plan.packets import MOST_PACKETS, cure_of_flows
from testbed.scenario.load import load, loads
from tests.for_each import for_each

SCENARIO = """
version: 1
name: sites
seed: 1
run: {on: simulate}
topology:
  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 2}]
  links: [{between: [a, b], rate: 10 Mbit/s, delay: 10 ms}]
  lan: {rate: 1 Gbit/s, delay: 0.1 ms}
training: {model: {kind: mlp, hidden: 100}, data: digits, rounds: 5}
"""


LONG = ("training.model.hidden=10000", "training.rounds=5000", "timeouts={run_deadline: 1000 h}")


def simulation(*overrides: str, on: str = "simulate") -> tuple[str, str]:
    found = planned(*overrides, on=on).simulation
    return found.network, found.network_reason


def planned(*overrides: str, on: str = "simulate") -> Plan:
    return build_plan(loads(SCENARIO, overrides=overrides), on)


def test_packets_are_counted_by_hand() -> None:
    """Of 7,510 parameters: up and down for three workers and two servers, of which one is across the link."""
    segments = math.ceil(4 * (64 * 100 + 100 + 10 * 100 + 10) / 1448)
    nodes = 3 + 2
    wan, lan = 2 * segments, 2 * nodes * math.ceil(segments / 45)  # a LAN of 1 Gbit/s has frames of 64 KB
    network, reason = simulation()
    assert network == "packets"
    assert reason == f"by default, as at most {5 * (wan + lan):,} packets are predicted"


def test_of_a_script_whose_model_is_unknown_no_number_of_packets_is_told(tmp_path: Path) -> None:
    """A bound for the largest models would send a run of a small one to the wrong cure, and rounds are the script's."""
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    own = "training: {rounds: 300}\nworkload: {script: train.py}\n"
    lines = (line for line in SCENARIO.splitlines() if not line.startswith(("training:", "optimizer:")))
    path = tmp_path / "s.yaml"
    path.write_text("\n".join([*lines, own]), encoding="utf-8")
    plan = build_plan(load(path), "simulate")
    why = "by default, as the size of the script's model is not known beforehand"
    assert (plan.simulation.network, plan.simulation.network_reason) == ("flows", why)
    assert cure_of_flows([plan]) == "simulate packet by packet: 'simulation: {network: packets}'"


@for_each(
    ("overrides", "network", "reason"),
    [
        ((*LONG,), "flows", f"and packets are simulated up to {MOST_PACKETS:,}"),
        (("checkpoint.every=2",), "flows", "checkpoints"),
        (("simulation.network=flows",), "flows", "as simulation.network says"),
        (("simulation.network=packets", *LONG), "packets", "as simulation.network says"),
        (("simulation.network=tcp",), "flows", "as simulation.network says"),
        (("simulation.network=emulated",), "packets", "as simulation.network says"),
        (("simulation.network=ideal",), "ideal", "as simulation.network says"),
    ],
)
def test_a_large_run_and_one_with_checkpoints_take_flows(overrides: tuple[str, ...], network: str, reason: str) -> None:
    found, why = simulation(*overrides)
    assert found == network and reason in why


def test_other_back_ends_simulate_nothing() -> None:
    assert simulation(on="local") == ("flows", "")
