"""Warnings of a simulated run about its own prediction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.scenario.load import loads
from testbed.simulation.run import simulate

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
timeouts: {rendezvous: 1 h, step_deadline: 10 h, run_deadline: 30 h}
"""
SMALL = ("training.model={kind: mlp, hidden: 400}", "training.data=digits")


def warnings(directory: Path, *overrides: str) -> list[str]:
    messages: list[str] = []

    def on_progress(event: dict[str, object]) -> None:
        if event["kind"] == "warning":
            messages.append(str(event["message"]))

    plan = build_plan(loads(SCENARIO, overrides=["simulation.fold=false", *overrides]))
    exits = simulate(plan, make_role, directory, on_progress)
    assert [end.error for end in exits.values() if end.error] == []
    return messages


def test_long_transfers_on_even_paths_are_inside_the_claim(tmp_path: Path) -> None:
    assert warnings(tmp_path, "paradigm=ps") == []


def test_a_connection_of_its_own_may_be_short(tmp_path: Path) -> None:
    """HiPS: each data centre sends one sum over its own link; they meet only at the hub's, which is made wide."""
    wide = "topology.links[0].rate=10 Gbit/s"
    assert not any(" b>hub" in message for message in warnings(tmp_path, *SMALL, wide))


def test_short_transfers_that_share_a_link_are_warned_of(tmp_path: Path) -> None:
    (message,) = warnings(tmp_path, *SMALL, "paradigm=ps")
    assert re.match(r"on [abc]>hub, 4 connections send 0\.\d+ bandwidth-delay products", message)


@pytest.mark.parametrize(("loss", "warned"), [("1 %", 0), ("5 %", 1)])
def test_heavy_losses_are_warned_of(loss: str, warned: int, tmp_path: Path) -> None:
    fault = f"faults=[{{kind: loss, link: 'b>hub', at: 1 ms, for: 50 ms, loss: {loss}}}]"
    found = [message for message in warnings(tmp_path, *SMALL, fault) if "lost at random" in message]
    assert len(found) == warned
    for message in found:
        assert re.match(r"5 % of the packets are lost at random on paths over (b>hub|hub>a) \(and on 1 ", message)
        assert message.endswith(": not validated above 2 %; use 'simulation: {network: emulated}'")


@pytest.mark.parametrize(("control", "warned"), [("cubic", 1), ("bbr", 0)])
def test_loss_based_algorithms_on_uneven_round_trips_are_warned_of(control: str, warned: int, tmp_path: Path) -> None:
    far = ("topology.links[2].delay=60 ms", f"transport.congestion_control={control}", "topology.links[*].queue=1 MiB")
    found = [message for message in warnings(tmp_path, "paradigm=ps", *far) if "may share unevenly" in message]
    assert len(found) == warned
